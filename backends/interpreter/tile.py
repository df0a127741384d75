"""Executes the tile level: kernels over tiles as values, and the graph ops that remain around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects import tile as ops
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import numpy_dtype, shape_in
from ...dialects.npu.interface import gm
from ...dialects.npu.legality import MIXED
from ...dialects.npu.types import GmType
from ...dialects.tile import TileOp, tile_type
from ...machine import Machine
from ..functions import values
from ..functions.compiling import row_major, xla_jit
from ..functions.scope import Offset
from ..functions.specs import Spec
from .graph import GraphRunner, main_of
from .grid import GridWalker
from .instructions import RULES
from .launch import ZERO
from .liveness import bounds
from .views import View, realise


class TileKernel(GridWalker):
    """A kernel of the tile level; `tiles` holds the value of each tile (see `values.raw`)."""

    SECTION: ClassVar[type[Any]] = ops.SectionOp
    VIEW: ClassVar[type[Any]] = ops.ViewOp

    def __init__(self, kernel: ops.KernelOp, zero: Array):
        super().__init__(kernel, zero)
        self.tiles: dict[SSAValue, Array] = {}
        self.apart: tuple[SSAValue, list[dict[SSAValue, Array]]] | None = None
        """In a mixed section: the number of a vector core, and the tiles of each of them."""

    def section(self, op: ops.SectionOp) -> None:
        self.block(op.body.block)

    def units(self, section: ops.SectionOp) -> None:
        if text(section.core) != MIXED:
            super().units(section)
            return
        self.apart = section.body.block.args[0], [{} for _ in range(integer(section.units))]
        self.section(section)
        self.apart = None

    def block(self, block: Block) -> None:
        for op in block.ops:
            if self.apart is None or isinstance(op, scf.ForOp) or not _on_vector_core(op):
                self.execute(op)
                continue
            number, cores = self.apart
            shared = self.tiles
            for i, own in enumerate(cores):
                self.scope.index[number], self.tiles = Offset.known(i), own
                self.execute(op)
            self.tiles = shared

    def _places(self, values_: Sequence[SSAValue]) -> Iterator[tuple[dict[SSAValue, Array], SSAValue]]:
        """Where each tile is kept: once, or for each vector core where it lies on those."""
        for v in values_:
            if self.apart is not None and tile_type(v).space == "ub":
                yield from ((own, v) for own in self.apart[1])
            else:
                yield self.tiles, v

    def _held(self, values_: Sequence[SSAValue]) -> list[Array]:
        """The tiles that a loop carries."""
        return [tiles[v] for tiles, v in self._places(values_)]

    def _hold(self, values_: Sequence[SSAValue], state: Sequence[Array]) -> None:
        for (tiles, v), array in zip(self._places(values_), state, strict=True):
            tiles[v] = array

    def stored_to(self, op: Operation) -> Sequence[SSAValue]:
        return [op.dest] if isinstance(op, ops.StoreOp) else ()

    def execute(self, op: Operation) -> None:
        rule = EXECUTE.get(type(op))
        if rule is not None:
            rule(self, op)
        elif isinstance(op, TileOp) and op.INSTRUCTION and (known := RULES.of(op.INSTRUCTION)) is not None:
            sources = [self.get(v) for v in op.main_operands()]
            results = known(op, self.scope, sources, [Spec.of(v) for v in op.results])
            for v, x in zip(op.results, results, strict=True):
                self.put(v, x)
        elif not isinstance(op, (ops.ViewOp, ops.BarrierOp, scf.YieldOp)):
            raise VerifyException(f"{describe(op)} is not an op of a kernel")

    def get(self, tile: SSAValue) -> Array:
        return values.cooked(self.tiles[tile], numpy_dtype(tile_type(tile).element))

    def put(self, tile: SSAValue, x: Array) -> None:
        self.tiles[tile] = values.raw(values.convert(x, numpy_dtype(tile_type(tile).element)))

    def loop(self, op: scf.ForOp) -> None:
        first, step, trips = bounds(op)
        index, *arguments = op.body.block.args

        def iteration(i: Any, state: Sequence[Array]) -> Sequence[Array]:
            self.scope.index[index] = (
                Offset.known(first) if trips == 1 else Offset(i, 0, trips - 1).scaled(step, first)
            )
            self._hold(arguments, state)
            self.block(op.body.block)
            last = op.body.block.last_op
            return self._held(last.operands) if last is not None else []

        state: Sequence[Array] = self._held(op.iter_args)
        if trips == 1:
            state = iteration(0, state)
        elif trips:
            state = self.repeat(0, trips, iteration, op, state)
        self._hold(op.results, state)

    def load(self, op: ops.LoadOp) -> None:
        self.put(op.result, self.load_box(op, op.source, tile_type(op.result).shape))

    def store(self, op: ops.StoreOp) -> None:
        words = None if op.scales is None else self.get(op.scales)
        self.store_box(op, self.get(op.source), op.dest, words)

    def load_indirect(self, op: ops.LoadIndirectOp) -> None:
        self.put(op.result, self.load_boxes(op, self.get(op.index), tile_type(op.result).shape))

    def zero(self, op: ops.ZeroOp) -> None:
        type_ = tile_type(op.result)
        self.put(op.result, lax.full(type_.shape, np.zeros((), numpy_dtype(type_.element))))


def _on_vector_core(op: Operation) -> bool:
    """Whether an op of a mixed section works on tiles of the vector cores."""
    return any(isinstance(v.type, ops.TileType) and v.type.space == "ub" for v in (*op.operands, *op.results))


EXECUTE: dict[type[Operation], Callable[[TileKernel, Any], None]] = {
    arith.ConstantOp: TileKernel.constant,
    scf.ForOp: TileKernel.loop,
    ops.LoadOp: TileKernel.load,
    ops.StoreOp: TileKernel.store,
    ops.LoadIndirectOp: TileKernel.load_indirect,
    ops.ScalarOp: TileKernel.load_scalar,
    ops.ZeroOp: TileKernel.zero,
}


class TileProgram:
    """The kernels of a module, each compiled once for the tensors it is launched on."""

    def __init__(self, module: ModuleOp):
        self.kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, ops.KernelOp)}
        self.compiled: dict[tuple[Any, ...], Any] = {}
        self.main = main_of(module)

    def launch(self, op: ops.LaunchOp, *arguments: Array) -> list[Array]:
        name = op.callee.root_reference.data
        if name not in self.kernels:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        kernel, inits = self.kernels[name], to_ints(op.inits)
        types = tuple(v.type for v in op.results)
        key = (name, inits, types)
        if key not in self.compiled:
            self.compiled[key] = xla_jit(
                row_major(
                    lambda zero, *xs: run_kernel(kernel, zero, xs, inits, [_shape_of(v) for v in op.results])
                )
            )
        zero = lax.add(ZERO, ZERO)
        if isinstance(zero, Tracer):  # inside a loop, which is compiled as a whole
            # a constant is a zero that XLA sees through: it makes x of x + 0, also where x is -0
            zero = lax.optimization_barrier(zero)
            return run_kernel(kernel, zero, arguments, inits, [_shape_of(v) for v in op.results])
        return self.compiled[key](ZERO, *arguments)


def _shape_of(value: SSAValue) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return shape_in(value.type)


def run_kernel(
    kernel: ops.KernelOp,
    zero: Array,
    arrays: Sequence[Array],
    inits: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> list[Array]:
    """A kernel's outputs, in the `shapes` given. `inits[i]`: the number of the array that output i starts as, or -1 for
    zeros; the kernel's inputs are the others, in order."""
    walker = TileKernel(kernel, zero)
    arguments = kernel.body.block.args[len(to_ints(kernel.grid)) :]
    n_outputs, n_scratch = integer(kernel.outputs), integer(kernel.workspaces)
    n_inputs = len(arguments) - n_outputs - n_scratch
    read = [x for i, x in enumerate(arrays) if i not in inits]
    for i, arg in enumerate(arguments):
        type_ = gm(arg)
        init = inits[i - n_inputs] if n_inputs <= i < n_inputs + n_outputs else -1
        if i < n_inputs:
            x = read[i]
        elif init >= 0:
            x = arrays[init]
        else:
            x = lax.full(type_.shape, np.zeros((), numpy_dtype(type_.element)))
        walker.tensors[i] = values.raw(x)
        walker.bind(arg, i, View.of(type_))
    walker.run()
    outputs = []
    for i, shape in enumerate(shapes, start=n_inputs):
        dtype = numpy_dtype(gm(arguments[i]).element)
        outputs.append(lax.reshape(values.cooked(walker.tensors[i], dtype), shape))
    return outputs


def _view(op: ops.ViewOp, x: Array) -> Array:
    assert isinstance(op.result.type, GmType)
    return realise(x, View.of(op.result.type))


def run_tile(module: ModuleOp, machine: Machine, *arrays: Any) -> list[Array]:
    """The results of `@main` of a tile-level module."""
    program = TileProgram(module)
    runner = GraphRunner({ops.LaunchOp: program.launch, ops.ViewOp: _view})
    with jax.enable_x64(True):
        args = [values.on_device(a) for a in arrays]
        return runner.block(
            program.main.body.block, dict(zip(program.main.body.block.args, args, strict=True))
        )
