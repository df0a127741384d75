"""Records as strangers write them: expressed within what the chip can do, or named with one clear reason."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from strangers import changed, faults
from tiering import sampled

from tilewright.calibration import compare
from tilewright.calibration.records import Record

CUBE: dict[str, Any] = {
    "impl": "Matmul high-level API",
    "template": "MDL",
    "core_split": "4x6 (MxN)",
    "base_m": 128,
    "base_n": 256,
    "base_k": 64,
    "step_ka": 4,
    "step_kb": 4,
    "l1_double_buffer": True,
    "unit_flag": True,
}
VECTOR: dict[str, Any] = {"impl": "Ascend C basic API", "tile_elems": 4096, "double_buffer": True}
BASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"op": "matmul", "m": 1000, "n": 1536, "k": 512, "dtype_in": "f16", "dtype_out": "f16"}, CUBE),
    ({"op": "matmul+gelu", "m": 512, "n": 1024, "k": 512, "dtype_in": "bf16", "dtype_out": "f32"}, CUBE),
    (
        {"op": "grouped quant matmul", "groups": 4, "m_total": 512, "n": 1024, "k": 256, "dtype_in": "i8"},
        CUBE,
    ),
    ({"op": "add", "shape": [1024, 1000], "dtype": "f32", "inputs": 2}, VECTOR),
    ({"op": "softmax", "shape": [640, 512], "dtype": "f16"}, VECTOR),
    (
        {"op": "reduce_mean", "axis": "last", "shape": [1000, 2048], "dtype": "f32"},
        {"impl": "Triton", "tile_shape": [16, 256]},
    ),
    (
        {"op": "gm_to_ub_copy", "shape": [1024, 4096], "dtype": "f16"},
        {"impl": "DataCopyPad", "tile_shape": [8, 1024]},
    ),
    (
        {
            "op": "conv2d",
            "x_shape": [2, 4, 16, 16, 16],
            "k_shape": [36, 4, 16, 16],
            "kernel": [3, 3],
            "dtype_in": "f16",
        },
        {"impl": "PTO"},
    ),
    (
        {"op": "flash_attention", "seq_q": 256, "seq_kv": 512, "head_size": 64, "dtype": "f16"},
        {"impl": "PTO"},
    ),
]


@sampled(3)
@pytest.mark.parametrize("number", range(len(BASES)))
def test_variants(number: int) -> None:
    rng = random.Random(number)
    work, plan = BASES[number]
    base = {
        "id": "base",
        "chip": "A2",
        "engine": "mix",
        "cores": {"aic": 24, "aiv": 48},
        "workload": work,
        "schedule": plan,
    }
    assert compare(Record("base", "A2", {**base, "measured_us": {"task": 1.0}})).reason is None
    expressed = 0
    for _ in range(15):
        data = changed(base, rng)
        outcome = compare(Record("variant", str(data.get("chip") or ""), data))
        assert not faults(outcome), (faults(outcome), json.dumps(data))
        expressed += outcome.reason is None
    assert expressed >= 5


@pytest.mark.parametrize(("longer", "axis"), [(2, "m"), (3, "n"), (2, "k")])
def test_more_work_takes_longer(longer: int, axis: str) -> None:
    work, plan = BASES[0]
    times = []
    for factor in (1, longer):
        data = {
            "cores": {"aic": 24},
            "workload": {**work, axis: work[axis] * factor},
            "schedule": plan,
            "measured_us": {"task": 1.0},
        }
        times.append(compare(Record("base", "A2", data)).rows[0].modelled)
    assert times[1] > times[0]
