"""Splits a program in two: what depends on its weights alone, which runs once, and the rest, which takes its results.

Before:  @main(%w {graph.weight}, %x)    quantizes %w, and multiplies
After:   @main(%w) -> (stored, scales)   and    @main(%x, stored, scales)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ...dialects.base import text
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import BroadcastOp, ConstantOp, ContractOp, TransposeOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.quantized import quantized
from ..calls import callee_of, callers_first
from ..quantized.integer_chains import PACKED
from ..quantized.integer_products import MOVES
from ..quantized.products_named import main_function, mark_weights, weight_values
from ..rewriting import erase_dead


@dataclass(frozen=True)
class SplitProgram:
    """packing: the module of what depends on weights alone, and `taken`, the arguments of the program that it takes;
    rest: the module of the rest. It takes the arguments `left` of the program, and behind these what `packing` gives.
    kept: where @main made that: the number of the op in its block, and of the result.
    """

    packing: ModuleOp
    taken: tuple[int, ...]
    rest: ModuleOp
    left: tuple[int, ...]
    weights: tuple[bool, ...]
    kept: tuple[tuple[int, int], ...] = ()


def split_weights(
    module: ModuleOp, patterns: Sequence[str] | None = None, moved: bool = True, in_layout: bool = False
) -> SplitProgram:
    """Splits a module of the graph level, which it changes. patterns: of the arguments that are weights, where the
    module does not say; moved: whether weights that are only moved, or made of spread ones, are packed, which programs
    do in other ways where other sizes differ; in_layout: whether those have their layouts already that are to, so that
    transposes which only products read are none of the packing. Raises PassError for a pattern that no argument
    fits."""
    flags = mark_weights(module, patterns)
    main = main_function(module)
    kept = _kept(main, weight_values(main, flags), flags, moved, in_layout)
    order = {op: i for i, op in enumerate(main.body.block.ops)}
    places = [_place(order, v) for v in kept]
    packing = _packing(module, places)
    taken = _drop_unused(main_function(packing))
    block = main.body.block
    for value in kept:
        arg = block.insert_arg(value.type, len(block.args))
        arg.name_hint = value.name_hint
        value.replace_all_uses_with(arg)
    erase_dead(block)
    left = _drop_unused(main, flags)
    return SplitProgram(packing, tuple(taken), module, tuple(left), tuple(flags), tuple(places))


def _kept(
    main: FuncOp, values: set[SSAValue], flags: Sequence[bool], moved: bool, in_layout: bool
) -> list[SSAValue]:
    """The values that are made once: results of ops that are marked so, and others that are read beside weights and
    are no larger than these. Arguments are no part of them. moved, in_layout: as `split_weights` takes them."""
    block = main.body.block
    late = _behind_marks(main, values)
    args = {arg for arg, flag in zip(block.args, flags, strict=True) if flag}
    roots = _Roots(args)
    if not moved:
        late |= _moved(block, values, roots)
    found: dict[SSAValue, None] = {}
    pending = [
        v
        for op in main.walk()
        if op is not main and not _within(op, values)
        for v in op.operands
        if v in values
    ]
    seen: set[SSAValue] = set()
    while pending:
        value = pending.pop()
        if value in seen or value in args:
            continue
        seen.add(value)
        op = value.owner
        assert isinstance(op, Operation)
        if PACKED in op.attributes:
            found[value] = None
        elif isinstance(op, ConstantOp):
            continue
        elif value in late or _bytes(value) > roots.size_of(value) or (in_layout and _multiplied(op, values)):
            pending += op.operands
        else:
            found[value] = None
    order = {op: i for i, op in enumerate(block.ops)}
    return sorted(found, key=lambda v: order[v.owner])  # pyright: ignore[reportArgumentType]


def _multiplied(op: Operation, values: set[SSAValue]) -> bool:
    """Whether an op is a transpose that only products read, which see through it, beside what makes values of weights
    alone."""
    if not isinstance(op, TransposeOp):
        return False
    readers = [use.operation for use in op.result.uses if not _within(use.operation, values)]
    return all(isinstance(reader, ContractOp) for reader in readers)


def _moved(block: Block, values: set[SSAValue], roots: _Roots) -> set[SSAValue]:
    """The values that are weights moved, or are made of weights that are spread."""
    spread: set[SSAValue] = set()
    moved: set[SSAValue] = set()
    for op in block.ops:
        for value in (r for r in op.results if r in values):
            spreads = isinstance(op, BroadcastOp) and roots.size_of(value) > 0
            if spreads or any(v in spread for v in op.operands):
                spread.add(value)
            if isinstance(op, MOVES):
                moved.add(value)
    return spread | moved


def _within(op: Operation, values: set[SSAValue]) -> bool:
    """Whether an op makes values of weights alone."""
    return bool(op.results) and all(r in values for r in op.results)


def _behind_marks(main: FuncOp, values: set[SSAValue]) -> set[SSAValue]:
    """The values that are made from results of marked ops."""
    late: set[SSAValue] = set()
    for op in main.body.block.ops:
        if any(v in late or PACKED in getattr(v.owner, "attributes", {}) for v in op.operands):
            late.update(r for r in op.results if r in values)
    return late


class _Roots:
    """The arguments that values are made from, and the constants that are more than one number: which ones each value
    has, as the bits of a number. Each op is looked at once, however many values are asked for."""

    def __init__(self, args: set[BlockArgument]):
        self._args = args
        self._roots: list[SSAValue] = []
        self._behind: dict[SSAValue, int] = {}
        self._totals: dict[int, int] = {}

    def _find(self, value: SSAValue) -> int:
        pending, known = [value], self._behind
        while pending:
            at = pending[-1]
            operands = self._made_from(at)
            fresh = [v for v in operands if v not in known]
            if fresh and at not in known:
                pending += fresh
                continue
            pending.pop()
            if at not in known:
                known[at] = reduce(or_, (known[v] for v in operands), self._own(at))
        return known[value]

    def _made_from(self, value: SSAValue) -> Sequence[SSAValue]:
        return value.owner.operands if isinstance(value.owner, Operation) else ()

    def _own(self, value: SSAValue) -> int:
        """The bit of a root; 0 for others."""
        op = value.owner
        if value not in self._args and not (isinstance(op, ConstantOp) and not op.value.data.splat):
            return 0
        self._roots.append(value)
        return 1 << (len(self._roots) - 1)

    def size_of(self, value: SSAValue) -> int:
        """The bytes of all that a value is made from."""
        behind = self._find(value)
        total = self._totals.get(behind)
        if total is None:
            total = sum(_bytes(root) for i, root in enumerate(self._roots) if behind >> i & 1)
            self._totals[behind] = total
        return total


def _bytes(value: SSAValue) -> int:
    kind = quantized(value.type)
    return size(shape_of(value)) * itemsize(kind.storage if kind else element_of(value))


def _place(order: Mapping[Operation, int], value: SSAValue) -> tuple[int, int]:
    """Where a value is made: the number of its op in the block, by `order`, and of the result."""
    op = value.owner
    assert isinstance(op, Operation)
    return order[op], next(i for i, r in enumerate(op.results) if r is value)


def _packing(module: ModuleOp, places: Sequence[tuple[int, int]]) -> ModuleOp:
    """A copy of a module that gives the values at some places."""
    copy = module.clone()
    main = main_function(copy)
    block = main.body.block
    ops = list(block.ops)
    last = ops[-1]
    assert isinstance(last, ReturnOp)
    values = [ops[i].results[j] for i, j in places]
    block.insert_op_before(ReturnOp(*values), last)
    last.detach()
    last.erase()
    main.function_type = FunctionType.from_lists([a.type for a in block.args], [v.type for v in values])
    main.res_attrs = None
    _keep_needed(block)
    for func in [op for op in callers_first(copy) if op is not main]:
        if not any(callee_of(op) == text(func.sym_name) for op in copy.walk()):
            func.detach()
            func.erase()
    return copy


def _keep_needed(block: Block) -> None:
    """Erases the ops of a block that its results are not made from: calls and loops, too, whatever they do."""
    needed: set[SSAValue] = set()
    for op in reversed(list(block.ops)):
        if isinstance(op, ReturnOp) or any(r in needed for r in op.results):
            needed.update(v for inner in op.walk() for v in inner.operands)
        else:
            op.detach()
            op.erase()


def _drop_unused(main: FuncOp, flags: Sequence[bool] | None = None) -> list[int]:
    """Takes away the arguments that nothing uses, of those that a flag is set for; gives the numbers of those that stay
    among as many as there are flags."""
    block = main.body.block
    count = len(block.args) if flags is None else len(flags)
    attributes = [attrs.data for attrs in main.arg_attrs] if main.arg_attrs is not None else [{}] * count
    attributes = [*attributes, *({} for _ in range(len(block.args) - len(attributes)))]
    stays = [
        i
        for i, arg in enumerate(block.args)
        if i >= count or arg.first_use is not None or (flags is not None and not flags[i])
    ]
    gone = [arg for i, arg in enumerate(block.args) if i not in set(stays)]
    for arg in gone:
        block.erase_arg(arg)
    kept = [DictionaryAttr({**attributes[i]}) for i in stays]
    main.arg_attrs = ArrayAttr(kept) if any(k.data for k in kept) else None
    last = block.last_op
    assert last is not None
    main.function_type = FunctionType.from_lists(
        [a.type for a in block.args], [v.type for v in last.operands]
    )
    return [i for i in stays if i < count]
