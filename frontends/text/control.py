"""`if`, `for` and `while` of `.tw`: graph.case and graph.while, in the forms that JAX's own loops have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import (
    TensorType,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ...dialects.base import integer_attr
from ...dialects.dtypes import dtype_name, shape_in, tensor
from ...dialects.graph import ELEMENTWISE, CaseOp, WhileOp, YieldOp
from ...dialects.graph.interface import element_of, shape_of
from ..known import count_trips
from . import syntax
from .builder import BOOLEAN, I32, POISON, Poison, describe_value, same_type, type_text
from .diagnostics import Problem
from .expressions import hint
from .numbers import as_float, is_fraction, is_known_number, is_whole, same_number
from .quantization import Quantization
from .scope import BlockNames, LoopRegion

Statements = Sequence[syntax.Statement]

_COUNTER = "for"
"""The name of a loop's counter: a word that no program can use."""


class Control(Quantization):
    """Statements that hold statements."""

    def statements(self, body: Statements, scope: BlockNames) -> None:
        raise NotImplementedError

    # -- control -------------------------------------------------------------------------------------------

    def condition(self, node: syntax.Expr, scope: BlockNames, what: str) -> Any:
        """A truth value known at compile time, an i1 scalar, or POISON."""
        value = self.expr(node, scope)
        if isinstance(value, Poison | bool):
            return value
        if isinstance(value, SSAValue) and value.type == tensor([], BOOLEAN):
            return value
        help = ""
        if isinstance(value, SSAValue) and element_of(value) == BOOLEAN:
            help = "reduce it with `any` or `all`; to choose by element use `select`"
        elif isinstance(value, SSAValue) or is_known_number(value):
            help = "compare it: `x != 0`"
        return self.fail(node.span, f"the condition of `{what}` must be i1[]", describe_value(value), help)

    def branch(self, s: syntax.If, scope: BlockNames) -> None:
        chosen = self.condition(s.condition, scope, "if")
        if isinstance(chosen, bool):
            self.statements(s.body if chosen else s.orelse, scope)
            return
        names = list(dict.fromkeys(n.id for n in syntax.assigned((*s.body, *s.orelse))))
        depth = len(self.loops)
        sides = []
        errors = len(self.report.found)
        for body in (s.body, s.orelse):
            inner = BlockNames(scope, depth)
            outer, self.out = self.out, []
            self.statements(body, inner)
            sides.append((inner, self.out))
            self.out = outer
        merged = [n for n in names if all(inner.find(n) is not None for inner, _ in sides)]
        for n in set(names) - set(merged):
            scope.partial[n] = next(i.span for i in syntax.assigned((*s.body, *s.orelse)) if i.id == n)
        if isinstance(chosen, Poison) or len(self.report.found) > errors:
            for n in merged:
                scope.names[n] = POISON
            return
        self.at = s.span[0]
        values = self.joined(s, merged, sides)
        if values is None:
            for n in merged:
                scope.names[n] = POISON
            return
        results = [(n, pair) for n, pair in zip(merged, values, strict=True) if isinstance(pair[0], SSAValue)]
        for n, pair in zip(merged, values, strict=True):
            if not isinstance(pair[0], SSAValue):
                scope.names[n] = pair[0]
        if not results:
            return
        regions = []
        for k in (1, 0):  # as a number: false first
            self.out, outer = sides[k][1], self.out
            self.emit(YieldOp, [pair[k] for _, pair in results], [])
            block = Block()
            block.add_ops(self.out)
            regions.append(Region(block))
            self.out = outer
        index = self.emit(ELEMENTWISE["convert"], [chosen], [tensor([], I32)])[0]
        types = [pair[0].type for _, pair in results]
        op = self.append(CaseOp.create(operands=[index], result_types=types, regions=regions))
        for (n, _), value in zip(results, op.results, strict=True):
            value.name_hint = hint(n)
            scope.names[n] = value

    def joined(
        self, s: syntax.If, names: Sequence[str], sides: Sequence[tuple[BlockNames, list[Operation]]]
    ) -> Any:
        """For each name the values of both branches, of one type; None after an error."""
        out = []
        for n in names:
            pair = []
            for inner, _ in sides:
                found = inner.find(n)
                assert found is not None
                pair.append(self.captured(found[0], found[1]) if isinstance(found[0], SSAValue) else found[0])
            if (
                not any(isinstance(v, SSAValue) for v in pair)
                and same_number(pair[0], pair[1])
            ):
                out.append(pair)
                continue
            element = next((element_of(v) for v in pair if isinstance(v, SSAValue)), None)
            try:
                for k, (_, ops) in enumerate(sides):
                    self.out, outer = ops, self.out
                    if (
                        element is None
                        and any(map(is_fraction, pair))
                        and not isinstance(pair[k], SSAValue)
                    ):
                        pair[k] = (
                            as_float(pair[k])
                            if is_known_number(pair[k]) and not isinstance(pair[k], bool)
                            else pair[k]
                        )
                    pair[k] = self.tensor(pair[k], element)
                    self.out = outer
            except Problem as problem:
                self.out = outer
                self.problem(next(i for i in syntax.assigned((*s.body, *s.orelse)) if i.id == n), problem)
                return None
            if not same_type(pair[0].type, pair[1].type):
                at = [i for i in syntax.assigned((*s.body, *s.orelse)) if i.id == n][-1]
                one, two = (type_text(v.type) for v in pair)
                note = f"it is {one} if the condition holds, and {two} if not"
                self.fail(at.span, f"`{n}` has two types after this `if`", notes=[note])
                return None
            out.append(pair)
        return out

    def carried(self, body: Statements, scope: BlockNames, without: str = "") -> dict[str, Any] | None:
        """The values that a loop carries: those from outside that its body assigns; None after an error."""
        out: dict[str, Any] = {}
        ok = True
        names = {n.id: n for n in reversed(list(syntax.assigned(tuple(body))))}
        order = [n for n in self._order(scope) if n in names and n != without and not scope.is_dimension(n)]
        for n in order:
            found = scope.find(n)
            assert found is not None
            value = found[0]
            if isinstance(value, Poison):
                ok = False
                continue
            if isinstance(value, SSAValue):
                out[n] = self.captured(value, found[1])
                continue
            try:
                out[n] = self.tensor(value)
            except Problem as problem:
                self.problem(names[n], problem)
                ok = False
        return out if ok else None

    @staticmethod
    def _order(scope: BlockNames) -> list[str]:
        chain = []
        at: BlockNames | None = scope
        while at is not None:
            chain.append(at)
            at = at.parent
        return list(dict.fromkeys(n for s in reversed(chain) for n in s.names))

    def while_loop(self, s: syntax.While, scope: BlockNames) -> None:
        self.at = s.span[0]
        carried = self.carried(s.body, scope)
        if carried is None:
            self.poison(s.body, scope)
            return
        names = list(carried)

        def test(inner: BlockNames) -> Any:
            value = self.condition(s.condition, inner, "while")
            if isinstance(value, bool):
                help = "a loop ends when a value that it carries says so"
                self.fail(s.condition.span, "the condition of this `while` never changes", help=help)
                return POISON
            return value

        def step(inner: BlockNames) -> list[Any]:
            self.statements(s.body, inner)
            return [inner.names[n] for n in names]

        self.loop(s, carried, scope, test, step)

    def for_loop(self, s: syntax.For, scope: BlockNames) -> None:
        start, stop = (self.bound(n, scope) for n in (s.start, s.stop))
        self.at = s.span[0]
        name = s.index.id
        if scope.is_dimension(name):
            self.fail(s.index.span, f"`{name}` is a dimension of the function", "choose another name")
        carried = self.carried(s.body, scope, name)
        if carried is None or isinstance(start, Poison) or isinstance(stop, Poison):
            self.poison(s.body, scope)
            return
        self.at = s.span[0]
        first = self.tensor(start, I32)
        names = list(carried)

        def test(inner: BlockNames) -> Any:
            limit = self.captured(stop, len(self.loops) - 1) if isinstance(stop, SSAValue) else stop
            self.at = s.span[0]
            return self.apply("lt", inner.names[_COUNTER], limit)

        def step(inner: BlockNames) -> list[Any]:
            inner.names[name] = counter = inner.names[_COUNTER]
            assert isinstance(counter, SSAValue)
            if is_whole(start) and start >= 0:
                self.counters.add(counter)
            counter.name_hint = hint(name)
            self.statements(s.body, inner)
            self.at = s.span[0]
            return [self.apply("add", counter, 1), *(inner.names[n] for n in names)]

        self.loop(s, {_COUNTER: first, **carried}, scope, test, step)
        scope.names.pop(_COUNTER, None)

    def bound(self, node: syntax.Expr, scope: BlockNames) -> Any:
        """A limit of `for`: a whole number or an i32 scalar."""
        value = self.expr(node, scope)
        whole = is_whole(value) and -(1 << 31) <= value < 1 << 31
        if (
            isinstance(value, Poison)
            or whole
            or (isinstance(value, SSAValue) and value.type == tensor([], I32))
        ):
            return value
        help = "convert with `as i32`" if isinstance(value, SSAValue) and not shape_of(value) else ""
        return self.fail(
            node.span, "a limit of `for` is a whole number or i32[]", describe_value(value), help
        )

    def poison(self, body: Statements, scope: BlockNames) -> None:
        """What a loop with an error leaves behind."""
        for n in syntax.assigned(tuple(body)):
            if scope.find(n.id) is not None:
                scope.names[n.id] = POISON

    def loop(
        self,
        s: syntax.While | syntax.For,
        carried: dict[str, SSAValue],
        scope: BlockNames,
        test: Callable[[BlockNames], Any],
        step: Callable[[BlockNames], list[Any]],
    ) -> None:
        """Append graph.while and give the names its results."""
        names, inits = list(carried), list(carried.values())
        types = [v.type for v in inits]
        errors = len(self.report.found)
        frames = []
        outer = self.out
        for run in (test, step):
            block = Block(arg_types=types)
            frame = LoopRegion(block)
            args = dict(zip(names, block.args, strict=True))
            for n, arg in args.items():
                arg.name_hint = hint(n)
                if isinstance(s, syntax.For) and n == _COUNTER:
                    arg.name_hint = hint(s.index.id)
            self.loops.append(frame)
            self.out = []
            inner = BlockNames(scope, len(self.loops), dict(args))
            values = run(inner)
            values = values if isinstance(values, list) else [values]
            if run is step and len(self.report.found) == errors:
                values = [self.stepped(s, n, v, t) for n, v, t in zip(names, values, types, strict=True)]
            frames.append((frame, self.out, values))
            self.loops.pop()
        self.out = outer
        if len(self.report.found) > errors or any(isinstance(v, Poison) for f in frames for v in f[2]):
            for n in names:
                scope.names[n] = POISON
            return
        self.at = s.span[0]
        (test_frame, test_ops, test_values), (step_frame, step_ops, step_values) = frames
        first, second = list(test_frame.captured), list(step_frame.captured)
        for i, v in enumerate(second):
            test_frame.block.insert_arg(v.type, len(first) + i)
        for i, v in enumerate(first):
            step_frame.block.insert_arg(v.type, i)
        regions = []
        kept = list(step_frame.block.args)[: len(first) + len(second)]
        for frame, ops, values in (
            (test_frame, test_ops, test_values),
            (step_frame, step_ops, [*kept, *step_values]),
        ):
            self.out = ops
            self.emit(YieldOp, values, [])
            frame.block.add_ops(self.out)
            regions.append(Region(frame.block))
        self.out = outer
        every = [*first, *second, *inits]
        op = WhileOp.create(operands=every, result_types=[v.type for v in every], regions=regions)
        counted = count_trips(op, self.number)
        if counted is not None:
            op.counter, op.trip_count = integer_attr(counted[0]), integer_attr(counted[1])
        self.append(op)
        for n, value in zip(names, op.results[len(first) + len(second) :], strict=True):
            value.name_hint = hint(n) if n != _COUNTER else None
            scope.names[n] = value

    def stepped(self, s: syntax.While | syntax.For, name: str, value: Any, wanted: Attribute) -> Any:
        """What the body of a loop gives for a carried name, checked against what it was before."""
        if isinstance(value, Poison):
            return POISON
        assert isinstance(wanted, TensorType)
        at = next((i for i in reversed(list(syntax.assigned(s.body))) if i.id == name), None)
        span = at.span if at is not None else s.span
        try:
            made = self.tensor(value, wanted.element_type)
        except Problem as problem:
            return self.problem(at or s, problem)
        if not same_type(made.type, wanted):
            help = "a loop keeps the types of what it carries"
            if not shape_in(wanted) and not shape_of(made):
                now = dtype_name(element_of(made))
                help = f"start it as {now}, or convert with `as {dtype_name(wanted.element_type)}`"
            notes = [f"it is {type_text(wanted)} before the loop, and {type_text(made.type)} after one round"]
            return self.fail(
                span, f"`{name}` changes its type in the loop", type_text(made.type), help, notes=notes
            )
        return made
