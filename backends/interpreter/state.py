"""Device memory while a host program runs: an array per tensor, or one arena of words with real addresses.

A `root` is the SSA value of a whole tensor: a function argument, an allocation or a constant. All other
device values of the program are views of one. Values in the host's memory are roots, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from jax import Array, lax
from jax.core import Tracer
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects.dtypes import is_complex, numpy_dtype, paired, shape_in, size, tensor
from ...dialects.npu import GmType
from ...dialects.npu.interface import gm
from ...dialects.open_sizes import any_open
from ..functions.scope import Offset, RunTimeSizes, is_static_index, traced
from ..functions.values import cooked, joined, on_device, raw, raw_array, raw_dtype, side_by_side
from . import boxes, open_boxes
from .bytes_mode import from_words, to_words
from .open_boxes import refit, room
from .views import View, realise


def on_host(value: SSAValue) -> bool:
    """Whether a value is in the host's memory."""
    return isinstance(value.type, TensorType)


def storage(value: SSAValue) -> GmType:
    """How a value of the host program is held: the type of the device tensor, or of one like the host's. Device tensors
    of complex numbers are held as their parts, side by side, so that views of them as such move nothing."""
    kind = value.type
    if isinstance(kind, TensorType):
        return GmType.of(shape_in(kind), kind.element_type)
    found = gm(value)
    if not is_complex(found.element):
        return found
    held = paired(tensor(found.shape, found.element))
    return GmType.of(shape_in(held), held.element_type)


def held(x: Any, own: bool = False) -> Array:
    """An array of the host as a device tensor holds it. own: as `on_device` has it."""
    if isinstance(x, Tracer):
        return side_by_side(x)
    if np.dtype(x.dtype).kind != "c":
        return on_device(x, own)
    whole = np.ascontiguousarray(x)
    return on_device(whole.reshape(-1).view(np.real(whole).dtype).reshape(*x.shape, 2))


def given(x: Any, value: SSAValue) -> Array:
    """What a device tensor holds as the array of the host that `value`, the tensor, stands for."""
    element = gm(value).element
    if not is_complex(element):
        return x
    if isinstance(x, Tracer):
        return joined(x)
    return on_device(np.ascontiguousarray(x).reshape(-1).view(numpy_dtype(element)).reshape(x.shape[:-1]))


class State(Protocol):
    """The contents of all roots. sizes: what open sizes are; code: what was compiled for them, by what it is of."""

    sizes: RunTimeSizes
    code: Mapping[Any, Any]

    def defined(self, root: SSAValue) -> bool:
        """Whether something was written to the tensor."""
        ...

    def get(self, root: SSAValue) -> Array: ...

    def set(self, root: SSAValue, x: Array) -> None: ...

    def save(self, roots: Sequence[SSAValue]) -> list[Array]:
        """What a loop that writes `roots` carries."""
        ...

    def restore(self, roots: Sequence[SSAValue], saved: Sequence[Array]) -> None: ...

    def drop(self, roots: Sequence[SSAValue]) -> None:
        """Forget tensors that nothing uses any more."""
        ...

    def fork(self, roots: Sequence[SSAValue], saved: Sequence[Array]) -> State:
        """A state of its own for one iteration or branch, which begins with `saved`."""
        ...

    def enter(
        self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], empty: Sequence[SSAValue]
    ) -> None:
        """Binds the arguments of a function to the tensors it is called with; those that are `empty` hold nothing."""
        ...

    def leave(self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], outputs: int) -> None:
        """What the function wrote is in the caller's tensors from now on."""
        ...


class TypedState:
    """An array for each root."""

    def __init__(
        self,
        contents: Mapping[SSAValue, Array],
        sizes: RunTimeSizes | None = None,
        code: Mapping[Any, Any] | None = None,
    ):
        self.contents = dict(contents)
        self.sizes, self.code = sizes or RunTimeSizes(), code or {}

    def defined(self, root: SSAValue) -> bool:
        return root in self.contents

    def get(self, root: SSAValue) -> Array:
        found = self.contents.get(root)
        if found is None:
            type_ = storage(root)
            return lax.full(room(type_.shape), np.zeros((), numpy_dtype(type_.element)))
        return found

    def set(self, root: SSAValue, x: Array) -> None:
        self.contents[root] = x

    def save(self, roots: Sequence[SSAValue]) -> list[Array]:
        return [self.get(r) for r in roots]

    def restore(self, roots: Sequence[SSAValue], saved: Sequence[Array]) -> None:
        self.contents.update(zip(roots, saved, strict=True))

    def drop(self, roots: Sequence[SSAValue]) -> None:
        for r in roots:
            self.contents.pop(r, None)

    def fork(self, roots: Sequence[SSAValue], saved: Sequence[Array]) -> State:
        return TypedState(self.contents | dict(zip(roots, saved, strict=True)), self.sizes, self.code)

    def enter(
        self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], empty: Sequence[SSAValue]
    ) -> None:
        for arg, root in zip(arguments, roots, strict=True):
            if arg not in empty:
                self.contents[arg] = refit(self.get(root), room(storage(arg).shape))
        self.drop(empty)

    def leave(self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], outputs: int) -> None:
        inputs = len(arguments) - outputs
        for arg, root in zip(arguments[inputs:], roots[inputs:], strict=True):
            self.contents[root] = refit(self.get(arg), room(storage(root).shape))
        self.drop(arguments)


class ArenaState:
    """All roots in one array of u32 words; `address` gives each one's first word (int or i32 scalar). `numbers`:
    what the host has in its own memory."""

    def __init__(
        self,
        words: Array,
        address: Mapping[SSAValue, Any],
        numbers: Mapping[SSAValue, Array] = {},
        sizes: RunTimeSizes | None = None,
        code: Mapping[Any, Any] | None = None,
    ):
        self.words, self.address, self.numbers = words, address, dict(numbers)
        self.sizes, self.code = sizes or RunTimeSizes(), code or {}

    def defined(self, root: SSAValue) -> bool:
        return True

    def get(self, root: SSAValue) -> Array:
        if on_host(root):
            return self.numbers[root]
        type_ = _roomy(storage(root))
        count = -(-type_.bytes // 4)
        if not isinstance(self.words, Tracer):
            return _taken(self.words, int(self.address[root]), type_)
        words = lax.dynamic_slice(
            self.words, [traced(self.address[root])], [count], allow_negative_indices=False
        )
        dtype = numpy_dtype(type_.element)
        flat = lax.slice(from_words(words, dtype), [0], [size(type_.shape)])
        return cooked(lax.reshape(flat, type_.shape), dtype)

    def set(self, root: SSAValue, x: Array) -> None:
        if on_host(root):
            self.numbers[root] = x
            return
        if not isinstance(self.words, Tracer) and self.words.size <= SMALL_WORDS:
            memory = np.array(self.words)
            fill(memory, int(self.address[root]), np.asarray(unseated(x, storage(root), self.sizes)))
            self.words = on_device(memory)
            return
        words, first = lax.optimization_barrier(whole_words(x)), [traced(self.address[root])]
        count = self.sizes.value(-(-storage(root).bytes // 4))
        if not is_static_index(count):  # what lies behind its end is another tensor's
            old = lax.dynamic_slice(self.words, first, [words.size], allow_negative_indices=False)
            own = lax.lt(lax.iota(np.int32, words.size), lax.broadcast(count, (words.size,)))
            words = lax.select(own, words, old)
        self.words = lax.dynamic_update_slice(self.words, words, first, allow_negative_indices=False)

    def save(self, roots: Sequence[SSAValue]) -> list[Array]:
        return [self.words, *(self.numbers[r] for r in roots if on_host(r))]

    def restore(self, roots: Sequence[SSAValue], saved: Sequence[Array]) -> None:
        self.words, *numbers = saved
        self.numbers.update(zip(filter(on_host, roots), numbers, strict=True))

    def drop(self, roots: Sequence[SSAValue]) -> None:
        for r in roots:  # what is in device memory stays there
            self.numbers.pop(r, None)

    def fork(self, roots: Sequence[SSAValue], saved: Sequence[Array]) -> State:
        inner = ArenaState(saved[0], self.address, self.numbers, self.sizes, self.code)
        inner.restore(roots, saved)
        return inner

    def enter(
        self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], empty: Sequence[SSAValue]
    ) -> None:
        self.address = {**self.address, **dict(zip(arguments, (self.address[r] for r in roots), strict=True))}

    def leave(self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], outputs: int) -> None:
        pass  # it wrote there itself


SMALL_WORDS = 1 << 20
"""Up to this size numpy reads and writes device memory between compiled steps: XLA would compile a copy for each shape,
which takes longer than the copy."""


def fill(memory: np.ndarray, at: int, x: np.ndarray) -> None:
    """Writes an array into u32 words from word `at` on; what is left of the last one becomes 0."""
    data = np.ascontiguousarray(raw_array(x)).reshape(-1).view(np.uint8)
    whole = memory[at : at - (-data.size // 4)].view(np.uint8)
    whole[: data.size], whole[data.size :] = data, 0


def _roomy(type_: GmType) -> GmType:
    """The type of what holds a tensor, with room for its largest sizes."""
    return GmType.of(room(type_.shape), type_.element) if any_open(type_.shape) else type_


def _taken(words: Array, at: int, type_: GmType) -> Array:
    """The tensor at word `at`, which nothing is compiled for."""
    dtype = numpy_dtype(type_.element)
    held = raw_dtype(dtype)
    first = 4 * at
    data = np.from_dlpack(cast(Any, words)).view(np.uint8)[first : first + size(type_.shape) * held.itemsize]
    x = (data != 0) if held == np.bool_ else data.view(held)
    return cooked(on_device(x.reshape(type_.shape).copy()), dtype)


def whole_words(x: Array) -> Array:
    """The bytes of a tensor as u32 words, the last one filled up with zeros."""
    flat = lax.reshape(raw(x), (x.size,))
    missing = -(x.size * x.dtype.itemsize) % 4 // x.dtype.itemsize
    if missing:
        flat = lax.pad(flat, np.zeros((), flat.dtype), [(0, missing, 0)])
    return to_words(flat)


def read_view(whole: Array, type_: GmType, sizes: RunTimeSizes) -> Array:
    """What a value of `type_` shows of its root's contents, dense."""
    view = View.of(type_)
    if view.is_open:
        return open_boxes.read(whole, view, sizes)
    if type_.dense and whole.size == size(type_.shape):
        return lax.reshape(whole, type_.shape)
    return realise(whole, view)


def write_view(whole: Array, type_: GmType, x: Array, sizes: RunTimeSizes) -> Array:
    """The root's contents after the value of `type_` was set to x."""
    view = View.of(type_)
    if view.is_open:
        return open_boxes.write(whole, view, x, sizes)
    if type_.dense and x.size == whole.size:
        return lax.reshape(x, whole.shape)
    zeros = [Offset.known(0)] * len(type_.shape)
    x = lax.reshape(x, type_.shape)
    return boxes.store(whole, view, x, zeros, type_.shape, [1] * len(type_.shape))


def seated(x: Any, type_: GmType) -> Array:
    """An array of the host in one with room for its largest sizes."""
    shape = room(type_.shape)
    if tuple(x.shape) == shape:
        return on_device(x)
    whole = np.zeros(size(shape), x.dtype)
    whole[: x.size] = np.asarray(x).reshape(-1)
    return on_device(whole.reshape(shape), own=True)


def unseated(x: Array, type_: GmType, sizes: RunTimeSizes) -> Array:
    """The inverse of `seated`, where sizes are numbers."""
    if not any_open(type_.shape):
        return x
    shape = tuple(sizes.value(n) for n in type_.shape)
    if tuple(x.shape) == shape:
        return x
    return on_device(np.asarray(x).reshape(-1)[: size(shape)].reshape(shape).copy(), own=True)
