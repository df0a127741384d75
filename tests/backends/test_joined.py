"""Launches that are joined: what the simulator, the report and the timelines make of a group, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from npu_programs import parse
from xdsl.dialects.builtin import ModuleOp

from tilewright.backends.costs import build_report
from tilewright.backends.simulator import Launch, Repeat, Simulation, simulate
from tilewright.backends.spans import program_spans
from tilewright.backends.trace import write_trace
from tilewright.dialects.npu.occupancy import Occupancy, occupancy_of
from tilewright.dialects.npu.structure import KernelOp
from tilewright.machine import Machine

B1 = Machine.load("ascend-910b1")
GM = "!npu.gm<1024xf32>"
ONE, ALL = B1.launch_us, B1.launch_us_all
BOTH = ALL + B1.mixed_us_all
LOAD = f"""
    %t = npu.alloc {{address = 0}} : () -> !npu.buffer<128xf32, ub>
    npu.load_nd %a, %t at [0] {{sizes = [128]}} : ({GM}, !npu.buffer<128xf32, ub>)"""


def kernel(name: str, core: str, grid: int, units: int = 1) -> str:
    cores = ("cube", "vector") if core == "mix" else (core,)
    sections = "".join(
        f"""
  npu.section {{core = "{each}", units = {units if each == "vector" else 1}}} {{
  ^bb{number}(%u{number}: index):
{LOAD if each == "vector" else ""}
  }}"""
        for number, each in enumerate(cores, 1)
    )
    return f"""
npu.kernel @{name} {{grid = [{grid}], kind = "{core}", outputs = 1, workspaces = 0}} {{
^bb0(%i: index, %a: {GM}, %b: {GM}):{sections}
}}"""


def launch(name: str, joined: bool = False) -> str:
    flag = "joined, " if joined else ""
    return f"  npu.launch @{name} %x, %y {{{flag}outputs = 1, workspaces = 0}} : ({GM}, {GM})\n"


KERNELS = "".join(
    [
        kernel("vectors", "vector", 48),
        kernel("pairs", "vector", 500, 2),
        kernel("vector", "vector", 1),
        kernel("cubes", "cube", 24),
        kernel("cube", "cube", 1),
        kernel("mixed", "mix", 12, 2),
    ]
)


def program(host: str) -> ModuleOp:
    return parse(f"""func.func @main(%x: {GM}) -> {GM} {{
  %y = npu.gm_alloc : () -> {GM}
{host}  func.return %y : {GM}
}}
{KERNELS}""")


def group(*names: str) -> ModuleOp:
    """A program that launches these kernels as a group."""
    return program("".join(launch(name, i > 0) for i, name in enumerate(names)))


def overheads(simulation: Simulation) -> list[float]:
    return [step.overhead for step, _ in simulation.flat() if isinstance(step, Launch)]


def test_what_a_kernel_wakes() -> None:
    """Two vector cores are one cube core's share of the chip; no kernel wakes more than there is."""
    kernels = [k for k in parse(KERNELS).ops if isinstance(k, KernelOp)]
    vector, cube = frozenset({"vector"}), frozenset({"cube"})
    assert [occupancy_of(k, B1) for k in kernels] == [
        Occupancy(24, vector),
        Occupancy(24, vector),
        Occupancy(1, vector),
        Occupancy(24, cube),
        Occupancy(1, cube),
        Occupancy(12, cube | vector),
    ]


@pytest.mark.parametrize(
    ("names", "launched"),
    [
        (("vectors",), ALL),
        (("cube",), ONE),
        (("vectors", "vectors", "pairs"), ALL),
        (("vector", "vectors"), ALL),
        (("cube", "cube"), ONE),
        (("cube", "vector"), ONE + B1.mixed_us),
        (("cubes", "vectors"), BOTH),
        (("vector", "cubes", "vector"), BOTH),
        (("mixed", "vectors"), BOTH),
    ],
)
def test_a_group_costs_one_launch_and_barriers(names: tuple[str, ...], launched: float) -> None:
    """The launch wakes the most cores of any of its kernels, and all their kinds; barriers are over all of these."""
    found = simulate(group(*names), B1)
    barrier = launched * B1.barrier_share
    assert overheads(found) == pytest.approx([launched] + [barrier] * (len(names) - 1))
    ran = sum(
        B1.cycles_to_microseconds(step.run.cycles) for step, _ in found.flat() if isinstance(step, Launch)
    )
    assert found.microseconds == pytest.approx(launched + barrier * (len(names) - 1) + ran)


def test_the_next_group_begins_anew() -> None:
    host = launch("cube") + launch("cube", True) + launch("vectors") + launch("cube", True)
    assert overheads(simulate(program(host), B1)) == pytest.approx(
        [ONE, ONE * B1.barrier_share, BOTH, BOTH * B1.barrier_share]
    )


def test_each_pass_of_a_loop_is_a_launch() -> None:
    body = launch("vectors") + launch("vectors", True)
    host = f"""npu.loop %x {{trip_count = 5}} : ({GM}) {{
      npu.yield
    }} {{
    ^bb0(%s: {GM}):
    {body}npu.yield %s : ({GM})
    }}
"""
    module = program(launch("vectors") + host)
    found = simulate(module, B1)
    repeats = [step for step in found.steps if isinstance(step, Repeat)]
    assert sum(step.times for step in repeats) == 5
    report = build_report(module, B1)
    assert (report.counts.launches, report.counts.joined) == (6, 5)
    assert report.kernels[0].launch_microseconds == pytest.approx(6 * ALL + 5 * ALL * B1.barrier_share)


def test_the_report_counts_real_launches() -> None:
    """A kernel's row says how often it runs, and how many of these are no launch."""
    report = build_report(group("vectors", "cubes", "vectors"), B1)
    assert (report.counts.launches, report.counts.joined) == (1, 2)
    assert ": 1 launch of 2 kernels " in str(report)
    rows = {k.name: (k.launches, k.joined) for k in report.kernels}
    assert rows == {"vectors": (2, 1), "cubes": (1, 1)}
    found = report.to_dict()
    assert [(k["launches"], k["joined"]) for k in found["kernels"]] == [(2, 1), (1, 1)]
    assert (found["counts"]["launches"], found["counts"]["joined"]) == (1, 2)
    assert report.npu_ops_fraction == 1


def test_spans_and_trace_show_the_barrier(tmp_path: Path) -> None:
    """Instructions begin behind the barrier, where the launch was before."""
    found = simulate(group("mixed", "cubes", "vectors"), B1)
    first, _, second = program_spans(found)
    assert (first.overhead, second.overhead) == pytest.approx((BOTH, BOTH * B1.barrier_share))
    write_trace(found, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    said = [e["args"] for e in events if e.get("args", {}).get("op") == "npu.launch"]
    assert [(a["joined"], a["launch_microseconds"]) for a in said] == [
        (False, pytest.approx(BOTH)),
        *[(True, pytest.approx(BOTH * B1.barrier_share))] * 2,
    ]
    begins = sorted(e["ts"] for e in events if e.get("args", {}).get("op") == "npu.load_nd")
    assert len(begins) == 3  # two vector cores in the first kernel
    assert begins[0] == begins[1] == pytest.approx(BOTH, abs=0.1)
    assert begins[2] == pytest.approx(second.begin + BOTH * B1.barrier_share, abs=0.1)


def test_what_is_read_ahead_is_read_while_a_barrier_is_waited_for() -> None:
    """A load that takes longer than the barrier hides it, and one that comes behind another tensor is not ahead."""
    text = str(group("vectors", "vectors"))
    (_, whole), (_, hidden) = (
        overheads(simulate(parse(each), B1))
        for each in (text, text.replace("{joined, ", "{ahead = [0], joined, "))
    )
    load = next(simulate(parse(text), B1).flat())[0].run.cycles / B1.clock_mhz
    assert whole == pytest.approx(B1.barrier_microseconds(24))
    assert hidden == pytest.approx(max(0.0, whole - load), abs=0.01)


WEIGHTS = "!npu.gm<128x4096xf16>"


def loads(cores: int, count: int) -> str:
    """A kernel whose cube cores load `count` times half of the weights."""
    half = "!npu.buffer<128x2048xf16, l1>"
    each = "".join(
        f"""
    npu.load_nd2nz %w, %t at [0, {2048 * i}] {{sizes = [128, 2048]}} : ({WEIGHTS}, {half})"""
        for i in range(count)
    )
    return f"""npu.kernel @loads {{grid = [{cores}], kind = "cube", outputs = 1, workspaces = 0}} {{
^bb0(%i: index, %a: {GM}, %w: {WEIGHTS}, %b: {GM}):
  npu.section {{core = "cube", units = 1}} {{
  ^bb1(%u: index):
    %t = npu.alloc {{address = 0}} : () -> {half}{each}
  }}
}}"""


def test_cores_that_are_done_read_ahead_early() -> None:
    """Cube cores have nothing to do in a stage of vector cores: what they load ahead of its barrier, too, takes no time
    any more, and what takes longer than that is not counted of the kernel's own time."""
    module = parse(f"""func.func @main(%x: {GM}, %w: {WEIGHTS}) -> {GM} {{
  %y = npu.gm_alloc : () -> {GM}
  {launch("cubes")}{launch("vectors", True)}
  npu.launch @loads %x, %w, %y {{ahead = [1], barriers = 2, joined, outputs = 1, workspaces = 0}}
    : ({GM}, {WEIGHTS}, {GM})
  func.return %y : {GM}
}}
{KERNELS}
{loads(24, 2)}""")
    one = parse(str(module).replace("barriers = 2, ", ""))
    none = parse(str(module).replace("ahead = [1], barriers = 2, ", ""))
    early, late, behind = (list(simulate(each, B1).flat())[-1][0] for each in (module, one, none))
    assert isinstance(early, Launch) and isinstance(late, Launch) and isinstance(behind, Launch)
    barrier, load = BOTH * B1.barrier_share, B1.cycles_to_microseconds(early.run.cycles)
    vectors = list(simulate(module, B1).flat())[1][0]
    assert isinstance(vectors, Launch)
    assert behind.microseconds == pytest.approx(barrier + load)
    assert late.microseconds == pytest.approx(max(barrier, load - (vectors.microseconds - barrier)), abs=0.01)
    assert early.microseconds == pytest.approx(max(barrier, load - vectors.microseconds), abs=0.01)
    assert early.microseconds == pytest.approx(early.overhead + load - early.saved)
    assert load > vectors.microseconds and early.saved > 1 > late.saved


def test_launches_side_by_side_are_as_early_as_the_last_one() -> None:
    """Of two launches behind one barrier both load ahead of it, or the other one ends as late as without."""

    def launched(number: int, ahead: str) -> str:
        beside = "first_core = 12, joined, nowait" if number else "joined"
        given, types = f"%x, %w{number}, %y{number}", f"({GM}, {WEIGHTS}, {GM})"
        return f"npu.launch @loads {given} {{{ahead}{beside}, outputs = 1, workspaces = 0}} : {types}\n"

    def taken(*ahead: str) -> float:
        module = parse(f"""func.func @main(%x: {GM}, %w0: {WEIGHTS}, %w1: {WEIGHTS}) -> {GM} {{
  %y = npu.gm_alloc : () -> {GM}
  %y0 = npu.gm_alloc : () -> {GM}
  %y1 = npu.gm_alloc : () -> {GM}
  {launch("cubes")}{"".join(launched(i, a) for i, a in enumerate(ahead))}
  func.return %y : {GM}
}}
{KERNELS}
{loads(12, 1)}""")
        steps = [step for step, _ in simulate(module, B1).flat()][1:]
        assert all(isinstance(step, Launch) for step in steps)
        return sum(step.microseconds for step in steps)

    late, one, both = taken("", ""), taken("ahead = [1], ", ""), taken("ahead = [1], ", "ahead = [1], ")
    assert one == pytest.approx(late)
    assert both < late - 1
