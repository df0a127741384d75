"""Calibration: records read with care, expressed or refused with a reason, compared, summed up, printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import ADD
from shared import SHARED, needs

from tilewright.calibration import compare, load_records, summaries, to_dict
from tilewright.calibration.records import CalibrationError, Record
from tilewright.calibration.summary import BEGIN, END, group_of, percentile
from tilewright.cli.main import main

PUBLISHED = SHARED / "calibration" / "measurements_dev.json"
published = needs(PUBLISHED)

PRODUCT: dict[str, Any] = {
    "id": "product",
    "chip": "A2",
    "engine": "cube",
    "cores": {"aic": 24, "aiv": 0},
    "workload": {"op": "matmul", "m": 512, "n": 1536, "k": 256, "dtype_in": "f16", "dtype_out": "f16"},
    "schedule": {
        "impl": "hand-written",
        "core_split": "4x6 (MxN)",
        "base_m": 128,
        "base_n": 256,
        "base_k": 64,
    },
    "measured_us": {"task": 20.0, "mac": 1.0, "mte2": 3.0},
}
HASH: dict[str, Any] = {
    **ADD,
    "id": "hash",
    "chip": "A3",
    "workload": {"op": "hash_table insert", "shape": [16], "dtype": "f32"},
}
LIBRARY: dict[str, Any] = {**PRODUCT, "id": "library", "schedule": {"impl": "torch_npu operator"}}


def record(data: dict[str, Any]) -> Record:
    return Record(data["id"], data["chip"], data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "records.json"
    path.write_text(json.dumps([PRODUCT, ADD, HASH, LIBRARY]))
    return path


# -- records ------------------------------------------------------------------------------------------------


def test_groups() -> None:
    assert [group_of(record(r)).split(",")[0] for r in (PRODUCT, ADD, HASH, LIBRARY)] == [
        "910B family",
        "other chips",
        "910B family",
        "no published schedule",
    ]


def test_the_split_is_by_id_alone() -> None:
    ids = [f"record {i}" for i in range(200)]
    fitted = [record({**PRODUCT, "id": i}).fitted for i in ids]
    assert 70 < sum(fitted) < 130
    assert fitted == [record({**PRODUCT, "id": i, "workload": {}}).fitted for i in ids]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("3", "holds no list of records"),
        ('{"records": 3}', "holds no list of records"),
        ("[1]", "record 0 is not a table"),
    ],
)
def test_bad_files_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(CalibrationError, match=said):
        load_records(path)
    assert main(["calibrate", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tilewright: error: ") and said in error and error.count("\n") == 1


def test_a_missing_file_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "no/such.json"]) == 1
    assert capsys.readouterr().err == "tilewright: error: no/such.json: No such file or directory\n"


VALUES = (
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=6) | st.just([64, 64])
)


@settings(max_examples=60)
@given(st.sampled_from([PRODUCT, ADD, HASH]), st.data())
def test_no_record_breaks_it(base: dict[str, Any], data: st.DataObject) -> None:
    """Whatever a field holds, there are rows or a reason of one line."""
    changed = json.loads(json.dumps(base))
    part = data.draw(st.sampled_from(["workload", "schedule", "cores", "measured_us"]))
    key = data.draw(
        st.sampled_from([*changed[part], "step_ka", "tile_shape", "split_k", "batch", "l1_double_buffer"])
    )
    if data.draw(st.booleans()):
        changed[part][key] = data.draw(VALUES)
    else:
        changed[part] = data.draw(VALUES)
    outcome = compare(record(changed))
    assert bool(outcome.rows) != bool(outcome.reason)
    assert outcome.reason is None or "\n" not in outcome.reason


# -- expressed ----------------------------------------------------------------------------------------------


def test_a_product_is_pinned_as_published() -> None:
    outcome = compare(record(PRODUCT))
    assert outcome.target == "ascend-910b1"
    assert "base_m=128,base_n=256,base_k=64,split_m=4,split_n=6" in outcome.schedule
    assert {r.quantity for r in outcome.rows} == {"task", "mac", "mte2"}
    # 24 cores with one tile of 128 x 256 and four steps of 512 cycles each
    mac = next(r for r in outcome.rows if r.quantity == "mac")
    assert 4 * 512 / 1850 < mac.modelled < 4 * (512 + 60) / 1850


def test_what_cannot_be_said_has_a_reason() -> None:
    assert compare(record(HASH)).reason == "there is no program for the operation 'hash table insert'"
    big = {**PRODUCT, "schedule": {**PRODUCT["schedule"], "base_m": 512}}
    assert "takes 524288 bytes of l0c" in (compare(record(big)).reason or "")


def test_a_bank_conflict_doubles_an_instruction() -> None:
    base = {
        **ADD,
        "chip": "A2",
        "workload": {"op": "add", "shape": [4096], "dtype": "f32", "instr_count": 100},
        "measured_us": {"core_loop": 5.0},
    }
    times = []
    for second in ("0x10000", "0x10100"):
        places = {"src0_addr": "0", "src1_addr": second, "dst_addr": "0x14100"}
        outcome = compare(record({**base, "schedule": {"impl": "loop", **places}}))
        times.append(outcome.rows[0].modelled)
    assert times[0] - times[1] == pytest.approx(100 * 64 / 1850, rel=0.01)


@pytest.mark.parametrize(
    ("written", "share"), [("0x4020", 0.79), ("0x4000", 0), ("0x10100", 0), ("0x20020", 0)]
)
def test_writing_across_the_rows_of_a_bank_that_is_read_takes_longer(written: str, share: float) -> None:
    base = {
        **ADD,
        "chip": "A2",
        "workload": {"op": "add", "shape": [4096], "dtype": "f32", "instr_count": 100},
        "measured_us": {"core_loop": 5.0},
    }
    times = []
    for place in (written, "0x14100"):
        places = {"src0_addr": "0", "src1_addr": "0x10100", "dst_addr": place}
        times.append(compare(record({**base, "schedule": {"impl": "loop", **places}})).rows[0].modelled)
    assert times[0] - times[1] == pytest.approx(100 * 64 * share / 1850, abs=0.03)


# -- printed ------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(file)]) == 0
    out = capsys.readouterr().out
    assert "hash: not expressed: there is no program for the operation 'hash table insert'" in out
    assert "910B family, " in out and "other chips" in out and "no published schedule" in out
    line = next(line for line in out.splitlines() if line.split()[:2] == ["product", "task"])
    assert line.split()[2] == "20" and line.endswith("%")


def test_the_command_prints_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "tilewright.calibration/1"
    assert [r["id"] for r in found["records"]] == ["product", "add", "hash", "library"]
    assert found["summary"]["910B family"]["records"] == 2
    assert found["summary"]["910B family"]["expressed"] == 1
    (first, *_) = found["records"]
    for time in first["times"]:
        assert time["error"] == pytest.approx(time["modelled"] / time["measured"] - 1)


def test_the_page_and_the_plot(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    page, plot = tmp_path / "page.md", tmp_path / "plot.png"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nrest\n")
    assert main(["calibrate", str(file), "--page", str(page), "--plot", str(plot)]) == 0
    text = page.read_text()
    assert (
        text.startswith("# Title") and text.endswith("rest\n") and "old" not in text and "| product |" in text
    )
    assert plot.read_bytes().startswith(b"\x89PNG")
    page.write_text("# Title\n")
    assert main(["calibrate", str(file), "--page", str(page)]) == 1
    assert "lacks the marks" in capsys.readouterr().err


def test_percentile() -> None:
    assert percentile([], 0.9) is None
    assert percentile([3.0], 0.9) == 3.0
    assert percentile([0.0, 1.0, 2.0, 3.0, 4.0], 0.9) == pytest.approx(3.6)


# -- the published records ----------------------------------------------------------------------------------


@published
def test_published_records() -> None:
    """The model stays as near to the published times as docs/calibration.md says."""
    records = load_records(PUBLISHED)
    assert len(records) == 200
    outcomes = [compare(r) for r in records]
    assert len(to_dict(outcomes)["records"]) == 200
    family = summaries(outcomes)["910B family"]
    assert family.expressed >= 0.9 * family.records
    assert family.median is not None and family.median <= 0.08
    assert family.p90 is not None and family.p90 <= 0.2
    # counters of MTE3 have the wait for the memory in most records, and in two additions not: see docs/calibration.md
    limits = dict.fromkeys(("mac", "mte1", "mte2", "vec", "fixpipe"), 0.12) | {"mte3": 0.4}
    for pipe, limit in limits.items():
        median = sorted(family.pipes[pipe])[len(family.pipes[pipe]) // 2]
        assert median <= limit, pipe


@published
def test_the_8192_progression() -> None:
    """Each step of the 8192^3 product on 910B1 is ordered as measured, and within a tenth of it."""
    outcomes = [compare(r) for r in load_records(PUBLISHED) if r.id.startswith("adk_mmhp_910B1_c")]
    tasks = [o.task for o in outcomes]
    assert len(tasks) == 4 and all(t is not None for t in tasks)
    modelled = [t.modelled for t in tasks if t is not None]
    assert modelled == sorted(modelled, reverse=True)
    assert all(abs(t.error) <= 0.1 for t in tasks if t is not None)
