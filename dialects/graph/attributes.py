"""Constant tensor data: short when small or uniform, base64 otherwise, parsed and printed in linear time."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from ..dtypes import name_of_numpy, numpy_dtype, size
from .stored import LEAST_STORED, PREFIX, StoredBytes, who_gives, who_keeps


@dataclass(frozen=True)
class Literal:
    """A tensor value; where `splat`, `data` holds one element that fills `shape`."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | StoredBytes
    splat: bool

    @property
    def buffer(self) -> bytes | memoryview:
        """The bytes of its elements."""
        return self.data.view if isinstance(self.data, StoredBytes) else self.data

    @staticmethod
    def of(array: np.ndarray) -> Literal:
        if array.size > 1 and all(n == 1 or not step for n, step in zip(array.shape, array.strides, strict=True)):
            # one element, seen many times: it may be more than memory holds
            one = array[(slice(1),) * array.ndim]
            return Literal(name_of_numpy(array.dtype), array.shape, one.tobytes(), True)
        array = np.asarray(array, order="C")
        dtype = name_of_numpy(array.dtype)
        if array.size > 1:
            flat = array.reshape(-1)
            if flat[0] == flat[-1] and (flat == flat[0]).all() and _one_sign(flat):
                return Literal(dtype, array.shape, flat[:1].tobytes(), True)
        return Literal(dtype, array.shape, array.tobytes(), array.size == 1)

    def elements(self) -> np.ndarray:
        return np.frombuffer(self.buffer, numpy_dtype(self.dtype))

    def array(self) -> np.ndarray:
        """The value as an array of `shape`; read-only, no copy."""
        if self.splat:
            return np.broadcast_to(self.elements().reshape(()), self.shape)
        return self.elements().reshape(self.shape)


def _one_sign(flat: np.ndarray) -> bool:
    """Whether equal numbers have one sign, zeros too; complex ones in each part."""
    parts = (np.real(flat), np.imag(flat)) if flat.dtype.kind == "c" else (flat,)
    return all(np.signbit(part).all() == np.signbit(part).any() for part in parts)


@irdl_attr_definition
class DataAttr(Data[Literal]):
    """`#graph.data<f32, [2, 2], (1.0, 2.0, 3.0, 4.0)>`, `<f32, [8, 8], splat 0.0>` or `<f32, [999], "base64">`."""

    name = "graph.data"

    SMALL = 8
    """Up to this many elements are printed as numbers."""

    @staticmethod
    def of(array: np.ndarray | Sequence | float) -> DataAttr:
        return DataAttr(Literal.of(np.asarray(array)))

    def reshaped(self, shape: Sequence[int]) -> DataAttr:
        """The same elements in another shape."""
        return DataAttr(replace(self.data, shape=tuple(shape)))

    def print_parameter(self, printer: Printer) -> None:
        lit = self.data
        shape = ", ".join(map(str, lit.shape))
        head = f"<{lit.dtype}, [{shape}], "
        keep = who_keeps()
        if keep is not None and len(lit.data) >= LEAST_STORED:
            printer.print_string(f'{head}"{PREFIX}{keep(lit.dtype, lit.shape, lit.data)}">')
            return
        values = lit.elements()
        readable = lit.dtype[0] in "fiub" and (lit.splat or values.size <= self.SMALL)
        if readable and lit.dtype[0] in "fb":
            readable = bool(np.isfinite(values.astype(np.float64)).all())
        if not readable or values.size == 0:
            printer.print_string(
                f'{head}"{base64.b64encode(lit.buffer).decode()}"{" splat" if lit.splat else ""}>'
            )
            return
        numbers = [repr(v) for v in values.astype(np.float64 if lit.dtype[0] in "fb" else object).tolist()]
        if lit.dtype == "i1":
            numbers = ["1" if v else "0" for v in values]
        # the parser wants 1.0e-07 where Python writes 1e-07
        numbers = [n.replace("e", ".0e") if "e" in n and "." not in n else n for n in numbers]
        body = f"splat {numbers[0]}" if lit.splat and lit.shape else "(" + ", ".join(numbers) + ")"
        printer.print_string(f"{head}{body}>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Literal:
        with parser.in_angle_brackets():
            dtype = parser.parse_identifier()
            parser.parse_punctuation(",")
            shape = tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))
            parser.parse_punctuation(",")
            try:
                np_dtype = numpy_dtype(dtype)
            except KeyError:
                parser.raise_error(f"element type {dtype} is not supported")
            text = parser.parse_optional_str_literal()
            if text is not None:
                splat = parser.parse_optional_keyword("splat") is not None
                give = who_gives() if text.startswith(PREFIX) else None
                try:
                    found = base64.b64decode(text, validate=True) if give is None else give(text.removeprefix(PREFIX))
                except ValueError as error:
                    parser.raise_error("the data is not base64" if give is None else str(error))
                lit = Literal(dtype, shape, found, splat)
            else:
                if parser.parse_optional_keyword("splat"):
                    values, splat = [parser.parse_number()], True
                else:
                    values = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_number)
                    splat = len(values) == 1
                lit = Literal(dtype, shape, np.asarray(values).astype(np_dtype).tobytes(), splat)
            expected = 1 if lit.splat else size(shape)
            if len(lit.data) != expected * np_dtype.itemsize:
                parser.raise_error(f"data of {len(lit.data)} bytes does not fill {dtype}{list(shape)}")
            return lit
