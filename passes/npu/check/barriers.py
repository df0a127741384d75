"""Barriers between the stages of a launch: kernels that none parts touch no bytes that the other writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.func import FuncOp

from ....dialects.npu.structure import LaunchOp
from .finding import Bytes, Finding
from .order import TensorPlaces, frames_of


def check_barriers(callers_first: Sequence[FuncOp]) -> list[Finding]:
    """All findings of the functions of a program."""
    frames = frames_of(callers_first)
    out: list[Finding] = []
    for func in callers_first:
        free = [op for op in func.walk() if isinstance(op, LaunchOp) and op.nowait is not None]
        if free:
            memory = TensorPlaces(func, frames)
            out += [finding for op in free for finding in _races(op, memory)]
    return out


def _races(op: LaunchOp, memory: TensorPlaces) -> Iterator[Finding]:
    for before in op.abreast():
        met = memory.meeting(before, op)
        if met is not None:
            place, wrote, writes = met
            does = ("writes" if wrote else "reads", "write" if writes else "read")
            where = memory.ranges.get(place)
            what = f"{{first}} {does[0]} device memory that {{second}} may {does[1]} too early: it waits for no barrier"
            yield Finding("barrier-race", what, before, op, None if where is None else Bytes("gm", *where))
