"""The report's schema and sums, and the trace's events."""

import json
from io import StringIO
from itertools import pairwise
from math import ceil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.test import Test
from xdsl.parser import Parser

import tilewright as tw
from tilewright.backends import spans as program_spans_module
from tilewright.backends.costs import build_report
from tilewright.backends.report import Report
from tilewright.backends.simulator import simulate
from tilewright.backends.trace import LAUNCH_EVENTS, write_trace
from tilewright.dialects import make_context
from tilewright.dialects.npu import NpuOp
from tilewright.machine import Machine

B1 = Machine.load("ascend-910b1")

PROGRAM = """
builtin.module {
  npu.kernel @scale {grid = [4], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%g: index, %x: !npu.gm<4194304xf16>, %y: !npu.gm<4194304xf16>):
    npu.section {core = "vector", units = 1} {
    ^bb1(%u: index):
      %a = npu.alloc {address = 64} : () -> !npu.buffer<4096xf16, ub, 2 slots>
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = arith.constant 256 : index
      scf.for %i = %c0 to %n step %c1 {
        %s = npu.slot %a at [%i] : (!npu.buffer<4096xf16, ub, 2 slots>) -> !npu.buffer<4096xf16, ub>
        npu.load_nd %x, %s at [%g * 1048576 + %i * 4096] {sizes = [4096]}
          : (!npu.gm<4194304xf16>, !npu.buffer<4096xf16, ub>) loc("model.py":7:1)
        npu.set_flag at [%i] {source = "MTE2", target = "V", event = 0, slots = 2}
        npu.wait_flag at [%i] {source = "MTE2", target = "V", event = 0, slots = 2}
        npu.vabs %s, %s : (!npu.buffer<4096xf16, ub>, !npu.buffer<4096xf16, ub>)
        npu.set_flag at [%i] {source = "V", target = "MTE3", event = 0, slots = 2}
        npu.wait_flag at [%i] {source = "V", target = "MTE3", event = 0, slots = 2}
        npu.store_nd %s, %y at [%g * 1048576 + %i * 4096] {sizes = [4096]}
          : (!npu.buffer<4096xf16, ub>, !npu.gm<4194304xf16>)
      }
    }
  }
  npu.kernel @dot {grid = [2], kind = "cube", outputs = 1, workspaces = 0} {
  ^bb0(%g: index, %x: !npu.gm<64x64xf16>, %y: !npu.gm<64x64xf32>):
    npu.section {core = "cube", units = 1} {
    ^bb1(%u: index):
      %l = npu.alloc {address = 0} : () -> !npu.buffer<64x64xf16, l1>
      %a = npu.alloc {address = 0} : () -> !npu.buffer<64x64xf16, l0a>
      %b = npu.alloc {address = 0} : () -> !npu.buffer<64x64xf16, l0b>
      %c = npu.alloc {address = 0} : () -> !npu.buffer<64x64xf32, l0c>
      npu.load_nd2nz %x, %l at [0, 0] {sizes = [64, 64]}
        : (!npu.gm<64x64xf16>, !npu.buffer<64x64xf16, l1>)
      npu.barrier
      npu.load_l0 %l, %a at [0, 0] {sizes = [64, 64]}
        : (!npu.buffer<64x64xf16, l1>, !npu.buffer<64x64xf16, l0a>)
      npu.load_l0 %l, %b at [0, 0] {sizes = [64, 64]}
        : (!npu.buffer<64x64xf16, l1>, !npu.buffer<64x64xf16, l0b>)
      npu.barrier
      npu.mmad %a, %b, %c at [0]
        : (!npu.buffer<64x64xf16, l0a>, !npu.buffer<64x64xf16, l0b>, !npu.buffer<64x64xf32, l0c>)
      npu.barrier
      npu.fixpipe %c, %y at [0, 0] {sizes = [64, 64]}
        : (!npu.buffer<64x64xf32, l0c>, !npu.gm<64x64xf32>)
    }
  }
  func.func @main(%x: !npu.gm<4194304xf16>, %m: !npu.gm<64x64xf16>) -> !npu.gm<4194304xf16>
      attributes {npu.arena_bytes = 8388608} {
    %k = npu.gm_constant {value = #graph.data<f32, [8], splat 1.0>} : () -> !npu.gm<8xf32>
    %y = npu.gm_alloc : () -> !npu.gm<4194304xf16>
    %z = npu.gm_alloc : () -> !npu.gm<64x64xf32>
    npu.launch @scale %x, %y {outputs = 1, workspaces = 0}
      : (!npu.gm<4194304xf16>, !npu.gm<4194304xf16>)
    %h = npu.to_host %m : (!npu.gm<64x64xf16>) -> tensor<64x64xf16>
    %q = npu.host_call %h {op = "lapack.qr", module = ""} : tensor<64x64xf16>
    npu.to_device %q, %m : (tensor<64x64xf16>, !npu.gm<64x64xf16>)
    npu.loop %m {trip_count = 5} : (!npu.gm<64x64xf16>) {
      npu.yield %m : (!npu.gm<64x64xf16>)
    } {
      npu.launch @dot %m, %z {outputs = 1, workspaces = 0} : (!npu.gm<64x64xf16>, !npu.gm<64x64xf32>)
      npu.yield %m : (!npu.gm<64x64xf16>)
    }
    npu.copy %x, %y : (!npu.gm<4194304xf16>, !npu.gm<4194304xf16>)
    func.return %y : !npu.gm<4194304xf16>
  }
}
"""


@pytest.fixture(scope="module")
def module() -> ModuleOp:
    found = Parser(make_context(), PROGRAM, "program.mlir").parse_module()
    found.verify()
    return found


@pytest.fixture(scope="module")
def report(module: ModuleOp) -> Report:
    return build_report(module, B1)


def test_kernels(report: Report):
    load = B1.moves["gm", "ub"]
    scale, dot, copy = report.kernels
    assert (scale.name, scale.kind, scale.launches, scale.cores) == ("scale", "vector", 1, 4)
    assert scale.source == "model.py:7"
    assert scale.bound == "MTE2"
    assert scale.bytes == {"hbm": 8 << 20, "l2": 8 << 20, "read": 8 << 20, "write": 8 << 20}
    alone = load.fixed_cycles + 8192 / load.miss_bytes_per_cycle
    assert scale.pipes["MTE2"] == pytest.approx(256 * ceil(alone) / 1850)
    assert scale.flops == 4 << 20
    assert (dot.name, dot.launches, dot.cores, dot.bound) == ("dot", 5, 2, "launch")
    assert dot.macs == 5 * 2 * 64**3 and dot.flops == 2 * dot.macs
    assert dot.bytes["hbm"] == 64 * 64 * 2
    assert (copy.name, copy.launches, copy.bound) == ("copy", 1, "L2")


def test_precision_is_what_the_ops_say(report: Report):
    scale, dot, copy = report.kernels
    assert (scale.precision, scale.macs_by_precision) == ("f16", {})
    assert scale.lanes_by_precision == {"f16": 4 * 256 * 4096}
    assert (dot.precision, dot.macs_by_precision) == ("f16 -> f32", {"f16 -> f32": dot.macs})
    assert (copy.precision, copy.lanes_by_precision) == ("", {})
    shares = {row.precision: (row.microseconds, row.macs) for row in report.by_precision}
    assert shares == {"f16": (scale.microseconds, 0), "f16 -> f32": (dot.microseconds, dot.macs)}
    assert not report.mixes_precisions
    assert "precision of all kernels: f16 -> f32" in report.table()
    plain = report.to_dict()
    assert [k["precision"] for k in plain["kernels"]] == ["f16", "f16 -> f32", ""]
    assert plain["by_precision"][0] == {"precision": "f16", "microseconds": scale.microseconds, "macs": 0}


def test_the_table_has_a_column_where_precisions_differ():
    text = PROGRAM.replace("4194304xf16", "4194304xi16").replace("4096xf16", "4096xi16")
    found = build_report(Parser(make_context(), text).parse_module(), B1)
    assert found.mixes_precisions and found.kernels[0].precision == "i16"
    head, *rows = found.table(120, borders=False).splitlines()[1:5]
    assert head.split()[:3] == ["kernel", "kind", "precision"]
    assert [r.split()[2] for r in rows if r.split()[0] == "scale"] == ["i16"]
    assert any("f16 -> f32" in r for r in rows if r.split()[0] == "dot")
    assert max(map(len, found.table(200, borders=False).splitlines())) <= 120
    shares = found.table().replace("\n", " ")
    assert "by precision: i16 " in shares and "100.0% of the MACs" in shares
    assert "precision" in found._repr_html_()


MOVERS = """
builtin.module {
  %a = "test.op"() : () -> !npu.buffer<8x16xf32, ub>
  %h = "test.op"() : () -> !npu.buffer<8x16xf16, ub>
  %m = "test.op"() : () -> !npu.buffer<8x16xi1, ub>
  %i = "test.op"() : () -> !npu.buffer<8xi32, ub>
  npu.vconvert %a, %h : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf16, ub>)
  npu.vadd %h, %h, %h : (!npu.buffer<8x16xf16, ub>, !npu.buffer<8x16xf16, ub>, !npu.buffer<8x16xf16, ub>)
  npu.vlt %a, %a, %m : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xi1, ub>)
  npu.vselect %m, %h, %h, %h
    : (!npu.buffer<8x16xi1, ub>, !npu.buffer<8x16xf16, ub>, !npu.buffer<8x16xf16, ub>, !npu.buffer<8x16xf16, ub>)
  npu.vfill %a {value = 0.0 : f64} : (!npu.buffer<8x16xf32, ub>)
  npu.vscatter %a, %i, %a, %a at [0] {kind = "set"}
    : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8xi32, ub>, !npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
  npu.vscatter %a, %i, %a, %a at [0] {kind = "sum"}
    : (!npu.buffer<8x16xf32, ub>, !npu.buffer<8xi32, ub>, !npu.buffer<8x16xf32, ub>, !npu.buffer<8x16xf32, ub>)
}
"""


def test_what_moves_or_converts_computes_in_nothing():
    context = make_context()
    context.load_dialect(Test)
    ops = [op for op in Parser(context, MOVERS).parse_module().walk() if isinstance(op, NpuOp)]
    said = [(op.name.removeprefix("npu."), op.arithmetic()) for op in ops]
    assert said == [
        ("vconvert", ""),
        ("vadd", "f16"),
        ("vlt", "f32"),
        ("vselect", "f16"),
        ("vfill", ""),
        ("vscatter", ""),
        ("vscatter", "f32"),
    ]


def test_floors(report: Report):
    """What must cross HBM once, products and lanes, each at the chip's peak; launches are in the time, not in it."""
    scale, dot, copy = report.kernels
    crossing = (8 << 20) / B1.hbm_bytes_per_cycle / B1.clock_mhz  # 8 MiB are read; what is written stays in L2
    lanes = (4 << 20) * 2 / B1.vector.repeat_bytes / B1.vector_cores / B1.clock_mhz
    assert scale.floors == pytest.approx({"HBM": crossing, "vector": lanes})
    assert scale.floor_microseconds == pytest.approx(crossing)
    assert scale.efficiency == pytest.approx(crossing / scale.microseconds) and scale.efficiency < 0.5
    # both cores read one matrix, five times, of which four find it in L2
    once = 64 * 64 * 2 / B1.hbm_bytes_per_cycle / B1.clock_mhz
    products = dot.macs / B1.cube["f16"].macs / B1.cube_cores / B1.clock_mhz
    assert dot.floors == pytest.approx({"HBM": once, "cube": products})
    assert dot.floor_microseconds == pytest.approx(once + products * 4 / 5)
    assert copy.floors == {} and copy.floor_microseconds == 0  # all of it is in L2
    assert report.floor_microseconds == pytest.approx(crossing + once)
    assert report.efficiency == pytest.approx(report.floor_microseconds / report.microseconds)


def test_a_floor_has_what_is_read_again_once() -> None:
    """A product whose left side is read for each column tile, of a matrix that L2 has no room for."""
    a, b = (jax.ShapeDtypeStruct(s, np.float16) for s in [(16384, 8192), (8192, 1024)])
    (kernel,) = (k for k in tw.compile(jnp.matmul, a, b).report().kernels if k.macs)
    size = 2 * (16384 * 8192 + 8192 * 1024)
    assert kernel.bytes["read"] > 1.5 * size
    crossing = kernel.floors["HBM"] * B1.clock_mhz * B1.hbm_bytes_per_cycle
    assert size <= crossing <= size + 2 * 16384 * 1024
    assert kernel.floor_microseconds <= kernel.microseconds


def test_a_floor_has_no_more_than_is_moved() -> None:
    """Tiles of 3 rows are clipped at the last of 128, and what they are stored into is larger."""
    shape = jax.ShapeDtypeStruct((128, 9216), "float32")
    machine = tw.Machine.load("ascend-310")
    report = tw.compile(lambda x, y: jnp.concatenate([x, y]), shape, shape, target=machine).report()
    for kernel in report.kernels:
        moved = machine.cycles_to_microseconds(kernel.bytes["hbm"] / machine.hbm_bytes_per_cycle)
        assert kernel.floors["HBM"] <= moved * (1 + 1e-9)


@pytest.mark.parametrize("donated", [True, False])
def test_copies_that_updates_in_place_avoid(donated: bool) -> None:
    """A row of a cache is written where the caller has it, if it may be; else the cache is copied first."""
    cache, row = (jax.ShapeDtypeStruct(s, np.float32) for s in [(64, 96), (1, 96)])
    step = lambda cache, row: jax.lax.dynamic_update_slice(cache, row, (7, 0))  # noqa: E731
    program = tw.compile(step, cache, row, options=tw.Options(donate=0 if donated else ()))
    report = program.report()
    avoided = report.avoided_copies
    assert report.counts.copies == (0 if donated else 1)
    assert (avoided.updates, avoided.update_bytes) == ((1, 64 * 96 * 4) if donated else (0, 0))
    assert report.to_dict()["avoided_copies"]["copies"] == avoided.copies
    assert ("copies avoided: 1 update in place (0.02 MB)" in report.table()) == donated


def test_copies_that_loops_and_views_avoid() -> None:
    """Five rounds that make a tensor over itself and write one row of another; and what is only reshaped."""

    def fn(x, rows):
        def body(i, state):
            x, rows = state
            x = jnp.tanh(x) + 1
            return x, jax.lax.dynamic_update_slice(rows, x[:1] * 2, (i, 0))

        x, rows = jax.lax.fori_loop(0, 5, body, (x, rows))
        return x.reshape(4, 2, 32), rows

    args = [jax.ShapeDtypeStruct(s, np.float32) for s in [(8, 32), (5, 32)]]
    avoided = tw.compile(fn, *args).report().avoided_copies
    assert (avoided.states, avoided.state_bytes) == (5, 5 * 8 * 32 * 4)
    assert (avoided.updates, avoided.update_bytes) == (5, 5 * 5 * 32 * 4)
    assert avoided.views >= 1 and avoided.bytes == (
        avoided.update_bytes + avoided.state_bytes + avoided.view_bytes
    )


def test_totals(report: Report):
    (host,) = report.host_ops
    assert (host.name, host.calls, host.bytes) == ("lapack.qr", 1, 4 * 64 * 64)
    assert host.transfer_microseconds == pytest.approx(16384 / 25000)
    assert host.compute_microseconds == pytest.approx(16384 / B1.host.compute_bytes_per_us)
    spent = host.transfer_microseconds + host.compute_microseconds
    assert host.microseconds == pytest.approx(B1.host.call_us + spent)
    kernels = sum(kernel.microseconds for kernel in report.kernels)
    assert report.microseconds == pytest.approx(kernels + host.microseconds)
    launched = sum(kernel.microseconds - kernel.launch_microseconds for kernel in report.kernels)
    assert report.cycles == pytest.approx(launched * 1850)
    assert report.npu_ops_fraction == pytest.approx(6 / 7)
    assert 0.99 < report.npu_flops_fraction < 1
    assert report.assumed_trips == [] and report.assumed_branches == []


def test_memory(report: Report):
    memory = report.memory
    assert (memory.arena_bytes, memory.constant_bytes) == (8 << 20, 32)
    assert memory.spaces["ub"].peak_bytes == 64 + 2 * 8192
    assert memory.spaces["ub"].capacity_bytes == B1.spaces["ub"].bytes
    assert memory.spaces["l0c"].peak_bytes == 64 * 64 * 4 and memory.spaces["l0c"].kernel == "dot"


def test_energy(report: Report):
    assert report.energy_joules == pytest.approx(sum(report.energy.values()))
    assert report.energy["idle"] == pytest.approx(66 * report.microseconds * 1e-6)
    assert report.energy["macs"] == pytest.approx(5 * 2 * 64**3 * 0.3e-12)
    assert all(joules > 0 for joules in report.energy.values())


def test_json_schema(report: Report):
    data = json.loads(report.to_json())
    assert set(data) == {
        "schema",
        "target",
        "microseconds",
        "queues",
        "cycles",
        "energy_joules",
        "energy",
        "memory",
        "counts",
        "kernels",
        "host_ops",
        "host_scalars",
        "npu_flops_fraction",
        "npu_ops_fraction",
        "assumed_trips",
        "assumed_branches",
        "precision",
        "by_precision",
        "left_out",
        "known_plans",
        "packing_microseconds",
        "floor_microseconds",
        "efficiency",
        "avoided_copies",
        "cold_microseconds",
        "judge",
    }
    assert data["schema"] == "tilewright.report/1"
    assert set(data["energy"]) == {"macs", "vector", "gm", "l2", "l1", "l0", "ub", "idle"}
    assert set(data["memory"]) == {
        "limit_bytes",
        "less",
        "arena_bytes",
        "constant_bytes",
        "capacity_bytes",
        "donated_bytes",
        "undonated_arena_bytes",
        "live_bytes",
        "at",
        "fragmentation",
        "consumers",
        "spaces",
    }
    assert set(data["memory"]["spaces"]) == {"ub", "l1", "l0a", "l0b", "l0c"}
    for kernel in data["kernels"]:
        assert set(kernel) == {
            "name",
            "kind",
            "launches",
            "joined",
            "cores",
            "microseconds",
            "launch_microseconds",
            "bound",
            "pipes",
            "bytes",
            "macs",
            "flops",
            "source",
            "sources",
            "precision",
            "macs_by_precision",
            "lanes_by_precision",
            "modes",
            "floor_microseconds",
            "floors",
            "energy_joules",
            "cold_microseconds",
            "efficiency",
        }
        assert set(kernel["bytes"]) == {"hbm", "l2", "read", "write"}
    assert set(data["host_ops"][0]) == {
        "name",
        "calls",
        "bytes",
        "microseconds",
        "transfer_microseconds",
        "compute_microseconds",
        "source",
    }


def test_text(report: Report):
    assert str(report) == f"{report.microseconds:,.1f} us on ascend-910b1: 6 launches of 2 kernels, 1 copy, " + (
        f"1 host call, {report.energy_joules * 1e3:.3g} mJ (modelled)"
    )
    table = report.table()
    for word in ("scale", "dot", "lapack.qr", "model.py:7", "launch", "MTE3", "share"):
        assert word in table
    assert max(map(len, table.splitlines())) <= 150
    console = Console(record=True, width=150, file=StringIO())
    console.print(report)
    assert "lapack.qr" in console.export_text()


def test_trace(module: ModuleOp, report: Report, tmp_path: Path):
    path = tmp_path / "trace.json"
    write_trace(simulate(module, B1), path)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for span in spans:
        assert span["ts"] >= 0 and span["dur"] >= 0
        assert span["pid"] in (1, 2)
        tracks.setdefault((span["pid"], span["tid"]), []).append((span["ts"], span["ts"] + span["dur"]))
    for times in tracks.values():
        times.sort()
        for (_, end), (start, _) in pairwise(times):
            assert end <= start + 1e-5
    assert max(end for times in tracks.values() for _, end in times) == pytest.approx(report.microseconds)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"compute", "vector MTE2", "vector V", "vector MTE3", "cube M", "cube FIX"} <= set(names.values())
    load = next(span for span in spans if span["name"] == "load_nd")
    assert load["args"] == {"op": "npu.load_nd", "source": "model.py:7", "bytes": 8192}
    assert sum(span["name"] in ("load_nd", "vabs", "store_nd") for span in spans) == 3 * 256
    assert sum(span["name"] == "dot" for span in spans) == 5  # each pass of the loop


def test_a_trace_sums_up_the_passes_that_it_has_no_room_for(
    module: ModuleOp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of a loop of 5 passes, all alike from the second, there is room for 1 + 2 among 8 commands."""
    monkeypatch.setattr(program_spans_module, "COMMANDS", 8)
    path = tmp_path / "trace.json"
    simulation = simulate(module, B1)
    write_trace(simulation, path)
    spans = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert sum(span["name"] == "dot" for span in spans) == 3
    (rest,) = (span for span in spans if "more passes" in span["name"])
    assert (rest["name"], rest["args"]) == ("2 more passes like the last one", {"passes": 2})
    last = next(step for step, times in simulation.flat() if times == 4)
    assert rest["dur"] == pytest.approx(2 * last.microseconds)


def test_counts_are_the_same_everywhere(module: ModuleOp, report: Report, tmp_path: Path):
    """Copies are no kernels and no launches: in the report's line, its JSON, and the trace."""
    path = tmp_path / "trace.json"
    write_trace(simulate(module, B1), path)
    trace = json.loads(path.read_text())
    counts = {"kernels": 2, "launched_kernels": 2, "launches": 6, "joined": 0, "copies": 1, "host_calls": 1}
    assert report.to_dict()["counts"] == counts
    assert trace["otherData"] == {"target": "ascend-910b1", **counts}
    assert sum(event.get("args", {}).get("op") == "npu.launch" for event in trace["traceEvents"]) == 6


def test_a_kernel_that_nothing_launches_is_said_to_be_one():
    launch = PROGRAM.index("    npu.launch @scale")
    text = PROGRAM[:launch] + PROGRAM[PROGRAM.index("    %h = ") :]
    found = build_report(Parser(make_context(), text).parse_module(), B1)
    assert "5 launches of 1 kernel (1 more not launched), 1 copy, 1 host call" in str(found)


def test_trace_is_cut_and_says_so(tmp_path: Path):
    text = PROGRAM.replace("arith.constant 256 : index", "arith.constant 5000 : index")
    path = tmp_path / "trace.json"
    write_trace(simulate(Parser(make_context(), text).parse_module(), B1), path)
    spans = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert sum(span["name"] in ("load_nd", "vabs", "store_nd") for span in spans) == LAUNCH_EVENTS
    (rest,) = (span for span in spans if span["name"].startswith("not shown"))
    kernel = next(span for span in spans if span["name"] == "scale")
    assert rest["ts"] + rest["dur"] == pytest.approx(kernel["ts"] + kernel["dur"])


def test_trace_replaces_the_file_only_when_done(tmp_path: Path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    write_trace(simulate(Parser(make_context(), PROGRAM).parse_module(), B1), path)
    assert json.loads(path.read_text())["displayTimeUnit"] == "ns"


def test_where_most_device_memory_is_needed() -> None:
    """The peak, what no plan does without, and the tensors that take it; donated and dead ones are not among them."""

    def layers(x, w, b):
        wide = jnp.tanh(x @ w)
        return jnp.sum(wide @ w.T, axis=1) + b

    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in [(256, 64), (64, 512), (256,)]]
    program = tw.compile(layers, *shapes)
    memory = program.report().memory
    assert memory.live_bytes <= memory.arena_bytes == memory.live_bytes * (1 + memory.fragmentation)
    assert memory.fragmentation == 0.0
    assert memory.at.startswith("at 'npu.launch'")
    sizes = [c.bytes for c in memory.consumers]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 256 * 512 * 4
    assert "argument 1, !npu.gm<64x512xf32>" in [c.name for c in memory.consumers]
    made = next(c for c in memory.consumers if not c.name.startswith("argument"))
    assert made.source is not None and "test_report.py:" in made.source
    data = program.report().to_dict()["memory"]
    assert data["fragmentation"] == 0.0 and data["consumers"][0]["bytes"] == 256 * 512 * 4


@pytest.mark.parametrize("target", ["systolic-tpu1", "ascend-310", "ascend-910b1", "ascend-950pr"])
def test_no_floor_exceeds_its_time(target: str) -> None:
    """Products that run as reductions, on a chip whose vector unit has more lanes than a repeat has bytes."""

    def fn(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
        return x @ w, jax.nn.softmax(x), b @ b.T, jnp.sum(b * b)

    types = [
        jax.ShapeDtypeStruct(s, d) for s, d in [((8, 256), "f4"), ((256, 16), "f4"), ((16, 64), "bfloat16")]
    ]
    report = tw.compile(fn, *types, target=target).report()
    for kernel in report.kernels:
        assert 0 <= kernel.launch_microseconds <= kernel.microseconds
        assert kernel.floor_microseconds <= (kernel.microseconds - kernel.launch_microseconds) * (1 + 1e-9)
    assert report.floor_microseconds <= report.microseconds


def test_notes_below_a_table_stay_lines(report: Report) -> None:
    html = report._repr_html_()
    assert "white-space:pre-line" in html
    assert "of the time\nprecision of" in html
