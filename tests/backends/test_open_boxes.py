"""Boxes of device tensors whose shapes, strides and offsets are known only at run time, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

from tilewright.backends.functions.scope import Offset, RunTimeSizes, most, span_of
from tilewright.backends.interpreter import open_boxes
from tilewright.backends.interpreter.views import View
from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.npu.types import row_strides
from tilewright.dialects.open_sizes import OpenSize, value_at
from tilewright.dialects.sizes import SizeError, evaluate, parse_size

SYMBOLS = {"b": Symbol("b", 1, 4), "s": Symbol("s", 1, 6)}


def opened(text: str) -> int:
    return OpenSize.of(parse_size(text, SYMBOLS))


DIMENSIONS: list[int | str] = [1, 3, "b", "s", "b*s", "2*s", "floordiv(s + 1, 2)", "s + 1"]


def compiled(function: Callable[..., Any], sizes: dict[str, int], *arrays: np.ndarray) -> np.ndarray:
    """The result of a function of open sizes and arrays, where XLA knows none of the sizes."""

    def run(values: Sequence[jax.Array], *arrays: jax.Array) -> jax.Array:
        return function(RunTimeSizes(dict(zip(sizes, values, strict=True))), *arrays)

    return np.asarray(jax.jit(run)([np.int32(n) for n in sizes.values()], *arrays))


@dataclass(frozen=True)
class Case:
    """A view of a tensor, a box of it, and the sizes. order: of the tensor's dimensions in the view."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    sizes: dict[str, int]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def view(self) -> View:
        strides = row_strides(self.shape)
        return View(tuple(self.shape[d] for d in self.order), tuple(strides[d] for d in self.order))

    @property
    def box(self) -> tuple[list[Offset], tuple[int, ...], tuple[int, ...]]:
        return [Offset.known(n) for n in self.starts], self.counts, self.steps

    @property
    def now(self) -> tuple[int, ...]:
        return tuple(value_at(n, self.sizes) for n in self.shape)

    def whole(self, dtype: str, rest: int) -> tuple[np.ndarray, np.ndarray]:
        """A tensor of these sizes, and what holds it: `rest` stands behind its end."""
        x = (np.arange(prod(self.now)) % 97 + 1).astype(dtype).reshape(self.now)
        held = np.full(prod(open_boxes.room(self.shape)), rest, dtype)
        held[: x.size] = x.reshape(-1)
        return x, held.reshape(open_boxes.room(self.shape))

    def places(self) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
        """For each place in the box, that of its element in the tensor; None outside the view."""
        shown = [self.now[d] for d in self.order]
        found = []
        for at in np.ndindex(*self.counts):
            p = [first + i * step for first, i, step in zip(self.starts, at, self.steps, strict=True)]
            inside = all(0 <= i < n for i, n in zip(p, shown, strict=True))
            found.append((at, tuple(p[self.order.index(d)] for d in range(len(p))) if inside else None))
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 3))
    dims = [draw(st.sampled_from(DIMENSIONS)) for _ in range(rank)]
    shape = tuple(opened(d) if isinstance(d, str) else d for d in dims)
    sizes = {name: draw(st.integers(s.lower, s.upper or 0)) for name, s in SYMBOLS.items()}
    return Case(
        shape,
        tuple(draw(st.permutations(range(rank)))),
        sizes,
        tuple(draw(st.integers(-2, 4)) for _ in range(rank)),
        tuple(draw(st.integers(1, 5)) for _ in range(rank)),
        tuple(draw(st.sampled_from([1, 1, 2])) for _ in range(rank)),
    )


@examples(60)
@given(case=cases(), dtype=st.sampled_from(["float32", "int8", "bool"]))
def test_load(case: Case, dtype: str) -> None:
    x, held = case.whole(dtype, 1)
    fill = np.zeros((), dtype)
    got = compiled(
        lambda at, held: open_boxes.load(held, case.view, *case.box, fill, case.counts, at), case.sizes, held
    )
    want = np.zeros(case.counts, dtype)
    for at, place in case.places():
        if place is not None:
            want[at] = x[place]
    np.testing.assert_array_equal(got, want)


@examples(60)
@given(case=cases())
def test_store(case: Case) -> None:
    x, held = case.whole("float32", -5)
    tile = -np.arange(1, prod(case.counts) + 1, dtype="f4").reshape(case.counts)
    got = compiled(
        lambda at, held, tile: open_boxes.store(held, case.view, tile, *case.box, at), case.sizes, held, tile
    )
    want = x.copy()
    for at, place in case.places():
        if place is not None:
            want[place] = tile[at]
    flat = got.reshape(-1)
    np.testing.assert_array_equal(flat[: x.size], want.reshape(-1))
    assert (flat[x.size :] == -5).all()


@examples(40)
@given(case=cases())
def test_a_view_is_read_and_written(case: Case) -> None:
    x, held = case.whole("float32", -5)
    got = compiled(lambda at, held: open_boxes.read(held, case.view, at), case.sizes, held)
    shown = np.transpose(x, case.order)
    np.testing.assert_array_equal(got.reshape(-1)[: x.size], shown.reshape(-1))
    back = compiled(
        lambda at, held, new: open_boxes.write(held, case.view, new, at), case.sizes, np.zeros_like(held), got
    )
    np.testing.assert_array_equal(back.reshape(-1)[: x.size], x.reshape(-1))


@examples(20)
@given(case=cases(), data=st.data())
def test_boxes_are_gathered(case: Case, data: st.DataObject) -> None:
    x, held = case.whole("float32", -5)
    shown = tuple(case.now[d] for d in case.order)
    if not x.size:
        return
    box = tuple(data.draw(st.integers(1, n)) for n in shown)
    strides = [row_strides(case.now)[d] for d in case.order]
    firsts = [
        [data.draw(st.integers(0, n - k)) for n, k in zip(shown, box, strict=True)] for _ in range(3)
    ]
    index = np.array([sum(i * s for i, s in zip(at, strides, strict=True)) for at in firsts], "i4")
    got = compiled(
        lambda at, held, index: open_boxes.gather_boxes(held, case.view, index, box, at),
        case.sizes,
        held,
        index,
    )
    transposed = np.transpose(x, case.order)
    want = [transposed[tuple(slice(i, i + n) for i, n in zip(at, box, strict=True))] for at in firsts]
    np.testing.assert_array_equal(got, np.stack(want))


def test_a_run_of_an_edge_keeps_its_neighbours() -> None:
    """A row that ends behind the tensor, or begins before it, is not moved over other elements."""
    view = View((opened("s"),), (1,))
    for start in range(-3, 8):
        held = np.arange(6, dtype="f4")
        got = compiled(
            lambda at, held, start=start: open_boxes.store(
                held, view, np.full(4, -1, "f4"), [Offset.known(start)], (4,), (1,), at
            ),
            {"s": 5},
            held,
        )
        want = held.copy()
        want[max(start, 0) : max(min(start + 4, 5), 0)] = -1
        np.testing.assert_array_equal(got, want, str(start))


@examples(60)
@given(
    text=st.sampled_from(
        [
            "b",
            "3*s - b",
            "b*s + 2",
            "floordiv(s - 4, b)",
            "mod(b - s, 3)",
            "ceildiv(b*s, 4)",
            "max(b, s)",
            "min(s, 3)*b",
        ]
    ),
    b=st.integers(1, 4),
    s=st.integers(1, 6),
)
def test_sizes_at_run_time(text: str, b: int, s: int) -> None:
    number, sizes = opened(text), {"b": b, "s": s}
    want = evaluate(parse_size(text, SYMBOLS), sizes)
    assert RunTimeSizes(sizes).value(number) == want
    assert int(compiled(lambda at: at.value(number), sizes)) == want
    assert int(compiled(lambda at: at.keeping([number]).value(number), sizes)) == want
    low, high = span_of(number)
    assert low <= want <= high == most(number)


def test_a_size_without_a_bound_takes_no_memory() -> None:
    with pytest.raises(SizeError, match="n has no bound"):
        open_boxes.room((3, OpenSize.of(Expr.of(Symbol("n", 1)))))
