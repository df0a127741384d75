"""`tilewright pack`: rows with offsets, and one sentence for each mistake."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tilewright.cli.main import main

EXAMPLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
PLACED = "id,lower,upper,size,offset\nb1,0,3,4,0\nb2,3,9,4,0\nb3,0,9,4,4\nb4,9,21,4,0\nb5,0,21,4,8\n"
TIGHT = "id,lower,upper,size\n" + "".join(
    f"{i},{a},{b},{n}\n"
    for i, (a, b, n) in enumerate(
        [(1, 3, 1), (0, 2, 3), (2, 4, 1), (1, 4, 2), (3, 5, 3), (0, 1, 3), (2, 3, 2), (4, 5, 3)]
    )
)  # six bytes are in use at each time, and no six bytes are enough
BOUND_12 = "bound 12, height 12, the lowest, ratio 1.0000, 0 placements"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "buffers.csv").write_text(EXAMPLE)
    return tmp_path


def test_rows_go_to_stdout_and_the_summary_to_stderr(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", "buffers.csv", "--capacity", "12"]) == 0
    said = capsys.readouterr()
    assert said.out == PLACED
    assert said.err.startswith(f"5 buffers: {BOUND_12} in ") and said.err.count("\n") == 1


def test_rows_go_to_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "buffers.csv", "-o", "placed.csv"]) == 0
    assert capsys.readouterr().out == "" and (folder / "placed.csv").read_text() == PLACED
    assert sorted(p.name for p in folder.iterdir()) == ["buffers.csv", "placed.csv"]


def test_json_has_the_offsets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "buffers.csv", "--align", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["offsets"] == {"b1": 0, "b2": 0, "b3": 8, "b4": 0, "b5": 16}
    assert (found["bound"], found["height"], found["proved"]) == (12, 20, True)


def test_a_table_comes_from_stdin(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(EXAMPLE.encode())))
    assert main(["pack", "-"]) == 0
    assert capsys.readouterr().out == PLACED


MISTAKES = {
    "nowhere.csv": "nowhere.csv: No such file or directory",
    "model.py:layer": "model.py:layer: pack places the buffers of a .csv file, and takes no program",
    "empty.csv": "empty.csv: the file is empty; its first line names the columns",
    "binary.csv": "binary.csv: no CSV: it is not UTF-8",
    "short.csv": "short.csv: there is no column size",
    "buffers.csv --capacity 11": "buffers.csv: 12 bytes are in use at time 0, and the capacity is 11: "
    "b1 (4), b3 (4), b5 (4)",
    "buffers.csv --capacity many": "cannot read --capacity many; write 4096, 512K, 64M or 2G",
    "buffers.csv --seconds 0": "--seconds must be more than 0",
    "buffers.csv --seconds nan": "--seconds must be more than 0",
    "buffers.csv --align 0": "--align must be at least 1",
    "buffers.csv --align x": "argument --align: invalid int value: 'x'",
    "buffers.csv -o nowhere/placed.csv": "nowhere/placed.csv: No such file or directory",
    "buffers.csv -o buffers.csv": "buffers.csv: the command reads this file; write the output to another one",
    "buffers.csv -o - --json": "-o - and --json would both write to stdout",
    "tight.csv --capacity 6": "tight.csv: no offsets fit into 6 bytes, though no more than 6 are in use at one time",
    "many.csv --capacity 6": "many.csv: 7 bytes are in use at time 0, and the capacity is 6: "
    "b0 (1), b1 (1), b2 (1), b3 (1), b4 (1) and 2 more",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    (folder / "empty.csv").write_text("")
    (folder / "binary.csv").write_bytes(b"id,lower\xff\xfe")
    (folder / "short.csv").write_text("id,lower,upper\na,0,1\n")
    (folder / "tight.csv").write_text(TIGHT)
    (folder / "many.csv").write_text("id,lower,upper,size\n" + "".join(f"b{i},0,1,1\n" for i in range(7)))
    before = sorted(p.name for p in folder.iterdir())
    assert main(["pack", *words.split()]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"tilewright: error: {MISTAKES[words]}")
    assert said.err.count("\n") == 1
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_budget_that_ends_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(7 * i % 24, min(7 * i % 24 + 1 + 5 * i % 11, 24), 1 + 31 * i % 97) for i in range(60)]
    live = [sum(n for a, b, n in rows if a <= t < b) for t in range(24)]
    rows += [(t, t + 1, max(live) - n) for t, n in enumerate(live)]  # few orders fit where all is in use
    (folder / "hard.csv").write_text(
        "id,lower,upper,size\n" + "".join(f"{i},{a},{b},{n}\n" for i, (a, b, n) in enumerate(rows))
    )
    assert main(["pack", "hard.csv", "--json", "--seconds", "0.01"]) == 0
    bound = json.loads(capsys.readouterr().out)["bound"]
    assert main(["pack", "hard.csv", "--capacity", str(bound), "--seconds", "0.01"]) == 1
    assert "bytes were found after" in capsys.readouterr().err
