"""Records of the kinds that published measurements have, made up: each is expressed, and its time moves the right way
when the work, the buffers or the memory change."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tiering import sampled

from tilewright.calibration import compare
from tilewright.calibration.compare import program_of, times_on
from tilewright.calibration.express import express
from tilewright.calibration.records import Record

Data = dict[str, Any]

NOISE = 1.01
"""What launches, and means over reuse, may take the wrong way."""


def cube(impl: str, cores: int, sizes: tuple[int, int, int], **schedule: Any) -> Data:
    m, n, k = sizes
    workload = {"op": "matmul", "m": m, "n": n, "k": k, "dtype_in": "f16", "dtype_out": "f16"}
    base = {"impl": impl, "base_m": 128, "base_n": 256, "base_k": 64, "step_ka": 4, "step_kb": 4}
    return {
        "chip": "A2",
        "engine": "cube",
        "cores": {"aic": cores, "aiv": 0},
        "workload": workload,
        "schedule": base | schedule,
    }


def vector(op: str, cores: int, shape: list[int], dtype: str = "f16", **schedule: Any) -> Data:
    return {
        "chip": "A2",
        "engine": "vector",
        "cores": {"aic": 0, "aiv": cores},
        "workload": {"op": op, "shape": shape, "dtype": dtype},
        "schedule": {"impl": "Ascend C"} | schedule,
    }


def triton(op: str, axis: str, shape: list[int], rows: int, columns: int, dtype: str = "f32") -> Data:
    blocks = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns}
    made = vector(op, 40, shape, dtype, tile_shape=[rows, columns], tile_config=blocks)
    made["workload"]["axis"] = axis
    made["label_of_time"] = "device kernel time from the profiler, mean over runs"
    made["schedule"]["impl"] = "Triton-Ascend kernel"
    return made | {"chip": "910B4"}


API, HAND = "Matmul high-level API", "hand-written"
WHOLE = {"access_order": "row-major", "double_buffer": False}
SAME = {"core_split": "each core reads the whole matrix", "l2_cache_mode": "disabled hint"}
SPLIT = {"base_m": 256, "base_n": 128, "base_k": None, "split_k": "per core, K chunk = 512"}

CLASSES: dict[str, Data] = {
    "hand-written product": cube(HAND, 24, (1024, 1536, 1024), core_split="4x6 (MxN)", l1_double_buffer=True),
    "product through the API": cube(API, 24, (128, 6144, 512), single_core_m=128, single_core_n=256),
    "product with tiling known early": cube(API, 24, (768, 2048, 512), constant_tiling=True, template="MDL"),
    "one load of one step": cube(API, 1, (256, 512, 512), template="Norm", step_ka=1, step_kb=1),
    "fewer cores than tiles": cube(API, 2, (512, 1024, 256)),
    "unit flags": cube(API, 20, (128, 10240, 64), unit_flag=True),
    "20 cores, tiles dealt": cube("catlass 06_optimized_matmul", 20, (1024, 768, 1024)),
    "tiles of few rows": cube("catlass matmul", 20, (20, 6144, 1024), base_m=32, base_n=320, base_k=32),
    "parts of k on cores of their own": cube(HAND, 24, (256, 512, 8192), split_k=4),
    "partial sums in device memory": cube("catlass 34 single-core split-K", 24, (1024, 1024, 4096), **SPLIT),
    "addition, one core": vector("add", 1, [512, 1024], tile_elems=4096, double_buffer=False),
    "addition, past L2": vector("add", 48, [8192, 8192], tile_elems=16384, l2_cache_mode="x,y bypass L2"),
    "copy to ub": vector("gm_to_ub_copy", 48, [1536, 4096], tile_shape=[32, 1024], **WHOLE),
    "copy of short rows": vector("gm_to_ub_copy", 48, [1536, 1024], tile_shape=[1, 64], **WHOLE),
    "copy to l1": vector("gm_to_l1_nd2nz_copy", 24, [1536, 4095], tile_shape=[64, 256], **WHOLE)
    | {"cores": {"aic": 24, "aiv": 0}},
    "copy that all cores make": vector("gm_to_ub_copy", 48, [1536, 512], tile_shape=[128, 64], **SAME),
    "maxima of rows": triton("reduce_max", "last", [2048, 2048], 32, 512),
    "sums of columns": triton("reduce_mean", "first", [1024, 4096], 256, 64),
    "products of columns, more blocks than cores": triton("reduce_prod", "first", [16, 2048], 16, 32),
    "halves divided": vector("div", 40, [65536, 16], tile_shape=[256, 16])
    | {"chip": "910B4", "schedule": {"impl": "Triton-Ascend kernel", "tile_shape": [256, 16]}},
}


def record(data: Data) -> Record:
    whole = {"id": "made up", "label_of_time": "msOpProf", "measured_us": {"task": 1.0}} | data
    return Record("made up", whole["chip"], whole)


def task(data: Data, memory: float = 1.0, quantity: str = "task") -> float:
    """A modelled time, with device memory and L2 faster by a factor."""
    expressed = express(record(data))
    machine = expressed.chip
    machine = dataclasses.replace(
        machine,
        hbm_bytes_per_cycle=machine.hbm_bytes_per_cycle * memory,
        l2_bytes_per_cycle=machine.l2_bytes_per_cycle * memory,
    )
    return times_on(expressed, program_of(expressed), machine)[quantity]


def changed(data: Data, part: str, **fields: Any) -> Data:
    return data | {part: data[part] | fields}


@pytest.mark.parametrize("name", CLASSES)
def test_it_is_expressed(name: str) -> None:
    outcome = compare(record(CLASSES[name]))
    assert outcome.reason is None
    assert outcome.task is not None and outcome.task.modelled > 0


@pytest.mark.parametrize("name", CLASSES)
def test_more_bandwidth_is_never_slower(name: str) -> None:
    assert task(CLASSES[name], 2.0) <= task(CLASSES[name]) * 1.001


@sampled(2)
@pytest.mark.parametrize("name", CLASSES)
def test_twice_the_work_is_never_cheaper(name: str) -> None:
    data = CLASSES[name]
    now, work = task(data), data["workload"]
    larger = [changed(data, "workload", **{axis: 2 * work[axis]}) for axis in "mnk" if axis in work]
    for axis in range(len(work.get("shape", ()))):
        shape = [2 * extent if i == axis else extent for i, extent in enumerate(work["shape"])]
        larger.append(changed(data, "workload", shape=shape))
    assert larger
    for more in larger:
        assert task(more) * NOISE >= now, more["workload"]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("hand-written product", "l1_double_buffer"),
        ("20 cores, tiles dealt", "l1_double_buffer"),
        ("fewer cores than tiles", "l1_double_buffer"),
        ("addition, one core", "double_buffer"),
        ("addition, past L2", "double_buffer"),
        ("copy of short rows", "double_buffer"),
        ("maxima of rows", "double_buffer"),
        ("sums of columns", "double_buffer"),
        ("halves divided", "double_buffer"),
    ],
)
def test_two_buffers_are_never_slower_than_one(name: str, field: str) -> None:
    one, two = (task(changed(CLASSES[name], "schedule", **{field: both})) for both in (False, True))
    assert two <= one * NOISE


def test_a_bypass_of_l2_makes_each_core_pay_for_its_own_misses() -> None:
    """What all cores read crosses device memory once, and once for each of them where L2 does not keep it."""
    data = CLASSES["copy that all cores make"]
    kept = changed(data, "schedule", l2_cache_mode="normal")
    assert task(data) > 1.2 * task(kept)


@pytest.mark.parametrize("dtype", ["u8", "bool", "i64"])
def test_a_copy_of_any_type(dtype: str) -> None:
    data = CLASSES["copy that all cores make"]
    assert task(changed(data, "workload", dtype=dtype)) > 0


def test_triton_divides_halves_in_f32() -> None:
    data = CLASSES["halves divided"]
    other = changed(data, "schedule", impl="Ascend C")
    assert task(data) > task(other)
    alike = {"double_buffer": True, "bank_conflict_layout": "not avoided"}
    wide = changed(changed(data, "workload", dtype="f32"), "schedule", **alike)
    assert task(wide) == task(changed(wide, "schedule", impl="Ascend C"))


def test_loops_of_triton_kernels_load_and_compute_in_turn() -> None:
    """A kernel whose loops overlap is faster where the rows fit L2; where all bytes cross device memory, that sets the
    time of both."""
    data = CLASSES["maxima of rows"]
    overlapped = changed(data, "schedule", double_buffer=True)
    assert express(record(data)).in_turn and not express(record(overlapped)).in_turn
    assert task(data) > 1.1 * task(overlapped)
    long = changed(data, "workload", shape=[2048, 131072])
    assert task(long) == pytest.approx(task(changed(long, "schedule", double_buffer=True)), rel=0.15)


def test_cores_that_read_from_places_of_their_own_do_not_wait() -> None:
    data = CLASSES["copy that all cores make"] | {
        "workload": {"op": "gm_to_l1_nd2nz_copy", "shape": [1536, 512], "dtype": "f16"},
        "cores": {"aic": 24, "aiv": 0},
        "engine": "cube",
    }
    same, rotated = (changed(data, "schedule", access_order=f"{how} on all cores") for how in ("same", "rotated"))
    assert not express(record(same)).staggered and express(record(rotated)).staggered
    assert task(same) > 1.1 * task(rotated)


def test_one_vector_core_beside_each_cube_core_takes_twice_as_long() -> None:
    workload = {"op": "grouped quant matmul + dequant + gelu", "groups": 2, "m_total": 512, "n": 2048, "k": 256}
    data = cube(HAND, 24, (1, 1, 1)) | {"engine": "mix", "workload": workload | {"dtype_in": "i8", "dtype_out": "f16"}}
    one, two = (data | {"cores": {"aic": 24, "aiv": n}} for n in (24, 48))
    assert express(record(one)).chip.vector_cores == 24 and express(record(two)).chip.vector_cores == 48
    single, both = (task(d, quantity="aiv_vec") for d in (one, two))
    assert single == pytest.approx(2 * both, rel=0.1)


def test_a_loop_of_instructions_takes_as_long_as_its_iterations() -> None:
    data = vector("reduce_sum", 1, [256], "f32")
    data["workload"]["axis"] = "all"
    once, often = (task(changed(data, "workload", iterations=n), quantity="loop") for n in (1, 100))
    assert often == pytest.approx(100 * once)


def test_dealt_tiles_stay_on_the_cores_of_the_record() -> None:
    """Tiles are dealt to all cores of a chip; where a record has fewer, they are split among those."""
    few, all_ = (task(changed(CLASSES["fewer cores than tiles"], "cores", aic=n)) for n in (2, 24))
    assert few > 1.5 * all_ - 9  # All cores take 9 us to launch.


def test_partial_sums_cost_what_their_drains_do() -> None:
    """Twice the chunks of k are twice the drains, beside as many products."""
    data = CLASSES["partial sums in device memory"]
    short = changed(data, "schedule", split_k="per core, K chunk = 256")
    assert task(short, quantity="fixpipe") == pytest.approx(2 * task(data, quantity="fixpipe"))
    assert task(short, quantity="mac") == pytest.approx(task(data, quantity="mac"), rel=0.1)
    unknown = compare(record(changed(data, "schedule", split_k="multi-core")))
    assert unknown.reason == "partial sums over k are added in device memory, and stores do not add"


def test_parts_of_k_on_cores_of_their_own() -> None:
    """Each core has its share of the products and loads; a sum of the parts on the vector cores takes its time."""
    data = CLASSES["parts of k on cores of their own"]
    whole = changed(data, "schedule", split_k=1)
    for quantity in ("mac", "mte2"):
        assert task(whole, quantity=quantity) == pytest.approx(4 * task(data, quantity=quantity), rel=0.1)
    assert task(data) < 0.6 * task(whole)
    summed = changed(data, "schedule", impl="catlass, partial sums in a workspace, vector reduce")
    assert task(summed, quantity="aiv_vec") > 0
    assert task(changed(data, "workload", k=8190)) == task(data)
    assert compare(record(changed(data, "workload", op="matmul+relu"))).reason is not None
