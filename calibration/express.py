"""A record as a program: a JAX function (or npu text) with a pinned schedule, on a chip. What cannot be said is
refused with the reason. No number here depends on which record it is: only on fields of the record."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable

from ..machine import Machine
from ..passes.pins import Schedule
from . import products, vectors
from .expressed import ITEM_BYTES, Expressed, Inexpressible, cores_of, has_wide_types, operation
from .records import Record

TEMPLATES = ("norm", "mdl", "ibshare")
"""Templates of the vendor's high-level matmul API."""

BUILDERS: tuple[tuple[str, Callable[[Record], Expressed]], ...] = (
    (r"((batch(ed)? )?mat ?mul|gemm|gemv|matvec|bmm)\b", products.matmul),
    (r"grouped quant matmul", products.grouped),
    (r"quant matmul", products.quantised),
    (r"(flash )?attention", products.attention),
    (r"conv(2d|olution)?\b", products.convolution),
    (r"gm to (ub|l1)", vectors.copy),
    (r"nd2nz", vectors.to_fractals),
    (r".*\bbroadcast\b", vectors.broadcast),
    (r"reduce |element-?wise ?\+ ?reduce|weighted swiglu|a?(sum|mean|prod)$|a(max|min)$", vectors.reduce),
    (r"transpose|permute|concat|gather|cast\b", vectors.moved),
    (r"top ?k", vectors.largest),
    (r"", vectors.elementwise),
)
"""How each operation is expressed, by a pattern that the beginning of its name matches; the first one wins."""


def express(record: Record) -> Expressed:
    """The program of a record. Raises Inexpressible."""
    op = operation(record)
    if not op:
        raise Inexpressible("names no operation")
    found = next(build for pattern, build in BUILDERS if re.match(pattern, op))(record)
    found = dataclasses.replace(found, wide=has_wide_types(record))
    _check(found)
    factor, start = _library(record, Machine.load(found.machine))
    return dataclasses.replace(
        found,
        warm=_warm(record),
        issue_factor=factor,
        start_us=start,
        calls=_calls(record),
        banks=not vectors.is_triton(record)
        and "not avoided" not in record.text("schedule", "bank_conflict_layout"),
        lone=_lone(record),
        staggered=_staggered(record),
        iterations=record.integer("workload", "iterations") or 1,
        in_turn=vectors.is_triton(record) and record.flag("schedule", "double_buffer") is None,
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


def _lone(record: Record) -> bool:
    """Whether a kernel of both kinds of cores uses one vector core beside each cube core."""
    cubes, vectors = (cores_of(record, kind) for kind in ("aic", "aiv"))
    return record.engine == "mix" and cubes is not None and cubes == vectors


def _staggered(record: Record) -> bool:
    """Whether cores read what they share from different places on."""
    said = record.text("schedule", "access_order") + record.text("schedule", "k_order")
    return re.search("rotat|stagger|shuffle", said.lower()) is not None


def _library(record: Record, machine: Machine) -> tuple[float, float]:
    """(factor on the scalar unit's cycles, microseconds before the first instruction) of kernels written with the
    vendor's high-level matmul API; with its tiling known to its compiler they are less."""
    template = record.text("schedule", "template").lower()
    if "high-level api" not in record.text("schedule", "impl").lower() and not template.startswith(TEMPLATES):
        return 1.0, 0.0
    if record.flag("schedule", "constant_tiling"):
        return machine.library_constant_factor, machine.library_constant_start_us
    return machine.library_issue_factor, machine.library_start_us


def _calls(record: Record) -> float:
    """Blocks of a grouped product that one core takes in turn. The scalar unit sets each up anew, while the pipes
    still work on the one before."""
    m, n = (record.integer("schedule", f"single_core_{axis}") for axis in "mn")
    rows, columns = record.integer("workload", "m_total"), record.integer("workload", "n")
    if not (m and n and rows and columns):
        return 1.0
    return max(1.0, -(-rows // m) * -(-columns // n) / (cores_of(record, "aic") or 1))


def _warm(record: Record) -> bool:
    """Means over runs of a profiler see what the run before left in L2; msOpProf and msprof start cold."""
    return "profiler" in str(record.data.get("label_of_time")).lower()


def _check(found: Expressed) -> None:
    """Raises Inexpressible where the inputs are larger than the chip's memory, or JAX refuses the function on them."""
    room = Machine.load(found.machine).spaces["gm"].bytes
    if any(math.prod(shape) * ITEM_BYTES[dtype] > room for shape, dtype in found.shapes):
        raise Inexpressible(f"an input is larger than the {room} bytes of device memory")
    if isinstance(found.source, str):
        return
    import jax

    try:
        with found.precision():
            jax.eval_shape(found.source, *found.arguments)
    except (TypeError, ValueError, OverflowError) as error:
        said = str(error).strip().split("\n")[0].split(". ")[0]
        raise Inexpressible(f"its shapes or types make no such operation: {said[:120]}") from None
