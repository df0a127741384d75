"""The products of a program by name, and which of its arguments are weights.

A product is called as the argument that its weights are made from, `params['conv1_w']`, and where several are, with a
number behind: `params['embed']#2`. @main says the paths and the weights among its arguments:

    func.func @main(%w: tensor<64x10xf32> {graph.path = "params['w']", graph.weight}, %x: tensor<8x64xf32>)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialects.base import node_of, to_ints
from ...dialects.dtypes import is_float
from ...dialects.graph import ELEMENTWISE, ConstantOp, ContractOp, ConvOp, DynamicSliceOp
from ...dialects.graph.control import WhileOp, YieldOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.module import find_main
from ..errors import PassError
from .integer_products import MOVES

PATH = "graph.path"
WEIGHT = "graph.weight"

Product = ContractOp | ConvOp


@dataclass(frozen=True)
class NamedProduct:
    """A product with weights. weight: which of its operands they are, 0 or 1; root: the argument or the constant that
    they are made from."""

    name: str
    op: Product
    weight: int
    root: SSAValue

    @property
    def weights(self) -> SSAValue:
        return self.op.operands[self.weight]

    @property
    def input(self) -> SSAValue:
        return self.op.operands[1 - self.weight]


def main_function(module: ModuleOp) -> FuncOp:
    """@main of a module. Raises PassError where there is none."""
    main = find_main(module)
    if main is None:
        raise PassError("the program has no function @main")
    return main


def _attributes(main: FuncOp) -> list[dict[str, object]]:
    if main.arg_attrs is None:
        return [{} for _ in main.function_type.inputs]
    return [dict(attrs.data) for attrs in main.arg_attrs]


def name_arguments(module: ModuleOp, paths: Sequence[str]) -> None:
    """Says what the arguments of @main are called; the last ones may have no names."""
    main = main_function(module)
    attributes = _attributes(main)
    made = [{**attrs, PATH: StringAttr(path)} for attrs, path in zip(attributes, paths, strict=False)]
    made += attributes[len(made) :]
    main.arg_attrs = ArrayAttr([DictionaryAttr(attrs) for attrs in made])  # pyright: ignore[reportArgumentType]


def paths_of(module: ModuleOp) -> list[str]:
    """What the arguments of @main are called; where it does not say, as they are in its text, or by number."""
    main = main_function(module)
    out = []
    for i, (arg, attrs) in enumerate(zip(main.body.block.args, _attributes(main), strict=True)):
        path = attrs.get(PATH)
        out.append(path.data if isinstance(path, StringAttr) else arg.name_hint or f"arg{i}")
    return out


def mark_weights(module: ModuleOp, patterns: Sequence[str] | None = None) -> list[bool]:
    """Says which arguments of @main are weights: those whose path, or the argument that they are part of, fits a
    pattern; without patterns those that the program says, or else those that are the right side of a product, with all
    that is in the same argument. Raises PassError for a pattern that no argument fits."""
    main = main_function(module)
    paths, attributes = paths_of(module), _attributes(main)
    if patterns is None:
        flags = [WEIGHT in attrs for attrs in attributes]
        if not any(flags):
            flags = _guessed(main, paths)
    else:
        flags = [any(_fits(path, p) for p in patterns) for path in paths]
        for p in patterns:
            if not any(_fits(path, p) for path in paths):
                raise PassError(
                    f"weights: no argument is called {p!r}; they are {', '.join(paths) or 'none'}"
                )
    kept = [{k: v for k, v in attrs.items() if k != WEIGHT} for attrs in attributes]
    made = [{**a, WEIGHT: UnitAttr()} if flag else a for a, flag in zip(kept, flags, strict=True)]
    if any(made):
        main.arg_attrs = ArrayAttr([DictionaryAttr(a) for a in made])  # pyright: ignore[reportArgumentType]
    return flags


def weight_patterns(paths: Sequence[str], flags: Sequence[bool]) -> tuple[str, ...]:
    """The shortest patterns of the arguments that are weights: of those that are so as a whole, and the paths of
    others."""
    parts = {_argument(path) for path, flag in zip(paths, flags, strict=True) if not flag}
    found = (path for path, flag in zip(paths, flags, strict=True) if flag)
    return tuple(dict.fromkeys(p if _argument(p) in parts else _argument(p) or p for p in found))


def _fits(path: str, pattern: str) -> bool:
    return path == pattern or _argument(path) == pattern or fnmatchcase(path, re.sub(r"\[", "[[]", pattern))


def _argument(path: str) -> str:
    """The argument that a path is in: `params` of `params['w']`."""
    return re.split(r"[.\[]", path)[0]


def _guessed(main: FuncOp, paths: Sequence[str]) -> list[bool]:
    """The arguments that are the right side of a product and never the left one, and those beside them."""
    sides: list[set[SSAValue]] = [set(), set()]
    for op in main.walk():
        if isinstance(op, (ContractOp, ConvOp)):
            for side, operand in zip(sides, op.operands, strict=True):
                side.add(source_of_moves(operand))
    found = [arg in sides[1] and arg not in sides[0] for arg in main.body.block.args]
    whole = {_argument(path) for path, flag in zip(paths, found, strict=True) if flag}
    taken = {_argument(p) for p, arg in zip(paths, main.body.block.args, strict=True) if arg in sides[0]}
    return [flag or _argument(p) in whole - taken for p, flag in zip(paths, found, strict=True)]


def source_of_moves(value: SSAValue) -> SSAValue:
    """What elements come from: through conversions between floats, through ops that move elements, and through loops
    that hand them on."""
    while True:
        op = value.owner
        if isinstance(op, (*MOVES, DynamicSliceOp)) or (
            isinstance(op, ELEMENTWISE["convert"]) and is_float(element_of(op.operands[0]))
        ):
            value = op.operands[0]
        elif isinstance(value, BlockArgument) and (handed := _handed_on(value)) is not None:
            value = handed
        else:
            return value


def _handed_on(value: BlockArgument) -> SSAValue | None:
    """What a loop starts with for an argument of its body that it hands on as it is."""
    loop = value.block.parent_op()
    if not isinstance(loop, WhileOp):
        return None
    end = loop.body.block.last_op
    assert isinstance(end, YieldOp)
    if end.values[value.index] is not loop.body.block.args[value.index]:
        return None
    return loop.inits[value.index]


def weight_values(main: FuncOp, flags: Sequence[bool]) -> set[SSAValue]:
    """The values of @main's own block that depend on weights and constants alone."""
    block = main.body.block
    found: set[SSAValue] = {*(arg for arg, flag in zip(block.args, flags, strict=True) if flag)}
    for op in block.ops:
        if isinstance(op, ReturnOp) or op.regions:
            continue
        if all(v in found for v in op.operands) and (op.operands or isinstance(op, ConstantOp)):
            found.update(op.results)
    return found


def named_products(module: ModuleOp, flags: Sequence[bool]) -> list[NamedProduct]:
    """The products of @main, and of loops in it, of which one side is weights: in the order of the program,
    called as the argument that these are made from, or as the node of a model whose weights are constants."""
    main = main_function(module)
    names: dict[SSAValue, str] = dict(zip(main.body.block.args, paths_of(module), strict=True))
    weights = weight_values(main, flags)
    found: list[tuple[Product, int, SSAValue]] = []
    for op in main.walk():
        if isinstance(op, (ContractOp, ConvOp)) and is_float(element_of(op.result)):
            sides = [_comes_from(v, weights) for v in op.operands]
            if sides[0] != sides[1] and all(is_float(element_of(v)) for v in op.operands):
                which = int(sides[1])
                found.append((op, which, _root(op.operands[which])))
    bases = [names.get(root) or node_of(op) or "constant" for op, _, root in found]
    counts, out = Counter[str](), []
    for base, (op, which, root) in zip(bases, found, strict=True):
        counts[base] += 1
        out.append(NamedProduct(f"{base}#{counts[base]}" if counts[base] > 1 else base, op, which, root))
    return out


def _comes_from(value: SSAValue, weights: set[SSAValue]) -> bool:
    return value in weights or source_of_moves(value) in weights


def _root(value: SSAValue) -> SSAValue:
    """The argument or constant that weights are made from: of several, the one of most dimensions, the first."""
    seen, pending, found = {value}, [value], list[SSAValue]()
    while pending:
        at = source_of_moves(pending.pop())
        if isinstance(at.owner, Operation) and at.owner.operands:
            fresh = [v for v in at.owner.operands if v not in seen]
            seen.update(fresh)
            pending += fresh
        else:
            found.append(at)
    args = [v for v in found if isinstance(v, BlockArgument)]
    return max(args or found, key=lambda v: len(shape_of(v)))


def kept_dims(product: NamedProduct) -> list[int]:
    """The dimensions of a product's weights that are not summed."""
    op = product.op
    if isinstance(op, ContractOp):
        summed = to_ints(op.rhs_contract if product.weight else op.lhs_contract)
        return [d for d in range(len(shape_of(product.weights))) if d not in summed]
    return [to_ints(op.rhs_layout)[1]]


def free_dims(product: NamedProduct) -> list[int]:
    """The dimensions of a product's weights that become features of the result, in the order of `feature_dims`."""
    op = product.op
    return op.free_dims()[product.weight] if isinstance(op, ContractOp) else kept_dims(product)


def summed_dims(product: NamedProduct) -> tuple[list[int], list[int]]:
    """The dimensions of the input and of the weights that are summed; of a convolution those of the input features."""
    op = product.op
    if isinstance(op, ContractOp):
        sides = [[*to_ints(op.lhs_contract)], [*to_ints(op.rhs_contract)]]
        return sides[1 - product.weight], sides[product.weight]
    return [to_ints(op.lhs_layout)[1]], [to_ints(op.rhs_layout)[0]]


def feature_dims(product: NamedProduct) -> list[int]:
    """The dimensions of the result that are those of the weights which no sum and no batch takes."""
    op = product.op
    if not isinstance(op, ContractOp):
        return [to_ints(op.out_layout)[1]]
    batch, (m, n) = len(to_ints(op.lhs_batch)), op.free_dims()
    first, count = (batch + len(m), len(n)) if product.weight else (batch, len(m))
    return [*range(first, first + count)]


def row_dims(product: NamedProduct) -> dict[int, int]:
    """The dimensions of the input that no sum takes, of a convolution that of the images, and which ones of the result
    they are."""
    op = product.op
    if not isinstance(op, ContractOp):
        return {to_ints(op.lhs_layout)[0]: to_ints(op.out_layout)[0]}
    batch = to_ints(op.lhs_batch if product.weight else op.rhs_batch)
    m, n = op.free_dims()
    free, first = (m, len(batch)) if product.weight else (n, len(batch) + len(m))
    return {d: i for i, d in enumerate(batch)} | {d: first + i for i, d in enumerate(free)}
