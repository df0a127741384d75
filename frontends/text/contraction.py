"""`@` and `einsum`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from ...dialects.dtypes import tensor
from ...dialects.graph import ContractOp
from ...dialects.graph.interface import element_of, shape_of
from .builder import BOOLEAN, Builder, shape_text, type_text
from .diagnostics import Problem

Tensor = SSAValue


def matmul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """`x @ y` as in numpy: the last dimension of x with the one before the last of y, the others broadcast."""
    element = _element(b, "@", x, y)
    left, right = shape_of(x), shape_of(y)
    if not left or not right:
        raise Problem(
            "`@` needs at least one dimension on both sides", _both(x, y), help="for a product write `*`"
        )
    inner = len(right) - 2 if len(right) > 1 else 0
    if left[-1] != right[inner]:
        raise Problem(
            "the sides of `@` do not fit",
            _both(x, y),
            [
                f"the last dimension of the left side is {left[-1]}, dimension {inner} of the right is {right[inner]}"
            ],
            _transposed(left, right, inner),
        )
    batch = max(len(left), len(right)) - 2
    if len(right) <= 2 or len(left) < 2:
        if (
            len(left) < 2 < len(right)
        ):  # a row with a stack of matrices: the result's dimensions come from the right
            return b.emit(
                ContractOp,
                [y, x],
                [tensor([*right[:inner], *right[inner + 1 :]], element)],
                lhs_batch=[],
                rhs_batch=[],
                lhs_contract=[inner],
                rhs_contract=[0],
            )[0]
        return _contract(b, x, y, [], [], [len(left) - 1], [inner])
    if len(left) == 2:
        x = b.broadcast(x, [*right[:-2], *left])
    shape = _batch(x, y)
    x = b.broadcast(x, [*shape, *left[-2:]])
    y = b.broadcast(y, [*shape, *right[-2:]])
    dims = list(range(batch))
    return _contract(b, x, y, dims, dims, [batch + 1], [batch])


def _batch(x: Tensor, y: Tensor) -> list[int]:
    left, right = shape_of(x)[:-2], shape_of(y)[:-2]
    rank = max(len(left), len(right))
    out = []
    for m, n in zip(
        [1] * (rank - len(left)) + list(left), [1] * (rank - len(right)) + list(right), strict=True
    ):
        if m != n and 1 not in (m, n):
            raise Problem(
                "the batch dimensions of `@` do not fit", _both(x, y), [f"{shape_text(left)} and {shape_text(right)}"]
            )
        out.append(n if m == 1 else m)
    return out


def _transposed(left: Sequence[int], right: Sequence[int], inner: int) -> str:
    if len(right) > 1 and left[-1] == right[-1]:
        order = [*range(len(right) - 2), len(right) - 1, len(right) - 2]
        return f"the right side would fit transposed: `transpose(y, perm={order})`"
    return ""


def _both(x: Tensor, y: Tensor) -> str:
    return f"{type_text(x.type)} and {type_text(y.type)}"


def _element(b: Builder, called: str, *tensors: Tensor) -> Attribute:
    element = b.common(called, tensors)
    if element == BOOLEAN:
        raise Problem(f"`{called}` is for numbers, not i1", help="convert with `as`")
    return element


def _contract(
    b: Builder,
    x: Tensor,
    y: Tensor,
    lhs_batch: Sequence[int],
    rhs_batch: Sequence[int],
    lhs: Sequence[int],
    rhs: Sequence[int],
) -> Tensor:
    return b.infer(
        ContractOp,
        [x, y],
        [tensor([], element_of(x))],
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        lhs_contract=lhs,
        rhs_contract=rhs,
    )[0]


def einsum(b: Builder, spec: str, *xs: Tensor) -> Tensor:
    """Einstein's sum: `einsum("bik,bkj->bij", x, y)`; operands are contracted from left to right."""
    match = re.fullmatch(r"([a-zA-Z]*(?:,[a-zA-Z]*)*)->([a-zA-Z]*)", spec.replace(" ", ""))
    if match is None:
        raise Problem(f'cannot read the einsum "{spec}"', help='write it as "bik,bkj->bij"', argument=0)
    inputs, out = match[1].split(","), match[2]
    if len(inputs) != len(xs):
        raise Problem(f"the einsum names {len(inputs)} operands, but {len(xs)} are given", argument=0)
    _element(b, "einsum", *xs)
    sizes: dict[str, int] = {}
    for i, (letters, x) in enumerate(zip(inputs, xs, strict=True), 1):
        if len(letters) != len(shape_of(x)):
            raise Problem(f'"{letters}" does not name the dimensions of {type_text(x.type)}', argument=i)
        if len(set(letters)) != len(letters):
            raise Problem(
                f'"{letters}" names a dimension twice', help="multiply by a mask and sum instead", argument=0
            )
        for letter, n in zip(letters, shape_of(x), strict=True):
            if sizes.setdefault(letter, n) != n:
                raise Problem(f"`{letter}` of the einsum is {sizes[letter]} and {n}", argument=i)
    missing = [c for c in out if c not in sizes] or [c for c, n in Counter(out).items() if n > 1]
    if missing:
        raise Problem(
            f"the einsum's result has `{missing[0]}` which is not there once on the left", argument=0
        )
    letters, x = inputs[0], xs[0]
    for i in range(1, len(xs)):
        later = set(out).union(*inputs[i + 1 :])
        last = i == len(xs) - 1
        # as JAX does: the operands change places unless their order gives the result's own
        if last and not _in_order(letters, inputs[i], out):
            letters, x = _pair(b, inputs[i], xs[i], letters, x, later)
        else:
            letters, x = _pair(b, letters, x, inputs[i], xs[i], later)
    x, letters = _summed(b, x, letters, set(out))
    return b.transpose(x, [letters.index(c) for c in out])


def _in_order(left: str, right: str, out: str) -> bool:
    """Whether contracting in this order gives the dimensions of `out` in order."""
    batch = [c for c in left if c in right and c in out]
    free = [c for c in left + right if c not in batch and c in out]
    return [*batch, *free] == list(out)


def _pair(b: Builder, left: str, x: Tensor, right: str, y: Tensor, later: set[str]) -> tuple[str, Tensor]:
    x, left = _summed(b, x, left, later | set(right))
    y, right = _summed(b, y, right, later | set(left))
    shared = [c for c in left if c in right]
    batch, inner = [c for c in shared if c in later], [c for c in shared if c not in later]
    out = _contract(
        b,
        x,
        y,
        [left.index(c) for c in batch],
        [right.index(c) for c in batch],
        [left.index(c) for c in inner],
        [right.index(c) for c in inner],
    )
    free = [c for c in left + right if c not in shared]
    return "".join([*batch, *free]), out


def _summed(b: Builder, x: Tensor, letters: str, needed: set[str]) -> tuple[Tensor, str]:
    """x without the dimensions that nothing else needs."""
    axes = [i for i, c in enumerate(letters) if c not in needed]
    return b.reduce(x, "sum", axes, False), "".join(c for c in letters if c in needed)
