"""Walks a kernel's function for one block with numbers in place of values: what is left are the steps of its core."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from xdsl.dialects import scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
    ModuleOp,
)
from xdsl.dialects.cf import BranchOp, ConditionalBranchOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import dtype_name, is_float
from ...dialects.hivm import structure, synchronization, upstream
from .numbers import SCALARS, DataIndex, Index, constant, known, linear
from .places import BufferView, Memref, row_major, rows_of
from .steps import CoreStep, Operand, Register, Scratch, Value, memref_of, refused

T = TypeVar("T")

STACK = 2_000_000
"""The number of the first tensor that is memory of the core's program."""

MOST_STEPS = 200_000
"""Steps of a core above which a kernel is refused: its loops are unrolled."""

MOST_WALKED = 1_000_000
"""Ops of one block of a kernel above which it is refused, whatever they do: a few seconds."""

MOST_HELD = 1 << 16
"""Numbers of an array in the memory of the core's program."""


@dataclass
class BlockPlace:
    """Which block a core runs: its number, the number of blocks, which of its vector cores this is, how many blocks it
    ran before, and how many vector cores a block has."""

    number: int
    count: int
    unit: int = 0
    turn: int = 0
    units: int = 1


@dataclass
class BlockWalk:
    """The walk of one function for one block."""

    block: BlockPlace
    scratch: Scratch
    steps: list[CoreStep] = field(default_factory=list)
    values: dict[SSAValue, Value] = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)
    """The numbers of the iterations of the loops around, the innermost one last."""
    tiling: dict[int, list[int]] = field(default_factory=dict)
    """What arguments hold that the host computes, and memory of the core's program, by the numbers of tensors."""
    pieces: dict[int, Memref] = field(default_factory=dict)
    """The matrices in fractals that steps move, by the numbers of these."""
    matrices: list[Memref] = field(default_factory=list)
    """The matrices that products take."""
    accumulates: tuple[str, str] | None = None
    """How what is stored from here on is combined with what is there, and the type of its elements."""
    functions: dict[ModuleOp, dict[str, FuncOp]] = field(default_factory=dict)
    """The functions of the modules with calls that were met; of those of one name the first."""
    walked: int = 0
    """How many ops were walked."""

    def run(self, func: FuncOp, arguments: Sequence[Value]) -> None:
        """Walks the function. Raises FrontendError for what cannot be imported."""
        block, given = func.body.blocks.first, arguments
        while block is not None:
            self.values |= dict(zip(block.args, given, strict=True))
            self.walk(block)
            block, given = self._goes_to(block.last_op)

    def _goes_to(self, last: Operation | None) -> tuple[Block | None, Sequence[Value]]:
        """The block that the last op of one goes to, and what it hands to that; None where the function ends."""
        if isinstance(last, BranchOp):
            return last.successor, [self.value(v, last) for v in last.arguments]
        if isinstance(last, ConditionalBranchOp):
            taken = bool(self.number(last.cond, last))
            handed = last.then_arguments if taken else last.else_arguments
            return (last.then_block if taken else last.else_block), [self.value(v, last) for v in handed]
        return None, ()

    def walk(self, block: Block) -> Sequence[Value]:
        """Walks a block; gives what its terminator does."""
        for op in block.ops:
            if isinstance(op, BranchOp | ConditionalBranchOp):
                self._count(op)
                return []
            if op.name in ("scf.yield", "func.return", "scf.condition"):
                return [self.value(v, op) for v in op.operands]
            self.op(op)
        return []

    def _count(self, op: Operation) -> None:
        self.walked += 1
        if self.walked > MOST_WALKED:
            raise refused(op, f"is beyond the {MOST_WALKED:,} ops of a block that the import walks")

    def op(self, op: Operation) -> None:
        """Walks one op."""
        self._count(op)
        handler = HANDLERS.get(op.name)
        if handler is not None:
            before = len(self.steps)
            handler(self, op)
            self._spoil(op, before)
            return
        found = constant(op) if op.name == "arith.constant" else None
        if found is None and op.name.partition(".")[0] in ("arith", "math", "affine"):
            found = self._computed(op)
        if found is None:
            raise refused(op, "has no counterpart in the import to the npu level")
        self.values[op.results[0]] = found

    def _spoil(self, op: Operation, before: int) -> None:
        """Lets the first of an op's steps, which are those behind the first `before`, work in the memory that it gives
        for that, unless that is an operand of the step."""
        given = getattr(op, "temp_buffer", None)
        if given is None or len(self.steps) == before or self.steps[-1].name == "npu.vsort":
            return
        place = self.memref(given, op)
        if place.size:
            works_in = place.start, place.reach * place.unit
            self.steps[before] = replace(self.steps[before], works_in=works_in)

    def _computed(self, op: Operation) -> Value | None:
        values = [self.value(v, op) for v in op.operands]
        if any(isinstance(v, DataIndex) for v in values) or _gives_index(op, values):
            return linear(op, [self.index(v, op) for v in op.operands])
        if op.name == "arith.select" and isinstance(values[0], int):
            return values[1] if values[0] else values[2]
        numbers = [v for v in values if isinstance(v, int | float)]
        if len(numbers) == len(values):
            return known(op, numbers)
        function = SCALARS.get(op.name)
        if function is None:
            return None
        made = self.scratch.number(dtype_name(op.results[0].type))
        places = [self.place_of(v, o, op) for v, o in zip(values, op.operands, strict=True)]
        self.emit(op, "npu.scalar", *map(single, (*places, made)), properties=f'function = "{function}"')
        return Register(made)

    # -- values --------------------------------------------------------------------------------------------------

    def value(self, value: SSAValue, op: Operation) -> Value:
        """What stands for a value. Raises FrontendError for one that nothing does."""
        found = self.values.get(value)
        if found is None:
            raise refused(op, "uses a value that the import does not follow")
        return found

    def number(self, value: SSAValue, op: Operation) -> int:
        """An integer that is known. Raises FrontendError."""
        found = self.value(value, op)
        if not isinstance(found, int):
            raise refused(op, "depends on a number that is only known when the kernel runs")
        return found

    def index(self, value: SSAValue, op: Operation) -> Index:
        """An integer, which data may decide. Raises FrontendError."""
        found = self.value(value, op)
        if isinstance(found, DataIndex):
            return found
        if not isinstance(found, Register) or is_float(found.place.element):
            return self.number(value, op)
        key = self.block.turn, sum(s.index is not None for s in self.steps), id(op)
        self.emit(op, "npu.number_index", single(found.place), index=key)
        return DataIndex(0, ((key, 1),))

    def memref(self, value: SSAValue, op: Operation) -> Memref:
        """A memref. Raises FrontendError."""
        found = self.value(value, op)
        if not isinstance(found, Memref):
            raise refused(op, f"uses {value.type}, which is no memref")
        return found

    def place_of(self, found: Value, value: SSAValue, op: Operation) -> Memref:
        """The memory of a number: a register's, or that of a constant."""
        if isinstance(found, Register):
            return found.place
        if isinstance(found, Memref | DataIndex):
            raise refused(op, "takes numbers, not memory or an index that data decides")
        return self.scratch.constant(found, dtype_name(value.type))

    def local(self, value: SSAValue, op: Operation) -> Memref:
        """An operand on chip: a memref, with its bits as bytes if it has i1; or the memory of a number."""
        found = self.value(value, op)
        if isinstance(found, Memref):
            return self.scratch.mask(found) if found.element == "i1" and found.space != "gm" else found
        return self.place_of(found, value, op)

    # -- steps ---------------------------------------------------------------------------------------------------

    def emit(
        self,
        op: Operation,
        name: str,
        *operands: Operand,
        properties: str = "",
        at: Sequence[int] | None = None,
        sizes: tuple[int, ...] | None = None,
        index: Hashable = None,
    ) -> None:
        """Adds a step, unless it works on nothing."""
        operands = tuple(map(_of_rank, operands))
        if any(0 in o.shape for o in operands):
            return
        if any(n < 0 for o in operands for n in o.shape):
            raise refused(op, "works on an array with open sizes, which the launch has to say, as in x=4096")
        if len(self.steps) >= MOST_STEPS:
            raise refused(op, f"is beyond the {MOST_STEPS:,} steps of a core that the import unrolls")
        place = None if at is None else tuple(at)
        self.steps.append(CoreStep(name, op, operands, properties, place, sizes, index=index))


def _of_rank(found: Operand) -> Operand:
    """An operand; one number as an array of one."""
    if found.shape:
        return found
    return replace(found, shape=(1,), strides=(1,)) if isinstance(found, Memref) else replace(found, shape=(1,))


def _gives_index(op: Operation, values: Sequence[Value]) -> bool:
    """Whether an op makes an index of a number that is known when the kernel runs."""
    casts = op.name in ("arith.index_cast", "arith.index_castui", "affine.apply")
    return casts and any(isinstance(v, Register) for v in values)


def single(place: Memref, rank: int = 1) -> BufferView:
    """The operand for a number, as an array of one element."""
    return BufferView(place.space, place.element, (1,) * rank, 1, place.start)


def operand(place: Memref, op: Operation, deeper: bool = False) -> BufferView:
    """The operand for an array on chip. Raises FrontendError where its rows are not all as far apart."""
    found = rows_of(place, deeper)
    if found is None:
        raise refused(
            op, f"works on an array with strides {list(place.strides)}, which no instruction here does"
        )
    return found


# -- control -----------------------------------------------------------------------------------------------------


def _for(walk: BlockWalk, op: Any) -> None:
    low, high, step = (walk.number(v, op) for v in (op.lb, op.ub, op.step))
    if step < 1:
        raise refused(op, f"steps by {step}")
    carried: Sequence[Value] = [walk.value(v, op) for v in op.iter_args]
    body = op.body.block
    for number, index in enumerate(range(low, high, step)):
        walk.rounds.append(number)
        walk.values[body.args[0]] = index
        walk.values |= dict(zip(body.args[1:], carried, strict=True))
        carried = walk.walk(body)
        walk.rounds.pop()
    walk.values |= dict(zip(op.results, carried, strict=True))


def _while(walk: BlockWalk, op: scf.WhileOp) -> None:
    carried: Sequence[Value] = [walk.value(v, op) for v in op.operands]
    number = 0
    while True:
        before, after = op.before_region.block, op.after_region.block
        walk.values |= dict(zip(before.args, carried, strict=True))
        goes_on, *passed = walk.walk(before)
        if not isinstance(goes_on, int):
            raise refused(op, "goes on by a number that is only known when the kernel runs")
        if not goes_on:
            walk.values |= dict(zip(op.results, passed, strict=True))
            return
        walk.values |= dict(zip(after.args, passed, strict=True))
        walk.rounds.append(number)
        carried = walk.walk(after)
        walk.rounds.pop()
        number += 1
        if number > MOST_STEPS:
            raise refused(op, f"has more than {MOST_STEPS:,} rounds")


def _if(walk: BlockWalk, op: scf.IfOp) -> None:
    taken = op.true_region if walk.number(op.cond, op) else op.false_region
    results = walk.walk(taken.block) if taken.blocks else []
    walk.values |= dict(zip(op.results, results, strict=True))


def _switch(walk: BlockWalk, op: scf.IndexSwitchOp) -> None:
    cases = list(op.cases.iter_values())
    number = walk.number(op.arg, op)
    region = op.case_regions[cases.index(number)] if number in cases else op.default_region
    walk.values |= dict(zip(op.results, walk.walk(region.block), strict=True))


def _assert(walk: BlockWalk, op: Any) -> None:
    if not walk.number(op.arg, op):
        raise refused(op, f"does not hold: {op.msg.data}")


def _nothing(walk: BlockWalk, op: Operation) -> None:
    """Ops without a counterpart that change no value and no order."""


# -- where things are ----------------------------------------------------------------------------------------------


def _index(which: Callable[[BlockPlace], int]) -> Callable[[BlockWalk, Operation], None]:
    def handler(walk: BlockWalk, op: Operation) -> None:
        walk.values[op.results[0]] = which(walk.block)

    return handler


def _pointer_cast(walk: BlockWalk, op: structure.PointerCastOp) -> None:
    addresses = [walk.number(v, op) for v in op.addrs]
    turn = walk.rounds[-1] if walk.rounds else 0
    found = memref_of(op, op.result.type, addresses[turn % len(addresses)])
    if op.dynamicSizes:
        raise refused(op, "has open sizes")
    walk.values[op.result] = found


def _mixed(
    value_of: Callable[[SSAValue, Operation], T], op: Operation, fixed: DenseArrayBase, given: Sequence[SSAValue]
) -> list[T | int]:
    """Numbers of which some are written and the others are values."""
    values = iter(given)
    return [value_of(next(values), op) if n == DYNAMIC_INDEX else n for n in to_ints(fixed)]


def _on_chip_known(part: Memref, op: Operation) -> Memref:
    """An array; refuses one on chip whose place data decides."""
    if part.data and part.space != "gm":
        raise refused(op, "is at a place on chip that is only known when the kernel runs")
    return part


def _box(walk: BlockWalk, op: Any) -> tuple[list[Index], list[int], list[int]]:
    """The offsets, which data may decide, sizes and strides that an op gives."""
    return (
        _mixed(walk.index, op, op.static_offsets, op.offsets),
        _mixed(walk.number, op, op.static_sizes, op.sizes),
        _mixed(walk.number, op, op.static_strides, op.strides),
    )


def _subview(walk: BlockWalk, op: Any) -> None:
    source = walk.memref(op.source, op)
    offsets, sizes, steps = _box(walk, op)
    if any(n < 0 for n in sizes):
        raise refused(op, f"has sizes {sizes}")
    part, kind = _on_chip_known(source.part(offsets, sizes, steps), op), op.results[0].type
    rank = len(kind.get_shape())
    if rank < len(sizes):  # dimensions of size 1 that the result does not have
        kept = _kept(sizes, list(kind.get_shape()), op)
        shape, strides = (tuple(of[d] for d in kept) for of in (part.shape, part.strides))
        part = replace(part, shape=shape, strides=strides)
    walk.values[op.results[0]] = part


def _kept(sizes: Sequence[int], shape: Sequence[int], op: Operation) -> list[int]:
    kept: list[int] = []
    for d, size in enumerate(sizes):
        left = len(sizes) - d
        wanted = len(shape) - len(kept)
        if wanted and (left == wanted or size != 1 or shape[len(kept)] == 1):
            kept.append(d)
    if len(kept) != len(shape):
        raise refused(op, f"drops dimensions of {list(sizes)} that are not 1")
    return kept


def _reinterpret(walk: BlockWalk, op: Any) -> None:
    source = walk.memref(op.source, op)
    offsets, sizes, strides = _box(walk, op)
    moved = _on_chip_known(replace(source, start=source.base, data=()).moved(offsets[0]), op)
    walk.values[op.results[0]] = replace(moved, shape=tuple(sizes), strides=tuple(strides))


def _groups(op: Any) -> list[list[int]]:
    found = op.reassociation
    assert isinstance(found, ArrayAttr)
    return [[integer(d) for d in group] for group in found]


def _collapse(walk: BlockWalk, op: Any) -> None:
    walk.values[op.results[0]] = walk.memref(op.operands[0], op).collapsed(_groups(op))


def _expand(walk: BlockWalk, op: Any) -> None:
    source, kind = walk.memref(op.operands[0], op), op.results[0].type
    assert isinstance(kind, MemRefType)
    shape = list(kind.get_shape())
    for size, group in zip(source.shape, _groups(op), strict=True):
        fixed = 1
        for d in group:
            fixed *= max(shape[d], 1) if shape[d] != DYNAMIC_INDEX else 1
        for d in group:
            if shape[d] == DYNAMIC_INDEX:
                shape[d] = size // fixed
    walk.values[op.results[0]] = source.expanded(_groups(op), shape)


def _same(walk: BlockWalk, op: Operation) -> None:
    walk.values[op.results[0]] = walk.memref(op.operands[0], op)


def _bitcast(walk: BlockWalk, op: structure.BitcastOp) -> None:
    source, kind = walk.memref(op.src, op), op.result.type
    assert isinstance(kind, MemRefType)
    walk.values[op.result] = replace(source, element=dtype_name(kind.element_type))


def _dim(walk: BlockWalk, op: Any) -> None:
    found = walk.memref(op.operands[0], op).shape[walk.number(op.operands[1], op)]
    if found < 0:
        raise refused(op, "asks for a size that is not given: name the argument in --launch, as in arg0=8")
    walk.values[op.results[0]] = found


def _element(walk: BlockWalk, op: Operation, place: Memref, indices: Sequence[SSAValue]) -> Memref:
    at = [walk.index(v, op) for v in indices]
    part = _on_chip_known(place.part(at, [1] * len(at), [1] * len(at)), op)
    return replace(part, shape=(), strides=())


def _view(walk: BlockWalk, op: Any) -> None:
    source, kind = walk.memref(op.operands[0], op), op.results[0].type
    shift, *given = [walk.number(v, op) for v in op.operands[1:]]
    sizes = iter(given)
    shape = tuple(next(sizes) if n == DYNAMIC_INDEX else n for n in kind.get_shape())
    made = memref_of(op, kind, source.start + shift, source.tensor)
    walk.values[op.results[0]] = replace(made, shape=shape, strides=row_major(shape))


def _alloca(walk: BlockWalk, op: Any) -> None:
    """Memory of the core's program: its numbers are known, as those that the host computes."""
    kind = op.results[0].type
    number = STACK + len(walk.tiling)
    shape = kind.get_shape()
    if DYNAMIC_INDEX in shape:
        raise refused(op, "has open sizes")
    found = Memref("stack", dtype_name(kind.element_type), tuple(shape), row_major(shape), 0, number)
    if found.size > MOST_HELD:
        raise refused(op, f"is an array of {found.size:,} numbers of the core's program, of which {MOST_HELD:,} may be")
    walk.tiling[number] = [0] * found.size
    walk.values[op.results[0]] = found


def _cell(walk: BlockWalk, op: Operation, place: Memref, indices: Sequence[SSAValue]) -> int:
    return sum(walk.number(v, op) * s for v, s in zip(indices, place.strides, strict=True))


def _load_key(walk: BlockWalk, op: Operation) -> None:
    walk.values[op.results[0]] = walk.tiling[walk.number(op.operands[0], op)][0]


def _store_key(walk: BlockWalk, op: Operation) -> None:
    walk.tiling[walk.number(op.operands[1], op)][0] = walk.number(op.operands[0], op)


def _load_number(walk: BlockWalk, op: Any) -> None:
    source = walk.memref(op.operands[0], op)
    if source.tensor in walk.tiling:
        walk.values[op.results[0]] = walk.tiling[source.tensor][_cell(walk, op, source, op.operands[1:])]
        return
    place = _element(walk, op, source, op.operands[1:])
    made = walk.scratch.number(place.element)
    if place.space == "gm":
        walk.emit(op, "npu.load_number", replace(place, shape=(1,), strides=(1,)), single(made))
    elif place.space == "ub":
        walk.emit(op, "npu.scalar", single(place), single(made), properties='function = "convert"')
    else:
        raise refused(op, f"reads a number of {place.space}")
    walk.values[op.results[0]] = Register(made)


def _store_number(walk: BlockWalk, op: Any) -> None:
    dest = walk.memref(op.operands[1], op)
    if dest.tensor in walk.tiling:
        walk.tiling[dest.tensor][_cell(walk, op, dest, op.operands[2:])] = walk.number(op.operands[0], op)
        return
    place = _element(walk, op, dest, op.operands[2:])
    source = walk.local(op.operands[0], op)
    if place.space == "ub":
        walk.emit(op, "npu.scalar", single(source), single(place), properties='function = "convert"')
    else:
        target = replace(place, space="gm", shape=(1,), strides=(1,))
        walk.emit(op, "npu.store_nd", single(source), target)


# -- flags ---------------------------------------------------------------------------------------------------------


def pipe(name: str) -> str:
    """The npu level's name of a pipe."""
    return name.removeprefix("PIPE_")


def flag(walk: BlockWalk, op: Operation, name: str, source: str, target: str, event: int) -> None:
    """One half of a flag."""
    properties = f'event = {event}, slots = 1, source = "{source}", target = "{target}"'
    walk.emit(op, f"npu.{name}", properties=properties, at=[0])


def _flag(walk: BlockWalk, op: synchronization.FlagOp) -> None:
    if op.static_event_id is not None:
        event = int(op.static_event_id.data.removeprefix("EVENT_ID"))
    else:
        assert op.dynamic_event_id is not None
        event = walk.number(op.dynamic_event_id, op)
    flag(walk, op, op.name.rpartition(".")[2], pipe(op.set_pipe.data), pipe(op.wait_pipe.data), event)


def _pipe_barrier(walk: BlockWalk, op: synchronization.PipeBarrierOp) -> None:
    name = pipe(op.pipe.data)
    if name == "ALL":
        walk.emit(op, "npu.barrier")
    elif name != "S":
        walk.emit(op, "npu.pipe_barrier", properties=f'pipe = "{name}"')


def _flag_number(walk: BlockWalk, op: Any) -> int:
    if isinstance(op.static_flag_id, IntegerAttr):
        return op.static_flag_id.value.data
    return walk.number(op.dynamic_flag_id, op)


def _set_block(walk: BlockWalk, op: synchronization.SyncBlockSetOp) -> None:
    walk.emit(
        op, "npu.set_cross", properties=f'event = {_flag_number(walk, op)}, source = "{pipe(op.tpipe.data)}"'
    )


def _wait_block(walk: BlockWalk, op: synchronization.SyncBlockWaitOp) -> None:
    walk.emit(
        op, "npu.wait_cross", properties=f'event = {_flag_number(walk, op)}, target = "{pipe(op.pipe.data)}"'
    )


def _workspace(walk: BlockWalk, op: upstream.AllocWorkspaceOp) -> None:
    offset = walk.number(op.offset[0], op) if op.offset else 0
    if op.dynamicSize:
        raise refused(op, "has open sizes")
    part = memref_of(op, op.result.type, 0)
    walk.values[op.result] = walk.scratch.workspace(offset, part, walk.block.number)


Handler = Callable[[BlockWalk, Any], None]
HANDLERS: dict[str, Handler] = {
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _if,
    "scf.index_switch": _switch,
    "cf.assert": _assert,
    "annotation.mark": _nothing,
    "hivm.hir.debug": _nothing,
    "hivm.hir.set_mask_norm": _nothing,
    "hivm.hir.set_ctrl": _nothing,
    "hivm.hir.set_ffts_base_addr": _nothing,
    "hivm.hir.get_block_idx": _index(lambda b: b.number),
    "hivm.hir.get_block_num": _index(lambda b: b.count),
    "hivm.hir.get_sub_block_idx": _index(lambda b: b.unit),
    "hivm.hir.get_sub_block_num": _index(lambda b: b.units),
    "hivm.hir.pointer_cast": _pointer_cast,
    "hivm.hir.bitcast": _bitcast,
    "memref_ext.alloc_workspace": _workspace,
    "memref.subview": _subview,
    "memref.reinterpret_cast": _reinterpret,
    "memref.collapse_shape": _collapse,
    "memref.expand_shape": _expand,
    "memref.cast": _same,
    "memref.memory_space_cast": _same,
    "memref.dim": _dim,
    "memref.view": _view,
    "memref.alloca": _alloca,
    "llvm.load": _load_key,
    "llvm.store": _store_key,
    "memref.load": _load_number,
    "memref.store": _store_number,
    "hivm.hir.set_flag": _flag,
    "hivm.hir.wait_flag": _flag,
    "hivm.hir.pipe_barrier": _pipe_barrier,
    "hivm.hir.sync_block_set": _set_block,
    "hivm.hir.sync_block_wait": _wait_block,
}
"""What is done with an op that is no arithmetic; `instructions.py` has those that move and compute."""

__all__ = ["HANDLERS", "MOST_STEPS", "BlockPlace", "Handler", "BlockWalk", "flag", "operand", "single"]
