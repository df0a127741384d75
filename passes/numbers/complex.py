"""graph-complex: complex numbers become pairs of real ones.

Before:  %r = graph.mul %x, %y : tensor<8xcomplex<f32>>
After:   %a = graph.mul %x_re, %y_re ; %b = graph.mul %x_im, %y_im ; %r_re = graph.sub %a, %b ; ...

Each value of complex<f32> becomes two of f32, through loops, branches and functions. Ops that treat the parts alike
are applied to each; functions are expanded by formulas (complex_functions.py); a product becomes four. In memory the
parts of an element are adjacent. Arguments, results and operands of host ops stay complex; `graph.view` reinterprets
them as f32 with a last dimension of 2, of which a part is every other element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FunctionType, LocationAttr, ModuleOp, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialects.base import describe, integer, integer_attr, ints, text
from ...dialects.dtypes import COMPLEX, paired, part, shape_in, tensor
from ...dialects.graph import (
    ELEMENTWISE,
    PART_OPS,
    CaseOp,
    ConcatOp,
    ConstantOp,
    ContractOp,
    ConvOp,
    DataAttr,
    ElementwiseOp,
    FusionOp,
    GraphOp,
    HostOp,
    IotaOp,
    ReshapeOp,
    SortOp,
    ViewOp,
    WhileOp,
    YieldOp,
)
from ...dialects.graph.attributes import Literal
from ...dialects.graph.interface import element_of, shape_of
from ..base import LevelPass
from ..complex_values import is_complex_tensor, is_real
from ..errors import PassError
from ..forms.tensor_builder import TensorBuilder
from .complex_functions import FORMULAS, Pair, Parts

REAL = part(COMPLEX)


@dataclass(frozen=True)
class GraphComplexPass(LevelPass):
    """Pairs of real numbers for complex ones."""

    name = "graph-complex"

    def run(self, module: ModuleOp) -> None:
        if not is_real(module):
            Splitter(module).run()


def real_type(kind: Attribute) -> TensorType:
    """The type of each part of a complex tensor; others as they are."""
    assert isinstance(kind, TensorType)
    return tensor(shape_in(kind), REAL) if is_complex_tensor(kind) else kind


def flat_types(kinds: Sequence[Attribute]) -> list[Attribute]:
    """Types with those of both parts in place of complex ones."""
    return [real_type(k) for k in kinds for _ in range(1 + is_complex_tensor(k))]


def half(whole: Literal, elements: np.ndarray) -> Literal:
    """One part of a complex literal, of whose elements these are the parts."""
    made = Literal.of(elements)
    return Literal(made.dtype, whole.shape, made.data, whole.splat or made.splat)


class PartsBuilder(TensorBuilder):
    """Builds ops before `at`, each with a location that is given, and remembers them."""

    def __init__(self, at: Operation, location: LocationAttr, made: list[Operation]):
        assert at.parent is not None
        self.block, self.at = at.parent, at
        self.location, self.made = location, made

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        return self.insert(
            cls.create(
                operands=operands, result_types=[result], properties=properties, location=self.location
            )
        ).results[0]

    def insert(self, op: Operation) -> Operation:
        self.block.insert_op_before(op, self.at)
        self.made.append(op)
        return op


class Splitter:
    """Rewrites a module in one walk. `pairs`: the parts of each complex value of the old program; `wholes`: those that
    are complex in the new one, too."""

    def __init__(self, module: ModuleOp):
        self.module = module
        self.pairs: dict[SSAValue, Pair] = {}
        self.wholes: dict[SSAValue, SSAValue] = {}
        self.joined: dict[tuple[SSAValue, Block], SSAValue] = {}
        self.old: list[Operation] = []
        self.old_args: list[tuple[Block, Any]] = []
        self.made: list[Operation] = []

    def run(self) -> None:
        for func in self.module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                self.function(func)
        for op in reversed(self.old):
            op.detach()
            op.erase()
        for block, arg in reversed(self.old_args):
            block.erase_arg(arg)
        for op in reversed(self.made):
            if not any(r.uses for r in op.results):
                op.detach()
                op.erase()

    def function(self, func: FuncOp) -> None:
        block = func.body.block
        ops, first = list(block.ops), block.first_op
        assert first is not None
        if text(func.sym_name) == "main":
            builder = PartsBuilder(first, func.location, self.made)
            for arg in block.args:
                if is_complex_tensor(arg.type):
                    self.keep(arg, builder)
        else:
            kind = func.function_type
            self.arguments(block)
            func.function_type = FunctionType.from_lists(
                flat_types(kind.inputs.data), flat_types(kind.outputs.data)
            )
        self.ops(ops)

    def arguments(self, block: Block) -> None:
        """Two arguments in the place of each complex one."""
        for arg in list(block.args):
            if is_complex_tensor(arg.type):
                both = [block.insert_arg(real_type(arg.type), arg.index) for _ in range(2)]
                self.bind(arg, Pair(*both))
                self.old_args.append((block, arg))

    def ops(self, ops: Sequence[Operation]) -> None:
        for op in ops:
            if isinstance(op, FusionOp):
                continue
            values = (*op.operands, *op.results, *(a for r in op.regions for b in r.blocks for a in b.args))
            if any(is_complex_tensor(v.type) for v in values):
                self.op(op)
            else:
                for region in op.regions:
                    self.ops(list(region.block.ops))

    def op(self, op: Operation) -> None:
        handler = next((h for cls, h in HANDLERS.items() if isinstance(op, cls)), None)
        if handler is not None:
            handler(self, op, self.builder(op))
        elif isinstance(op, GraphOp) and op.partwise():
            self.partwise(op, self.builder(op))
        else:
            raise PassError(f"{describe(op)} has no form for complex numbers: let the host run it")

    # -- values --------------------------------------------------------------------------------------------

    def builder(self, op: Operation) -> PartsBuilder:
        return PartsBuilder(op, op.location, self.made)

    def bind(self, value: SSAValue, pair: Pair) -> None:
        """Notes the parts of a value, which take their names from it."""
        if value.name_hint is not None:
            for half, suffix in ((pair.re, "re"), (pair.im, "im")):
                if half.name_hint is None:
                    half.name_hint = f"{value.name_hint}_{suffix}"
        self.pairs[value] = pair

    def keep(self, value: SSAValue, builder: PartsBuilder) -> None:
        """A value that stays complex: its parts are views of it."""
        self.wholes[value] = value
        assert isinstance(value.type, TensorType)
        self.bind(value, self.halves(builder.add(ViewOp, [value], paired(value.type)), builder))

    def halves(self, pairs: SSAValue, builder: PartsBuilder) -> Pair:
        """Both parts of f32 with a last dimension of 2."""
        *shape, _ = shape_of(pairs)
        zeros, ones = [0] * len(shape), [1] * (len(shape) + 1)
        re, im = (
            builder.reshape(builder.slice(pairs, [*zeros, i], [*shape, i + 1], ones), shape) for i in range(2)
        )
        return Pair(re, im)

    def whole(self, value: SSAValue, builder: PartsBuilder) -> SSAValue:
        """A complex value as a tensor in memory."""
        if value in self.wholes:
            return self.wholes[value]
        key = (value, builder.block)
        if key not in self.joined:
            pairs = self.side_by_side(self.pairs[value], builder)
            self.joined[key] = builder.add(ViewOp, [pairs], value.type)
            self.joined[key].name_hint = value.name_hint
        return self.joined[key]

    def side_by_side(self, pair: Pair, builder: PartsBuilder) -> SSAValue:
        """Both parts along a new last dimension."""
        shape = shape_of(pair.re)
        parts = [builder.reshape(half, [*shape, 1]) for half in (pair.re, pair.im)]
        dim = integer_attr(len(shape))
        return builder.add(ConcatOp, parts, tensor([*shape, 2], REAL), dim=dim)

    def flat(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """Values with both parts in place of complex ones."""
        found: list[SSAValue] = []
        for v in values:
            if v in self.pairs:
                found += (self.pairs[v].re, self.pairs[v].im)
            else:
                found.append(v)
        return found

    def part(self, values: Sequence[SSAValue], which: int) -> list[SSAValue]:
        """Values with one part in place of complex ones."""
        return [(self.pairs[v].re, self.pairs[v].im)[which] if v in self.pairs else v for v in values]

    def replace(self, op: Operation, new: Sequence[SSAValue]) -> None:
        """Gives the results of an op their new values, flat, and the op up."""
        rest = iter(new)
        for result in op.results:
            if is_complex_tensor(result.type):
                self.bind(result, Pair(next(rest), next(rest)))
            else:
                self.give(result, next(rest))
        self.old.append(op)

    def give(self, result: SSAValue, value: SSAValue) -> None:
        if value.name_hint is None:
            value.name_hint = result.name_hint
        result.replace_all_uses_with(value)

    # -- ops -----------------------------------------------------------------------------------------------

    def partwise(self, op: GraphOp, builder: PartsBuilder) -> None:
        kinds = [real_type(r.type) for r in op.results]
        halves = [
            builder.insert(
                type(op).create(
                    operands=self.part(op.operands, i),
                    result_types=kinds,
                    properties=dict(op.properties),
                    location=op.location,
                )
            ).results
            for i in range(2)
        ]
        self.replace(op, [half for pair in zip(*halves, strict=True) for half in pair])

    def reshape(self, op: ReshapeOp, builder: PartsBuilder) -> None:
        """What is whole stays so: this moves nothing."""
        if op.x not in self.wholes:
            self.partwise(op, builder)
            return
        inner = builder.add(ReshapeOp, [self.wholes[op.x]], op.result.type)
        self.partwise(op, builder)
        self.wholes[op.result] = inner

    def constant(self, op: ConstantOp, builder: PartsBuilder) -> None:
        literal, kind = op.value.data, real_type(op.result.type)
        elements = literal.elements()
        kept = builder.add(ConstantOp, [], op.result.type, value=op.value)
        halves = [
            builder.add(ConstantOp, [], kind, value=DataAttr(half(literal, part_)))
            for part_ in (np.real(elements), np.imag(elements))
        ]
        self.replace(op, halves)
        self.wholes[op.result] = kept

    def iota(self, op: IotaOp, builder: PartsBuilder) -> None:
        counted = builder.add(IotaOp, [], real_type(op.result.type), dim=op.dim)
        self.replace(op, [counted, builder.constant(0, shape_of(op.result), REAL)])

    def view(self, op: ViewOp, builder: PartsBuilder) -> None:
        """A view that is there already, of or as complex numbers."""
        if is_complex_tensor(op.x.type):
            known = op.x in self.wholes
            self.replace(
                op,
                [
                    builder.add(ViewOp, [self.wholes[op.x]], op.result.type)
                    if known
                    else self.side_by_side(self.pairs[op.x], builder)
                ],
            )
            return
        kept = builder.add(ViewOp, [op.x], op.result.type)
        pair = self.halves(op.x, builder)
        self.replace(op, [pair.re, pair.im])
        self.wholes[op.result] = kept

    def elementwise(self, op: ElementwiseOp, builder: PartsBuilder) -> None:
        name = op.FUNCTION.name
        if isinstance(op, PART_OPS["complex"]):
            self.replace(op, op.operands)
        elif isinstance(op, PART_OPS["real"]):
            self.replace(op, self.part(op.operands, 0))
        elif isinstance(op, PART_OPS["imag"]):
            self.replace(op, self.part(op.operands, 1))
        elif isinstance(op, ELEMENTWISE["convert"]):
            self.convert(op, builder)
        elif name in FORMULAS:
            made = FORMULAS[name](Parts(builder), *(self.pairs.get(v, v) for v in op.operands))
            self.replace(op, [made.re, made.im] if isinstance(made, Pair) else [made])
        else:
            raise PassError(f"{describe(op)} has no formula for complex numbers: let the host run it")

    def convert(self, op: ElementwiseOp, builder: PartsBuilder) -> None:
        """To complex numbers with imaginary parts of 0; of them, the real part."""
        (x,), (y,) = op.operands, op.results
        if is_complex_tensor(y.type) and not is_complex_tensor(x.type):
            self.replace(op, [builder.convert(x, REAL), builder.constant(0, shape_of(x), REAL)])
        elif is_complex_tensor(y.type):
            self.replace(op, self.flat([x]))
        else:
            self.replace(op, [builder.convert(self.pairs[x].re, element_of(y))])

    def product(self, op: ContractOp | ConvOp, builder: PartsBuilder) -> None:
        """Four products of the parts."""
        a, b = self.pairs[op.lhs], self.pairs[op.rhs]
        kind = real_type(op.result.type)

        def multiply(x: SSAValue, y: SSAValue) -> SSAValue:
            return builder.add(type(op), [x, y], kind, **op.properties)

        parts = Parts(builder)
        re = parts.sub(multiply(a.re, b.re), multiply(a.im, b.im))
        im = parts.add(multiply(a.re, b.im), multiply(a.im, b.re))
        self.replace(op, [re, im])

    def sort(self, op: SortOp, builder: PartsBuilder) -> None:
        """Parts are sorted along; complex numbers themselves have no order."""
        order = op.order()
        if any(op.xs[k] in self.pairs for k in order.operands):
            raise PassError(f"{describe(op)} has complex keys: sort by their parts")
        made = builder.insert(
            SortOp.create(
                operands=self.flat(op.xs),
                result_types=flat_types(op.result_types),
                properties={**op.properties, "keys": ints([self.place(op.xs, k) for k in order.operands])},
                location=op.location,
            )
        )
        self.replace(op, made.results)

    def place(self, values: Sequence[SSAValue], i: int) -> int:
        """Where value `i` is among the flat ones."""
        return i + sum(is_complex_tensor(v.type) for v in values[:i])

    # -- the program ---------------------------------------------------------------------------------------

    def host(self, op: HostOp, builder: PartsBuilder) -> None:
        """The host has complex numbers."""
        for i, v in enumerate(op.operands):
            if v in self.pairs:
                op.operands[i] = self.whole(v, builder)
        assert op.next_op is not None
        behind = PartsBuilder(op.next_op, op.location, self.made)
        for r in op.results:
            if is_complex_tensor(r.type):
                self.keep(r, behind)

    def loop(self, op: WhileOp, builder: PartsBuilder) -> None:
        inits = list(op.inits)
        for region in op.regions:
            self.arguments(region.block)
            self.ops(list(region.block.ops))
        properties: dict[str, Attribute] = dict(op.properties)
        if op.counter is not None:
            properties["counter"] = integer_attr(self.place(inits, integer(op.counter)))
        self.control(op, self.flat(inits), properties, builder)

    def case(self, op: CaseOp, builder: PartsBuilder) -> None:
        for region in op.branches:
            self.ops(list(region.block.ops))
        self.control(op, [op.index], dict(op.properties), builder)

    def control(
        self,
        op: WhileOp | CaseOp,
        operands: Sequence[SSAValue],
        properties: dict[str, Attribute],
        builder: PartsBuilder,
    ) -> None:
        made = type(op).create(
            operands=operands,
            result_types=flat_types(op.result_types),
            properties=properties,
            regions=[op.detach_region(region) for region in list(op.regions)],
            location=op.location,
        )
        builder.block.insert_op_before(made, op)
        self.replace(op, made.results)

    def call(self, op: CallOp, builder: PartsBuilder) -> None:
        made = CallOp(op.callee, self.flat(op.arguments), flat_types(op.result_types))
        made.location = op.location
        builder.block.insert_op_before(made, op)
        self.replace(op, made.results)

    def end(self, op: YieldOp | ReturnOp, builder: PartsBuilder) -> None:
        """@main gives complex tensors; everything inside hands on parts."""
        around = op.parent_op()
        if isinstance(around, FuncOp) and text(around.sym_name) == "main":
            op.operands = [self.whole(v, builder) if v in self.pairs else v for v in op.operands]
        else:
            op.operands = self.flat(op.operands)


HANDLERS: dict[type[Operation], Callable[[Splitter, Any, PartsBuilder], None]] = {
    ElementwiseOp: Splitter.elementwise,
    ReshapeOp: Splitter.reshape,
    ConstantOp: Splitter.constant,
    IotaOp: Splitter.iota,
    ViewOp: Splitter.view,
    ContractOp: Splitter.product,
    ConvOp: Splitter.product,
    SortOp: Splitter.sort,
    HostOp: Splitter.host,
    WhileOp: Splitter.loop,
    CaseOp: Splitter.case,
    CallOp: Splitter.call,
    YieldOp: Splitter.end,
    ReturnOp: Splitter.end,
}
"""What becomes of an op of each class that has complex values; others treat the parts alike."""
