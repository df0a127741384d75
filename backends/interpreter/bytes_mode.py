"""On-chip memory in bytes mode: one array of words per memory space, buffers at their addresses.

Two buffers that overlap share their bytes, so a wrong address gives wrong values. Arithmetic is that of typed mode.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer
from ...dialects.dtypes import numpy_dtype, size
from ...dialects.npu import AllocOp, BufferType
from ...dialects.npu.interface import NpuOp, buffer
from ...dialects.npu.types import ROW_BYTES
from ...machine import Machine
from ..functions.scope import Scope, is_static_index, traced
from ..functions.values import cooked, raw, raw_dtype
from .liveness import slot_of
from .memory import known_indices, slot_index
from .wide import Wide, apart

WORD = np.dtype(np.uint32)


def to_words(x: Array) -> Array:
    """The bytes of a flat array as u32 words. Its bytes must fill whole words; i1 takes a byte each."""
    x = raw(x)
    if x.dtype == np.bool_:
        x = lax.convert_element_type(x, np.uint8)
    if x.dtype.kind == "c":
        x = lax.reshape(lax.concatenate([_column(lax.real(x)), _column(lax.imag(x))], 1), (2 * x.size,))
    width = x.dtype.itemsize
    if width == 4:
        return x if x.dtype == WORD else lax.bitcast_convert_type(x, WORD)
    if width > 4:
        return lax.reshape(lax.bitcast_convert_type(x, WORD), (x.size * width // 4,))
    return lax.bitcast_convert_type(lax.reshape(x, (x.size * width // 4, 4 // width)), WORD)


def from_words(words: Array, dtype: np.dtype) -> Array:
    """Flat u32 words as a flat array of `dtype`, or what `raw` makes of it."""
    dtype = raw_dtype(dtype)
    if dtype == np.bool_:
        return lax.ne(from_words(words, np.dtype(np.uint8)), np.uint8(0))
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = from_words(words, part)
        return lax.complex(pairs[0::2], pairs[1::2])
    width = dtype.itemsize
    if width == 4:
        return words if dtype == WORD else lax.bitcast_convert_type(words, dtype)
    if width > 4:
        return lax.bitcast_convert_type(lax.reshape(words, (words.size * 4 // width, width // 4)), dtype)
    return lax.reshape(lax.bitcast_convert_type(words, dtype), (words.size * 4 // width,))


def _column(x: Array) -> Array:
    return lax.reshape(x, (x.size, 1))


class BytesMemory:
    """`Memory` with a word array per memory space."""

    def __init__(self, scope: Scope, section: Operation, machine: Machine):
        self.scope = scope
        sizes: dict[str, int] = {}
        for op in section.walk():
            if isinstance(op, AllocOp):
                end = address_of(op) + buffer(op.result).slot_bytes * buffer(op.result).slots
                space = buffer(op.result).space
                if end > machine.spaces[space].bytes:
                    room = machine.spaces[space].bytes
                    raise VerifyException(f"{describe(op)} ends at byte {end} of {space}, which has {room}")
                sizes[space] = max(sizes.get(space, 0), end)
        self.blank = {s: lax.full((-(-n // 4),), np.uint32(0)) for s, n in sizes.items()}
        self.words = dict(self.blank)
        self.outside: list[dict[str, Array]] = []

    def read(self, value: SSAValue) -> Array:
        type_ = buffer(value)
        if type_.pitch:
            return self._read_pitched(value)
        rows, inner, row_words = _layout(type_)
        start, count = self._at(value), rows * row_words
        words = self.words[type_.space]
        found = (
            lax.slice(words, [start], [start + count])
            if is_static_index(start)
            else lax.dynamic_slice(words, [start], [count], allow_negative_indices=False)
        )
        dtype = numpy_dtype(type_.element)
        x = from_words(found, dtype)
        if x.size != rows * inner:
            x = lax.slice(lax.reshape(x, (rows, x.size // rows)), [0, 0], [rows, inner])
        return cooked(lax.reshape(x, type_.shape), dtype)

    def _words_of(self, value: SSAValue) -> tuple[int, int, int, int]:
        """Of a buffer with a pitch: the first word that it has a part of, how many, the elements in them before its
        first one, and the bytes of an element."""
        assert isinstance(value.owner, AllocOp)
        first, width = address_of(value.owner), numpy_dtype(buffer(value).element).itemsize
        word = first // WORD.itemsize
        end = -(-(first + buffer(value).slot_bytes) // WORD.itemsize)
        return word, end - word, (first - word * WORD.itemsize) // width, width

    def _elements_of(self, value: SSAValue) -> Array:
        """The elements in the words of a buffer with a pitch."""
        type_ = buffer(value)
        word, count, _, _ = self._words_of(value)
        found = lax.slice(self.words[type_.space], [word], [word + count])
        return from_words(found, numpy_dtype(type_.element))

    def _numbers_of(self, value: SSAValue) -> np.ndarray:
        """Which of these elements are the buffer's."""
        type_, (_, _, before, _) = buffer(value), self._words_of(value)
        inner = type_.shape[-1] if type_.shape else 1
        rows = np.arange(size(type_.shape[:-1]), dtype=np.int32)[:, None] * type_.pitch
        return before + (rows + np.arange(inner, dtype=np.int32)).reshape(-1)

    def _read_pitched(self, value: SSAValue) -> Array:
        type_ = buffer(value)
        found = self._elements_of(value)[self._numbers_of(value)]
        return cooked(lax.reshape(found, type_.shape), numpy_dtype(type_.element))

    def _write_pitched(self, value: SSAValue, x: Array) -> None:
        """Elements of other buffers between the rows stay as they are."""
        type_, numbers = buffer(value), self._numbers_of(value)
        flat = lax.reshape(raw(x), (numbers.size,))
        around = self._elements_of(value)
        inside = around.at[numbers].set(flat.astype(around.dtype), unique_indices=True)
        words = lax.optimization_barrier(to_words(inside))
        word, memory = self._words_of(value)[0], self.words[type_.space]
        at = lax.add(traced(word), lax.convert_element_type(self.scope.zero, np.int32))
        self.words[type_.space] = lax.dynamic_update_slice(memory, words, [at], allow_negative_indices=False)

    def wide(self, value: SSAValue) -> Wide | None:
        return None

    def write(self, value: SSAValue, x: Array | Wide) -> None:
        type_ = buffer(value)
        if type_.pitch:
            self._write_pitched(value, apart(x, ()))
            return
        rows, inner, row_words = _layout(type_)
        row = row_words * 4 // numpy_dtype(type_.element).itemsize
        x = lax.reshape(raw(apart(x, ())), (rows, inner))
        if row != inner:
            x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), (0, row - inner, 0)])
        # the barrier keeps the memory out of the computation, so that it is updated in place
        words = lax.optimization_barrier(to_words(lax.reshape(x, (rows * row,))))
        memory, at = self.words[type_.space], traced(self._at(value))
        if memory is self.blank[type_.space]:
            # At a known place XLA pads the words instead, with masked reads of what lies behind them. Where no memory
            # is mapped, these are slow: an LSTM once took seven times as long.
            at = lax.add(at, lax.convert_element_type(self.scope.zero, np.int32))
        self.words[type_.space] = lax.dynamic_update_slice(memory, words, [at], allow_negative_indices=False)

    def _at(self, value: SSAValue) -> Any:
        """First word of a buffer."""
        slot = slot_of(value, known_indices(self.scope))
        assert isinstance(slot.alloc.owner, AllocOp)
        first, step = address_of(slot.alloc.owner) // 4, buffer(value).slot_bytes // 4
        number = slot_index(slot, self.scope)
        return first + number * step if is_static_index(number) else number * np.int32(step) + np.int32(first)

    def _spaces(self, loop: scf.ForOp) -> list[str]:
        """The spaces that a loop writes."""
        found = {
            buffer(v).space
            for op in loop.walk()
            if isinstance(op, NpuOp)
            for v in op.writes()
            if isinstance(v.type, BufferType)
        }
        return sorted(found)

    def save(self, loop: scf.ForOp, zeroed: Collection[SSAValue] = ()) -> list[Array]:
        self.outside.append(dict(self.words))
        return self.take(loop)

    def take(self, loop: scf.ForOp) -> list[Array]:
        return [self.words[s] for s in self._spaces(loop)]

    def enter(self, loop: scf.ForOp, state: Sequence[Array]) -> None:
        self.words = self.outside[-1] | dict(zip(self._spaces(loop), state, strict=True))

    def leave(self, loop: scf.ForOp, state: Sequence[Array]) -> None:
        self.words = self.outside.pop() | dict(zip(self._spaces(loop), state, strict=True))


def address_of(alloc: AllocOp) -> int:
    """The address of a buffer in its space. Raises VerifyException before npu-allocate."""
    if alloc.address is None:
        raise VerifyException(f"{describe(alloc)} has no address: npu-allocate has not run")
    return integer(alloc.address)


def _layout(type_: BufferType) -> tuple[int, int, int]:
    """(rows, elements in a row, words that a row takes) of a slot."""
    inner = type_.shape[-1] if type_.shape else 1
    width = numpy_dtype(type_.element).itemsize
    return size(type_.shape[:-1]), inner, -(-inner * width // ROW_BYTES) * ROW_BYTES // 4
