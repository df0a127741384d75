"""What the verifiers of several `hivm` ops share; they refuse what the vendor's refuse, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    IntegerType,
    MemRefType,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from .attributes import Enumeration

Shaped = MemRefType | TensorType


def error(op: Operation, message: str) -> VerifyException:
    """The complaint of a verifier: `'hivm.hir.vadd' needs ...`."""
    return VerifyException(f"'{op.name}' {message}")


def shape_of(value: SSAValue) -> tuple[int, ...] | None:
    """The shape of a memref or tensor; None for a scalar."""
    return value.type.get_shape() if isinstance(value.type, Shaped) else None


def element_of(value: SSAValue) -> Attribute:
    """The type of the elements of a memref or tensor, or that of a scalar."""
    return value.type.element_type if isinstance(value.type, Shaped) else value.type


def type_name(found: Attribute) -> str:
    """`f32`, `i8`, `ui16`; the signs of `si8` are those of `i8` for the vendor."""
    if isinstance(found, IntegerType):
        return ("ui" if found.signedness.data == Signedness.UNSIGNED else "i") + str(found.width.data)
    return str(found)


def space_of(value: SSAValue) -> str | None:
    """The memory space of a memref as the vendor names it: gm, ub, cbuf, ca, cb, cc."""
    return space_of_type(value.type)


def space_of_type(found: Attribute) -> str | None:
    """The memory space of the type of a memref."""
    space = found.memory_space if isinstance(found, MemRefType) else None
    return space.data if isinstance(space, Enumeration) else None


def fits(one: int, other: int) -> bool:
    """Whether two sizes of a dimension may be equal: an open one may be any."""
    return one == other or DYNAMIC_INDEX in (one, other)


def shapes_fit(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes may be equal."""
    return len(one) == len(other) and all(map(fits, one, other))


def check_elements(op: Operation, values: Iterable[SSAValue], allowed: str) -> None:
    """Refuses a value whose elements are of no type of `allowed`, names separated by spaces."""
    for value in values:
        if (name := type_name(element_of(value))) not in allowed.split():
            raise error(op, f"takes elements of {', '.join(allowed.split())}, not {name}")


def check_same_element(op: Operation, values: Sequence[SSAValue]) -> None:
    """Refuses values of different element types."""
    found = {type_name(element_of(v)) for v in values}
    if len(found) > 1:
        raise error(op, f"needs one element type, not {' and '.join(sorted(found))}")


def check_same_rank(op: Operation, values: Iterable[SSAValue]) -> None:
    """Refuses memrefs and tensors of different ranks."""
    ranks = {len(shape) for v in values if (shape := shape_of(v)) is not None}
    if len(ranks) > 1:
        raise error(op, f"needs operands of one rank, not of {' and '.join(map(str, sorted(ranks)))}")


def check_temporary(op: Operation, value: SSAValue | None) -> None:
    """Refuses a scratch buffer that is not of rank 1."""
    if value is not None and len(shape_of(value) or ()) != 1:
        raise error(op, "needs a temp_buffer of rank 1")


def check_dims(op: Operation, dims: Sequence[int], rank: int, of: str) -> None:
    """Refuses dimensions that a value of this rank does not have."""
    if not dims:
        raise error(op, f"needs {of}")
    if wrong := [d for d in dims if not 0 <= d < rank]:
        raise error(op, f"has {of} {wrong[0]}, and operands of rank {rank}")
