"""`tilewright serve-sim`: programs with open sizes, functions of a file by size and by entry, goals, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.main import main

MODEL = """
def double(x):
    return x * 2
"""
OPEN = ["serve-sim", "model.py:double", "--shapes", "f32[b,s]", "--at", "s=64"]
TRACE = "seconds,entry\n0,short\n0,long\n0,short\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    short, long = (tw.compile(lambda x: x * 2 + 1, np.ones((n, 64), np.float32)) for n in (1, 4))
    tw.save({"short": short, "long": long}, "m.twm")
    (tmp_path / "trace.csv").write_text(TRACE)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *line: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*line, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_open_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [*OPEN, "--arrivals", "burst:4,every=1s,seconds=2s", "--policy", "none", "--policy", "batch=4"]
    found = said(capsys, *line, "--batch", "b", "--goal", "p99=1ms")
    assert [row["batch"] for row in found["rows"]] == [1, 4] and found["best"] == 1
    assert said(capsys, *line, "--goal", "p99=1ms") == found  # the only size that --at does not say
    report = said(capsys, "report", "model.py:double", "--shapes", "f32[b,s]", "--at", "s=64,b=4")
    assert found["rows"][1]["latency_ms"]["most"] == pytest.approx(report["microseconds"] / 1e3)
    assert said(capsys, *line, "--goal", "p99=0.1us", code=1)["best"] is None
    assert main([*line, "--plot", "a.html", "--goal", "mean=1s"]) == 0
    out = capsys.readouterr().out
    assert "8 requests" in out and "wrote a.html" in out and "<svg" in (folder / "a.html").read_text()


def test_functions_of_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_size = ["serve-sim", "m.twm", "--entry", "1=short", "--entry", "4=long"]
    found = said(capsys, *by_size, "--arrivals", "burst:7,seconds=1s", "--policy", "batch=4")["rows"][0]
    short, long = (said(capsys, "report", f"m.twm:{name}")["microseconds"] for name in ("short", "long"))
    assert found["batches"] == 2 and found["latency_ms"]["most"] == pytest.approx(2 * long / 1e3)  # 3 are padded
    found = said(capsys, "serve-sim", "m.twm", "--arrivals", "trace.csv")["rows"][0]
    assert found["served"] == 3 and found["latency_ms"]["most"] == pytest.approx((2 * short + long) / 1e3)
    line = ["serve-sim", "m.twm", "--entry", "short:4=long", "--entry", "long:1=short", "--arrivals", "trace.csv"]
    found = said(capsys, *line, "--policy", "batch=1")["rows"][0]
    assert found["latency_ms"]["most"] == pytest.approx((2 * long + short) / 1e3)
    found = said(capsys, "serve-sim", "m.twm:long", "--arrivals", "burst:2", "--devices", "2")
    assert found["devices"] == 2 and found["rows"][0]["latency_ms"]["most"] == pytest.approx(long / 1e3)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (["m.twm", "--arrivals", "poisson:9"], "it has several functions, long, short: say which"),
        (["m.twm", "--arrivals", "late.csv"], "late.csv: No such file"),
        (["m.twm:short", "--arrivals", "trace.csv"], "trace.csv names the entry 'short', and the program has no name"),
        (["m.twm:short", "--arrivals", "poisson:9", "--batch", "b"], "has no open sizes, which --batch b is for"),
        (["m.twm:short", "--arrivals", "poisson:9", "--policy", "batch=2"], "compiled for batches of 1: give it"),
        (["m.twm:short", "--arrivals", "poisson:9", "--entry", "1=short"], "names a function of a .twm file, and"),
        (["m.twm", "--arrivals", "poisson:9", "--entry", "1=shrot"], "it has no function 'shrot'"),
        (["m.twm", "--arrivals", "poisson:9", "--entry", "short"], "cannot read --entry short; write 8=decode8"),
        (["m.twm", "--arrivals", "poisson:9", "--entry", "1=short", "--entry", "1=long"], "have short already"),
        (["m.twm", "--arrivals", "poisson:9", "--entry", "1=short", "--entry", "a:1=long"], "or none does"),
        (["m.twm", "--arrivals", "poisson:9", "--entry", "1=short", "--batch", "b"], "give one of them"),
        (["m.twm:short", "--arrivals", "poisson:9", "--goal", "p9=1s"], "'p9' is no figure of latency; did you mean"),
        (["m.twm:short", "--arrivals", "poisson:9", "--devices", "0"], "a service has 1 to 65,536 devices"),
        (["m.twm:short", "--arrivals", "poisson:9", "--plot", "a.txt"], "a plot is a file of .svg, .png, .pdf, .html"),
        (["m.twm", "--arrivals", "trace.csv", "--plot", "trace.csv"], "a plot is a file of"),
        (["model.py:double", "--shapes", "f32[b,s]", "--arrivals", "poisson:9"], "open sizes b, s: say which is the"),
        (["m.twm:short"], "the following arguments are required: --arrivals"),
    ],
)
def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str], line: list[str], wrong: str) -> None:
    before = {path.name for path in folder.iterdir()}
    assert main(["serve-sim", *line]) == 1
    error = capsys.readouterr().err
    assert wrong in error and error.count("\n") == 1
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == before
