"""From the first failure to its cause: the op, the tile, the source line, and a program of a few ops that shows it.

The values of the whole program are known up to the bad pass. So any few ops can be cut out with their inputs and sent
through the pipeline alone; what still fails is the cause.
"""

from __future__ import annotations

import re
import time
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation
from xdsl.traits import IsTerminator

from ..backends.interpreter.graph import main_of
from ..dialects import make_context, tile
from ..dialects.base import source_of, text
from ..dialects.graph import FusionOp
from ..dialects.graph.interface import shape_of
from ..dialects.npu.interface import gm
from ..dialects.npu.structure import KernelOp, LaunchOp
from ..dialects.text import parse_module
from ..passes.pipeline import level_of, remaining, run_stage, states_of
from .examine import ExamineOptions, Examiner, Failure
from .extract import extract_launch
from .pieces import FREE, Collector, Piece
from .places import tile_of
from .reduce import Reducer
from .results import Culprit, Reproducer, Tile
from .structure import structure
from .tags import values_of
from .trace import Trace, WrongValue

FUSED = "graph-fuse"
"""The stage whose module has one op for each kernel to come."""

SECONDS = 55.0
"""Processor time that a bisection may take; the smallest reproducer found by then is given."""

SEARCH = 10.0
"""The search for a reproducer goes on for at least so many seconds."""

SMALL_OPS, SMALL_BYTES, TRIALS = 8, 1 << 20, 30
"""A reproducer of more ops, or with more bytes of inputs, is reduced further with so many trials at most."""


class Bisector:
    """Explains the first failure of an examined program."""

    def __init__(self, examiner: Examiner, deadline: float):
        """deadline: on the clock of `time.process_time`, which other programs on the machine do not move."""
        self.examiner = examiner
        self.failure = examiner.failures[0]
        self.deadline = max(deadline, time.process_time() + SEARCH)
        self.tried: dict[Hashable, bool] = {}

    def culprit(self) -> Culprit:
        """What went wrong first, with a reproducer where one was found."""
        failure, finding = self.failure, self.failure.finding
        unit, trace, path = self._unit()
        piece, kept = self._search(unit, trace, path)
        reproducer = None
        blamed: Operation | None = None
        if piece is not None and kept:
            reproducer = self._reproducer(*self._smaller(*piece.module(kept)))
            blamed = piece.origin[kept[-1]]
        elif finding is not None and finding.launch is not None and failure.before is not None:
            reproducer = self._from_launch(failure, finding)
        launch = finding.launch if finding is not None else None
        kernel = self._kernel_name(finding)
        outside = finding is not None and isinstance(finding.op, ReturnOp) and failure.level != "graph"
        if finding is not None and (
            outside or finding.problem or self._miswired(finding) or self._untouched(finding)
        ):
            blamed = finding.op
        elif len(unit) == 1 and isinstance(unit[0], FREE):
            blamed = unit[0]
        if kernel is None and failure.kind == "hazard":
            named = re.search(r"@(\w+)", failure.problem)
            kernel = None if named is None else named[1]
        op = blamed or (unit[-1] if unit else None) or (finding.op if finding is not None else None)
        difference = finding.difference if finding is not None else None
        return Culprit(
            failure.stage,
            failure.kind,
            failure.level,
            op.name if op is not None else "the module",
            None if op is None else source_of(op),
            kernel,
            launch,
            self._tile(finding),
            difference.element if difference is not None else (),
            difference.got if difference is not None else None,
            difference.want if difference is not None else None,
            difference.count if difference is not None else 0,
            failure.problem,
            reproducer,
        )

    # -- where it is ---------------------------------------------------------------------------------------

    def _kernel_name(self, finding: WrongValue | None) -> str | None:
        if finding is None or finding.launch is None:
            return None
        op = finding.op
        return op.callee.root_reference.data if isinstance(op, LaunchOp | tile.LaunchOp) else None

    def _tile(self, finding: WrongValue | None) -> Tile | None:
        """The store that wrote the worst element of a kernel's output."""
        if (
            finding is None
            or finding.index < 0
            or not finding.difference.element
            or self.failure.after is None
        ):
            return None
        op = finding.op
        if not isinstance(op, LaunchOp | tile.LaunchOp):
            return None
        shape = (
            gm(op.written()[finding.index]).shape
            if isinstance(op, LaunchOp)
            else shape_of(op.results[finding.index])
        )
        name = op.callee.root_reference.data
        for kernel in self.failure.after.ops:
            if isinstance(kernel, KernelOp | tile.KernelOp) and text(kernel.sym_name) == name:
                flat = int(np.ravel_multi_index(finding.difference.element, shape))
                return tile_of(kernel, finding.index, flat)
        return None

    def _miswired(self, finding: WrongValue | None) -> bool:
        """Whether a launch reads other tensors than the fusion that it stands for, in another order."""
        fused = self.examiner.snapshots.get(FUSED)
        if finding is None or not isinstance(finding.op, tile.LaunchOp) or fused is None:
            return False
        origin = _by_tag(fused, finding.op.results[0].name_hint)
        if not isinstance(origin, FusionOp):
            return False
        here = [v.name_hint for v in finding.op.operands]
        there = [v.name_hint for v in origin.inputs]
        return here != there and sorted(map(str, here)) == sorted(map(str, there))

    def _untouched(self, finding: WrongValue) -> bool:
        """Whether the kernel of a launch went through the pass unchanged: then the program around it is wrong."""
        failure, name = self.failure, self._kernel_name(finding)
        if failure.before is None or failure.after is None or name is None:
            return False
        before, after = (
            [structure(k) for k in m.ops if isinstance(k, KernelOp) and text(k.sym_name) == name]
            for m in (failure.before, failure.after)
        )
        return bool(before) and before == after

    def _unit(self) -> tuple[list[Operation], Trace | None, Any]:
        """The graph ops that the failing value comes from, in order, and the run that has their values."""
        failure, finding = self.failure, self.failure.finding
        if finding is None or failure.stage == "frontend" or failure.before is None:
            return [], None, ()
        if failure.level == "graph":
            return self._graph_unit(failure.before, finding), failure.golden, finding.path
        fused, trace = self.examiner.snapshots.get(FUSED), self.examiner.goldens.get(FUSED)
        if fused is None or level_of(fused) != "graph":
            return [], None, ()
        if trace is None:
            trace = self.examiner.run_of(fused)
        if isinstance(finding.op, ReturnOp):
            ends = main_of(fused).body.block.last_op
            owners = [v.owner for v in ends.operands] if ends is not None else []
            return [o for o in dict.fromkeys(owners) if isinstance(o, Operation)], trace, ()
        launch = self._tile_launch(finding)
        found = next(filter(None, (_by_tag(fused, tag) for tag in _tags_behind(launch))), None)
        return ([] if found is None else [found]), trace, finding.path

    def _tile_launch(self, finding: WrongValue) -> tile.LaunchOp | None:
        if isinstance(finding.op, tile.LaunchOp):
            return finding.op
        golden = self.failure.golden
        if golden is None or finding.launch is None or finding.launch >= len(golden.launches):
            return None
        op = golden.launches[finding.launch].op
        return op if isinstance(op, tile.LaunchOp) else None

    def _graph_unit(self, before: ModuleOp, finding: WrongValue) -> list[Operation]:
        """Ops of the module before a graph pass that the op of the finding was made of."""
        op = finding.op
        if isinstance(op, FusionOp):
            tags = {v.name_hint for v in values_of(op)} | {r.name_hint for r in op.results}
            return [o for o in before.walk() if o.results and o.results[0].name_hint in tags]
        if isinstance(op, ReturnOp):
            last = main_of(before).body.block.last_op
            assert last is not None
            value = last.operands[finding.index]
            return [value.owner] if isinstance(value.owner, Operation) else []
        found = _by_tag(before, op.results[finding.index].name_hint)
        return [] if found is None else [found]

    # -- what still fails ----------------------------------------------------------------------------------

    def _search(
        self, unit: Sequence[Operation], trace: Trace | None, path: Any
    ) -> tuple[Piece | None, list[Operation]]:
        """The smallest set of ops found that fails alone in the same pass."""
        failure = self.failure
        if failure.kind != "wrong value":
            return self._without_values()
        if trace is None or not unit:
            return None, []
        collector = Collector(trace, self.examiner.cache)
        if all(isinstance(op, FREE) for op in unit):
            # a constant shows in what uses it
            trials = [[u.operation] for op in unit for r in op.results for u in r.uses]
        else:
            trials = [list(unit)]
        finding = failure.finding
        if finding is not None and (finding.problem or self._untouched(finding)):
            trials = []  # the program around the kernels is wrong: one op will not show it
        for ops in trials:
            piece = collector.piece(ops, path)
            kept = self._shrink(piece)
            if kept:
                return piece, kept
        # it takes more than one kernel: a window of the program that ends here
        block = unit[-1].parent
        assert block is not None
        everything = [op for op in block.ops if not op.has_trait(IsTerminator)]
        end = everything.index(unit[-1]) + 1
        width = 1
        while time.process_time() < self.deadline:
            window = everything[max(0, end - width) : min(len(everything), end + width - 1)]
            piece = collector.piece(window, path, flatten=False)
            if self._fails(piece, piece.choices):
                return self._finer(collector, piece, path)
            if width > 2 * len(everything):
                break
            width *= 2
        return None, []

    def _finer(self, collector: Collector, piece: Piece, path: Any) -> tuple[Piece, list[Operation]]:
        """Fewer kernels, then, where it fails without fusions too, fewer ops in them."""
        kept = self._without(piece, piece.choices)
        flat = collector.piece([piece.origin[op] for op in kept], path)
        if len(flat.choices) > len(kept) and self._fails(flat, flat.choices):
            return flat, self._without(flat, flat.choices)
        return piece, kept

    def _without_values(self) -> tuple[Piece | None, list[Operation]]:
        """For crashes and hazards: the first unit of the program that fails alone."""
        failure = self.failure
        module = self.examiner.snapshots.get(FUSED) if failure.level != "graph" else failure.before
        if failure.before is not None and level_of(failure.before) == "graph":
            module = failure.before
        if module is None or level_of(module) != "graph":
            return None, []
        collector = Collector(self._any_golden() or Trace(), self.examiner.cache)
        seen: set[Hashable] = set()
        for block in _blocks(module):
            for op in block.ops:
                if op.has_trait(IsTerminator) or not op.results or structure(op) in seen:
                    continue
                seen.add(structure(op))
                if time.process_time() > self.deadline:
                    return None, []
                piece = collector.piece([op], ())
                kept = self._shrink(piece)
                if kept:
                    return piece, kept
        ops = [op for op in main_of(module).body.block.ops if not op.has_trait(IsTerminator)]
        piece = collector.piece(ops, (), flatten=False)
        if not self._fails(piece, piece.choices):
            return None, []
        return piece, self._without(piece, piece.choices)

    def _any_golden(self) -> Trace | None:
        found = [t for t in self.examiner.goldens.values() if t.values]
        return found[-1] if found else None

    def _shrink(self, piece: Piece) -> list[Operation]:
        """The first op that fails alone; else the shortest failing beginning, without what it can do without."""
        ops = piece.choices
        for op in ops:
            if self._fails(piece, [op]):
                return [op]
        if len(ops) < 2 or not self._fails(piece, ops):
            return []
        low, high = 2, len(ops)
        while low < high:
            middle = (low + high) // 2
            if self._fails(piece, ops[:middle]):
                high = middle
            else:
                low = middle + 1
        return self._without(piece, ops[:high] if self._fails(piece, ops[:high]) else ops)

    def _without(self, piece: Piece, ops: list[Operation]) -> list[Operation]:
        """Leaves out ops, in halves, then in smaller parts, as long as the rest still fails."""
        step = max(len(ops) // 2, 1)
        while True:
            at = 0
            while at < len(ops) and time.process_time() < self.deadline:
                fewer = ops[:at] + ops[at + step :]
                if fewer and self._fails(piece, fewer):
                    ops = fewer
                else:
                    at += step
            if step == 1 or time.process_time() > self.deadline:
                return ops
            step //= 2

    def _fails(self, piece: Piece, keep: Sequence[Operation]) -> bool:
        module, inputs = piece.module(keep)
        key = (structure(module), tuple(id(x) for x in inputs))
        if key not in self.tried:
            self.tried[key] = self._still(module, inputs)
        return self.tried[key]

    def _still(self, module: ModuleOp, inputs: Sequence[np.ndarray]) -> bool:
        """Whether a module fails in the same pass in the same way."""
        failure, examiner = self.failure, self.examiner
        options = ExamineOptions(
            first=True, accumulated=False, only=failure.stage, values=failure.kind == "wrong value"
        )
        try:
            trial = Examiner(module, inputs, examiner.target, None, examiner.stages, options, examiner.cache)
            trial.run()
        except Exception:
            return False  # not a program of its own
        found = trial.failures[0] if trial.failures else None
        return found is not None and (found.stage, found.kind) == (failure.stage, failure.kind)

    # -- the reproducer ------------------------------------------------------------------------------------

    def _from_launch(self, failure: Failure, finding: WrongValue) -> Reproducer | None:
        """The one launch, at the level before the pass: for programs that start below the graph level."""
        assert failure.before is not None
        if failure.golden is None or finding.launch is None:
            return None
        if level_of(failure.before) == "graph" or finding.launch >= len(failure.golden.launches):
            return None
        module, inputs = extract_launch(failure.before, failure.golden.launches[finding.launch])
        return self._reproducer(module, inputs)

    def _smaller(self, module: ModuleOp, inputs: Sequence[Any]) -> tuple[ModuleOp, Sequence[Any]]:
        """A module that is still large goes through the reducer: fewer ops inside kernels, smaller tensors."""
        if count_ops(module) <= SMALL_OPS and sum(np.asarray(x).nbytes for x in inputs) <= SMALL_BYTES:
            return module, inputs

        def still(candidate: ModuleOp, values: Sequence[Any]) -> bool:
            return time.process_time() < self.deadline and self._still(candidate, values)

        try:
            found = Reducer(module, inputs, still, TRIALS).run()
        except ValueError:
            return module, inputs  # no time left
        return found.module, found.inputs

    def _reproducer(self, module: ModuleOp, inputs: Sequence[Any]) -> Reproducer | None:
        """The text of a module and of what the passes before the bad one make of it, if the text still fails."""
        arrays = tuple(np.asarray(x) for x in inputs)
        for value in values_of(module):
            value.name_hint = None
        source = str(module)
        again = parse_module(make_context(), source, "reproducer.mlir")
        if not self._still(again, arrays):
            return None
        before = again.clone()
        for stage in remaining(before, "npu", self.examiner.stages):
            if stage.name == self.failure.stage:
                break
            if states_of(before).issuperset(stage.requires):
                run_stage(stage, before, self.examiner.target)
        return Reproducer(source, str(before), arrays, count_ops(module))


def count_ops(module: ModuleOp) -> int:
    """Ops in functions and kernels, ends of blocks not counted."""
    tops = [op for op in module.ops if isinstance(op, FuncOp | KernelOp | tile.KernelOp)]
    return sum(op not in tops and not op.has_trait(IsTerminator) for top in tops for op in top.walk())


def _blocks(module: ModuleOp) -> list[Block]:
    """Blocks of functions, and of control flow in them."""
    found: list[Block] = []
    for op in module.walk():
        if isinstance(op, ModuleOp | FusionOp):
            continue
        found += [b for r in op.regions for b in r.blocks if not isinstance(b.parent_op(), FusionOp)]
    return found


def _tags_behind(launch: tile.LaunchOp | None) -> Iterator[str | None]:
    """The tags of what a launch makes, then of what launches make of that: a fusion that takes several launches gives
    what the last one of them makes."""
    pending = [] if launch is None else [launch]
    for op in pending:
        yield op.results[0].name_hint
        users = dict.fromkeys(use.operation for result in op.results for use in result.uses)
        pending += [user for user in users if isinstance(user, tile.LaunchOp) and user not in pending]


def _by_tag(module: ModuleOp, tag: str | None) -> Operation | None:
    """The op outside fusions whose result has a tag."""
    for block in _blocks(module):
        for op in block.ops:
            if any(r.name_hint == tag for r in op.results):
                return op
    return None
