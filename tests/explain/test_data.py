"""The page's data is the program's: its IR, its locations and one simulation."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explain_models import CASES, OPTIONS, case, data, model, program
from loading import load
from tiering import sampled

import tilewright as tw
from tilewright.api import program as api_program
from tilewright.backends import spans
from tilewright.backends.simulator import Launch, simulate
from tilewright.cli.main import main
from tilewright.dialects.graph import FusionOp, ReshapeOp
from tilewright.dialects.npu.streams import QUEUES
from tilewright.dialects.npu.structure import LaunchOp
from tilewright.explain import ExplainError, compile_with_levels, page_data, render
from tilewright.explain.units import data_size, duration
from tilewright.passes import pipeline
from tilewright.passes.pins import parse_pins
from tilewright.passes.pipeline import Stage, make_pass
from tilewright.passes.reasons import ReasonKind

THIS = str(Path(__file__).with_name("explain_models.py"))
cases = pytest.mark.parametrize("name", CASES)


def level(name: str, which: str) -> dict[str, Any]:
    return next(found for found in data(name)["levels"] if found["name"] == which)


@cases
def test_report_is_the_programs(name: str) -> None:
    assert data(name)["report"] == program(name).report().to_dict()


@cases
@pytest.mark.parametrize("which", ["graph", "tile", "npu"])
def test_text_is_the_programs(name: str, which: str) -> None:
    """Every line is one of the program's, in order; only the bodies of equal fusions are left out."""
    printed = program(name).ir(which).splitlines()
    lines = [text for text, _, _ in level(name, which)["lines"]]
    folded = sum(line.endswith(" ... }") for line in lines)
    place = 0
    for line in lines:
        start = line.removesuffix(" ... }") if line.endswith(" ... }") else line
        start = start.removesuffix(" ...")
        place = next(i for i in range(place, len(printed)) if printed[i].startswith(start)) + 1
    if not folded:
        assert len(lines) == len(printed) - 2  # all but `builtin.module {` and `}`


def test_equal_fusions_are_shown_once() -> None:
    graph = level("layers", "graph")
    folded = [text for text, _, _ in graph["lines"] if text.endswith(" ... }")]
    launches = [k["launches"] for k in data("layers")["report"]["kernels"]]
    assert len(folded) == sum(launches) - len(launches) == 1


@cases
def test_every_instruction_has_a_line_of_the_source(name: str) -> None:
    """From an npu instruction up through the origins there is a graph op, and both name the user's line."""
    found = data(name)
    graph, tile, npu = found["levels"]
    files = [f["name"] for f in found["files"]]
    seen = 0
    for timeline in found["kernels"].values():
        for op in {timeline["events"][i + 1] for i in range(0, len(timeline["events"]), 6)}:
            above = npu["origins"].get(str(op), [])
            assert above, npu["lines"]
            top = [g for t in above for g in tile["origins"].get(str(t), [])]
            assert top
            assert npu["places"][op]
            file, line = npu["places"][op]
            assert files[file].endswith("explain_models.py")
            assert any(graph["places"][g] == [file, line] for g in top)
            seen += 1
    assert seen


@cases
def test_names_are_where_the_data_says(name: str) -> None:
    values: dict[int, str] = {}
    for one in data(name)["levels"]:
        for text, _, names in one["lines"]:
            for column, value in (
                itertools.batched(names, 2) if sys.version_info >= (3, 12) else _pairs(names)
            ):
                token = re.match(r"%[\w$.]+", text[column:])
                assert token, text
                assert values.setdefault(value, token[0]) == token[0]


def _pairs(flat: list[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


@cases
def test_events_are_the_simulators(name: str) -> None:
    simulation = simulate(program(name).module(), program(name).machine)
    longest: dict[str, Any] = {}
    for step, _ in simulation.flat():
        if hasattr(step, "run"):
            known = longest.get(step.kernel.name)
            if known is None or step.microseconds > known.microseconds:
                longest[step.kernel.name] = step
    assert longest.keys() == data(name)["kernels"].keys()
    for kernel, launch in longest.items():
        timeline = data(name)["kernels"][kernel]
        assert timeline["cycles"] == launch.run.cycles
        expected = [
            (event.start, event.end)
            for trace in launch.kernel.trace(launch.run, 1200)
            for event in trace.events
        ]
        events = timeline["events"]
        assert [(events[i + 2], events[i + 3]) for i in range(0, len(events), 6)] == expected
        if timeline["complete"]:
            assert timeline["shown"] == max(end for _, end in expected)
            # cores that are left in the end get more of the bandwidth than the events have; behind the last event the
            # scalar unit still waits for flags
            assert launch.run.throttled or timeline["cycles"] <= 1.01 * timeline["shown"]


@cases
def test_a_pipe_does_one_thing_at_a_time(name: str) -> None:
    for timeline in data(name)["kernels"].values():
        ends: dict[int, int] = {}
        for i in range(0, len(timeline["events"]), 6):
            lane, _, begin, end, _, _ = timeline["events"][i : i + 6]
            assert ends.get(lane, 0) <= begin <= end
            ends[lane] = end


@cases
def test_buffers_do_not_overlap(name: str) -> None:
    """No two spans of one core's memory share an address at a time, and the peaks are the report's."""
    found = data(name)
    peaks: dict[str, int] = {}
    for timeline in found["kernels"].values():
        boxes: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
        for i in range(0, len(timeline["spans"]), 4):
            number, slot, begin, end = timeline["spans"][i : i + 4]
            b = timeline["buffers"][number]
            assert 0 <= slot < b["slots"]
            start = b["address"] + slot * b["bytes"]
            boxes.setdefault((b["core"], b["space"]), []).append((start, start + b["bytes"], begin, end))
        for b in timeline["buffers"]:
            peaks[b["space"]] = max(peaks.get(b["space"], 0), b["address"] + b["slots"] * b["bytes"])
        for members in boxes.values():
            assert not _overlapping(members)
    report = found["report"]["memory"]["spaces"]
    assert peaks == {space: report[space]["peak_bytes"] for space in peaks}


@cases
def test_device_tensors_do_not_overlap(name: str) -> None:
    found = data(name)
    memory = found["memory"]
    assert not _overlapping([(m["address"], m["address"] + m["bytes"], m["begin"], m["end"]) for m in memory])
    assert max(m["address"] + m["bytes"] for m in memory) <= found["report"]["memory"]["arena_bytes"]
    in_place = name == "donated"  # its result is where the argument was
    assert {m["kind"] for m in memory} >= ({"argument"} if in_place else {"argument", "result"})


def _overlapping(boxes: list[tuple[float, float, float, float]]) -> list[Any]:
    return [
        (a, b)
        for a, b in itertools.combinations(boxes, 2)
        if a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
    ]


@cases
def test_steps_fill_the_time(name: str) -> None:
    steps, report = data(name)["steps"], data(name)["report"]
    assert min(step[3] for step in steps) == 0
    assert max(step[4] for step in steps) == pytest.approx(report["microseconds"], abs=1e-3)
    assert {step[6] for step in steps} == set(report["queues"])
    for queue in report["queues"]:
        mine = [step for step in steps if step[6] == queue]
        for one, other in itertools.pairwise(mine):
            assert other[3] >= one[4] - 1e-3
            if len(report["queues"]) == 1:
                assert other[3] <= one[4] + 1e-3


@cases
def test_the_timeline_is_the_traces(name: str, tmp_path: Path) -> None:
    """Queue, name, begin and duration of each bar of the page are those of an event of the trace."""
    path = tmp_path / "trace.json"
    program(name).trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["name"] == "thread_name" and e["args"]["name"] in QUEUES
    }
    traced = [
        (tracks[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"])
        for e in events
        if e["ph"] == "X" and (e["pid"], e["tid"]) in tracks
    ]
    steps = data(name)["steps"]
    assert [(s[6], s[0]) for s in steps] == [(queue, event) for queue, event, _, _ in traced]
    assert [x for s in steps for x in (s[3], s[4] - s[3])] == pytest.approx(
        [x for _, _, begin, time in traced for x in (begin, time)], abs=2e-4
    )


@pytest.mark.parametrize("name", ["lstm", "scan", "nested"])
def test_a_loop_leaves_no_time_blank(name: str) -> None:
    """On the one stream that a loop without host calls keeps busy, a bar begins where the one before it ends, and each
    takes what its command takes."""
    simulation = program(name).simulation()
    steps = [step for step in data(name)["steps"] if step[6] == "compute"]
    assert steps[0][3] == 0
    for one, other in itertools.pairwise(steps):
        assert other[3] == pytest.approx(one[4], abs=1e-3)
    assert steps[-1][4] == pytest.approx(simulation.microseconds, abs=1e-3)
    times = {(s.kernel.name, round(s.microseconds, 3)) for s, _ in simulation.flat() if isinstance(s, Launch)}
    for step in steps:
        if step[1] == "kernel":
            assert any(
                step[0] == kernel and step[4] - step[3] == pytest.approx(us, abs=2e-3) for kernel, us in times
            )


def test_each_pass_is_shown() -> None:
    """Every launch of a loop of 32 passes is a bar: as many as the report counts."""
    shown = Counter(step[0] for step in data("lstm")["steps"] if step[1] == "kernel")
    assert shown == {
        k["name"]: k["launches"] for k in data("lstm")["report"]["kernels"] if k["kind"] != "copy"
    }


def test_passes_that_have_no_room_are_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data("lstm")  # which is kept, and must not be made with few commands
    monkeypatch.setattr(spans, "COMMANDS", 40)
    found = page_data(program("lstm"))
    rest = [step for step in found["steps"] if step[1] == "passes"]
    last = max(rest, key=lambda step: step[4])
    assert last[7] > 20 and last[0] == f"{last[7]} more passes like the last one"
    assert last[4] == pytest.approx(found["report"]["microseconds"], rel=0.01)
    assert found["report"] == whole["report"]


def test_tensors_of_a_function_are_shown_for_each_pass_of_a_loop() -> None:
    """A function that a loop calls has its tensors once in each of 6 passes and a call, and no two at one address."""
    memory = data("nested")["memory"]
    inside = Counter((m["address"], m["op"]) for m in memory if m["kind"] in ("tensor", "workspace"))
    assert max(inside.values()) == 7
    boxes = [(m["address"], m["address"] + m["bytes"], m["begin"], m["end"]) for m in memory]
    assert not _overlapping(boxes)


def test_a_loop_shows_its_host_calls() -> None:
    kinds = {step[1] for step in data("loop")["steps"]}
    assert {"host call", "transfer"} <= kinds


def shown(found: dict[str, Any], which: str, kernel: str) -> list[str]:
    """The lines of a level that the page shows of a kernel."""
    one = next(one for one in found["levels"] if one["name"] == which)
    blocks = [block for block in one["blocks"] if kernel in block["kernels"]]
    return [one["lines"][i][0] for block in blocks for i in range(*block["lines"])]


@pytest.mark.parametrize("name", [*CASES, "tiny"])
def test_every_kernel_has_its_lines_in_every_level(name: str) -> None:
    found = data(name)
    for kernel in found["kernels"]:
        for which in ("graph", "tile", "npu"):
            assert shown(found, which, kernel), (kernel, which)


def test_sums_in_parts_show_their_product() -> None:
    """Both kernels of a sum in parts are of one fusion."""
    found = data("split")
    assert len(found["kernels"]) == 2
    texts = ["\n".join(shown(found, "graph", kernel)) for kernel in found["kernels"]]
    assert texts[0] == texts[1] and "graph.contract" in texts[0] and "graph.max" in texts[0]


def test_kernels_that_place_parts_show_the_concatenation() -> None:
    found = data("placed")
    placing = [name for name in found["kernels"] if name.startswith("concat")]
    assert len(placing) > 1
    for name in placing:
        assert any("graph.place" in line for line in shown(found, "graph", name))


@cases
def test_a_kernel_has_all_its_lines(name: str) -> None:
    """Those that its instructions come from, and those that launch it."""
    found, made = data(name), program(name)
    npu = next(one for one in found["levels"] if one["name"] == "npu")
    for kernel in made.report().kernels:
        if kernel.kind == "copy":
            continue
        timeline = found["kernels"][kernel.name]
        ran = {timeline["events"][i + 1] for i in range(0, len(timeline["events"]), 6)}
        places = {tuple(npu["places"][op]) for op in ran if npu["places"][op]}
        assert places <= {tuple(place) for place in timeline["sources"]}
        assert len(timeline["sources"]) == len(kernel.sources)
        files = [f["name"] for f in found["files"]]
        assert not any("frontends/jax.py" in name for name in files)


def test_a_models_nodes_are_its_lines() -> None:
    found = page_data(model())
    (file,) = found["files"]
    assert file["nodes"] and file["name"] == "net.onnx"
    assert [text for _, text in file["lines"]] == ["/a/Exp", "Tanh 'x2'", "/b/Softmax"]
    (timeline,) = found["kernels"].values()
    assert sorted(timeline["sources"]) == [[0, n] for n in sorted(n for n, _ in file["lines"])]
    assert found["report"]["kernels"][0]["sources"][0].endswith("net.onnx:/a/Exp")
    assert all(len(file["lines"]) >= place[1] for one in found["levels"] for place in one["places"] if place)


def test_the_page_has_words_for_each_reason() -> None:
    """What passes give as reasons why kernels are apart has a title on the page."""
    script = (resources.files("tilewright.explain") / "assets" / "table.js").read_text(encoding="utf-8")
    titles = re.search(r"const APART = \{(.*?)\};", script, re.S)
    assert titles
    assert set(re.findall(r'"([a-z ]+)": "', titles[1])) == {*get_args(ReasonKind)}


# -- one compilation, one simulation -------------------------------------------------------------------------


@sampled(3)
@pytest.mark.parametrize("name", ["tiny", "lstm", "scan", "digits", "donated"])
def test_the_figures_are_those_of_the_report(name: str) -> None:
    """What `tilewright report --json` prints is what the page shows, to the last digit."""
    fn, args, _ = case(name)
    printed = tw.compile(fn, *args, options=OPTIONS.get(name)).report().to_json()
    assert data(name)["report"] == json.loads(printed)


def test_the_page_simulates_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tw.compile(CASES["big"][0], *CASES["big"][1])
    runs: list[Any] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        runs.append(args)
        return simulate(*args, **kwargs)

    monkeypatch.setattr(api_program, "simulate", counted)
    page = page_data(made)
    made.report()
    assert len(runs) == 1 and runs[0][0] is made.module()
    assert page["report"] == made.report().to_dict()


def test_the_command_compiles_and_simulates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass runs once for the command, and the page is of that program."""
    passes: list[str] = []
    runs: list[Any] = []

    def counted(stage: Stage, target: str) -> Any:
        passes.append(stage.name)
        return make_pass(stage, target)

    def simulated(*args: Any, **kwargs: Any) -> Any:
        runs.append(args)
        return simulate(*args, **kwargs)

    monkeypatch.setattr(pipeline, "make_pass", counted)
    monkeypatch.setattr(api_program, "simulate", simulated)
    out = tmp_path / "page.html"
    assert main(["explain", f"{THIS}:big", "--shapes", "f16[1024,512],f16[512,2048]", "-o", str(out)]) == 0
    assert sorted(passes) == sorted(set(passes)) and "graph-simplify" in passes and "npu-check" in passes
    assert len(runs) == 1
    page = json.loads(Page(out.read_text()).texts["data"])
    assert page["report"] == json.loads(program("big").report().to_json())
    assert [one["lines"] for one in page["levels"]] == [
        one["lines"] for one in json.loads(json.dumps(data("big")))["levels"]
    ]


def test_a_packed_program_shows_what_runs_each_time() -> None:
    inputs = [jax.ShapeDtypeStruct((64, 64), "float32")] * 2
    options = tw.Options(quantization="w8a8-dynamic", weights="w")
    made, views = compile_with_levels(lambda w, x: x @ w, *inputs, options=options)
    assert [view.name for view in views] == ["graph", "tile", "npu"]
    found = page_data(made, views=views)
    assert found["report"] == made.report().to_dict()
    assert {"w": "w8a8-dynamic"} in [k["modes"] for k in found["report"]["kernels"]]
    assert found["report"]["by_precision"][0]["precision"]


def test_a_source_that_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels of another program than the one that was compiled are not shown beside it."""
    found = tw.compile(CASES["big"][0], *CASES["big"][1])
    monkeypatch.setattr(found, "_source", program("scan").source)
    with pytest.raises(ExplainError, match="scan gives another program when it is lowered again"):
        page_data(found)


@pytest.mark.parametrize("name", ["tiny", "lstm", "loop"])
def test_counts_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    """The page, the report's line and table, `repr` and the trace: kernels, launches and copies."""
    found, made = data(name), program(name)
    counts, kernels = (
        found["report"]["counts"],
        [k for k in found["report"]["kernels"] if k["kind"] != "copy"],
    )
    assert counts["launches"] == sum(k["launches"] - k["joined"] for k in kernels)
    assert counts["joined"] == sum(k["joined"] for k in kernels)
    assert counts["launched_kernels"] == len(kernels) == len(found["kernels"])
    assert counts["copies"] == sum(k["launches"] for k in found["report"]["kernels"] if k["kind"] == "copy")
    assert f"{counts['launches']} launches of {counts['launched_kernels']} kernels" in str(made.report())
    assert f"{counts['kernels']} kernels" in repr(made)
    made.trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {key: trace["otherData"][key] for key in counts} == counts
    shown = Counter(step[1] for step in found["steps"])
    assert (shown["kernel"], shown["copy"]) == (counts["launches"] + counts["joined"], counts["copies"])
    launched = [e["args"]["joined"] for e in trace["traceEvents"] if e.get("args", {}).get("op") == "npu.launch"]
    assert (launched.count(False), launched.count(True)) == (counts["launches"], counts["joined"])


# -- advice --------------------------------------------------------------------------------------------------


@cases
def test_every_kernel_is_said_something_of(name: str) -> None:
    advice, report = data(name)["advice"], data(name)["report"]
    for kernel in report["kernels"]:
        said = advice["copies"] if kernel["kind"] == "copy" else advice["kernels"][kernel["name"]]
        assert said
        assert all(re.search(r"\d", f["what"]) for f in said)
    assert len(advice["host_ops"]) == len(report["host_ops"])
    assert all(re.search(r"\d", f["what"]) for said in advice["host_ops"] for f in said)


def test_why_there_are_copies() -> None:
    """Each reason has its number of copies; together they are the report's, and so are their times."""
    said = [f["what"] for f in data("scan")["advice"]["copies"]]
    (row,) = (k for k in data("scan")["report"]["kernels"] if k["kind"] == "copy")
    assert sum(int(what.split()[0]) for what in said) == row["launches"]
    assert said[0].startswith("6 copies of 4.1 KB into the state of a loop")


def test_launches_are_spoken_of_once() -> None:
    """The program's sentence has all launches and copies, and how much of the time starts them."""
    found = data("lstm")
    (said,) = (f for f in found["advice"]["program"] if f["rule"] == "launch")
    counts, kernels = found["report"]["counts"], found["report"]["kernels"]
    starting = sum(k["launch_microseconds"] for k in kernels)
    share = 100 * starting / found["report"]["microseconds"]
    assert f"{counts['launches']} kernel launches and {counts['copies']} copies" in said["what"]
    assert f"{share:.0f}% of the program's time" in said["what"]
    long = page_data(tw.compile(jax.numpy.exp, jax.ShapeDtypeStruct((8192, 4096), "float32")))
    assert "launch" not in {f["rule"] for f in long["advice"]["program"]}


def test_the_work_that_halves_the_share_of_the_launch() -> None:
    """What is said to halve it does: launch / (launch + times x work) is half of launch / (launch + work)."""
    found = data("scan")
    for kernel in found["report"]["kernels"]:
        for said in found["advice"]["kernels"].get(kernel["name"], []):
            if said["rule"] == "launch":
                times = re.search(r"([\d.]+) times the work", said["help"])
                assert times
                launch = kernel["launch_microseconds"]
                share = launch / kernel["microseconds"]
                work = kernel["microseconds"] - launch
                assert launch / (launch + float(times[1]) * work) == pytest.approx(share / 2, rel=0.05)


@pytest.mark.parametrize(
    ("microseconds", "said"),
    [
        (0, "0 ns"),
        (0.4321, "432 ns"),
        (0.9996, "1.00 \u00b5s"),
        (12.34, "12.3 \u00b5s"),
        (999.6, "1.00 ms"),
        (2.5e6, "2.50 s"),
    ],
)
def test_times_in_words(microseconds: float, said: str) -> None:
    assert duration(microseconds) == said


@pytest.mark.parametrize(
    ("amount", "said"), [(0, "0 B"), (999, "999 B"), (4096, "4.1 KB"), (2.5e9, "2.5 GB")]
)
def test_sizes_in_words(amount: float, said: str) -> None:
    assert data_size(amount) == said


def test_what_is_said_to_help_helps() -> None:
    """The bytes that a larger tile is said to save are saved when it is pinned."""
    fn, args, target = CASES["big"]
    small = tw.Options(schedule=tw.Schedule(base_m=64, base_n=128))
    small_tiles = tw.compile(fn, *args, target=target, options=small)
    advice = page_data(small_tiles)["advice"]["kernels"].values()
    (said,) = (f for found in advice for f in found if "re-read" in f["help"])
    pins = re.search(r"--schedule (\S+),", said["help"])
    claim = re.search(r"([\d.]+) MB of ([\d.]+) MB less", said["help"])
    assert pins and claim
    kernel = small_tiles.report().kernels[0]
    assert float(claim[2]) == pytest.approx(kernel.bytes["read"] / 1e6, abs=0.06)
    pinned = tw.compile(fn, *args, target=target, options=tw.Options(schedule=parse_pins(pins[1])))
    saved = kernel.bytes["read"] - pinned.report().kernels[0].bytes["read"]
    assert saved >= 0.9 * float(claim[1]) * 1e6


@pytest.mark.parametrize("rows", [64, 2048])
def test_more_cores_are_said_to_help_where_they_do(rows: int) -> None:
    """What is said of the cores that were chosen, and of half as many, is so when they are pinned."""

    def compiled(cores: int | None) -> tw.Program:
        options = tw.Options(schedule=tw.Schedule(cores=cores))
        return tw.compile(jax.numpy.exp, np.ones((rows, 512), np.float32), options=options)

    def said(program: tw.Program) -> str:
        (found,) = page_data(program)["advice"]["kernels"].values()
        return next((f["help"] for f in found if f["what"].startswith("Cores:")), "")

    chosen = compiled(None)
    cores = chosen.report().kernels[0].cores
    assert "would end" not in said(chosen)
    few = compiled(max(1, cores // 8))
    best = re.search(r"(\d+) would end ([\d.]+) \u00b5s sooner", said(few))
    assert best
    saved = few.report().microseconds - compiled(int(best[1])).report().microseconds
    assert saved >= 0.5 * float(best[2])


# -- other beginnings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["tile", "npu"])
def test_a_program_that_begins_below(start: str, tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(program("layers").ir(start))
    found = page_data(tw.compile(path))
    assert [one["name"] for one in found["levels"]] == ["graph", "tile", "npu"][
        ["graph", "tile", "npu"].index(start) :
    ]
    assert found["kernels"].keys() == data("layers")["kernels"].keys()
    assert found["files"][0]["name"] == "program.mlir"


# -- the page ------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tags of a page, and the text of its scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id") if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.texts[self._script] = self.texts.get(self._script, "") + data


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(program("layers")))


def test_the_page_holds_the_data(page: Page) -> None:
    assert json.loads(page.texts["data"]) == json.loads(json.dumps(data("layers")))


def test_the_page_asks_for_nothing(page: Page) -> None:
    for tag, attributes in page.tags:
        for key in ("src", "href"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:")), f"<{tag} {key}={value}>"


def test_the_page_has_its_parts(page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert ids >= {"cost-table", "program-charts", "kernel-charts", "columns", "advice", "theme", "data"}


def test_text_that_looks_like_html_stays_text() -> None:
    def odd(x: Any) -> Any:
        return x + 1  # </script><b>

    found = render(tw.compile(odd, CASES["big"][1][0]))
    assert "</script><b>" not in found
    assert any(
        "</script><b>" in text
        for f in json.loads(Page(found).texts["data"])["files"]
        for _, text in f["lines"]
    )


def test_without_the_drawing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(ExplainError, match=r"explain needs bokeh, .*pip install 'tilewright\[explain\]'"):
        render(program("layers"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    assert main(["explain", f"{THIS}:big", "--shapes", "f16[64,32],f16[32,48]", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: open it in a browser\n"
    assert json.loads(Page(out.read_text()).texts["data"])["name"] == "big"


def edges(view: Any) -> set[tuple[int, int, int]]:
    """(fusion that makes a value, fusion that reads it, number of the result), through ops that only look at it; what
    stands inside of another fusion is one kernel with it."""
    found: set[tuple[int, int, int]] = set()
    own = [op for op in view.ops if isinstance(op, FusionOp) and not isinstance(op.parent_op(), FusionOp)]
    fusions = [op for op in own if not op.on_host]
    for reader in fusions:
        for value in reader.operands:
            while isinstance(value.owner, ReshapeOp):
                value = value.owner.x
            maker = value.owner
            if isinstance(maker, FusionOp) and not maker.on_host:
                found.add((view.number[maker], view.number[reader], maker.results.index(value)))
    return found


@sampled(2)
@pytest.mark.parametrize("model", ["gpt2:tiny", "gpt2:tiny_token", "moe:tiny_mixtral", "lstm:forward"])
def test_each_value_between_kernels_has_a_reason(model: str) -> None:
    fn, args = load(model)
    _, views = compile_with_levels(fn, *args)
    graph = views[0]
    said = {(*d.ops, d.result) for d in graph.decisions if d.kind == "not fused"}
    assert edges(graph) and said == edges(graph)
    assert all(d.why for view in views for d in view.decisions)


def test_what_is_said_of_kernels_apart() -> None:
    """By the names of kernels, with the value; and of each launch that begins one, why it is not part of the last."""
    fn, args = load("gpt2:tiny_token")
    made, views = compile_with_levels(fn, *args)
    found = page_data(made, views=views)["apart"]
    names = {kernel.name for kernel in made.report().kernels}
    assert {row[side] for row in found for side in ("from", "to")} <= names
    up = [r for r in found if r["kind"] == "not fused" and "a product reads it tile by tile" in r["why"]]
    assert {(r["value"], r["bytes"]) for r in up} >= {("tensor<1x64xf32>", 256)}
    assert all(r["times"] >= 1 and "gpt2.py:" in r["source"] for r in up)
    attention = next(r for r in found if r["kind"] == "not attention")
    assert attention["from"] == attention["to"] and "attention of few rows takes" in attention["why"]
    launches = [op for op in made.module().walk() if isinstance(op, LaunchOp)]
    apart = sum(row["times"] for row in found if row["kind"] == "not joined")
    assert apart == sum(op.joined is None for op in launches) - 1


def test_the_plan_of_device_memory() -> None:
    """The line of bytes in use is highest where most is needed, and ends where all is over."""
    fn, args = load("digits_cnn:forward")
    made, views = compile_with_levels(fn, *args)
    found = page_data(made, views=views)
    line, memory = found["packing"]["in_use"], made.report().memory
    times = [at for at, _ in line]
    assert times == sorted(times) and line[-1][1] == 0
    align = made.machine.gm_align
    assert 0 <= memory.live_bytes - max(n for _, n in line) < align * len(found["memory"])
    (said, more), (_, largest) = found["packing"]["sentences"]
    assert data_size(memory.arena_bytes) in said and data_size(memory.live_bytes) in said
    assert f"fragmentation {100 * memory.fragmentation:.1f}%" in more and memory.at in more
    assert all(consumer.name in largest for consumer in memory.consumers)


@pytest.mark.parametrize(("dtype", "said"), [("float32", True), ("float16", False)])
def test_narrower_lanes_are_advised_where_the_program_has_wide_numbers(dtype: str, said: bool) -> None:
    """Of f16 the unit computes exponentials in f32 by itself: there is nothing to narrow."""

    def fn(x: jax.Array) -> jax.Array:
        for _ in range(6):
            x = jnp.exp(jnp.tanh(x))
        return x

    program = tw.compile(fn, jax.ShapeDtypeStruct((2048, 2048), dtype))
    found = [f["help"] for kernel in page_data(program)["advice"]["kernels"].values() for f in kernel]
    assert any("the slowest instruction" in help for help in found)
    assert any("twice the lanes" in help for help in found) == said


@pytest.mark.parametrize(("rows", "said"), [(8, True), (4096, False)])
def test_what_starts_instructions_is_said_where_it_is_much(rows: int, said: bool) -> None:
    """The tiles of a small tensor on one core are short, and each instruction takes 24 cycles to start."""

    def fn(x: jax.Array) -> jax.Array:
        for _ in range(20):
            x = jnp.sqrt(jnp.exp(x))
        return x

    program = tw.compile(fn, jax.ShapeDtypeStruct((rows, 512), "float32"))
    found = [f["help"] for kernel in page_data(program)["advice"]["kernels"].values() for f in kernel]
    assert any("starts instructions" in help for help in found) == said
