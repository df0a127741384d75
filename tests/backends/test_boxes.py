"""Box transfers against element by element numpy, with known and with traced offsets."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

from tilewright.backends.functions.scope import Offset, RunTimeSizes
from tilewright.backends.interpreter import boxes
from tilewright.backends.interpreter.grid import _quotient, coordinates
from tilewright.backends.interpreter.views import View

jax.config.update("jax_platforms", "cpu")

FILL = np.float32(-7)


@st.composite
def transfers(draw: st.DrawFn, store: bool = False):
    """(source shape, view, offsets, sizes, steps, window, window steps); the box may leave the view."""
    source = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    if draw(st.integers(0, 3)) == 0:
        source = (draw(st.integers(40, 120)),)
    strides = [math.prod(source[d + 1 :]) for d in range(len(source))]
    order = draw(st.permutations(range(len(source))))
    extents, steps = [source[d] for d in order], [strides[d] for d in order]
    if not store and draw(st.integers(0, 3)) == 0:  # a dimension along which the view repeats
        at = draw(st.integers(0, len(source) - 1))
        extents[at], steps[at] = draw(st.integers(1, 6)), 0
    view = View(tuple(extents), tuple(steps))
    rank = len(source)
    sizes = [draw(st.integers(1, min(n + 2, 70))) for n in view.shape]
    steps = [draw(st.sampled_from([1, 1, 2, -1] if store else [1, 1, 2, -1, 0])) for _ in range(rank)]
    offsets = [draw(st.integers(-3, n + 2)) for n in view.shape]
    windowed = not store and draw(st.integers(0, 2)) == 0
    window = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)] if windowed else [1] * rank
    window_steps = [draw(st.integers(1, 2)) for _ in range(rank)]
    return source, view, offsets, sizes, steps, window, window_steps


def as_offsets(values, traced) -> list[Offset]:
    """Offsets whose range is wider than their value, as in a loop, or known ones."""
    if traced is None:
        return [Offset.known(v) for v in values]
    return [Offset(t, v - 1, v + 1) for t, v in zip(traced, values, strict=True)]


def strided(flat: np.ndarray, view: View, writeable: bool = False) -> np.ndarray:
    steps = [s * flat.itemsize for s in view.strides]
    return np.lib.stride_tricks.as_strided(flat, view.shape, steps, writeable=writeable)


@pytest.mark.parametrize("asks", [None, False, True])
@examples(60)
@given(case=transfers())
def test_load(asks: bool | None, case) -> None:
    """`asks`: whether a box at traced offsets is shifted only where it must be; None: offsets are known."""
    traced = asks is not None
    source, view, offsets, sizes, steps, window, window_steps = case
    flat = np.arange(1, math.prod(source) + 1, dtype=np.float32)
    shown, rank = strided(flat, view), len(sizes)
    shape = (*sizes[:-1], *window, sizes[-1])
    want = np.full(shape, FILL)
    for index in np.ndindex(*shape):
        p, w = [*index[: rank - 1], index[-1]], index[rank - 1 : -1]
        at = [o + i * s + j * t for o, i, s, j, t in zip(offsets, p, steps, w, window_steps, strict=True)]
        if all(0 <= a < n for a, n in zip(at, view.shape, strict=True)):
            want[index] = shown[tuple(at)]

    def run(x, dynamic):
        where = as_offsets(offsets, dynamic if traced else None)
        return boxes.load(x, view, where, sizes, steps, FILL, shape, window, window_steps)

    with pytest.MonkeyPatch.context() as patch:
        if asks:
            patch.setattr(boxes, "LARGE", 0)
            patch.setattr(boxes, "MOSTLY", 0)
        got = jax.jit(run)(flat.reshape(source), np.asarray(offsets, np.int32))
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("traced", [False, True])
@examples(60)
@given(case=transfers(store=True))
def test_store(traced: bool, case) -> None:
    source, view, offsets, sizes, steps, _, _ = case
    flat = np.arange(1, math.prod(source) + 1, dtype=np.float32)
    tile = -np.arange(1, math.prod(sizes) + 1, dtype=np.float32).reshape(sizes)
    want = flat.copy()
    shown = strided(want, view, writeable=True)
    for index in np.ndindex(*sizes):
        at = [o + i * s for o, i, s in zip(offsets, index, steps, strict=True)]
        if all(0 <= a < n for a, n in zip(at, view.shape, strict=True)):
            shown[tuple(at)] = tile[index]

    def run(x, tile, dynamic):
        return boxes.store(x, view, tile, as_offsets(offsets, dynamic if traced else None), sizes, steps)

    got = jax.jit(run)(flat.reshape(source), tile, np.asarray(offsets, np.int32))
    np.testing.assert_array_equal(np.asarray(got).reshape(-1), want)


def test_a_box_inside_is_one_slice() -> None:
    def run(x, i):
        return boxes.load(
            x, View.dense((64, 64)), [Offset(i, 0, 32), Offset.known(0)], [32, 16], [1, 1], FILL, (32, 16)
        )

    text = str(jax.make_jaxpr(run)(jax.ShapeDtypeStruct((64, 64), np.float32), np.int32(0)))
    assert "dynamic_slice" in text
    assert "gather" not in text
    assert "select" not in text


def asked(start: Offset, rows: int) -> bool:
    """Whether loading 1024 columns of some rows from `start` on, out of 64, asks if they stick out."""
    view, size = View.dense((64, 1024)), [rows, 1024]

    def run(x, at):
        rows_at = Offset(at, start.low, start.high, start.still)
        return boxes.load(x, view, [rows_at, Offset.known(0)], size, [1, 1], FILL, tuple(size))

    return "cond" in str(jax.make_jaxpr(run)(jax.ShapeDtypeStruct((64, 1024), np.float32), np.int32(0)))


def test_only_loops_ask_for_the_edge() -> None:
    assert asked(Offset(None, 0, 60), 16)
    assert not asked(Offset(None, 0, 60, still=True), 16)  # taken once
    assert not asked(Offset(None, 0, 48), 16)  # inside
    assert not asked(Offset(None, -1, 1), 64)  # two of three stick out
    assert not asked(Offset(None, 0, 60), 4)  # small


@examples(200)
@given(n=st.integers(1, 5000), total=st.integers(1, 1 << 20), data=st.data())
def test_quotient(n: int, total: int, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, total - 1))
    numbers = np.array([0, i, i // n * n, max(i // n * n - 1, 0), total - 1], np.int32)
    np.testing.assert_array_equal(np.asarray(_quotient(numbers, n, total)), numbers // n)


@pytest.mark.parametrize("counts", [(3, 5, 7), (1, 9, 1, 2), (128, 128), (6,)])
def test_coordinates(counts: tuple[int, ...]) -> None:
    at = np.arange(math.prod(counts), dtype=np.int32)
    want = np.unravel_index(at, counts)
    for n, offset, row in zip(counts, coordinates(at, counts, RunTimeSizes()), want, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(np.asarray(offset.value), at.shape), row)
        assert (offset.low, offset.high) == (0, n - 1)


def test_store_refuses_a_view_that_repeats() -> None:
    view = View((4, 3), (0, 1))
    with pytest.raises(ValueError, match="cannot store"):
        boxes.store(np.zeros(3, np.float32), view, np.ones((4, 3)), [Offset.known(0)] * 2, [4, 3], [1, 1])


def test_gather_boxes() -> None:
    table = np.arange(60, dtype=np.float32).reshape(10, 6)
    index = np.array([12, 0, 54], np.int32)
    got = boxes.gather_boxes(table, View.dense((10, 6)), index, [1, 6])
    np.testing.assert_array_equal(np.asarray(got).reshape(3, 6), table[[2, 0, 9]])
    columns = View((6, 10), (1, 6))
    got = boxes.gather_boxes(table, columns, np.array([1, 3], np.int32), [1, 10])
    np.testing.assert_array_equal(np.asarray(got).reshape(2, 10), table.T[[1, 3]])
