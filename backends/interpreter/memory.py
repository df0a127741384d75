"""On-chip memory in typed mode: an array per buffer, values forwarded from writer to reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from jax import Array, lax
from xdsl.dialects import scf
from xdsl.ir import SSAValue

from ...dialects.dtypes import numpy_dtype
from ...dialects.npu.interface import buffer
from ..functions import values
from ..functions.scope import Scope, traced
from .accumulators import carried_shape
from .batching import Batch
from .liveness import Carried, Cell, Slot, slot_of
from .wide import Parts, Wide, apart, extents, mapped, together


class Memory(Protocol):
    """The on-chip memory of one core. A loop calls `save`; in its body `enter` and `take`; then `leave`."""

    def read(self, value: SSAValue) -> Array:
        """The contents of a buffer, in its shape and dtype; zeros where nothing was written."""
        ...

    def wide(self, value: SSAValue) -> Wide | None:
        """The contents of a buffer as one tile, if they were written so."""
        ...

    def write(self, value: SSAValue, x: Array | Wide) -> None: ...

    def save(self, loop: scf.ForOp, zeroed: Collection[SSAValue] = ()) -> list[Array]:
        """What the loop starts with; buffers that are `zeroed`, with zeros."""
        ...

    def enter(self, loop: scf.ForOp, state: Sequence[Array]) -> None:
        """Begin an iteration from `state`."""
        ...

    def take(self, loop: scf.ForOp) -> list[Array]:
        """What an iteration ends with."""
        ...

    def leave(self, loop: scf.ForOp, state: Sequence[Array]) -> None:
        """Go on after the loop, which ended with `state`."""
        ...


def slot_index(slot: Slot, scope: Scope) -> Any:
    """The number of a slot, an int or an i32 scalar."""
    if not slot.number.terms:
        return slot.number.constant
    at = scope.evaluate(slot.number)
    return lax.rem(traced(at.value), np.int32(buffer(slot.alloc).slots))


def known_indices(scope: Scope) -> dict[SSAValue, int]:
    """The indices in scope that have one value."""
    return {v: o.value for v, o in scope.index.items() if isinstance(o.value, int)}


@dataclass(frozen=True)
class _Contents:
    """`whole` [slots, *lead, *shape] as it was before the `pending` writes to single slots."""

    whole: Array | None = None
    pending: tuple[tuple[Slot, Array | Wide], ...] = ()


_EMPTY = _Contents()


class TypedMemory:
    """`Memory` with an array per buffer, kept as `values.raw`, with `lead` leading dimensions for batched
    indices.

    The iterations of a batched index have buffers of their own, so it does not select slots.
    """

    def __init__(
        self,
        scope: Scope,
        carried: Carried,
        batch: Batch,
        sides: Mapping[SSAValue, Parts],
    ):
        """`sides`: how the tiles lie in accumulators that go through loops as one matrix."""
        self.scope = scope
        self.carried = carried
        self.batch = batch
        self.sides = sides
        self.fixed = dict.fromkeys(batch.counts, 0)
        self.lead = (1,) * batch.rank
        self.contents: dict[SSAValue, _Contents] = {}
        self.outside: list[dict[SSAValue, _Contents]] = []

    def slot(self, value: SSAValue) -> Slot:
        return slot_of(value, known_indices(self.scope) | self.fixed)

    def read(self, value: SSAValue) -> Array:
        return values.cooked(self._read(self.slot(value)), numpy_dtype(buffer(value).element))

    def wide(self, value: SSAValue) -> Wide | None:
        x = self._wide(self.slot(value))
        return None if x is None else replace(x, x=values.cooked(x.x, numpy_dtype(buffer(value).element)))

    def _wide(self, slot: Slot) -> Wide | None:
        for other, x in reversed(self.contents.get(slot.alloc, _EMPTY).pending):
            if other == slot and isinstance(x, Wide):
                return x
            if not other.differs(slot):
                break
        return None

    def together(self, value: SSAValue, parts: Parts) -> Array:
        """The contents of a buffer as one tile, in which those of batched iterations lie as `parts` say."""
        x = self._together(self.slot(value), parts)
        return values.cooked(x, numpy_dtype(buffer(value).element))

    def _together(self, slot: Slot, parts: Parts) -> Array:
        shape, found = buffer(slot.alloc).shape, self._wide(slot)
        if found is not None and (found.parts, found.x.shape) == (
            parts,
            extents(shape, parts, self.batch.sizes),
        ):
            return found.x
        return together(self._read(slot), shape, parts, self.batch.sizes).x

    def _read(self, slot: Slot) -> Array:
        contents = self.contents.get(slot.alloc, _EMPTY)
        for other, x in reversed(contents.pending):
            if other == slot:
                return apart(x, self.batch.sizes)
            if not other.differs(slot):
                self._flush(slot.alloc)
                break
        whole = self.contents.get(slot.alloc, _EMPTY).whole
        if whole is None:
            return self._zeros(slot.alloc)
        return lax.dynamic_index_in_dim(whole, traced(slot_index(slot, self.scope)), keepdims=False)

    def _zeros(self, alloc: SSAValue) -> Array:
        type_ = buffer(alloc)
        return self.scope.zeros((*self.lead, *type_.shape), values.raw_dtype(numpy_dtype(type_.element)))

    def write(self, value: SSAValue, x: Array | Wide) -> None:
        self._write(self.slot(value), mapped(values.raw, x))

    def _write(self, slot: Slot, x: Array | Wide) -> None:
        old = self.contents.get(slot.alloc, _EMPTY)
        pending = tuple(p for p in old.pending if p[0] != slot)
        self.contents[slot.alloc] = _Contents(old.whole, (*pending, (slot, x)))

    def _flush(self, alloc: SSAValue) -> Array:
        """Bring all pending writes into the whole array [slots, *shape]."""
        contents, type_ = self.contents.get(alloc, _EMPTY), buffer(alloc)
        whole = contents.whole
        if whole is None:
            dtype = values.raw_dtype(numpy_dtype(type_.element))
            whole = self.scope.zeros((type_.slots, *self.lead, *type_.shape), dtype)
        pending = [(slot, apart(x, self.batch.sizes)) for slot, x in contents.pending]
        shape = np.broadcast_shapes(whole.shape[1:], *(x.shape for _, x in pending))
        whole = lax.broadcast_in_dim(whole, (type_.slots, *shape), range(whole.ndim))
        for slot, x in pending:
            x = lax.broadcast_in_dim(x, shape, range(x.ndim))
            whole = lax.dynamic_update_index_in_dim(whole, x, traced(slot_index(slot, self.scope)), 0)
        self.contents[alloc] = _Contents(whole)
        return whole

    def save(self, loop: scf.ForOp, zeroed: Collection[SSAValue] = ()) -> list[Array]:
        state = [
            self._nothing(c) if c.alloc in zeroed and c.slot is not None else self._state(c)
            for c in self.carried.cells[loop]
        ]
        self.outside.append(dict(self.contents))
        return state

    def take(self, loop: scf.ForOp) -> list[Array]:
        return [self._state(c) for c in self.carried.cells[loop]]

    def _state(self, cell: Cell) -> Array:
        """The contents of a cell as a loop carries them."""
        if cell.slot is not None and cell.alloc in self.sides:
            return self._together(cell.slot, self.sides[cell.alloc])
        x, shape = self._flush(cell.alloc) if cell.slot is None else self._read(cell.slot), self._shape(cell)
        return lax.broadcast_in_dim(x, shape, range(x.ndim)) if shape != x.shape else x

    def _nothing(self, cell: Cell) -> Array:
        """Zeros, as a loop carries them."""
        return self.scope.zeros(self._shape(cell), values.raw_dtype(numpy_dtype(buffer(cell.alloc).element)))

    def _shape(self, cell: Cell) -> tuple[int, ...]:
        if cell.slot is not None:
            return carried_shape(cell.alloc, self.batch, self.sides)
        return (buffer(cell.alloc).slots, *carried_shape(cell.alloc, self.batch, {}))

    def enter(self, loop: scf.ForOp, state: Sequence[Array]) -> None:
        self.contents = dict(self.outside[-1])
        for alloc in self.carried.written[loop]:
            self.contents[alloc] = _EMPTY
        for cell, x in zip(self.carried.cells[loop], state, strict=True):
            if cell.slot is None:
                self.contents[cell.alloc] = _Contents(x)
            else:
                self.contents[cell.alloc] = _Contents(None, ((cell.slot, self._tiles(cell, x)),))

    def leave(self, loop: scf.ForOp, state: Sequence[Array]) -> None:
        before = self.outside.pop()
        self.contents = dict(before)
        for alloc in self.carried.written[loop]:
            self.contents[alloc] = _EMPTY
        for cell, x in zip(self.carried.cells[loop], state, strict=True):
            if cell.slot is None:
                self.contents[cell.alloc] = _Contents(x)
            else:
                self.contents[cell.alloc] = before.get(cell.alloc, _EMPTY)
                self._write(cell.slot, self._tiles(cell, x))

    def _tiles(self, cell: Cell, x: Array) -> Array | Wide:
        """What a loop carries, as the contents of a cell."""
        parts = self.sides.get(cell.alloc)
        return x if parts is None else Wide(x, buffer(cell.alloc).shape, parts)
