"""Where a program stops: lines, kernels, instructions, addresses and values, and conditions on what is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, Literal

import numpy as np
from xdsl.ir import Operation

from ..backends.stepper.errors import StepFault
from ..backends.stepper.events import StepEvent, TouchedValues, byte_ranges
from ..backends.stepper.instructions import Gather
from ..dialects.npu import BufferType, ElementwiseVectorOp, GmType, NpuOp, SlotOp
from ..dialects.source_places import SourcePlace, source_place
from .errors import DebugError
from .expressions import NAME, Expression, plain
from .listing import Listing
from .scopes import GM, ByteRange, NameScope, span_of

Kind = Literal["line", "kernel", "instruction", "address", "value", "any"]
AccessKind = Literal["", "read", "write"]

_LINE = re.compile(r"([^:]*[^:\s]):(\S.*)")
_OUTSIDE = re.compile(r"outside\s+(\S+?)\s*\.\.\s*(\S+)")
_SAYS_VALUE = ("nan", "inf", "outside")


def names_of(op: Operation) -> list[str]:
    """What an instruction may be called: npu.vexp, vexp or exp; load_nd2nz, and by its first word load."""
    short = op.name.removeprefix("npu.")
    found = [op.name, short]
    if isinstance(op, ElementwiseVectorOp):
        found.append(op.FUNCTION.name)
    if "_" in short:
        found.append(short.partition("_")[0])
    if short[0] == "v":
        found.append(short[1:])
    return found


@dataclass(frozen=True)
class Code:
    """The kernels of a program, with their listings, and the memories of its machine."""

    kernels: Mapping[str, Listing]
    instructions: Mapping[str, Sequence[NpuOp]]
    """Of each kernel, in order."""
    spaces: Sequence[str]


@dataclass(frozen=True)
class Condition:
    """What must hold: of an expression, or of the values that an instruction writes. low, high: of `outside`."""

    text: str
    what: Literal["nan", "inf", "outside", "expression"]
    low: float = 0
    high: float = 0
    expression: Expression | None = None

    @staticmethod
    def of(text: str) -> Condition:
        """Raises DebugError."""
        text = " ".join(text.split())
        if text in ("nan", "inf"):
            return Condition(text, "nan" if text == "nan" else "inf")
        if text.split(" ")[0] == "outside":
            match = _OUTSIDE.fullmatch(text)
            try:
                low, high = (float(match[i]) for i in (1, 2)) if match else (1.0, 0.0)
            except ValueError:
                low, high = 1.0, 0.0
            if not low <= high:
                raise DebugError(f"cannot read '{text}'; write outside -1..1")
            return Condition(text, "outside", low, high)
        return Condition(text, "expression", expression=Expression(text))

    def of_values(self, values: np.ndarray) -> np.ndarray:
        """For which elements it holds, where it is about what an instruction writes."""
        x = plain(values)
        if self.what == "nan":
            return np.isnan(x)
        if self.what == "inf":
            return np.isinf(x)
        return (x < self.low) | (x > self.high)


@dataclass(eq=False)
class Breakpoint:
    """A place or a condition at which a program stops.

    Before an instruction, but where a condition is about what was written: then behind the one that did.
    """

    number: int
    text: str
    kind: Kind
    ops: frozenset[Operation] = frozenset()
    """The instructions of a line, a kernel or a name."""
    kernel: str = ""
    name: str = ""
    span: ByteRange | None = None
    access: AccessKind = ""
    condition: Condition | None = None
    watches: bool = False
    """Whether the condition is about what is in memory, and the place is no instruction."""
    hits: int = 0
    held: bool = field(default=False, repr=False)
    """Whether a condition on indices alone held at the instruction before."""

    def __str__(self) -> str:
        times = "once" if self.hits == 1 else f"{self.hits} times"
        return f"{self.number}  {self.text}{f', hit {times}' if self.hits else ''}"

    @property
    def is_behind(self) -> bool:
        """Whether it stops behind instructions, for what these wrote."""
        condition = self.condition
        if condition is None:
            return False
        return self.watches if condition.expression is not None else True

    @property
    def needs_accesses(self) -> bool:
        """Whether it asks what instructions touch."""
        return self.is_behind or self.kind in ("address", "value")

    def is_at(self, op: Operation, kernel: str, is_new_launch: bool, is_new_line: bool) -> bool:
        """Whether its place is an instruction, as far as this depends on the instruction alone."""
        if self.kind == "line":
            return op in self.ops and (is_new_line or self.condition is not None)
        if self.kind == "kernel":
            return kernel == self.kernel and (is_new_launch or self.condition is not None)
        if self.kind == "instruction":
            return op in self.ops
        return not self.kernel or kernel == self.kernel

    def touches(self, accesses: Iterable[Touch], listing: Listing) -> bool:
        """Whether an instruction touches its bytes, or its value."""
        for touch in accesses:
            if self.access and (self.access == "write") != touch.write:
                continue
            if self.kind == "value":
                if self.name in touch.names:
                    return True
            elif self.span is not None and touch.space == self.span.space:
                if any(start < self.span.end and self.span.start < end for start, end in touch.ranges()):
                    return True
        return False


@dataclass(frozen=True)
class Touch:
    """What an instruction reads or writes. names: of the value; ranges: of its bytes in the space."""

    space: str
    write: bool
    names: frozenset[str]
    ranges: Callable[[], Sequence[tuple[int, int]]]
    values: np.ndarray | None


def touches_of(event: StepEvent, listing: Listing) -> list[Touch]:
    """What an instruction is going to touch; nothing where it leaves its memory, which is a fault when it runs."""
    op = event.op
    operands = {v: listing.name(v) for v in op.operands}
    try:
        accesses: list[TouchedValues] = [*event.reads, *event.writes]
    except StepFault:
        return []
    found = [_touch(access, operands) for access in accesses]
    node = event.node
    if isinstance(node, Gather):
        tensor, width = event.core.launch.tensors[node.box.tensor], node.box.dtype.itemsize
        places = node.positions(event.core).reshape(-1)

        def ranges() -> Sequence[tuple[int, int]]:
            firsts = np.unique(places) * width + tensor.address
            return [r for first in firsts.tolist() for r in byte_ranges(first, (1,), (width,), width)]

        found.append(
            Touch(
                GM,
                False,
                frozenset(n for v, n in operands.items() if not isinstance(v.type, BufferType)),
                ranges,
                None,
            )
        )
    return found


def _touch(access: TouchedValues, operands: Mapping[Any, str]) -> Touch:
    names = set()
    for value, name in operands.items():
        owner = value
        while isinstance(owner.owner, SlotOp):
            owner = owner.owner.source
        of = getattr(access.of, "value", None)
        if (isinstance(value.type, BufferType) and owner is of) or (
            access.space == GM and not isinstance(value.type, BufferType)
        ):
            names.add(name)
    return Touch(access.space, access.write, frozenset(names), lambda: access.ranges, access.values)


def parse(number: int, text: str, code: Code, scope: NameScope | None) -> Breakpoint:
    """The breakpoint that a text describes: `exp`, `model.py:12`, `@exp_0`, `ub+4096 write`, `%5`, `nan`, each with
    `if CONDITION`. scope: where the program is. Raises DebugError."""
    text = " ".join(text.split())
    where, _, said = (" " + text + " ").partition(" if ")
    where, said = where.strip(), said.strip()
    if " if " in f" {text} " and not said:
        raise DebugError("say what must hold behind 'if', as in break exp if %5 > 100")
    if not said and where.split(" ")[0] in _SAYS_VALUE:
        where, said = "", where
    condition = Condition.of(said) if said else None
    if not where and condition is None:
        raise DebugError("say where, as in break exp, break model.py:12, break ub+4096 write or break nan")
    access: AccessKind = ""
    for kind in ("read", "write"):
        if where.endswith(f" {kind}"):
            access, where = kind, where.removesuffix(f" {kind}").strip()
    made = _placed(number, text, where, code, scope)
    made.condition = condition
    if access:
        if made.kind not in ("address", "value"):
            raise DebugError(f"'{access}' is for bytes and values, as in break ub+4096 {access}")
        made.access = access
    if condition is not None and condition.expression is not None:
        _check_names(made, condition.expression, code, scope)
    return made


def _check_names(made: Breakpoint, expression: Expression, code: Code, scope: NameScope | None) -> None:
    """Finds the kernel whose names an expression has. Raises DebugError."""
    if not expression.names or made.kind in ("line", "instruction"):
        return
    if not made.kernel:
        made.kernel = _kernel_of("break if", code, scope)
    listing = code.kernels[made.kernel]
    missing = [name for name in expression.names if name not in listing.values]
    if missing:
        raise DebugError(f"@{made.kernel} has no value {missing[0]}")
    made.watches = any(isinstance(listing.values[n].type, BufferType | GmType) for n in expression.names)


def _kernel_of(command: str, code: Code, scope: NameScope | None) -> str:
    """The kernel that names without one are of. Raises DebugError."""
    if scope is not None and scope.core is not None:
        return scope.core.launch.plan.name
    if len(code.kernels) == 1:
        return next(iter(code.kernels))
    if not code.kernels:
        raise DebugError("the program has no kernels")
    raise DebugError(f"say in which kernel, as in break @{next(iter(code.kernels))} if %5 > 100")


def _placed(number: int, text: str, where: str, code: Code, scope: NameScope | None) -> Breakpoint:
    if not where:
        return Breakpoint(number, text, "any")
    span = span_of(where, code.spaces)
    if span is not None:
        return Breakpoint(number, text, "address", span=span)
    kernel, _, name = where.partition(" ") if where.startswith("@") else ("", "", where)
    kernel = kernel.removeprefix("@")
    if kernel and kernel not in code.kernels:
        raise DebugError(f"there is no kernel @{kernel}{_hint(kernel, code.kernels, '@')}")
    if NAME.fullmatch(name):
        kernel = kernel or _kernel_of("break", code, scope)
        if name not in code.kernels[kernel].values:
            raise DebugError(f"@{kernel} has no value {name}")
        return Breakpoint(number, text, "value", kernel=kernel, name=name)
    if kernel and name:
        ops = [op for op in code.instructions[kernel] if name in names_of(op)]
        return _instruction(number, text, name, ops, code)
    if kernel:
        return Breakpoint(number, text, "kernel", kernel=kernel)
    match = _LINE.fullmatch(where)
    if match is not None:
        return _place(number, text, match[1], match[2], code)
    ops = [op for listed in code.instructions.values() for op in listed if name in names_of(op)]
    if not ops and name in code.kernels:
        return Breakpoint(number, text, "kernel", kernel=name)
    return _instruction(number, text, name, ops, code)


def _instruction(number: int, text: str, name: str, ops: Sequence[Operation], code: Code) -> Breakpoint:
    if not ops:
        known = {n for listed in code.instructions.values() for op in listed for n in names_of(op)}
        raise DebugError(
            f"the program has no instruction or kernel {name}{_hint(name, {*known, *code.kernels})}"
        )
    return Breakpoint(number, text, "instruction", frozenset(ops))


def _place(number: int, text: str, file: str, at: str, code: Code) -> Breakpoint:
    """A breakpoint at a line of a file, or at a node of a model by its name or number."""
    asked, found, others = PurePath(file).parts, list[Operation](), set[SourcePlace]()
    for op in (op for listed in code.instructions.values() for op in listed):
        place = source_place(op)
        if place is not None and PurePath(place.file).parts[-len(asked) :] == asked:
            others.add(place)
            if at in (place.node, str(place.line)):
                found.append(op)
    if not found:
        known = ", ".join(place.node or str(place.line) for place in sorted(others))
        listed = f"; those of {file} come from {known}" if others else ""
        raise DebugError(f"no instruction comes from {file}:{at}{listed}")
    return Breakpoint(number, text, "line", frozenset(found))


def _hint(name: str, known: Iterable[str], mark: str = "") -> str:
    near = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {mark}{near[0]}?" if near else ""
