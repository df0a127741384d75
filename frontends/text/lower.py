"""`.tw` to the graph level: one linear walk over the function that is compiled and all it calls, which are inlined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects.builtin import (
    ModuleOp,
    TensorType,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue

from ...dialects.dtypes import dtype_name, element_type, shape_in, tensor
from ...dialects.graph.interface import shape_of
from . import indexing, syntax
from .builder import MOST_OPS, POISON, Poison, describe_value, same_type, type_text
from .control import Control
from .diagnostics import DiagnosticLog, Problem, TextSpan, did_you_mean
from .expressions import CONSTANTS, hint
from .load import Module
from .numbers import is_whole
from .scope import BlockNames

Spec = tuple[tuple[int, ...], str]
"""Shape and element type of an input."""

Statements = Sequence[syntax.Statement]


class TwLowering(Control):
    """One compilation."""

    def __init__(self, module: Module, report: DiagnosticLog) -> None:
        super().__init__(module, report)
        self.called: list[syntax.FunctionItem] = []
        self.seen: set[syntax.FunctionItem] = set()

    # -- the program ---------------------------------------------------------------------------------------

    def main(self, function: syntax.FunctionItem, types: Sequence[TensorType]) -> ModuleOp:
        """The module whose @main is `function` on inputs of these types. Raises TwError."""
        self.extras.main = block = Block(arg_types=types)
        for parameter, arg in zip(function.parameters, block.args, strict=True):
            arg.name_hint = hint(parameter.id.id)
        try:
            results = self.body(self.module, function, list(block.args), function.head)
        except RecursionError:
            self.fail(function.head, "calls, blocks and expressions are nested too deeply")
            results = None
        except _Grown as grown:
            self.problem(function.id, grown.problem)
            results = None
        self.report.check()
        assert results is not None
        self.at = function.head[0]
        block.add_ops([*self.prologue, *self.out, ReturnOp(*results)])
        made = FuncOp("main", ([a.type for a in block.args], [r.type for r in results]), Region(block))
        made.location = self.location()
        assert block.last_op is not None
        block.last_op.location = made.location
        return ModuleOp([made])

    def append(self, op: Operation) -> Operation:
        try:
            return super().append(op)
        except Problem as problem:
            raise _Grown(problem) from None

    def tick(self) -> None:
        """Count work that makes no ops. Raises _Grown."""
        self.count += 1
        if self.count > MOST_OPS:
            raise _Grown(Problem("the program makes too many calls", help="use loops, or fewer calls"))

    @contextmanager
    def within(self, module: Module) -> Iterator[None]:
        """Names and places are those of another file."""
        before, self.module, self.file = self.module, module, module.source
        yield
        self.module, self.file = before, before.source

    # -- types ---------------------------------------------------------------------------------------------

    def type(self, node: syntax.Type, scope: BlockNames) -> TensorType | None:
        """A type whose dimensions are all known; None after an error."""
        element = self.dtype(node.dtype)
        shape = [self.dimension(d, scope) for d in node.dims]
        if isinstance(element, Poison) or any(n is None for n in shape):
            return None
        return tensor([n for n in shape if n is not None], element_type(element))

    def dimension(self, node: syntax.Expr, scope: BlockNames) -> int | None:
        """A dimension known at compile time; None after an error."""
        for name in syntax.names_in(node):
            if scope.find(name.id) is None and name.id not in {*self.module.items, *CONSTANTS}:
                help = did_you_mean(name.id, scope.numbers() | set(self.module.items))
                more = f"where no parameter has it as a dimension by itself, write `const {name.id} = 8`"
                self.fail(name.span, f"the dimension `{name.id}` is not known", "not defined", help or more)
                return None
        value = self.expr(node, scope)
        if isinstance(value, Poison):
            return None
        if not is_whole(value) or not 0 <= value < 1 << 31:
            self.fail(node.span, "a dimension is a whole number from 0 up", describe_value(value))
            return None
        return value

    def bind(
        self,
        module: Module,
        function: syntax.FunctionItem,
        types: Sequence[Attribute],
        complain: Callable[..., None],
    ) -> dict[str, int] | None:
        """The symbolic dimensions of a function called with arguments of these types; None where they do not fit,
        after `complain(parameter number, message, label, notes)`."""
        found: dict[str, int] = {}
        where: dict[str, str] = {}
        late: list[tuple[int, int, syntax.Expr, int]] = []
        ok = True
        for i, (p, given) in enumerate(zip(function.parameters, types, strict=True)):
            assert isinstance(given, TensorType)
            shape, declared = shape_in(given), self.written(module, p.type)
            name = f"`{p.id.id}` of `{function.id.id}` must be {declared}, got {type_text(given)}"
            if p.type.dtype.id != dtype_name(given.element_type):
                complain(
                    i,
                    name,
                    type_text(given),
                    [f"the element types are {p.type.dtype.id} and {dtype_name(given.element_type)}"],
                )
                ok = False
                continue
            if len(shape) != len(p.type.dims):
                plural = "s" * (len(shape) != 1)
                notes = [f"it has {len(shape)} dimension{plural} where {len(p.type.dims)} are declared"]
                complain(i, name, type_text(given), notes)
                ok = False
                continue
            for d, (node, n) in enumerate(zip(p.type.dims, shape, strict=True)):
                if not isinstance(node, syntax.Name) or node.id in module.items:
                    late.append((i, d, node, n))
                elif found.setdefault(node.id, n) != n:
                    notes = [f"`{node.id}` is {found[node.id]} from {where[node.id]}, and {n} here"]
                    complain(i, name, type_text(given), notes)
                    ok = False
                else:
                    where.setdefault(node.id, f"`{p.id.id}`")
        scope = BlockNames(None, 0, dict(found))
        for i, d, node, n in late:
            with self.within(module):
                expected = self.dimension(node, scope)
            if expected is None:
                return None
            if expected != n:
                p = function.parameters[i]
                given = type_text(types[i])
                name = (
                    f"`{p.id.id}` of `{function.id.id}` must be {self.written(module, p.type)}, got {given}"
                )
                complain(i, name, given, [f"dimension {d} is {n}, not {expected}"])
                ok = False
        return found if ok else None

    def written(self, module: Module, node: syntax.Type) -> str:
        """A type as its file has it."""
        text = module.source.text[node.span[0] : node.quant.span[0] if node.quant else node.span[1]]
        return " ".join(text.split())

    # -- functions -----------------------------------------------------------------------------------------

    def invoke(
        self, node: syntax.CallExpr, module: Module, function: syntax.FunctionItem, args: list[Any]
    ) -> Any:
        """A call of a function of the program, inlined."""
        name, parameters = function.id.id, function.parameters
        other = (module.source, function.head, "defined here")
        if len(args) != len(parameters):
            usage = f"{name}({', '.join(p.id.id for p in parameters)})"
            message = (
                f"`{name}` takes {len(parameters)} argument{'s' * (len(parameters) != 1)}, got {len(args)}"
            )
            return self.fail(node.span, message, help=f"`{usage}`", other=other)
        if function in self.called:
            circle = [f.id.id for f in [*self.called[self.called.index(function) :], function]]
            notes = [" -> ".join(circle)]
            return self.fail(
                node.span,
                f"`{name}` calls itself",
                help="write a loop: `while` or `for`",
                notes=notes,
                other=other,
            )
        if any(isinstance(a, Poison) for a in args):
            self.seen.add(function)
            return POISON
        made = []
        self.at = node.span[0]
        for arg, p, at in zip(args, parameters, node.args, strict=True):
            try:
                made.append(self.tensor(arg, element_type(p.type.dtype.id)))
            except (Problem, ValueError) as problem:
                text = problem.message if isinstance(problem, Problem) else str(problem)
                self.fail(at.span, f"`{p.id.id}` of `{name}`: {text}")
                return POISON

        def complain(i: int, message: str, label: str, notes: Sequence[str]) -> None:
            where = (module.source, parameters[i].span, "declared here")
            self.fail(node.args[i].span, message, label, notes=notes, other=where)

        if self.bind(module, function, [a.type for a in made], complain) is None:
            return POISON
        results = self.body(module, function, made, node.span)
        if results is None:
            return POISON
        return results[0] if len(results) == 1 else tuple(results)

    def body(
        self,
        module: Module,
        function: syntax.FunctionItem,
        args: Sequence[SSAValue],
        site: TextSpan,
    ) -> list[SSAValue] | None:
        """The results of a function on arguments that fit; None after an error."""
        self.tick()
        bound = self.bind(module, function, [a.type for a in args], lambda *_: None)
        if bound is None:
            return None
        depth = len(self.loops)
        scope = BlockNames(None, depth, dict(bound), frozenset(bound))
        self.called.append(function)
        self.seen.add(function)
        with self.within(module):
            for p, arg in zip(function.parameters, args, strict=True):
                if p.id.id in scope.names:
                    self.fail(p.id.span, f"`{p.id.id}` is named twice", "already a parameter or a dimension")
                scope.names[p.id.id] = self.quantize(p.type, arg, scope)
            results = self.run_function(function, scope)
        self.called.pop()
        return results

    def run_function(self, function: syntax.FunctionItem, scope: BlockNames) -> list[SSAValue] | None:
        last = function.body[-1] if function.body else None
        if not isinstance(last, syntax.Return):
            self.statements(function.body, scope)
            help = "end it with `return value`"
            self.fail(function.head, f"`{function.id.id}` ends without `return`", help=help)
            return None
        self.statements(function.body[:-1], scope)
        values = [self.expr(v, scope) for v in last.values]
        nodes: Sequence[syntax.Expr] = last.values
        if len(values) == 1 and isinstance(values[0], tuple):
            nodes = [last.values[0]] * len(values[0])
            values = list(values[0])
        declared = [self.type(r, scope) for r in function.results]
        if any(isinstance(v, Poison) for v in values) or any(t is None for t in declared):
            return None
        if len(values) != len(declared):
            other = (self.module.source, function.head, "declared here")
            message = f"`{function.id.id}` gives {len(declared)} value{'s' * (len(declared) != 1)}, got {len(values)}"
            self.fail(last.span, message, other=other)
            return None
        out = []
        for value, node, wanted, result in zip(values, nodes, declared, function.results, strict=True):
            assert wanted is not None
            made = self.fitting(value, wanted, node, f"`{function.id.id}`", "gives", result)
            if made is None:
                return None
            out.append(self.quantize(result, made, scope))
        return out

    def fitting(
        self, value: Any, wanted: TensorType, node: syntax.Expr, what: str, does: str, declared: syntax.Type
    ) -> SSAValue | None:
        """A value of a declared type; None after an error."""
        self.at = node.span[0]
        try:
            made = self.tensor(value, wanted.element_type)
        except Problem as problem:
            self.problem(node, problem)
            return None
        if not same_type(made.type, wanted):
            help = ""
            if shape_of(made) == shape_in(wanted):
                help = f"convert with `as {dtype_name(wanted.element_type)}`"
            other = (self.module.source, declared.span, "declared here")
            message = f"{what} {does} {type_text(wanted)}, got {type_text(made.type)}"
            self.fail(node.span, message, type_text(made.type), help, other=other)
            return None
        return made

    # -- statements ----------------------------------------------------------------------------------------

    def statements(self, body: Statements, scope: BlockNames) -> None:
        """Run statements in a scope. An error in one leaves its names poisoned, and the next is run."""
        for s in body:
            self.tick()
            match s:
                case syntax.Assign():
                    self.assign(s, scope)
                case syntax.Update():
                    self.update(s, scope)
                case syntax.If():
                    self.branch(s, scope)
                case syntax.While():
                    self.while_loop(s, scope)
                case syntax.For():
                    self.for_loop(s, scope)
                case syntax.Return():
                    help = "assign the value in the block and return it after"
                    self.fail(s.span, "`return` stands at the end of a function only", help=help)

    def assign(self, s: syntax.Assign, scope: BlockNames) -> None:
        values = self.assigned_values(s, scope)
        nodes = s.values if len(s.values) == len(s.targets) else [s.values[0]] * len(s.targets)
        seen: set[str] = set()
        for target in s.targets:
            if target.id.id in seen:
                self.fail(target.id.span, f"`{target.id.id}` is assigned twice in one statement")
            seen.add(target.id.id)
        for target, v, node in zip(s.targets, values, nodes, strict=True):
            if scope.is_dimension(target.id.id):
                self.fail(
                    target.id.span, f"`{target.id.id}` is a dimension of the function", "choose another name"
                )
                continue
            if target.type is not None and not isinstance(v, Poison):
                v = self.annotated(target.type, v, node, target.id.id, scope)
            scope.names[target.id.id] = v
            if isinstance(v, OpResult) and v.name_hint is None:
                v.name_hint = hint(target.id.id)

    def assigned_values(self, s: syntax.Assign, scope: BlockNames) -> Sequence[Any]:
        """A value for each name on the left: those on the right, or the several ones of one call."""
        values: Sequence[Any] = [self.expr(v, scope) for v in s.values]
        poisoned = [POISON] * len(s.targets)
        if len(values) == 1:
            if isinstance(values[0], Poison):
                return poisoned
            values = values[0] if isinstance(values[0], tuple) else values
        else:
            for node, v in zip(s.values, values, strict=True):
                if isinstance(v, tuple):
                    what = describe_value(v)
                    self.fail(node.span, "one of several values here", what, "assign it in a line of its own")
                    return poisoned
        if len(values) != len(s.targets):
            span = (s.targets[0].span[0], s.targets[-1].span[1])
            count = f"{len(values)} value{'s' * (len(values) != 1)}"
            names = f"{len(s.targets)} name{'s' * (len(s.targets) != 1)}"
            self.fail(span, f"{names} for {count}", help=_unpack(values))
            return poisoned
        return values

    def annotated(self, node: syntax.Type, value: Any, at: syntax.Expr, name: str, scope: BlockNames) -> Any:
        """A value assigned to a name with a type."""
        wanted = self.type(node, scope)
        if wanted is None:
            return POISON
        made = self.fitting(value, wanted, at, f"`{name}`", "is declared as", node)
        if made is None:
            return POISON
        return self.quantize(node, made, scope)

    def update(self, s: syntax.Update, scope: BlockNames) -> None:
        old = self.name(s.id, scope)
        items = self.indices(s.items, scope)
        value = self.expr(s.value, scope)
        if isinstance(old, Poison) or items is None or isinstance(value, Poison):
            return
        self.at = s.span[0]
        try:
            if not isinstance(old, SSAValue):
                raise Problem(f"`{s.id.id}` is {describe_value(old)}, which has no elements to write")
            new = indexing.update(self, old, items, value)
        except Problem as problem:
            self.problem(s, problem)
            return
        if isinstance(new, OpResult):
            new.name_hint = hint(s.id.id)
        scope.names[s.id.id] = new


class _Grown(Exception):
    """The program is too large to go on."""

    def __init__(self, problem: Problem):
        super().__init__(problem.message)
        self.problem = problem


def _unpack(values: Sequence[Any]) -> str:
    return f"`{', '.join('abcdefgh'[: len(values)])} = ...`" if 1 < len(values) < 9 else ""
