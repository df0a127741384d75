"""A program's levels as text whose every op and value is known, and which op came from which.

Each op's location is wrapped in a `NameLoc` that holds its number at that level. Locations survive the passes
below, so an op of the next level names the op that it came from. The text and the values are those of the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO

from xdsl.dialects.builtin import LocationAttr, ModuleOp, NameLoc, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.printer import Printer

from ..dialects.base import text
from ..dialects.graph import FusionOp
from ..dialects.source_places import SourcePlace, source_place
from ..kernels.plan import KernelPlan
from ..passes.pipeline import ORDER, Stage, run_pipeline
from ..passes.plans import plans_asked
from ..passes.reasons import Reason, ReasonKind, reasons_asked

LONGEST = 1500
"""Characters shown of a line: constants and host modules may be far longer."""

_MARK = "tilewright.explain."


@dataclass
class Line:
    """A printed line: the op whose text it is, or None, and (column, value) of each SSA name on it."""

    text: str
    op: Operation | None
    names: list[tuple[int, SSAValue]]


@dataclass(frozen=True)
class LevelDecision:
    """A `Reason` whose ops have the numbers that they have in a level."""

    kind: ReasonKind
    ops: tuple[int, ...]
    result: int
    why: str


@dataclass
class LevelView:
    """One level. ops: numbered in the order they are printed; origins: for each, those of the level above that it
    came from; places: where each is in the user's source, or None; lines: the text; decisions: why passes left ops
    of it apart; plans: how the kernels are placed that the passes of the level built."""

    name: str
    module: ModuleOp
    ops: list[Operation]
    origins: list[list[int]]
    places: list[SourcePlace | None]
    lines: list[Line]
    decisions: list[LevelDecision] = field(default_factory=list)
    plans: dict[str, KernelPlan] = field(default_factory=dict)
    number: dict[Operation, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number = {op: i for i, op in enumerate(self.ops)}


class _Recorder(Printer):
    """Prints IR and notes where each op and each SSA name begins."""

    def __init__(self, stream: StringIO) -> None:
        super().__init__(stream)
        self.text = stream
        self.starts: list[tuple[int, Operation]] = []
        self.ends: list[tuple[int, Operation]] = []
        self.names: list[tuple[int, SSAValue]] = []

    def print_op(self, op: Operation) -> None:
        self.starts.append((self.text.tell(), op))
        super().print_op(op)
        self.ends.append((self.text.tell(), op))

    def print_ssa_value(self, value: SSAValue) -> str:
        self.names.append((self.text.tell(), value))
        return super().print_ssa_value(value)


def printed(module: ModuleOp) -> list[Line]:
    """The lines of `str(module)`."""
    stream = StringIO()
    recorder = _Recorder(stream)
    recorder.print_op(module)
    content = stream.getvalue()
    lines: list[Line] = []
    starts, ends, names = iter(recorder.starts), iter(recorder.ends), iter(recorder.names)
    start, end, name = next(starts, None), next(ends, None), next(names, None)
    at = 0
    for line in content.split("\n"):
        after = at + len(line) + 1
        op: Operation | None = None
        while start is not None and start[0] < after:
            op, start = op or start[1], next(starts, None)
        while end is not None and end[0] < after:
            op, end = op or end[1], next(ends, None)
        here: list[tuple[int, SSAValue]] = []
        while name is not None and name[0] < after:
            here.append((name[0] - at, name[1]))
            name = next(names, None)
        if op is None and here and isinstance(here[0][1], BlockArgument):  # `^bb0(%0: ...)`
            op = here[0][1].block.parent_op()
        lines.append(Line(line, op, here))
        at = after
    return lines


def views_of(module: ModuleOp, target: str | None, stages: Sequence[Stage]) -> list[LevelView]:
    """The levels of a module, from the one it is written in down to npu. The module is compiled on the way, and is that
    of the last view.

    Raises PassError.
    """
    found: list[LevelView] = []

    def reached(level: str) -> None:
        copy = module if level == ORDER[-1] else module.clone()
        ops = [op for op in copy.walk() if op is not copy]
        decisions = _decisions(module, reasons)
        reasons.clear()
        above = found[-1] if found else None
        origins = [[] if above is None else _origin(op) for op in ops]
        for op in ops:
            op.location = _unmarked(op.location)
        if above is not None:
            origins = _inside_fusions(above, origins)
        places = [source_place(op) for op in ops]
        found.append(LevelView(level, copy, ops, origins, places, printed(copy), decisions, dict(plans)))
        plans.clear()
        if level != ORDER[-1]:
            for i, op in enumerate(op for op in module.walk() if op is not module):
                op.location = NameLoc(StringAttr(f"{_MARK}{i}"), _unmarked(op.location))

    with reasons_asked() as reasons, plans_asked() as plans:
        run_pipeline(module, target, stages=stages, reached=reached)
    return found


def _decisions(module: ModuleOp, reasons: Sequence[Reason]) -> list[LevelDecision]:
    """What passes noted, about ops that a module still has."""
    numbers = {op: i for i, op in enumerate(op for op in module.walk() if op is not module)} if reasons else {}
    return [
        LevelDecision(r.kind, tuple(numbers[op] for op in r.ops), r.result, r.why)
        for r in reasons
        if all(op in numbers for op in r.ops)
    ]


def of_module(view: LevelView, module: ModuleOp) -> LevelView | None:
    """The view with an equal module in place of its own, op by op; None where the text is another."""
    if str(view.module) != str(module):
        return None
    ops = [op for op in module.walk() if op is not module]
    places = [source_place(op) for op in ops]
    return LevelView(view.name, module, ops, view.origins, places, printed(module), view.decisions, view.plans)


def _origin(op: Operation) -> list[int]:
    number = marked(op.location)
    return [] if number is None else [number]


def marked(location: LocationAttr | None) -> int | None:
    """The number that an op has at the level above, by the location that it gave what it became; None for others."""
    if isinstance(location, NameLoc) and location.desc.data.startswith(_MARK):
        return int(location.desc.data.removeprefix(_MARK))
    return None


def _unmarked(location: LocationAttr) -> LocationAttr:
    while isinstance(location, NameLoc) and location.desc.data.startswith(_MARK):
        inner = location.location
        assert isinstance(inner, LocationAttr)
        location = inner
    return location


def _inside_fusions(above: LevelView, origins: list[list[int]]) -> list[list[int]]:
    """Origins where an op with a body of its own stands for the ops in it that have its location and that nothing
    else claims: a fusion is placed where its main op is."""
    claimed = {i for origin in origins for i in origin}
    members: dict[int, list[int]] = defaultdict(list)
    for i, op in enumerate(above.ops):
        parent = op.parent_op()
        if parent is None or i in claimed or not op.results:
            continue
        outer = above.number.get(parent)
        if outer is not None and outer in claimed and parent.location == op.location:
            members[outer].append(i)
    return [origin + [m for i in origin for m in members.get(i, [])] for origin in origins]


def values_in(view: LevelView) -> Iterator[SSAValue]:
    """The values of a level in the order they are printed, each once."""
    seen: set[SSAValue] = set()
    for line in view.lines:
        for _, value in line.names:
            if value not in seen:
                seen.add(value)
                yield value


def launched_kernels(view: LevelView, views: list[LevelView]) -> dict[Operation, list[str]]:
    """The kernels that each fusion of the graph level, and each other op that became one, is launched as, in order."""
    found: dict[Operation, dict[str, None]] = {}
    below = _below(view, views)
    if below is not None:
        for op, origin in zip(below.ops, below.origins, strict=True):
            callee = op.properties.get("callee")
            if isinstance(callee, SymbolRefAttr):
                for i in origin:
                    found.setdefault(_home(view.ops[i]), {})[callee.root_reference.data] = None
    return {op: list(names) for op, names in found.items() if not isinstance(op, FuncOp)}


def shown_kernels(view: LevelView, views: list[LevelView]) -> dict[Operation, list[str]]:
    """The same, with the kernels that have an op of it in their bodies, as one that was inlined into others."""
    found = {op: dict.fromkeys(names) for op, names in launched_kernels(view, views).items()}
    below = _below(view, views)
    for kernel in [] if below is None else below.module.ops:
        if "grid" in kernel.properties:
            for op in kernel.walk():
                for i in below.origins[below.number[op]] if below is not None else ():
                    home = _home(view.ops[i])
                    if not isinstance(home, FuncOp):
                        found.setdefault(home, {})[text(kernel.properties["sym_name"])] = None
    return {op: list(names) for op, names in found.items()}


def _below(view: LevelView, views: list[LevelView]) -> LevelView | None:
    """The tile level, for the graph level."""
    place = views.index(view)
    return views[place + 1] if view.name == "graph" and place + 1 < len(views) else None


def _home(op: Operation) -> Operation:
    """The fusion that an op is or is in; without one, the op itself."""
    at: Operation | None = op
    while at is not None and not isinstance(at, FusionOp):
        at = at.parent_op()
    return at or op
