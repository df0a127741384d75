"""Pieces of a program at the graph level with the value of everything in them, from which small modules are cut.

Since every value is known, any op can be left out: what it made becomes an input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ..backends.functions.host import run_text
from ..dialects.base import text
from ..dialects.graph import ConstantOp, FusionOp, HostOp, IotaOp, YieldOp
from ..dialects.graph.interface import shape_of
from .functions import OpFunctions
from .structure import Cache
from .trace import Path, Trace

FREE = (ConstantOp, IotaOp)
"""Ops that come along with whoever uses them."""


@dataclass
class Piece:
    """Ops in order, detached from any module, and the value of every operand and result (arrays).

    `origin` gives the op of the program that each stands for.
    """

    ops: list[Operation] = field(default_factory=list)
    values: dict[SSAValue, np.ndarray] = field(default_factory=dict)
    origin: dict[Operation, Operation] = field(default_factory=dict)

    def add(self, op: Operation, env: dict[SSAValue, SSAValue], values: Sequence[np.ndarray]) -> None:
        """A copy of `op` on the values that `env` gives, and its results."""
        copy = op.clone(dict(env))
        copy.attributes.pop("axes", None)
        self.ops.append(copy)
        self.origin[copy] = op
        for old, new, x in zip(op.results, copy.results, values, strict=True):
            env[old] = new
            self.values[new] = x

    @property
    def choices(self) -> list[Operation]:
        """The ops that may be kept or left out."""
        return [op for op in self.ops if not isinstance(op, FREE)]

    def module(self, keep: Iterable[Operation]) -> tuple[ModuleOp, list[np.ndarray]]:
        """A module with a function @main that runs `keep` and returns what nothing in it uses; and its inputs."""
        wanted = set(keep)
        for op in reversed(self.ops):
            if isinstance(op, FREE) and any(u.operation in wanted for r in op.results for u in r.uses):
                wanted.add(op)
        kept = [op for op in self.ops if op in wanted]
        made = {r for op in kept for r in op.results}
        inputs = [v for v in dict.fromkeys(_needed(kept)) if v not in made]
        outputs = [
            r
            for op in kept
            for r in op.results
            if not isinstance(op, FREE) and not any(u.operation in wanted for u in r.uses)
        ]
        block = Block(arg_types=[v.type for v in inputs])
        env: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
        for op in kept:
            block.add_op(op.clone(env))
        block.add_op(ReturnOp(*(env[v] for v in outputs)))
        kind = FunctionType.from_lists([v.type for v in inputs], [v.type for v in outputs])
        main = FuncOp("main", kind, Region(block))
        return ModuleOp([main]), [np.asarray(self.values[v]) for v in inputs]


def _needed(ops: Iterable[Operation]) -> list[SSAValue]:
    """Operands of ops and of the ops inside them, from outside."""
    found = []
    for op in ops:
        inside = {v for inner in op.walk() for v in inner.results}
        inside |= {a for inner in op.walk() for r in inner.regions for b in r.blocks for a in b.args}
        found += [v for inner in op.walk() for v in inner.operands if v not in inside]
    return found


class Collector:
    """Makes pieces of a graph-level module and its run."""

    def __init__(self, golden: Trace, cache: Cache):
        self.golden, self.functions = golden, OpFunctions(cache)

    def piece(self, ops: Sequence[Operation], path: Path, flatten: bool = True) -> Piece:
        """The ops (of one block) with their values in the iteration `path`. flatten: fusions become their ops."""
        found = Piece()
        env: dict[SSAValue, SSAValue] = {}
        with jax.enable_x64(True):
            for op in ops:
                for v in _needed([op]):
                    if v not in env:
                        self._bring(found, env, v, path)
                if isinstance(op, FusionOp) and flatten:
                    self._inline(found, env, op)
                else:
                    found.add(op, env, [self._value(r, path) for r in op.results])
        return found

    def _value(self, value: SSAValue, path: Path) -> np.ndarray:
        known = self.golden.value(path, value.name_hint)
        if known is None:
            known = np.zeros(shape_of(value), np.float32)
        return np.asarray(known)

    def _bring(self, piece: Piece, env: dict[SSAValue, SSAValue], value: SSAValue, path: Path) -> None:
        """A value from outside: constants as they are, others as an input."""
        owner = value.owner
        if isinstance(owner, FREE):
            piece.add(owner, env, [self._value(r, path) for r in owner.results])
            return
        outside = Block(arg_types=[value.type]).args[0]
        env[value] = outside
        piece.values[outside] = self._value(value, path)

    def _inline(self, piece: Piece, env: dict[SSAValue, SSAValue], fusion: FusionOp) -> None:
        body = fusion.body.block
        inner: dict[SSAValue, SSAValue] = dict(zip(body.args, (env[v] for v in fusion.inputs), strict=True))
        for op in body.ops:
            if isinstance(op, YieldOp):
                for r, v in zip(fusion.results, op.values, strict=True):
                    env[r] = inner[v]
                return
            xs = [piece.values[inner[v]] for v in op.operands]
            piece.add(op, inner, self._run(op, xs))

    def _run(self, op: Operation, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
        if isinstance(op, HostOp):
            return [np.asarray(y) for y in run_text(text(op.module), xs)]
        return [np.asarray(y) for y in self.functions.values(op, xs)]
