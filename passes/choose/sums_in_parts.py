"""Products whose sums are cut into parts, as the fusions that they become: one of the parts, and those behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, OpResult

from ...dialects.base import describe, text
from ...dialects.graph import FusionOp
from ...dialects.graph.schedules import Schedule, parts_of_sums, schedule_attr, stream_of, to_schedules
from ...machine import Machine
from ..errors import PassError
from ..order.launch_order import base
from ..reasons import Reason, asked_reasons
from ..rewriting import inline_for
from .launches import launches_of
from .stream import cut_fusion

IN_PARTS = "sums in parts are added up once all of them are there"
"""Why the pieces of a product are kernels of their own."""

PART_OF = "part_of"
"""The attribute of a fusion that says of whose split sums it is a part: what its kernel is named after."""


def give_pieces(fusion: FusionOp, block: Block, left: list[Schedule], machine: Machine) -> list[FusionOp]:
    """Gives the fusions of a block, which do what one does, the schedules that are left for them. Raises PassError
    where they are too few or too many."""
    many_schedules = len(to_schedules(fusion.schedule))
    fusions = [op for op in block.ops if isinstance(op, FusionOp)]
    for op in fusions:
        many = len(launches_of(op, machine))
        if not left[:many]:
            raise PassError(f"{describe(fusion)} has {many_schedules} schedules, and its parts need more")
        op.schedule, left = schedule_attr(left[:many]), left[many:]
    if left:
        raise PassError(f"{describe(fusion)} has {many_schedules} schedules, and its parts need fewer")
    return fusions


def named_in(piece: FusionOp, stem: str) -> str:
    """What the kernel of a piece is named after besides what it does; nothing where that is its product."""
    return "" if text(piece.kind) in ("cube", "mix") else f"{stem}_part"


def part_named(fusion: FusionOp) -> str:
    """What `PART_OF` says of a fusion."""
    named = fusion.attributes.get(PART_OF)
    return named.data if isinstance(named, StringAttr) else ""


def put_pieces(fusion: FusionOp, machine: Machine) -> Sequence[FusionOp]:
    """Puts the pieces of a fusion whose sums are cut, as its schedules say, in its place."""
    schedules, stem = to_schedules(fusion.schedule), launches_of(fusion, machine)[0].stem
    parts = parts_of_sums(schedules)
    assert parts is not None
    block = cut_fusion(fusion, stem, parts, stream_of(schedules), machine)
    pieces = give_pieces(fusion, block, [s.whole() for s in schedules], machine)
    for piece in pieces:
        if name := named_in(piece, stem):
            piece.attributes[PART_OF] = StringAttr(name)
    inline_for(fusion, block, fusion.inputs)
    _say_of_pieces(fusion, pieces)
    fusion.detach()
    fusion.erase()
    return pieces


def _say_of_pieces(fusion: FusionOp, pieces: Sequence[FusionOp]) -> None:
    """Lets what was said of a fusion be said of those of its pieces that read or make the value. Nothing is done where
    nobody asks for reasons."""
    reasons = asked_reasons()
    if reasons is None:
        return
    for reason in [r for r in reasons if r.kind == "not fused" and fusion in r.ops]:
        maker, reader = reason.ops
        if reader is fusion:
            readers = [p for p in pieces for m, number in _made(p) if m is maker and number == reason.result]
            reasons += [replace(reason, ops=(maker, piece)) for piece in dict.fromkeys(readers)]
        elif isinstance(reader, FusionOp):
            made = [(m, number) for m, number in _made(reader) if m in pieces]
            reasons += [replace(reason, ops=(m, reader), result=number) for m, number in dict.fromkeys(made)]
    inner = dict.fromkeys((m, p, number) for p in pieces for m, number in _made(p) if m in pieces)
    reasons += [Reason("not fused", (m, p), IN_PARTS, number) for m, p, number in inner]


def _made(fusion: FusionOp) -> Iterator[tuple[FusionOp, int]]:
    """The fusions that make what one reads, and which of their results it is."""
    for value in fusion.inputs:
        found = base(value)
        if isinstance(found, OpResult) and isinstance(found.op, FusionOp):
            yield found.op, found.index
