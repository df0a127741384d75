"""Vector instructions: what each is in HIVM, on tiles with as few dimensions as they can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, i64
from xdsl.dialects.memref import SubviewOp
from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.hivm import attributes as attrs
from ...dialects.hivm.counterparts import COMPARED, REDUCED, ROUNDED, SUPPORTED, cast_mode
from ...dialects.hivm.transfers import CopyOp
from ...dialects.hivm.vector import ELEMENTWISE, VarangeOp, VbrcOp, VreduceOp, VtransposeOp
from ...dialects.npu import (
    AllocOp,
    BufferType,
    ElementwiseVectorOp,
    VBroadcastOp,
    VectorOp,
    VExtractOp,
    VFillOp,
    VIotaOp,
    VReduceOp,
    VRoundToOp,
    VTransposeOp,
    buffer,
    buffer_users,
    whole_buffer,
)
from ...dialects.npu.constants import constant_in
from ...dialects.npu.scratch import reduced_form, scratch_bytes
from ...dialects.npu.types import ROW_BYTES
from ...dialects.shapes import is_column_of, is_row_of
from ...support.rules import Rules
from .building import made
from .emitter import INDEX, FunctionEmitter, Number, element_of, memref
from .errors import NotInHivm
from .layout import TileAxis, axes_of, is_dense, merged, padded_row, rows_and_columns
from .memory import FunctionMemory

DIRECT = {
    "add": "vadd",
    "sub": "vsub",
    "mul": "vmul",
    "div": "vdiv",
    "max": "vmax",
    "min": "vmin",
    "exp": "vexp",
    "log": "vln",
    "sqrt": "vsqrt",
    "abs": "vabs",
    "not": "vnot",
    "and": "vand",
    "or": "vor",
    "xor": "vxor",
    "shl": "vshl",
    "shr_arithmetic": "vshr",
}
"""Functions that HIVM has under another name."""

SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
COMMUTATIVE = ("add", "mul", "max", "min", "and", "or", "xor")
AS_NUMBERS = ("add", "sub", "mul", "div", "max", "min", "select", "shl", "shr_arithmetic", *COMPARED)
"""Functions whose operands of one element are numbers in HIVM."""


def is_read_as_number(op: VFillOp) -> bool:
    """Whether a fill is of one element that all who read it take as a number, so that it need not be in memory."""
    value = whole_buffer(op.dest)
    if size(buffer(value).shape) != 1 or constant_in(value) is None:
        return False
    for user in buffer_users(value):
        if user is op or isinstance(user, VBroadcastOp):
            continue
        if not (isinstance(user, ElementwiseVectorOp) and user.instruction in AS_NUMBERS):
            return False
        if size(buffer(user.destinations()[0]).shape) == 1:
            return False
    return True


class VectorRules:
    """Adds what vector instructions are in HIVM to a function."""

    def __init__(self, emit: FunctionEmitter, memory: FunctionMemory, scratch: AllocOp | None) -> None:
        self.emit, self.memory, self.scratch = emit, memory, scratch

    def __call__(self, op: VectorOp) -> None:
        """Raises NotInHivm for an instruction that HIVM has not."""
        rule = _RULES.of(type(op))
        if rule is None:
            raise NotInHivm(op, "has no counterpart in HIVM")
        rule(self, op)

    # -- operands ----------------------------------------------------------------------------------------------

    def room(self, op: VectorOp, dtype: str) -> SSAValue | None:
        """The scratch that an instruction works in, as elements of a type."""
        needed = scratch_bytes(op)
        if not needed:
            return None
        if self.scratch is None or self.scratch.address is None:
            raise NotInHivm(
                op, f"works in {needed} bytes of scratch, which are not reserved: compile with hivm=True"
            )
        if needed > buffer(self.scratch.result).slot_bytes:
            raise NotInHivm(op, f"works in {needed} bytes of scratch, more than are reserved")
        count = needed * 8 if dtype == "i1" else needed // itemsize(element_of(dtype))
        return self.memory.at(integer(self.scratch.address), memref([count], element_of(dtype), "ub"))

    def scalar(self, value: SSAValue, op: Operation) -> SSAValue:
        """The one element that a buffer holds for all lanes."""
        number = constant_in(value)
        if number is None:
            raise NotInHivm(op, "takes a scalar that is no constant")
        return self.emit.constant(number, element_of(buffer(value).dtype()))

    def _tile(self, value: SSAValue, op: Operation, one: bool) -> SSAValue:
        """An operand as a dense row, or as rows and columns."""
        kind = self.memory.kind(value)
        if one:
            return self.memory.tile(value, [TileAxis(size(kind.shape), 1)], op)
        rows, columns = rows_and_columns(kind.shape)
        return self.memory.tile(value, [TileAxis(rows, padded_row(kind)), TileAxis(columns, 1)], op)

    # -- instructions ------------------------------------------------------------------------------------------

    def elementwise(self, op: ElementwiseVectorOp) -> None:
        """A function of each element."""
        name, out = op.instruction, op.destinations()[0]
        dest = buffer(out)
        sources = list(op.sources())
        dtypes = [self.memory.kind(v).dtype() for v in sources]
        if name == "convert":
            made_of = self.memory.kind(out).dtype()
            self._cast(op, sources[0], out, cast_mode(dtypes[0], made_of, "convert"))
            return
        if any(self.memory.kind(v) != buffer(v) for v in (*sources, out)):
            raise NotInHivm(
                op, "computes with truths that transfers touch, which are bytes there: compile with hivm=True"
            )
        if name == "bitcast":
            raise NotInHivm(op, "has no counterpart in HIVM")
        known = SUPPORTED.get(name)
        if known is None:
            raise NotInHivm(
                op, f"has no counterpart in HIVM: compile with hivm=True, which computes {name} otherwise"
            )
        if dtypes[-1] not in known:
            raise NotInHivm(op, f"is {name} on {dtypes[-1]}, which HIVM has not")
        if name in ROUNDED:
            self._cast(op, sources[0], out, ROUNDED[name])
            return
        scalars = [size(buffer(v).shape) == 1 < size(dest.shape) for v in sources]
        properties: dict[str, Any] = {}
        vendor = DIRECT.get(name, "vcmp" if name in COMPARED else "vsel")
        if len(sources) == 2 and scalars[0] and (name in COMMUTATIVE or name in COMPARED):
            sources.reverse()
            scalars.reverse()
            name = SWAPPED.get(name, name)
        if name in COMPARED:
            properties["compare_mode"] = attrs.CompareMode(name)
        if name == "shr_arithmetic":
            properties["round"] = IntegerAttr.from_bool(False)
        if name in ("and", "or", "xor") and any(scalars):
            raise NotInHivm(op, "takes a scalar, which HIVM's bitwise functions do not")
        temp = self.room(op, dtypes[-1])
        repeated = [
            [dim for dim, fits in enumerate((is_row_of, is_column_of)) if fits(buffer(v).shape, dest.shape)]
            for v in sources
        ]
        full = [buffer(v) for v, s, r in zip(sources, scalars, repeated, strict=True) if not s and not r]
        one = not any(repeated) and all(map(is_dense, [*full, dest]))
        if any(repeated):
            properties["broadcast"] = DenseArrayBase.from_list(i64, max(repeated))
        if name == "sub" and scalars[1] and not scalars[0]:  # x - s is x + -s
            self._subtracted(op, sources, out, one)
            return
        operands = [
            self.scalar(v, op) if s else self._tile(v, op, one) for v, s in zip(sources, scalars, strict=True)
        ]
        self._add(vendor, operands, self._tile(out, op, one), temp, properties)

    def _subtracted(self, op: VectorOp, sources: Sequence[SSAValue], out: SSAValue, one: bool) -> None:
        number = constant_in(sources[1])
        if number is None:
            raise NotInHivm(op, "takes a scalar that is no constant")
        added = self.emit.constant(-number, element_of(buffer(sources[1]).dtype()))
        self._add("vadd", [self._tile(sources[0], op, one), added], self._tile(out, op, one), None, {})

    def _add(
        self,
        vendor: str,
        operands: Sequence[SSAValue],
        dest: SSAValue,
        temp: SSAValue | None,
        properties: dict[str, Any],
    ) -> None:
        self.emit.add(made(ELEMENTWISE[vendor], src=operands, dst=dest, temp_buffer=temp, **properties))

    def _cast(self, op: VectorOp, source: SSAValue, out: SSAValue, mode: str | None) -> None:
        kinds = self.memory.kind(source), self.memory.kind(out)
        if mode is None:
            raise NotInHivm(op, f"converts {kinds[0].dtype()} to {kinds[1].dtype()}, which HIVM does not")
        narrowed = mode == "truncwithoverflow"
        temp = self.room(op, kinds[not narrowed].dtype()) if narrowed or kinds[0].dtype() == "i1" else None
        one = all(map(is_dense, kinds))
        properties: dict[str, Any] = {"round_mode": attrs.RoundMode(mode)}
        if not narrowed and "ui" in (kinds[0].dtype()[:2], kinds[1].dtype()[:2]):
            properties["cast"] = attrs.CastMode("cast_unsigned")
        self._add("vcast", [self._tile(source, op, one)], self._tile(out, op, one), temp, properties)

    def round_to(self, op: VRoundToOp) -> None:
        """A conversion with a rounding of its own."""
        kinds = buffer(op.source), buffer(op.dest)
        self._cast(op, op.source, op.dest, cast_mode(kinds[0].dtype(), kinds[1].dtype(), text(op.mode)))

    def fill(self, op: VFillOp) -> None:
        """A number in all elements."""
        assert isinstance(op.value, FloatAttr | IntegerAttr)
        kind = buffer(op.dest)
        if kind.dtype() == "i64":
            raise NotInHivm(op, "fills i64, which HIVM does not")
        number = self.emit.constant(op.value.value.data, element_of(kind.dtype()))
        dest = self._tile(op.dest, op, is_dense(kind))
        self.emit.add(made(VbrcOp, src=number, dst=dest))

    def broadcast(self, op: VBroadcastOp) -> None:
        """Dimensions of one element, repeated."""
        source, dest = buffer(op.source), buffer(op.dest)
        found = [d for d, (a, b) in enumerate(zip(source.shape, dest.shape, strict=True)) if a != b]
        if not found:
            axes = merged(axes_of(dest))
            self._copy(self.memory.tile(op.source, axes, op), self.memory.tile(op.dest, axes, op))
            return
        number = constant_in(op.source) if size(source.shape) == 1 else None
        if number is not None:
            value = self.emit.constant(number, element_of(source.dtype()))
            target = self._tile(op.dest, op, is_dense(dest))
            self.emit.add(made(VbrcOp, src=value, dst=target))
            return
        first, last = found[0], found[-1]
        if any(d not in found and dest.shape[d] != 1 for d in range(first, last + 1)):
            raise NotInHivm(op, "repeats dimensions that are no neighbours")
        outer, repeated = size(dest.shape[:first]), size(dest.shape[first : last + 1])
        inner = size(dest.shape[last + 1 :])
        if last < len(dest.shape) - 1:
            dense = dest.shape[-1] == padded_row(dest)
            if last != len(dest.shape) - 2 and not dense:
                inner_rows, columns = rows_and_columns(dest.shape[last + 1 :])
                axes = [TileAxis(inner_rows, padded_row(dest)), TileAxis(columns, 1)]
            else:
                axes = [TileAxis(inner, 1)]
            apart = inner if dense else padded_row(dest) * (inner // dest.shape[-1])
            wide = [TileAxis(outer, apart * repeated), TileAxis(repeated, apart), *axes]
            narrow = [TileAxis(outer, apart), TileAxis(1, apart), *axes]
            at = 1
            if outer == 1:
                wide, narrow, at = wide[1:], narrow[1:], 0
            self._repeat(op, narrow, wide, at, None)
            return
        if len(found) > 1:
            raise NotInHivm(op, "repeats rows and columns at once")
        wide = [TileAxis(outer, padded_row(dest)), TileAxis(repeated, 1)]
        narrow = [TileAxis(outer, padded_row(source)), TileAxis(1, 1)]
        self._repeat(op, narrow, wide, 1, self.room(op, dest.dtype()))

    def _repeat(
        self, op: VBroadcastOp, narrow: list[TileAxis], wide: list[TileAxis], at: int, temp: SSAValue | None
    ) -> None:
        source, dest = self.memory.tile(op.source, narrow, op), self.memory.tile(op.dest, wide, op)
        dims = DenseArrayBase.from_list(i64, [at])
        self.emit.add(made(VbrcOp, src=source, dst=dest, temp_buffer=temp, broadcast_dims=dims))

    def _copy(self, source: SSAValue, dest: SSAValue) -> None:
        self.emit.add(made(CopyOp, src=source, dst=dest))

    def reduce(self, op: VReduceOp) -> None:
        """A reduction of neighbouring dimensions."""
        source, dest, kind = buffer(op.source), buffer(op.dest), text(op.kind)
        form = reduced_form(op)
        names = {"and": "andi", "or": "ori"}
        dtype = source.dtype()
        if form is None:
            raise NotInHivm(op, "reduces dimensions that are no neighbours in memory")
        if dtype not in REDUCED:
            raise NotInHivm(op, f"reduces {dtype}, which HIVM has not")
        counted = to_ints(op.counted)
        inner_last = source.shape[-1] == 1 or form.inner > 1
        if len(counted) > 1:
            raise NotInHivm(op, "counts the first elements of several dimensions")
        count = counted[0] if counted else form.count
        if inner_last and len(source.shape) > 1 and max(to_ints(op.dims)) != len(source.shape) - 1:
            row = padded_row(source) * (form.inner // source.shape[-1])
            rest = (
                [TileAxis(form.inner, 1)]
                if form.inner == source.shape[-1] or source.shape[-1] == padded_row(source)
                else [TileAxis(form.inner // source.shape[-1], padded_row(source)), TileAxis(source.shape[-1], 1)]
            )
            axes = [TileAxis(form.outer, row * form.count), TileAxis(count, row), *rest]
            out = [TileAxis(form.outer, row), TileAxis(1, row), *rest]
            at = 1
            if form.outer == 1:
                axes, out, at = axes[1:], out[1:], 0
        elif form.outer == 1 and len(source.shape) == 1:
            axes, out, at = [TileAxis(count, 1)], [TileAxis(1, 1)], 0
        else:
            row = padded_row(source) * (form.count // rows_and_columns(source.shape)[1])
            axes = [TileAxis(form.outer, row), TileAxis(count, 1)]
            out = [TileAxis(form.outer, padded_row(dest)), TileAxis(1, 1)]
            at = 1
        temp = self.room(op, dtype)
        self.emit.add(
            made(
                VreduceOp,
                src=self.memory.tile(op.source, axes, op),
                dst=self.memory.tile(op.dest, out, op),
                temp_buffer=temp,
                arith=attrs.ReduceKind(names.get(kind, kind)),
                reduce_dims=DenseArrayBase.from_list(i64, [at]),
            )
        )

    def transpose(self, op: VTransposeOp) -> None:
        """Two dimensions exchanged, of at most three: those of one element count only where they are innermost."""
        source, dest, perm = buffer(op.source), buffer(op.dest), to_ints(op.perm)
        last = len(perm) - 1
        kept = [d for d in range(len(perm)) if source.shape[d] != 1 or d in (last, perm[last])]
        order = [kept.index(p) for p in perm if p in kept]
        if sum(d != p for d, p in enumerate(order)) > 2 or len(order) > 3:
            raise NotInHivm(op, f"brings {len(order)} dimensions into the order {order}")
        inside, outside = axes_of(source), axes_of(dest)
        operands = [
            self.memory.tile(op.source, [inside[d] for d in kept], op),
            self.memory.tile(op.dest, [outside[at] for at, p in enumerate(perm) if p in kept], op),
        ]
        if order == sorted(order):
            self._copy(*operands)
            return
        permutation = DenseArrayBase.from_list(i64, order)
        self.emit.add(made(VtransposeOp, src=operands[0], dst=operands[1], permutation=permutation))

    def iota(self, op: VIotaOp) -> None:
        """Numbers that count along a dimension."""
        kind, dim, step = buffer(op.dest), integer(op.dim), integer(op.step)
        if kind.dtype() not in ("i32", "i16", "f32", "f16"):
            raise NotInHivm(op, f"counts in {kind.dtype()}, which HIVM does not")
        axes, at = _counted(kind, dim)
        if not axes:
            raise NotInHivm(
                op, f"counts along dimension {dim} of a tile of {len(kind.shape)} with padded rows"
            )
        linear = op.linear()
        start: Number = self.emit.linear(linear[0]) if linear else 0
        strides = [self.emit.constant(step if d == at else 0, INDEX) for d in range(len(axes))]
        dest = self.memory.tile(op.dest, axes, op)
        self.emit.add(made(VarangeOp, dst=dest, offset=self.emit.index(start), strides=strides))

    def extract(self, op: VExtractOp) -> None:
        """A box of a tile; its rows must begin at whole blocks, since copies move these."""
        source, dest = buffer(op.source), buffer(op.dest)
        steps = to_ints(op.steps) or (1,) * len(source.shape)
        sizes, starts = to_ints(op.sizes), op.linear()
        whole = ROW_BYTES // itemsize(source.element)
        inner = starts[-1]
        aligned = inner.constant % whole == 0 and all(c % whole == 0 for _, c in inner.terms)
        if source.dtype() == "i1" or steps[-1] != 1 or not aligned:
            raise NotInHivm(op, "takes a part of a row that does not begin at a block of 32 bytes")
        if tuple(n for n in sizes if n != 1) != tuple(n for n in dest.shape if n != 1):
            raise NotInHivm(op, "gives the box other dimensions")
        axes = axes_of(source)
        offset: Number = 0
        places = [self.emit.linear(place) for place in starts]
        for place, axis in zip(places, axes, strict=True):
            offset = self.emit.plus(offset, self.emit.times(place, axis.stride))
        strides = [axis.stride * step for axis, step in zip(axes, steps, strict=True)]
        element = element_of(source.dtype())
        kind = memref(sizes, element, "ub", strides, offset)
        part = self.emit.value(
            SubviewOp.get(self.memory.tile(op.source, axes, op), places, list(sizes), list(steps), kind)
        )
        shaped = _spread(sizes, [a for a in axes_of(dest) if a.count != 1])
        self._copy(part, self.memory.tile(op.dest, shaped, op))


def _counted(kind: BufferType, dim: int) -> tuple[list[TileAxis], int]:
    """A tile's dimensions around the one along which it counts, and which of them that is; none where its rows are
    padded in between."""
    row = padded_row(kind)
    kept = [d for d, n in enumerate(kind.shape) if n != 1 or d in (dim, len(kind.shape) - 1)]
    shape, dim = [kind.shape[d] for d in kept], kept.index(dim)
    if dim == len(shape) - 1:
        rows = [TileAxis(size(shape[:-1]), row)] if size(shape[:-1]) > 1 else []
        return [*rows, TileAxis(shape[-1], 1)], len(rows)
    inner = size(shape[dim + 1 :])
    if dim != len(shape) - 2 and row != shape[-1]:
        return [], 0
    apart = row if dim == len(shape) - 2 else inner
    return [TileAxis(size(shape[:dim]), apart * shape[dim]), TileAxis(shape[dim], apart), TileAxis(inner, 1)], 1


def _spread(sizes: Sequence[int], axes: Sequence[TileAxis]) -> list[TileAxis]:
    """Axes for all sizes: those given, in order, for sizes other than 1."""
    left = list(axes)
    out = []
    for n in sizes:
        out.append(left.pop(0) if n != 1 else TileAxis(1, left[0].count * left[0].stride if left else 1))
    return out


_TABLE: dict[type[VectorOp], Callable[[VectorRules, Any], None]] = {
    ElementwiseVectorOp: VectorRules.elementwise,
    VRoundToOp: VectorRules.round_to,
    VFillOp: VectorRules.fill,
    VBroadcastOp: VectorRules.broadcast,
    VReduceOp: VectorRules.reduce,
    VTransposeOp: VectorRules.transpose,
    VIotaOp: VectorRules.iota,
    VExtractOp: VectorRules.extract,
}
_RULES: Rules[Callable[[VectorRules, Any], None]] = Rules(VectorOp, "", _TABLE)
