"""graph-quantized: quantized numbers become what is stored for them.

Before:  %q = graph.quantize %x : (tensor<8xf32>) -> tensor<8x!graph.quantized<i8:f32, 0.5:3>>
After:   %a = graph.mul %x, ... ; %b = graph.round_even %a ; %c = graph.add %b, ... ; %d = graph.clamp ... ;
         %q = graph.convert %d : (tensor<8xf32>) -> tensor<8xi8>

Products become products of integers, with what zero points add to them taken out; their i32 sums are scaled to what is
stored for the result. Ops that move elements stay as they are, on other types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialects.base import describe, text
from ...dialects.dtypes import element_type, is_integer, itemsize, shape_in, tensor
from ...dialects.graph import (
    ContractOp,
    ConvOp,
    DequantizeOp,
    QuantizedType,
    QuantizeOp,
    RequantizeOp,
    StorageOp,
)
from ...dialects.graph.interface import shape_of
from ...dialects.quantized import QuantizedFacts, quantized
from ...machine import Machine
from ..base import TargetPass
from ..errors import PassError
from ..forms.tensor_builder import TensorBuilder
from ..quantized_values import is_stored, values_of
from .integer_products import contraction, convolution, signed


@dataclass(frozen=True)
class GraphQuantizedPass(TargetPass):
    """What is stored for quantized numbers."""

    name = "graph-quantized"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        if not is_stored(module):
            _contain(module, machine)
            for op in list(module.walk()):
                handler = next((h for cls, h in HANDLERS.items() if isinstance(op, cls)), None)
                if handler is not None and any(quantized(v.type) for v in (*op.operands, *op.results)):
                    _replace(op, handler(StorageBuilder(op), op))
            _store(module)


def _contain(module: ModuleOp, machine: Machine) -> None:
    """Stores integers of fewer than 8 bits in 8 where the machine has no others. Raises PassError for a type that it
    has no form of in memory, and where the program's arguments or results would change for it."""

    def held(kind: Attribute, op: Operation) -> Attribute:
        found = quantized(kind)
        if found is None or machine.holds("ub", found.data.storage):
            return kind
        assert isinstance(kind, TensorType)
        low, high = found.data.range
        if not is_integer(found.storage) or low < -128 or high > 127:
            raise PassError(f"{describe(op)} stores {found.data.storage}, which {machine.name} does not have")
        return tensor(
            shape_in(kind), QuantizedType(replace(found.data, storage="i8", low=int(low), high=int(high)))
        )

    for op in list(module.walk()):
        if isinstance(op, FuncOp):
            kind = op.function_type
            made = [[held(t, op) for t in types.data] for types in (kind.inputs, kind.outputs)]
            if text(op.sym_name) == "main" and made != [[*kind.inputs.data], [*kind.outputs.data]]:
                raise PassError(
                    f"{describe(op)} takes or gives numbers in fewer bits than {machine.name} stores"
                )
            op.function_type = FunctionType.from_lists(*made)
        for value in values_of(op):
            kind = held(value.type, op)
            if isinstance(op, StorageOp) and kind != value.type:
                raise PassError(f"{describe(op)} is of numbers in fewer bits than {machine.name} stores")
            if kind != value.type:
                Rewriter.replace_value_with_new_type(value, kind)


def _replace(op: Operation, value: SSAValue) -> None:
    """Puts a value in the place of an op's result."""
    old = op.results[0]
    if value.type != old.type:
        value = StorageBuilder(op).add(StorageOp, [value], old.type)
    value.name_hint = value.name_hint or old.name_hint
    old.replace_all_uses_with(value)
    op.detach()
    op.erase()


def _store(module: ModuleOp) -> None:
    """Gives all quantized values that are left the types of what is stored."""
    for op in list(module.walk()):
        for value in values_of(op):
            if quantized(value.type):
                Rewriter.replace_value_with_new_type(value, _stored(value.type))
        if isinstance(op, FuncOp):
            kind = op.function_type
            op.function_type = FunctionType.from_lists(
                [_stored(t) for t in kind.inputs.data], [_stored(t) for t in kind.outputs.data]
            )
    for op in list(module.walk()):
        if isinstance(op, StorageOp):
            op.result.replace_all_uses_with(op.x)
            op.detach()
            op.erase()


def _stored(kind: Attribute) -> Attribute:
    found = quantized(kind)
    if found is None:
        return kind
    assert isinstance(kind, TensorType)
    return tensor(shape_in(kind), found.storage)


class StorageBuilder(TensorBuilder):
    """Builds ops before an op, at its place in the source."""

    def __init__(self, at: Operation):
        block = at.parent
        assert isinstance(block, Block)
        self.block, self.at = block, at

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        op = cls.create(
            operands=operands, result_types=[result], properties=properties, location=self.at.location
        )
        self.block.insert_op_before(op, self.at)
        return op.results[0]

    # -- numbers ---------------------------------------------------------------------------------------------

    def stored(self, value: SSAValue) -> SSAValue:
        """What is stored for a quantized value."""
        return self.add(StorageOp, [value], _stored(value.type))

    def over(
        self, values: Sequence[float], facts: QuantizedFacts, whole: Sequence[int], element: Attribute
    ) -> SSAValue:
        """Numbers that belong to the blocks of a tensor of shape `whole`, one for each of its elements, in the shape
        that `split` gives it."""
        if len(set(values)) == 1:
            return self.constant(values[0], _split(facts, whole), element)
        return self.spread(self.numbers(values, facts.grid(whole), element), facts, whole)

    def spread(self, grid: SSAValue, facts: QuantizedFacts, whole: Sequence[int]) -> SSAValue:
        """The same for a tensor that has a number for each block."""
        return self.broadcast(grid, _split(facts, whole), _grid_dims(facts))

    def split_shape(self, facts: QuantizedFacts, whole: Sequence[int]) -> list[int]:
        """The shape that `split` gives a tensor of shape `whole`."""
        return _split(facts, whole)

    def split(self, x: SSAValue, facts: QuantizedFacts) -> SSAValue:
        """x where each dimension that is cut into blocks is two: which block, and the place in it."""
        return self.reshape(x, _split(facts, shape_of(x))) if _is_cut(facts) else x

    def joined(self, x: SSAValue, whole: Sequence[int]) -> SSAValue:
        """The inverse of `split`."""
        return x if list(shape_of(x)) == list(whole) else self.reshape(x, whole)

    def saturated(self, x: SSAValue, facts: QuantizedFacts, zeros: SSAValue | None) -> SSAValue:
        """f32 numbers rounded to even, with zero points added, as what is stored."""
        storage = element_type(facts.storage)
        rounded = x if facts.storage.startswith("f8") else self.elementwise("round_even", x)
        if zeros is not None:
            rounded = self.elementwise("add", rounded, zeros)
        ends = [self.constant(end, shape_of(x), f32) for end in _within_f32(facts)]
        return self.convert(self.elementwise("clamp", ends[0], rounded, ends[1]), storage)

    def scaled(
        self, x: SSAValue, factors: Sequence[float], blocks: QuantizedFacts, target: QuantizedFacts
    ) -> SSAValue:
        """x times the factor of its block (rounded to f32), as what `target` stores."""
        whole = shape_of(x)
        x = self.split(self.convert(x, f32), blocks)
        if set(factors) != {1.0}:
            x = self.elementwise("mul", x, self.over(factors, blocks, whole, f32))
        if target.zeros is None or any(target.zeros):
            assert target.zeros is not None
            same = len(set(target.zeros)) == 1
            zeros = (
                self.constant(target.zeros[0], shape_of(x), f32)
                if same
                else self.over(target.zeros, target, whole, f32)
            )
        else:
            zeros = None
        return self.joined(self.saturated(x, target, zeros), whole)


def _is_cut(facts: QuantizedFacts) -> bool:
    return any(n != 1 for _, n in facts.blocks)


def _split(facts: QuantizedFacts, whole: Sequence[int]) -> list[int]:
    """The shape of a tensor in which each dimension with blocks of several is two."""
    blocks = dict(facts.blocks)
    out: list[int] = []
    for d, n in enumerate(whole):
        size = blocks.get(d, 1)
        out += [n // size, size] if size != 1 else [n]
    return out


def _grid_dims(facts: QuantizedFacts) -> list[int]:
    """The dimensions of a split tensor that the blocks are along."""
    found, before = [], 0
    for d, n in facts.blocks:
        found.append(d + before)
        before += n != 1
    return found


def _within_f32(facts: QuantizedFacts) -> tuple[float, float]:
    """The ends of what is stored as f32 numbers that lie within."""
    found = []
    for end, towards in zip(facts.range, (np.inf, -np.inf), strict=True):
        near = np.float32(end)
        beyond = near < end if towards > 0 else near > end
        found.append(float(np.nextafter(near, np.float32(towards))) if beyond else float(near))
    return found[0], found[1]


# -- ops -----------------------------------------------------------------------------------------------------


def _quantize(build: StorageBuilder, op: QuantizeOp) -> SSAValue:
    facts, whole = op.kind.data, shape_of(op.x)
    scale, zero = op.scale_and_zero()
    if scale is None and zero is None:
        assert facts.scales is not None
        return build.scaled(op.x, [inverse(s) for s in facts.scales], facts, facts)
    x = build.split(build.convert(op.x, f32), facts)
    if scale is None:
        assert facts.scales is not None
        factor = build.over([inverse(s) for s in facts.scales], facts, whole, f32)
    else:
        scale = build.convert(scale, f32)
        one = build.constant(1, shape_of(scale), f32)
        factor = build.spread(build.elementwise("div", one, scale), facts, whole)
    zeros = _zeros(build, facts, zero, whole, f32)
    return build.joined(build.saturated(build.elementwise("mul", x, factor), facts, zeros), whole)


def _dequantize(build: StorageBuilder, op: DequantizeOp) -> SSAValue:
    facts, whole = op.kind.data, shape_of(op.x)
    scale, zero = op.scale_and_zero()
    # 8 bits, and the difference of two, are exact in every type
    work = op.kind.expressed if itemsize(op.kind.storage) == 1 else f32
    x = build.split(build.convert(build.stored(op.x), work), facts)
    zeros = _zeros(build, facts, zero, whole, work)
    if zeros is not None:
        x = build.elementwise("sub", x, zeros)
    if scale is None:
        assert facts.scales is not None
        factor = build.over(facts.scales, facts, whole, work)
    else:
        factor = build.spread(build.convert(scale, work), facts, whole)
    return build.convert(build.joined(build.elementwise("mul", x, factor), whole), op.kind.expressed)


def _zeros(
    build: StorageBuilder,
    facts: QuantizedFacts,
    given: SSAValue | None,
    whole: Sequence[int],
    element: Attribute,
) -> SSAValue | None:
    """The zero point of each element of a split tensor; None where all are 0."""
    if given is not None:
        return build.spread(build.convert(given, element), facts, whole)
    assert facts.zeros is not None
    if not any(facts.zeros):
        return None
    if len(facts.zeros) == 1:
        return build.constant(facts.zeros[0], _split(facts, whole), element)
    return build.over(facts.zeros, facts, whole, element)


def _requantize(build: StorageBuilder, op: RequantizeOp) -> SSAValue:
    source, target = op.type_of(op.x).data, op.type_of(op.result).data
    x = build.stored(op.x)
    assert source.zeros is not None
    if any(source.zeros):
        wide = build.split(build.convert(x, i32), source)
        zeros = _zeros(build, source, None, shape_of(x), i32)
        assert zeros is not None
        x = build.joined(build.elementwise("sub", wide, zeros), shape_of(x))
    return build.scaled(x, source.quotients(target), source if source.blocks else target, target)


def _storage(build: StorageBuilder, op: StorageOp) -> SSAValue:
    return op.x if quantized(op.x.type) is None else build.add(StorageOp, [op.x], op.result.type)


def _product(build: StorageBuilder, op: ContractOp | ConvOp) -> SSAValue:
    """The integer product, scaled to the type of the result."""
    left, right = quantized(op.lhs.type), quantized(op.rhs.type)
    assert left is not None and right is not None
    assert left.data.zeros is not None and right.data.zeros is not None
    a, za = signed(build, build.stored(op.lhs), left.data.zeros)
    b, zb = signed(build, build.stored(op.rhs), right.data.zeros)
    if isinstance(op, ContractOp):
        n = op.free_dims()[1]
        first = len(shape_of(op.result)) - len(n)
        feature = next((first + n.index(d) for d, _ in right.data.blocks), 0)
        total = contraction(build, op, a, za[0], b, zb, feature)
    else:
        total = convolution(build, op, a, za[0], b, zb)
    return _of_sum(build, total, op.sum_kind().data, quantized(op.result.type))


def _of_sum(
    build: StorageBuilder, total: SSAValue, facts: QuantizedFacts, made: QuantizedType | None
) -> SSAValue:
    """i32 sums as the result of a product: in its type, or as the numbers that they stand for."""
    assert facts.scales is not None
    if made is None:
        x = build.elementwise(
            "mul", build.convert(total, f32), build.over(facts.scales, facts, shape_of(total), f32)
        )
        return build.convert(x, element_type(facts.expressed))
    if facts == made.data:
        return total
    return build.scaled(total, facts.quotients(made.data), facts if facts.blocks else made.data, made.data)


def inverse(scale: float) -> float:
    """What numbers are multiplied by in the place of a division by a scale: the nearest f32 number."""
    return float(np.float32(1 / scale))


HANDLERS = {
    QuantizeOp: _quantize,
    DequantizeOp: _dequantize,
    RequantizeOp: _requantize,
    StorageOp: _storage,
    ContractOp: _product,
    ConvOp: _product,
}
"""How each op that computes with quantized numbers is written with stored ones."""
