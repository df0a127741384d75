"""What is tried of products beside the usual: rows in equal shares, columns of several axes, loads of unequal lengths;
the values of such kernels, and that the bound finds what the simulator does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import covering, sampled

import tilewright as tw
from tilewright.dialects.base import to_ints
from tilewright.dialects.graph import CubeSchedule, FusionOp
from tilewright.dialects.graph.schedules import Schedule, to_schedules
from tilewright.dialects.npu.structure import LaunchOp
from tilewright.machine import Machine
from tilewright.passes import oracle
from tilewright.passes.lower.cube import contraction_choice
from tilewright.passes.lower.scheduled import ScheduledKernel
from tilewright.passes.npu.check import check as hazards

Wanted = Callable[[CubeSchedule], bool]


class Prefers:
    """Takes the best schedule that is wanted; counts those."""

    def __init__(self, wanted: Wanted):
        self.wanted, self.found = wanted, 0

    def microseconds(self, kernel: ScheduledKernel, schedule: Schedule) -> float:
        if isinstance(schedule, CubeSchedule) and self.wanted(schedule):
            self.found += 1
            return kernel.bound(schedule)
        return 1e9 + kernel.bound(schedule)


@pytest.fixture
def refined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other loads are judged whatever they gain."""
    monkeypatch.setattr(Machine, "barrier_microseconds", lambda *_: -1e6)


@pytest.fixture
def preferring() -> Iterator[Callable[[Wanted], Prefers]]:
    """Makes an oracle that `taken` is judged by."""

    def register(wanted: Wanted) -> Prefers:
        judge = Prefers(wanted)
        oracle.register("taken", judge)
        return judge

    yield register
    oracle.unregister("taken")


def uneven_rows(schedule: CubeSchedule) -> bool:
    """A step of rows that are no whole fractals."""
    return bool(schedule.step and schedule.step[0] % 16 and schedule.step[0] > 16)


def unequal(schedule: CubeSchedule) -> bool:
    """Loads of two lengths."""
    return schedule.lhs is not None and schedule.rhs is not None and schedule.lhs[-1] != schedule.rhs[-1]


def columns_of_two_axes(schedule: CubeSchedule) -> bool:
    """A step with several places of the axis before the last one of columns."""
    return bool(schedule.step and len(schedule.step) == 4 and schedule.step[1] > 1)


def sums_of_two_axes(schedule: CubeSchedule) -> bool:
    """A step with several places of the axis before the last one that is summed over."""
    return bool(schedule.step and len(schedule.step) == 4 and schedule.step[2] > 1)


def longer_load(schedule: CubeSchedule) -> bool:
    """The same, and a load of several such steps."""
    return sums_of_two_axes(schedule) and schedule.lhs is not None and schedule.lhs[2] > (schedule.step or ())[2]


def short_step(schedule: CubeSchedule) -> bool:
    """A step of a power of two where a longer one fits."""
    return bool(schedule.step and schedule.step[-1] in (32, 64) and schedule.step[1] == 176)


def cube_schedules_of(program: tw.Program) -> list[CubeSchedule]:
    """Those of its fusions, in order."""
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    return [s for op in fusions for s in to_schedules(op.schedule) if isinstance(s, CubeSchedule)]


def check(fn: Callable[..., Any], shapes: Sequence[tuple[int, ...]], judge: Prefers, dtype: str = "float16") -> None:
    """The values of the schedule that is taken in both memories, and no hazards."""
    rng = np.random.default_rng(sum(map(sum, shapes)))
    args = [(rng.standard_normal(s) / 8).astype(dtype) for s in shapes]
    program = tw.compile(fn, *args, options=tw.Options(oracle="taken"))
    assert judge.found
    assert hazards(program.module("npu"), Machine.load("ascend-910b1")) == []
    want = np.asarray(fn(*(np.asarray(x, np.float32) for x in args)), np.float32)
    for memory in ("typed", "bytes"):
        got = np.asarray(program.executable(memory)(*program.flatten(args))[0], np.float32)
        np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max(initial=0), rtol=0)


@sampled(4)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("sizes", [(300, 130, 200), (331, 97, 40), (115, 3, 17), (619, 300, 257)], ids=str)
def test_rows_in_equal_shares(
    dtype: str, sizes: tuple[int, int, int], preferring: Callable[[Wanted], Prefers]
) -> None:
    """Rows that are no whole fractals, so that groups of cores have equal tiles."""
    m, k, n = sizes
    check(lambda a, b: a @ b, [(m, k), (k, n)], preferring(uneven_rows), dtype)


@sampled(3)
@pytest.mark.usefixtures("refined")
@pytest.mark.parametrize("sizes", [(130, 1000, 270), (64, 9001, 33), (300, 4099, 17)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_loads_of_unequal_lengths(
    sizes: tuple[int, int, int], transposed: bool, preferring: Callable[[Wanted], Prefers]
) -> None:
    """One operand in longer loads than the other, also where neither divides the sums."""
    m, k, n = sizes
    fn = (lambda a, b: a @ b.T) if transposed else (lambda a, b: a @ b)
    check(fn, [(m, k), (n, k) if transposed else (k, n)], preferring(unequal))


@sampled(2)
@pytest.mark.parametrize("sizes", [(70, 130, 12), (33, 64, 5), (257, 40, 19)], ids=str)
def test_columns_of_several_axes(
    sizes: tuple[int, int, int], preferring: Callable[[Wanted], Prefers]
) -> None:
    """Weights in blocks of 16 columns, each with all of k."""
    m, k, blocks = sizes
    fn = lambda a, b: jnp.einsum("mk,jkc->mjc", a, b)  # noqa: E731
    check(fn, [(m, k), (blocks, k, 16)], preferring(columns_of_two_axes))


@sampled(2)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("wanted", [sums_of_two_axes, longer_load], ids=lambda f: f.__name__)
@pytest.mark.parametrize("sizes", [(70, 37, 16, 33), (300, 40, 16, 130), (17, 100, 8, 65)], ids=str)
def test_sums_over_several_axes(
    sizes: tuple[int, int, int, int], wanted: Wanted, dtype: str, preferring: Callable[[Wanted], Prefers]
) -> None:
    """Rows in blocks of few columns: no step need divide the blocks."""
    m, blocks, each, n = sizes
    fn = lambda a, b: jnp.einsum("kmc,kcn->mn", a, b)  # noqa: E731
    check(fn, [(blocks, m, each), (blocks, each, n)], preferring(wanted), dtype)


@pytest.mark.parametrize(("step", "length"), [("step_k_a", 64), ("base_k", 48)])
def test_pins_of_sums_over_several_axes(step: str, length: int) -> None:
    """Pins count steps, and what is summed over in one, of all axes that are summed over."""
    pins = tw.Schedule(base_m=16, base_n=16, base_k=48 if step == "base_k" else 32, step_k_a=2, step_k_b=1)
    fn = lambda a, b: jnp.einsum("kmc,kcn->mn", a, b)  # noqa: E731
    args = [np.random.default_rng(0).standard_normal(s).astype("f2") for s in ((12, 20, 16), (12, 16, 24))]
    program = tw.compile(fn, *args, options=tw.Options(schedule=pins))
    (schedule,) = cube_schedules_of(program)
    assert schedule.step is not None and schedule.lhs is not None
    assert schedule.step[2:] == ((3, 16) if step == "base_k" else (2, 16))
    assert schedule.lhs[2] * 16 == (96 if step == "base_k" else length)
    np.testing.assert_allclose(program(*args), np.asarray(fn(*args)), rtol=1e-2, atol=1e-2)


def test_steps_of_powers_of_two(preferring: Callable[[Wanted], Prefers]) -> None:
    """A step that is shorter than what l0a and l0b hold, as its loads begin at lines then."""
    check(lambda a, b: a @ b.T, [(190, 300), (352, 300)], preferring(short_step))


FIGURES = [
    (lambda a, b: a @ b, [(8192, 8192), (8192, 8192)], "float16", "ascend-910b1", 3850.0),
    (lambda a, b: a @ b.T, [(8192, 8192), (8192, 8192)], "float16", "ascend-910b1", 3370.0),
    (lambda a, b: a @ b.T, [(8192, 8192), (8192, 8192)], "float16", "ascend-950pr", 2610.0),
    (lambda a, b: a @ b, [(4096, 8000), (8000, 4096)], "float16", "ascend-910b1", 1115.0),
    (lambda a, b: jnp.einsum("mk,jkc->mjc", a, b), [(160, 2048), (384, 2048, 16)], "float16", "ascend-910b3", 41.0),
    (lambda a, b: a @ b, [(2048, 2048), (2048, 2048)], "float32", "ascend-910b1", 220.0),
]
"""Products of operands as they are, and how many modelled microseconds they take at most."""


@pytest.mark.parametrize(("fn", "shapes", "dtype", "target", "most"), FIGURES)
def test_large_products(
    fn: Callable[..., Any], shapes: Sequence[tuple[int, ...]], dtype: str, target: str, most: float
) -> None:
    """The schedule that is chosen takes what the bound says, to 3 %, and no longer than is written here."""
    bounds: list[float] = []

    class Notes:
        def microseconds(self, kernel: ScheduledKernel, schedule: Schedule) -> float:
            bounds.append(kernel.bound(schedule))
            return bounds[-1]

    oracle.register("notes", Notes())
    try:
        args = [jax.ShapeDtypeStruct(s, dtype) for s in shapes]
        options = tw.Options(oracle="notes", without={"transposed", "pitch", "stream-k"})
        program = tw.compile(fn, *args, target=target, options=options)
    finally:
        oracle.unregister("notes")
    us = program.report().microseconds
    assert us <= most
    assert us == pytest.approx(min(bounds), rel=0.03)


def test_other_loads_are_for_more_than_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter loads bring less ahead of a barrier: they are taken only where they win more than that."""
    tried: list[Schedule] = []
    real = contraction_choice.other_loads

    def noted(*args: Any) -> Iterator[CubeSchedule]:
        for schedule in real(*args):
            tried.append(schedule)
            yield schedule

    monkeypatch.setattr(contraction_choice, "other_loads", noted)
    args = [jax.ShapeDtypeStruct((128, 768), "float16"), jax.ShapeDtypeStruct((768, 2304), "float16")]
    program = tw.compile(lambda a, b: a @ b, *args)
    assert any(isinstance(s, CubeSchedule) and unequal(s) for s in tried)
    assert "lhs = [128, 256, 256], rhs = [128, 256, 256]" in program.ir("graph")


def normed(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """Two products with a norm between them, and a function behind them that takes long."""
    y = (x @ w).astype("float32")
    y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1.0)
    return jnp.tanh(y.astype(x.dtype) @ v)


NORMED = [(128, 768), (768, 768), (768, 2304)]


def test_weights_are_one_load_where_a_product_waits() -> None:
    """The second product has all of its weights before the norm is over; the first one, which waits for nothing, loads
    as it would alone."""
    args = [jax.ShapeDtypeStruct(s, "float16") for s in NORMED]
    early, late = (tw.compile(normed, *args, options=tw.Options(without=out)) for out in ((), "prefetch"))
    first, second = cube_schedules_of(early)
    assert second.rhs is not None and second.lhs is not None and first.rhs is not None
    assert second.step is not None and second.rhs[-1] == 768 > second.lhs[-1] and first.rhs[-1] < 768
    assert second.rhs[1] == 2 * second.step[1], "the epilogue of a half is under way while the other is computed"
    launch = [op for op in early.module("npu").walk() if isinstance(op, LaunchOp)][-1]
    assert list(to_ints(launch.ahead)) == [1] and launch.passes_barriers == 2
    assert not any(op.ahead for op in late.module("npu").walk() if isinstance(op, LaunchOp))
    assert early.report().microseconds < late.report().microseconds - 3


@sampled(4)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize(
    ("rows", "columns", "target"),
    [
        (1, 2304, "ascend-910b1"),
        (97, 2305, "ascend-910b1"),
        (128, 2304, "ascend-910b1"),
        (200, 1000, "ascend-910b1"),
        (130, 500, "ascend-950pr"),
        (130, 500, "ascend-310"),
    ],
)
def test_values_of_one_load(memory: Literal["typed", "bytes"], rows: int, columns: int, target: str) -> None:
    """What is loaded once has one buffer, whatever part of it each tile takes."""
    rng = np.random.default_rng(rows)
    shapes = [(rows, 768), (768, 768), (768, columns)]
    args = [rng.standard_normal(s).astype(np.float16) / np.float16(16 * (i > 0) or 1) for i, s in enumerate(shapes)]
    got = tw.compile(normed, *args, target=target, options=tw.Options(memory=memory, without={"row-epilogue"}))(*args)
    want = jax.jit(normed)(*args)
    np.testing.assert_allclose(*(np.asarray(y, np.float32) for y in (got, want)), rtol=0.01, atol=0.005)


@pytest.mark.parametrize(("steps", "refused"), [(12, None), (16, "take 65536 x 2 buffers and 524288 bytes of l1")])
def test_one_load_of_all_of_k_has_one_buffer(steps: int, refused: str | None) -> None:
    """Twice all of k does not fit l1, and once does, as far as the other side has room."""
    k = 64 * steps
    args = [jax.ShapeDtypeStruct(s, "float16") for s in [(128, k), (k, 256)]]
    pin = tw.Schedule(base_m=128, base_n=256, base_k=64, step_k_a=4, step_k_b=steps)
    if refused is None:
        program = tw.compile(lambda a, b: a @ b, *args, options=tw.Options(schedule=pin))
        assert f"rhs = [128, 256, {k}]" in program.ir("graph")
        return
    with pytest.raises(tw.CompileError, match=refused):
        tw.compile(lambda a, b: a @ b, *args, options=tw.Options(schedule=pin))


@sampled(4)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-950pr"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("summed", [1, 8, 12, 24, 48])
def test_loads_ahead_are_whole_steps(summed: int, dtype: str, target: str) -> None:
    """A step that is twice as deep needs loads of two steps: of few elements that are summed up there is one."""

    def layers(x: Any, w: Any, v: Any) -> Any:
        y = jnp.maximum(x @ w, 0)
        return (y / (jnp.sqrt(jnp.mean(y * y, axis=0)) + 1)) @ v

    args = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((7168, 32), (32, summed), (summed, 32))]
    assert tw.compile(layers, *args, target=target).report().left_out is None


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-950pr", "ascend-310"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("summed", [131_072, 60_000, 32_768, 8_191, 65_536, 99_991, 120_008])
@covering()
def test_schedules_of_long_sums_can_be_obeyed(summed: int, dtype: str, target: str) -> None:
    """What is left behind whole pieces takes room of its own, and may be more where a piece is shorter."""
    operands = (jax.ShapeDtypeStruct(s, dtype) for s in ((256, summed), (summed, 1)))
    assert tw.compile(lambda x, w: x @ w, *operands, target=target).report().microseconds > 0
