"""`npu.dispatch`: what a program with open dimensions does in a call is what its IR says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from open_texts import ROWS_OF_FOUR
from xdsl.dialects.builtin import StringAttr

import tilewright as tw
from tilewright.api.sizes.templates import SizedProgram
from tilewright.api.sizes.variants import Variants
from tilewright.dialects import make_context
from tilewright.dialects.base import text
from tilewright.dialects.npu import AloneOp, DispatchOp, RequireOp, SymbolOp, VersionOp
from tilewright.dialects.open_sizes import typical_sizes
from tilewright.dialects.text import parse_module, verify
from tilewright.passes.templates import NoTemplate


def opened(fn: Any, *shapes: Any, constraints: Any = (), **options: Any) -> Any:
    dims = [s if isinstance(s, tuple) else (s, "float32") for s in shapes]
    scope = export.SymbolicScope(constraints)
    args = [jax.ShapeDtypeStruct(export.symbolic_shape(d, scope=scope), dtype) for d, dtype in dims]
    return tw.compile(fn, *args, options=tw.Options(**options))


def scaled(x: Any, w: Any) -> Any:
    return jax.nn.relu(x @ w) * x.shape[1]


def program() -> Any:
    return opened(scaled, "b, 8*s", "8*s, 16", constraints=["s <= 64", "mod(s, 2) == 0"])


def arrays(b: int, s: int) -> list[Any]:
    rng = np.random.default_rng(b * 100 + s)
    return [rng.standard_normal(shape).astype("f4") for shape in [(b, 8 * s), (8 * s, 16)]]


def read(said: str) -> DispatchOp:
    """The op of a text, which is verified and printed as it was."""
    module = parse_module(make_context(), said, "program.mlir")
    verify(module)
    with typical_sizes():
        assert str(module) == said
    (found,) = (op for op in module.walk() if isinstance(op, DispatchOp))
    return found


def test_the_text_says_sizes_requirements_and_versions() -> None:
    made = program()
    made.at(b=3, s=10), made.at(b=1, s=2), made.at(b=20, s=10)
    op = read(made.ir("npu"))
    parts = [
        (text(p.symbol), p.source, p.place.data)
        for p in op.body.block.ops
        if isinstance(p, SymbolOp) and p.place
    ]
    assert parts == [
        ("b", (0, 0, False), "dimension 0 of argument x"),
        ("s", (0, 1, False), "dimension 1 of argument x"),
    ]
    assert [str(c) for c, _ in op.requirements] == ["b >= 1", "s >= 1", "s <= 64", "mod(s, 2) == 0"]
    assert {n: (s.lower, s.upper) for n, s in op.symbols.items()} == {"b": (1, None), "s": (1, 64)}
    names = [case.version for case in op.cases if isinstance(case, VersionOp)]
    assert names == ["b3to4_s9to16", "b17to32_s9to16"] and made.ir() == made.ir("npu", None)
    (version, _) = (case for case in op.cases if isinstance(case, VersionOp))
    assert version.said() == ["8*s"]


def test_a_version_is_lowered_where_there_is_none() -> None:
    made = program()
    op = read(made.ir())
    assert [case.version for case in op.cases if isinstance(case, VersionOp)] == ["b33to64_s33to64"]
    assert [*made.ranges] == [((33, 64), (33, 64))] and not made.versions
    with pytest.raises(tw.CompileError, match="has open sizes: say which"):
        made.ir("tile")


def test_each_size_gets_the_case_whose_guard_holds() -> None:
    made = program()
    for b, s in [(5, 10), (8, 16), (6, 12), (1, 4), (40, 2)]:
        args = arrays(b, s)
        np.testing.assert_allclose(made(*args), scaled(*args), rtol=1e-4, atol=1e-4)
    taken = 0
    for (low_b, high_b), (low_s, high_s) in made.ranges:
        for b in range(low_b, high_b + 1):
            for s in range(low_s, high_s + 1):
                version = made.ranges[((low_b, high_b), (low_s, high_s))]
                holds = not isinstance(version, NoTemplate) and version.template.holds({"b": b, "s": s})
                assert isinstance(made.dispatch.chosen({"b": b, "s": s}), VersionOp) == holds
                taken += holds
    assert taken


def test_a_call_goes_by_the_guard() -> None:
    made = program()
    assert isinstance(made.at(b=60, s=10), SizedProgram)
    (case,) = made.dispatch.cases
    case.properties["guard"] = StringAttr("b == 50")
    assert isinstance(made.at(b=50, s=10), SizedProgram) and not isinstance(made.at(b=51, s=10), SizedProgram)


def test_a_call_goes_by_the_requirements() -> None:
    made, args = program(), arrays(3, 5)
    with pytest.raises(tw.CompileError, match=r"^scaled: mod\(s, 2\) == 0 does not hold for s = 5 \(dim"):
        made(*args)
    *_, last = (op for op in made.dispatch.body.block.ops if isinstance(op, RequireOp))
    last.properties["message"] = StringAttr("{s} and {b} are odd")
    last.properties["condition"] = StringAttr("mod(s + b, 2) == 1")
    other = made.dispatch.requirements[-1]
    assert str(other[0]) == "mod(b + s, 2) == 1" and other[1] == "{s} and {b} are odd"


def test_sizes_in_values_are_elements() -> None:
    made = tw.compile(ROWS_OF_FOUR)
    assert made(np.int32(3), np.ones(12, "f4")).shape == (3, 4)
    op = read(made.ir())
    assert {text(p.symbol): p.source for p in op.parts} == {"arg0": (0, 0, True), "arg1_0": (1, 0, False)}


def test_why_sizes_are_compiled_alone_is_said() -> None:
    def fn(x: Any) -> Any:
        return jnp.abs(jnp.fft.fft(x))  # JAX exports none of open length

    made = opened(fn, "b, b")
    made.at(b=3)
    (case,) = read(made.ir()).cases
    assert isinstance(case, AloneOp) and text(case.guard) == "b >= 3 and b <= 4"
    assert text(case.reason) == str(made.ranges[((3, 4),)])


def test_a_program_of_tw_has_versions(tmp_path: Path) -> None:
    (tmp_path / "model.tw").write_text("fn f(x: f32[N]) -> f32[N] {\n  return x / N\n}\n")
    made: Any = tw.compile(str(tmp_path / "model.tw"))
    (case,) = read(made.ir()).cases
    assert isinstance(case, VersionOp) and text(case.guard) == "N >= 33 and N <= 64" and case.said() == ["N"]


def test_random_keys_are_words() -> None:
    (b,) = export.symbolic_shape("b")
    key = jax.ShapeDtypeStruct((b,), jax.random.key(0).dtype)
    made = tw.compile(lambda k: jax.vmap(jax.random.normal)(k), key)
    assert text(next(read(made.ir()).parts).symbol) == "b" and made(
        jax.random.split(jax.random.key(1), 3)
    ).shape == (3,)


def low(x: Any) -> Any:
    return x + 1


def whole(x: Any) -> Any:
    return x + 2


def rest(x: Any) -> Any:
    return x + 3


@pytest.mark.parametrize(
    ("dims", "shape", "guards"),
    [
        (None, "n, 8*s", ["s <= 4", "mod(s, 4) == 0 and n >= 2", ""]),
        ("n, 8*s", "n, 8*s", ["s <= 4", "mod(s, 4) == 0 and n >= 2", ""]),
        ("n, 8*s", "k, t", ["floordiv(t, 8) <= 4", "mod(floordiv(t, 8), 4) == 0 and k >= 2", ""]),
        ("n, s + n", "k, t", ["-k + t <= 4", "mod(3*k + t, 4) == 0 and k >= 2", ""]),
    ],
)
def test_variants_are_cases(dims: str | None, shape: str, guards: list[str]) -> None:
    made = opened(
        tw.variants([("s <= 4", low), ("mod(s, 4) == 0 and n >= 2", whole), (None, rest)], dims), shape
    )
    op = read(made.ir())
    assert [text(c.variant) for c in op.cases if c.variant is not None] == ["low", "whole", "rest"]
    assert [text(case.guard) for case in op.cases] == guards
    factor = 1 if dims == "n, s + n" else 8
    for n, s in [(1, 2), (2, 8), (1, 8), (3, 5), (3, 12)]:
        x = np.zeros((n, factor * s + (n if factor == 1 else 0)), "f4")
        want = 1 if s <= 4 else 2 if s % 4 == 0 and n >= 2 else 3
        assert (made(x) == want).all() and made.choice(made.sizes(x)) == ("low", "whole", "rest")[want - 1]


def test_a_variant_is_chosen_by_its_case() -> None:
    made = opened(tw.variants([("s <= 4", low), (None, rest)]), "n, s")
    first, _ = made.dispatch.cases
    first.properties["guard"] = StringAttr("s == 9")
    assert made.choice(n=1, s=4) == "rest" and made.choice(n=1, s=9) == "low"
    assert (made(np.zeros((1, 9), "f4")) == 1).all() and made.choices(n=1, s=9).chosen.name == "low"
    assert isinstance(made.open_source.variants[0].guard, tuple) and isinstance(
        tw.variants([(None, low)]), Variants
    )
