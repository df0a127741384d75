"""Variants of records, as a stranger's file would hold them, and what must hold for each.

    python tests/calibration/strangers.py RECORDS.json COUNT [SEED]

changes each record COUNT times and prints what does not hold, the reasons given, and how many are expressed.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from tilewright.calibration import RecordOutcome, compare, load_records
from tilewright.calibration.compare import PIPES
from tilewright.calibration.express import express
from tilewright.calibration.expressed import ITEM_BYTES
from tilewright.calibration.records import Record

Data = dict[str, Any]

SIZES = [
    1,
    2,
    3,
    7,
    16,
    17,
    31,
    33,
    64,
    100,
    127,
    129,
    256,
    500,
    1000,
    1536,
    2048,
    4095,
    6144,
    8192,
    12287,
    30720,
]
TYPES = [
    "f16",
    "bf16",
    "f32",
    "i8",
    "i32",
    "float16",
    "fp16",
    "BFLOAT16",
    "int8",
    "u8",
    "i64",
    "bool",
    "f64",
    "int4",
]
CHIPS = [
    "910B1",
    "910B2C",
    "910B3",
    "910B4-1",
    "Ascend910B3",
    "Ascend 910B1",
    "A2",
    "A3",
    "A2/A3",
    "910_9391",
]
CHIPS += ["950PR", "950DT", "a5", "910A", "910", "310P3", "310", "310B", "V100", "", None]
BLOCKS = [None, 7, 16, 32, 48, 64, 96, 128, 192, 256, 320, 512, 1024]
SPLITS = [
    "24 along N",
    "4x6 (MxN)",
    "6 x 4 (MxN)",
    "1 core",
    "48 row blocks",
    "2x16 (MxN) x 3 rounds",
    "0x0 (MxN)",
]
SPLITS += ["99x99 (MxN)", "8 row x 6 column blocks", "each core reads the whole matrix", None, 5]
IMPLEMENTATIONS = [
    "Ascend C basic API",
    "Matmul high-level API",
    "Triton-Ascend kernel",
    "catlass 00_basic_matmul",
]
IMPLEMENTATIONS += ["PTO tile kernel", "Matmul high-level API, split-k", "vector cores convert B first", None]
OPERATIONS = """matmul batch_matmul matmul+gelu matmul+bias+relu matmul+add matmul+tril gemm matvec add sub mul div exp
log softmax softmax_(last_axis) layernorm layer_norm rms_norm gelu silu relu sigmoid tanh abs neg sqrt rsqrt pow
reduce_sum reduce_max reduce_mean reduce_prod reduce_any reduce_other argmax transpose concat gather conv2d
flash_attention topk sort cumsum cast where add_broadcast div_broadcast muls axpy maximum floor_mod mul+add+relu
hash_table_insert gm_to_ub_copy gm_to_l1_nd2nz_copy nd2nz quant_matmul grouped_quant_matmul elementwise+reduce_sum
weighted_swiglu_backward swiglu dropout unheard_of +""".split()
JUNK = [0, -5, 1e30, "x", [], {}, [[1]], True, 3.5, "128", [64, 64], "été", float("nan")]


def changed(data: Data, rng: random.Random) -> Data:
    """A copy with one to three changes, which asks for every time that the model has."""
    new = json.loads(json.dumps(data))
    new["measured_us"] = dict.fromkeys(("task", "core_avg", "core_max", "mte2_max", *PIPES), 1.0)
    for _ in range(rng.choice([1, 1, 2, 3])):
        for part in ("workload", "schedule", "cores"):
            new[part] = new[part] if isinstance(new.get(part), dict) else {}
        rng.choice(CHANGES)(new, new["workload"], new["schedule"], rng)
    return new


def _size(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    numbers = [k for k in ("m", "n", "k", "m_total", "groups", "batch", "seq_q", "instr_count") if k in work]
    shape = work.get("shape")
    if isinstance(shape, list) and shape and rng.random() < 0.7:
        shape[rng.randrange(len(shape))] = rng.choice(SIZES)
    elif numbers:
        work[rng.choice(numbers)] = rng.choice(SIZES)
    else:
        work["shape"] = [rng.choice(SIZES) for _ in range(rng.randrange(1, 4))]


def _type(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    for key in ("dtype", "dtype_in", "dtype_out"):
        if key in work:
            work[key] = rng.choice(TYPES)


def _chip(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    new["chip"] = rng.choice(CHIPS)


def _cores(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    new["cores"][rng.choice(["aic", "aiv"])] = rng.choice(
        [None, 0, 1, 2, 5, 20, 24, 25, 40, 48, 1000, "24", -1, 2.5]
    )


def _blocks(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    plan[rng.choice(["base_m", "base_n", "base_k", "single_core_m", "single_core_n"])] = rng.choice(BLOCKS)


def _steps(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    key = rng.choice(["step_ka", "step_kb", "depth_a1", "depth_b1", "split_k"])
    plan[key] = rng.choice([None, 0, 1, 2, 3, 4, 8, 16, 64, "per core"])


def _buffers(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    key = rng.choice(
        ["l1_double_buffer", "double_buffer", "db_l0a", "db_l0b", "unit_flag", "constant_tiling"]
    )
    plan[key] = rng.choice([None, True, False, 1, 2, 3, "on"])


def _words(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    key, values = rng.choice(
        [
            ("core_split", SPLITS),
            ("impl", IMPLEMENTATIONS),
            ("template", ["MDL", "Norm", "hand-written", None]),
            ("access_order", ["row-major", "4 N-slices, slice read 4x", "0 n-slices", None]),
        ]
    )
    plan[key] = rng.choice(values)


def _tile(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    plan["tile_shape"] = rng.choice([None, [64, 64], [1, 128], [16, 256], [4, 4, 64], [8192]])
    plan["tile_elems"] = rng.choice([None, 32, 1000, 4096, 16384, 1_000_000])
    plan["tile_config"] = rng.choice([None, {}, {"BLOCK_SIZE": 1024}, {"BLOCK_SIZE_M": 7}, {"BLOCK_SIZE": 0}])


def _operation(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    work["op"] = rng.choice(OPERATIONS)
    work |= {"shape_b": [1, 64], "indices": 500, "kernel": [3, 3]} if rng.random() < 0.5 else {}


def _layout(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    side = rng.choice("ab")
    work[f"{side}_layout"] = rng.choice(["ND", "NZ", "zN", "RowMajor", "ColumnMajor", "[n,k]", None])
    work[f"{side}_transposed"] = rng.choice([True, False, None, "yes"])
    work["axis"] = rng.choice(["last", "first", "all", None, 0, -1, "1", "middle", [0, 1], 9])


def _field(new: Data, work: Data, plan: Data, rng: random.Random) -> None:
    part = rng.choice([work, plan, new["cores"], new])
    key = rng.choice([*part, "extra"])
    if key == "measured_us":
        return
    if rng.random() < 0.5:
        part.pop(key, None)
    else:
        part[key] = rng.choice([None, *JUNK])


CHANGES: list[Callable[[Data, Data, Data, random.Random], None]] = [
    *[_size] * 3,
    _type,
    _chip,
    _cores,
    *[_blocks] * 2,
    _steps,
    _buffers,
    _words,
    _tile,
    _operation,
    _layout,
    _field,
]


def faults(outcome: RecordOutcome) -> list[str]:
    """What does not hold: one clear reason or times; no pipe longer than the task; nothing faster than the chip."""
    if outcome.reason is not None:
        said = outcome.reason
        clear = not said.startswith("a bug") and "\n" not in said and 0 < len(said) <= 240
        return [] if clear and not outcome.rows else [f"reason: {said[:200]}"]
    times = {row.quantity: row.modelled for row in outcome.rows}
    found = [f"{name} takes {time}" for name, time in times.items() if not 0 < time < 1e9]
    whole = times.get("task")
    if whole is None:
        return found
    found += [
        f"{name} takes {time}, the task {whole}"
        for name, time in times.items()
        if time > whole * 1.001 + 0.01
    ]
    floor = least(outcome.record)
    return [*found, f"the task takes {whole}, the chip at least {floor}"] if whole < floor * 0.999 else found


def least(record: Record) -> float:
    """Microseconds in which the chip can bring the inputs from where they are and do the products, at best."""
    expressed = express(record)
    if isinstance(expressed.source, str):
        return 0.0
    machine = expressed.chip
    rate = machine.l2_bytes_per_cycle if expressed.warm else machine.hbm_bytes_per_cycle
    inputs = sum(math.prod(shape) * ITEM_BYTES[dtype] for shape, dtype in expressed.shapes)
    macs = 0
    if record.text("workload", "op").startswith("matmul"):
        m, n, k = (record.integer("workload", key) or 0 for key in "mnk")
        macs = m * n * k * (record.integer("workload", "batch") or 1)
    cube = machine.cube.get(expressed.shapes[0][1])
    busy = macs / (cube.macs * machine.cube_cores) if cube else 0.0
    return machine.cycles_to_microseconds(max(inputs / rate, busy))


def main() -> None:
    records, count = load_records(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    reasons: Counter[str] = Counter()
    wrong = total = 0
    for record in records:
        for _ in range(count):
            data = changed(dict(record.data), rng)
            outcome = compare(Record(record.id, str(data.get("chip") or ""), data))
            total += 1
            if outcome.reason is not None:
                reasons[outcome.reason[:90]] += 1
            for fault in faults(outcome):
                wrong += 1
                print(f"{record.id}: {fault}\n    {json.dumps(data)}", flush=True)
    for reason, times in reasons.most_common():
        print(f"{times:6} {reason}")
    print(f"{total} variants, {total - reasons.total()} expressed, {wrong} faults")


if __name__ == "__main__":
    main()
