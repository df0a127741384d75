"""The page's data is the program's: its IR, its locations and one simulation."""

from __future__ import annotations

import itertools
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from explain_models import CASES, data, program

import tilewright as tw
from tilewright.backends.simulator import simulate
from tilewright.cli.main import main
from tilewright.explain import ExplainError, page_data, render
from tilewright.passes.pins import parse_pins

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
    assert {m["kind"] for m in memory} >= {"argument", "result"}


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
    assert {step[7] for step in steps} == set(report["queues"])
    for queue in report["queues"]:
        mine = [step for step in steps if step[7] == queue]
        for one, other in itertools.pairwise(mine):
            assert other[3] >= one[4] - 1e-3
            if len(report["queues"]) == 1:
                assert other[3] <= one[4] + 1e-3


def test_a_loop_shows_its_host_calls() -> None:
    kinds = {step[1] for step in data("loop")["steps"]}
    assert "host" in kinds


# -- advice --------------------------------------------------------------------------------------------------


@cases
def test_every_kernel_is_said_something_of(name: str) -> None:
    for kernel in data(name)["report"]["kernels"]:
        if kernel["name"] != "copy":
            said = data(name)["advice"][kernel["name"]]
            assert said
            assert all(re.search(r"\d", f["what"]) for f in said)


def test_what_is_said_to_help_helps() -> None:
    """The bytes that a larger tile is said to save are saved when it is pinned."""
    fn, args, target = CASES["big"]
    small = tw.Options(schedule=tw.Schedule(base_m=64, base_n=128))
    small_tiles = tw.compile(fn, *args, target=target, options=small)
    advice = page_data(small_tiles)["advice"].values()
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
        (found,) = page_data(program)["advice"].values()
        return next((f["help"] for f in found if f["what"].startswith("Cores:")), "")

    chosen = compiled(None)
    cores = chosen.report().kernels[0].cores
    assert "would end" not in said(chosen)
    few = compiled(max(1, cores // 8))
    best = re.search(r"(\d+) would end ([\d.]+) us sooner", said(few))
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
