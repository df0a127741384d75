"""The vendor's operator benchmark: rows from records to tables, and the operators whose definitions have corners."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tilewright.benchmarks import cann_bench, cann_operators
from tilewright.benchmarks.cann_bench import case_of, rows_of
from tilewright.benchmarks.cann_tables import Row, page


def record(
    op: str, shapes: Any, dtypes: list[str | None], chip: str = "910B2", **attrs: Any
) -> dict[str, Any]:
    return {
        "id": f"cannbench_{chip}_level1_{op}_1",
        "op": op,
        "chip": chip,
        "shape": json.dumps(shapes),
        "dtype": json.dumps(dtypes),
        "attrs": json.dumps(attrs),
        "measured_us": 4.0,
        "t_hw_us": 1.0,
    }


HALVES = ["float16"] * 3
GELU = record("gelu", [[48, 33]], ["float16"], approximate="none")
GCD = record("gcd", [[40], [40]], ["int32"] * 2)
SMALL = [
    GELU,
    record("maximum", [[17, 5], [1, 5]], ["int64"] * 2, "950PR"),
    record("foreach_addcdiv_scalar", [[[9], [3, 4]]] * 3, ["float32"], scalar="inf"),
    record(
        "quant_matmul",
        [[8, 32], [32, 16], [16]],
        ["int8", "int8", "float32"],
        bias=None,
        output_dtype="float16",
    ),
    record("add_rms_norm_dynamic_quant", [[6, 48], [6, 48], [48]], HALVES, "950PR", epsilon="1e-06"),
    GCD,
]


def test_rows_from_shapes_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row has a time that HBM allows, and comes back in the page and in the JSON; loops are not judged."""
    records, text, rows = tmp_path / "records.json", tmp_path / "page.md", tmp_path / "rows.json"
    records.write_text(json.dumps(SMALL))
    text.write_text(f"# Page\n{cann_bench.BEGIN}\nthose of last week\n{cann_bench.END}\nbehind\n")
    cann_bench.main([str(records), "--barriers", "--page", str(text), "--json", str(rows)])
    found = json.loads(rows.read_text())
    assert [row["op"] for row in found] == [entry["op"] for entry in SMALL]
    for row in found:
        assert row["failure"] is None
        assert row["ours"] > row["read_us"] > 0
        assert row["ratio"] == row["ours"] / 4
        assert row["trips_unknown"] == (row["op"] == "gcd")
    gelu = found[0]["barriers"]
    assert gelu["barriers"] >= gelu["with_barriers"] > 0
    shown = text.read_text()
    assert "last week" not in shown and shown.endswith("behind\n")
    assert "* 6 of 6 rows compile; 0 crash the compiler." in shown
    assert "`gcd` | 910B2 | 1 | - |" in shown
    assert capsys.readouterr().out.strip() in shown


def test_chips_without_barriers_have_none() -> None:
    with cann_bench.ordered_chips() as ordered:
        case = case_of(GELU)
        for target, some in ((cann_bench.CHIPS["910B2"], True), (ordered["910B2"], False)):
            program = cann_bench.tw.compile(case.function, *case.operands, target=target)
            assert ("npu.pipe_barrier" in str(program.module("npu"))) is some


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (record("dilate", [[4]], ["float32"]), "cann_operators.py does not have dilate"),
        (record("gelu", [[4]], ["float32"], "A3", approximate="none"), "no chip of ours stands for A3"),
        (record("maximum", [[4]] * 3, ["float32"] * 2), "3 shapes and 2 dtypes"),
        (record("gelu", [[4]], [None], approximate="none"), "an operand of shape [4] has no dtype"),
        (record("gelu", [[4]], ["float32"]), "'approximate'"),
        (record("gemm", [[4, 5], [4, 5]], ["float16"] * 2), "the function of gemm does not take the row: "),
    ],
)
def test_what_a_row_does_not_say_is_listed(entry: dict[str, Any], reason: str) -> None:
    (row,) = rows_of([entry])
    assert row.failure is not None and reason in row.failure
    assert not row.crash
    assert "0 of 1 rows compile; 0 crash" in page([row])


def test_a_crash_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise AssertionError("what should never be\nand more")

    monkeypatch.setattr(cann_bench.tw, "compile", crash)
    (row,) = rows_of([GELU])
    assert row.crash and row.failure == "AssertionError: what should never be"
    assert "0 of 1 rows compile; 1 crash the compiler." in page([row])


def test_measures_of_rows() -> None:
    """HAP is 0.5 for a row that is as fast as the vendor's, and 1 at the floor; totals leave out what is not judged."""
    rows = [
        Row(f"r{number}", "exp", "910B2", theirs=4.0, floor=2.0, ours=ours, trips_unknown=loops)
        for number, (ours, loops) in enumerate([(4.0, 0), (2.0, 0), (8.0, 0), (100.0, 1)])
    ]
    assert [row.hap for row in rows[:3]] == [0.5, 1.0, 0.25]
    assert "| **all** | 910B2 | 4 | 1.00 | 2.00 | `r2` | 67 % | 0.50 | 0 | 0.0 |" in page(rows)


# -- operators -----------------------------------------------------------------------------------------------


def test_causal_attention_ends_with_the_last_key() -> None:
    """Of 2 queries and 5 keys, the first one sees 4; 4 heads share 2 of keys."""
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 4, 8), (1, 5, 2, 8), (1, 5, 2, 8))
    )
    got = cann_operators.attention(q, k, v, scale_value=-1.0, is_causal=True)
    wide = np.repeat(k, 2, axis=2), np.repeat(v, 2, axis=2)
    scores = np.einsum("bqnd,bknd->bnqk", q, wide[0]) / math.sqrt(8)
    scores[:, :, 0, 4] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(got, np.einsum("bnqk,bknd->bqnd", weights, wide[1]), atol=1e-6)


@pytest.mark.parametrize("mode", [1, 2])
def test_routed_rows_are_added_up(mode: int) -> None:
    """By a loop over tokens and choices, in both orders of the indices; a token that was dropped adds nothing."""
    rng = np.random.default_rng(mode)
    tokens, choices, experts, size = 3, 2, 2, 5
    rows = rng.standard_normal((experts, 4, size) if mode == 1 else (tokens * choices, size)).astype(
        np.float32
    )
    index = rng.permutation(6).astype(np.int32)
    if mode == 1:
        index[4] = -1
    skip, scales = rng.standard_normal((tokens, size)), rng.standard_normal((tokens, choices))
    bias, expert_of = rng.standard_normal((experts, size)), rng.integers(0, experts, (tokens, choices))
    got = cann_operators.moe_finalize_routing(
        rows, index, skip, None, jnp.asarray(bias), scales, expert_of, drop_pad_mode=mode
    )
    want = skip.copy()
    for token in range(tokens):
        for choice in range(choices):
            place = index[choice * tokens + token if mode == 1 else token * choices + choice]
            if place >= 0:
                term = rows.reshape(-1, size)[place] + bias[expert_of[token, choice]]
                want[token] += scales[token, choice] * term
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_windows_of_means_may_overlap() -> None:
    """2 windows of 5 places are the first 3 and the last 3; 4 places are halves."""
    x = np.arange(20, dtype=np.float32).reshape(1, 1, 5, 4, 1)
    got = cann_operators.adaptive_avg_pool_3d(jnp.asarray(x), output_size=[2, 2, 1])
    want = [[x[0, 0, a : a + 3, b : b + 2].mean() for b in (0, 2)] for a in (0, 2)]
    np.testing.assert_allclose(got[0, 0, :, :, 0], want)
