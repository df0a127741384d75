"""Vector instructions and copies: each `hivm` op as steps of the npu level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xdsl.ir import Operation

from ...dialects.dtypes import dtype_name, is_float, itemsize
from ...dialects.hivm import synchronization, transfers, vector
from ...dialects.hivm.counterparts import ROUNDED
from ...dialects.hivm.vector import ELEMENTWISE
from ...machine.parts import ACCUMULATIONS
from .places import Memref, needs_deeper, row_major, rows_of
from .steps import refused
from .walk import HANDLERS, BlockWalk, operand, single

FUNCTIONS = {
    "vexp": "exp",
    "vln": "log",
    "vsqrt": "sqrt",
    "vrsqrt": "rsqrt",
    "vabs": "abs",
    "vnot": "not",
    "vtanh": "tanh",
    "vsin": "sin",
    "vcos": "cos",
    "verf": "erf",
    "vtan": "tan",
    "vexp2": "exp2",
    "vexpm1": "expm1",
    "vlog1p": "log1p",
    "vadd": "add",
    "vsub": "sub",
    "vmul": "mul",
    "vdiv": "div",
    "vmax": "max",
    "vmin": "min",
    "vor": "or",
    "vand": "and",
    "vxor": "xor",
    "vmod": "rem",
    "vshl": "shl",
    "vpow": "pow",
}
"""The scalar function that each instruction computes; others are below."""

REDUCTIONS = {k: k for k in ("sum", "prod", "max", "min")} | {
    "any": "or",
    "all": "and",
    "ori": "or",
    "andi": "and",
}

ROUNDINGS = {mode: function for function, mode in ROUNDED.items()}
"""The function that a cast of floats to their own type is, by its rounding."""


def compute(
    walk: BlockWalk, op: Any, name: str, sources: Sequence[Memref], dest: Memref, properties: str = ""
) -> None:
    """An instruction that computes each element alone. Arrays whose rows are not all as far apart are cut."""
    arrays = [*(s for s in sources if s.shape), dest]
    deeper = needs_deeper(arrays)
    if any(rows_of(a, deeper) is None for a in arrays):
        if len(dest.shape) < 2:
            raise refused(
                op, f"works on an array with strides {list(dest.strides)}, which no instruction here does"
            )
        for i in range(dest.shape[0]):
            parts = [s.at(i if s.shape[0] != 1 else 0) if s.shape else s for s in sources]
            compute(walk, op, name, parts, dest.at(i), properties)
        return
    rank = max(len(dest.shape), 1) + deeper * bool(dest.shape)
    found = [operand(s, op, deeper) if s.size != 1 or s == dest else single(s, rank) for s in sources]
    walk.emit(op, name, *found, operand(dest, op, deeper), properties=properties)


def copied(walk: BlockWalk, op: Operation, source: Memref, dest: Memref) -> None:
    """The elements of an array on chip in another one."""
    compute(walk, op, "npu.vbroadcast", [source], dest)


def _elementwise(walk: BlockWalk, op: Any) -> None:
    name = op.name.rpartition(".")[2]
    sources, dest = [walk.local(v, op) for v in op.src], walk.local(op.dst[0], op)
    if op.transpose is not None and op.transpose.get_values():
        raise refused(op, "transposes on the way")
    if name == "vcast":
        _cast(walk, op, sources[0], dest)
        return
    if name == "vcmp":
        function = op.compare_mode.data if op.compare_mode is not None else "eq"
    elif name == "vsel":
        function = "select"
    elif name == "vshr":
        function = "shr_arithmetic"
    elif name == "vrelu":
        function, sources = "max", [*sources, walk.scratch.constant(0.0, dest.element)]
    elif name == "vrec":
        function, sources = "div", [walk.scratch.constant(1.0, dest.element), *sources]
    elif name in FUNCTIONS:
        function = FUNCTIONS[name]
    else:
        raise refused(op, "has no counterpart at the npu level")
    compute(walk, op, f"npu.v{function}", sources, dest)


def _cast(walk: BlockWalk, op: Any, source: Memref, dest: Memref) -> None:
    mode = op.round_mode.data if op.round_mode is not None else "rint"
    if op.cast is not None and op.cast.data != "cast_signed":
        raise refused(op, f"casts as {op.cast.data}")
    floats = is_float(source.element), is_float(dest.element)
    if source.element == dest.element and all(floats):
        function = ROUNDINGS.get(mode)
        if function is None:
            raise refused(op, f"rounds {source.element} by {mode}")
        compute(walk, op, f"npu.v{function}", [source], dest)
    elif all(floats) and mode == "odd":
        compute(walk, op, "npu.vround_to", [source], dest, 'mode = "odd"')
    elif all(floats) and (mode == "rint" or itemsize(dest.element) > itemsize(source.element)):
        compute(walk, op, "npu.vconvert", [source], dest)
    elif floats == (True, False) and mode == "rint" and dest.element != "i1":
        compute(walk, op, "npu.vround_to", [source], dest, 'mode = "even"')
    elif (floats == (True, False) and mode == "trunc") or not floats[0]:
        compute(walk, op, "npu.vconvert", [source], dest)
    else:
        raise refused(op, f"casts {source.element} to {dest.element} by {mode}, which the npu level does not")


def _broadcast(walk: BlockWalk, op: vector.VbrcOp) -> None:
    dest = walk.local(op.dst, op)
    value = walk.value(op.src, op)
    if dest.space == "l1" and isinstance(value, int | float):
        walk.emit(op, "npu.fill_l1", operand(dest, op), properties=f"value = {literal(value, dest.element)}")
        return
    if not dest.in_ub:
        raise refused(op, f"fills {dest.space}")
    if isinstance(value, int | float):
        fill(walk, op, value, dest)
    else:
        compute(walk, op, "npu.vbroadcast", [walk.local(op.src, op)], dest)


def fill(walk: BlockWalk, op: Operation, value: float, dest: Memref) -> None:
    compute(walk, op, "npu.vfill", [], dest, f"value = {literal(value, dest.element)}")


def literal(value: float, element: str) -> str:
    """A number as text of MLIR."""
    if not is_float(element):
        return f"{'true' if value else 'false'}" if element == "i1" else f"{int(value)} : {element}"
    if value != value or value in (float("inf"), float("-inf")):
        bits = {"f16": (0x7C00, 0xFC00, 0x7E00), "bf16": (0x7F80, 0xFF80, 0x7FC0)}
        kinds = bits.get(element, (0x7F800000, 0xFF800000, 0x7FC00000))
        return f"0x{kinds[2 if value != value else value < 0]:X} : {element}"
    return f"{value:.9e} : {element}"


def _reduce(walk: BlockWalk, op: vector.VreduceOp) -> None:
    kind, dims = op.arith.data, op.reduce_dims.get_values()
    source = walk.local(op.src, op)
    outs = [walk.local(v, op) for v in op.dst]
    deeper = needs_deeper([source, *outs])
    operands = [operand(p, op, deeper) for p in (source, *outs)]
    if "with_index" in kind:
        if kind.endswith("right") or len(dims) != 1 or op.indices is not None:
            raise refused(op, f"reduces by {kind}")
        properties = f'dim = {dims[0]}, kind = "{kind[:3]}"'
        walk.emit(op, "npu.varg_reduce", *operands, properties=properties)
        return
    if kind not in REDUCTIONS:
        raise refused(op, f"reduces by {kind}")
    properties = f'dims = {list(dims)}, kind = "{REDUCTIONS[kind]}"'
    walk.emit(op, "npu.vreduce", *operands, properties=properties)


def _transpose(walk: BlockWalk, op: vector.VtransposeOp) -> None:
    source, dest = walk.local(op.src, op), walk.local(op.dst, op)
    order = list(op.permutation.get_values()) if op.permutation is not None else []
    deeper = needs_deeper([source, dest])
    if deeper:
        order.append(len(order))
    walk.emit(
        op,
        "npu.vtranspose",
        operand(source, op, deeper),
        operand(dest, op, deeper),
        properties=f"perm = {order}",
    )


def _arange(walk: BlockWalk, op: vector.VarangeOp) -> None:
    dest = walk.local(op.dst, op)
    strides = [walk.number(v, op) for v in op.strides]
    start = walk.number(op.offset, op) if op.offset is not None else 0
    moving = [d for d, (s, n) in enumerate(zip(strides, dest.shape, strict=True)) if s and n != 1]
    if len(moving) > 1:
        raise refused(op, f"counts along {len(moving)} dimensions")
    dim = moving[0] if moving else 0
    properties = f"dim = {dim}, step = {strides[dim]}"
    walk.emit(op, "npu.viota", operand(dest, op), properties=properties, at=[start])


def _cumulate(walk: BlockWalk, op: vector.CumulativeOp) -> None:
    kind = op.name.rpartition(".")[2].removeprefix("vcum")
    dims = op.cum_dims.get_values()
    if len(dims) != 1:
        raise refused(op, f"accumulates along dimensions {list(dims)}")
    source, dest = walk.local(op.src, op), walk.local(op.dst, op)
    deeper = needs_deeper([source, dest])
    reverse = int(bool(op.reverse.value.data))
    walk.emit(
        op,
        "npu.vcumulate",
        operand(source, op, deeper),
        operand(dest, op, deeper),
        properties=f'dim = {dims[0]}, kind = "{kind}", reverse = {reverse}',
    )


def _flip(walk: BlockWalk, op: vector.VflipOp) -> None:
    source, dest = walk.local(op.src, op), walk.local(op.dst, op)
    axis = op.flip_axis.value.data % max(len(source.shape), 1)
    at = [n - 1 if d == axis else 0 for d, n in enumerate(source.shape)]
    steps = [-1 if d == axis else 1 for d in range(len(source.shape))]
    walk.emit(
        op,
        "npu.vextract",
        operand(source, op),
        operand(dest, op),
        properties=f"sizes = {list(source.shape)}, steps = {steps}",
        at=at,
    )


def _every(place: Memref, first: int, count: int) -> Memref:
    """Every second element of the last dimension."""
    rank = len(place.shape)
    offsets = [0] * (rank - 1) + [first]
    return place.part(offsets, [*place.shape[:-1], count], [1] * (rank - 1) + [2])


def _interleave(walk: BlockWalk, op: vector.VinterleaveOp) -> None:
    dest = walk.local(op.dst, op)
    for first, value in enumerate(op.src):
        source = walk.local(value, op)
        copied(walk, op, source, _every(dest, first, source.shape[-1]))


def _deinterleave(walk: BlockWalk, op: vector.VdeinterleaveOp) -> None:
    source, mode = walk.local(op.src, op), op.index_mode.data if op.index_mode is not None else "ALL_CHANNELS"
    channels = {"CHANNEL_0": [0], "CHANNEL_1": [1]}.get(mode, [0, 1])
    for first, value in zip(channels, op.dst, strict=True):
        dest = walk.local(value, op)
        copied(walk, op, _every(source, first, dest.shape[-1]), dest)


def _sort(walk: BlockWalk, op: vector.VsortOp) -> None:
    """The places of elements, where they are asked for, are sorted along with them."""
    arrays = [walk.local(v, op) for v in (op.src, *op.dst)]
    if len(arrays[0].shape) == 1:
        arrays = [replace(p, shape=(1, *p.shape), strides=(p.reach, *p.strides)) for p in arrays]
    if len(arrays[0].shape) != 2:
        raise refused(op, f"sorts an array of {len(arrays[0].shape)} dimensions")
    sources, dests = arrays[:1], arrays[1:]
    if len(dests) > 1:
        places = walk.scratch.vector(dests[1].element, sources[0].shape)
        walk.emit(op, "npu.viota", operand(places, op), properties="dim = 1, step = 1", at=[0])
        walk.emit(op, "npu.pipe_barrier", properties='pipe = "V"')
        sources.append(places)
    words = (sources[0].shape[0], 4 * sources[0].shape[1])
    work = walk.local(op.temp_buffer, op) if op.temp_buffer is not None else None
    if work is None or work.size * itemsize(work.element) < 4 * words[0] * words[1]:
        work = walk.scratch.vector("ui32", words)
    work = Memref(work.space, "ui32", words, row_major(words), work.start)
    operands = [operand(p, op) for p in (*sources, *dests, work)]
    down = int(bool(op.descending.value.data))
    walk.emit(op, "npu.vsort", *operands, properties=f"descending = [{down}], keys = [0], total = [0]")


def _gather(walk: BlockWalk, op: vector.VgatherOp) -> None:
    """Along the last dimension, one row after the other."""
    source, places, dest = (walk.local(v, op) for v in (op.src, op.indices, op.dst))
    axis = op.gather_axis.value.data if op.gather_axis is not None else -1
    if axis not in (-1, len(dest.shape) - 1):
        raise refused(op, f"gathers along dimension {axis} of {len(dest.shape)}")
    if places.element != "i32":
        wide = walk.scratch.vector("i32", places.shape)
        compute(walk, op, "npu.vconvert", [places], wide)
        walk.emit(op, "npu.pipe_barrier", properties='pipe = "V"')
        places = wide
    _gathered(walk, op, source, places, dest)


def _gathered(walk: BlockWalk, op: Operation, source: Memref, places: Memref, dest: Memref) -> None:
    if len(dest.shape) > 1:
        for row in range(dest.shape[0]):
            _gathered(walk, op, source.at(row), places.at(row), dest.at(row))
    else:
        walk.emit(op, "npu.vgather", *(operand(p, op) for p in (source, places, dest)))


def _concatenate(walk: BlockWalk, op: vector.VconcatOp) -> None:
    dest, axis, first = walk.local(op.dst, op), op.dim.value.data, 0
    for value in op.src:
        source = walk.local(value, op)
        offsets = [first if d == axis else 0 for d in range(len(dest.shape))]
        copied(walk, op, source, dest.part(offsets, source.shape, [1] * len(offsets)))
        first += source.shape[axis]


# -- copies --------------------------------------------------------------------------------------------------------


def _moved(
    walk: BlockWalk, op: Any, name: str, device: Memref, chip: Memref, properties: str = ""
) -> None:
    """A box between device memory and a buffer; cut where the buffer's rows are not all as far apart."""
    if 0 in device.shape:
        return
    deeper = needs_deeper([chip])
    found = rows_of(chip, deeper)
    if found is None:
        for i in range(chip.shape[0]):
            _moved(walk, op, name, device.at(i), chip.at(i), properties)
        return
    pair = (device, found) if name == "npu.load_nd" else (found, device)
    walk.emit(op, name, *pair, properties=properties)


def _load(walk: BlockWalk, op: transfers.LoadOp) -> None:
    if op.init_out_buffer is not None and op.init_out_buffer.value.data:
        raise refused(op, "fills its buffer first")
    source, dest = walk.memref(op.src, op), walk.memref(op.dst, op)
    left = walk.number(op.left_padding_num, op) if op.left_padding_num is not None else 0
    if left or (op.right_padding_num is not None and walk.number(op.right_padding_num, op)):
        raise refused(op, "puts padding beside what it loads")
    if source.shape != dest.shape:
        raise refused(op, f"loads {list(source.shape)} to {list(dest.shape)}")
    _moved(walk, op, "npu.load_nd", source, _bytes(op, dest))


def _bytes(op: Operation, place: Memref) -> Memref:
    if place.element == "i1":
        raise refused(op, "moves bits")
    return place


def _store(walk: BlockWalk, op: transfers.StoreOp) -> None:
    source, dest = walk.memref(op.src, op), walk.memref(op.dst, op)
    kind = op.atomic_kind.data if op.atomic_kind is not None else "none"
    combined = accumulation(walk, op, dest, (kind, dest.element) if kind != "none" else None)
    _moved(walk, op, "npu.store_nd", dest, _bytes(op, source), combined)


def _set_atomic(walk: BlockWalk, op: synchronization.SetAtomicOp) -> None:
    kind = op.kind.data
    if kind != "none" and op.type is None:
        raise refused(op, "does not say the type of the elements")
    element = "" if op.type is None else dtype_name(op.type)
    walk.accumulates = (kind, element) if kind != "none" else None


def accumulation(
    walk: BlockWalk, op: Operation, dest: Memref, own: tuple[str, str] | None = None
) -> str:
    """How a store is combined with what is there, as text: by what it says itself, or what was set before it."""
    found = own or walk.accumulates
    if found is None:
        return ""
    kind, element = found
    if kind not in ACCUMULATIONS:
        raise refused(op, f"stores by atomic {kind}, which the npu level does not")
    if element != dest.element:
        raise refused(op, f"stores {dest.element} where {element} is set to be stored by atomic {kind}")
    return f'accumulate = "{kind}"'


def _copy(walk: BlockWalk, op: Any) -> None:
    source, dest = (walk.local(v, op) for v in op.operands[:2])
    if source.space == "gm" or dest.space == "gm":
        name = "npu.load_nd" if source.space == "gm" else "npu.store_nd"
        device, chip = (source, dest) if source.space == "gm" else (dest, source)
        combined = accumulation(walk, op, dest) if dest.space == "gm" else ""
        _moved(walk, op, name, device, chip, combined)
    elif dest.in_ub:
        copied(walk, op, source, dest)
    else:
        raise refused(op, f"copies {source.space} to {dest.space}")


HANDLERS.update(
    {
        **{f"hivm.hir.{name}": _elementwise for name in ELEMENTWISE},
        "hivm.hir.vbrc": _broadcast,
        "hivm.hir.vreduce": _reduce,
        "hivm.hir.vtranspose": _transpose,
        "hivm.hir.varange": _arange,
        "hivm.hir.vcumsum": _cumulate,
        "hivm.hir.vcumprod": _cumulate,
        "hivm.hir.vcummax": _cumulate,
        "hivm.hir.vcummin": _cumulate,
        "hivm.hir.vflip": _flip,
        "hivm.hir.vsort": _sort,
        "hivm.hir.vconcat": _concatenate,
        "hivm.hir.vgather": _gather,
        "hivm.hir.vinterleave": _interleave,
        "hivm.hir.vdeinterleave": _deinterleave,
        "hivm.hir.load": _load,
        "hivm.hir.store": _store,
        "hivm.hir.set_atomic": _set_atomic,
        "hivm.hir.copy": _copy,
        "memref.copy": _copy,
    }
)
