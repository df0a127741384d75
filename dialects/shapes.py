"""Which shapes fit together in ops that the tile and npu levels share; each check raises VerifyException."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, i32
from xdsl.ir import Attribute

from .base import FormattedOp, integer, to_ints
from .dtypes import itemsize, same_width, size
from .elementwise import REDUCTIONS, SCATTERS, Function
from .sparsity import INDEXED, KEPT_OF

Shape = Sequence[int]


def check_offsets(op: FormattedOp, indices: int) -> None:
    """`offsets` holds whole rows: a coefficient for each index and a constant."""
    attr = op.properties.get("offsets")
    assert attr is None or isinstance(attr, DenseArrayBase)
    if len(to_ints(attr)) % (indices + 1):
        raise op.error(f"needs rows of {indices + 1} numbers in offsets")


def check_lanes(op: FormattedOp, result: Shape, operands: Sequence[Shape], columns: bool = False) -> None:
    """Elementwise operands have the result's shape or hold one element for all lanes; one of two may be a row, or a
    column with `columns`."""
    for shape in operands:
        same = tuple(shape) == tuple(result) or size(shape) == 1
        repeated = is_row_of(shape, result) or (columns and is_column_of(shape, result))
        if len(shape) != len(result) or not (same or (len(operands) == 2 and repeated)):
            raise op.error(f"operand of shape {list(shape)} does not match the result's {list(result)}")
    wide = [tuple(shape) for shape in operands if size(shape) != 1]
    if wide and size(result) > 1 and tuple(map(max, zip(*wide, strict=True))) != tuple(result):
        raise op.error("repeats a row, and needs another operand that has all rows")


def is_row_of(shape: Shape, result: Shape) -> bool:
    """Whether a shape is one row of several that a result has: the last dimension is the same, others have size 1."""
    return (
        len(shape) == len(result)
        and tuple(shape) != tuple(result)
        and shape[-1:] == result[-1:]
        and size(shape) == shape[-1] != 1
    )


def is_column_of(shape: Shape, result: Shape) -> bool:
    """Whether a shape is a column of several that a result has: the last dimension has size 1, others are the same."""
    return (
        len(shape) == len(result)
        and tuple(shape) != tuple(result)
        and shape[-1:] == (1,)
        and tuple(shape[:-1]) == tuple(result[:-1])
        and size(shape) != 1
    )


def check_bits(op: FormattedOp, function: Function, operand: Attribute, result: Attribute) -> None:
    """A function that takes bits of one type for those of another keeps their number."""
    if function.result == "bits":
        try:
            same_width(operand, result)
        except ValueError as error:
            raise op.error(str(error)) from None


class RowType(Protocol):
    """The type of what each column of a product has: a buffer or a tile."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def space(self) -> str: ...

    def dtype(self) -> str: ...


class ArrayType(Protocol):
    """The type of a buffer or a tile."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def element(self) -> Attribute: ...


def check_scaled(
    op: FormattedOp,
    factor: FloatAttr | None,
    zero: IntegerAttr | None,
    matrix: Shape,
    scales: Sequence[RowType],
) -> None:
    """What accumulators are multiplied by is a number, or one for each column in fb, and a zero point goes with it."""
    for row in scales:
        check_row(op, "scales", "fb", matrix, row)
    if len(scales) > 1 or (scales and factor is not None):
        raise op.error("scales by two things: by a factor, or by one row of scales")
    if scales:
        return
    if factor is None:
        if zero is not None:
            raise op.error("adds a zero point to what it does not scale")
    elif not math.isfinite(factor.value.data) or not factor.value.data:
        raise op.error(f"scales by {factor.value.data}")


ROUNDINGS = ("even", "odd")
"""Rules of conversions: to the nearest integer, halves to the even one; to a narrower float whose last bit says whether
anything was lost."""


def check_rounding(op: FormattedOp, mode: str, shapes: tuple[Shape, Shape], types: tuple[str, str]) -> None:
    """A tile is rounded to one of its shape: floats to integers, or to floats of fewer bits."""
    source, out = types
    if mode not in ROUNDINGS:
        raise op.error(f"rounds to {mode!r}, which is not one of {', '.join(ROUNDINGS)}")
    if tuple(shapes[0]) != tuple(shapes[1]):
        raise op.error(f"rounds {list(shapes[0])} elements to {list(shapes[1])}")
    if mode == "even" and not (source[0] in "fb" and out[0] in "iu" and out != "i1"):
        raise op.error(f"rounds {source} to {out}: to even, floats become integers")
    if mode == "odd" and (source, out) != ("f32", "f16"):
        raise op.error(f"rounds {source} to {out}: to odd, f32 becomes f16")


def check_product(
    op: FormattedOp, steps: int, matrices: Sequence[RowType], others: Sequence[RowType]
) -> None:
    """acc = a x b at one step of a sum: matrices are a, b and acc; others are in l0b the positions of the values of a
    sparse b, in bt the bias that acc begins as."""
    spaces = tuple(v.space for v in matrices)
    if spaces != ("l0a", "l0b", "l0c"):
        raise op.error(f"needs operands in l0a, l0b, l0c, got {', '.join(spaces)}")
    a, b, acc = matrices
    indices = [v for v in others if v.space == "l0b"]
    check_matmul(op, steps, a.shape, _dense(op, b, indices), acc.shape)
    check_bias(op, acc, [v for v in others if v.space != "l0b"])


def _dense(op: FormattedOp, b: RowType, indices: Sequence[RowType]) -> Shape:
    """The shape that a right side stands for."""
    if len(indices) > 1:
        raise op.error(f"has one index of a sparse matrix at most, not {len(indices)}")
    if not indices:
        return b.shape
    (index,) = indices
    if (b.dtype(), index.dtype()) != ("i8", "i8"):
        raise op.error(f"expands i8 by an i8 index, not {b.dtype()} by {index.dtype()}")
    rows = b.shape[0] * KEPT_OF
    if rows % INDEXED or tuple(index.shape) != (rows // INDEXED, b.shape[1]):
        raise op.error(
            f"needs an index byte for each {INDEXED // KEPT_OF} rows of {list(b.shape)}, has {list(index.shape)}"
        )
    return [rows, b.shape[1]]


def check_bias(op: FormattedOp, acc: RowType, biases: Sequence[RowType]) -> None:
    """An accumulator begins as one row in bt of its own type at most."""
    if len(biases) > 1:
        raise op.error(f"begins as one bias, not as {len(biases)}")
    for row in biases:
        check_row(op, "bias", "bt", acc.shape, row)
        if row.dtype() != acc.dtype():
            raise op.error(f"begins {acc.dtype()} accumulators as a bias of {row.dtype()}")


def check_row_move(op: FormattedOp, source: RowType, row: RowType, sizes: Shape, offsets: int) -> None:
    """A box of l1 becomes a row in bt or fb."""
    if source.space != "l1" or row.space not in ("bt", "fb"):
        raise op.error(f"moves l1 to bt or fb, not {source.space} to {row.space}")
    check_box(op, source.shape, sizes, offsets)
    if tuple(row.shape) != (1, size(sizes)):
        raise op.error(f"moves {size(sizes)} elements into {list(row.shape)}")


def check_handed_on(op: FormattedOp, sums: RowType, operand: RowType) -> None:
    """All sums in l0c become a matrix of as many rows and columns in l1."""
    if (sums.space, operand.space) != ("l0c", "l1"):
        raise op.error(f"drains l0c to l1, not {sums.space} to {operand.space}")
    if len(sums.shape) != 2 or tuple(sums.shape) != tuple(operand.shape):
        raise op.error(f"drains {list(sums.shape)} into {list(operand.shape)}")


def check_row(op: FormattedOp, what: str, space: str, matrix: Shape, row: RowType) -> None:
    """A row in a memory space has a number for each column of a matrix."""
    if row.space != space:
        raise op.error(f"takes its {what} from {space}, not {row.space}")
    if len(matrix) != 2 or tuple(row.shape) != (1, matrix[1]):
        raise op.error(f"needs a row of {what} for the columns of {list(matrix)}, has {list(row.shape)}")


def check_matmul(op: FormattedOp, steps: int, a: Shape, b: Shape, acc: Shape) -> None:
    """acc = a x b, at one step of a sum."""
    check_places(op, steps, 1)
    if not (len(a) == len(b) == len(acc) == 2 and a[1] == b[0] and tuple(acc) == (a[0], b[1])):
        raise op.error(f"cannot multiply {list(a)} by {list(b)} into {list(acc)}")


def transposes(load: FormattedOp) -> bool:
    """Whether a load to l0a or l0b swaps the rows and columns of its matrix."""
    found = load.properties.get("transpose")
    return found is not None and bool(integer(found))


def check_box(op: FormattedOp, shape: Shape, sizes: Shape, offsets: int) -> None:
    """A box lies within a shape and has an offset for each dimension."""
    if len(sizes) != len(shape) or any(n > s for n, s in zip(sizes, shape, strict=True)):
        raise op.error(f"box {list(sizes)} does not fit into {list(shape)}")
    check_places(op, offsets, len(shape))
    check_list_lengths(op, len(shape), "steps", "window", "window_steps")


def check_list_lengths(op: FormattedOp, rank: int, *names: str) -> None:
    """Lists among the properties, where they are there, have an entry for each dimension."""
    for name in names:
        attr = op.properties.get(name)
        assert attr is None or isinstance(attr, DenseArrayBase)
        if attr is not None and len(to_ints(attr)) != rank:
            raise op.error(f"needs {name} for each of {rank} dimensions, has {list(to_ints(attr))}")


def check_places(op: FormattedOp, given: int, wanted: int) -> None:
    """`at [...]` has as many expressions as the op wants."""
    if given != wanted:
        raise op.error(f"needs at [...] with {wanted} expression{'s' * (wanted != 1)}, has {given}")


def check_extract(
    op: FormattedOp, source: Shape, sizes: Shape, offsets: int, out: Shape, result: Attribute
) -> None:
    """A box of the source fills the result."""
    check_box(op, source, sizes, offsets)
    if size(sizes) != size(out):
        raise op.error(f"box {list(sizes)} does not fill {result}")


def check_gather(
    op: FormattedOp, source: ArrayType, places: ArrayType, out: ArrayType, block: int
) -> None:
    """One element of the source for each place, an i32; its rows fill blocks of so many bytes, or it has one row."""
    shape, element, place, given = source.shape, source.element, places.element, out.element
    if tuple(places.shape) != tuple(out.shape) or element != given:
        what = f"{list(out.shape)} of {given} from {list(shape)} of {element}"
        raise op.error(f"cannot give {what} at {list(places.shape)} places")
    if place != i32:
        raise op.error(f"takes places of i32, not {place}")
    if size(shape[:-1]) > 1 and shape[-1] * itemsize(element) % block:
        raise op.error(f"takes rows of whole blocks of {block} bytes, not of {shape[-1]} {element}")


def check_broadcast(op: FormattedOp, source: Shape, out: Shape) -> None:
    """Size-1 dimensions repeat."""
    if len(source) != len(out) or any(s not in (1, o) for s, o in zip(source, out, strict=True)):
        raise op.error(f"cannot repeat {list(source)} into {list(out)}")


def check_reduce(
    op: FormattedOp, kind: str, source: Shape, dims: Shape, out: Shape, result: Attribute
) -> None:
    """Reduced dimensions keep size 1."""
    if kind not in REDUCTIONS:
        raise op.error(f"kind {kind!r} is not one of {', '.join(REDUCTIONS)}")
    check_reduced(op, source, dims, out, result)


def check_arg_reduce(
    op: FormattedOp, kind: str, source: Shape, dim: int, outs: Sequence[tuple[Shape, Attribute]]
) -> None:
    """Value and index keep size 1 along the reduced dimension."""
    if kind not in ("max", "min"):
        raise op.error(f"kind {kind!r} is not one of max, min")
    for out, result in outs:
        check_reduced(op, source, [dim], out, result)


def check_reduced(op: FormattedOp, source: Shape, dims: Shape, out: Shape, result: Attribute) -> None:
    """The result has the source's shape, with size 1 along `dims`."""
    if any(not 0 <= d < len(source) for d in dims):
        raise op.error(f"dims {list(dims)} are outside the rank of {list(source)}")
    want = tuple(1 if d in dims else s for d, s in enumerate(source))
    if tuple(out) != want:
        raise op.error(f"should give shape {list(want)}, not {result}")


def check_counted(op: FormattedOp, source: Shape, dims: Shape, counted: DenseArrayBase | None) -> None:
    """Where only the first elements along the reduced dimensions count, there is a number for each, no more than there
    are."""
    numbers = to_ints(counted)
    if counted is None:
        return
    if len(numbers) != len(dims) or any(not 1 <= n <= source[d] for d, n in zip(dims, numbers, strict=True)):
        raise op.error(f"counts the first {list(numbers)} elements along dims {list(dims)} of {list(source)}")


def check_transpose(
    op: FormattedOp, source: Shape, perm: Shape, out: Shape, types: tuple[Attribute, Attribute]
) -> None:
    """Result dimension i is operand dimension `perm[i]`."""
    if sorted(perm) != list(range(len(source))) or tuple(out) != tuple(source[p] for p in perm):
        raise op.error(f"perm {list(perm)} of {types[0]} does not give {types[1]}")


def check_unpack(op: FormattedOp, source: RowType, out: RowType) -> None:
    """Pairs become their numbers, in f16, along the last dimension."""
    if (source.dtype(), out.dtype()) != ("i4x2", "f16"):
        raise op.error(f"unpacks i4x2 to f16, not {source.dtype()} to {out.dtype()}")
    want = (*source.shape[:-1], *(2 * n for n in source.shape[-1:]))
    if tuple(out.shape) != want or not want:
        raise op.error(f"unpacks {list(source.shape)} pairs to {list(want)} numbers, not {list(out.shape)}")


def check_iota(op: FormattedOp, shape: Shape, dim: int, starts: int, result: Attribute) -> None:
    """The counted dimension is one of the result's, and counting starts at one number."""
    if not 0 <= dim < len(shape):
        raise op.error(f"dim {dim} is outside {result}")
    check_places(op, starts, 1)


def check_mask(op: FormattedOp, source: Shape, out: Shape, offsets: int, bounds: Shape) -> None:
    """An offset and a bound for each dimension."""
    if tuple(source) != tuple(out):
        raise op.error(f"cannot mask {list(source)} into {list(out)}")
    if offsets != len(source) or len(bounds) != len(source):
        raise op.error(f"needs an offset and a bound for each of {len(source)} dimensions")


@dataclass(frozen=True)
class Keys:
    """What a sort compares by: numbers of operands, most important first, and for each whether large comes first and
    whether floats are in IEEE 754's total order (else zeros are equal, and NaNs are equal and largest)."""

    operands: Shape
    descending: Shape
    total: Shape

    def check(self, operands: int) -> None:
        """Raises ValueError unless there are keys, each with both answers, among so many operands."""
        if not self.operands or not len(self.operands) == len(self.descending) == len(self.total):
            raise ValueError("needs keys, and for each whether it is descending and in total order")
        if any(not 0 <= k < operands for k in self.operands):
            raise ValueError(f"keys {list(self.operands)} are not among {operands} operands")


def check_sort(
    op: FormattedOp, keys: Keys, sources: Sequence[Shape], outs: Sequence[Shape], work: Shape
) -> None:
    """Sorts the rows of matrices, as many as it gives; the last result is room for two lists of (key, place)."""
    try:
        keys.check(len(sources))
    except ValueError as error:
        raise op.error(str(error)) from None
    rows, n = sources[0] if sources and len(sources[0]) == 2 else (-1, -1)
    if any(tuple(s) != (rows, n) for s in sources) or len(outs) != len(sources):
        raise op.error(f"needs matrices of one shape and a result for each, got {[list(s) for s in sources]}")
    if any(len(o) != 2 or o[0] != rows or not 0 < o[1] <= n or o != outs[0] for o in outs):
        raise op.error(f"cannot give {[list(o) for o in outs]} of {[rows, n]}")
    if tuple(work) != (rows, 4 * n):
        raise op.error(f"needs {[rows, 4 * n]} words to work in, not {list(work)}")


def check_scatter(op: FormattedOp, kind: str, shapes: Sequence[Shape], starts: int) -> None:
    """Rows of updates go into rows of a target, which the result is like; elements where these have one dimension."""
    target, index, updates, out = (tuple(s) for s in shapes)
    if kind not in SCATTERS:
        raise op.error(f"kind {kind!r} is not one of {', '.join(SCATTERS)}")
    if len(index) != 1 or len(target) not in (1, 2) or updates != (*index, *target[1:]) or out != target:
        raise op.error(
            f"cannot put rows of {list(updates)} at {list(index)} into {list(target)} for {list(out)}"
        )
    check_places(op, starts, 1)


def check_cumulate(op: FormattedOp, kind: str, source: Shape, out: Shape, dim: int) -> None:
    """The result has the source's shape."""
    if kind not in REDUCTIONS:
        raise op.error(f"kind {kind!r} is not one of {', '.join(REDUCTIONS)}")
    if tuple(out) != tuple(source) or not 0 <= dim < len(source):
        raise op.error(f"cannot cumulate {list(source)} along dimension {dim} into {list(out)}")
