"""graph-simplify: brings a graph into the forms that the lowering knows, for a target.

* an op whose result has no elements, or that reduces or contracts over none, becomes a constant;
* interior padding becomes a strided update of a filled tensor, input dilation of a convolution an interior pad;
* a contraction in a type the cube does not have becomes multiply and add on the vector cores; a convolution first
  becomes contractions, one for each window position or for each place of the result (vector_products.py);
* a depthwise convolution, which has nothing to contract, becomes multiply and add over the window on the vector cores;
* a product of integers that is wanted as i8 becomes one in i32 and a conversion (accumulators.py);
* a product that is only wanted with a row dimension last swaps its operands, so that its rows are written in one go;
* a reduction to few values over very many is done in two steps, so that all cores take part;
* a window over all that is before or behind an element is a cumulative reduction;
* a window too large for one kernel is combined from shifted copies (windows.py);
* a sort is along the last dimension; rows too long for the unified buffer are sorted in parts (sorting.py);
* equal ops become one; ops nobody uses go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from ...dialects.base import ints, text, to_ints
from ...dialects.dtypes import dtype_name, is_float, numpy_dtype, tensor
from ...dialects.elementwise import identity
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ConstantOp,
    ContractOp,
    ConvOp,
    DataAttr,
    DynamicUpdateSliceOp,
    FusionOp,
    GraphOp,
    HostOp,
    PadOp,
    ReduceOp,
    ReduceWindowOp,
    ReshapeOp,
    ScatterOp,
    SliceOp,
    SortOp,
    TransposeOp,
)
from ...dialects.graph.interface import INDEX_TENSOR, element_of, shape_of
from ...machine import Machine
from ..access import splat_of
from ..base import TargetPass
from ..pins import Schedule, parse_pins
from .accumulators import convert_accumulators
from .products import conv_as_product, split_contract, split_conv
from .reductions import split_reduce, split_scatter
from .sorting import sort_in_parts, sort_last
from .vector_products import depthwise_conv, vector_contract, vector_conv
from .windows import cumulative, split_window

Rule = Callable[..., bool]
Rules = tuple[tuple[type[GraphOp], Rule], ...]

NOTE = "quant"
"""The attribute that says how a value is to be quantized: it goes with the value."""


@dataclass(frozen=True)
class GraphSimplifyPass(TargetPass):
    """Canonical forms for a target."""

    name = "graph-simplify"
    schedule: str = ""
    """Pinned choices: with any, sums of products are not cut here; where a tile is pinned for all kernels, reductions
    are cut as it says and not here."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        pins = parse_pins(self.schedule)
        left_out: list[Rule] = [] if pins is None else [split_contract, split_conv]
        if isinstance(pins, Schedule) and pins.tile is not None:
            left_out.append(split_reduce)
        rules = tuple(rule for rule in RULES if rule[1] not in left_out)
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                simplify_block(func.body.block, machine, rules)


def simplify_block(block: Block, machine: Machine, rules: Rules) -> None:
    """One walk over a block and the regions in it, then dead code removal from the end. What a rule builds is
    visited next."""
    op = block.first_op
    while op is not None:
        for region in op.regions if op.regions and not isinstance(op, FusionOp) else ():
            for inner in region.blocks:
                simplify_block(inner, machine, rules)
        before = op.prev_op
        if isinstance(op, GraphOp) and simplify_op(op, block, machine, rules):
            op.detach()
            op.erase()
            op = before.next_op if before is not None else block.first_op
        else:
            op = op.next_op
    merge_equal(block)
    for op in reversed(list(block.ops)):
        if isinstance(op, GraphOp) and all(not r.uses for r in op.results):
            op.detach()
            op.erase()


def simplify_op(op: GraphOp, block: Block, machine: Machine, rules: Rules) -> bool:
    """Replaces `op` of `block` by the first rule that applies; False where none does."""
    if has_empty(op) and empty(op, Rewriter(block, op)):
        return True
    applicable = _rules_for(type(op), rules)
    if not applicable:
        return False
    rewriter = Rewriter(block, op)
    return any(rule(op, rewriter, machine) for rule in applicable)


@cache
def _rules_for(kind: type[GraphOp], rules: Rules) -> tuple[Rule, ...]:
    return tuple(rule for cls, rule in rules if issubclass(kind, cls))


def merge_equal(block: Block) -> None:
    """Ops of a block with equal operands and properties become one: layers that each build the same mask."""
    seen: dict[tuple, list[Operation]] = {}
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
        for old, new in zip(op.results, first.results, strict=True):
            old.replace_all_uses_with(new)


def _equal(op: Operation, other: Operation) -> bool:
    """Whether two ops of one class and with the same operands give the same."""
    return (
        op.properties == other.properties
        and op.attributes.get(NOTE) == other.attributes.get(NOTE)
        and op.result_types == other.result_types
    )


class Rewriter:
    """Builds ops before `at` and replaces its result."""

    def __init__(self, block: Block, at: Operation):
        self.block = block
        self.at = at

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        op = cls.create(
            operands=operands, result_types=[result], properties=properties, location=self.at.location
        )
        self.block.insert_op_before(op, self.at)
        return op.results[0]

    def constant(self, value: float, shape: Sequence[int], element: Attribute) -> SSAValue:
        """A tensor of one value."""
        array = np.broadcast_to(np.asarray(value).astype(numpy_dtype(element)), tuple(shape))
        return self.add(ConstantOp, [], tensor(shape, element), value=DataAttr.of(array))

    def replace(self, value: SSAValue) -> bool:
        note = self.at.attributes.get(NOTE)
        if note is not None and isinstance(value, OpResult):
            value.op.attributes.setdefault(NOTE, note)
        self.at.results[0].replace_all_uses_with(value)
        return True

    def transpose(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        if list(perm) == list(range(len(perm))):
            return x
        shape = shape_of(x)
        return self.add(TransposeOp, [x], tensor([shape[p] for p in perm], element_of(x)), perm=ints(perm))

    def broadcast(self, x: SSAValue, shape: Sequence[int], dims: Sequence[int]) -> SSAValue:
        if list(dims) == list(range(len(shape))) and list(shape_of(x)) == list(shape):
            return x
        return self.add(BroadcastOp, [x], tensor(shape, element_of(x)), dims=ints(dims))

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return self.add(ReshapeOp, [x], tensor(shape, element_of(x)))

    def slice(
        self, x: SSAValue, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]
    ) -> SSAValue:
        shape = [len(range(*spec)) for spec in zip(starts, limits, strides, strict=True)]
        return self.add(
            SliceOp,
            [x],
            tensor(shape, element_of(x)),
            starts=ints(starts),
            limits=ints(limits),
            strides=ints(strides),
        )

    def part(self, x: SSAValue, d: int, first: int, count: int, stride: int = 1) -> SSAValue:
        """`count` places of dimension d from `first` on, `stride` apart; x itself where these are all."""
        shape = shape_of(x)
        if first == 0 and count == shape[d]:
            return x
        starts = [first if i == d else 0 for i in range(len(shape))]
        limits = [first + (count - 1) * stride + 1 if i == d else n for i, n in enumerate(shape)]
        return self.slice(x, starts, limits, [stride if i == d else 1 for i in range(len(shape))])

    def pad(
        self, x: SSAValue, value: float, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
    ) -> SSAValue:
        if not any((*low, *high, *interior)):
            return x
        shape = [
            max(n + max(n - 1, 0) * i + lo + hi, 0)
            for n, lo, hi, i in zip(shape_of(x), low, high, interior, strict=True)
        ]
        return self.add(
            PadOp,
            [x, self.constant(value, (), element_of(x))],
            tensor(shape, element_of(x)),
            low=ints(low),
            high=ints(high),
            interior=ints(interior),
        )

    def convert(self, x: SSAValue, element: Attribute) -> SSAValue:
        if element_of(x) == element:
            return x
        return self.add(ELEMENTWISE["convert"], [x], tensor(shape_of(x), element))

    def reduce(self, x: SSAValue, kind: str, dims: Sequence[int]) -> SSAValue:
        shape = [s for d, s in enumerate(shape_of(x)) if d not in dims]
        return self.add(ReduceOp, [x], tensor(shape, element_of(x)), kind=StringAttr(kind), dims=ints(dims))


def has_empty(op: GraphOp) -> bool:
    """Whether an operand or a result has no elements."""
    for values in (op.operands, op.results):
        for value in values:
            if type(value.type) is TensorType and 0 in shape_of(value):
                return True
    return False


def empty(op: GraphOp, rewriter: Rewriter) -> bool:
    """Results without elements, and reductions over none, are constants."""
    if op.regions or type(op) in (ConstantOp, HostOp) or not op.results:
        return False
    if all(0 in shape_of(r) for r in op.results):
        for r in op.results:
            r.replace_all_uses_with(rewriter.constant(0, shape_of(r), element_of(r)))
        return True
    out = op.results[0]
    if isinstance(op, ReduceOp):
        value = identity(text(op.kind), dtype_name(element_of(out)))
        return rewriter.replace(rewriter.constant(value, shape_of(out), element_of(out)))
    if isinstance(op, ContractOp | ConvOp):
        return rewriter.replace(rewriter.constant(0, shape_of(out), element_of(out)))
    if isinstance(op, PadOp):
        return rewriter.replace(rewriter.broadcast(op.value, shape_of(out), []))
    if isinstance(op, DynamicUpdateSliceOp):
        return rewriter.replace(op.x)
    return False


def join_broadcasts(op: BroadcastOp, rewriter: Rewriter, machine: Machine) -> bool:
    """A broadcast of a broadcast -> one; one that changes nothing -> its operand."""
    inner, dims = op.x.owner, to_ints(op.dims)
    if isinstance(inner, BroadcastOp) and NOTE not in inner.attributes:
        through = ints([dims[d] for d in to_ints(inner.dims)])
        return rewriter.replace(rewriter.add(BroadcastOp, [inner.x], op.result.type, dims=through))
    same = dims == tuple(range(len(dims))) and shape_of(op.x) == shape_of(op.result)
    return same and rewriter.replace(op.x)


def spread_pad(op: PadOp, rewriter: Rewriter, machine: Machine) -> bool:
    """pad with interior (or a value known only at run time) -> strided update of a filled tensor, then a crop."""
    low, high, interior = to_ints(op.low), to_ints(op.high), to_ints(op.interior)
    if not any(interior) and splat_of(op.value) is not None:
        return False
    x, element = op.x, element_of(op.x)
    shape = shape_of(x)
    spread = [
        max(lo, 0) + max(hi, 0) + (n - 1) * (i + 1) + 1
        for n, lo, hi, i in zip(shape, low, high, interior, strict=True)
    ]
    splat = splat_of(op.value)
    filled = (
        rewriter.constant(splat, spread, element)
        if splat is not None
        else rewriter.broadcast(op.value, spread, [])
    )
    starts = [
        rewriter.add(ConstantOp, [], INDEX_TENSOR, value=DataAttr.of(np.asarray(max(lo, 0), np.int32)))
        for lo in low
    ]
    updated = rewriter.add(
        DynamicUpdateSliceOp,
        [filled, x, *starts],
        tensor(spread, element),
        strides=ints([i + 1 for i in interior]),
    )
    if any(v < 0 for v in (*low, *high)):
        limits = [n - max(-hi, 0) for n, hi in zip(spread, high, strict=True)]
        updated = rewriter.slice(updated, [max(-lo, 0) for lo in low], limits, [1] * len(shape))
    return rewriter.replace(updated)


def spread_conv(op: ConvOp, rewriter: Rewriter, machine: Machine) -> bool:
    """Input dilation -> an interior pad; padding that crops -> a slice."""
    dilation, layout = to_ints(op.lhs_dilation), to_ints(op.lhs_layout)
    low, high = to_ints(op.low), to_ints(op.high)
    crop = any(v < 0 for v in (*low, *high))
    if all(d == 1 for d in dilation) and not crop:
        return False
    rank = len(layout)
    interior, before, after = [0] * rank, [0] * rank, [0] * rank
    for i, d in enumerate(dilation):
        interior[layout[2 + i]] = d - 1
        before[layout[2 + i]], after[layout[2 + i]] = min(low[i], 0), min(high[i], 0)
    padded = rewriter.pad(op.lhs, 0, before, after, interior)
    properties = dict(op.properties)
    properties["lhs_dilation"] = ints([1] * len(dilation))
    properties["low"] = ints([max(v, 0) for v in low])
    properties["high"] = ints([max(v, 0) for v in high])
    new = ConvOp.create(
        operands=[padded, op.rhs], result_types=[op.result.type], properties=properties, location=op.location
    )
    rewriter.block.insert_op_before(new, op)
    return rewriter.replace(new.result)


def same_inputs(op: ContractOp | ConvOp, rewriter: Rewriter, machine: Machine) -> bool:
    """Operands of different types are converted to the wider one; integers to the result's type, in which they wrap."""
    a, b = element_of(op.lhs), element_of(op.rhs)
    if a == b:
        return False
    floats = [e for e in (a, b) if is_float(e)]
    order = ["f16", "bf16", "f32"]
    wide = max(floats, key=lambda e: order.index(dtype_name(e)), default=element_of(op.result))
    new = type(op).create(
        operands=[rewriter.convert(op.lhs, wide), rewriter.convert(op.rhs, wide)],
        result_types=[op.result.type],
        properties=dict(op.properties),
        location=op.location,
    )
    rewriter.block.insert_op_before(new, op)
    return rewriter.replace(new.result)


def swap_operands(op: TransposeOp, rewriter: Rewriter, machine: Machine) -> bool:
    """Where a product's innermost dimension comes to be one of lhs: rhs times lhs has it there already."""
    product = op.x.owner
    if not isinstance(product, ContractOp) or len(list(product.result.uses)) != 1:
        return False
    m, n = map(len, product.free_dims())
    batch, perm = len(to_ints(product.lhs_batch)), to_ints(op.perm)
    if not n or not batch <= perm[-1] < batch + m:
        return False
    order = [*range(batch), *range(batch + m, batch + m + n), *range(batch, batch + m)]
    shape = shape_of(product.result)
    swapped = rewriter.add(
        ContractOp,
        [product.rhs, product.lhs],
        tensor([shape[d] for d in order], element_of(product.result)),
        lhs_batch=product.rhs_batch,
        rhs_batch=product.lhs_batch,
        lhs_contract=product.rhs_contract,
        rhs_contract=product.lhs_contract,
    )
    assert isinstance(swapped.owner, ContractOp)
    swapped.owner.location = product.location
    return rewriter.replace(rewriter.transpose(swapped, [order.index(p) for p in perm]))


RULES: tuple[tuple[type[GraphOp], Rule], ...] = (
    (BroadcastOp, join_broadcasts),
    (PadOp, spread_pad),
    (ConvOp, spread_conv),
    (ConvOp, same_inputs),
    (ConvOp, convert_accumulators),
    (ConvOp, depthwise_conv),
    (ConvOp, conv_as_product),
    (ConvOp, vector_conv),
    (ConvOp, split_conv),
    (ContractOp, same_inputs),
    (ContractOp, convert_accumulators),
    (ContractOp, vector_contract),
    (ContractOp, split_contract),
    (TransposeOp, swap_operands),
    (ReduceOp, split_reduce),
    (ScatterOp, split_scatter),
    (ReduceWindowOp, cumulative),
    (ReduceWindowOp, split_window),
    (SortOp, sort_last),
    (SortOp, sort_in_parts),
)
