"""The data of the page, as plain JSON: of the program's own module, simulation and report.

{"schema": "tilewright.explain/1", "name", "target", "version",
 "report": as in backends/report.py, "advice": as program_advice.advice gives it,
 "files": [{"name", "lines": [[number, text], ...], "nodes": whether they are nodes of a model}],
                                                    only lines near those that ops come from
 "levels": [{"name", "lines": [[text, op, [column, value, ...]], ...],
             "origins": {op: [ops of the level above]},
             "places": [[file, line] or 0, for each op],
             "blocks": [{"title", "kernels": names, "lines": [first, after]}]}],   no kernels: of the host
 "apart": as apart.kernels_apart gives it: why kernels are not one, and launches are not
 "aliases": [[value, value], ...],      an argument of a body or kernel, and what it is called with
 "kernels": {name: the timeline of timeline.kernel_timeline, and "sources": [[file, line], ...],
                    "plan": as stages.kernel_plans gives it},
 "steps": timeline.program_timeline,  the spans of the trace
 "memory": timeline.device_memory, "packing": packing_plan.packing_plan,
 "capacity": {space: bytes}, "clock_mhz"}
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from ..api.compiling import compile_with
from ..api.options import Options
from ..api.packing import PackedProgram
from ..api.program import Program
from ..backends.simulator import Launch, Rest
from ..backends.spans import Span, program_spans
from ..dialects.base import text, to_ints
from ..dialects.source_places import SourcePlace
from ..passes.pipeline import Stage
from ..support.files import read_plain, real_path
from ..verification.results import Progress
from .apart import kernels_apart
from .errors import ExplainError
from .levels import LONGEST, LevelView, launched_kernels, of_module, shown_kernels, values_in, views_of
from .packing_plan import packing_plan
from .program_advice import advice
from .stages import kernel_plans
from .timeline import device_memory, kernel_timeline, program_timeline

SCHEMA = "tilewright.explain/1"
STEPS = ("levels", "simulation", "timelines", "page")
"""What is done in turn, for those who wait."""

AROUND = 3
"""Lines shown before and after one that ops come from."""

Json = dict[str, Any]


def compile_with_levels(
    source: Any, *args: Any, target: str | None = None, options: Options | None = None
) -> tuple[Program, list[LevelView]]:
    """A program, and its levels as they were on its way down. Raises as `compile`."""
    lowered: list[list[LevelView]] = []

    def lowering(module: ModuleOp, target: str | None, stages: Sequence[Stage]) -> None:
        lowered.append(views_of(module, target, stages))

    made = compile_with(lowering, source, *args, target=target, options=options)
    if isinstance(made, PackedProgram):  # those of what is behind the packing, which may be lowered in two ways
        lowered = [views for views in lowered if views[-1].module is made.module()]
    return made, lowered[-1] if lowered else []


def page_data(
    program: Program, progress: Progress | None = None, views: list[LevelView] | None = None
) -> Json:
    """Everything the page shows of a program; progress: is told of each step; views: its levels, where they were kept
    (see `compile_with_levels`), else they are made again. Raises CompileError, PassError, SimulationError, and
    ExplainError for a source that gives another program when it is lowered again."""

    def step(what: str) -> None:
        if progress is not None:
            progress(what, STEPS.index(what), len(STEPS))

    step("levels")
    program = program.alone()  # levels are followed op by op where they are lowered for these sizes
    views = views or _views(program)
    npu = views[-1]
    step("simulation")
    simulation, report = program.simulation(), program.report()
    spans = program_spans(simulation)
    longest = _longest_launches(spans)
    step("timelines")
    files = _Files()
    values: dict[SSAValue, int] = {}
    for view in views:
        for value in values_in(view):
            values.setdefault(value, len(values))
    sources = {kernel.name: kernel.sources for kernel in report.kernels if kernel.kind != "copy"}
    plans = kernel_plans(views)
    kernels = {
        name: {
            **kernel_timeline(launch.kernel, launch.run, npu.number),
            "sources": [files.place(place) for place in sources[name]],
            "plan": plans[name],
        }
        for name, launch in longest.items()
    }
    step("page")
    memory = device_memory(npu.module, spans, npu.number)
    return {
        "schema": SCHEMA,
        "name": program.source.name,
        "target": program.machine.name,
        "start": views[0].name,
        "report": report.to_dict(),
        "advice": advice(longest, simulation, report),
        "levels": [_level(view, views, values, files) for view in views],
        "apart": kernels_apart(views),
        "aliases": [pair for view in views for pair in _aliases(view, values)] + _arguments(views, values),
        "kernels": kernels,
        "steps": program_timeline(spans, npu.number),
        "memory": memory,
        "packing": packing_plan(report.memory, memory),
        "capacity": {name: space.bytes for name, space in program.machine.spaces.items()},
        "clock_mhz": program.machine.clock_mhz,
        "files": files.shown(),
    }


def _views(program: Program) -> list[LevelView]:
    """The levels of a program. The upper ones are made again from its source; the last is the program's own module."""
    module, _ = program.source.lower()
    views = views_of(module, program.target, program.options.stages())
    own = of_module(views[-1], program.module())
    if own is None:
        raise ExplainError(
            f"{program.source.name} gives another program when it is lowered again, so its levels do not fit "
            "together: let it depend on nothing but its arguments"
        )
    return [*views[:-1], own]


def _longest_launches(spans: Iterable[Span]) -> dict[str, Launch]:
    """The launch of each kernel that takes longest."""
    found: dict[str, Launch] = {}
    for span in spans:
        step = None if isinstance(span.placed, Rest) else span.placed.step
        if isinstance(step, Launch):
            known = found.get(step.kernel.name)
            if known is None or step.microseconds > known.microseconds:
                found[step.kernel.name] = step
    return found


# -- levels --------------------------------------------------------------------------------------------------


def _level(view: LevelView, views: list[LevelView], values: dict[SSAValue, int], files: _Files) -> Json:
    shown = _folded(view, views)
    lines: list[list[Any]] = []
    blocks: list[Json] = []
    titles = _titles(view, views)
    at: Operation | None = None
    begun: set[Operation] = set()
    for line in view.lines:
        if line.op is not None and line.op in shown.hidden:
            continue
        top = _scope(line.op, titles) if line.op is not None else at
        if line.op is None and not line.text.strip():
            continue
        if top is None:
            continue
        if not blocks or top is not at:
            blocks.append({"title": titles[top][0], "kernels": titles[top][1], "lines": [len(lines), 0]})
            at = top
        content = line.text
        if line.op is not None and line.op in shown.folded:
            if line.op in begun:
                continue
            begun.add(line.op)
            content = content.rstrip() + " ... }"
        clipped = content if len(content) <= LONGEST else content[:LONGEST] + " ..."
        flat = [x for column, value in line.names if column < LONGEST for x in (column, values[value])]
        lines.append([clipped, -1 if line.op is None else view.number.get(line.op, -1), flat])
        blocks[-1]["lines"][1] = len(lines)
    return {
        "name": view.name,
        "lines": lines,
        "origins": {str(i): origin for i, origin in enumerate(view.origins) if origin},
        "places": [files.place(place) for place in view.places],
        "blocks": blocks,
    }


class _Folds:
    """folded: ops whose bodies are left out, since an equal one is shown; hidden: the ops in those bodies."""

    def __init__(self) -> None:
        self.folded: set[Operation] = set()
        self.hidden: set[Operation] = set()


def _folded(view: LevelView, views: list[LevelView]) -> _Folds:
    """Of the bodies that became one kernel, all but the first are folded."""
    found = _Folds()
    seen: set[tuple[str, ...]] = set()
    for op, kernels in launched_kernels(view, views).items():
        key = tuple(sorted(kernels))
        if key in seen and op.regions:
            found.folded.add(op)
            found.hidden |= {inner for inner in op.walk() if inner is not op}
        seen.add(key)
    return found


def _titles(view: LevelView, views: list[LevelView]) -> dict[Operation, tuple[str, list[str]]]:
    """The ops that head a block of text: title, and the kernels that it is of, if any."""
    found: dict[Operation, tuple[str, list[str]]] = {}
    for op in view.module.ops:
        name = op.properties.get("sym_name")
        title = text(name) if name is not None else op.name
        found[op] = (f"@{title}", [] if isinstance(op, FuncOp) else [title])
    folded = _folded(view, views).folded
    for op, kernels in shown_kernels(view, views).items():
        if op not in folded:
            found[op] = (f"{op.name} of @{kernels[0]}", kernels)
    return found


def _scope(op: Operation, titles: dict[Operation, tuple[str, list[str]]]) -> Operation | None:
    """The innermost op with a title that `op` is or is in."""
    at: Operation | None = op
    while at is not None and at not in titles:
        at = at.parent_op()
    return at


def _aliases(view: LevelView, values: dict[SSAValue, int]) -> Iterable[tuple[int, int]]:
    """Arguments of kernels and of bodies, with the operands that they stand for."""
    kernels = {text(op.properties["sym_name"]): op for op in view.module.ops if "grid" in op.properties}
    for op in view.ops:
        callee = op.properties.get("callee")
        if isinstance(callee, SymbolRefAttr):
            kernel = kernels.get(callee.root_reference.data)
            if kernel is None:
                continue
            grid = kernel.properties["grid"]
            assert isinstance(grid, DenseArrayBase)
            arguments = list(kernel.regions[0].block.args)[len(to_ints(grid)) :]
            passed = [*op.operands, *op.results]
        elif op.regions and op.regions[0].blocks and len(op.regions[0].block.args) == len(op.operands):
            arguments, passed = list(op.regions[0].block.args), list(op.operands)
        else:
            continue
        for argument, operand in zip(arguments, passed):
            if argument in values and operand in values:
                yield values[argument], values[operand]


def _arguments(views: list[LevelView], values: dict[SSAValue, int]) -> list[tuple[int, int]]:
    """The arguments of @main at a level and at the next."""
    mains = [next((op for op in view.module.ops if isinstance(op, FuncOp)), None) for view in views]
    found: list[tuple[int, int]] = []
    for above, below in itertools.pairwise(mains):
        if above is not None and below is not None and above.body.blocks and below.body.blocks:
            pairs = zip(above.body.block.args, below.body.block.args)
            found += [(values[a], values[b]) for a, b in pairs if a in values and b in values]
    return found


# -- the user's files ----------------------------------------------------------------------------------------


class _Files:
    """The source files that ops name, and which of their lines; of models, which of their nodes."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._used: dict[int, set[int]] = {}
        self._nodes: dict[int, dict[SourcePlace, int]] = {}

    def place(self, place: SourcePlace | None) -> list[int] | int:
        """[file, line] of a place, 0 for none. The nodes of a model are lines in the order that they come in."""
        if place is None:
            return 0
        number = self._numbers.setdefault(place.file, len(self._numbers))
        if place.node:
            nodes = self._nodes.setdefault(number, {})
            return [number, nodes.setdefault(place, len(nodes) + 1)]
        self._used.setdefault(number, set()).add(place.line)
        return [number, place.line]

    def shown(self) -> list[Json]:
        """The files' lines that matter; none of a file that cannot be read."""
        return [
            {"name": _short(name), "lines": self._lines(name, number), "nodes": number in self._nodes}
            for name, number in self._numbers.items()
        ]

    def _lines(self, name: str, number: int) -> list[list[Any]]:
        """[number, text] of lines of a file; of nodes in the model's order, where it has any."""
        if number in self._nodes:
            nodes = sorted(self._nodes[number].items(), key=lambda item: (item[0].line, item[1]))
            return [[n, place.node[:LONGEST]] for place, n in nodes]
        try:
            content = read_plain(name).decode().splitlines()
        except (OSError, UnicodeDecodeError):
            content = []
        wanted = {
            near
            for line in self._used[number]
            for near in range(line - AROUND, line + AROUND + 1)
            if 1 <= near <= len(content)
        }
        return [[n, content[n - 1][:LONGEST]] for n in sorted(wanted)]


def _short(name: str) -> str:
    """A path below the working directory as from there, else its last part."""
    try:
        return str(real_path(name).relative_to(Path(os.getcwd())))
    except ValueError:
        return Path(name).name
