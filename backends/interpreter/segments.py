"""Segments of a host program, each compiled as one function; equal segments are compiled once."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import structure
from ...dialects.npu.host_program import is_passive
from ..functions.compiling import OPTIONS, QUICK_OPTIONS, lowered, row_major
from ..functions.scope import RunTimeSizes
from .hostprogram import HostProgram
from .open_boxes import room
from .state import ArenaState, TypedState, on_host, storage

Key = tuple[Any, ...]


class Segment:
    """Ops that run as one executable: contents of `inputs` in, of `outputs` out.

    In bytes mode the arena goes in and comes out in place of device tensors, with the addresses of `tensors`.
    """

    def __init__(
        self,
        host: HostProgram,
        steps: Sequence[Operation],
        defined: Callable[[SSAValue], bool],
        outputs: Container[SSAValue],
    ):
        self.host, self.steps = host, list(steps)
        touched: dict[SSAValue, None] = {}
        written: set[SSAValue] = set()
        for op in steps:
            for inner in op.walk():
                if not is_passive(inner) or inner.parent_block() is not op.parent_block():
                    touched.update(dict.fromkeys(host.root(v) for v in inner.operands if v in host.roots))
                if isinstance(inner, structure.CallOp):
                    touched.update(dict.fromkeys(sorted_roots(host.reached(inner)[0], host)))
            touched.update(dict.fromkeys(r for r in op.results if on_host(r)))
            written |= host.writes(op)
        self.roots = list(touched)
        self.inputs = [r for r in self.roots if defined(r)]
        self.outputs = [r for r in self.roots if r in outputs and r in written]
        self.tensors = [r for r in self.roots if not on_host(r)]
        self.key = self._key()

    def _key(self) -> Key:
        """Equal for segments that compile to the same code."""
        number = {r: i for i, r in enumerate(self.roots)}
        parts: list[Any] = []
        for op in self.steps:
            if isinstance(op, structure.LaunchOp):
                uses = tuple((number[self.host.root(v)], v.type) for v in op.operands)
                parts.append((op.callee, op.outputs, op.workspaces, uses))
            elif isinstance(op, structure.CopyOp):
                parts.append(tuple((number[self.host.root(v)], v.type) for v in op.operands))
            elif not is_passive(op):
                parts.append(id(op))
        types = tuple(r.type for r in self.roots)
        ends = (tuple(number[r] for r in self.inputs), tuple(number[r] for r in self.outputs))
        return (tuple(parts), types, *ends)

    def _sizes(self) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct((), np.int32)] * len(self.host.symbols)

    def _known(self, sizes: Sequence[Array]) -> RunTimeSizes:
        return RunTimeSizes(dict(zip(self.host.symbols, sizes, strict=True)))

    # -- typed ---------------------------------------------------------------------------------------------

    def lower_typed(self) -> Callable[[], Any]:
        """Traces the segment. What it gives compiles it, and may run on another thread."""
        shapes = [_struct(r) for r in self.inputs]
        arguments = [jax.ShapeDtypeStruct((), np.float32), self._sizes(), *shapes]
        made = lowered(row_major(self._typed), arguments)
        return lambda: made.compile(QUICK_OPTIONS)

    def _typed(self, zero: Array, sizes: Sequence[Array], *contents: Array) -> list[Array]:
        state = TypedState(dict(zip(self.inputs, contents, strict=True)), self._known(sizes))
        self.host.run_traced(self.steps, state, zero)
        return [state.get(r) for r in self.outputs]

    # -- bytes ---------------------------------------------------------------------------------------------

    def lower_bytes(self, words: int) -> Callable[[], Any]:
        """The same on an arena of so many words."""
        arena = jax.ShapeDtypeStruct((words,), np.uint32)
        first = jax.ShapeDtypeStruct((len(self.tensors),), np.int32)
        numbers = [_struct(r) for r in self.inputs if on_host(r)]
        shapes = [jax.ShapeDtypeStruct((), np.float32), self._sizes(), arena, first, *numbers]
        made = lowered(self._bytes, shapes, donate_argnums=2)
        return lambda: made.compile(OPTIONS)

    def _bytes(
        self, zero: Array, sizes: Sequence[Array], words: Array, first: Array, *numbers: Array
    ) -> list[Array]:
        known = dict(zip(filter(on_host, self.inputs), numbers, strict=True))
        address = {r: first[i] for i, r in enumerate(self.tensors)}
        state = ArenaState(words, address, known, self._known(sizes))
        self.host.run_traced(self.steps, state, zero)
        return state.save([r for r in self.outputs if on_host(r)])


def sorted_roots(roots: Container[SSAValue], host: HostProgram) -> list[SSAValue]:
    """Tensors in the order of the program, so that equal programs compile alike."""
    return [r for r in dict.fromkeys(host.roots.values()) if r in roots]


def _struct(root: SSAValue) -> jax.ShapeDtypeStruct:
    kind = storage(root)
    return jax.ShapeDtypeStruct(room(kind.shape), numpy_dtype(kind.element))
