"""Executes kernels of the tile level on NumPy arrays, with tiles as values.

An op on tiles computes what its instruction does, by the rules of `rules.py`, so that the npu level has the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects import tile as ops
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu.interface import fill_value, gm
from ...dialects.npu.legality import MIXED
from ...dialects.tile import TileOp, tile_type
from ...support.collector import collector_paused
from ..functions.loops import iterations
from ..functions.specs import Spec
from ..functions.turns import ORDER
from . import numbers
from .errors import OutOfBounds
from .instructions import DeviceBox, GatheredRows, box_of
from .kernels import DeviceArray, arrays_of, blank_of
from .places import evaluated
from .reductions import scalar
from .rules import RULES, drained
from .values import PlannedKernel


@dataclass
class TileCore:
    """A core at work. env: the values of its indices; tiles: what each tile holds; own: of a mixed section, the tiles
    of each vector core; denormals: whether numbers may be there that XLA takes for zeros."""

    arrays: Sequence[DeviceArray]
    env: list[int]
    tiles: list[Any]
    own: list[list[Any]]
    denormals: bool


Node = Callable[[TileCore], None]
"""What runs one op on a core."""


@dataclass
class _Section:
    """The program of one kind of core. unit: the number of the index that says which core it is."""

    op: ops.SectionOp
    unit: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def is_mixed(self) -> bool:
        return text(self.op.core) == MIXED


class TilePlan(PlannedKernel):
    """A kernel of the tile level, ready to run."""

    def __init__(self, kernel: ops.KernelOp) -> None:
        """Raises VerifyException for what is no op of a kernel."""
        super().__init__(to_ints(kernel.grid), kernel.body.block.args)
        self.outputs, self.workspaces = integer(kernel.outputs), integer(kernel.workspaces)
        self.numbers: dict[SSAValue, int] = {}
        """The numbers of tiles in a core's list of them."""
        found = list[_Section]()
        self._section: _Section
        for op in kernel.body.block.ops:
            if isinstance(op, ops.SectionOp):
                self._section = _Section(op, self.index(op.body.block.args[0]))
                found.append(self._section)
                self._fill(op.body.block, self._section.nodes)
            else:
                self._name(op)
        self.sections = sorted(found, key=lambda s: ORDER[text(s.op.core)])

    def tile(self, value: SSAValue) -> int:
        """The number of a tile in a core's list, which is given where it has none."""
        return self.numbers.setdefault(value, len(self.numbers))

    def run(self, arrays: Sequence[DeviceArray]) -> None:
        """Runs all cores, one after the other, on the tensors of the kernel's arguments."""
        env, denormals = [0] * len(self.indices), any(numbers.has_denormals(a.elements) for a in arrays)
        with np.errstate(all="ignore"), collector_paused():
            for point in itertools.product(*map(range, self.grid)):
                env[: len(point)] = point
                for section in self.sections:
                    denormals = self._cores(section, arrays, env, denormals)

    def _cores(
        self, section: _Section, arrays: Sequence[DeviceArray], env: list[int], denormals: bool
    ) -> bool:
        """Runs a section on each of its units; gives whether denormal numbers may be there then."""
        units = integer(section.op.units)
        count = len(self.numbers)
        for unit in range(1 if section.is_mixed else units):
            env[section.unit] = unit
            own = [[None] * count for _ in range(units if section.is_mixed else 0)]
            core = TileCore(arrays, env, [None] * count, own, denormals)
            for node in section.nodes:
                node(core)
            denormals = core.denormals
        return denormals

    # -- ops as nodes --------------------------------------------------------------------------------------

    def _name(self, op: Operation) -> None:
        """Ops that only name things."""
        if not self.names(op) and not isinstance(op, (ops.BarrierOp, scf.YieldOp)):
            raise VerifyException(f"{describe(op)} is not an op of a kernel")

    def _fill(self, block: Block, nodes: list[Node]) -> None:
        for op in block.ops:
            made = self._node(op)
            if made is None:
                self._name(op)
            elif self._section.is_mixed and not isinstance(op, scf.ForOp) and _on_vector_core(op):
                nodes.append(self._on_each(made))
            else:
                nodes.append(made)

    def _on_each(self, node: Node) -> Node:
        """A node that each vector core of a mixed section runs on its own tiles."""
        unit = self._section.unit

        def run(core: TileCore) -> None:
            shared = core.tiles
            for i, own in enumerate(core.own):
                core.env[unit], core.tiles = i, own
                node(core)
            core.tiles = shared

        return run

    def _node(self, op: Operation) -> Node | None:
        rule = _NODES.get(type(op))
        if rule is not None:
            return rule(self, op)
        if isinstance(op, TileOp) and op.INSTRUCTION is not None and not isinstance(op, ops.BarrierOp):
            return self._compute(op)
        return None

    def _compute(self, op: TileOp) -> Node:
        instruction = op.INSTRUCTION
        assert instruction is not None
        rule = RULES.of(instruction)
        if rule is None:
            raise VerifyException(f"{describe(op)} is not an op of a kernel")
        compute, rows, remakes = self.computing(op, rule)
        sources, made = [self.tile(v) for v in op.main_operands()], [self.tile(v) for v in op.results]
        specs = [Spec.of(v) for v in op.results]

        def run(core: TileCore) -> None:
            tiles = core.tiles
            try:
                results = compute(evaluated(rows, core.env), [tiles[i] for i in sources], core.denormals)
            except OutOfBounds:
                results = [blank_of(spec.dtype) for spec in specs]
            for i, spec, x in zip(made, specs, results, strict=True):
                tiles[i] = _as_tile(x, spec)
            if remakes and not core.denormals:
                core.denormals = any(numbers.has_denormals(tiles[i]) for i in made)

        return run

    def _load(self, op: ops.LoadOp) -> Node:
        sizes, steps = box_of(op, self.number)
        box, rows, out = DeviceBox.of(op.source, self, sizes, steps), self.rows(op), Spec.of(op.result)
        fill, at = scalar(fill_value(op.properties.get("fill")), box.dtype), self.tile(op.result)

        def run(core: TileCore) -> None:
            part = box.part(evaluated(rows, core.env))
            x = core.arrays[box.tensor].window(op, box, part)
            if part[3] is None:
                x = x.copy()
            else:
                whole = np.full(sizes, fill)
                whole[part[3]] = x
                x = whole
            x = x.reshape(out.shape)
            core.tiles[at] = x if x.dtype == out.dtype else numbers.convert(x, out.dtype)

        return run

    def _store(self, op: ops.StoreOp) -> Node:
        sizes, steps = box_of(op, self.number)
        box, rows, source = DeviceBox.of(op.dest, self, sizes, steps), self.rows(op), self.tile(op.source)
        words = None if op.scales is None else self.tile(op.scales)
        drain, same = drained(op, box.dtype), Spec.of(op.source).dtype == box.dtype
        plain = same and words is None and not {"relu", "factor"} & op.properties.keys()

        def run(core: TileCore) -> None:
            part = box.part(evaluated(rows, core.env))
            x = core.tiles[source]
            if not plain:
                x = drain(x, None if words is None else core.tiles[words])
            x = x.reshape(sizes)
            target = core.arrays[box.tensor].window(op, box, part)
            if target.size:
                target[...] = (x if part[3] is None else x[part[3]]).reshape(target.shape)

        return run

    def _gather(self, op: ops.LoadIndirectOp) -> Node:
        sizes = to_ints(op.sizes)
        box, index, out = (
            DeviceBox.of(op.source, self, sizes, (1,) * len(sizes)),
            self.tile(op.index),
            Spec.of(op.result),
        )
        gathered, at = GatheredRows.of(box), self.tile(op.result)

        def run(core: TileCore) -> None:
            whole = core.arrays[box.tensor].elements_as(box.dtype)
            x = whole[gathered.positions(core.tiles[index], whole.size)]
            core.tiles[at] = x.reshape(out.shape) if x.size else np.zeros(out.shape, out.dtype)

        return run

    def _scalar(self, op: ops.ScalarOp) -> Node:
        rows = self.rows(op)
        ones = (1,) * len(rows)
        box, at = DeviceBox.of(op.source, self, ones, ones), self.index(op.result)
        low, high = integer(op.low), integer(op.high)

        def run(core: TileCore) -> None:
            found = core.arrays[box.tensor].window(op, box, box.part(evaluated(rows, core.env)))
            core.env[at] = max(low, min(int(found.reshape(())) if found.size else 0, high))

        return run

    def _zero(self, op: ops.ZeroOp) -> Node:
        out, at = Spec.of(op.result), self.tile(op.result)
        blank = np.zeros(out.shape, out.dtype)

        def run(core: TileCore) -> None:
            core.tiles[at] = blank

        return run

    def _loop(self, op: scf.ForOp) -> Node:
        index, *arguments = op.body.block.args
        places, at = iterations(op, self.known), self.index(index)
        inside: list[Node] = []
        self._fill(op.body.block, inside)
        last = op.body.block.last_op
        begin = self._moves(op.iter_args, arguments)
        onward = self._moves(last.operands if last is not None else (), arguments)
        finish = self._moves(arguments, op.results)

        def run(core: TileCore) -> None:
            begin(core)
            for place in places:
                core.env[at] = place
                for node in inside:
                    node(core)
                onward(core)
            finish(core)

        return run

    def _moves(self, sources: Sequence[SSAValue], targets: Sequence[SSAValue]) -> Node:
        """Gives tiles other names, all at once; on each vector core those that lie there."""
        apart = [self._section.is_mixed and tile_type(v).space == "ub" for v in sources]
        pairs = list(zip(map(self.tile, sources), map(self.tile, targets), apart, strict=True))

        def run(core: TileCore) -> None:
            for lists, is_own in (([core.tiles], False), (core.own, True)):
                for tiles in lists:
                    moved = [(target, tiles[source]) for source, target, own in pairs if own is is_own]
                    for target, x in moved:
                        tiles[target] = x

        return run


def _as_tile(x: np.ndarray, out: Spec) -> np.ndarray:
    """What an instruction computes, in the shape and dtype of its tile."""
    if x.shape != out.shape:
        x = x.reshape(out.shape) if x.size == prod(out.shape) else np.broadcast_to(x, out.shape)
    return x if x.dtype == out.dtype else x.astype(out.dtype)


def _on_vector_core(op: Operation) -> bool:
    """Whether an op of a mixed section works on tiles of the vector cores."""
    return any(isinstance(v.type, ops.TileType) and v.type.space == "ub" for v in (*op.operands, *op.results))


_NODES: dict[type[Operation], Callable[[TilePlan, Any], Node]] = {
    scf.ForOp: TilePlan._loop,
    ops.LoadOp: TilePlan._load,
    ops.StoreOp: TilePlan._store,
    ops.LoadIndirectOp: TilePlan._gather,
    ops.ScalarOp: TilePlan._scalar,
    ops.ZeroOp: TilePlan._zero,
}
"""Ops that no instruction's rule computes."""


def run_kernel(
    plan: TilePlan, arrays: Sequence[Any], inits: Sequence[int], shapes: Sequence[tuple[int, ...]]
) -> list[np.ndarray]:
    """A kernel's outputs, in the `shapes` given. `inits[i]`: the number of the array that output i starts as, or -1 for
    zeros; the kernel's inputs are the others, in order."""
    starts = [None if i < 0 else arrays[i] for i in inits]
    given: Iterator[Any] = itertools.chain(
        (x for i, x in enumerate(arrays) if i not in inits), starts, itertools.repeat(None, plan.workspaces)
    )
    first = len(plan.arguments) - plan.outputs - plan.workspaces
    kinds = [(gm(v).shape, numpy_dtype(gm(v).element)) for v in plan.arguments]
    held = arrays_of(
        (shape, dtype, x, i >= first) for i, ((shape, dtype), x) in enumerate(zip(kinds, given, strict=True))
    )
    plan.run(held)
    return [a.elements.reshape(shape) for a, shape in zip(held[first:], shapes, strict=False)]
