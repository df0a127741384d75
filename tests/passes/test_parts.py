"""Parts of tensors as npu-check keeps them: they are sets of elements, whatever the tensor's size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from xdsl.dialects.builtin import f32

from tilewright.dialects.npu import GmType
from tilewright.passes.npu.check.device import box_of
from tilewright.passes.npu.check.parts import Part

TOTAL = 12
SETS = st.sets(st.integers(0, TOTAL - 1))


def part(elements: set[int], total: int = TOTAL) -> Part:
    return Part.of(np.array(sorted(elements), np.int64), total)


def elements(of: Part) -> set[int]:
    return {i for low, high in zip(of.starts, of.ends, strict=True) for i in range(low, high)}


@given(SETS, SETS)
def test_a_part_is_a_set_of_elements(a: set[int], b: set[int]) -> None:
    one, both = part(a), part(a) | part(b)
    assert (elements(one), elements(both)) == (a, a | b)
    assert all(e < s for p in (one, both) for e, s in zip(p.ends, p.starts[1:], strict=False))
    assert both.whole == (len(a | b) == TOTAL)
    assert both.missing() == min({*range(TOTAL + 1)} - (a | b))
    assert one.has(np.array(sorted(b), np.int64)) == (b <= a)


@st.composite
def views(draw: st.DrawFn) -> GmType:
    """Views of a tensor of `TOTAL` elements, reversed, repeated, overlapping and empty ones as well."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    strides = [draw(st.integers(-5, 5)) for _ in shape]
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True) if n]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    assume(high - low < TOTAL)
    offset = draw(st.integers(-low, TOTAL - 1 - high))
    return GmType.of(shape, f32, strides, offset)


@given(views())
def test_what_a_view_shows(view: GmType) -> None:
    places = itertools.product(*map(range, view.shape))
    want = {view.offset + sum(i * s for i, s in zip(at, view.strides, strict=True)) for at in places}
    shown = Part.shown(view, TOTAL)
    assert elements(shown) == want
    assert all(e < s for e, s in zip(shown.ends, shown.starts[1:], strict=False))


@given(SETS, SETS)
def test_what_covers_another_part(a: set[int], b: set[int]) -> None:
    assert part(a).covers(part(b)) == (b <= a)
    assert not part(a, TOTAL + 1).covers(part(b))


def test_a_part_takes_no_memory_for_what_it_is_part_of() -> None:
    far = part({0, 1, 10**15}, 10**16) | part({2}, 10**16)
    assert elements(far) == {0, 1, 2, 10**15}
    assert (far.whole, far.missing()) == (False, 3)


@pytest.mark.parametrize(
    ("box", "runs"),
    [
        ([(0, 4), (0, 16)], [(0, 64)]),
        ([(1, 3), (0, 16)], [(16, 48)]),
        ([(0, 4), (-15, 1)], [(0, 1), (16, 17), (32, 33), (48, 49)]),
        ([(-3, 2), (0, 16)], [(0, 32)]),
        ([(3, 9), (2, 4)], [(50, 52)]),
        ([(0, 4), (-20, -3)], []),
        ([(5, 7), (0, 16)], []),
    ],
)
def test_what_lies_outside_of_a_view_is_not_stored(
    box: list[tuple[int, int]], runs: list[tuple[int, int]]
) -> None:
    part = Part.shown(box_of(GmType.of([4, 16], f32, [16, 1], 0), box), 64)
    assert list(zip(part.starts.tolist(), part.ends.tolist(), strict=True)) == runs
