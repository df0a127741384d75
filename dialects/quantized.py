"""Element types of quantized tensors: whole numbers, or 8-bit floats, that stand for others.

A stored number q stands for (q - zero) * scale. Scales and zero points are one for the tensor, or one for each slice
along a dimension (a channel, a row of tokens), or one for each block of some dimensions (groups of weights):

    !graph.quantized<i8:f32, 0.5:3>                          one for all
    !graph.quantized<i8<-127:127>:f32, 0.25>                 the storage has fewer values than i8, the zero point is 0
    !graph.quantized<i8:f32:1, {0.5, 0.25:3}>                one for each index of dimension 1
    !graph.quantized<i4:f16:{0:32, 1:1}, ?>                  one for 32 rows of a column; known at run time only

The form between the angle brackets is that of MLIR's `!quant.uniform`, of which `?` is no part: there ops have the
scales as operands, and the zero points too where it is `?:?`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from .dtypes import StoredAs, dtype_name, element_type, is_float, is_integer, limits, size, smallest


@dataclass(frozen=True)
class QuantizedFacts:
    """How stored numbers stand for others.

    storage, expressed: names of element types; low, high: the least and the largest stored number; blocks: for each
    dimension along which scales differ, in ascending order, how many neighbours share one; scales, zeros: row-major
    over the blocks, or None where they are known at run time only. Raises ValueError for what has no meaning.
    """

    storage: str
    expressed: str
    scales: tuple[float, ...] | None
    zeros: tuple[int, ...] | None = (0,)
    blocks: tuple[tuple[int, int], ...] = ()
    low: int | None = None
    high: int | None = None

    def __post_init__(self) -> None:
        if not (is_integer(self.storage) or self.storage.startswith("f8")):
            raise ValueError(f"stores {self.storage}; numbers are stored as integers or 8-bit floats")
        if not is_float(self.expressed):
            raise ValueError(f"stands for {self.expressed}, which is not a float type")
        if len({d for d, _ in self.blocks}) != len(self.blocks) or any(d < 0 or n < 1 for d, n in self.blocks):
            raise ValueError(f"has blocks {dict(self.blocks)}; each dimension has one block of at least 1")
        for scale in self.scales or ():
            if not (math.isfinite(scale) and scale > 0):
                raise ValueError(f"has the scale {scale}; scales are positive and finite")
        low, high = self.range
        if not low < high:
            raise ValueError(f"stores numbers from {low} to {high}")
        if is_float(self.storage):
            low = high = 0
        elif not limits(self.storage)[0] <= low < high <= limits(self.storage)[1]:
            raise ValueError(f"stores {low} to {high}, which {self.storage} does not hold")
        for zero in self.zeros or ():
            if not low <= zero <= high:
                raise ValueError(f"has the zero point {zero}, which is not stored ({low} to {high})")

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest stored number."""
        low, high = limits(self.storage)
        return (low if self.low is None else self.low), (high if self.high is None else self.high)

    @property
    def narrowed(self) -> bool:
        """Whether the storage type has numbers that are not stored."""
        return self.range != limits(self.storage)

    @property
    def symmetric(self) -> bool:
        """Whether 0 stands for 0 everywhere."""
        return self.zeros is not None and not any(self.zeros)

    def grid(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How many blocks a tensor of a shape has along each dimension of `blocks`. Raises ValueError where it has no
        whole number of them, or not as many as there are scales."""
        for d, n in self.blocks:
            if d >= len(shape) or shape[d] % n:
                raise ValueError(f"{list(shape)} has no whole number of blocks of {n} along dimension {d}")
        found = tuple(shape[d] // n for d, n in self.blocks)
        if self.scales is not None and len(self.scales) != size(found):
            raise ValueError(f"{list(shape)} has {size(found)} blocks, and {len(self.scales)} scales are given")
        return found

    def check_scales(self) -> None:
        """Raises ValueError for a scale that the type of the numbers does not hold: they would be 0 or infinite."""
        least, most = smallest(self.expressed), limits(self.expressed)[1]
        for scale in self.scales or ():
            if not least <= scale <= most:
                raise ValueError(f"has the scale {scale}, which {self.expressed} does not hold")

    def quotients(self, target: QuantizedFacts) -> list[float]:
        """What numbers in units of these scales are multiplied by to be in those of `target`, for each block of the one
        that has blocks. Both know their scales."""
        assert self.scales is not None and target.scales is not None
        many = max(len(self.scales), len(target.scales))
        mine, theirs = (q * (many // len(q)) for q in (self.scales, target.scales))
        return [a / b for a, b in zip(mine, theirs, strict=True)]

    def moved(self, place: Callable[[int], int]) -> QuantizedFacts:
        """The same where each dimension d with blocks has become `place(d)`. Raises ValueError where several scales
        change their order for it."""
        order = sorted(range(len(self.blocks)), key=lambda i: place(self.blocks[i][0]))
        if order != list(range(len(order))) and self.scales is not None:
            raise ValueError("changes the order of dimensions along which scales differ")
        return replace(self, blocks=tuple((place(self.blocks[i][0]), self.blocks[i][1]) for i in order))


@irdl_attr_definition
class QuantizedType(Data[QuantizedFacts], TypeAttribute, StoredAs):
    """An element type of numbers that are stored as others: see `dialects/quantized.py`."""

    name = "graph.quantized"

    @staticmethod
    def of(
        storage: str,
        expressed: str,
        scales: float | Sequence[float] | None,
        zeros: int | Sequence[int] | None = 0,
        blocks: Sequence[tuple[int, int]] = (),
        low: int | None = None,
        high: int | None = None,
    ) -> QuantizedType:
        """One with these facts; scales None: known at run time. Raises ValueError for what has no meaning."""
        many = scales if scales is None or isinstance(scales, Sequence) else (scales,)
        zero = zeros if zeros is None or isinstance(zeros, Sequence) else (zeros,)
        if many is not None and zero is not None and len(zero) == 1:
            zero = (zero[0],) * len(many)
        made = QuantizedFacts(
            storage,
            expressed,
            None if many is None else tuple(map(float, many)),
            None if zero is None else tuple(map(int, zero)),
            tuple(sorted((int(d), int(n)) for d, n in blocks)),
            low,
            high,
        )
        return QuantizedType(made if made.narrowed else replace(made, low=None, high=None))

    @property
    def storage(self) -> Attribute:
        return element_type(self.data.storage)

    @property
    def expressed(self) -> Attribute:
        return element_type(self.data.expressed)

    def moved(self, place: Callable[[int], int]) -> QuantizedType:
        """The element type where dimensions have become others (`QuantizedFacts.moved`)."""
        return QuantizedType(self.data.moved(place)) if self.data.blocks else self

    # -- text ------------------------------------------------------------------------------------------------

    def print_parameter(self, printer: Printer) -> None:
        q = self.data
        storage = f"{q.storage}<{q.range[0]}:{q.range[1]}>" if q.narrowed else q.storage
        head = f"<{storage}:{q.expressed}"
        if len(q.blocks) == 1 and q.blocks[0][1] == 1:
            head += f":{q.blocks[0][0]}"
        elif q.blocks:
            head += ":{" + ", ".join(f"{d}:{n}" for d, n in q.blocks) + "}"
        printer.print_string(f"{head}, {self._numbers()}>")

    def _numbers(self) -> str:
        q = self.data
        if q.scales is None:
            zero = "?" if q.zeros is None else ", ".join(map(str, q.zeros)) if any(q.zeros) else ""
            return f"?:{zero}" if zero else "?"
        zeros = q.zeros or (0,)
        zeros = zeros if len(zeros) == len(q.scales) else zeros * len(q.scales)
        pairs = [_scale(s) + (f":{z}" if z else "") for s, z in zip(q.scales, zeros, strict=True)]
        return "{" + ", ".join(pairs) + "}" if q.blocks else pairs[0]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> QuantizedFacts:
        with parser.in_angle_brackets():
            storage = _dtype(parser)
            low = high = None
            if parser.parse_optional_punctuation("<") is not None:
                low = parser.parse_integer()
                parser.parse_punctuation(":")
                high = parser.parse_integer()
                parser.parse_punctuation(">")
            parser.parse_punctuation(":")
            expressed = _dtype(parser)
            blocks: list[tuple[int, int]] = []
            if parser.parse_optional_punctuation(":") is not None:
                axis = parser.parse_optional_integer(allow_boolean=False)
                if axis is not None:
                    blocks = [(axis, 1)]
                else:
                    blocks = parser.parse_comma_separated_list(
                        parser.Delimiter.BRACES, lambda: _pair(parser, parser.parse_integer)
                    )
            parser.parse_punctuation(",")
            scales, zeros = _numbers(parser, bool(blocks))
        try:
            made = QuantizedType.of(storage, expressed, scales, zeros, blocks, low, high).data
            made.check_scales()
            return made
        except ValueError as error:
            parser.raise_error(f"a quantized type {error}")


def _dtype(parser: AttrParser) -> str:
    return dtype_name(parser.parse_type())


def _pair(parser: AttrParser, second: Callable[[], Any]) -> tuple[int, Any]:
    first = parser.parse_integer()
    parser.parse_punctuation(":")
    return first, second()


def _numbers(parser: AttrParser, several: bool) -> tuple[list[float] | None, list[int] | None]:
    """Scales and zero points."""

    def zero() -> int:
        return parser.parse_integer() if parser.parse_optional_punctuation(":") is not None else 0

    if parser.parse_optional_punctuation("?") is not None:
        if parser.parse_optional_punctuation(":") is None:
            return None, [0]
        return None, None if parser.parse_optional_punctuation("?") is not None else [parser.parse_integer()]
    if not several:
        scale = float(parser.parse_number())
        return [scale], [zero()]
    pairs = list(_flattened(parser, lambda: (float(parser.parse_number()), zero())))
    return [s for s, _ in pairs], [z for _, z in pairs]


def _flattened(parser: AttrParser, number: Callable[[], tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """The numbers of a list, in nested braces or not."""
    parser.parse_punctuation("{")
    while True:
        nested = parser.parse_optional_punctuation("{") is not None
        if nested:
            yield number()
            while parser.parse_optional_punctuation(",") is not None:
                yield number()
            parser.parse_punctuation("}")
        else:
            yield number()
        if parser.parse_optional_punctuation(",") is None:
            break
    parser.parse_punctuation("}")


def _scale(value: float) -> str:
    """A scale, to the last digit, as the parser takes it."""
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def quantized(value_type: Attribute) -> QuantizedType | None:
    """The quantized element type of a tensor type; None where it has another."""
    element = getattr(value_type, "element_type", None)
    return element if type(element) is QuantizedType else None
