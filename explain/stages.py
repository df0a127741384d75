"""How each kernel is placed, as plain JSON: its axes and what they are bound to, its stages, its loops and its memory.

{"schedule": {"kind": "vector_schedule", "fields": {name: number, word or list}} or null,
 "axes": [{"name", "role", "dims", "extent", "tile", "cuts": [{"by": "cores" | "units" | "loop", "times", "elements",
           "what"}]}],
 "loops": [{"core", "depth", "trips", "carries": [type of a tile, ...]}],                in the order of the text
 "memory": [{"core", "space", "bytes", "buffers": [{"type", "slots", "bytes", "count"}]}],
 "graphs": [{"part", "slots", "nodes", "edges"}],
 "unstaged": what is not among the stages and why, "" where all is}

A node is {"id", "op", "does", "text", "unit": pipe or null, "operands": [[node, result]], "axes": names, "input" and
"output": numbers or null, "results": [{"element", "tile", "space", "bytes"}], "room", "slots", "inside": names of axes,
"walks", "carried_bytes", "origin": op of the first level or null, "source": "file:line" or null, "at": [row, column]},
an edge {"from", "result", "to", "operand", "value", "element", "tile", "through": [[row, column], ...]}, whose rows and
columns are those of a drawing. Numbers that are open sizes are their text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.scf import ForOp
from xdsl.ir import Attribute, Operation

from ..dialects.base import integer, text
from ..dialects.dtypes import dtype_name
from ..dialects.graph.schedules import Schedule, kind_of
from ..dialects.npu.buffers import AllocOp
from ..dialects.npu.interface import buffer
from ..dialects.npu.types import BufferType
from ..dialects.open_sizes import OpenSize
from ..dialects.sizes import size_text
from ..dialects.tile import TileType
from ..kernels.plan import KernelPlan, PlannedGraph, Room
from ..kernels.stage import KernelStage
from ..kernels.text import ref_text, stage_text
from ..passes.errors import PassError
from ..passes.npu.loops import trip_count
from .layout import Edge, GraphLayout
from .levels import LevelView, marked

Json = dict[str, Any]

UNPLANNED = "it was written as a kernel, so that no plan was made for it here"
"""What is said of kernels that graph-to-tile did not build."""


def kernel_plans(views: Sequence[LevelView]) -> dict[str, Json]:
    """How each kernel of a program with these levels is placed, by its name."""
    if not views:
        return {}
    graph, npu = views[0], views[-1]
    above = next((view for view in views if view.name == "tile"), npu)
    plans = above.plans
    bodies = {text(op.properties["sym_name"]): op for op in above.module.ops if "grid" in op.properties}
    found: dict[str, Json] = {}
    for op in npu.module.walk():
        if "grid" in op.properties:
            name = text(op.properties["sym_name"])
            found[name] = {
                **_planned(plans.get(name), graph),
                "loops": _loops(bodies.get(name, op)),
                "memory": _memory(op),
            }
    return found


def _planned(plan: KernelPlan | None, graph: LevelView) -> Json:
    if plan is None:
        return {"schedule": None, "axes": [], "graphs": [], "unstaged": UNPLANNED}
    names = [axis.name for axis in plan.axes]
    return {
        "schedule": {"kind": kind_of(plan.schedule), "fields": _fields(plan.schedule)},
        "axes": [
            {
                "name": axis.name,
                "role": axis.role,
                "dims": list(axis.dims),
                "extent": _number(axis.extent),
                "tile": _number(axis.tile),
                "cuts": [
                    {"by": c.by, "times": _number(c.times), "elements": _number(c.elements), "what": c.what}
                    for c in axis.cuts
                ],
            }
            for axis in plan.axes
        ],
        "graphs": [_graph(each, names, graph) for each in plan.graphs],
        "unstaged": plan.unstaged,
    }


def _number(value: int) -> int | str:
    """A number, or the text of an open size."""
    return size_text(value.size) if isinstance(value, OpenSize) else value


def _fields(schedule: Schedule) -> Json:
    def plain(value: Any) -> Any:
        return list(map(plain, value)) if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in schedule.chosen().items()}


# -- stages --------------------------------------------------------------------------------------------------


def _graph(planned: PlannedGraph, names: Sequence[str], graph: LevelView) -> Json:
    stages, rooms = planned.stages, planned.rooms()
    edges = [
        Edge(j, result, i, operand)
        for i, stage in enumerate(stages)
        for operand, (j, result) in enumerate(stage.operands)
    ]
    drawn = GraphLayout.of([stage.kind for stage in stages], edges)
    shapes = [[_number(n) for n in planned.shape(i)] for i, _ in enumerate(stages)]
    return {
        "part": planned.part,
        "slots": dict(planned.slots),
        "nodes": [
            {
                **_node(planned, i, rooms[i], shapes[i], names),
                **_origin(stage, graph),
                "at": drawn.places[i],
            }
            for i, stage in enumerate(stages)
        ],
        "edges": [
            {
                "from": edge.maker,
                "result": edge.result,
                "to": edge.reader,
                "operand": edge.operand,
                "value": ref_text((edge.maker, edge.result), len(stages[edge.maker].elements)),
                "element": dtype_name(stages[edge.maker].elements[edge.result]),
                "tile": shapes[edge.maker],
                "through": bends,
            }
            for edge, bends in zip(edges, drawn.bends, strict=True)
        ],
    }


def _node(planned: PlannedGraph, i: int, room: Room, shape: list[int | str], names: Sequence[str]) -> Json:
    stage, place, op = planned.stages[i], planned.places[i], planned.stages[i].op
    return {
        "id": i,
        "op": op.NAME,
        "does": planned.does(stage),
        "text": stage_text(i, stage),
        "unit": planned.pipe(stage),
        "operands": [list(ref) for ref in stage.operands],
        "axes": list(dict.fromkeys(names[planned.axes[a]] for a in sorted(stage.axes))),
        "input": planned.source(stage),
        "output": planned.target(stage),
        "results": [
            {
                "element": dtype_name(e),
                "tile": shape,
                "space": stage.space,
                "bytes": _number(planned.bytes(i, j)),
            }
            for j, e in enumerate(stage.elements)
        ],
        "room": room,
        "slots": planned.slots.get(op.space, 1) if room == "slots" else min(len(stage.elements), 1),
        "inside": [names[a] for a in place.inside],
        "walks": list(place.walks),
        "carried_bytes": _number(place.carried),
    }


def _origin(stage: KernelStage, graph: LevelView) -> Json:
    origin = marked(stage.location)
    place = None if origin is None else graph.places[origin]
    return {"origin": origin, "source": None if place is None else str(place)}


# -- loops and memory ----------------------------------------------------------------------------------------


def _loops(kernel: Operation) -> list[Json]:
    """The loops of a kernel in the order of its text, with how many each is in and on which cores."""
    return [
        {
            "core": next((text(a.properties["core"]) for a in _around(op) if "core" in a.properties), ""),
            "depth": sum(isinstance(outer, ForOp) for outer in _around(op)),
            "trips": _trips(op),
            "carries": [_tile_text(value.type) for value in op.iter_args],
        }
        for op in kernel.walk()
        if isinstance(op, ForOp)
    ]


def _around(op: Operation) -> Iterator[Operation]:
    """The ops that an op is in."""
    at = op.parent_op()
    while at is not None:
        yield at
        at = at.parent_op()


def _trips(op: ForOp) -> int | str | None:
    """How often a loop runs; None where numbers that only a run knows say so."""
    try:
        return _number(trip_count(op))
    except PassError:
        return None


def _tile_text(kind: Attribute) -> str:
    """`8x1xf32 in ub`."""
    if not isinstance(kind, TileType):
        return str(kind)
    return f"{'x'.join([*map(str, kind.shape), dtype_name(kind.element)])} in {kind.space}"


def _memory(kernel: Operation) -> list[Json]:
    """What each core keeps in each of its memories: the bytes that are laid out, and the buffers, equal ones once."""
    ends: dict[tuple[str, str], int] = {}
    buffers: dict[tuple[str, str], Counter[BufferType]] = {}
    for op in kernel.walk():
        if isinstance(op, AllocOp):
            kind = buffer(op.result)
            core = next((text(a.properties["core"]) for a in _around(op) if "core" in a.properties), "")
            key = core, kind.space
            buffers.setdefault(key, Counter())[kind] += 1
            end = 0 if op.address is None else integer(op.address) + kind.slots * kind.slot_bytes
            ends[key] = max(ends.get(key, 0), end)
    return [
        {
            "core": core,
            "space": space,
            "bytes": ends[core, space],
            "buffers": [
                {
                    "type": "x".join([*map(str, kind.shape), dtype_name(kind.element)]),
                    "slots": kind.slots,
                    "bytes": kind.slot_bytes,
                    "count": count,
                }
                for kind, count in kinds.items()
            ],
        }
        for (core, space), kinds in sorted(buffers.items())
    ]
