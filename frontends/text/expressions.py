"""Expressions of `.tw`: numbers are computed at compile time, tensors become graph ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import dtype_name, element_type, is_float, name_of_numpy, numpy_dtype, shape_in
from ..known import NATIVE
from . import indexing, syntax
from .builder import (
    POISON,
    Builder,
    DTypeName,
    Poison,
    describe_value,
    type_text,
)
from .diagnostics import ELSEWHERE, DiagnosticLog, Problem, TextSpan, did_you_mean, in_words
from .functions import OPERATORS, LibraryFunction, binary, functions, graph_functions
from .load import Module
from .numbers import checked, is_fraction, is_known_number, is_whole, truncated
from .scope import BlockNames, LoopRegion
from .weights import WeightFiles

CONSTANTS: dict[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
"""Numbers that have a name."""

_MEMBERS = {
    "shape": "dimensions are the names in its type, as `N` of `{0}: f32[N]`",
    "T": "write `transpose({0})`",
    "astype": "write `{0} as f32`",
    "at": "write `{0}[i] = y`",
}
"""What is written instead of attributes that other languages have."""


class Expressions(Builder):
    """Evaluates expressions of the file `module`, in a scope."""

    module: Module

    def __init__(self, module: Module, report: DiagnosticLog) -> None:
        super().__init__()
        self.module = module
        self.file = module.source
        self.report = report
        self.loops: list[LoopRegion] = []
        self.prologue: list[Operation] = []
        self.weights = WeightFiles()
        self._consts: dict[syntax.Const, Any] = {}
        self._computing: set[syntax.Const] = set()
        self._params: dict[syntax.Param, Any] = {}

    # -- errors --------------------------------------------------------------------------------------------

    def fail(self, span: TextSpan, message: str, label: str = "", help: str = "", **more: Any) -> Poison:
        """Report an error; the value of what it is in."""
        self.report.add(self.module.source, span, message, label, help=help, **more)
        return POISON

    def problem(self, node: syntax.SyntaxNode, problem: Problem) -> Poison:
        """Report a problem, at the argument it is about or at the node."""
        span = node.span
        if isinstance(node, syntax.CallExpr) and problem.argument is not None:
            if isinstance(problem.argument, int) and problem.argument < len(node.args):
                span = node.args[problem.argument].span
            span = next((k.span for k in node.keywords if k.id.id == problem.argument), span)
        self.report.add_problem(self.module.source, span, problem)
        return POISON

    # -- expressions ---------------------------------------------------------------------------------------

    def expr(self, node: syntax.Expr, scope: BlockNames) -> Any:
        """The value of an expression; POISON after an error, which is reported."""
        match node:
            case syntax.LiteralExpr():
                if isinstance(node.value, int) and node.value >= 1 << 63:
                    return self.fail(node.span, "a whole number beyond 64 bits")
                if node.value == math.inf:
                    return self.fail(node.span, "a number beyond 64 bits", help="infinity is written `inf`")
                return node.value
            case syntax.Name():
                return self.name(node, scope)
            case syntax.DType():
                return self.dtype(node)
            case syntax.ListOf():
                items = [self.expr(i, scope) for i in node.items]
                return POISON if any(isinstance(i, Poison) for i in items) else items
            case syntax.MemberName():
                return self.member(node, scope)
            case syntax.CallExpr():
                return self.call(node, scope)
            case _:
                pass
        made = self.operator(node, scope)
        return POISON if made is None else made

    def operator(self, node: syntax.Expr, scope: BlockNames) -> Any:
        """An operator, conversion or index applied."""
        try:
            match node:
                case syntax.Binary():
                    left, right = self.expr(node.left, scope), self.expr(node.right, scope)
                    if isinstance(left, Poison) or isinstance(right, Poison):
                        return POISON
                    self.at = node.span[0]
                    made = binary(self, node.op, left, right)
                    return checked(made) if is_whole(made) else made
                case syntax.Unary():
                    x = self.expr(node.x, scope)
                    if isinstance(x, Poison):
                        return POISON
                    self.at = node.span[0]
                    name = "neg" if node.op == "-" else "not"
                    return self.apply(name, x, sign=OPERATORS[name])
                case syntax.Convert():
                    return self.conversion(node, scope)
                case syntax.IndexExpr():
                    x = self.expr(node.x, scope)
                    items = self.indices(node.items, scope)
                    if isinstance(x, Poison) or items is None:
                        return POISON
                    self.at = node.span[0]
                    if isinstance(x, list):
                        return self.list_item(x, items)
                    if not isinstance(x, SSAValue):
                        raise Problem(f"{describe_value(x)} has no elements to index")
                    return indexing.index(self, x, items)
                case _:
                    raise AssertionError(node)
        except Problem as problem:
            return self.problem(node, problem)

    def list_item(self, x: list[Any], items: Sequence[Any]) -> Any:
        """An item of a list known at compile time. Raises Problem."""
        if len(items) != 1 or not is_whole(items[0]):
            raise Problem("a list takes one whole number as its index", help="`as f32` makes a tensor of it")
        return x[indexing.place(items[0], len(x), 0)]

    def conversion(self, node: syntax.Convert, scope: BlockNames) -> Any:
        """`x as f16`. Raises Problem."""
        x = self.expr(node.x, scope)
        target = self.dtype(node.dtype)
        if isinstance(x, Poison) or isinstance(target, Poison):
            return POISON
        self.at = node.span[0]
        element = element_type(target)
        if isinstance(x, SSAValue):
            return self.convert(x, element)
        if isinstance(x, list) or is_known_number(x):
            if is_fraction(x) and not is_float(target) and target != "i1":
                x = truncated(x)
            return self.tensor(x, element)
        raise Problem(f"`as` converts tensors and numbers, not {describe_value(x)}")

    def dtype(self, node: syntax.DType) -> Any:
        """An element type that the device has."""
        known = sorted(map(dtype_name, NATIVE))
        if node.id in known:
            return DTypeName(node.id)
        return self.fail(
            node.span,
            f"`{node.id}` is not an element type of the device",
            help=f"it has {in_words(known, 'and')}",
        )

    def indices(self, nodes: Sequence[syntax.IndexItem], scope: BlockNames) -> list[Any] | None:
        """The values of an index; None after an error."""
        out: list[Any] = []
        for node in nodes:
            match node:
                case syntax.Ellipsis():
                    out.append(indexing.ELLIPSIS)
                case syntax.NewAxis():
                    out.append(indexing.NEW)
                case syntax.Slice():
                    parts = [
                        None if p is None else self.whole(p, scope)
                        for p in (node.start, node.stop, node.step)
                    ]
                    if any(isinstance(p, Poison) for p in parts):
                        out.append(POISON)
                    else:
                        out.append(indexing.Range(*parts))
                case _:
                    out.append(self.expr(node, scope))
        return None if any(isinstance(i, Poison) for i in out) else out

    def whole(self, node: syntax.Expr, scope: BlockNames) -> Any:
        """A whole number known at compile time, or POISON."""
        value = self.expr(node, scope)
        if isinstance(value, Poison) or is_whole(value):
            return value
        help = (
            ""
            if not isinstance(value, SSAValue)
            else "for a slice that moves, index with a counter in a loop"
        )
        return self.fail(node.span, "needs a whole number known at compile time", describe_value(value), help)

    # -- names ---------------------------------------------------------------------------------------------

    def name(self, node: syntax.Name, scope: BlockNames) -> Any:
        """The value of a name."""
        found = scope.find(node.id)
        if found is not None:
            value, depth = found
            return self.captured(value, depth) if isinstance(value, SSAValue) else value
        item = self.module.items.get(node.id)
        if item is not None:
            return self.item(self.module, item, node)
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        return self.unknown(node, scope)

    def captured(self, value: SSAValue, depth: int) -> SSAValue:
        """A value of `depth` loops, inside the loops that are around this place."""
        for loop in self.loops[depth:]:
            value = loop.capture(value, self)
        return value

    def unknown(self, node: syntax.Name, scope: BlockNames) -> Poison:
        if node.id in functions():
            return self.fail(
                node.span, f"`{node.id}` is a function", help=f"call it: `{functions()[node.id].usage}`"
            )
        branch = scope.branches_of(node.id)
        if branch is not None:
            other = (self.module.source, branch, "assigned here")
            message = f"`{node.id}` is assigned in one branch of an `if` only"
            return self.fail(
                node.span, message, help="assign it before the `if`, or in both branches", other=other
            )
        known = scope.visible() | set(self.module.items) | set(CONSTANTS)
        return self.fail(node.span, f"there is no `{node.id}`", "not defined", did_you_mean(node.id, known))

    def item(self, module: Module, item: syntax.Item, node: syntax.SyntaxNode) -> Any:
        """The value of a constant or parameter of a file."""
        match item:
            case syntax.Const():
                return self.const(module, item, node)
            case syntax.Param():
                return self.param(module, item)
            case syntax.Import():
                return self.fail(
                    node.span, f"`{item.id.id}` is a file", help=f"use what it has: `{item.id.id}.name`"
                )
            case _:
                return self.fail(node.span, f"`{item.id.id}` is a function", help="call it")

    def member(self, node: syntax.MemberName, scope: BlockNames) -> Any:
        """The value of a name of an imported file."""
        found = self.imported(node, scope)
        return POISON if found is None else self.item(*found, node)

    def no_file(self, node: syntax.MemberName, scope: BlockNames) -> None:
        """Says what stands before a point where it is no file."""
        name, of = node.id.id, node.module.id
        item, found = self.module.items.get(of), scope.find(of)
        if isinstance(found[0] if found else item, Poison | syntax.Import):
            return  # it failed, as was said
        help = f"a function is called by its name: `{name}({of})`" if name in functions() else ""
        if found is not None or item is not None:
            what = "a function" if found is None and isinstance(item, syntax.FunctionItem) else "a value"
            help = help or _MEMBERS.get(name, "").format(of)
            self.fail(node.span, f"`{of}` is {what}, which has no `.{name}`", help=help)
        elif of == "graph":
            self.fail(node.span, f"`graph.{name}` is a function", help="call it")
        else:
            help = help or did_you_mean(of, [*self.module.imports, "graph"])
            help = help or f'write `import "{of}.tw" as {of}` at the top'
            self.fail(node.module.span, f"no file is imported as `{of}`", help=help)

    def imported(self, node: syntax.MemberName, scope: BlockNames) -> tuple[Module, syntax.Item] | None:
        """What `file.name` is; None after an error."""
        name, of = node.id.id, node.module.id
        module = self.module.imports.get(of)
        if module is None:
            self.no_file(node, scope)
            return None
        item = module.items.get(name)
        if item is None or isinstance(item, syntax.Import):
            help = did_you_mean(name, module.items)
            self.fail(node.id.span, f"{module.source.path} has no `{name}`", help=help)
            return None
        if isinstance(item, syntax.FunctionItem) and not item.public:
            other = (module.source, item.head, "it is defined here")
            self.fail(
                node.id.span, f"`{name}` is not public", help="write `pub` before its `fn`", other=other
            )
            return None
        return module, item

    def const(self, module: Module, item: syntax.Const, node: syntax.SyntaxNode) -> Any:
        """The value of a constant, computed once."""
        if item in self._computing:
            return self.fail(node.span, f"`{item.id.id}` is defined by itself")
        if item not in self._consts:
            self._computing.add(item)
            with self.within(module):
                self._consts[item] = self.computed(item)
            self._computing.remove(item)
        return self.at_top(self._consts[item])

    def computed(self, item: syntax.Const) -> Any:
        """The value of a constant; POISON after an error."""
        before, self.out = self.out, []
        value = self.expr(item.value, BlockNames(None, 0))
        self.out = before
        if isinstance(value, Poison):
            return POISON
        if isinstance(value, SSAValue | tuple):
            help = "write the numbers: `const A: f32[2] = [1.0, 2.0]`"
            return self.fail(
                item.value.span, "a constant must be known at compile time", describe_value(value), help
            )
        return value if item.type is None else self.typed_const(item, value)

    def typed_const(self, item: syntax.Const, value: Any) -> Any:
        """A constant with a type, as a tensor at the top of the program."""
        assert item.type is not None
        declared = self.type(item.type, BlockNames(None, 0))
        if declared is None:
            return POISON
        try:
            array = self.array(value, declared.element_type)
        except Problem as problem:
            return self.problem(item.value, problem)
        if array.shape not in ((), shape_in(declared)):
            label = f"has the shape {list(array.shape)}"
            return self.fail(item.value.span, f"`{item.id.id}` should be {type_text(declared)}", label)
        return self.on_top(item, np.broadcast_to(array, shape_in(declared)))

    def param(self, module: Module, item: syntax.Param) -> Any:
        """A parameter from its file, read once, as a constant at the top of the program."""
        if item not in self._params:
            self._params[item] = POISON
            with self.within(module):
                self._params[item] = self.read_param(item)
        return self.at_top(self._params[item])

    def read_param(self, item: syntax.Param) -> Any:
        """The tensor of a parameter; POISON after an error."""
        declared = self.type(item.type, BlockNames(None, 0))
        if declared is None:
            return POISON
        try:
            array = self.weights.read(self.module.folder / str(item.path.value), str(item.key.value))
        except Problem as problem:
            node = item.key if problem.argument == "key" else item.path
            return self.problem(node, problem)
        dtype = numpy_dtype(declared.element_type)
        if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:  # how .npz files hold bf16
            array = array.view(dtype)
        try:
            stored = f"{name_of_numpy(array.dtype)}{list(array.shape)}"
            help = f"declare it as stored: `{item.id.id}: {stored}`"
        except KeyError:
            stored = f"{array.dtype}{list(array.shape)}"
            help = f"store it as an array of {dtype_name(declared.element_type)}"
        if array.dtype != dtype or array.shape != shape_in(declared):
            label = f"declared as {type_text(declared)}"
            return self.fail(item.type.span, f"`{item.id.id}` is stored as {stored}", label, help)
        value = self.on_top(item, array)
        before, self.out = self.out, self.prologue
        value = self.quantize(item.type, value, BlockNames(None, 0))
        self.out = before
        return value

    def on_top(self, item: syntax.Const | syntax.Param, array: Any) -> SSAValue:
        """A constant in front of the program's ops."""
        before, self.out, self.at = self.out, self.prologue, item.span[0]
        value = self.constant(array)
        value.name_hint = hint(item.id.id)
        self.out = before
        return value

    def at_top(self, value: Any) -> Any:
        """A value of the top of the program, inside the loops around this place."""
        return self.captured(value, 0) if isinstance(value, SSAValue) else value

    # -- calls ---------------------------------------------------------------------------------------------

    def call(self, node: syntax.CallExpr, scope: BlockNames) -> Any:
        """The value of a call."""
        args = [self.expr(a, scope) for a in node.args]
        keywords: dict[str, Any] = {}
        for k in node.keywords:
            if k.id.id in keywords:
                self.fail(k.span, f"`{k.id.id}=` is given twice")
            keywords[k.id.id] = self.expr(k.value, scope)
        target = self.callee(node, scope)
        if target is None:
            return POISON
        if isinstance(target, LibraryFunction):
            self.at = node.span[0]
            try:
                return target(self, args, keywords)
            except Problem as problem:
                return self.problem(node, problem)
        module, function = target
        if keywords:
            self.fail(node.keywords[0].span, f"`{function.id.id}` takes its arguments by position")
            return POISON
        return self.invoke(node, module, function, args)

    def callee(
        self, node: syntax.CallExpr, scope: BlockNames
    ) -> LibraryFunction | tuple[Module, syntax.FunctionItem] | None:
        """What a call calls; None after an error."""
        callee = node.callee
        if isinstance(callee, syntax.MemberName):
            if callee.module.id == "graph":
                name = callee.id.id
                if name in graph_functions():
                    return graph_functions()[name]
                help = did_you_mean(name, graph_functions())
                self.fail(callee.id.span, f"the graph dialect has no op `{name}`", help=help)
                return None
            found = self.imported(callee, scope)
            if found is None:
                return None
            if isinstance(found[1], syntax.FunctionItem):
                return found[0], found[1]
            self.fail(callee.span, f"`{callee.id.id}` is not a function")
            return None
        name = callee.id
        item = self.module.items.get(name)
        if scope.find(name) is None and isinstance(item, syntax.FunctionItem):
            return self.module, item
        if scope.find(name) is None and item is None:
            if name in functions():
                return functions()[name]
            self.no_function(callee, scope)
            return None
        self.fail(callee.span, f"`{name}` is not a function", help=f"index it with `{name}[...]`")
        return None

    def no_function(self, callee: syntax.Name, scope: BlockNames) -> None:
        name = callee.id
        if name in OPERATORS:
            sign = OPERATORS[name]
            shown = {"neg": "-x", "not": "not x", "convert": "x as f32"}.get(name, f"x {sign} y")
            self.fail(callee.span, f"`{name}` is written as an operator", help=f"`{shown}`")
            return
        own = {f.id.id for f in self.module.functions()}
        help = did_you_mean(name, own | set(functions())) or ELSEWHERE.get(name, "")
        self.fail(
            callee.span, f"there is no function `{name}`", "not defined", ELSEWHERE.get(name, "") or help
        )

    # -- of the whole program: lower.py --------------------------------------------------------------------

    def invoke(
        self, node: syntax.CallExpr, module: Module, function: syntax.FunctionItem, args: list[Any]
    ) -> Any:
        raise NotImplementedError

    def type(self, node: syntax.Type, scope: BlockNames) -> TensorType | None:
        raise NotImplementedError

    def quantize(self, node: syntax.Type, value: SSAValue, scope: BlockNames) -> SSAValue:
        raise NotImplementedError

    def within(self, module: Module) -> Any:
        raise NotImplementedError


def hint(name: str) -> str | None:
    """A name of the program as the name of an SSA value, where it can be one: MLIR reads ASCII names only."""
    return name if name.isascii() and SSAValue.is_valid_name(name) else None
