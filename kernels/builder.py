"""Builds tile kernels: constants, grids, loops and ops, with sections and carried tiles."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    f64,
    i64,
)
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.hints import isa

from ..dialects import tile as ops
from ..dialects.base import INDEX, Expr, integer_attr, ints, pack
from ..dialects.dtypes import shape_in
from ..dialects.npu.types import GmType, row_strides
from ..dialects.open_sizes import example, is_open
from ..dialects.tile import TileType
from ..dialects.tile.structure import SPACE_ORDER
from ..machine import Machine


def exactly(value: float | int | None) -> bytes | int | None:
    """What tells numbers apart by their bits: 0.0 from -0.0, and NaNs of either sign, which are equal or none."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def number(value: float | int) -> FloatAttr | IntegerAttr:
    """A number as a property: in f64, or as an integer where f64 does not have it."""
    if float(value) == value or value != value:
        return FloatAttr(float(value), f64)
    return IntegerAttr(int(value), i64 if value < 2**63 else IntegerType(64, Signedness.UNSIGNED))


def may_repeat(count: int) -> bool:
    """Whether a loop may run, or an axis be shared by cores, more than once: an open number may be any."""
    return is_open(count) or count > 1


@dataclass
class KernelBuilder:
    """One kernel under construction. `grid` names the cores' coordinates; `gm` are its device tensors."""

    machine: Machine
    kind: str
    grid: Sequence[int]
    inputs: Sequence[GmType]
    outputs: Sequence[GmType]
    workspaces: Sequence[GmType] = ()
    slots: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.grid = tuple(self.grid) or (1,)
        gm = [*self.inputs, *self.outputs, *self.workspaces]
        self.body = Block(arg_types=[*(INDEX for _ in self.grid), *gm])
        self.block = self.body
        self.location: Any = None
        self._constants: dict[int, SSAValue] = {}
        self._views: dict[tuple[SSAValue, GmType], SSAValue] = {}

    @property
    def coordinates(self) -> Sequence[SSAValue]:
        return self.body.args[: len(self.grid)]

    def gm(self, i: int) -> SSAValue:
        """Device tensor number i: inputs, outputs, workspaces."""
        return self.body.args[len(self.grid) + i]

    def output(self, i: int) -> SSAValue:
        return self.gm(len(self.inputs) + i)

    def add(
        self,
        cls: type[Operation],
        operands: Sequence[SSAValue],
        results: Sequence[Attribute] = (),
        **properties: Attribute | None,
    ) -> Operation:
        op = cls.create(
            operands=operands,
            result_types=results,
            properties={k: v for k, v in properties.items() if v is not None},
            location=self.location,
        )
        self.block.add_op(op)
        return op

    def constant(self, value: int) -> SSAValue:
        found = self._constants.get(value)
        if found is None:
            op = ops.SizeOp.of(value) if is_open(value) else ConstantOp(IntegerAttr(value, INDEX))
            first = self.body.first_op
            if first is None:
                self.body.add_op(op)
            else:
                self.body.insert_op_before(op, first)
            found = self._constants[value] = op.result
        return found

    @contextmanager
    def section(self, core: str, units: int = 1) -> Iterator[SSAValue]:
        """Ops built inside run on `core`; gives the unit's number."""
        block = Block(arg_types=[INDEX])
        outer, self.block = self.block, block
        yield block.args[0]
        self.block = outer
        self.add_region(ops.SectionOp, block, core=StringAttr(core), units=integer_attr(units))

    def add_region(self, cls: type[Operation], block: Block, **properties: Attribute) -> Operation:
        op = cls.create(properties=properties, regions=[Region(block)], location=self.location)
        self.block.add_op(op)
        return op

    @contextmanager
    def loop(self, trips: int, carried: list[SSAValue] | None = None) -> Iterator[Expr]:
        """A loop of `trips` iterations; one iteration makes no loop. `carried` values are replaced, first by the
        loop's own arguments, at the end by its results; assign the new ones into the list inside."""
        if not may_repeat(trips):
            yield Expr()
            return
        initial = list(carried or ())
        block = Block(arg_types=[INDEX, *(v.type for v in initial)])
        if carried is not None:
            carried[:] = list(block.args[1:])
        outer, self.block = self.block, block
        yield Expr.of(block.args[0])
        block.add_op(YieldOp(*(carried or ())))
        self.block = outer
        zero, stop, one = self.constant(0), self.constant(trips), self.constant(1)
        op = ForOp.create(
            operands=[zero, stop, one, *initial],
            result_types=[v.type for v in initial],
            regions=[Region(block)],
            location=self.location,
        )
        self.block.add_op(op)
        if carried is not None:
            carried[:] = list(op.results)

    def view(
        self, source: SSAValue, shape: Sequence[int], strides: Sequence[int], offset: int = 0
    ) -> SSAValue:
        """A strided view of a device tensor, made once per kernel."""
        assert isa(source.type, GmType)
        out = GmType.of(shape, source.type.element, strides, offset)
        if out == source.type:
            return source
        key = (source, out)
        if key not in self._views:
            op = ops.ViewOp.create(operands=[source], result_types=[out], location=self.location)
            at = self._last_of_head()
            if at is None:
                first = self.body.first_op
                if first is None:
                    self.body.add_op(op)
                else:
                    self.body.insert_op_before(op, first)
            else:
                self.body.insert_op_after(op, at)
            self._views[key] = op.result
        return self._views[key]

    def _last_of_head(self) -> Operation | None:
        last = None
        for op in self.body.ops:
            if not isinstance(op, ConstantOp | ops.SizeOp | ops.ViewOp):
                break
            last = op
        return last

    def load(
        self,
        source: SSAValue,
        offsets: Sequence[Expr],
        sizes: Sequence[int],
        tile: TileType,
        steps: Sequence[int] | None = None,
        fill: float | int | None = None,
    ) -> SSAValue:
        indices, rows = pack(offsets)
        plain = steps is None or all(s == 1 for s in steps)
        return self.add(
            ops.LoadOp,
            [source, *indices],
            [tile],
            offsets=rows,
            sizes=ints(sizes),
            steps=None if plain else ints(steps or ()),
            fill=None if fill is None or repr(fill) in ("0", "0.0") else number(fill),  # -0.0 is no default
        ).results[0]

    def store(
        self,
        tile: SSAValue,
        dest: SSAValue,
        offsets: Sequence[Expr],
        sizes: Sequence[int],
        steps: Sequence[int] | None = None,
        factor: float | None = None,
        zero: int = 0,
        relu: bool = False,
        scales: SSAValue | None = None,
    ) -> None:
        """Stores a tile. Of an accumulator, relu: negative ones become 0; factor, zero: what they are multiplied by on
        the way, and what is added then; scales: the words of columns that have factors of their own."""
        indices, rows = pack(offsets)
        plain = steps is None or all(s == 1 for s in steps)
        self.add(
            ops.StoreOp,
            [tile, dest, *([] if scales is None else [scales]), *indices],
            offsets=rows,
            sizes=ints(sizes),
            steps=None if plain else ints(steps or ()),
            factor=None if factor is None else FloatAttr(factor, f32),
            zero=integer_attr(zero) if zero else None,
            relu=UnitAttr() if relu else None,
        )

    def finish(self, name: str) -> ops.KernelOp:
        slots = [self.slots.get(s, 1) for s in SPACE_ORDER]
        return ops.KernelOp.create(
            properties={
                "sym_name": StringAttr(name),
                "kind": StringAttr(self.kind),
                "grid": ints(self.grid),
                "outputs": integer_attr(len(self.outputs)),
                "workspaces": integer_attr(len(self.workspaces)),
                "slots": ints(slots),
            },
            regions=[Region(self.body)],
            location=self.location,
        )


def dense(shape: Sequence[int], element: Attribute) -> GmType:
    return GmType.of(shape, element, row_strides(shape))


def gm_of(value: SSAValue) -> GmType:
    """The dense device tensor that holds a tensor value."""
    assert isinstance(value.type, TensorType)
    return dense(shape_in(value.type), value.type.element_type)


def divide_grid(counts: Sequence[int], cores: int, even: Sequence[bool] = ()) -> list[tuple[int, int]]:
    """For each axis with `counts` tiles: (cores along it, tiles per core), such that the busiest core has as few
    tiles as possible, no core is left without work and at most `cores` are used; among equals, fewest cores and
    then those along the outer axes. even: axes (none where it is empty) along which all cores have as many tiles, none
    of them behind the last. Open counts are divided as their examples are, over numbers of cores."""
    known = tuple(map(example, counts))
    best = _divide(known, tuple(even) or (False,) * len(counts), max(cores, 1))
    used = [-(-n // per_core) for n, per_core in zip(known, best, strict=True)]
    return [(c, -(-n // c) if is_open(n) else p) for n, c, p in zip(counts, used, best, strict=True)]


def shared_tiles(counts: Sequence[int], most: int) -> tuple[np.ndarray, np.ndarray]:
    """What `divide_grid` makes of numbers over 1 to so many cores: tiles of the busiest core, and cores that have work,
    as int64 [cores]."""
    cores = np.arange(1, most + 1)
    tiles, used = np.ones(most, np.int64), np.ones(most, np.int64)
    for n in reversed(counts):
        each = -(-n // np.minimum(cores, n))
        own = np.flatnonzero(-(-n // each) == cores)[:, None]  # cores along this axis that all have work, less one
        left = cores // (own + 1)
        inner = np.maximum(left, 1) - 1
        found = each[own] * tiles[inner]
        number = np.where(left > 0, found * (most + 1) + (own + 1) * used[inner], np.iinfo(np.int64).max)
        best = number.min(axis=0)
        tiles, used = best // (most + 1), best % (most + 1)
    return tiles, used


@functools.cache
def _divide(counts: tuple[int, ...], even: tuple[bool, ...], cores: int) -> tuple[int, ...]:
    """Tiles per core along each axis for the best division of `counts` over at most `cores`."""
    if not counts:
        return ()
    best: tuple[tuple[int, int], tuple[int, ...]] | None = None
    for used in range(min(cores, counts[0]), 0, -1):
        per_core = -(-counts[0] // used)
        if -(-counts[0] // per_core) != used or (even[0] and counts[0] % used):
            continue
        rest = _divide(counts[1:], even[1:], cores // used)
        tiles = per_core * math.prod(rest)
        total = used * math.prod(-(-n // p) for n, p in zip(counts[1:], rest, strict=True))
        if best is None or (tiles, total) < best[0]:
            best = ((tiles, total), (per_core, *rest))
    assert best is not None
    return best[1]
