"""A record as a program: a JAX function (or npu text) with a pinned schedule, on a chip. What cannot be said is
refused with the reason. No number here depends on which record it is: only on fields of the record."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..machine import Machine
from ..passes.pins import Schedule
from . import functions
from .kernels import read_only, repeated_vector_op
from .records import Record, positive


class Inexpressible(Exception):
    """Why a record is not a program of ours; the message is a clause."""


@dataclass(frozen=True)
class Expressed:
    """A program of ours for a record.

    source: a JAX function or npu text; shapes: (shape, element type) of its inputs; warm: whether L2 holds what the
    last run left; bypassing: inputs that L2 does not keep; waves: how often the cores are started because
    there are more blocks than cores; unit_flag_products: products for which a drain with unit flags waits, as its
    counter shows; calls: blocks that one core takes, each a call of the library; issue_factor, start_us: what a
    library's code costs the scalar unit, over and above our own; combined: results added to one address in turn.
    """

    source: Callable[..., Any] | str
    machine: str
    shapes: tuple[tuple[tuple[int, ...], str], ...] = ()
    schedule: Schedule = field(default_factory=Schedule)
    warm: bool = False
    bypassing: frozenset[int] = frozenset()
    waves: int = 1
    unit_flag_products: int = 0
    issue_factor: float = 1.0
    start_us: float = 0.0
    calls: float = 1.0
    combined: int = 0

    @property
    def arguments(self) -> list[Any]:
        """Example arguments of the function."""
        import jax
        import ml_dtypes
        import numpy as np

        names = {
            "f16": "float16",
            "f32": "float32",
            "i8": "int8",
            "i32": "int32",
            "u32": "uint32",
            "i64": "int64",
        }
        return [
            jax.ShapeDtypeStruct(s, ml_dtypes.bfloat16 if d == "bf16" else np.dtype(names[d]))
            for s, d in self.shapes
        ]


FRACTALS = ("nz", "zn", "fractal_nz")
"""Names of the layout in which n comes in blocks of 32 bytes, each with all of k."""

DTYPES = {"f16", "bf16", "f32", "i8", "i32"}
CHIPS = {
    "950": "ascend-950pr",
    "910b4": "ascend-910b4",
    "310p": "ascend-310p3",
    "910a": "ascend-910a",
    "310": "ascend-310",
}
"""Names of chips begin so -> machine."""


def express(record: Record) -> Expressed:
    """The program of a record. Raises Inexpressible."""
    op = record.text("workload", "op").lower().strip()
    if not op:
        raise Inexpressible("names no operation")
    build = next((b for pattern, b in BUILDERS if re.match(pattern, op)), None)
    if build is None:
        raise Inexpressible(f"there is no program for the operation '{op[:60]}'")
    found = build(record)
    factor, start = _library(record, Machine.load(found.machine))
    return dataclasses.replace(
        found,
        warm=_warm(record),
        issue_factor=factor,
        start_us=start,
        calls=_calls(record),
        unit_flag_products=_unit_flag(record, found.schedule),
    )


def _unit_flag(record: Record, schedule: Schedule) -> int:
    """A drain with unit flags is issued with the products of the last load, and follows them piece by piece."""
    said = record.flag("schedule", "unit_flag")
    if not (
        record.engine in ("cube", "mix") and "basic api" in record.text("schedule", "impl").lower()
        if said is None
        else said
    ):
        return 0
    return min(schedule.step_k_a or 1, schedule.step_k_b or 1)


def _library(record: Record, machine: Machine) -> tuple[float, float]:
    """(factor on the scalar unit's cycles, microseconds before the first instruction) of kernels written with the
    vendor's high-level matmul API; with its tiling known to its compiler they are less."""
    if "high-level api" not in record.text("schedule", "impl").lower():
        return 1.0, 0.0
    constant = record.flag("schedule", "constant_tiling")
    factor = machine.library_constant_factor if constant else machine.library_issue_factor
    return factor, machine.library_start_us


def _calls(record: Record) -> float:
    """Blocks of a grouped product that one core takes in turn. The scalar unit sets each up anew, while the pipes
    still work on the one before."""
    m, n = (record.integer("schedule", f"single_core_{axis}") for axis in "mn")
    rows, columns = record.integer("workload", "m_total"), record.integer("workload", "n")
    if not (m and n and rows and columns):
        return 1.0
    return max(1.0, -(-rows // m) * -(-columns // n) / (_cores(record, "aic") or 1))


def _warm(record: Record) -> bool:
    """Means over runs of a profiler see what the run before left in L2; msOpProf and msprof start cold."""
    return "profiler" in str(record.data.get("label_of_time")).lower()


def machine_of(record: Record) -> str:
    """The target for a record's chip: the 910B family by how many cube cores it has. Raises Inexpressible."""
    name = record.chip.lower().removeprefix("ascend").strip(" -_")
    for prefix, target in CHIPS.items():
        if name.startswith(prefix):
            return target
    if record.family:
        cores = max(_cores(record, "aic") or 0, (_cores(record, "aiv") or 0) // 2)
        return "ascend-910b3" if cores == 20 else "ascend-910b1"
    raise Inexpressible(f"there is no machine file for the chip '{record.chip[:40]}'")


def _cores(record: Record, kind: str) -> int | None:
    return record.integer("cores", kind)


def _dtype(record: Record, *keys: str, default: str | None = None) -> str:
    for key in keys:
        name = record.text("workload", key).lower().strip()
        if name:
            if name not in DTYPES:
                raise Inexpressible(f"there is no element type '{name[:40]}'")
            return name
    if default is None:
        raise Inexpressible("names no element type")
    return default


def _need(record: Record, part: str, *keys: str) -> list[int]:
    found = []
    for key in keys:
        value = record.integer(part, key)
        if value is None:
            raise Inexpressible(f"{part} has no number '{key}'")
        found.append(value)
    return found


MOST_DEALT = 4096
"""Tiles up to which each is a grid point of its own: enough that more would even out."""


# -- matrix products -----------------------------------------------------------------------------------------


def _cube_schedule(record: Record, m: int, n: int, machine: Machine) -> Schedule:
    """The pins of a matrix product of m x n on a chip."""
    get = functools.partial(record.integer, "schedule")
    base_m, base_n, base_k = get("base_m"), get("base_n"), get("base_k")
    step_a, step_b = get("step_ka"), get("step_kb")
    if step_a is step_b is None and record.text("schedule", "template").lower().startswith("norm"):
        step_a = step_b = 1  # This template loads one step at a time.
    l1 = _buffers(record, "l1_double_buffer", "depth_a1", "step_ka")
    cores = _cores(record, "aic") or machine.cube_cores
    split = _grid(record, m, n, base_m, base_n, cores)
    fields: dict[str, Any] = {
        "base_m": base_m,
        "base_n": base_n,
        "base_k": base_k,
        "step_k_a": step_a or (get("depth_a1") or 0) // 2 or None,
        "step_k_b": step_b or (get("depth_b1") or 0) // 2 or None,
        "cores": min(cores, machine.cube_cores),
        "split_m": split[0],
        "split_n": split[1],
        "l1": l1,
        "l0a": get("db_l0a") if (get("db_l0a") or 9) <= 2 else None,
        "l0b": get("db_l0b") if (get("db_l0b") or 9) <= 2 else None,
        "inner": "n",
    }
    if split == (None, None) and base_m and base_n and -(-m // base_m) * -(-n // base_n) <= MOST_DEALT:
        fields["deal"] = 1
    return Schedule(**{k: v for k, v in fields.items() if v is not None})


def _buffers(record: Record, flag: str, depth: str, step: str) -> int | None:
    """Buffers in flight of l1: as said, or as many as its depth has loads."""
    said = record.flag("schedule", flag)
    if said is not None:
        return 2 if said else 1
    deep, steps = record.integer("schedule", depth), record.integer("schedule", step)
    return max(1, min(2, deep // steps)) if deep and steps else None


def _grid(
    record: Record, m: int, n: int, base_m: int | None, base_n: int | None, cores: int
) -> tuple[int | None, int | None]:
    """Cores along m and n: from the size of one core's part, or from `4x6 (MxN)` in the text."""
    part_m, part_n = (record.integer("schedule", f"single_core_{axis}") for axis in "mn")
    if part_m and part_n:
        split = -(-m // part_m), -(-n // part_n)
    else:
        said = re.search(r"(\d+)\s*x\s*(\d+)\s*\(M\s*x\s*N", record.text("schedule", "core_split"))
        if not said:
            return None, None
        split = max(1, int(said[1])), max(1, int(said[2]))
    rounds = max(1, split[0] * split[1] // max(cores, 1)) if split[0] * split[1] > cores else 1
    wanted_m = -(-split[0] // rounds)
    if wanted_m * split[1] > cores:
        return None, None
    tiles = [-(-size // base) if base else size for size, base in ((m, base_m), (n, base_n))]
    return tuple(-(-t // -(-t // min(w, t))) for t, w in zip(tiles, (wanted_m, split[1]), strict=True))  # pyright: ignore[reportReturnType]


def _transposed(record: Record, side: str) -> bool:
    layout = record.text("workload", f"{side}_layout").replace(" ", "").lower()
    said = record.flag("workload", f"{side}_transposed")
    if said is not None:
        return said
    return layout in ("columnmajor", "dn") or layout == ("[n,k]" if side == "b" else "[k,m]")


def _matmul(record: Record) -> Expressed:
    m, n, k = _need(record, "workload", "m", "n", "k")
    target = machine_of(record)
    machine = Machine.load(target)
    dtype = _dtype(record, "dtype_in", "dtype")
    if dtype not in machine.cube:
        raise Inexpressible(f"the cube of {target} has no {dtype}")
    out = _dtype(record, "dtype_out", default="f16" if dtype != "i8" else "i32")
    schedule = _cube_schedule(record, m, n, machine)
    impl = record.text("schedule", "impl").lower()
    said = record.part("schedule").get("split_k")
    if "split-k" in impl or (isinstance(said, str) and said) or (isinstance(said, int) and said > 1):
        if record.integer("schedule", "base_m"):
            raise Inexpressible("partial sums over k are added in device memory, and stores do not add")
    if "converts b" in impl or "convert b" in impl:
        raise Inexpressible("vector cores rewrite B for the cube cores of the same launch")
    gelu = "gelu" in record.text("workload", "op").lower()
    batch = record.integer("workload", "batch") or 1
    t_a, t_b = _transposed(record, "a"), _transposed(record, "b")
    nz = record.text("workload", "b_layout").lower() in FRACTALS
    function = functions.product(t_a, t_b, out, "gelu" if gelu else "", nz)
    lead = (batch,) if batch > 1 else ()
    a = (*lead, *((k, m) if t_a else (m, k)))
    b = (*lead, *((n, k) if t_b else (k, n)))
    if nz:
        c0 = 32 if dtype == "i8" else 16
        b = (*lead, -(-n // c0), k, c0)
    return Expressed(function, target, ((a, dtype), (b, dtype)), schedule)


def _grouped(record: Record) -> Expressed:
    groups, total, n, k = _need(record, "workload", "groups", "m_total", "n", "k")
    target = machine_of(record)
    machine = Machine.load(target)
    if _dtype(record, "dtype_in") != "i8":
        raise Inexpressible("a grouped product with types other than i8")
    m = total // groups
    schedule = dataclasses.replace(
        _cube_schedule(record, m, n, machine), split_m=None, split_n=None, deal=None
    )
    fractals = record.text("workload", "b_layout").lower() in FRACTALS and n % 32 == 0
    function = functions.grouped_quantised(_dtype(record, "dtype_out", default="f16"), fractals)
    b, columns = ((n // 32, k, 32), (n // 32, 32)) if fractals else ((k, n), (n,))
    shapes = (((groups, m, k), "i8"), ((groups, *b), "i8"), ((groups, m), "f32"), ((groups, *columns), "f32"))
    return Expressed(function, target, shapes, schedule)


# -- vector kernels ------------------------------------------------------------------------------------------


def _vector_schedule(record: Record, shape: Sequence[int], machine: Machine) -> Schedule:
    """The pins of an elementwise kernel: tile, cores, buffers."""
    tile = record.integers("schedule", "tile_shape")
    elements = record.integer("schedule", "tile_elems")
    double = record.flag("schedule", "double_buffer")
    cores = min(_vector_cores(record, machine), machine.vector_cores)
    fields: dict[str, Any] = {"cores": cores}
    if tile is not None and len(tile) == len(shape):
        fields["tile"] = tile
    elif elements:
        fields["copy_length"] = elements
    if double is not None:
        fields["ub"] = 2 if double else 1
    said = re.search(
        r"(\d+)\s*(?:x|row x)\s*(\d+)\s*(?:\(M\s*x\s*N|column)", record.text("schedule", "core_split")
    )
    if said and len(shape) == 2 and "tile" in fields:
        counts = [-(-s // t) for s, t in zip(shape, fields["tile"], strict=True)]
        grid = [-(-c // -(-c // min(int(w), c))) for c, w in zip(counts, said.groups(), strict=True)]
        if math.prod(grid) <= cores:
            fields["grid"] = tuple(grid)
    return Schedule(**fields)


def _vector_cores(record: Record, machine: Machine) -> int:
    return _cores(record, "aiv") or machine.vector_cores


def _shape(record: Record) -> tuple[int, ...]:
    shape = record.integers("workload", "shape")
    if shape is None:
        raise Inexpressible("workload has no shape")
    return shape


def _elementwise(record: Record) -> Expressed:
    if record.text("schedule", "src0_addr"):
        return _addressed(record)
    shape, target = _shape(record), machine_of(record)
    machine = Machine.load(target)
    op = record.text("workload", "op").lower()
    function = functions.elementwise(op)
    if function is None:
        raise Inexpressible(f"there is no program for the operation '{op[:60]}'")
    inputs = record.integer("workload", "inputs") or functions.arity(op)
    if inputs != functions.arity(op):
        raise Inexpressible(f"'{op[:40]}' takes {functions.arity(op)} inputs, the record has {inputs}")
    dtype = _dtype(record, "dtype", "dtype_in")
    if "scalar loop" in record.text("schedule", "impl").lower():
        raise Inexpressible("the scalar unit computes, and ours only issues instructions")
    bypass = "bypass" in record.text("schedule", "l2_cache_mode").lower()
    return Expressed(
        function,
        target,
        ((shape, dtype),) * inputs,
        _vector_schedule(record, shape, machine),
        bypassing=frozenset(range(inputs)) if bypass else frozenset(),
    )


def _addressed(record: Record) -> Expressed:
    shape = _shape(record)
    count = record.integer("workload", "instr_count") or 1
    places = []
    for key in ("src0_addr", "src1_addr", "dst_addr"):
        try:
            places.append(int(record.text("schedule", key), 0))
        except ValueError:
            raise Inexpressible(f"schedule has no address '{key}'") from None
    target, dtype = machine_of(record), _dtype(record, "dtype")
    op = record.text("workload", "op").lower()
    if functions.arity(op) != 2 or not op.isidentifier():
        raise Inexpressible(f"'{op[:40]}' is no instruction with two sources")
    room = Machine.load(target).spaces["ub"].bytes
    size = math.prod(shape) * (2 if dtype in ("f16", "bf16") else 1 if dtype == "i8" else 4)
    if any(place + size > room for place in places):
        raise Inexpressible("an address is outside ub")
    return Expressed(
        repeated_vector_op(op, dtype, math.prod(shape), count, (places[0], places[1], places[2])), target
    )


def _broadcast_div(record: Record) -> Expressed:
    shape, other = _shape(record), record.integers("workload", "shape_b")
    if other is None:
        raise Inexpressible("workload has no shape_b")
    target, dtype = machine_of(record), _dtype(record, "dtype")
    schedule = _vector_schedule(record, shape, Machine.load(target))
    return Expressed(functions.elementwise("div") or str, target, ((shape, dtype), (other, dtype)), schedule)


def _reduce(record: Record) -> Expressed:
    """A reduction. One over all of a vector is its blocks' reductions: their results are combined by atomics."""
    shape = list(_shape(record))
    target = machine_of(record)
    machine, dtype = Machine.load(target), _dtype(record, "dtype")
    op = record.text("workload", "op").lower()
    kind = next((k for k in ("sum", "max", "min", "mean", "prod") if k in op), "sum")
    axis = record.text("workload", "axis").lower() or "last"
    tile = record.integers("schedule", "tile_shape")
    config = record.part("schedule").get("tile_config")
    config = config if isinstance(config, dict) else {}
    cores = min(_vector_cores(record, machine), machine.vector_cores)
    double = record.flag("schedule", "double_buffer")
    pins: dict[str, Any] = {"cores": cores}
    if double is not None:
        pins["ub"] = 2 if double else 1
    if axis == "all":
        total, elements = math.prod(shape), record.integer("schedule", "tile_elems")
        block = config.get("BLOCK_SIZE") or elements
        if not elements or not isinstance(block, int) or total % block:
            raise Inexpressible("the blocks of a reduction to one value are not published, or not even")
        shape, tile, axis = [total // block, block], (1, elements), "last"
        pins["ub"] = 1  # The running result is a scalar, which is read back before the next step.
    if axis not in ("first", "last"):
        raise Inexpressible(f"reduces over the axis '{axis[:20]}'")
    waves = 1
    combined = shape[0] if record.text("workload", "axis").lower() == "all" else 0
    if len(shape) > 2:
        shape = [math.prod(shape[:-1]), shape[-1]]
    reduced = len(shape) - 1 if axis == "last" else 0
    if tile is not None:
        if len(tile) != len(shape):
            raise Inexpressible(f"a tile of {len(tile)} axes over {len(shape)}")
        pins["tile"] = tile
        rows = positive(config.get("BLOCK_SIZE_BM") or config.get("BLOCK_SIZE_M")) or tile[0]
        columns = positive(config.get("BLOCK_SIZE_N")) or tile[-1]
        if record.text("workload", "axis") == "all":
            blocks = shape[0]
        else:
            blocks = -(-shape[0] // rows) if axis == "last" else -(-shape[-1] // columns)
        pins["cores"] = min(cores, blocks)
        waves = -(-blocks // cores)
    if op.startswith("elementwise+"):
        raise Inexpressible("the elementwise work before the reduction is not published")
    function, inputs = functions.reduction(op, "sum" if kind == "mean" else kind, reduced)
    return Expressed(
        function, target, ((tuple(shape), dtype),) * inputs, Schedule(**pins), waves=waves, combined=combined
    )


def _copy(record: Record) -> Expressed:
    shape, target = _shape(record), machine_of(record)
    machine = Machine.load(target)
    tile = record.integers("schedule", "tile_shape")
    if len(shape) != 2 or tile is None or len(tile) != 2:
        raise Inexpressible("a copy without the two extents of its tile")
    to_l1 = "l1" in record.text("workload", "op").lower()
    cores = _cores(record, "aic" if to_l1 else "aiv") or 1
    available = machine.cube_cores if to_l1 else machine.vector_cores
    if cores > available:
        raise Inexpressible(f"runs on {cores} cores, and {target} has {available}")
    order = record.text("schedule", "access_order").lower()
    same = "each core reads" in record.text("schedule", "core_split").lower()
    times = record.integer("workload", "reads_of_matrix") or 1
    slices = re.search(r"(\d+) n-slices", order)
    return Expressed(
        read_only(
            (shape[0], shape[1]),
            _dtype(record, "dtype"),
            (tile[0], tile[1]),
            cores,
            to_l1,
            2 if record.flag("schedule", "double_buffer") else 1,
            int(slices[1]) if slices else 1,
            1 if same else times,
            same,
        ),
        target,
    )


def _to_fractals(record: Record) -> Expressed:
    shape, target = _shape(record), machine_of(record)
    tile = record.integers("schedule", "tile_shape")
    dtype = _dtype(record, "dtype")
    c0 = 16 if dtype in ("f16", "bf16") else 8
    if len(shape) != 2 or tile is None or len(tile) != 2 or shape[1] % c0 or tile[1] % c0:
        raise Inexpressible("a layout conversion of a tile that is not whole fractals")
    machine = Machine.load(target)
    cores = min(_vector_cores(record, machine), machine.vector_cores)
    pins = Schedule(tile=(tile[1] // c0, tile[0], c0), cores=cores, ub=2)
    return Expressed(functions.to_fractals(c0), target, ((shape, dtype),), pins)


BUILDERS: tuple[tuple[str, Callable[[Record], Expressed]], ...] = (
    (r"(batch_)?matmul(\s*\+\s*gelu)?$", _matmul),
    (r"matvec$", _matmul),
    (r"grouped quant matmul", _grouped),
    (r"gm_to_(ub|l1)", _copy),
    (r"nd2nz", _to_fractals),
    (r"div_broadcast$", _broadcast_div),
    (r"reduce_|elementwise\+reduce|weighted swiglu", _reduce),
    (r"", _elementwise),
)
"""How each operation is expressed, by a pattern that the beginning of its name matches; the first one wins."""
