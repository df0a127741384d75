"""A launch that gives its kernel one tensor to read and to write: no element is stored before all loads of it are over.

A *step* is one core at one round of the loops around a load and a store. Three things together are enough:

* both move alike from step to step, and a step's loads stay within the part of the tensor that its stores span;
* the parts of two steps do not meet: so loads meet stores of their own step only;
* within a step the load comes first, and the flags order the two (clocks.py follows one tensor in place of two).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from ....dialects.affine import Expr
from .clocks import Clocks
from .finding import Finding
from .model import CheckedKernel, CheckedNode, TensorAccess
from .strides import core_variables

WHAT = "{first} gives its kernel one tensor to read and to write, where {second} may store what is still to be loaded"


class InPlace:
    """What is known of a kernel's pairs of tensor arguments (read, written), by number."""

    def __init__(self, kernel: CheckedKernel) -> None:
        self.kernel = kernel
        self._faults: dict[tuple[int, int], Operation | None] = {}

    def fault(self, read: int, written: int, launch: Operation) -> Finding | None:
        """The finding for a launch in which both are one tensor; None where that is safe."""
        key = (read, written)
        if key not in self._faults:
            self._faults[key] = self._early(read, written)
        store = self._faults[key]
        return None if store is None else Finding("in-place", WHAT, launch, store, kernel=self.kernel.name)

    def _early(self, read: int, written: int) -> Operation | None:
        """A store that may come too early."""
        loads = [t for t in self.kernel.transfers if t.tensor == read and not t.write]
        stores = [t for t in self.kernel.transfers if t.tensor == written and t.write]
        others = [t for t in self.kernel.transfers if t.tensor == written and not t.write]
        for store in stores:
            if others or not all(self._own_step(load, store) for load in loads):
                return store.op
        if loads and any(self._disordered(read, written, start) for start in self.kernel.starts()):
            return stores[0].op
        return None

    def _own_step(self, load: TensorAccess, store: TensorAccess) -> bool:
        """Whether the load takes only what its own step stores, later in program order."""
        if (
            load.box is None
            or store.box is None
            or load.view != store.view
            or load.section is not store.section
        ):
            return False
        if not store.view.distinct or any(s != 1 for s in (*load.box.steps, *store.box.steps)):
            return False
        shared = [a for a, b in zip(load.loops, store.loops, strict=False) if a == b]
        if tuple(shared) != load.loops[: len(shared)] or not first(self._nodes(store), load.op, store.op):
            return False
        moving = {*core_variables(self.kernel, store), *shared}
        still = {v for v in moving if self.kernel.counts[v] > 1}
        dims = (load.box.offsets, store.box.offsets, load.box.counts, store.box.counts)
        for loaded, stored, n, m in zip(*dims, strict=True):
            if self.kernel.is_unknown(loaded) or self.kernel.is_unknown(stored):
                return False
            if loaded.only(moving) != stored.only(moving):
                return False
            begin, end = self._span(loaded, moving, n)
            low, high = self._span(stored, moving, m)
            if begin < low or end > high or not self._apart(stored.only(moving), high - low):
                return False
            still -= {v for v, _ in stored.terms}
        return not still

    def _span(self, offset: Expr[int], moving: set[int], count: int) -> tuple[int, int]:
        low, high = offset.without(moving).reach(self.kernel.counts)
        return low, high + count

    def _apart(self, moves: Expr[int], reach: int) -> bool:
        """Whether parts of `reach` positions do not meet: the digits of a number, as in `affine.cover`."""
        digits = [(abs(c), self.kernel.counts[v]) for v, c in moves.terms if self.kernel.counts[v] > 1]
        for weight, count in sorted(digits):
            if weight < reach:
                return False
            reach += weight * (count - 1)
        return True

    def _nodes(self, transfer: TensorAccess) -> Sequence[CheckedNode]:
        return transfer.section.nodes

    def _disordered(self, read: int, written: int, start: dict[int, int]) -> bool:
        self.kernel.counts[self.kernel.unit] = 1
        clocks = Clocks(self.kernel, frozenset({written}), start=start, same={read: written})
        return clocks.unsafe()


def first(nodes: Sequence[CheckedNode], load: Operation, store: Operation) -> bool:
    """Whether the walk of a section meets one op before the other."""
    for node in nodes:
        if node.op is load:
            return True
        if node.op is store:
            return False
        if node.body:
            inside = [n.op for n in flat(node.body)]
            if load in inside or store in inside:
                return first(node.body, load, store) if load in inside else False
    return False


def flat(nodes: Sequence[CheckedNode]) -> list[CheckedNode]:
    """Nodes and those inside loops, in program order."""
    out = []
    for node in nodes:
        out += [node, *flat(node.body)]
    return out
