"""Walks a kernel's grid, sections and loops; each level supplies the execution of the ops inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from jax import Array, lax
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import GmType
from ...dialects.npu.interface import fill_value, gm
from ...dialects.open_index import OpenIndexOp
from ...dialects.open_sizes import any_open
from ..functions import values
from ..functions.scope import Offset, RunTimeSizes, Scope, is_static_index, most, traced
from ..functions.turns import in_order
from . import boxes, open_boxes
from .instructions import ints_of, offsets_of, steps_of
from .liveness import runs_once
from .views import View


@dataclass(frozen=True)
class CoreGroup:
    """A group of cores: those whose coordinate on grid axis `axis` is one of the `count` from `start` on."""

    axis: int
    start: Offset
    count: int


@dataclass(frozen=True)
class Local:
    """How a group of cores stores: its `tensors` hold only what the group writes, so the coordinate `index` counts
    from the start of the `part`. `tensors[t]`: the whole shape, and the dimension that is shorter here and its length.
    """

    index: SSAValue
    part: CoreGroup
    tensors: Mapping[int, tuple[Sequence[int], int, int]]

    def view(self, tensor: int, view: View) -> View:
        """A view of what is here of a tensor."""
        here = view.of_part(*self.tensors[tensor]) if tensor in self.tensors else view
        assert here is not None
        return here

    def scope(self, scope: Scope, tensor: int) -> Scope:
        """The index values to use for a store to `tensor`."""
        if tensor not in self.tensors:
            return scope
        at, start = scope.index[self.index], self.part.start
        if at is start:
            here = Offset.known(0)
        else:
            here = Offset(at.value - start.value, 0, self.part.count - 1)
        return replace(scope, index={**scope.index, self.index: here})


def coordinates(i: Any, counts: Sequence[int], sizes: RunTimeSizes) -> list[Offset]:
    """Position number `i` (i32) of a box of `counts`, the last dimension fastest."""
    out: list[Offset] = []
    if any_open(counts):
        return _open_coordinates(i, counts, sizes)
    total = prod(counts)
    for d in reversed(range(len(counts))):
        n = counts[d]
        if n == 1:
            out.append(Offset.known(0))
        elif n == total:
            out.append(Offset(i, 0, n - 1))
        else:
            rest = _quotient(i, n, total)
            out.append(Offset(lax.sub(i, lax.mul(rest, np.int32(n))), 0, n - 1))
            i, total = rest, total // n
    return out[::-1]


def _open_coordinates(i: Any, counts: Sequence[int], sizes: RunTimeSizes) -> list[Offset]:
    """`coordinates` where some counts are known only at run time."""
    out: list[Offset] = []
    moving = [d for d, n in enumerate(counts) if most(n) > 1]
    for d in reversed(range(len(counts))):
        if d not in moving:
            out.append(Offset.known(0))
        elif d == moving[0]:
            out.append(Offset(i, 0, most(counts[d]) - 1))
        else:
            n = traced(sizes.value(counts[d]))
            rest = lax.div(i, n)
            out.append(Offset(lax.sub(i, lax.mul(rest, n)), 0, most(counts[d]) - 1))
            i = rest
    return out[::-1]


def _quotient(i: Any, n: int, total: int) -> Any:
    """`i // n` for 0 <= i < total, as a product and a shift where that is exact: XLA repeats these wherever the
    quotient is needed, while it compiles a division by itself.

    With m = 2^s // n + 1 = (2^s + e) / n, 0 < e <= n: i * m / 2^s = i / n + i * e / (n * 2^s), which has the same floor
    if i * e < 2^s.
    """
    for s in range(31):
        m = (1 << s) // n + 1
        if (total - 1) * (m * n - (1 << s)) < 1 << s and (total - 1) * m < 1 << 31:
            return lax.shift_right_logical(lax.mul(i, np.int32(m)), np.int32(s))
    return lax.div(i, np.int32(n))


class GridWalker:
    """The state of a kernel while its ops are traced.

    `tensors` holds the current array of each device tensor (see `values.raw`), `where[value]` the tensor and
    the view that an argument or view stands for.
    """

    SECTION: type[Any]
    VIEW: type[Any]

    def __init__(self, kernel: Any, zero: Array):
        self.kernel = kernel
        self.scope = Scope(zero)
        self.tensors: dict[int, Array] = {}
        self.where: dict[SSAValue, tuple[int, View]] = {}
        self.local: Local | None = None
        self.written_by: dict[Operation, list[int]] = {}

    def section(self, op: Any) -> None:
        """Run a section for one core."""
        raise NotImplementedError

    def execute(self, op: Operation) -> None:
        raise NotImplementedError

    def stored_to(self, op: Operation) -> Sequence[SSAValue]:
        """The device tensors that one op writes."""
        raise NotImplementedError

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.execute(op)

    def bind(self, argument: SSAValue, tensor: int, view: View) -> None:
        """Let a block argument stand for a view of a tensor."""
        self.where[argument] = (tensor, view)

    # -- control -------------------------------------------------------------------------------------------

    def run(self, part: CoreGroup | None = None) -> None:
        """Run all cores, or a part of them."""
        self.bind_views()
        self.grid(range(len(to_ints(self.kernel.grid))), part, self._sections)

    def bind_views(self) -> None:
        for op in self.kernel.walk():
            if isinstance(op, self.VIEW):
                tensor, view = self.where[op.source][0], View.of(gm(op.result))
                self.where[op.result] = tensor, view if self.local is None else self.local.view(tensor, view)

    def grid(self, axes: Sequence[int], part: CoreGroup | None, body: Callable[[], None]) -> None:
        """`body` for all coordinates along `axes`, in one loop; for those of the `part` along its axis."""
        sizes = to_ints(self.kernel.grid)
        counts = [sizes[axis] if part is None or axis != part.axis else part.count for axis in axes]
        total = prod(counts)
        # a loop along the axis of the part alone counts from its start
        only = part is not None and part.axis in axes and part.count == total

        def core(i: Any, state: Sequence[Array]) -> Sequence[Array]:
            for axis, at in zip(axes, coordinates(i, counts, self.scope.sizes), strict=True):
                if part is not None and axis == part.axis:
                    value = i if only else lax.add(traced(at.value), traced(part.start.value))
                    at = Offset(value, part.start.low, part.start.high + part.count - 1)
                self.scope.index[self.kernel.body.block.args[axis]] = at
            body()
            return state

        first = part.start.value if part is not None and only else 0
        if runs_once(total):
            core(first, [])
        else:
            self.repeat(first, total, core, self.kernel, [])

    def _each(self, index: SSAValue, size: int, body: Callable[[], None], scope: Operation) -> None:
        """`body` for each value of `index` in [0, size)."""
        if size == 1:
            self.scope.index[index] = Offset.known(0)
            body()
            return

        def step(i: Any, state: Sequence[Array]) -> Sequence[Array]:
            self.scope.index[index] = Offset(i, 0, size - 1)
            body()
            return state

        self.repeat(0, size, step, scope, [])

    def sections(self) -> Sequence[Any]:
        """The sections in the order they run, after executing what stands around them."""
        block = self.kernel.body.block
        found = [op for op in block.ops if isinstance(op, self.SECTION)]
        for op in block.ops:
            if op not in found:
                self.execute(op)
        return in_order(self.kernel)

    def _sections(self) -> None:
        for section in self.sections():
            self.units(section)

    def units(self, section: Any) -> None:
        """A section on each of its units."""
        units = integer(section.units)
        unit = section.body.block.args[0]
        self._each(unit, units, lambda: self.section(section), section)

    def repeat(
        self,
        first: Any,
        count: int,
        step: Callable[[Any, Sequence[Array]], Sequence[Array]],
        scope: Operation | Sequence[Operation],
        state: Sequence[Array],
    ) -> Sequence[Array]:
        """`state = step(i, state)` for each of `count` values i from `first` on, which may be open; device tensors that
        `scope` writes, one op or several, are carried too."""
        roots, limit = self._written(scope), self.scope.sizes.value(count)

        def body(
            carry: tuple[Any, Any, list[Array], list[Array]],
        ) -> tuple[Any, Any, list[Array], list[Array]]:
            i, _, tensors, inner = carry
            self.tensors.update(zip(roots, tensors, strict=True))
            inner = list(step(i, inner))
            # XLA compiles an op that it does not fuse as a program of its own, which takes as long as a large fusion.
            # So 1 is added in two ops, and whether to go on is found here.
            after = lax.neg(lax.bitwise_not(i))
            done = after if is_static_index(first) and not first else lax.sub(after, traced(first))
            return after, lax.lt(done, traced(limit)), [self.tensors[r] for r in roots], inner

        begins = np.bool_(limit > 0) if is_static_index(limit) else lax.gt(limit, np.int32(0))
        start = (traced(first), begins, [self.tensors[r] for r in roots], list(state))
        _, _, tensors, end = lax.while_loop(lambda c: c[1], body, start)
        self.tensors.update(zip(roots, tensors, strict=True))
        return end

    def _written(self, scope: Operation | Sequence[Operation]) -> list[int]:
        """The device tensors that the ops inside `scope` write."""
        if not isinstance(scope, Operation):
            return sorted({tensor for op in scope for tensor in self._written(op)})
        found = self.written_by.get(scope)
        if found is None:
            targets = [v for op in scope.walk() for v in self.stored_to(op)]
            found = sorted({self.where[v][0] for v in targets if isinstance(v.type, GmType)})
            self.written_by[scope] = found
        return found

    def constant(self, op: arith.ConstantOp) -> None:
        assert isinstance(op.value, IntegerAttr)
        self.scope.index[op.result] = Offset.known(op.value.value.data)

    def size(self, op: OpenIndexOp) -> None:
        self.scope.index[op.result] = self.scope.sizes.offset(op.number)

    # -- device memory: ops of both levels, with the same properties -----------------------------------------

    def load_box(self, op: Any, source: SSAValue, shape: Sequence[int]) -> Array:
        """The box that a load addresses, in the device tensor's dtype."""
        dtype = numpy_dtype(gm(source).element)
        fill = values.raw_scalar(fill_value(op.properties.get("fill")), dtype)
        x = self._taken(source, offsets_of(op, self.scope), ints_of(op, "sizes"), steps_of(op), fill, shape)
        return values.cooked(x, dtype)

    def _taken(
        self,
        source: SSAValue,
        offsets: Sequence[Offset],
        sizes: Sequence[int],
        steps: Sequence[int],
        fill: np.ndarray,
        shape: Sequence[int],
    ) -> Array:
        """A box of a device tensor, as it is held."""
        tensor, view = self.where[source]
        if view.is_open:
            return open_boxes.load(
                self.tensors[tensor], view, offsets, sizes, steps, fill, shape, self.scope.sizes
            )
        return boxes.load(self.tensors[tensor], view, offsets, sizes, steps, fill, shape)

    def store_box(self, op: Any, x: Array, dest: SSAValue, words: Array | None = None) -> None:
        """Write a tile to the box that a store addresses, converted to the device tensor's dtype. words: those by which
        its columns are scaled."""
        tensor, view = self.where[dest]
        dtype = numpy_dtype(gm(dest).element)
        x = values.drained(op, x, dtype, words)
        scope = self.scope if self.local is None else self.local.scope(self.scope, tensor)
        place = (offsets_of(op, scope), ints_of(op, "sizes"), steps_of(op))
        nothing = values.raw_scalar(0, dtype)
        x = values.raw(
            values.accumulated(op, lambda: self._taken(dest, *place, nothing, x.shape), x, dtype)
        )
        if view.is_open:
            self.tensors[tensor] = open_boxes.store(self.tensors[tensor], view, x, *place, scope.sizes)
        else:
            self.tensors[tensor] = boxes.store(self.tensors[tensor], view, x, *place)

    def load_boxes(self, op: Any, index: Array, shape: Sequence[int]) -> Array:
        """The boxes that an indirect load addresses, in the device tensor's dtype."""
        tensor, view = self.where[op.source]
        if view.is_open:
            x = open_boxes.gather_boxes(
                self.tensors[tensor], view, index, to_ints(op.sizes), self.scope.sizes
            )
        else:
            x = boxes.gather_boxes(self.tensors[tensor], view, index, to_ints(op.sizes))
        return values.cooked(lax.reshape(x, tuple(shape)), numpy_dtype(gm(op.source).element))

    def load_scalar(self, op: Any) -> None:
        """One integer of a device tensor as an index, clamped to [low, high]."""
        offsets, dtype = offsets_of(op, self.scope), self.tensors[self.where[op.source][0]].dtype
        ones = [1] * len(offsets)
        self.clamped(op, self._taken(op.source, offsets, ones, ones, values.scalar(0, dtype), ()))

    def clamped(self, op: Any, x: Array) -> None:
        """An integer as the index that an op gives, clamped to its [low, high]."""
        low, high = self.scope.sizes.offset(integer(op.low)), self.scope.sizes.offset(integer(op.high))
        ends = [
            values.scalar(end.value, x.dtype)
            if is_static_index(end.value)
            else lax.convert_element_type(end.value, x.dtype)
            for end in (low, high)
        ]
        x = lax.clamp(ends[0], x, ends[1])
        self.scope.index[op.result] = Offset(lax.convert_element_type(x, np.int32), low.low, high.high)
