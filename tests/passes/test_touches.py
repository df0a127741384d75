"""What npu-check keeps of accesses to device memory, against a list of all accesses, element by element."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import f32

from tilewright.dialects.affine import Expr
from tilewright.dialects.npu import GmType
from tilewright.passes.npu.check import touches
from tilewright.passes.npu.check.affine import TouchedBox
from tilewright.passes.npu.check.model import TensorAccess
from tilewright.passes.npu.check.touches import TouchedRegion, TouchedTensor

KERNEL: Any = SimpleNamespace(unit=0, is_unknown=lambda expr: False)
VIEWS = [
    GmType.of((6, 8), f32),
    GmType.of((8, 6), f32, (1, 8)),
    GmType.of((6, 1, 8), f32),
    GmType.of((6, 2, 4), f32),
    GmType.of((48,), f32),
    GmType.of((5, 4), f32, (1, 1), 3),
    GmType.of((6, 3), f32, (8, 1), 4),
]
"""Of one tensor of 48 elements: the second and third show it as the first does, the next two in other dimensions; of
the sixth, positions share elements."""


def access(view: GmType, box: tuple[tuple[int, int], ...] | None, write: bool, units: int = 1) -> TensorAccess:
    touched = None
    if box is not None:
        offsets = tuple(Expr[int](low) for low, _ in box)
        counts = tuple(end - low for low, end in box)
        touched = TouchedBox(offsets, counts, (1,) * len(box), view.shape)
    section: Any = SimpleNamespace(units=units, number=0)
    op: Any = None
    return TensorAccess(op, 0, view, touched, write, section, ())


@st.composite
def accesses(draw: st.DrawFn) -> tuple[TensorAccess, int, int]:
    """An access, its queue, and how many instructions of the other queue its own has waited for."""
    view = draw(st.sampled_from(VIEWS))
    edges = [sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in view.shape]
    box = tuple((low, end) for low, end in edges) if draw(st.integers(0, 9)) else None
    return access(view, box, draw(st.booleans())), draw(st.integers(0, 1)), draw(st.integers(0, 40))


def elements(access: TensorAccess) -> np.ndarray:
    view = access.view
    flat = sum(
        np.arange(n).reshape([-1 if e == d else 1 for e in range(len(view.shape))]) * view.strides[d]
        for d, n in enumerate(view.shape)
    )
    box = [(0, n) for n in view.shape] if access.box is None else access.box.at([0])
    assert box is not None
    return np.unique(view.offset + flat[tuple(slice(*edge) for edge in box)])


@given(st.lists(accesses(), max_size=24))
def test_against_a_list_of_all_accesses(listed: list[tuple[TensorAccess, int, int]]) -> None:
    """An access that conflicts with an earlier one, unordered, conflicts with what is kept. Where all are boxes of one
    frame, the two are the same, and so is whether an access finds all elements written."""
    told_apart = {0, 1, 2} >= {VIEWS.index(a.view) for a, _, _ in listed} and all(a.box for a, _, _ in listed)
    touched = TouchedTensor(KERNEL)
    numbers = [0, 0]
    earlier: list[tuple[TensorAccess, int, int]] = []
    written: set[int] = set()
    for one, queue, waited in listed:
        mine = set(elements(one))
        clash = {
            (other_queue, other.write)
            for other, other_queue, number in earlier
            if (other.write or one.write) and other_queue != queue and number > waited and mine & set(elements(other))
        }
        (region,) = touched.regions(one, [0])
        assert region is not None
        kept = {
            (q, wrote)
            for (q, _, wrote), number in region.touched()
            if (wrote or one.write) and q != queue and number > waited
        }
        assert kept == clash if told_apart else kept >= clash
        assert region.filled() == (mine <= written) if told_apart else region.filled() or not mine <= written
        numbers[queue] += 1
        region.touch((queue, 0, one.write), numbers[queue])
        earlier.append((one, queue, numbers[queue]))
        written |= mine if one.write else set()


def looked_at(monkeypatch: pytest.MonkeyPatch, order: list[TensorAccess]) -> int:
    """How many last accesses and pairs of boxes are looked at in all."""
    total = 0

    def touched(self: TouchedRegion) -> Any:
        nonlocal total
        for pair in plain(self):
            total += 1
            yield pair

    def shared(*boxes: Any) -> int:
        nonlocal total
        total += 1
        return share(*boxes)

    plain, share = TouchedRegion.touched, touches.shared
    with monkeypatch.context() as patch:
        patch.setattr(TouchedRegion, "touched", touched)
        patch.setattr(touches, "shared", shared)
        tensor = TouchedTensor(KERNEL)
        for number, one in enumerate(order):
            (region,) = tensor.regions(one, [0])
            assert region is not None
            list(region.touched())
            assert one.write or region.filled()
            region.touch((one.write, 0, one.write), number)
    return total


def tiles(n: int, view: GmType) -> list[TensorAccess]:
    """Stores of n x n tiles, and loads of each in two halves."""
    places = [(i, j) for i in range(n) for j in range(n)]
    stores = [access(view, ((8 * i, 8 * i + 8), (8 * j, 8 * j + 8)), True) for i, j in places]
    halves = [(8 * i + 4 * h, j) for i, j in places for h in (0, 1)]
    return [*stores, *(access(view, ((i, i + 4), (8 * j, 8 * j + 8)), False) for i, j in halves)]


def again(n: int, view: GmType) -> list[TensorAccess]:
    """Stores of tiles, and loads of the whole between them once all are there."""
    parts = tiles(n, view)[: n * n]
    return [*parts, *(a for part in parts for a in (part, access(view, ((0, 8 * n),) * 2, False)))]


@pytest.mark.parametrize("listed", [tiles, again])
def test_the_work_grows_with_the_number_of_accesses(monkeypatch: pytest.MonkeyPatch, listed: Any) -> None:
    few, many = (looked_at(monkeypatch, listed(n, GmType.of((8 * n, 8 * n), f32))) for n in (16, 32))
    assert many <= 4 * 1.2 * few  # four times as many accesses


def test_rows_of_one_view_and_columns_of_another_do_not_meet_element_by_element() -> None:
    """Between frames, flat ranges are compared: what lies between the rows counts as touched."""
    touched = TouchedTensor(KERNEL)
    (store,) = touched.regions(access(VIEWS[0], ((0, 2), (0, 4)), True), [0])
    (load,) = touched.regions(access(VIEWS[4], ((5, 7),), False), [0])
    (beyond,) = touched.regions(access(VIEWS[4], ((12, 20),), False), [0])
    assert store is not None and load is not None and beyond is not None
    store.touch((0, 0, True), 1)
    assert [number for _, number in load.touched()] == [1]
    assert load.filled()
    assert not list(beyond.touched()) and not beyond.filled()
