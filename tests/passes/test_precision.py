"""graph-precision against the same casts written by hand in JAX, and what the API says of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiering import examples, sampled
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32

import tilewright as tw
from tilewright.api.compiling import lower
from tilewright.backends.interpreter import run_graph
from tilewright.cli.main import main
from tilewright.dialects.elementwise import FUNCTIONS, UNSTATED, Function
from tilewright.dialects.graph import Graph, GraphOp
from tilewright.dialects.precision import recorded_precision
from tilewright.dialects.text import verify
from tilewright.passes.numbers.precision import GraphPrecisionPass
from tilewright.passes.pipeline import PIPELINE, remaining, run_pipeline
from tilewright.support.precisions import NARROW

Array = jax.Array
MODES = tuple(NARROW)
N = 16
TARGET = "ascend-910b1"


def cast_module(fn: Callable[..., Any], args: Sequence[Any], mode: str) -> ModuleOp:
    """The graph level of a function, cast."""
    module, _ = lower(fn, *args)
    GraphPrecisionPass(TARGET, mode).apply(Context(), module)
    verify(module)
    return module


def matrices(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((N, N)) / 2).astype(np.float32) for _ in range(count)]


def assert_same_casts(got: Any, want: Any) -> None:
    """Nearly all elements agree to f32: a rounding to a narrow type that is elsewhere shows in all of them, and a sum
    in another order in a few, where it changes which way a number is rounded."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    apart = np.abs(got - want) / max(np.abs(want).max(), 1e-30)
    assert np.quantile(apart, 0.8) < 3e-6, np.quantile(apart, [0.5, 0.8, 1])


# -- chains of products against casts by hand --------------------------------------------------------------

FOLLOWS: dict[str, Callable[[Array, Array], Array]] = {
    "relu": lambda x, b: jnp.maximum(x, jnp.zeros((), x.dtype)),
    "bias": lambda x, b: x + b.astype(x.dtype),
    "scale": lambda x, b: x * jnp.asarray(0.75, x.dtype),
    "part": lambda x, b: x / jnp.asarray(8.0, x.dtype),
    "tanh": lambda x, b: jnp.tanh(x),
    "turn": lambda x, b: x.T,
    "neg": lambda x, b: -x,
    "choose": lambda x, b: jnp.where(x > jnp.asarray(0.5, x.dtype), x, -x),
    "highest": lambda x, b: jnp.broadcast_to(x.max(axis=1, keepdims=True), x.shape),
}
KEEPS: dict[str, Callable[[Array, Array], Array]] = {
    "exp": lambda x, b: jnp.exp(x),
    "softmax": lambda x, b: jax.nn.softmax(x, axis=-1),
    "sums": lambda x, b: jnp.broadcast_to(x.sum(axis=0, keepdims=True), x.shape),
    "power": lambda x, b: jnp.abs(x) ** 1.5,
}
"""Steps of a chain: each takes a matrix and a bias."""

segments = st.lists(st.sampled_from(sorted(FOLLOWS | KEEPS)), min_size=0, max_size=4)


def chain(steps: Sequence[Sequence[str]]) -> Callable[..., Array]:
    """A product in front of each list of steps, and one at the end."""

    def run(x: Array, b: Array, *weights: Array) -> Array:
        for names, w in zip(steps, weights, strict=False):
            x = x @ w
            for name in names:
                x = (FOLLOWS | KEEPS)[name](x, b)
        return x @ weights[-1]

    return run


def by_hand(steps: Sequence[Sequence[str]], narrow: Any) -> Callable[..., Array]:
    """The same with casts, as the page of the pass says: between two products all is narrow, or, where something has to
    be f32, all is. Run op by op: XLA keeps excess digits where it fuses."""

    def product(x: Array, w: Array, result: Any) -> Array:
        found = jnp.matmul(x.astype(narrow), w.astype(narrow), preferred_element_type=jnp.float32)
        return found.astype(result)

    def run(x: Array, b: Array, *weights: Array) -> Array:
        for names, w in zip(steps, weights, strict=False):
            kept = any(name in KEEPS for name in names)
            x = product(x, w, jnp.float32 if kept else narrow)
            for name in names:
                x = (FOLLOWS | KEEPS)[name](x, b)
        return product(x, weights[-1], jnp.float32)

    return run


@given(st.lists(segments, min_size=1, max_size=3), st.sampled_from(["mixed_float16", "mixed_bfloat16"]))
@examples(60)
def test_chains_are_cast_as_by_hand(steps: list[list[str]], mode: str) -> None:
    x, *weights = matrices(3, len(steps) + 2)
    b = np.linspace(-1, 1, N, dtype=np.float32)
    module = cast_module(chain(steps), [x, b, *weights], mode)
    narrow = jnp.float16 if mode == "mixed_float16" else jnp.bfloat16
    (got,) = run_graph(module, x, b, *weights)
    want = by_hand(steps, narrow)(*(jnp.asarray(v) for v in (x, b, *weights)))
    assert np.asarray(got).dtype == np.float32
    if np.isfinite(np.asarray(want, np.float64)).all():
        assert_same_casts(got, want)


@example([["choose"], ["choose", "exp"]], "mixed_float16")
@given(st.lists(segments, min_size=1, max_size=2), st.sampled_from(MODES))
@examples(40)
def test_types_at_the_borders_stay_and_a_second_pass_changes_nothing(
    steps: list[list[str]], mode: str
) -> None:
    x, *weights = matrices(4, len(steps) + 2)
    args = [x, np.ones(N, np.float32), *weights]
    module = cast_module(chain(steps), args, mode)
    main_func = next(op for op in module.ops if op.name == "func.func")
    kinds: Any = main_func.properties["function_type"]
    assert all(t.element_type == f32 for t in (*kinds.inputs, *kinds.outputs))
    once = [str(op) for op in module.ops]
    GraphPrecisionPass(TARGET, mode).apply(Context(), module)
    assert [str(op) for op in module.ops] == once


@pytest.mark.parametrize("mode", MODES)
def test_no_conversion_is_undone(mode: str) -> None:
    steps = [["bias", "relu", "turn"], ["softmax", "turn"], ["scale", "tanh"]]
    x, *weights = matrices(5, len(steps) + 2)
    module = cast_module(chain(steps), [x, np.ones(N, np.float32), *weights], mode)
    for op in module.walk():
        if op.name == "graph.convert":
            assert op.operands[0].type != op.results[0].type
            before = op.operands[0].owner
            assert getattr(before, "name", "") not in ("graph.convert", "graph.constant")


# -- control flow ------------------------------------------------------------------------------------------


def rounded_product(x: Array, w: Array, narrow: Any = jnp.float16) -> Array:
    return jnp.matmul(x.astype(narrow), w.astype(narrow), preferred_element_type=jnp.float32)


def test_a_loop_carries_f32() -> None:
    def fn(x: Array, w: Array) -> Array:
        return jax.lax.fori_loop(0, 3, lambda i, x: jnp.maximum(x @ w, 0) @ w, x)

    x, w = matrices(6, 2)
    want = jnp.asarray(x)
    for _ in range(3):
        inner = rounded_product(want, jnp.asarray(w)).astype(jnp.float16)
        want = rounded_product(jnp.maximum(inner, jnp.float16(0)), jnp.asarray(w))
    (got,) = run_graph(cast_module(fn, [x, w], "mixed_float16"), x, w)
    assert_same_casts(got, want)


def test_branches_and_calls_keep_their_types() -> None:
    def layer(x: Array, w: Array) -> Array:
        for _ in range(20):
            x = jnp.tanh(x @ w) * 1.5
        return x

    inner = jax.jit(layer)

    def fn(i: Array, x: Array, w: Array) -> Array:
        y = jax.lax.cond(i > 0, lambda x: x @ w, lambda x: x - 1, x)
        return inner(inner(y, w), w)

    x, w = matrices(7, 2)
    module = cast_module(fn, [np.int32(1), x, w], "mixed_float16")
    assert any(op.name == "func.call" for op in module.walk())
    want = rounded_product(jnp.asarray(x), jnp.asarray(w))
    for _ in range(2):
        for n in range(20):
            last = n == 19
            want = rounded_product(want, jnp.asarray(w)).astype(jnp.float32 if last else jnp.float16)
            want = jnp.tanh(want) * jnp.asarray(1.5, want.dtype)
        want = want.astype(jnp.float32)
    (got,) = run_graph(module, np.int32(1), x, w)
    assert_same_casts(got, want)


# -- other types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "int8", "complex64"])
def test_other_types_are_left_alone(mode: str, dtype: str) -> None:
    with jax.enable_x64(True):
        x = jax.ShapeDtypeStruct((8, 8), dtype)
        module, _ = tw.compile(lambda x: (x @ x) * x, x, target=TARGET).source.lower()
        before = [str(op) for op in module.walk() if isinstance(op, GraphOp)]
        GraphPrecisionPass(TARGET, mode).apply(Context(), module)
        assert [str(op) for op in module.walk() if isinstance(op, GraphOp)] == before


# -- the facts ---------------------------------------------------------------------------------------------


def test_every_op_says_what_precision_makes_of_it() -> None:
    for op in Graph.operations:
        if issubclass(op, GraphOp) and op.CASTING == "keep" and op.casting is GraphOp.casting:
            assert op.KEEPS != UNSTATED, op.name
    assert all(f.keeps != UNSTATED for f in FUNCTIONS.values())


def test_a_function_that_says_nothing_keeps_f32() -> None:
    made = Function(name="mine", arity=1, formula="x", value="jax.lax:tanh", ulps=1.0, stablehlo=None)
    assert made.keeps == UNSTATED


# -- the pipeline and the API --------------------------------------------------------------------------------


def attention(x: Array, w: Array) -> Array:
    return jax.nn.softmax(x @ w, axis=-1) @ w


def test_origin_is_not_run() -> None:
    x, w = matrices(8, 2)
    module, _ = lower(attention, x, w)
    assert "graph-precision" not in [s.name for s in remaining(module)]
    program = tw.compile(attention, x, w, target=TARGET)
    assert recorded_precision(program.module()) is None
    assert program.report().precision is None


@pytest.mark.parametrize("mode", ["mixed_float16", "float16"])
@pytest.mark.parametrize("weights", [None, ("w",)])
def test_quantized_numbers_are_not_cast(mode: str, weights: tuple[str, ...] | None) -> None:
    """Products of one program are quantized, and what is left of it is cast."""
    x, w = matrices(10, 2)
    wide, narrow = (
        tw.compile(attention, x, w, options=tw.Options(precision=p, quantization="w8a8-dynamic", weights=weights))
        for p in ("origin", mode)
    )
    found = narrow.report().precision
    assert found is not None and found.narrow
    np.testing.assert_allclose(np.asarray(narrow(x, w)), np.asarray(wide(x, w)), atol=2e-2)


@pytest.mark.parametrize("mode", MODES)
def test_the_report_says_what_stayed_f32(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    x, w = matrices(9, 2)
    program = tw.compile(attention, x, w, target=TARGET, options=tw.Options(precision=mode))
    report = program.report()
    assert report.precision is not None
    found = json.loads(report.to_json())["precision"]
    assert (found["mode"], found["products"]) == (mode, 2)
    whys = {(k["op"], k["why"]) for k in found["kept"]}
    if mode == "float16":
        assert not whys
        return
    assert ("graph.reduce", "it adds up many numbers") in whys
    assert ("graph.sub", "its result is only taken in f32") in whys
    assert all(k["source"] is None or "test_precision.py" in k["source"] for k in found["kept"])
    assert "in f32, since it adds up many numbers: 1 reduce" in " ".join(
        report.table(200, borders=False).split()
    )


def test_a_mode_that_there_is_not() -> None:
    with pytest.raises(tw.CompileError, match="precision must be 'origin' or 'mixed_float16' or"):
        tw.Options(precision="half")  # pyright: ignore[reportArgumentType]


def test_a_machine_without_bf16_refuses() -> None:
    x, w = matrices(10, 2)
    said = (
        "precision mixed_bfloat16: ascend-310 does not multiply bf16; take precision mixed_float16 or float16"
    )
    with pytest.raises(tw.CompileError, match=said):
        tw.compile(attention, x, w, target="ascend-310", options=tw.Options(precision="mixed_bfloat16"))


def test_what_is_fused_is_refused(tmp_path: Any) -> None:
    x, w = matrices(11, 2)
    fused, _ = lower(attention, x, w)
    until = [s.name for s in PIPELINE].index("graph-fuse") + 1
    run_pipeline(fused, TARGET, stages=PIPELINE[:until])
    tiled = tw.compile(attention, x, w, target=TARGET).module("tile")
    for module, said in ((fused, "is fused already"), (tiled, "is written at the tile level")):
        path = tmp_path / "program.mlir"
        path.write_text(str(module))
        with pytest.raises(tw.CompileError, match=f"precision: the program {said}"):
            tw.compile(path, options=tw.Options(precision="float16"))


def test_products_run_on_the_cube_of_a_machine_without_f32() -> None:
    x, w = matrices(12, 2)
    kinds = {}
    for mode in ("origin", "mixed_float16"):
        program = tw.compile(attention, x, w, target="ascend-310", options=tw.Options(precision=mode))
        kinds[mode] = sum(k.launches for k in program.report().kernels if k.macs)
    assert kinds == {"origin": 0, "mixed_float16": 2}


# -- verification --------------------------------------------------------------------------------------------


@sampled(6)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_cast_program_verifies(mode: str, quick: bool) -> None:
    x, w = matrices(13, 2)
    options = tw.Options(precision=mode)
    found = tw.verify(attention, x, w, target=TARGET, options=options, quick=quick, progress=False)
    assert found.ok, found.checks
    assert found.rounded == "graph-precision"
    assert "graph-precision rounds more than the source" in found.roundings()
    source, *rest = found.checks
    assert source.stage == "source" and all(c.tolerance > 10 * source.tolerance for c in rest)


def test_what_overflows_does_not_verify() -> None:
    x, w = matrices(14, 2)
    options = tw.Options(precision="mixed_float16")
    found = tw.verify(
        lambda x, w: (x * 3e5) @ w, x, w, target=TARGET, options=options, quick=True, progress=False
    )
    assert not found.ok
    assert "graph.convert" in found.checks[1].note and "is the first to overflow" in found.checks[1].note


def test_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.py"
    path.write_text("def fn(x, w):\n    return (x @ w) @ w\n")
    common = [f"{path}:fn", "--shapes", "f32[16,16],f32[16,16]", "--precision", "mixed_float16", "--json"]
    assert main(["report", *common]) == 0
    assert json.loads(capsys.readouterr().out)["precision"]["products"] == 2
    assert main(["verify", *common]) == 0
    assert json.loads(capsys.readouterr().out)["rounded"] == "graph-precision"
    assert main(["run", *common, "--check"]) == 0
    assert json.loads(capsys.readouterr().out)["check"]["rounded"] == "graph-precision"
    assert main(["compile", *common[:-1], "--emit", "graph"]) == 0
    assert "xf16>" in capsys.readouterr().out
    assert main(["explain", *common[:-1], "-o", str(tmp_path / "page.html")]) == 0
