"""Sort and top_k. A comparator is recognised by what it computes: the order of one operand after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.ir import BlockArgument, SSAValue

from ...dialects.dtypes import is_float, shape_in, tensor
from ...dialects.graph import ELEMENTWISE, ConstantOp, ElementwiseOp, IotaOp, SortOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.shapes import Keys
from .. import bindings
from ..bindings import Op, Value
from ..walk import Rule, Walk
from .base import Results, Types, Values
from .bodies import arguments_of, on_tensors, plain_body

Tree = tuple[Any, ...] | float
"""What a scalar of a comparator is: ("argument", number), a constant, ("compare", direction, whether in total order,
operands...), or (op, operands...)."""

_LOGIC = {"stablehlo.and": "and", "stablehlo.or": "or", "stablehlo.select": "select"}


def _trees(block: Any) -> dict[Value, Tree]:
    """What the values of a block compute, of those that are such trees."""
    found: dict[Value, Tree] = {v: ("argument", i) for i, v in enumerate(block.arguments)}
    for op in block.operations:
        for result in op.results:
            tree = _tree(op, found)
            if tree is not None:
                found[result] = tree
    return found


def _tree(op: Op, found: Mapping[Value, Tree]) -> Tree | None:
    name = op.operation.name
    if name == "stablehlo.constant":
        return bindings.scalar_constant(op)
    if name != "stablehlo.compare" and name not in _LOGIC:
        return None
    parts = [found[v] if v in found else _captured(v) for v in op.operands]
    if any(part is None for part in parts):
        return None
    if name == "stablehlo.compare":
        return ("compare", bindings.direction(op), bindings.compare_type(op) == "TOTALORDER", *parts)
    return (_LOGIC[name], *parts)


def _captured(value: Value) -> Tree | None:
    """A constant from outside of the comparator."""
    op = bindings.owner(value)
    return (
        bindings.scalar_constant(op) if op is not None and op.operation.name == "stablehlo.constant" else None
    )


def _side(tree: Any) -> tuple[int, bool] | None:
    """(argument, whether zeros are made one and NaNs too, as JAX does) of what a key is compared as."""
    match tree:
        case ("argument", int(n)):
            return n, False
        case (
            "select",
            ("compare", "NE", False, ("argument", a), ("argument", b)),
            float(nan),
            ("select", ("compare", "EQ", False, ("argument", c), 0.0), 0.0, ("argument", d)),
        ) if a == b == c == d and nan != nan:
            return a, True
    return None


def _comparison(tree: Any, directions: tuple[str, ...]) -> tuple[int, str, bool, bool] | None:
    """(operand, direction, whether in total order, whether turned round) of a comparison of its two elements."""
    match tree:
        case ("compare", str(direction), bool(total), left, right) if direction in directions:
            pair = _side(left), _side(right)
            if pair[0] is None or pair[1] is None or pair[0][1] != pair[1][1]:
                return None
            (a, numbers), (b, _) = pair[0], pair[1]
            if a // 2 == b // 2 and a != b:
                return a // 2, direction, total and not numbers, a > b
    return None


def _keys(tree: Any) -> list[tuple[int, bool, bool]] | None:
    """(operand, whether descending, whether in total order) for each key of a lexicographic comparison."""
    rest: list[tuple[int, bool, bool]] = []
    same = None
    match tree:
        case ("or", first, ("and", same, second)) | ("or", ("and", same, second), first):
            found = _keys(second)
            if found is None:
                return None
            rest = found
        case _:
            first = tree
    less = _comparison(first, ("LT", "GT"))
    if less is None:
        return None
    operand, direction, total, turned = less
    if same is not None:
        equal = _comparison(same, ("EQ",))
        if equal is None or (equal[0], equal[2]) != (operand, total):
            return None
    return [(operand, (direction == "GT") != turned, total), *rest]


def _sort(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    block = op.regions[0].blocks[0]
    (last,) = list(block.operations)[-1].operands
    keys = _keys(_trees(block).get(last))
    if keys is None:
        return _sort_by_functions(walk, op, args, types)
    return walk.emit(
        SortOp,
        args,
        types,
        dim=bindings.int_attribute(op, "dimension") % max(len(shape_in(types[0])), 1),
        keys=[k for k, _, _ in keys],
        descending=[int(down) for _, down, _ in keys],
        total=[int(total and is_float(element_of(args[k]))) for k, _, total in keys],
    )


def _sort_by_functions(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """A sort by functions of the operands' elements: they are computed once and sorted along."""
    scalars = [element_of(x) for x in args for _ in range(2)]
    found = plain_body(walk, op.regions[0], scalars)
    order = None if found is None else _order(found[1][0])
    if found is None or order is None:
        return None
    known: dict[SSAValue, SSAValue] = dict(zip(found[0].args[::2], args, strict=True))
    keys = on_tensors(walk, [key for key, _ in order], known, shape_of(args[0]))
    made = walk.emit(
        SortOp,
        [*args, *keys],
        [*types, *(k.type for k in keys)],
        dim=bindings.int_attribute(op, "dimension") % max(len(shape_of(args[0])), 1),
        keys=[len(args) + i for i in range(len(keys))],
        descending=[int(down) for _, down in order],
        total=[0] * len(keys),
    )
    return made[: len(args)]


def _order(value: SSAValue) -> list[tuple[SSAValue, bool]] | None:
    """(what the first element is compared by, whether descending) for each key of a lexicographic comparison."""
    op = value.owner
    if isinstance(op, ELEMENTWISE["or"]):
        for first, second in (tuple(op.operands), tuple(reversed(op.operands))):
            less, both = _order(first), second.owner
            if less is None or len(less) != 1 or not isinstance(both, ELEMENTWISE["and"]):
                continue
            for same, rest in (tuple(both.operands), tuple(reversed(both.operands))):
                equal = isinstance(same.owner, ELEMENTWISE["eq"]) and _compared(*same.owner.operands)
                further = _order(rest)
                if equal and further is not None and _alike(equal[0], less[0][0], 0):
                    return [*less, *further]
        return None
    if not isinstance(op, ELEMENTWISE["lt"] | ELEMENTWISE["gt"]):
        return None
    found = _compared(*op.operands)
    return None if found is None else [(found[0], isinstance(op, ELEMENTWISE["gt"]) != found[1])]


def _compared(left: SSAValue, right: SSAValue) -> tuple[SSAValue, bool] | None:
    """(a function of first elements, whether turned round) where both sides are it, of first and of second ones."""
    if not _alike(left, right, 1):
        return None
    for side, turned in ((left, False), (right, True)):
        arguments = arguments_of(side)
        if arguments and all(i % 2 == 0 for i in arguments):
            return side, turned
    return None


def _alike(a: SSAValue, b: SSAValue, swap: int) -> bool:
    """Whether two scalars of a body are the same function: of the same elements, or, where `swap` is 1, of the other
    ones."""
    if isinstance(a, BlockArgument) and isinstance(b, BlockArgument) and a.owner is b.owner:
        return a.index ^ swap == b.index
    first, second = a.owner, b.owner
    if isinstance(first, ConstantOp) and isinstance(second, ConstantOp):
        return first.value == second.value
    if not isinstance(first, ElementwiseOp) or not isinstance(second, ElementwiseOp):
        return a is b
    if type(first) is type(second) and a.type == b.type:
        return all(_alike(x, y, swap) for x, y in zip(first.operands, second.operands, strict=True))
    return False


def _top_k(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return largest(walk, args[0], types, bindings.int_attribute(op, "k"))


def largest(walk: Walk, x: SSAValue, types: Types, k: int) -> Results:
    """The first k of a descending sort with places; among equals the lower place comes first."""
    _, index = types
    shape = shape_of(x)
    dim = len(shape) - 1
    (places,) = walk.emit(IotaOp, [], [tensor(shape, index.element_type)], dim=dim)
    order = Keys([0], [1], [int(is_float(element_of(x)))])
    return walk.emit(
        SortOp,
        [x, places],
        types,
        dim=dim,
        keep=k,
        keys=order.operands,
        descending=order.descending,
        total=order.total,
    )


RULES: dict[str, Rule] = {"stablehlo.sort": _sort, "chlo.top_k": _top_k}
ON_COMPLEX: dict[str, Rule] = {"stablehlo.sort": _sort}
"""Complex numbers are sorted by functions of them, or along."""
