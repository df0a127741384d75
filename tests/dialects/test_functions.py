"""A row of the table of scalar functions says everything, or says what it lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.dialects.elementwise import EXACT, ROUNDED, Function, MissingFact, value_of
from tilewright.verification.tolerance import function_error

ROW: dict[str, Any] = {
    "name": "mish",
    "arity": 1,
    "formula": "x * tanh(log(1 + exp(x)))",
    "value": "jax.nn:mish",
    "ulps": 8.0,
    "stablehlo": None,
}


def test_a_row_with_every_fact() -> None:
    assert Function(**ROW).ulps_in("f16") == 8


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("formula", ""),
        ("value", ""),
        ("ulps", None),
        ("ulps for f32", {"f16": 1.0}),
        ("stablehlo", ""),
        ("complex_error", None),
    ],
)
def test_a_missing_fact_is_one_sentence(fact: str, value: Any) -> None:
    given = {**ROW, fact.split()[0]: value, "complex_flops": 4 if fact == "complex_error" else 0}
    with pytest.raises(MissingFact, match=f"^function 'mish' has no {fact}: "):
        Function(**given)


@pytest.mark.parametrize("wrong", [{"name": "a-b"}, {"arity": 4}])
def test_a_wrong_name_or_arity(wrong: dict[str, Any]) -> None:
    with pytest.raises(MissingFact, match="identifier as its name and an arity of 1, 2 or 3"):
        Function(**{**ROW, **wrong})


def test_ulps_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.dialects import elementwise

    row = Function(**{**ROW, "ulps": {"f32": 4.0, "f16": EXACT, "bf16": ROUNDED}})
    monkeypatch.setitem(elementwise.FUNCTIONS, "mish", row)
    f16, bf16, f32 = np.dtype(np.float16), np.dtype("bfloat16"), np.dtype(np.float32)
    assert function_error("mish", f32) == 8 * 2.0**-24
    assert function_error("mish", f16) == 0
    assert function_error("mish", bf16) == 2.0**-8


@pytest.mark.parametrize(
    ("domain", "dtypes"),
    [
        ("any", ("i1", "i8", "ui32", "f16", "f32")),
        ("number", ("i8", "ui32", "f16", "f32")),
        ("float", ("f16", "f32")),
        ("whole", ("i1", "i8", "ui32")),
        ("integer", ("i8", "ui32")),
    ],
)
def test_a_domain_says_which_types_a_function_is_defined_on(domain: str, dtypes: tuple[str, ...]) -> None:
    row = Function(**{**ROW, "domain": domain})
    assert tuple(t for t in ("i1", "i8", "ui32", "f16", "f32") if row.defined_on(t)) == dtypes


def test_values_are_loaded_when_asked_for() -> None:
    import jax

    assert value_of("exp") is jax.lax.exp
    with pytest.raises(KeyError):
        value_of("convert")
