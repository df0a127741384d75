"""`tw.variants`: the first variant whose guard holds computes, in JAX and compiled, and all of them have a price."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilewright as tw


def dense(x: Any) -> Any:
    """Attention of each row to all."""
    return jnp.einsum("bsd,btd->bst", x, x) @ x


def blocked(x: Any) -> Any:
    """Attention within blocks of 64 rows."""
    b, s, d = x.shape
    y = x.reshape(b * (s // 64), 64, d)
    return dense(y).reshape(b, s, d)


PAIRS = [("s <= 64", dense), ("mod(s, 64) == 0 and b >= 1", blocked), (None, dense)]
DIMS = "b, s, _"


def rows(b: int, s: int) -> np.ndarray:
    return np.random.default_rng(s).standard_normal((b, s, 16)).astype(np.float32)


def open_rows(*constraints: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*export.symbolic_shape("b, s", constraints=constraints), 16), "float32")


@pytest.mark.parametrize("where", [None, DIMS], ids=["symbols of the arguments", "dims"])
def test_a_version_is_compiled_from_the_variant_of_its_sizes(where: str | None) -> None:
    program = tw.compile(tw.variants(PAIRS, where), open_rows())
    assert isinstance(program, tw.DynamicProgram)
    for s, name, fn in ((40, "dense", dense), (128, "blocked", blocked), (100, "dense", dense)):
        assert program.choice(b=1, s=s) == name
        x = rows(1, s)
        np.testing.assert_allclose(program(x), fn(x), atol=1e-3)


def test_all_variants_are_priced() -> None:
    program = tw.compile(tw.variants(PAIRS), open_rows())
    assert isinstance(program, tw.DynamicProgram)
    found = program.choices(b=1, s=256)
    assert [(c.name, c.holds, c.chosen) for c in found.rows] == [
        ("dense", False, False),
        ("blocked", True, True),
        ("dense", True, False),
    ]
    assert found.chosen.report is program.report(at={"b": 1, "s": 256})
    first, second, third = (c.report for c in found.rows)
    assert first is not None
    assert second is not None
    assert third is not None
    assert second.microseconds < first.microseconds == third.microseconds
    lines = str(found).splitlines()
    assert lines[0] == "b = 1, s = 256"
    assert [line.split()[:2] for line in lines[2:]] == [["-", "dense"], ["*", "blocked"], ["dense", "always"]]
    assert "mod(s, 64) == 0 and b &gt;= 1" in found._repr_html_()
    missing = program.choices({"b": 1, "s": 100}).rows[1]
    assert missing.report is None
    assert missing.problem.startswith("TypeError: cannot reshape array of shape (1, 100, 16)")


def test_they_are_a_function_of_jax() -> None:
    attention, x = tw.variants(PAIRS, DIMS), rows(2, 128)
    for got in (attention(x), jax.jit(attention)(x), jax.vmap(attention)(x[None])[0]):
        np.testing.assert_allclose(got, blocked(x), atol=1e-4)
    gradient = jax.grad(lambda x: attention(x).sum())(x)
    np.testing.assert_allclose(gradient, jax.grad(lambda x: blocked(x).sum())(x), atol=1e-3)
    assert tw.verify(attention, x, quick=True, progress=False).ok
    assert repr(attention) == (
        "<tilewright.variants: dense if s <= 64, blocked if mod(s, 64) == 0 and b >= 1, dense>"
    )


def test_inside_a_model_with_open_sizes() -> None:
    attention = tw.variants(PAIRS, DIMS)

    def model(x: Any) -> Any:
        return attention(x) + 1

    program, x = tw.compile(model, open_rows()), rows(1, 128)
    np.testing.assert_allclose(program(x), blocked(x) + 1, atol=1e-3)


def test_traced_with_symbols_is_what_holds_for_all_sizes() -> None:
    def named(name: str) -> Any:
        def fn(x: Any) -> Any:
            return jnp.full(x.shape, len(name))

        return fn

    chosen = tw.variants([("s <= 64", named("a")), ("s >= 65", named("bb")), (None, named("ccc"))], DIMS)
    for constraints, want in (((), 3), (("s <= 64",), 1), (("s >= 70",), 2)):
        exported = export.export(jax.jit(chosen))(open_rows(*constraints))
        assert f"dense<{want}>" in exported.mlir_module()
    closed = tw.variants([("s <= 64", dense), ("s > 64", blocked)], DIMS)
    with pytest.raises(tw.CompileError, match=r"^blocked: no guard of its variants holds for all sizes"):
        export.export(jax.jit(closed))(open_rows())


def test_no_guard_that_holds_is_one_sentence() -> None:
    said = "^dense: no guard of its variants holds for b = 1, s = 100; None holds always$"
    program = tw.compile(tw.variants([("s <= 64", dense)]), open_rows())
    assert isinstance(program, tw.DynamicProgram)
    for ask in (program.choice, program.choices, program.at):
        with pytest.raises(tw.CompileError, match=said):
            ask(b=1, s=100)
    with pytest.raises(tw.CompileError, match=said):
        tw.variants([("s <= 64", dense)], DIMS)(rows(1, 100))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "tw.variants needs at least one (guard, function)"),
        (5, "tw.variants takes pairs (guard, function), not 5"),
        (["s <= 3"], "tw.variants takes pairs (guard, function); element 0 is none"),
        ([(3, dense)], "tw.variants: the guard of dense is a text such as 's <= 512', or None"),
        ([(None, dense), (None, blocked)], "tw.variants: the guard of dense is None, so that those after it are "
         "never chosen"),
        ([("s", dense)], "dense: 's' is no constraint: write it as in s <= 2048 or mod(s, 8) == 0"),
        ([("q <= 3", dense)], "dense: there is no symbol q, which 'q' has; there are b, s"),
    ],
)  # fmt: skip
def test_guards_that_make_no_sense_are_one_sentence(pairs: Any, said: str) -> None:
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        tw.compile(tw.variants(pairs), open_rows())
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        tw.variants(pairs, DIMS)(rows(1, 2))


def test_what_the_guards_mean_is_asked_for() -> None:
    said = "dense has variants, and does not know which sizes their guards mean: say it, as in"
    for call in (lambda: tw.variants(PAIRS)(rows(1, 2)), lambda: tw.compile(tw.variants(PAIRS), rows(1, 2))):
        with pytest.raises(tw.CompileError, match=said):
            call()
    program = tw.compile(dense, open_rows())
    assert isinstance(program, tw.DynamicProgram)
    with pytest.raises(tw.CompileError, match=r"^dense is not made of variants: compile a tw\.variants$"):
        program.choice(b=1, s=2)


def test_a_guard_of_what_sizes_are_not() -> None:
    """Within a function: no size of the range is the one that the guard leaves out."""
    chosen = tw.variants([("n != 4", lambda x: x + 1), (None, lambda x: x + 2)], dims="n")
    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 5"])
    program = tw.compile(lambda x: chosen(x), jax.ShapeDtypeStruct((n,), "float32"))
    assert program(np.zeros(7, np.float32))[0] == 1
