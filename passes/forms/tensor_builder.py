"""Builds graph ops one after the other: the shapes and types of results follow from the operands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import LocationAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from ...dialects.base import ints
from ...dialects.dtypes import numpy_dtype, tensor
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ConstantOp,
    DataAttr,
    PadOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open, certain


class TensorBuilder(ABC):
    """Makes ops; where they go is for `add` to say."""

    @abstractmethod
    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        """The result of a new op."""

    def constant(self, value: float, shape: Sequence[int], element: Attribute) -> SSAValue:
        """A tensor of one value."""
        if any_open(shape) and 0 not in shape:
            return self.broadcast(self.constant(value, (), element), shape, ())
        array = np.broadcast_to(np.asarray(value).astype(numpy_dtype(element)), tuple(shape))
        return self.add(ConstantOp, [], tensor(shape, element), value=DataAttr.of(array))

    def numbers(self, values: Sequence[float], shape: Sequence[int], element: Attribute) -> SSAValue:
        """A constant; one number for all elements where these are equal."""
        array = np.asarray(values).astype(numpy_dtype(element)).reshape(shape)
        return self.add(ConstantOp, [], tensor(shape, element), value=DataAttr.of(array))

    def elementwise(self, name: str, *operands: SSAValue) -> SSAValue:
        """A function of operands of one type, which gives that type."""
        return self.add(ELEMENTWISE[name], operands, operands[0].type)

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
        shape = [max(-(-(b - a) // s), 0) for a, b, s in zip(starts, limits, strides, strict=True)]
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
        if all(certain(n, "==", 0) for n in (*low, *high, *interior)):
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

    def grouped(self, x: SSAValue, d: int, groups: int) -> SSAValue:
        """x with the groups of dimension d before it, where there are several."""
        if groups < 2:
            return x
        shape = shape_of(x)
        return self.reshape(x, [*shape[:d], groups, shape[d] // groups, *shape[d + 1 :]])

    def convert(self, x: SSAValue, element: Attribute) -> SSAValue:
        if element_of(x) == element:
            return x
        return self.add(ELEMENTWISE["convert"], [x], tensor(shape_of(x), element))

    def reduce(self, x: SSAValue, kind: str, dims: Sequence[int]) -> SSAValue:
        shape = [s for d, s in enumerate(shape_of(x)) if d not in dims]
        return self.add(ReduceOp, [x], tensor(shape, element_of(x)), kind=StringAttr(kind), dims=ints(dims))


class BlockBuilder(TensorBuilder):
    """Adds ops at the end of a block, at a place in the source."""

    def __init__(self, block: Block, location: LocationAttr | None = None):
        self.block, self.location = block, location

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        op = cls.create(
            operands=operands, result_types=[result], properties=properties, location=self.location
        )
        self.block.add_op(op)
        return op.results[0]


class RewriteBuilder(TensorBuilder):
    """Inserts ops before the op that a pattern matched."""

    def __init__(self, rewriter: PatternRewriter):
        self.rewriter = rewriter

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        return self.insert(
            cls.create(operands=operands, result_types=[result], properties=properties)
        ).results[0]

    def insert(self, op: Operation) -> Operation:
        return self.rewriter.insert(op)
