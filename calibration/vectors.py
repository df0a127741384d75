"""Vector kernels and copies of records, with their pins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ..machine import Machine
from ..passes.pins import Schedule
from . import functions
from .expressed import (
    ITEM_BYTES,
    Expressed,
    Inexpressible,
    axes_named,
    cores_of,
    element_named,
    need,
    operation,
    shape_named,
    target_for,
    vector_cores_of,
)
from .kernels import read_only, repeated_vector_op
from .records import Record, positive


def _vector_schedule(record: Record, shape: Sequence[int], machine: Machine) -> Schedule:
    """The pins of an elementwise kernel: tile, cores, buffers."""
    tile = record.integers("schedule", "tile_shape")
    elements = record.integer("schedule", "tile_elems")
    cores = vector_cores_of(record, machine)
    fields: dict[str, Any] = {"cores": cores, **_buffers(record)}
    if tile is not None and len(tile) == len(shape):
        fields["tile"] = tile
    elif elements:
        fields["copy_length"] = elements
    said = re.search(
        r"(\d+)\s*(?:x|row x)\s*(\d+)\s*(?:\(M\s*x\s*N|column)", record.text("schedule", "core_split")
    )
    if said and len(shape) == 2 and "tile" in fields:
        counts = [-(-s // t) for s, t in zip(shape, fields["tile"], strict=True)]
        grid = [-(-c // -(-c // min(max(1, int(w)), c))) for c, w in zip(counts, said.groups(), strict=True)]
        if math.prod(grid) <= cores:
            fields["grid"] = tuple(grid)
    return Schedule(**fields)


def is_triton(record: Record) -> bool:
    return "triton" in record.text("schedule", "impl").lower()


def _buffers(record: Record) -> dict[str, int]:
    """The pin of the buffers in ub: as said; loops of Triton kernels load, compute and store in turn."""
    said = record.flag("schedule", "double_buffer")
    if said is None and not is_triton(record):
        return {}
    return {"ub": 2 if said else 1}


def elementwise(record: Record) -> Expressed:
    """Operations by lanes or along an axis, joined by `+`."""
    if record.text("schedule", "src0_addr"):
        return _addressed(record)
    op = operation(record)
    shape = shape_named(record)
    found = functions.chain(op, axes_named(record, len(shape)), _divides_in_f32(record))
    if found is None:
        raise Inexpressible(f"there is no program for the operation '{op[:60]}'")
    function, arity = found
    inputs = record.integer("workload", "inputs") or arity
    if inputs != arity:
        raise Inexpressible(f"'{op[:40]}' takes {arity} inputs, the record has {inputs}")
    if "scalar loop" in record.text("schedule", "impl").lower():
        raise Inexpressible("the scalar unit computes, and ours only issues instructions")
    return _plain(record, function, [shape] * inputs)


def _plain(
    record: Record, function: functions.Function, shapes: Sequence[Sequence[int]], places: int = 0
) -> Expressed:
    """A function of tensors of one type, the last `places` of them of indices, under the pins of the result's shape."""
    target, dtype = target_for(record), element_named(record, "dtype", "dtype_in")
    types = [dtype] * (len(shapes) - places) + ["i32"] * places
    return Expressed(
        function,
        target,
        tuple((tuple(shape), kind) for shape, kind in zip(shapes, types, strict=True)),
        _vector_schedule(record, shapes[0], Machine.load(target)),
        bypassing=_bypassing(record, len(shapes)),
    )


def _bypassing(record: Record, inputs: int) -> frozenset[int]:
    """The inputs that L2 is told not to keep."""
    said = record.text("schedule", "l2_cache_mode").lower()
    return frozenset(range(inputs)) if re.search("bypass|disable", said) else frozenset()


def _divides_in_f32(record: Record) -> bool:
    """Triton computes quotients and remainders of halves in f32 (its language's rule of type promotion)."""
    return "triton" in record.text("schedule", "impl").lower()


def broadcast(record: Record) -> Expressed:
    """An operation of two inputs, the second one, of `shape_b`, repeated to the shape of the first."""
    op = operation(record)
    found = functions.chain(re.sub(r"\s*broadcast\s*", "", op), divides_in_f32=_divides_in_f32(record))
    if found is None or found[1] != 2:
        raise Inexpressible(f"there is no program for the operation '{op[:60]}'")
    return _plain(record, found[0], [shape_named(record), shape_named(record, "shape_b")])


def moved(record: Record) -> Expressed:
    """Transposes, joins, gathers and conversions."""
    op, shape = operation(record), shape_named(record)
    said = record.part("workload")
    if op.startswith(("transpose", "permute")):
        order = said.get("perm") or said.get("permutation")
        if not isinstance(order, list):
            order = [*range(len(shape) - 2), *reversed(range(len(shape))[-2:])]
        if sorted(map(str, order)) != sorted(map(str, range(len(shape)))):
            raise Inexpressible(f"the order of {len(shape)} axes is no permutation")
        return _plain(record, functions.transposed(order), [shape])
    if op.startswith("concat"):
        (axis, *_) = axes_named(record, len(shape))
        return _plain(record, functions.joined(axis), [shape] * (record.integer("workload", "inputs") or 2))
    if op.startswith("cast"):
        to = element_named(record, "dtype_out")
        return _plain(record, functions.converted(to), [shape])
    (count,) = need(record, "workload", "indices")
    return _plain(record, functions.rows_at(), [shape, (count,)], places=1)


def largest(record: Record) -> Expressed:
    """The largest of each row."""
    shape, (count,) = shape_named(record), need(record, "workload", "k")
    if count > shape[-1]:
        raise Inexpressible(f"the largest {count} of {shape[-1]}")
    return _plain(record, functions.largest(count), [shape])


def _addressed(record: Record) -> Expressed:
    shape = shape_named(record)
    count = record.integer("workload", "instr_count") or 1
    places = []
    for key in ("src0_addr", "src1_addr", "dst_addr"):
        try:
            places.append(int(record.text("schedule", key), 0))
        except ValueError:
            raise Inexpressible(f"schedule has no address '{key}'") from None
    target, dtype = target_for(record), element_named(record, "dtype")
    op = operation(record)
    if functions.OF_NUMPY.get(op, ("", 0))[1] != 2 or not op.isidentifier():
        raise Inexpressible(f"'{op[:40]}' is no instruction with two sources")
    room = Machine.load(target).spaces["ub"].bytes
    size = math.prod(shape) * ITEM_BYTES[dtype]
    if any(place < 0 or place + size > room for place in places):
        raise Inexpressible("an address is outside ub")
    return Expressed(
        repeated_vector_op(op, dtype, math.prod(shape), count, (places[0], places[1], places[2])), target
    )


KINDS = re.compile(r"reduce (sum|max|min|mean|prod|any|all)\b|^a?(sum|max|min|mean|prod)$")


def reduce(record: Record) -> Expressed:
    """A reduction. One over all of a vector is its blocks' reductions: their results are combined by atomics."""
    op, target = operation(record), target_for(record)
    machine = Machine.load(target)
    if re.match(r"element-?wise ?\+", op):
        raise Inexpressible("the elementwise work before the reduction is not published")
    named = KINDS.search(op)
    if named is None and "swiglu" not in op:
        raise Inexpressible(f"there is no program for the operation '{op[:60]}'")
    kind = (named[1] or named[2]) if named else "sum"
    kind = "sum" if kind == "mean" else kind  # The division is one instruction in a thousand.
    shape = shape_named(record)
    axes = axes_named(record, len(shape))
    tile = record.integers("schedule", "tile_shape")
    config = record.part("schedule").get("tile_config")
    config = config if isinstance(config, dict) else {}
    cores = vector_cores_of(record, machine)
    pins: dict[str, Any] = {"cores": cores, **_buffers(record)}
    if is_triton(record):
        pins["piecewise"] = 1
    waves, combined = 1, 0
    elements = record.integer("schedule", "tile_elems")
    block = positive(config.get("BLOCK_SIZE")) or elements
    if len(axes) == len(shape) and block and elements:
        # Blocks are whole: what lies beyond the end is masked, not left out.
        combined = blocks = -(-math.prod(shape) // block)
        if elements > block:
            raise Inexpressible(f"a tile of {elements} elements in blocks of {block}")
        extents, tile, reduced = [blocks, block], (1, elements), [1]
        # The running result is a scalar, which is read back before the next step.
        pins |= {"ub": 1, "piecewise": 1}
    else:
        extents, reduced = _merged(shape, axes)
        rows = positive(config.get("BLOCK_SIZE_BM") or config.get("BLOCK_SIZE_M")) or (tile or (1,))[0]
        columns = positive(config.get("BLOCK_SIZE_N")) or (tile or (1,))[-1]
        blocks = -(-extents[0] // rows) if reduced[-1] == len(extents) - 1 else -(-extents[-1] // columns)
    if tile is not None and len(axes) <= len(shape):
        if len(tile) != len(extents):
            raise Inexpressible(f"a tile of {len(tile)} axes over {len(extents)}")
        pins["tile"] = tile
        pins["cores"] = min(cores, blocks)
        waves = -(-blocks // cores)
    function, inputs = functions.reduction(op, kind, reduced)
    dtype = element_named(record, "dtype", "dtype_in")
    return Expressed(
        function,
        target,
        ((tuple(extents), dtype),) * inputs,
        Schedule(**pins),
        waves=waves,
        combined=combined,
    )


def _merged(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """(extents, reduced axes) with neighbours that are both reduced or both kept made one."""
    extents: list[int] = []
    reduced: list[int] = []
    for axis, extent in enumerate(shape):
        if axis and (axis in axes) == (axis - 1 in axes):
            extents[-1] *= extent
            continue
        if axis in axes:
            reduced.append(len(extents))
        extents.append(extent)
    return extents, reduced


def copy(record: Record) -> Expressed:
    """Copies from device memory that nothing uses."""
    shape, target = shape_named(record), target_for(record)
    machine = Machine.load(target)
    tile = record.integers("schedule", "tile_shape")
    if len(shape) != 2 or tile is None or len(tile) != 2:
        raise Inexpressible("a copy without the two extents of its tile")
    to_l1 = "l1" in record.text("workload", "op").lower()
    cores = cores_of(record, "aic" if to_l1 else "aiv") or 1
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
            element_named(record, "dtype"),
            (tile[0], tile[1]),
            cores,
            to_l1,
            2 if record.flag("schedule", "double_buffer") else 1,
            max(1, int(slices[1])) if slices else 1,
            1 if same else times,
            same,
        ),
        target,
        bypassing=_bypassing(record, 1),
    )


def to_fractals(record: Record) -> Expressed:
    """A matrix brought into fractals."""
    shape, target = shape_named(record), target_for(record)
    tile = record.integers("schedule", "tile_shape")
    dtype = element_named(record, "dtype")
    c0 = 32 // ITEM_BYTES[dtype]
    if len(shape) != 2 or tile is None or len(tile) != 2 or shape[1] % c0 or tile[1] % c0:
        raise Inexpressible("a layout conversion of a tile that is not whole fractals")
    machine = Machine.load(target)
    cores = vector_cores_of(record, machine)
    pins = Schedule(tile=(tile[1] // c0, tile[0], c0), cores=cores, ub=2)
    return Expressed(functions.to_fractals(c0), target, ((shape, dtype),), pins)
