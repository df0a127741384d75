"""Why a kernel does not fit on chip, and the smallest change after which it does: each change is tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from ..dialects.base import source_of
from ..dialects.dtypes import dtype_name
from ..machine import Machine
from .buffers import L0C, L1, UB, Buffers, LiveBuffer
from .errors import FootprintError
from .extents import Dim

SPACES = (UB, L1, L0C)

LEAST = 16
"""Tiles are not made shorter than a fractal."""


@dataclass(frozen=True)
class Live:
    """A buffer that is needed where most is."""

    bytes: int
    shape: str
    what: str
    place: str


@dataclass(frozen=True)
class Peak:
    """What an on-chip memory has to hold at one time. place: the op that runs then, and where it is written."""

    space: str
    bytes: int
    room: int
    place: str
    live: tuple[Live, ...]

    @property
    def fits(self) -> bool:
        """Whether there is room for it."""
        return self.bytes <= self.room


@dataclass(frozen=True)
class Change:
    """A change of a kernel, what it then needs of each memory, and whether it fits."""

    what: str
    bytes: Mapping[str, int]
    fits: bool
    left: float
    """The share of a tile that is left."""


@dataclass(frozen=True)
class Overflow:
    """What a kernel needs on a machine. changes: those that were tried, the smallest one that fits first, then others
    that fit, then those that do not."""

    kernel: str
    target: str
    peaks: tuple[Peak, ...]
    changes: tuple[Change, ...]

    @property
    def fits(self) -> bool:
        """Whether all of it fits as it is."""
        return all(peak.fits for peak in self.peaks)

    def __str__(self) -> str:
        lines = [f"@{self.kernel} on {self.target}"]
        for peak in self.peaks:
            verdict = "fits" if peak.fits else f"overflows by {peak.bytes - peak.room:,} bytes"
            lines.append(
                f"{peak.space}: {verdict}: {peak.bytes:,} of {peak.room:,} bytes are needed at {peak.place}"
            )
            if not peak.fits:
                lines += [f"  {b.bytes:>9,}  {b.shape}, {b.what}, {b.place}" for b in peak.live]
        if not self.fits:
            lines.append("tried:" if self.changes else "tried: nothing is repeated, and no tile can be halved")
            for change in self.changes:
                needs = ", ".join(f"{n:,} bytes of {space}" for space, n in change.bytes.items())
                lines.append(f"  {'fits' if change.fits else 'does not fit'}: {change.what}: {needs}")
        return "\n".join(lines)


def overflows(module: ModuleOp, machine: Machine) -> list[Overflow]:
    """Of each kernel of a module what it needs of the on-chip memories, where results are written over operands that
    end, and nothing has double buffers: what the vendor's compiler falls back to. Raises FootprintError where sizes
    are open, or the module has no kernel."""
    funcs = [op for op in module.walk() if isinstance(op, FuncOp) and not op.is_declaration]
    if not funcs:
        raise FootprintError("there is no function in it")
    return [_overflow(func, machine) for func in funcs]


def _overflow(func: FuncOp, machine: Machine) -> Overflow:
    buffers = Buffers(func)
    if not buffers.found:
        raise FootprintError(f"@{func.sym_name.data} makes no tensor on chip: nothing of it can overflow")
    peaks = tuple(filter(None, (_peak(buffers, space, machine) for space in SPACES)))
    over = [peak.space for peak in peaks if not peak.fits]
    changes = sorted(_tried(func, buffers, over, machine), key=lambda c: (not c.fits, -c.left)) if over else []
    return Overflow(func.sym_name.data, machine.name, peaks, tuple(changes))


def _room(space: str, machine: Machine) -> int:
    """Bytes of an on-chip memory of a machine."""
    if space not in machine.spaces:
        raise FootprintError(f"{machine.name} has no {space}")
    return machine.spaces[space].bytes


def _most(buffers: Buffers, space: str, extents: Mapping[Dim, int]) -> tuple[int, int]:
    """(the bytes needed at one time, the number of the first op at which they are) of a memory."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        if buffer.space == space:
            need = buffer.bytes(extents)
            changes[buffer.first] = changes.get(buffer.first, 0) + need
            changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - need
    now = most = at = 0
    for number in sorted(changes):
        now += changes[number]
        if now > most:
            most, at = now, number
    return most, at


def _peak(buffers: Buffers, space: str, machine: Machine) -> Peak | None:
    most, at = _most(buffers, space, {})
    if not most:
        return None
    op = next(op for op, number in buffers.number.items() if number == at)
    live = [b for b in buffers if b.space == space and b.first <= at <= b.last]
    shown = sorted(live, key=lambda b: -b.bytes({}))
    return Peak(space, most, _room(space, machine), _placed(op), tuple(map(_shown, shown)))


def _shown(buffer: LiveBuffer) -> Live:
    shape = "x".join([*map(str, buffer.shape), dtype_name(buffer.element)])
    return Live(buffer.bytes({}), shape, buffer.what or "computed", _placed(buffer.op))


def _placed(op: Operation) -> str:
    place = source_of(op)
    return f"'{op.name}'" if place is None else f"'{op.name}', {place}"


def _tried(func: FuncOp, buffers: Buffers, over: Sequence[str], machine: Machine) -> Iterator[Change]:
    """Changes one by one: what is repeated not made but read on the fly, one axis halved until it fits, and both."""
    fly = Buffers(func, on_the_fly=True)
    repeats = [space for space in over if _most(fly, space, {})[0] < _most(buffers, space, {})[0]]
    if repeats:
        yield _change("broadcast on the fly what only elementwise ops read", fly, over, {}, machine, 1.0)
    for axis in dict.fromkeys(a for b in buffers if b.space in over for a in b.axes if a is not None):
        yield from _halved(buffers, axis, over, machine, "")
        if repeats:
            yield from _halved(fly, axis, over, machine, ", and broadcast on the fly")


def _halved(buffers: Buffers, axis: Dim, over: Sequence[str], machine: Machine, also: str) -> Iterator[Change]:
    """An axis halved until all fits, or it is as short as a fractal: the last of these."""
    shape = next((b.shape[b.axes.index(axis)] for b in buffers if axis in b.axes), 0)
    length, found = shape, None
    while length % 2 == 0 and length // 2 >= LEAST:
        length //= 2
        where = _where(buffers, axis)
        what = f"{length} instead of {shape} along {where}{also}"
        found = _change(what, buffers, over, {axis: length}, machine, length / shape)
        if found.fits:
            break
    if found is not None:
        yield found


def _where(buffers: Buffers, axis: Dim) -> str:
    first = next(b for b in buffers if axis in b.axes)
    return f"dimension {first.axes.index(axis)} of {_placed(first.op)}"


def _change(
    what: str, buffers: Buffers, over: Sequence[str], extents: Mapping[Dim, int], machine: Machine, left: float
) -> Change:
    needs = {space: _most(buffers, space, extents)[0] for space in SPACES}
    fits = all(need <= _room(space, machine) for space, need in needs.items() if need)
    return Change(what, {space: needs[space] for space in over}, fits, left)
