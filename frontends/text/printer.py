"""The graph level as `.tw` text: what comes out lowers to the same graph again."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import dtype_name, element_type, is_float
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    CaseOp,
    ConstantOp,
    DequantizeOp,
    ElementwiseOp,
    GraphOp,
    IotaOp,
    QuantizeOp,
    ReshapeOp,
    WhileOp,
    YieldOp,
)
from ...dialects.graph.extents import extents_of
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.module import find_main
from ..errors import FrontendError
from ..known import NATIVE, scalar_value
from .builder import BOOLEAN, check_domain, type_text
from .diagnostics import Problem
from .expressions import CONSTANTS
from .format import format_text
from .forms import FORMS, annotation, bare, constant, number_text
from .functions import OPERATORS, functions, graph_functions, property_kinds
from .tokens import is_name, keywords


def print_tw(module: ModuleOp, name: str = "main") -> str:
    """A graph-level module as .tw text, its @main called `name`, or like it where the language has a word `name`.
    Raises FrontendError, one line that names the op and its place, for what the language cannot say."""
    main = find_main(module)
    if main is None:
        raise FrontendError("there is no function @main to print as .tw")
    if extents_of(main):
        raise cannot(main, "it has results whose sizes depend on data")
    printer = _Printer()
    name = printer.fresh(name if is_name(name) else "main")
    printer.used.discard(name)  # values have names of their own
    return format_text(f"{name}.tw", printer.function(main, name))


def cannot(op: Operation, why: str = "") -> FrontendError:
    """The error for an op that the language has no words for."""
    return FrontendError(f"{describe(op)} cannot be written in .tw{': ' + why if why else ''}")


class _Printer:
    def __init__(self) -> None:
        self.names: dict[SSAValue, str] = {}
        self.used = {*keywords(), *functions(), *CONSTANTS, "graph"}
        self.lines: list[str] = []
        self.inline = 0
        self.skipped: set[Operation] = set()

    # -- names and types -----------------------------------------------------------------------------------

    def fresh(self, hint: str | None) -> str:
        """A name that nothing has yet."""
        stem = hint if hint and is_name(hint) else ""
        name, i = stem or "v0", 0
        while name in self.used:
            i += 1
            name = f"{stem}_{i}" if stem else f"v{i}"
        self.used.add(name)
        return name

    def name(self, value: SSAValue) -> str:
        """How a value is written where it is used."""
        if value not in self.names:
            owner = value.owner
            assert self.inline and isinstance(owner, Operation)
            return f"({self.expression(owner)})"
        return self.names[value]

    def type(self, type_: Attribute, op: Operation, left: DequantizeOp | None = None) -> str:
        """A tensor type as .tw writes it; left: what is left of a value of the type when it is quantized."""
        if not isinstance(type_, TensorType) or type_.element_type not in NATIVE:
            raise cannot(op, f"the language has no {type_}")
        quantized = "" if left is None else annotation(left)
        if quantized is None:
            raise cannot(op, f"the language has no {left.kind if left else type_}")
        return type_text(type_) + quantized

    def annotated(self, value: SSAValue, op: Operation) -> str:
        """The type of a value, with how it is quantized where only what is left of it then is used: that has its name,
        too."""
        left = _left_of(value)
        if left is not None:
            self.names[left.result] = self.names[value]
        return self.type(value.type, op, left)

    # -- structure -----------------------------------------------------------------------------------------

    def function(self, main: FuncOp, name: str) -> str:
        block = main.body.block
        parameters = []
        for arg in block.args:
            self.names[arg] = self.fresh(arg.name_hint or "x")
            parameters.append(f"{self.names[arg]}: {self.annotated(arg, main)}")
        types = [self.type(t, main) for t in main.function_type.outputs]
        results = types[0] if len(types) == 1 else f"({', '.join(types)})"
        if not types:
            raise cannot(main, "a function without results")
        head = f"pub fn {name}({', '.join(parameters)}) -> {results} {{"
        self.block(block)
        last = block.last_op
        assert isinstance(last, ReturnOp)
        values = ", ".join(self.name(v) for v in last.operands)
        return "\n".join([head, *self.lines, f"return {values}", "}", ""])

    def block(self, block: Block) -> None:
        """The ops of a block, without its terminator."""
        for op in block.ops:
            if isinstance(op, YieldOp | ReturnOp):
                continue
            if isinstance(op, WhileOp):
                self.loop(op)
            elif isinstance(op, CaseOp):
                self.branch(op)
            elif isinstance(op, DequantizeOp):
                self.quantized(op)
            elif not (isinstance(op, QuantizeOp) or self.implied(op)):
                self.assign(op)

    def assign(self, op: Operation) -> None:
        expression = self.expression(op)
        targets = []
        for r in op.results:
            left = _left_of(r)
            annotated = len(op.results) == 1 and left is not None
            self.names[r] = self.fresh(r.name_hint or (left.result.name_hint if annotated and left else None))
            targets.append(f"{self.names[r]}: {self.annotated(r, op)}" if annotated else self.names[r])
        self.lines.append(f"{', '.join(targets)} = {expression}")

    def quantized(self, op: DequantizeOp) -> None:
        """What is left of a quantized value, unless the value's own line says so already."""
        if op.result in self.names:
            return
        maker = op.x.owner
        if not isinstance(maker, QuantizeOp) or maker.given or op.given:
            raise cannot(op, "the language has quantized values only where they become numbers again at once")
        self.names[op.result] = self.fresh(op.result.name_hint)
        self.lines.append(f"{self.names[op.result]}: {self.type(op.result.type, op, op)} = {self.name(maker.x)}")

    def loop(self, op: WhileOp) -> None:
        yielded = op.yielded(1).values
        block, test = op.body.block, op.condition.block
        changed = []
        for i, (init, result) in enumerate(zip(op.inits, op.results, strict=True)):
            if yielded[i] is block.args[i]:
                for v in (block.args[i], test.args[i], result):
                    self.names[v] = self.name(init)
            else:
                changed.append(i)
        if not changed:
            raise cannot(op, "a loop that carries nothing")
        if self.counted(op, changed):
            return
        for i in changed:
            self.carry(op, i)
        self.inline += 1
        condition = self.name(op.yielded(0).values[0])
        self.inline -= 1
        self.lines.append(f"while {bare(condition)} {{")
        self.block(block)
        self.carried(op, changed)
        self.lines.append("}")

    def carry(self, op: WhileOp, i: int) -> None:
        """A name of its own for a value that the loop carries."""
        arg = op.body.block.args[i]
        name = self.fresh(arg.name_hint or op.inits[i].name_hint)
        self.lines.append(f"{name} = {self.name(op.inits[i])}")
        for v in (arg, op.condition.block.args[i], op.results[i]):
            self.names[v] = name

    def carried(self, op: WhileOp, changed: Sequence[int]) -> None:
        """The assignments at the end of a round."""
        values = {i: op.yielded(1).values[i] for i in changed}
        args = op.body.block.args
        pending: dict[int, str] = {}
        for i, v in values.items():
            pending[i] = self.name(v)
            if isinstance(v, BlockArgument) and v.owner is args[i].owner and v.index in changed:
                kept = self.fresh("kept")
                self.lines.append(f"{kept} = {pending[i]}")
                pending[i] = kept
        self.lines += [f"{self.names[args[i]]} = {text}" for i, text in pending.items()]

    def counted(self, op: WhileOp, changed: list[int]) -> bool:
        """Print a loop as `for`, where that lowers to it again."""
        if op.counter is None or op.trip_count is None or integer(op.counter) != changed[0]:
            return False
        at = integer(op.counter)
        start, step = scalar_value(op.inits[at]), op.yielded(1).values[at].owner
        plain = isinstance(step, ELEMENTWISE["add"]) and len(list(step.results[0].uses)) == 1
        if not plain or start is None or list(op.results[at].uses):
            return False
        test = op.yielded(0).values[0].owner
        limit = scalar_value(test.operands[1]) if isinstance(test, ELEMENTWISE["lt"]) else None
        if limit is None or not isinstance(step, Operation):
            return False
        index = self.fresh(op.body.block.args[at].name_hint or "i")
        rest = [i for i in changed if i != at]
        for i in rest:
            self.carry(op, i)
        self.names[op.body.block.args[at]] = index
        self.lines.append(f"for {index} in {int(start)}..{int(limit)} {{")
        self.skipped.add(step)
        self.block(op.body.block)
        self.carried(op, rest)
        self.lines.append("}")
        return True

    def branch(self, op: CaseOp) -> None:
        index = op.index.owner
        if len(op.branches) != 2 or not isinstance(index, ELEMENTWISE["convert"]):
            raise cannot(op, f"a choice between {len(op.branches)} branches by a number")
        chosen = index.operands[0]
        if element_of(chosen) != BOOLEAN or shape_of(chosen):
            raise cannot(op, "a choice by something other than a truth value")
        names = [self.fresh(r.name_hint) for r in op.results]
        for k, head in ((1, f"if {self.name(chosen)} {{"), (0, "} else {")):
            self.lines.append(head)
            region = op.branches[k]
            self.block(region.block)
            for name, v in zip(names, op.yielded(k).values, strict=True):
                self.lines.append(f"{name} = {self.name(v)}")
        self.lines.append("}")
        self.names.update(zip(op.results, names, strict=True))

    # -- expressions ---------------------------------------------------------------------------------------

    def expression(self, op: Operation) -> str:
        """An op as an expression over the names of its operands."""
        for r in op.results:
            self.type(r.type, op)
        if not isinstance(op, GraphOp) or op.regions:
            raise cannot(op)
        if isinstance(op, ConstantOp):
            return constant(op.value.data)
        if isinstance(op, ElementwiseOp):
            return self.elementwise(op)
        pretty = FORMS.get(type(op))
        made = pretty(self, op) if pretty is not None else None
        return self.exact(op) if made is None else made

    def exact(self, op: GraphOp) -> str:
        """`graph.<op>(...)` with all its properties."""
        name = op.name.removeprefix("graph.")
        if name not in graph_functions() or name in keywords():
            raise cannot(op)
        words = [self.name(v) for v in op.operands]
        for key, kind in property_kinds(type(op)).items():
            if key in op.properties:
                value = op.properties[key]
                shown = {
                    "Ints": lambda a: str(list(to_ints(a))),
                    "int": lambda a: str(integer(a)),
                    "str": lambda a: f'"{text(a)}"',
                }[kind](value)
                words.append(f"{key}={shown}")
        result = op.results[-1]
        if isinstance(op, BroadcastOp | ReshapeOp | IotaOp):
            words.append(f"shape={list(shape_of(result))}")
        default = element_of(op.operands[0]) if op.operands else element_type("f32")
        if element_of(result) != default:
            words.append(f"type={dtype_name(element_of(result))}")
        return f"graph.{name}({', '.join(words)})"

    def elementwise(self, op: ElementwiseOp) -> str:
        function = op.FUNCTION
        if function.result == "any":
            if element_of(op.operands[0]) == element_of(op.results[0]):
                return self.exact(op)
            return f"{self.name(op.operands[0])} as {dtype_name(element_of(op.results[0]))}"
        values = op.operands[1:] if function.predicate else op.operands
        try:
            check_domain(function, element_of(values[0]), function.name)
        except Problem:
            return self.exact(op)
        whole = not is_float(element_of(values[0]))
        if function.name == "div" and whole:
            return self.exact(op)
        words = self.broadcasted(op, len(op.operands) - len(values))
        sign = OPERATORS.get(function.name)
        if sign is None:
            return f"{function.name}({', '.join(map(bare, words))})"
        return f"{sign} {words[0]}" if len(words) == 1 else f"{words[0]} {sign} {words[1]}"

    def broadcasted(self, op: ElementwiseOp, first: int) -> list[str]:
        """The operands, those that the language broadcasts by itself as what they come from."""
        sources = [_source(v, op) if i >= first else None for i, v in enumerate(op.operands)]
        # one operand has to say what the shape is, and one of the values what the element type is
        if all(s is not None for s in sources[first:]):
            sources[first] = None
        out = []
        for v, source in zip(op.operands, sources, strict=True):
            if source is None:
                out.append(self.name(v))
                continue
            value = scalar_value(source)
            literal = (
                number_text(value, element_of(source)) if value is not None and not shape_of(source) else None
            )
            out.append(f"({literal})" if literal and literal[0] == "-" else literal or self.name(source))
        return out

    def implied(self, op: Operation) -> bool:
        """Whether an op needs no line: the broadcasts and constants that elementwise ops imply."""
        users = [u.operation for r in op.results for u in r.uses]
        if op in self.skipped or (users and all(u in self.skipped for u in users)):
            return True
        if isinstance(op, ELEMENTWISE["convert"]) and users and all(isinstance(u, CaseOp) for u in users):
            return True
        if isinstance(op, ConstantOp):
            if number_text(scalar_value(op.result), element_of(op.result)) is None or shape_of(op.result):
                return False
            return bool(users) and all(isinstance(u, BroadcastOp) and self.implied(u) for u in users)
        if not isinstance(op, BroadcastOp):
            return False
        if any(isinstance(u.operation, BroadcastOp) for u in op.result.uses):
            inner = [u.operation for u in op.result.uses]
            lead = len(shape_of(op.result)) - len(shape_of(op.x))
            numpy = (
                lead > 0
                and list(to_ints(op.dims)) == list(range(lead, len(shape_of(op.result))))
                and shape_of(op.x)
            )
            front = shape_of(op.result)[lead:] == shape_of(op.x)
            return bool(numpy and front) and all(
                isinstance(u, BroadcastOp) and self.implied(u) for u in inner
            )
        for use in op.result.uses:
            user = use.operation
            if not isinstance(user, ElementwiseOp) or user.FUNCTION.result == "any":
                return False
            first = 1 if user.FUNCTION.predicate else 0
            sources = [_source(v, user) if i >= first else None for i, v in enumerate(user.operands)]
            named = all(s is not None for s in sources[first:]) and use.index == first
            if use.index < first or sources[use.index] is None or named:
                return False
            if self._is_exact(user):
                return False
        return bool(op.result.uses)

    @staticmethod
    def _is_exact(op: ElementwiseOp) -> bool:
        element = element_of(op.operands[-1])
        try:
            check_domain(op.FUNCTION, element, "")
        except Problem:
            return True
        return op.FUNCTION.name == "div" and not is_float(element)


def _left_of(value: SSAValue) -> DequantizeOp | None:
    """What is left of a value that is only used quantized; None for any other value."""
    uses = list(value.uses)
    quantizes = uses[0].operation if len(uses) == 1 else None
    if not isinstance(quantizes, QuantizeOp) or quantizes.given:
        return None
    back = list(quantizes.result.uses)
    made = back[0].operation if len(back) == 1 else None
    return made if isinstance(made, DequantizeOp) else None


def _source(value: SSAValue, user: ElementwiseOp) -> SSAValue | None:
    """The operand of a broadcast that the language makes by itself; None for any other value."""
    op = value.owner
    if not isinstance(op, BroadcastOp):
        return None
    x, shape, dims = op.x, shape_of(value), list(to_ints(op.dims))
    if not shape_of(x):
        return x if shape else None
    lead = len(shape) - len(shape_of(x))
    if user.FUNCTION.predicate:
        return x if dims == list(range(lead, len(shape))) else None
    if lead or dims != list(range(len(shape))) or shape_of(x) == shape:
        return None
    inner = x.owner
    if isinstance(inner, BroadcastOp) and shape_of(inner.x):
        lead = len(shape) - len(shape_of(inner.x))
        front = to_ints(inner.dims) == tuple(range(lead, len(shape)))
        if lead > 0 and front and shape_of(x) == (1,) * lead + shape_of(inner.x):
            return inner.x
    return x


__all__ = ["print_tw"]
