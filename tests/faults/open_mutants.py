"""Faults in kernels with open dimensions: extents, trip counts, places, strides, grids, and what they are fixed to.

Each mutation changes one number that is an expression of sizes; flags, addresses and slots of such kernels have the
mutations of other kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flag_mutants import (
    drop_barrier,
    drop_cross,
    drop_flag,
    drop_pipe_barrier,
    drop_set,
    drop_wait,
    reorder,
    retarget,
    swap_events,
)
from memory_mutants import shift_address, shrink_buffer, swap_buffers, swap_slots
from mutation import Mutation, Random, every, pick
from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import ints, to_ints
from tilewright.dialects.npu import GmType, NpuOp
from tilewright.dialects.npu.structure import KernelOp
from tilewright.dialects.open_sizes import OpenSize, is_open, size_of, value_at
from tilewright.dialects.open_text import OpenSizesAttr
from tilewright.dialects.sizes import Expr, replaced, symbols_of
from tilewright.machine import Machine

Place = tuple[str, int, Callable[[int], None]]
"""What a number is, the number, and how another one is put in its place."""


def changed(number: int, rng: Random) -> int:
    """Another number for an open one: one more or less, twice or half of it, its value at one size, or the same
    expression with one of its symbols fixed."""
    known = {s.name: rng.choice((s.lower, s.upper or 4 * s.lower + 3)) for s in symbols_of(size_of(number))}
    one = rng.choice(sorted(known))
    fixed = OpenSize.of(replaced(size_of(number), {one: Expr(known[one])}))
    return rng.choice(
        (number + 1, number - 1, number * 2, number // 2, value_at(number, known), fixed, number + 16)
    )


def _in_array(op: Operation, key: str, what: str) -> Iterator[Place]:
    attr = op.properties.get(key)
    if not isinstance(attr, DenseArrayBase):
        return
    numbers = to_ints(attr)

    def put(at: int, number: int) -> None:
        op.properties[key] = ints([number if i == at else n for i, n in enumerate(numbers)])

    for at, number in enumerate(numbers):
        if is_open(number):
            yield what, number, partial(put, at)


def _in_type(value: Any, what: str) -> Iterator[Place]:
    kind: GmType = value.type

    def put_shape(at: int, number: int) -> None:
        shape = [number if i == at else n for i, n in enumerate(kind.shape)]
        value._type = GmType.of(shape, kind.element, kind.strides, kind.offset)

    def put_stride(at: int, number: int) -> None:
        strides = [number if i == at else n for i, n in enumerate(kind.strides)]
        value._type = GmType.of(kind.shape, kind.element, strides, kind.offset)

    def put_offset(number: int) -> None:
        value._type = GmType.of(kind.shape, kind.element, kind.strides, number)

    if what == "extent":
        yield from (("extent", n, partial(put_shape, i)) for i, n in enumerate(kind.shape) if is_open(n))
        return
    yield from (("stride", n, partial(put_stride, i)) for i, n in enumerate(kind.strides) if is_open(n))
    if is_open(kind.offset):
        yield "stride", kind.offset, put_offset


def places(kernel: KernelOp, what: str) -> list[Place]:
    """The open numbers of a kernel of one kind: extent, place, stride, trip count or grid."""
    found: list[Place] = []
    if what == "grid":
        return list(_in_array(kernel, "grid", "grid"))
    for op in every(kernel, ops.SizeOp):
        if what == "trip count":

            def put(number: int, op: Any = op) -> None:
                op.properties["value"] = OpenSizesAttr((number,))

            found.append((what, op.number, put))
    for op in every(kernel, NpuOp):
        if what == "place":
            found += _in_array(op, "offsets", what)
        if what == "extent":
            for key in sorted(set(op.properties) - {"offsets"}):
                found += _in_array(op, key, f"extent ({key})")
    if what in ("extent", "stride"):
        values = [o.result for o in every(kernel, ops.ViewOp)]
        values += [a for a in kernel.body.block.args if isinstance(a.type, GmType)]
        for value in values:
            found += _in_type(value, what)
    return found


def change(what: str) -> Mutation:
    """The mutation that changes one open number of a kind."""

    def mutate(kernel: KernelOp, rng: Random, machine: Machine) -> str | None:
        found = pick(rng, places(kernel, what))
        if found is None:
            return None
        said, old, put = found
        new = changed(old, rng)
        if what == "trip count" and not is_open(new):
            new = old + 1  # an op of a closed number is another op
        if str(new) == str(old):
            return None
        put(new)
        return f"{said} {new} instead of {old}"

    mutate.__name__ = f"change_{what.replace(' ', '_')}"
    return mutate


def shift_place(kernel: KernelOp, rng: Random, machine: Machine) -> str | None:
    """A closed number of a place or a box becomes another one."""
    found = [o for o in every(kernel, ops.TransferOp) if to_ints(o.properties.get("offsets"))]
    op = pick(rng, found)
    if op is None:
        return None
    key = rng.choice(["offsets", "sizes"])
    numbers = list(to_ints(op.properties[key]))
    closed = [i for i, n in enumerate(numbers) if not is_open(n)]
    if not closed:
        return None
    at = rng.choice(closed)
    numbers[at] = max(numbers[at] + rng.choice((1, -1, 16)), 0)
    op.properties[key] = ints(numbers)
    return f"{op.name}: {key} {numbers[at]} at {at}"


OPEN_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "change an extent": (change("extent"),),
    "change a trip count": (change("trip count"),),
    "change a place": (change("place"), shift_place),
    "change a stride": (change("stride"),),
    "change the grid": (change("grid"),),
    "drop a flag": (drop_set, drop_wait, drop_flag, drop_barrier, drop_pipe_barrier, drop_cross),
    "retarget a flag": (retarget, swap_events, reorder),
    "overlap addresses": (shift_address, swap_buffers, shrink_buffer, swap_slots),
}
"""Mutations of kernels with open dimensions."""
