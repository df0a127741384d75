"""JAX's public surface: every function has a call, and a part of the calls is held against JAX here.

`make surface` holds all of them, in all element types and sizes: see docs/fuzzing.md.
"""

from __future__ import annotations

import zlib

import pytest
from tiering import later, sampled

from .arguments import DTYPES, SIZES
from .calls import calls, missing
from .judge import Case, judge


def _sample() -> list[Case]:
    """A few calls of each kind of functions, each in one element type and size that follow from its text."""
    cases = []
    for call in calls():
        seed = zlib.crc32(call.text.encode())
        if seed % 41 == 0:
            dtype, size = DTYPES[seed // 41 % len(DTYPES)], list(SIZES)[seed // 400 % 4]
            cases.append(Case(call, dtype, size, special=seed % 2 == 0, bytes=seed % 3 == 0))
    return cases


def test_every_public_function_is_called() -> None:
    assert missing() == []


@sampled(7)
@pytest.mark.parametrize("case", _sample(), ids=str)
def test_calls_follow_jax(case: Case) -> None:
    """JAX itself refuses some types and sizes. How long a compilation takes is the campaign's to judge: here other
    tests run beside it."""
    verdict = judge(case)
    assert verdict.kind in ("", "refused", "slow"), verdict.message


@pytest.mark.parametrize(
    ("text", "dtype", "size"),
    [
        pytest.param("jsp.stats.truncnorm.sf(x, -1.0, 2.0)", "int32", "usual", marks=later()),
        ("lax.convert_element_type(x, 'uint2')", "float32", "usual"),
        ("jnp.full(4, 2.5)", "float32", "usual"),
    ],
)
def test_what_the_sweep_found(text: str, dtype: str, size: str) -> None:
    (call,) = (c for c in calls() if c.text == text)
    verdict = judge(Case(call, dtype, size, bytes=True))
    assert verdict.kind in ("", "slow"), verdict.message
