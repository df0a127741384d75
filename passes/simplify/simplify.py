"""graph-simplify: brings a graph into the forms that the lowering knows, for a target.

Each rewrite is a pattern with a name (`tilewright-opt --list-patterns`, passes/patterns.py). They run until none
matches. Then equal ops are merged, and the patterns run again on the ops that this touched. Patterns that depend on
what others make (`LATE`) run last, and all others behind them again. Dead ops are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, OpResult

from ...dialects.graph import FusionOp, GraphOp, HostOp
from ...dialects.open_sizes import assuming, example_sizes
from ...machine import Machine
from ..base import TargetPass
from ..patterns import GraphPattern, selected
from ..pins import parse_pins
from ..rewriting import Driver, walk_ops


@dataclass(frozen=True)
class GraphSimplifyPass(TargetPass):
    """Canonical forms for a target."""

    name = "graph-simplify"
    schedule: str = ""
    """Pinned choices: with any, sums of products are not cut here; where a tile is pinned for all kernels, reductions
    are cut as it says and not here."""
    only: tuple[str, ...] = ()
    """Names of patterns: with any, these alone run, and equal ops stay."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        pins = parse_pins(self.schedule)
        chosen = [p for p in selected(self.only) if p.allowed(pins)]
        simplify(module, machine, chosen, merge=not self.only)


def simplify(
    module: ModuleOp, machine: Machine, patterns: Iterable[type[GraphPattern]], merge: bool = True
) -> Counter[str]:
    """Runs patterns on the functions of a module, and merges equal ops. How often each pattern was applied."""
    made = [pattern(machine) for pattern in patterns]
    driver = Driver([pattern for pattern in made if not pattern.LATE])
    late = Driver([pattern for pattern in made if pattern.LATE])
    for func in module.ops:
        if not isinstance(func, FuncOp) or not func.body.blocks:
            continue
        again: Sequence[Operation] = list(walk_ops(func, _enters))
        while again:
            driver.run(again)
            again = _merge_all(func.body.block) if merge else ()
            if not again:
                before = late.applied.total()
                late.run(list(walk_ops(func, _enters)))
                again = list(walk_ops(func, _enters)) if late.applied.total() > before else ()
    return driver.applied + late.applied


def _enters(op: Operation) -> bool:
    """Whether to rewrite in an op's regions: what is fused has its form."""
    return not isinstance(op, FusionOp)


def _merge_all(block: Block) -> list[Operation]:
    """Merges equal ops in a block and the regions in it; the ops whose operands or uses changed."""
    touched: list[Operation] = []
    for op in block.ops:
        if op.regions and _enters(op):
            for region in op.regions:
                for inner in region.blocks:
                    touched += _merge_all(inner)
    return touched + merge_equal(block)


def merge_equal(block: Block) -> list[Operation]:
    """Ops of a block with equal operands and properties become one: layers that each build the same mask. Returns the
    ops whose operands or uses changed."""
    seen: dict[tuple, list[Operation]] = {}
    touched: list[Operation] = []
    for op in block.ops:
        if op.regions or not isinstance(op, GraphOp) or type(op) is HostOp:
            continue
        # types are compared where all else is equal, and of arrays the bytes are hashed: hashes of attributes would
        # take longer than all else
        given = [a.data.data if type(a) is DenseArrayBase else a for a in op.properties.values()]
        same = seen.setdefault((type(op), *op.operands, *given), [])
        first = next((other for other in same if _equal(op, other)), None)
        if first is None:
            same.append(op)
            continue
        touched += [use.operation for result in op.results for use in result.uses]
        touched += [value.op for value in op.operands if isinstance(value, OpResult)]
        for old, new in zip(op.results, first.results, strict=True):
            old.replace_all_uses_with(new)
        block.erase_op(op)
    return touched


def _equal(op: Operation, other: Operation) -> bool:
    """Whether two ops of one class and with the same operands give the same."""
    with assuming(example_sizes()) as assumed:  # what is equal for some sizes only stays apart
        same = op.properties == other.properties and op.result_types == other.result_types
    return same and not assumed.made
