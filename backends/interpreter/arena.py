"""The initial contents of a program's device memory in bytes mode."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer
from ...dialects.dtypes import itemsize, size
from ...dialects.npu import structure
from ...dialects.npu.host_program import DeviceTensorOp
from ...dialects.npu.places import addresses_of, arena_of
from ..functions.compiling import xla_jit
from ..functions.scope import RunTimeSizes, most
from ..functions.values import on_device
from .hostprogram import HostProgram
from .open_boxes import room
from .state import SMALL_WORDS, ArenaState, State, fill, storage, whole_words


def placed(host: HostProgram) -> tuple[dict[SSAValue, int], int]:
    """Where the plan of device memory puts each root of a program, and how much memory that takes, in bytes. Raises
    VerifyException where there is no plan."""
    size, addresses = arena_of(host.main), addresses_of(host.main)
    if size is None or addresses is None:
        raise VerifyException("@main has no addresses: npu-plan-memory has not run")
    found: dict[SSAValue, int] = dict(zip(host.block.args, addresses, strict=True))
    for op in host.ops():
        if isinstance(op, DeviceTensorOp):
            if op.address is None:
                raise VerifyException(f"{describe(op)} has no address: npu-plan-memory has not run")
            found[op.result] = integer(op.address)
    return found, size


class Arena:
    """Device memory of a program as u32 words: where each root is, and the words between two calls.

    Every call starts with zeros, constants and arguments. They are written into the memory of the call before, since
    fresh memory of this size costs the operating system more time than the copy itself.
    """

    def __init__(self, host: HostProgram):
        self.places, size = placed(host)
        self.block, self.is_open = host.block, bool(host.symbols)
        self.words = -(-most(size) // 4)
        if self.is_open:  # a tensor is read and written with room for its largest sizes
            self.words += max(map(_room_words, self.places), default=0)
        self.constants = [
            (op.result, op.value.data.array()) for op in host.ops() if isinstance(op, structure.GmConstantOp)
        ]
        self.kept: deque[Array] = deque(maxlen=1)
        """The memory of the call before, for the one call that takes it first."""

    def start(self, arrays: Sequence[Array], sizes: RunTimeSizes, code: Mapping[Any, Any]) -> ArenaState:
        """The memory with the program's constants and arguments in place. sizes, code: as `State` has them."""
        address: dict[SSAValue, Any] = {root: sizes.value(n) // 4 for root, n in self.places.items()}
        given = [*self.constants, *zip(self.block.args, arrays, strict=True)]
        contents = [(address[root], x) for root, x in given if x.size]
        if self._is_filled:
            memory = np.zeros(self.words, np.uint32)
            for at, x in contents:
                fill(memory, at, np.asarray(x))
            return ArenaState(on_device(memory), address, {}, sizes, code)
        try:
            words = _zeros(self.words)(self.kept.pop())
        except IndexError:
            words = jax.numpy.zeros(self.words, np.uint32)
        for at, x in contents:
            words = _put(self.words, x.shape, np.dtype(x.dtype))(words, x, np.int32(at))
        return ArenaState(words, address, {}, sizes, code)

    @property
    def _is_filled(self) -> bool:
        """Whether numpy fills it: XLA would compile a copy for each shape."""
        return self.is_open or self.words <= SMALL_WORDS

    def keep(self, state: State) -> None:
        """Leave the memory of a call to the next one."""
        assert isinstance(state, ArenaState)
        if not self._is_filled:
            self.kept.append(state.words)


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
