"""Element types: their names, sizes and numpy counterparts. i1 takes one byte in memory, as on the device."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    ComplexType,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E3M4Type,
    Float8E4M3B11FNUZType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E4M3Type,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition

from .open_sizes import any_open, is_open
from .open_text import OpenSizesAttr, filled

TYPES_KEPT = 4096
"""How many types of each kind are kept: passes ask for the same few again and again, and making one verifies it."""

_NUMPY: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8E4M3B11FNUZ": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8E4M3": np.dtype(ml_dtypes.float8_e4m3),
    "f8E3M4": np.dtype(ml_dtypes.float8_e3m4),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f6E2M3FN": np.dtype(ml_dtypes.float6_e2m3fn),
    "f6E3M2FN": np.dtype(ml_dtypes.float6_e3m2fn),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "i4": np.dtype(ml_dtypes.int4),
    "i2": np.dtype(ml_dtypes.int2),
    "ui64": np.dtype(np.uint64),
    "ui32": np.dtype(np.uint32),
    "ui16": np.dtype(np.uint16),
    "ui8": np.dtype(np.uint8),
    "ui4": np.dtype(ml_dtypes.uint4),
    "ui2": np.dtype(ml_dtypes.uint2),
    "i1": np.dtype(np.bool_),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
_NAMES = {v: k for k, v in _NUMPY.items()}


@irdl_attr_definition
class Int4PairType(ParametrizedAttribute, TypeAttribute):
    """Two whole numbers of 4 bits in a byte, the first one in its lower half: what AscendC calls int4x2_t.

    The cube multiplies pairs by pairs: the product of two is the sum of two products. Nothing else computes with them.
    """

    name = "graph.i4x2"


PAIR = Int4PairType()
"""The element type of pairs of numbers of 4 bits, `i4x2`."""

_NUMPY["i4x2"] = np.dtype(np.int8)  # no array has this type of its own: one that is found is of i8

_SIMPLE: dict[str, Attribute] = {
    "i4x2": PAIR,
    "f64": Float64Type(),
    "f32": Float32Type(),
    "f16": Float16Type(),
    "bf16": BFloat16Type(),
    "c64": ComplexType(Float32Type()),
    "c128": ComplexType(Float64Type()),
    **{
        t.name: t
        for t in (
            Float8E4M3FNType(),
            Float8E5M2Type(),
            Float8E4M3FNUZType(),
            Float8E5M2FNUZType(),
            Float8E4M3B11FNUZType(),
            Float8E4M3Type(),
            Float8E3M4Type(),
            Float8E8M0FNUType(),
            Float6E2M3FNType(),
            Float6E3M2FNType(),
            Float4E2M1FNType(),
        )
    },
}
_TYPES: dict[str, Attribute] = dict(_SIMPLE)
for _n in _NUMPY:
    if _n.startswith("ui"):
        _TYPES[_n] = IntegerType(int(_n[2:]), Signedness.UNSIGNED)
    elif _n[0] == "i" and _n not in _TYPES:
        _TYPES[_n] = IntegerType(int(_n[1:]))
_BY_TYPE = {t: n for n, t in _TYPES.items()}


class StoredAs(Attribute, ABC):
    """An element type whose values are in memory as those of another one."""

    @property
    @abstractmethod
    def storage(self) -> Attribute:
        """The element type that is in memory."""


def names() -> tuple[str, ...]:
    """Every element type that an array may have."""
    return tuple(n for n in _NUMPY if numbers_in(n) == 1)


def dtype_name(element: Attribute) -> str:
    """`f32`, `bf16`, `i8`...: the short name of an element type. Raises ValueError for one we do not know."""
    try:
        return _BY_TYPE[element]
    except KeyError:
        name = getattr(element, "name", str(element))
        if name in _NUMPY:
            return name
        raise ValueError(f"element type {element} is not supported") from None


def element_type(name: str) -> Attribute:
    """The xDSL element type called `name`. Raises ValueError if there is none."""
    if name not in _TYPES:
        raise ValueError(f"element type {name} is not supported")
    return _TYPES[name]


def numpy_dtype(element: Attribute | str) -> np.dtype:
    """The numpy counterpart of an element type, or of what it is stored as."""
    name = element if isinstance(element, str) else _BY_TYPE.get(element)
    if name is None:
        assert isinstance(element, Attribute)
        name = dtype_name(element.storage if isinstance(element, StoredAs) else element)
    return _NUMPY[name]


def name_of_numpy(dtype: np.dtype) -> str:
    return _NAMES[np.dtype(dtype)]


def itemsize(element: Attribute | str) -> int:
    """Bytes an element takes in memory."""
    return numpy_dtype(element).itemsize


def same_width(first: Attribute, second: Attribute) -> None:
    """Raises ValueError unless both element types take the same number of bits, and hold nothing but values: i1 takes
    a byte."""
    names = dtype_name(first), dtype_name(second)
    if itemsize(first) != itemsize(second) or ("i1" in names and first != second):
        raise ValueError(f"cannot take the bits of {names[0]} for those of {names[1]}: their widths differ")


def signed(element: Attribute) -> Attribute:
    """The signed integer type as wide as an unsigned one; other types as they are."""
    return element_type(dtype_name(element).removeprefix("u")) if dtype_name(element)[0] == "u" else element


COMPLEX = _SIMPLE["c64"]
"""The complex numbers that the device has, as pairs of f32."""


def part(element: Attribute) -> Attribute:
    """The element type of the real and imaginary parts of a complex one; other types as they are."""
    return element.element_type if isinstance(element, ComplexType) else element


def is_complex(element: Attribute) -> bool:
    """Whether an element type is one of complex numbers, of any width."""
    return isinstance(element, ComplexType)


def paired(kind: TensorType) -> TensorType:
    """How a tensor of complex numbers is in memory: real and imaginary parts along a new last dimension. Other tensors
    as they are."""
    if not is_complex(kind.element_type):
        return kind
    return tensor([*shape_in(kind), 2], part(kind.element_type))


def is_float(element: Attribute | str) -> bool:
    name = element if isinstance(element, str) else dtype_name(element)
    return name[0] in "fb"


def is_integer(element: Attribute | str) -> bool:
    """Whether an element type is one of whole numbers; i1 is not, nor are pairs of numbers."""
    name = element if isinstance(element, str) else dtype_name(element)
    return name not in ("i1", "i4x2") and name.lstrip("u")[0] == "i"


def numbers_in(element: Attribute | str) -> int:
    """How many numbers an element stands for: two where it is a pair."""
    return 2 if element in (PAIR, "i4x2") else 1


@lru_cache
def limits(name: str) -> tuple[float, float]:
    """The least and the largest finite number of an element type; whole numbers where it is one of these."""
    dtype = _NUMPY[name]
    if is_integer(name):
        integers = ml_dtypes.iinfo(dtype) if dtype.itemsize == 1 else np.iinfo(dtype)
        return int(integers.min), int(integers.max)
    floats = ml_dtypes.finfo(dtype)
    return float(floats.min), float(floats.max)


def smallest(name: str) -> float:
    """The smallest positive number of a float type, a denormal."""
    return float(ml_dtypes.finfo(_NUMPY[name]).smallest_subnormal)


def shape_in(kind: TensorType) -> tuple[int, ...]:
    """The shape of a tensor type; open dimensions are `OpenSize`s."""
    shape = tuple([n.data for n in kind.shape.data])
    if DYNAMIC_INDEX not in shape or not isinstance(kind.encoding, OpenSizesAttr):
        return shape
    return filled(shape, kind.encoding.data)


def tensor(shape: Sequence[int], element: Attribute) -> TensorType:
    return _tensor(tuple(shape), element)


@lru_cache(TYPES_KEPT)
def _tensor(shape: tuple[int, ...], element: Attribute) -> TensorType:
    if not any_open(shape):
        return TensorType(element, shape)
    sizes = OpenSizesAttr(tuple(n for n in shape if is_open(n)))
    return TensorType(element, [DYNAMIC_INDEX if is_open(n) else n for n in shape], sizes)


def size(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    return math.prod(shape)
