"""Copies within device memory that a program does without, although its values are new tensors at the graph level.

    update  a launch writes a part of a tensor and leaves the rest of it where it is
    state   the next value of a loop's tensor is made where the last one was
    view    a reshaped tensor is the one that it was made of

Each counts once for each time that it runs, with the bytes of the whole tensor, which a copy would move. A launch that
updates a tensor that was copied for it avoids none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from ..dialects.base import integer, text
from ..dialects.module import find_main
from ..dialects.npu import ViewOp, gm, structure, whole_tensor
from ..dialects.npu.host_program import HostVisitor
from ..dialects.npu.streams import Command


@dataclass(frozen=True)
class AvoidedCopies:
    """Copies that a run of a program does without, and the bytes that they would copy."""

    updates: int = 0
    update_bytes: int = 0
    states: int = 0
    state_bytes: int = 0
    views: int = 0
    view_bytes: int = 0

    @property
    def copies(self) -> int:
        """All of them."""
        return self.updates + self.states + self.views

    @property
    def bytes(self) -> int:
        """The bytes of all of them."""
        return self.update_bytes + self.state_bytes + self.view_bytes

    def __str__(self) -> str:
        """`24 updates (18.9 MB), 12 views (0.1 MB)`: what there is none of is left out."""
        rows = (
            (self.updates, self.update_bytes, "update in place", "updates in place"),
            (self.states, self.state_bytes, "value of a loop", "values of loops"),
            (self.views, self.view_bytes, "view", "views"),
        )
        return ", ".join(
            f"{n:,} {one if n == 1 else more} ({bytes_ / 1e6:,.2f} MB)" for n, bytes_, one, more in rows if n
        )

    def __add__(self, other: AvoidedCopies) -> AvoidedCopies:
        return AvoidedCopies(*(a + b for a, b in zip(self._numbers(), other._numbers(), strict=True)))

    def __mul__(self, times: int) -> AvoidedCopies:
        return AvoidedCopies(*(a * times for a in self._numbers()))

    def _numbers(self) -> tuple[int, ...]:
        return (
            self.updates,
            self.update_bytes,
            self.states,
            self.state_bytes,
            self.views,
            self.view_bytes,
        )


NONE = AvoidedCopies()


def avoided_copies(module: ModuleOp) -> AvoidedCopies:
    """What a run of a module at the npu level avoids. A loop whose trip count nobody knows counts once, and of several
    branches the one that avoids most."""
    main = find_main(module)
    if main is None:
        return NONE
    functions = {text(op.sym_name): op for op in module.ops if isinstance(op, FuncOp) and op.body.blocks}
    return _Avoided(functions).block(main.body.block)


class _Avoided(HostVisitor[AvoidedCopies]):
    """Walks a host program. `copied`: tensors that were copied to and not updated since."""

    def __init__(self, functions: dict[str, FuncOp]) -> None:
        self._functions = functions
        self._known: dict[str, AvoidedCopies] = {}
        self._copied: set[SSAValue] = set()

    def block(self, block: Block) -> AvoidedCopies:
        """What one pass through a block avoids."""
        return sum(map(self.visit, block.ops), NONE)

    def passive(self, op: Operation) -> AvoidedCopies:
        return NONE

    def foreign(self, op: Operation) -> AvoidedCopies:
        return NONE

    def command(self, op: Command) -> AvoidedCopies:
        return NONE

    def scalars(self, op: structure.ScalarsOp) -> AvoidedCopies:
        return NONE

    def copy(self, op: structure.CopyOp) -> AvoidedCopies:
        self._copied.add(whole_tensor(op.dest))
        return NONE

    def launch(self, op: structure.LaunchOp) -> AvoidedCopies:
        found = NONE
        for value in map(whole_tensor, op.updated()):
            if value in self._copied:
                self._copied.discard(value)
            else:
                found += AvoidedCopies(updates=1, update_bytes=gm(value).bytes)
        return found

    def view(self, op: ViewOp) -> AvoidedCopies:
        read = any(not isinstance(use.operation, ViewOp) for use in op.result.uses)
        return AvoidedCopies(views=1, view_bytes=gm(op.result).bytes) if read else NONE

    def call(self, op: structure.CallOp) -> AvoidedCopies:
        name = op.callee.root_reference.data
        if name not in self._known:
            self._known[name] = self.block(self._functions[name].body.block)
        found = self._known[name]
        for value in map(whole_tensor, op.updated()):
            if value in self._copied:  # for the update in the function, which thus avoids nothing
                self._copied.discard(value)
                found += AvoidedCopies(updates=-1, update_bytes=-gm(value).bytes)
        return found

    def loop(self, op: structure.LoopOp) -> AvoidedCopies:
        trips = 1 if op.trip_count is None else integer(op.trip_count)
        inside = self.block(op.body.block) + self._states(op)
        if op.trip_count is None:
            inside += self.block(op.condition.block)
        return inside * trips

    def _states(self, op: structure.LoopOp) -> AvoidedCopies:
        """The tensors of a loop's state whose next value a launch of its body writes over the last, as a whole."""
        block = op.body.block
        names = op.state_args(block) or op.state
        written = {whole_tensor(v) for inner in block.ops for v in _written_as_wholes(inner)}
        last = block.last_op
        ends = () if last is None else last.operands
        stay = [a for a, v in zip(names, ends, strict=False) if whole_tensor(v) is a and a in written]
        return AvoidedCopies(states=len(stay), state_bytes=sum(gm(a).bytes for a in stay))

    def branch(self, op: structure.BranchOp) -> AvoidedCopies:
        return max((self.block(way.block) for way in op.branches), key=lambda a: a.bytes, default=NONE)


def _written_as_wholes(op: Operation) -> Iterable[SSAValue]:
    """The tensors that a command of a loop's body writes, but for those that it updates, which count as such."""
    if not isinstance(op, structure.LaunchOp):
        return op.writes() if isinstance(op, Command) else ()
    updated = set(op.updated())
    return [v for v in op.written() if v not in updated]
