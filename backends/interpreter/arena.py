"""The initial contents of a program's device memory in bytes mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.npu import structure
from ...dialects.npu.host_program import DeviceTensorOp
from .compiling import xla_jit
from .hostprogram import HostProgram
from .open_boxes import room
from .scope import RunTimeSizes
from .state import SMALL_WORDS, ArenaState, State, fill, storage, whole_words
from .values import on_device


class Arena:
    """Device memory of a program as u32 words: where each root is, and the words between two calls.

    Every call starts with zeros, constants and arguments. They are written into the memory of the call before, since
    fresh memory of this size costs the operating system more time than the copy itself.
    """

    def __init__(self, host: HostProgram):
        size = host.main.attributes.get("npu.arena_bytes")
        addresses = host.main.attributes.get("npu.addresses")
        if not isinstance(size, IntegerAttr) or not isinstance(addresses, DenseArrayBase):
            raise VerifyException("@main has no addresses: npu-plan-memory has not run")
        self.words = -(-size.value.data // 4)
        self.block = host.block
        first = [n // 4 for n in to_ints(addresses)]
        self.address: dict[SSAValue, Any] = dict(zip(host.block.args, first, strict=True))
        self.constants: list[tuple[int, np.ndarray]] = []
        self.kept: Array | None = None
        for op in host.ops():
            if isinstance(op, DeviceTensorOp):
                if op.address is None:
                    raise VerifyException(f"{describe(op)} has no address: npu-plan-memory has not run")
                self.address[op.result] = integer(op.address) // 4
                if isinstance(op, structure.GmConstantOp):
                    self.constants.append((self.address[op.result], op.value.data.array()))

    def start(
        self,
        arrays: Sequence[Array],
        sizes: RunTimeSizes,
        code: Mapping[Any, Any],
        addresses: Sequence[int] | None = None,
    ) -> ArenaState:
        """The memory with the program's constants and arguments in place. sizes, code: as `State` has them. addresses:
        None, since the program says them."""
        del addresses
        arguments = [(self.address[arg], x) for arg, x in zip(self.block.args, arrays, strict=True)]
        contents = [(at, x) for at, x in [*self.constants, *arguments] if x.size]
        if self.words <= SMALL_WORDS:
            memory = np.zeros(self.words, np.uint32)
            for at, x in contents:
                fill(memory, at, np.asarray(x))
            return ArenaState(on_device(memory), self.address, {}, sizes, code)
        words = (
            _zeros(self.words)(self.kept) if self.kept is not None else jax.numpy.zeros(self.words, np.uint32)
        )
        self.kept = None
        for at, x in contents:
            words = _put(self.words, x.shape, np.dtype(x.dtype))(words, x, np.int32(at))
        return ArenaState(words, self.address, {}, sizes, code)

    def keep(self, state: State) -> None:
        """Leave the memory of a call to the next one."""
        assert isinstance(state, ArenaState)
        self.kept = state.words if self.words > SMALL_WORDS else None


class OpenArena:
    """The same for a program with open sizes: each call says where its roots are."""

    def __init__(self, host: HostProgram, words: int):
        """words: the most that a call needs."""
        self.host, self.block = host, host.block
        tensors = [op.result for op in host.ops() if isinstance(op, DeviceTensorOp)]
        self.roots = [*host.block.args, *tensors]
        # a tensor is read and written with room for its largest sizes
        self.words = words + max(map(_room_words, self.roots), default=0)

    def start(
        self,
        arrays: Sequence[Array],
        sizes: RunTimeSizes,
        code: Mapping[Any, Any],
        addresses: Sequence[int] | None = None,
    ) -> ArenaState:
        assert addresses is not None
        places = dict(zip(self.roots, (n // 4 for n in addresses), strict=True))
        memory = np.zeros(self.words, np.uint32)
        for root, x in zip(self.block.args, arrays, strict=True):
            fill(memory, places[root], np.asarray(x))
        for root in self.roots:
            if isinstance(root.owner, structure.GmConstantOp):
                fill(memory, places[root], root.owner.value.data.array())
        return ArenaState(on_device(memory, own=True), places, {}, sizes, code)

    def keep(self, state: State) -> None:
        """Nothing is left to the next call."""


def _room_words(root: SSAValue) -> int:
    """The words of a tensor of its largest sizes."""
    kind = storage(root)
    return -(-size(room(kind.shape)) * itemsize(kind.element) // 4)


@lru_cache(maxsize=256)
def _zeros(words: int) -> Any:
    """Sets an arena to zeros, in place."""
    arena = jax.ShapeDtypeStruct((words,), np.uint32)
    return xla_jit(lambda old: lax.full_like(old, 0), donate_argnums=0).lower(arena).compile()


@lru_cache(maxsize=1024)
def _put(words: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Writes an array into an arena at a word, in place."""

    def put(old: Array, x: Array, at: Array) -> Array:
        return lax.dynamic_update_slice(old, whole_words(x), [at], allow_negative_indices=False)

    arena, array = jax.ShapeDtypeStruct((words,), np.uint32), jax.ShapeDtypeStruct(shape, dtype)
    return xla_jit(put, donate_argnums=0).lower(arena, array, jax.ShapeDtypeStruct((), np.int32)).compile()
