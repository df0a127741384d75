"""Which shapes fit together in ops that the tile and npu levels share; each check raises VerifyException."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from .base import FormattedOp
from .dtypes import same_width, size
from .elementwise import REDUCTIONS, Function

Shape = Sequence[int]


def check_lanes(op: FormattedOp, result: Shape, operands: Sequence[Shape]) -> None:
    """Elementwise operands have the result's shape or hold one element for all lanes."""
    for shape in operands:
        if len(shape) != len(result) or (tuple(shape) != tuple(result) and size(shape) != 1):
            raise op.error(f"operand of shape {list(shape)} does not match the result's {list(result)}")


def check_bits(op: FormattedOp, function: Function, operand: Attribute, result: Attribute) -> None:
    """A function that takes bits of one type for those of another keeps their number."""
    if function.result == "bits":
        try:
            same_width(operand, result)
        except ValueError as error:
            raise op.error(str(error)) from None


def check_matmul(op: FormattedOp, a: Shape, b: Shape, acc: Shape) -> None:
    """acc = a x b."""
    if not (len(a) == len(b) == len(acc) == 2 and a[1] == b[0] and tuple(acc) == (a[0], b[1])):
        raise op.error(f"cannot multiply {list(a)} by {list(b)} into {list(acc)}")


def check_box(op: FormattedOp, shape: Shape, sizes: Shape) -> None:
    """A box lies within a shape."""
    if len(sizes) != len(shape) or any(n > s for n, s in zip(sizes, shape, strict=True)):
        raise op.error(f"box {list(sizes)} does not fit into {list(shape)}")


def check_extract(op: FormattedOp, source: Shape, sizes: Shape, out: Shape, result: Attribute) -> None:
    """A box of the source fills the result."""
    check_box(op, source, sizes)
    if size(sizes) != size(out):
        raise op.error(f"box {list(sizes)} does not fill {result}")


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


def check_transpose(
    op: FormattedOp, source: Shape, perm: Shape, out: Shape, types: tuple[Attribute, Attribute]
) -> None:
    """Result dimension i is operand dimension `perm[i]`."""
    if sorted(perm) != list(range(len(source))) or tuple(out) != tuple(source[p] for p in perm):
        raise op.error(f"perm {list(perm)} of {types[0]} does not give {types[1]}")


def check_iota(op: FormattedOp, shape: Shape, dim: int, result: Attribute) -> None:
    """The counted dimension is one of the result's."""
    if not 0 <= dim < len(shape):
        raise op.error(f"dim {dim} is outside {result}")


def check_mask(op: FormattedOp, source: Shape, out: Shape, offsets: int, bounds: Shape) -> None:
    """An offset and a bound for each dimension."""
    if tuple(source) != tuple(out):
        raise op.error(f"cannot mask {list(source)} into {list(out)}")
    if offsets != len(source) or len(bounds) != len(source):
        raise op.error(f"needs an offset and a bound for each of {len(source)} dimensions")
