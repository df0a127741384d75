"""What every tensor op answers: its result types, its work, and which operands steer the program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Literal

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, i32
from xdsl.ir import Attribute, SSAValue

from ...machine import Machine
from ..base import FormattedOp
from ..dtypes import shape_in, tensor
from ..elementwise import UNSTATED
from ..quantized import QuantizedType
from .extents import BoundedDim


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """Static shape of a tensor value. Raises TypeError if it is not a tensor."""
    type_ = value.type
    if type(type_) is not TensorType:
        raise TypeError(f"expected a tensor, got {type_}")
    return shape_in(type_)


def element_of(value: SSAValue) -> Attribute:
    """Element type of a tensor value."""
    assert isinstance(value.type, TensorType)
    return value.type.element_type


def moved_element(value: SSAValue, place: Callable[[int], int]) -> Attribute:
    """The element type of a value whose dimension d has become `place(d)`: along some, scales may differ."""
    element = element_of(value)
    return element.moved(place) if type(element) is QuantizedType else element


def check_blocks_stay(value: SSAValue, dims: Collection[int] | None = None) -> None:
    """Raises ValueError where the scales of a quantized value differ along one of `dims`, whose elements move; None
    stands for all dimensions."""
    element = element_of(value)
    if type(element) is QuantizedType:
        for d, _ in element.data.blocks:
            if dims is None or d in dims:
                raise ValueError(f"moves elements along dimension {d}, along which the scales of {element} differ")


def check_ranks(what: str, rank: int, *lists: Sequence[int]) -> None:
    """Raises ValueError unless each of `lists` has `rank` entries."""
    if any(len(entries) != rank for entries in lists):
        raise ValueError(f"needs {what} for each of {rank} dimensions")


Place = tuple[int, int]
"""An operand's number and one of its dimensions."""

Grouping = Literal[
    "",
    "elementwise",
    "reduction",
    "contraction",
    "opening",
    "generated",
    "concatenation",
    "vector",
    "index",
    "move",
]
"""How an op joins kernels: with any over its domain; with the rows that it reduces; as the product that others follow;
as the first one of a vector kernel; wherever it is used; as stores of the kernel that makes its parts; or in a kernel
of its own of this kind. "": not in kernels."""

Casting = Literal["product", "follow", "move", "keep", "fixed"]
"""What mixed precision makes of an op on f32: its operands become narrow, and are added up in f32; it computes in the
type of its operands; likewise, and it only moves or converts elements, so that these may as well be rounded before it;
it computes in f32; its types are what others rely on, so that they never change."""


class GraphOp(FormattedOp):
    """A pure tensor op. `infer` gives the result types that its operands and properties imply.

    `evaluate`, `scheduled_kernel`, `error_bound` and `onnx_nodes` are asked of ops that the tables of the layers above
    do not have, such as those of plugins (support/rules.py).
    """

    GROUPING: ClassVar[Grouping] = ""
    """How graph-fuse groups it."""

    READS_THROUGH_LAYOUT: ClassVar[bool] = False
    """Whether its kernels fold layout ops on their operands into loads; others read dense tensors."""

    KERNEL: ClassVar[bool] = True
    """Whether it runs in a kernel; else it stays in the program around the kernels."""

    WHOLE: ClassVar[bool] = False
    """Whether it hands on complex numbers as they are in memory, or keeps them there."""

    TAKES_QUANTIZED: ClassVar[bool] = False
    """Whether its operands and results may be quantized: it moves elements, or says what it computes of them."""

    PARTWISE: ClassVar[bool] = False
    """Whether it does to complex numbers what it does to their real and imaginary parts, each by itself."""

    CASTING: ClassVar[Casting] = "keep"
    """What mixed precision makes of it (graph-precision)."""

    KEEPS: ClassVar[str] = UNSTATED
    """Why it is computed in f32 where precision is mixed, as a clause."""

    def casting(self) -> Casting:
        """What mixed precision makes of this op, whatever its properties say of its class."""
        return self.CASTING

    def keeps(self) -> str:
        """Why this op is computed in f32 where precision is mixed."""
        return self.KEEPS

    def partwise(self) -> bool:
        """Whether this op is `PARTWISE`, whatever its properties say of its class."""
        return self.PARTWISE

    def infer(self) -> Sequence[Attribute]:
        raise NotImplementedError

    def evaluate(self, *operands: Any) -> Any:
        """The results, or the only one, for operands that are JAX arrays."""
        raise NotImplementedError

    def scheduled_kernel(self, fusion: Any, machine: Machine, name: str, asked: Any) -> Any:
        """The `passes.lower.scheduled.ScheduledKernel` called `name` of a fusion that holds this op; asked: the
        schedule that it is to have, or what is pinned of it."""
        raise NotImplementedError

    def error_bound(self, xs: Sequence[Any], es: Sequence[Any], ys: Sequence[Any], mode: str) -> Sequence[Any]:
        """How far the results `ys` may be off for operands `xs` that may be off by `es` (verification/bounds)."""
        raise NotImplementedError

    def onnx_nodes(self, writer: Any) -> Any:
        """What stands for the results, or the only one, in an ONNX model (`backends.onnx.writer.OnnxWriter`)."""
        raise NotImplementedError

    def flops(self) -> int:
        """Floating-point (or integer) operations, a multiply-add counted as two; data movement counts none."""
        return 0

    def steering(self) -> Sequence[SSAValue]:
        """Operands that decide what runs or where it reads and writes, rather than what is computed."""
        return ()

    def along(self, i: int, d: int) -> BoundedDim | None:
        """What becomes of dimension d of operand i where only the first elements along it count; None where this op
        mixes these with others."""
        return None

    def meeting(self) -> Sequence[tuple[Place, Place]]:
        """Dimensions of different operands whose elements are multiplied or go together, so that along both as many
        count."""
        return ()

    def on_numbers(self) -> bool:
        """Whether all operands and results are single numbers, so that the host could do this on the way."""
        return not self.regions and not any(shape_of(v) for v in (*self.operands, *self.results))

    def verify_(self) -> None:
        for v in (*self.operands, *self.results):
            if not isinstance(v.type, TensorType):
                raise self.error(f"needs tensors, got {v.type}")
            if type(v.type.element_type) is QuantizedType:
                self._check_quantized(v.type.element_type, shape_in(v.type))
            if DYNAMIC_INDEX in shape_in(v.type):
                raise self.error(f"needs static shapes, or open sizes with names, got {v.type}")
        try:
            expected = list(self.infer())
        except ValueError as e:
            raise self.error(str(e)) from None
        if expected != list(self.result_types):
            want = ", ".join(map(str, expected))
            got = ", ".join(map(str, self.result_types))
            raise self.error(f"should give {want}, but is written as {got}")


    def _check_quantized(self, kind: QuantizedType, shape: Sequence[int]) -> None:
        if not (self.TAKES_QUANTIZED or self.partwise()):
            raise self.error(f"does not work on quantized numbers ({kind}): dequantize them before")
        try:
            kind.data.grid(shape)
        except ValueError as error:
            raise self.error(f"has {kind}, but {error}") from None


INDEX_TENSOR = tensor([], i32)
