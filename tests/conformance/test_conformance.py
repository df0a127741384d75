"""A sample of the StableHLO conformance suite, the table of bounds, and the runner itself.

`make conformance` runs the whole suite. Without the suite's directory beside the repository, the sample is skipped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conformance_bounds import BOUNDS, Bound, bound_of, table
from conformance_suite import SuiteMissing, cases, quantized, run_case, run_quantized, within
from run_conformance import main
from run_dynamic import main as run_dynamic
from run_dynamic import programs, run_program
from shared import SHARED, needs
from tiering import some

from tilewright.dialects.dtypes import numpy_dtype

ROOT = Path(__file__).resolve().parents[2]
SUITE = str(SHARED / "conformance")
SAMPLE = 24
"""Every n-th case runs here."""

needs_suite = needs(Path(SUITE) / "suite_loader.py")


@needs_suite
def test_a_sample_of_the_cases() -> None:
    for number, case in enumerate(cases(SUITE)[::SAMPLE]):
        record = run_case(SUITE, case, [1], in_bytes=number % 6 == 0)
        assert set(record.verdicts) == {"original", "permuted 1"}
        assert record.worst.status != "failed", (record.name, record.verdicts)


@needs_suite
def test_cases_that_xla_misses_are_judged_by_the_reference_interpreter() -> None:
    missed = [case for case in cases(SUITE) if case["xla_cpu"] == "mismatch"]
    for case in missed:
        record = run_case(SUITE, case, [1, 2], in_bytes=False)
        assert {v.status for v in record.verdicts.values()} == {"strict"}, (record.name, record.verdicts)


@needs_suite
def test_every_quantized_module_runs_or_is_refused_in_one_line() -> None:
    paths = quantized(SUITE)
    assert len(paths) == 55
    modules = [run_quantized(path) for path in some(paths, 0, 3)]
    assert not [m for m in modules if m.status == "differs"]
    refused = [m.message for m in modules if m.status == "refused"]
    assert len(refused) <= 1
    assert all("\n" not in message and "'" in message and ":" in message for message in refused)


@needs_suite
def test_a_sample_of_the_programs_with_dynamic_shapes() -> None:
    for path in programs(SUITE)[::SAMPLE]:
        record = run_program(SUITE, path, (1, 5), in_bytes=True)
        assert list(record.outcomes) == [1, 5]
        failed = {size: said for size, (status, said) in record.outcomes.items() if status == "failed"}
        assert not failed, record.name


def test_the_documentation_has_the_table_of_bounds() -> None:
    assert table() in (ROOT / "docs" / "conformance.md").read_text()
    assert not [b for b in BOUNDS if not b.reason.endswith(".")]


def test_bounds_go_by_class() -> None:
    bf16, f32 = numpy_dtype("bf16"), numpy_dtype("f32")
    sums = bound_of(("reduce_window", "add"), bf16)
    assert sums is not None
    assert sums.what == "sums over windows in f16 and bf16"
    assert bound_of(("reduce_window", "add"), f32) is None
    assert bound_of(("add",), bf16) is None
    assert bound_of(("convert", "dot_general"), f32) is not None
    assert bound_of(("reduce_window", "maximum"), bf16) is None


def test_the_bound_of_a_sum_counts_its_terms() -> None:
    bound = Bound("sums", frozenset({"dot_general"}), frozenset({"f32"}), "terms", "They add up.")

    def golden(inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [inputs[0] @ inputs[1]]

    a, b = np.float32([[1, -2, 3]]), np.float32([[4], [5], [-6]])
    allowed = bound.tolerance(np.dtype(np.float32), [a, b], a @ b, golden, 0)
    np.testing.assert_allclose(allowed, [[3 * np.finfo(np.float32).eps * (4 + 10 + 18)]])


@pytest.mark.parametrize(
    ("got", "expected", "fits"),
    [([1.0], [1.05], True), ([1.0], [1.2], False), ([np.nan], [np.nan], True), ([np.inf], [1.0], False)],
)
def test_within_a_bound(got: list[float], expected: list[float], fits: bool) -> None:
    assert within(np.array(got), np.array(expected), np.full(1, 0.1)) is fits


def test_an_absent_suite_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == f"{tmp_path} has no suite_loader.py: give the directory of the conformance suite\n"
    with pytest.raises(SuiteMissing):
        cases(str(tmp_path))
    assert run_dynamic([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == f"{tmp_path} has no folder dynamic: give the directory of the conformance suite\n"
