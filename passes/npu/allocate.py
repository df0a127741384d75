"""npu-allocate: gives every on-chip buffer an address in its space.

Before:  %buf = npu.alloc : !npu.buffer<128x64xf32, l1, 2 slots>
After:   %buf = npu.alloc {address = 32768} : !npu.buffer<128x64xf32, l1, 2 slots>

Buffers that several pipes or several loop levels touch keep their own addresses. Temporaries of the vector unit,
live within one block only, take idle slots of what is loaded and stored (chains.py), or share memory by live range
(best fit, or a search where that takes more than there is), with those of the loops in it; an elementwise instruction
may compute in place.
Where there is room, buffers of ub begin where a window of banks does, so that what is written does not meet what is
read, and neighbours in different groups of banks, so that two sources do not meet.
Matrices in memories of the cube take whole fractals, which its instructions fill and read. Instructions repeat rows and
columns themselves where that is no slower, or where tiles of them have no room (repeated.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter

from ...dialects.base import integer_attr, source_of, text
from ...dialects.dtypes import itemsize
from ...dialects.npu import (
    AllocOp,
    BufferType,
    ElementwiseVectorOp,
    SlotOp,
    buffer,
    whole_buffer,
)
from ...dialects.npu.fractals import larger_fractals
from ...dialects.npu.structure import KernelOp, SectionOp
from ...machine import Machine
from ...packing.problem import Buffer, PackingProblem
from ...packing.solve import Budget, solve
from ..alternatives import BANKS
from ..base import ChoosingPass
from ..errors import PassError
from .chains import share_slots
from .repeated import repeat_in_place
from .usages import Usage, alloc_of, usages


@dataclass(frozen=True)
class NpuAllocatePass(ChoosingPass):
    """Assigns addresses; fails with the buffers that do not fit."""

    name = "npu-allocate"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        for kernel in module.ops:
            if isinstance(kernel, KernelOp):
                for section in kernel.body.block.ops:
                    if isinstance(section, SectionOp):
                        allocate_section(section, kernel, machine, self.may(BANKS))


def allocate_section(section: SectionOp, kernel: KernelOp, machine: Machine, apart: bool = True) -> None:
    """Allocates all spaces of one section. Raises PassError on overflow."""
    why = try_section(section, kernel, machine, apart)
    if why is not None:
        raise PassError(why())


def try_section(
    section: SectionOp, kernel: KernelOp, machine: Machine, apart: bool = True
) -> Callable[[], str] | None:
    """Allocates all spaces of one section. Returns what says why there is no room, None where there is: it looks for
    changes with which there would be."""
    repeat_in_place(section, machine)
    why = _allocate_spaces(section, kernel, machine, apart)
    if why is not None and repeat_in_place(section, machine, every=True):
        why = _allocate_spaces(section, kernel, machine, apart)
    return why


def _allocate_spaces(
    section: SectionOp, kernel: KernelOp, machine: Machine, apart: bool
) -> Callable[[], str] | None:
    found = usages(section)
    lay_in_fractals(found.values(), machine)
    if share_slots(found.values()):
        found = usages(section)
    spaces: dict[str, list[Usage]] = {}
    for usage in found.values():
        spaces.setdefault(usage.type.space, []).append(usage)
    for space, members in spaces.items():
        if space not in machine.spaces:
            lacking = f"kernel @{text(kernel.sym_name)} uses {space}, which {machine.name} does not have"
            return lambda: lacking
        least = max(machine.spaces[space].align, 32)
        capacity = machine.spaces[space].bytes
        banks = machine.vector.banks if space == "ub" else None
        window = least if banks is None else max(least, banks.window_bytes)
        rooms = [_multiple(least)]
        if banks is not None:  # what is apart by banks is faster, and no need
            rooms = [*([_odd_multiple(window)] if apart else []), _multiple(window), *rooms]
        end = 0
        for room, packed in [*((room, False) for room in rooms), (rooms[-1], True)]:
            end = _allocate(members, room, packed)
            if end <= capacity:
                break
        else:
            return partial(_overflow, kernel, space, end, machine, members, rooms[-1])
    return None


def lay_in_fractals(usages: Iterable[Usage], machine: Machine) -> None:
    """Lets matrices take whole fractals, where these are more bytes than their rows."""
    for usage in usages:
        kind, value = usage.type, usage.alloc.result
        found = {dims for op in usage.ops for v, dims in op.matrices() if whole_buffer(v) is value}
        larger = [larger_fractals(kind.shape, kind.element, kind.space, n, machine) for n in sorted(found)]
        blocks = max(filter(None, larger), key=lambda b: b.bytes_of(kind.shape, kind.element), default=None)
        if blocks is None or blocks.bytes_of(kind.shape, kind.element) <= kind.slot_bytes:
            continue
        whole = BufferType.of(kind.shape, kind.element, kind.space, kind.slots, fractals=blocks)
        for use in list(value.uses):
            if isinstance(use.operation, SlotOp):
                Rewriter.replace_value_with_new_type(use.operation.result, whole.one_slot)
        Rewriter.replace_value_with_new_type(value, whole)


PLACEMENTS = Budget(nodes=4000)
"""Where best fit takes more than there is, the places of temporaries are searched so long."""

Room = Callable[[int], int]
"""The bytes that a buffer of so many bytes takes of a space."""


def _multiple(unit: int) -> Room:
    """Whole units."""
    return lambda bytes_: -(-bytes_ // unit) * unit


def _odd_multiple(window: int) -> Room:
    """An odd number of windows: what lies side by side begins in other groups of banks then."""
    return lambda bytes_: (-(-bytes_ // window) // 2 * 2 + 1) * window if bytes_ > window else window


def _allocate(members: Sequence[Usage], room: Room, packed: bool = False) -> int:
    """Gives the buffers of a space addresses; returns the end of the last, in bytes. packed: whether a search makes
    that low, and not the best fit of each in its turn."""
    end = 0
    pools: dict[Block, list[Usage]] = {}
    for usage in members:
        block = usage.private_block()
        if block is not None:
            pools.setdefault(block, []).append(usage)
            continue
        _place(usage.alloc, end)
        end += room(usage.bytes)
    for top in _tops(pools):
        shared = _Pool(top, pools, room, packed)
        for alloc, at in shared.places.items():
            _place(alloc, end + at)
        end += shared.bytes
    return end


def _place(alloc: AllocOp, address: int) -> None:
    alloc.properties["address"] = integer_attr(address)


def _tops(pools: Mapping[Block, Sequence[Usage]]) -> list[Block]:
    """The outermost block around each of some blocks, which is that of a section."""
    found: dict[Block, None] = {}
    for block in pools:
        while isinstance(loop := block.parent_op(), ForOp) and loop.parent is not None:
            block = loop.parent
        found[block] = None
    return list(found)


@dataclass
class _Tenant:
    """What takes `size` bytes from `at` on while the instructions from `first` to `last` run: a buffer and those that
    are computed in its place, or all that a loop needs. inside: where in it each buffer begins."""

    first: int
    last: int
    size: int
    at: int
    inside: dict[AllocOp, int]


class _Pool:
    """Memory for the temporaries of the vector unit of one block and of the loops in it, each as long as it is needed.

    A loop takes what its own temporaries need. places: where each begins; bytes: of all.
    """

    def __init__(
        self, block: Block, pools: Mapping[Block, Sequence[Usage]], room: Room, packed: bool = False
    ) -> None:
        self.places: dict[AllocOp, int] = {}
        self.bytes = 0
        order: dict[Operation, int] = {op: i for i, op in enumerate(block.ops)}
        spans: list[tuple[int, int, Usage | _Pool]] = [
            (order[u.ops[0]], order[u.ops[-1]], u) for u in pools.get(block, ()) if u.ops
        ]
        for op, i in order.items():
            if isinstance(op, ForOp):
                inner = _Pool(op.body.block, pools, room, packed)
                spans += [(i, i, inner)] if inner.places else []
        tenants: list[_Tenant] = []
        live: list[_Tenant] = []
        for first, last, each in sorted(spans, key=lambda span: span[:2]):
            size = room(each.bytes)
            live = [b for b in live if b.last >= first]
            under = self._in_place(each, first, live, size) if isinstance(each, Usage) else None
            inside = {each.alloc: 0} if isinstance(each, Usage) else each.places
            if under is None:
                at = best_gap([(b.at, b.size) for b in live], size)
                under = _Tenant(first, last, size, at, {})
                live.append(under)
                tenants.append(under)
            under.last = last
            under.inside |= inside
        if packed:
            _pack(tenants)
        for tenant in tenants:
            self.bytes = max(self.bytes, tenant.at + tenant.size)
            self.places.update((alloc, tenant.at + place) for alloc, place in tenant.inside.items())

    def _in_place(self, usage: Usage, first: int, live: list[_Tenant], size: int) -> _Tenant | None:
        """The place of an operand that ends where `usage` begins, lanes of equal width: an elementwise instruction may
        then write over it. None where there is no such operand."""
        definer = usage.ops[0]
        if not isinstance(definer, ElementwiseVectorOp):
            return None
        width = itemsize(usage.type.element)
        for value in definer.sources():
            kind = buffer(value)
            alloc = alloc_of(value)
            if alloc is None or kind.shape != usage.type.shape or itemsize(kind.element) != width:
                continue
            for b in live:
                if b.last == first and b.size == size and b.inside.get(alloc) == 0:
                    return b
        return None


def _pack(tenants: Sequence[_Tenant]) -> None:
    """Places tenants as low as a search of `PLACEMENTS` finds."""
    buffers = [
        Buffer(str(i), tenant.first, tenant.last + 1, tenant.size) for i, tenant in enumerate(tenants)
    ]
    plan = solve(PackingProblem(tuple(buffers)), PLACEMENTS)
    for tenant, at in zip(tenants, plan.offsets.tolist(), strict=True):
        tenant.at = at


def best_gap(live: Iterable[tuple[int, int]], size: int) -> int:
    """The start of the smallest free gap of at least `size` bytes below the end, or the end. `live`: (begin, bytes) of
    what is taken."""
    taken = sorted((at, at + n) for at, n in live)
    best: tuple[int, int] | None = None
    cursor = 0
    for begin, end in taken:
        gap = begin - cursor
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, cursor)
        cursor = max(cursor, end)
    return best[1] if best is not None else cursor


def _overflow(
    kernel: KernelOp, space: str, need: int, machine: Machine, members: list[Usage], room: Room
) -> str:
    largest = sorted(members, key=lambda u: -u.bytes)[:6]
    listed = "; ".join(
        f"{u.type} {u.bytes} bytes" + (f" ({place})" if (place := source_of(u.alloc)) else "")
        for u in largest
    )
    more = f" and {len(members) - len(largest)} smaller ones" if len(members) > len(largest) else ""
    capacity = machine.spaces[space].bytes
    return (
        f"kernel @{text(kernel.sym_name)} needs {need} bytes of {space}, but {machine.name} has {capacity}: "
        f"live buffers {listed}{more}; {_smaller(members, room, need, capacity)}"
    )


def _smaller(members: list[Usage], room: Room, need: int, capacity: int) -> str:
    """The smallest change of one buffer after which all fit: fewer slots, or a tile of half or a quarter."""
    changes: list[tuple[bool, int, int, str]] = []  # whether the tile changes, bytes less, the buffer, and what to say
    for i, u in enumerate(members):
        slots = [(u.type.slot_bytes * n, f"{n} slot{'s' if n > 1 else ''}") for n in range(1, u.type.slots)]
        parts = [(u.bytes // n, f"a tile {word}") for n, word in ((2, "half as large"), (4, "a quarter as large"))]
        changes += [(False, u.bytes - bytes_, i, said) for bytes_, said in slots]
        changes += [(True, u.bytes - bytes_, i, said) for bytes_, said in parts]
    for _, less, i, said in sorted(changes):
        u = members[i]
        tried = [*members[:i], replace(u, supposed=u.bytes - less), *members[i + 1 :]]
        if _allocate(tried, room, packed=True) <= capacity:
            place = source_of(u.alloc)
            return f"it fits with {said} in the place of {u.type}{f' ({place})' if place else ''}"
    return f"use smaller tiles: {need - capacity} bytes are too many"
