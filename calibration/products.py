"""Matrix products of records, with their pins."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

from ..kernels.product import round_up
from ..machine import Machine
from ..passes.pins import Schedule
from . import functions
from .expressed import (
    ITEM_BYTES,
    Expressed,
    Inexpressible,
    cores_of,
    element_named,
    need,
    operation,
    shape_named,
    target_for,
)
from .records import Record
from .split_k import split_product

FRACTALS = ("nz", "zn", "fractal_nz")
"""Names of the layout in which n comes in blocks of 32 bytes, each with all of k."""

MOST_DEALT = 4096
"""Tiles up to which each is a grid point of its own: enough that more would even out."""


def _cube_schedule(record: Record, m: int, n: int, k: int, machine: Machine) -> Schedule:
    """The pins of a matrix product of m x k by k x n on a chip."""
    get = functools.partial(record.integer, "schedule")
    base_m, base_n, base_k = get("base_m"), get("base_n"), get("base_k")
    step_a, step_b = get("step_ka"), get("step_kb")
    if record.text("schedule", "template").lower().startswith("norm"):
        step_a = step_b = 1  # This template loads one step at a time.
    l1 = _buffers(record, "l1_double_buffer", "depth_a1", "step_ka")
    cores = cores_of(record, "aic") or machine.cube_cores
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
    tiles = -(-m // base_m) * -(-n // base_n) if base_m and base_n else MOST_DEALT + 1
    divided = "split" in record.text("schedule", "core_split").lower()
    if split == (None, None) and not divided and tiles <= (MOST_DEALT if cores >= machine.cube_cores else cores):
        fields["deal"] = 1
    # a published tile may be longer than the product: then it holds what there is
    for name, extent in (("base_m", m), ("base_n", n), ("base_k", k)):
        if fields[name]:
            fields[name] = min(fields[name], round_up(extent))
    for name in ("step_k_a", "step_k_b"):
        if fields[name] and base_k:
            fields[name] = min(fields[name], -(-k // base_k))
    return Schedule(**{name: v for name, v in fields.items() if v is not None})


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
    m_parts, n_parts = (-(-t // -(-t // min(w, t))) for t, w in zip(tiles, (wanted_m, split[1]), strict=True))
    return m_parts, n_parts


def _transposed(record: Record, side: str) -> bool:
    layout = record.text("workload", f"{side}_layout").replace(" ", "").lower()
    said = record.flag("workload", f"{side}_transposed")
    if said is not None:
        return said
    return layout in ("columnmajor", "dn") or layout == ("[n,k]" if side == "b" else "[k,m]")


def matmul(record: Record) -> Expressed:
    """A matrix product, batched or not, with what is done to its result in the same kernel."""
    m, k = need(record, "workload", "m", "k")
    n = record.integer("workload", "n") or (1 if operation(record) in ("matvec", "gemv") else None)
    if n is None:
        raise Inexpressible("workload has no number 'n'")
    target = target_for(record)
    machine = Machine.load(target)
    dtype = element_named(record, "dtype_in", "dtype")
    if dtype not in machine.cube:
        raise Inexpressible(f"the cube of {target} has no {dtype}")
    out = element_named(record, "dtype_out", default="f16" if dtype != "i8" else "i32")
    schedule = _cube_schedule(record, m, n, k, machine)
    impl = record.text("schedule", "impl").lower()
    parts = record.integer("schedule", "split_k") or 1
    if parts > 1:
        return _split_over_cores(record, (m, n, k), parts, dtype, out, target)
    if _splits_k(record, impl) and record.integer("schedule", "base_m"):
        return _split_over_k(record, (m, n, k), dtype, target, schedule)
    batch = record.integer("workload", "batch") or 1
    t_a, t_b = _transposed(record, "a"), _transposed(record, "b")
    after, others = _epilogue(record, (batch, m, n), out)
    if re.search(r"converts? b\b", impl):
        if batch > 1 or t_a or t_b or others:
            raise Inexpressible("only a plain product converts b first")
        function = functions.product_after_conversion(out)
        return Expressed(function, target, (((m, k), dtype), ((k, n), dtype)), schedule, one_launch=True)
    nz = record.text("workload", "b_layout").lower() in FRACTALS
    if nz and others:
        raise Inexpressible("other inputs of a product in fractals have no layout")
    lead = (batch,) if batch > 1 else ()
    a = (*lead, *((k, m) if t_a else (m, k)))
    b = (*lead, *((n, k) if t_b else (k, n)))
    if nz:
        c0 = 32 // ITEM_BYTES[dtype]
        b = (*lead, -(-n // c0), k, c0)
    function = functions.product(t_a, t_b, out, nz, after)
    return Expressed(function, target, ((a, dtype), (b, dtype), *others), schedule)


def _splits_k(record: Record, impl: str) -> bool:
    said = record.part("schedule").get("split_k")
    return "split-k" in impl or (isinstance(said, str) and bool(said))


def _split_over_cores(
    record: Record, extents: tuple[int, int, int], parts: int, dtype: str, out: str, target: str
) -> Expressed:
    """A product of which `parts` groups of cores take a part of k each: a batch of products. Each partial sum has a
    place of its own in device memory, which takes a store as long as adding to the others'. Raises Inexpressible for
    one with more than a product."""
    m, n, k = extents
    machine, impl = Machine.load(target), record.text("schedule", "impl").lower()
    fractals = any(record.text("workload", f"{side}_layout").lower() in FRACTALS for side in "ab")
    if "+" in operation(record) or (record.integer("workload", "batch") or 1) > 1 or fractals or parts > k:
        raise Inexpressible("only a plain product of matrices is split over k")
    cores = cores_of(record, "aic") or machine.cube_cores
    schedule = dataclasses.replace(
        _cube_schedule(record, m, n, -(-k // parts), machine),
        split_m=None,
        split_n=None,
        deal=None,
        cores=min(cores, machine.cube_cores),
    )
    reduced = re.search(r"reduce|workspace", impl) is not None
    kept = "i32" if dtype == "i8" else "f32" if reduced else out
    t_a, t_b = _transposed(record, "a"), _transposed(record, "b")
    function = functions.product_in_parts(parts, t_a, t_b, kept, out if reduced else None)
    k += -k % parts  # The largest part sets the time.
    a, b = (k, m) if t_a else (m, k), (n, k) if t_b else (k, n)
    return Expressed(function, target, ((a, dtype), (b, dtype)), schedule, one_launch=True)


def _split_over_k(
    record: Record, extents: tuple[int, int, int], dtype: str, target: str, schedule: Schedule
) -> Expressed:
    """A product of which each core adds partial sums over chunks of k to device memory. Raises Inexpressible for one
    whose chunks different cores take, and for one with more than a product."""
    chunk = re.search(r"chunks? (?:=|of) (\d+)", record.text("schedule", "split_k").lower())
    rows, columns = schedule.base_m, schedule.base_n
    plain = "+" not in operation(record) and (record.integer("workload", "batch") or 1) == 1
    fractals = any(record.text("workload", f"{side}_layout").lower() in FRACTALS for side in "ab")
    if not (chunk and rows and columns and schedule.cores and plain and not fractals):
        raise Inexpressible("partial sums over k are added in device memory, and stores do not add")
    size = min(max(int(chunk[1]), 1), extents[2])
    k_first = _transposed(record, "a"), not _transposed(record, "b")
    text = split_product(extents, k_first, dtype, ITEM_BYTES[dtype], (rows, columns), size, schedule.cores)
    return Expressed(text, target)


def _epilogue(
    record: Record, extents: tuple[int, int, int], out: str
) -> tuple[functions.Function, tuple[tuple[tuple[int, ...], str], ...]]:
    """What follows `+` in the operation's name, and its inputs: a bias has one row, others the shape of the result.
    The upper or lower triangle (triu, tril) is kept of the whole product. Raises Inexpressible."""
    batch, m, n = extents
    _, _, after = operation(record).partition("+")
    stages = [part.strip() for part in after.split("+")] if after else []
    others: list[tuple[tuple[int, ...], str]] = []
    applied: list[tuple[functions.Function, int]] = []
    kept = out if out in ("f16", "bf16", "f32") else "f32"
    for part in stages:
        found = functions.stage("add" if part in ("bias", "bias add") else part, (-1,))
        if part in ("triu", "tril"):
            found = functions.triangle(part), 1
        if found is None:
            raise Inexpressible(f"there is no program for '{part[:40]}' after a product")
        applied.append(found)
        full = (n,) if "bias" in part else (batch, m, n) if batch > 1 else (m, n)
        others += [(full, kept)] * (found[1] - 1)

    def apply(y: Any, *arrays: Any) -> Any:
        left = list(arrays)
        for f, arity in applied:
            y = f(y, *left[: arity - 1])
            del left[: arity - 1]
        return y

    return apply, tuple(others)


def quantised(record: Record) -> Expressed:
    """A product of i8 matrices with scales by row and column."""
    m, n, k = need(record, "workload", "m", "n", "k")
    target = target_for(record)
    if element_named(record, "dtype_in") != "i8":
        raise Inexpressible("a quantised product with types other than i8")
    t_b = _transposed(record, "b")
    function = functions.quantised(t_b, element_named(record, "dtype_out", default="f16"))
    shapes = (((m, k), "i8"), ((n, k) if t_b else (k, n), "i8"), ((m,), "f32"), ((n,), "f32"))
    return Expressed(function, target, shapes, _cube_schedule(record, m, n, k, Machine.load(target)))


def attention(record: Record) -> Expressed:
    """Attention with the scores written out: ours has no kernel that keeps them on chip."""
    queries, keys, size = need(record, "workload", "seq_q", "seq_kv", "head_size")
    heads = record.integer("workload", "heads") or 1
    target, dtype = target_for(record), element_named(record, "dtype")
    if dtype not in ("f16", "bf16", "f32"):
        raise Inexpressible(f"attention in {dtype}")
    shapes = (((heads, queries, size), dtype), *[((heads, keys, size), dtype)] * 2)
    return Expressed(functions.attention(record.flag("workload", "causal") or False), target, shapes)


def convolution(record: Record) -> Expressed:
    """A convolution. x in blocks of channels (NC1HWC0) is read as if its channels were innermost: runs are longer
    than theirs. Otherwise x is NCHW and the kernel OIHW."""
    x, kernel = shape_named(record, "x_shape"), shape_named(record, "k_shape")
    strides, dilation = (record.integers("workload", key) or (1, 1) for key in ("stride", "dilation"))
    window = record.integers("workload", "kernel") or kernel[2:]
    dtype = element_named(record, "dtype_in", "dtype")
    if len(window) != 2 or len(strides) != 2 or len(dilation) != 2:
        raise Inexpressible("a convolution of other than two dimensions")
    if len(x) == 5 and len(kernel) == 4:
        n, blocks, height, width, c0 = x
        channels, results = blocks * c0, kernel[1] * kernel[2]
        if kernel[0] * kernel[3] != channels * window[0] * window[1]:
            raise Inexpressible("the fractals of the kernel do not fit the channels")
    elif len(x) == 4 and len(kernel) == 4:
        n, channels, height, width = x
        results = kernel[0]
    else:
        raise Inexpressible(f"a convolution of {len(x)} axes by {len(kernel)}")
    padding = [d * (w - 1) // 2 for d, w in zip(dilation, window, strict=True)]
    shapes = (((n, height, width, channels), dtype), ((*window, channels, results), dtype))
    target = target_for(record)
    if dtype not in Machine.load(target).cube:
        raise Inexpressible(f"the cube of {target} has no {dtype}")
    return Expressed(functions.convolution(strides, dilation, padding), target, shapes)


def grouped(record: Record) -> Expressed:
    """Products of groups of i8 rows, each with a matrix of its own, scaled, with a GELU."""
    groups, total, n, k = need(record, "workload", "groups", "m_total", "n", "k")
    target = target_for(record)
    machine = Machine.load(target)
    if element_named(record, "dtype_in") != "i8":
        raise Inexpressible("a grouped product with types other than i8")
    if total % groups:
        raise Inexpressible(f"{total} rows do not make {groups} equal groups")
    m = total // groups
    schedule = dataclasses.replace(
        _cube_schedule(record, m, n, k, machine), split_m=None, split_n=None, deal=None
    )
    fractals = record.text("workload", "b_layout").lower() in FRACTALS and n % 32 == 0
    function = functions.grouped_quantised(element_named(record, "dtype_out", default="f16"), fractals)
    b, columns = ((n // 32, k, 32), (n // 32, 32)) if fractals else ((k, n), (n,))
    shapes = (((groups, m, k), "i8"), ((groups, *b), "i8"), ((groups, m), "f32"), ((groups, *columns), "f32"))
    return Expressed(function, target, shapes, schedule)
