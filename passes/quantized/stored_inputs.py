"""Inputs as a quantized program stores them, with one scale: each value once, for all that read it."""

from __future__ import annotations

from collections.abc import Container

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from ...dialects.base import text
from ...dialects.dtypes import limits, tensor
from ...dialects.graph import (
    ContractOp,
    DequantizeOp,
    QuantizedType,
    QuantizeOp,
    ReduceWindowOp,
    StorageOp,
)
from ...dialects.graph.elementwise import ElementwiseOp
from ...dialects.graph.interface import element_of, shape_of
from ..errors import PassError
from .integer_chains import IntegerSums
from .integer_products import MOVES
from .products_named import (
    NamedProduct,
)
from .quantized import StorageBuilder
from .recipes import ProductChoice


def input_kind(product: NamedProduct, choice: ProductChoice) -> QuantizedType:
    """How an input with one scale is stored: numbers of 4 bits, in bytes. Raises PassError for a zero point that is not
    stored."""
    storage = choice.recipe.inputs
    assert storage is not None and choice.scale is not None
    low, high = limits(storage)
    if not low <= choice.zero <= high:
        raise PassError(
            f"quantization: the input of {product.name} has the zero point {choice.zero}, which {storage} does not "
            "store"
        )
    if storage == "i4":
        return QuantizedType.of("i8", "f32", choice.scale, choice.zero, (), int(low), int(high))
    return QuantizedType.of(storage, "f32", choice.scale, choice.zero)


class Inputs:
    """Quantized inputs: of products that read the same values in the same way it is one. own: the ops that the program
    had before; those that products in other modes have been given since read numbers as they are."""

    def __init__(self, drained: bool, own: Container[Operation]) -> None:
        self.drained, self.own = drained, own
        self.made: dict[tuple[SSAValue, QuantizedType], SSAValue] = {}
        self.again: list[tuple[SSAValue, SSAValue, Operation]] = []
        self.sums: list[IntegerSums] = []

    def follow(self, old: SSAValue, new: SSAValue) -> None:
        """Notes that a value is about to be replaced."""
        for (value, kind), made in list(self.made.items()):
            if value is old:
                self.made[new, kind] = made
        self.again = [(new if v is old else v, made, op) for v, made, op in self.again]

    def stored(
        self, build: StorageBuilder, product: NamedProduct, x: SSAValue, choice: ProductChoice
    ) -> SSAValue:
        """What is stored for an input with one scale: of the value that it is moved from."""
        kind = input_kind(product, choice)
        moves: list[Operation] = []
        source = x
        while isinstance(source.owner, MOVES):
            moves.append(source.owner)
            source = source.owner.x
        found = self._value(source, kind, build.at)
        made = found
        found = build.add(StorageOp, [found], tensor(shape_of(source), kind.storage))
        if not isinstance(product.op, ContractOp) and isinstance(found.owner, Operation):
            self.again.append((source, made, found.owner))
        for op in reversed(moves):
            found = build.add(
                type(op), [found], tensor(shape_of(op.results[0]), kind.storage), **op.properties
            )
        return found

    def _value(self, source: SSAValue, kind: QuantizedType, before: Operation) -> SSAValue:
        """A value as it is stored. The largest numbers of windows are stored as the largest of what is stored."""
        found = self.made.get((source, kind))
        if found is not None:
            return found
        op = source.owner
        after = StorageBuilder(_after(source, before))
        if isinstance(op, ReduceWindowOp) and text(op.kind) == "max" and isinstance(op.x.owner, Operation):
            inner = self._value(op.x, kind, op)
            inner = after.add(StorageOp, [inner], tensor(shape_of(inner), kind.storage))
            windows = after.add(
                ReduceWindowOp, [inner], tensor(shape_of(source), kind.storage), **op.properties
            )
            found = after.add(StorageOp, [windows], tensor(shape_of(source), kind))
        else:
            wide = after.convert(source, f32)
            found = after.add(QuantizeOp, [wide], tensor(shape_of(source), kind))
        self.made[source, kind] = found
        return found

    def read_again(self) -> None:
        """What the program's elementwise ops read of an input behind the convolution that it is quantized for is what
        is stored: they would load it once more."""
        order: dict[Operation, int] = {}
        for source, made, behind in self.again:
            if behind not in order:
                assert behind.parent is not None
                order |= {op: i for i, op in enumerate(behind.parent.ops)}
            late = [
                use
                for use in source.uses
                if use.operation in self.own
                and isinstance(use.operation, (ElementwiseOp, ReduceWindowOp))
                and use.operation.parent is behind.parent
                and order.get(use.operation, -1) > order[behind]
            ]
            for use in late:
                build = StorageBuilder(use.operation)
                numbers = build.add(DequantizeOp, [made], tensor(shape_of(source), f32))
                use.operation.operands[use.index] = build.convert(numbers, element_of(source))


def _after(value: SSAValue, at: Operation) -> Operation:
    """The op right behind what makes a value."""
    owner = value.owner
    if isinstance(owner, Operation):
        following = owner.next_op
        assert following is not None
        return following
    first = owner.first_op
    assert first is not None
    return first if owner is at.parent else at
