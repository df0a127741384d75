"""Instantiation of a module with open dimensions at given sizes: the same ops, with numbers for the dimensions."""

from __future__ import annotations

from typing import TypeVar, cast

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute

from ..dialects import npu, tile
from ..dialects.base import INDEX, integer_attr, ints, to_ints
from ..dialects.dtypes import shape_in, tensor
from ..dialects.graph import FusionOp
from ..dialects.host_text import OpenTextAttr, text_at
from ..dialects.open_sizes import any_open, decode, example_sizes, is_open, value_at
from ..dialects.open_text import OpenIntegerAttr
from ..dialects.sizes import Sizes

OpT = TypeVar("OpT", bound=Operation)


def has_open_sizes(op: Operation) -> bool:
    """Whether an operand or a result of an op, or of what is in it, has an open dimension."""
    return any(
        isinstance(v.type, TensorType) and any_open(shape_in(v.type))
        for inner in op.walk()
        for v in (*inner.operands, *inner.results)
    )


def at_example(fusion: FusionOp) -> FusionOp:
    """A fusion, or where it has open dimensions a copy of it in no block for the example of the compilation."""
    return Instantiation(example_sizes()).outside(fusion) if has_open_sizes(fusion) else fusion


class Instantiation:
    """Gives what has open dimensions numbers for them. sizes: the value of each symbol."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._known: dict[Attribute, Attribute] = {}

    def of(self, op: OpT) -> OpT:
        """A copy of an op, and of all that is in it. Raises KeyError for a symbol without a size."""
        made = op.clone()
        for inner in list(made.walk()):
            self._settle(inner)
        return made

    def outside(self, fusion: FusionOp) -> FusionOp:
        """A copy of a fusion on operands of its own."""
        made = self.of(fusion)
        block = Block(arg_types=[self.attribute(v.type) for v in fusion.operands])
        made.operands = block.args
        block.add_op(made)
        return made

    def _settle(self, op: Operation) -> None:
        if isinstance(op, tile.SizeOp | npu.SizeOp):
            number = value_at(op.number, self.sizes)
            constant = ConstantOp.create(
                result_types=[INDEX], properties={"value": IntegerAttr(number, INDEX)}, location=op.location
            )
            block = op.parent
            assert block is not None
            block.insert_op_before(constant, op)
            op.result.replace_all_uses_with(constant.result)
            op.detach()
            op.erase()
            return
        for name, attr in op.properties.items():
            op.properties[name] = self.attribute(attr)
        for name, attr in op.attributes.items():
            op.attributes[name] = self.attribute(attr)
        for value in (*op.results, *(a for region in op.regions for b in region.blocks for a in b.args)):
            kind = self.attribute(value.type)
            if kind is not value.type:
                value._type = kind  # pyright: ignore[reportPrivateUsage]  # every user of it changes too

    def attribute(self, attr: Attribute) -> Attribute:
        """An attribute with numbers for its open dimensions; the same one where it has none."""
        found = self._known.get(attr)
        if found is None:
            found = self._known[attr] = self._new(attr)
        return found

    def _new(self, attr: Attribute) -> Attribute:
        match attr:
            case OpenIntegerAttr():
                return integer_attr(value_at(decode(attr.value.data), self.sizes))
            case OpenTextAttr():
                return StringAttr(text_at(attr, self.sizes))
            case IntAttr():
                number = decode(attr.data)
                return IntAttr(value_at(number, self.sizes)) if is_open(number) else attr
            case DenseArrayBase():
                if attr.elt_type != i64 or not any_open(numbers := to_ints(attr)):
                    return attr
                return ints([value_at(n, self.sizes) for n in numbers])
            case TensorType():
                kind, shape = cast("TensorType[Attribute]", attr), shape_in(attr)
                element = self.attribute(kind.element_type)
                if not any_open(shape) and element is kind.element_type:
                    return attr
                return tensor([value_at(n, self.sizes) for n in shape], element)
            case ArrayAttr():
                made = [self.attribute(a) for a in attr.data]
                return attr if all(a is b for a, b in zip(made, attr.data, strict=True)) else ArrayAttr(made)
            case DictionaryAttr():
                settled = {k: self.attribute(v) for k, v in attr.data.items()}
                return attr if all(settled[k] is v for k, v in attr.data.items()) else DictionaryAttr(settled)
            case ParametrizedAttribute():
                parts = [self.attribute(a) for a in attr.parameters]
                same = all(a is b for a, b in zip(parts, attr.parameters, strict=True))
                return attr if same else type(attr).new(parts)
            case _:
                return attr
