"""What stands before an operand of a product is computed beside the cube, tile by tile: weights that are widened and
scaled, norms of rows, layouts, odd shapes, every type; by steps and in both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from hypothesis import given
from hypothesis import strategies as st
from tiering import covering, examples, sampled

import tilewright as tw
from tilewright.api.program import Program
from tilewright.dialects.graph import CubeSchedule, FusionOp
from tilewright.machine import Machine
from tilewright.passes.choose.prologue import PrologueOnCube
from tilewright.passes.lower.cube.contraction_axes import made_operand
from tilewright.passes.lower.cube.prologue import PrologueKernel
from tilewright.passes.npu.check import check as hazards
from tilewright.passes.plans import plans_asked

TARGETS = ["ascend-910b1", "ascend-950pr"]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel whatever two take."""
    monkeypatch.setattr(PrologueOnCube, "pays", lambda self, made, now: made < float("inf"))


def made(program: Program) -> list[int]:
    """Which operands of products vector cores make: 0 for left ones, 1 for right ones."""
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    found = [made_operand(op) for op in fusions]
    return [side for side in found if side is not None]


def dequantised(x: Any, w: Any, scale: Any, offset: Any) -> Any:
    return x @ ((w.astype(x.dtype) + offset) * scale)


def inputs(dtype: str, weights: str, m: int, k: int, n: int) -> list[jax.Array]:
    return [data(dtype, (m, k)), data(weights, (k, n), 1), data(dtype, (n,), 2), data(dtype, (n,), 3)]


@covering(8)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "weights"), [("f16", "i8"), ("bf16", "i8"), ("f32", "f16"), ("f16", "f32")])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(8, 64, 64), (17, 250, 130), (130, 1024, 300), (5, 16, 16), (16, 33, 512), (300, 640, 520)]
)
def test_dequantised_weights(m: int, k: int, n: int, dtype: str, weights: str, target: str) -> None:
    program = check(dequantised, *inputs(dtype, weights, m, k, n), length=k, target=target)
    assert made(program) == [1] and len(program.report().kernels) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_many_pieces(target: str) -> None:
    """Pieces go through a ring that has room for fewer of them, in turns that npu-check proves."""
    program = tw.compile(dequantised, *inputs("f16", "i8", 32, 4096, 512), target=target)
    assert made(program) == [1]
    text = str(program.module())
    assert "npu.wait_cross {event = 1" in text and "npu.set_cross {event = 1" in text
    assert hazards(program.module(), Machine.load(target)) == []


def normed(x: Any, g: Any) -> Any:
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-3)).astype(x.dtype) * g


ROWS: dict[str, Callable[..., Any]] = {
    "norm": lambda x, g, w: normed(x, g) @ w,
    "softmax": lambda x, g, w: jax.nn.softmax(x + g) @ w,
    "epilogue": lambda x, g, w: jax.nn.relu(normed(x, g) @ w + w[0]),
}


@covering(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 256, 128), (130, 512, 256), (48, 250, 64)])
def test_rows(m: int, k: int, n: int, dtype: str, name: str, target: str) -> None:
    """A core has whole rows of a norm before a product, which are whole steps of it."""
    args = [data(dtype, (m, k)), data(dtype, (k,), 1), data(dtype, (k, n), 2) / 16]
    options = tw.Options(without={"attention", "split-k", "stream-k"})
    whole = (k, dtype) != (250, "f32")
    assert made(check(ROWS[name], *args, length=k, target=target, options=options)) == [0] * whole


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "transposed": (lambda x, w: x @ (w.T * 0.5), [1]),
    "left": (lambda x, w: jnp.tanh(x) @ w.T, [0]),
    "both": (lambda x, w: jnp.tanh(x) @ jnp.abs(w.T), [0]),
    "epilogue": (lambda x, w: jnp.exp(x @ (w.T * 0.125)) + 1, [1]),
    "batched": (lambda x, w: jnp.einsum("bmk,bkn->bmn", jnp.stack([x, x]), jnp.stack([w.T, w.T]) * 0.5), [1]),
    "of a number": (lambda x, w: (x * 2) @ jnp.full((40, 24), 0.25, x.dtype), [0]),
}


@sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forms(name: str) -> None:
    fn, sides = FUNCTIONS[name]
    program = check(fn, data("f16", (20, 40)), data("f16", (24, 40), 1), length=40)
    assert made(program) == sides


@examples(8)
@given(
    st.integers(1, 70),
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from(["f16", "bf16", "f32"]),
    st.sampled_from(TARGETS),
)
def test_any_sizes(m: int, k: int, n: int, dtype: str, target: str) -> None:
    """Ends of the operand that no piece divides are 0 in the ring."""
    check(dequantised, *inputs(dtype, "i8", m, k, n), length=k, target=target)


def test_what_is_reduced_stays() -> None:
    """An operand that is a sum itself has other dimensions than what is added up."""
    program = check(lambda x, w: x.mean(1) @ w, data("f32", (20, 1, 96)), data("f32", (96, 64), 1), length=96)
    assert made(program) == []
    assert made(check(lambda x, w: x.sum(0) @ w, data("f32", (3, 20, 96)), data("f32", (96, 64), 1), length=300)) == []


def test_in_a_loop() -> None:
    def fn(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ (w.astype(y.dtype) * 0.01)), x)

    assert made(check(fn, data("f16", (24, 64)), data("i8", (64, 64), 1), length=200)) == [1]


def test_what_is_used_twice_stays() -> None:
    """A tensor that others read is stored anyway."""

    def fn(x: Any, w: Any) -> Any:
        wide = w * 2
        return x @ wide, wide

    assert made(check(fn, data("f16", (16, 64)), data("f16", (64, 96), 1), length=64)) == []


def test_left_out() -> None:
    options = tw.Options(without="cube-prologue")
    program = check(dequantised, *inputs("f16", "i8", 16, 64, 64), length=64, options=options)
    assert made(program) == [] and len(program.report().kernels) == 2


def test_fused_cores_have_none() -> None:
    """The cores of a 310 have one unit of each kind, and one pipe that loads for both."""
    program = check(dequantised, *inputs("f16", "i8", 16, 64, 64), length=64, target="ascend-310")
    assert made(program) == []


def test_pinned_schedules_are_obeyed() -> None:
    """A schedule that graph-schedule chose is one that a user may ask for."""
    args = inputs("f16", "i8", 32, 1024, 256)
    chosen = tw.compile(dequantised, *args)
    (fusion,) = [op for op in chosen.module("graph").walk() if isinstance(op, FusionOp)]
    assert fusion.schedule is not None
    again = tw.compile(str(chosen.module("graph")))
    assert str(again.module("tile")) == str(chosen.module("tile"))


def test_the_plan() -> None:
    """explain says where the stages stand, and what they work on."""
    args = inputs("f16", "i8", 32, 1024, 256)
    with plans_asked() as plans:
        program = tw.compile(dequantised, *args)
    assert made(program) == [1]
    ((plan,),) = [[*plans.values()]]
    graph, product = plan.graphs
    assert product.part == "product" and plan.unstaged == ""
    assert graph.part == "prologue" and [plan.axes[a].name for a in graph.axes] == ["k", "n"]
    assert {place.inside for place in graph.places} == {(2,)}
    assert graph.tile[1] == plan.axes[1].tile


@pytest.mark.parametrize("target", TARGETS)
def test_candidates_can_be_obeyed(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer loads of one operand leave room for the pieces of the other, and pieces fit ub."""
    tried: list[tuple[PrologueKernel, list[CubeSchedule]]] = []
    candidates = PrologueKernel.candidates

    def noted(self: PrologueKernel, name: str) -> list[CubeSchedule]:
        found = list(candidates(self, name))
        tried.append((self, found))
        return found

    monkeypatch.setattr(PrologueKernel, "candidates", noted)
    shapes = ((256, 8192), "float32"), ((8192, 4096), "float16"), ((4096,), "float32"), ((4096,), "float32")
    tw.compile(dequantised, *(jax.ShapeDtypeStruct(*shape) for shape in shapes), target=target)
    assert tried and all(found for _, found in tried)
    for kernel, found in tried:
        for schedule in found:
            kernel.check("contract_0", schedule)


def test_by_steps() -> None:
    """No race, and nothing is read that was not written, where pieces reach over the end."""
    args = inputs("f16", "i8", 33, 330, 200)
    program = tw.compile(dequantised, *args)
    assert made(program) == [1]
    want = np.asarray(dequantised(*args), np.float64)
    got = np.asarray(program(*args, mode="step"), np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-3 * np.abs(want).max())
