"""Kernels that make rows themselves that they would read, as other kernels make them (row_producers.py).

Before:  @reduce_0:    %t = tile.load %x ...; %n = tile.mul %t, %scale;  tile.store %n, %row at [0] {sizes = [768]}
         @contract_0:  scf.for %k ... { %r = tile.load %row at [%k * 32] {sizes = [32]} ... }
After:   @contract_0:  %t = tile.load %x ...; %n = tile.mul %t, %scale
                       scf.for %k ... { %r = tile.extract %n at [%k * 32] {sizes = [32]} ... }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialects import tile as ops
from ...dialects.affine import Expr
from ...dialects.base import INDEX, ints, pack, to_ints
from ...dialects.dtypes import size
from ...dialects.tile import TileOp, TileType, tile_type
from ...dialects.tile.interface import is_updated
from ...dialects.tile.vector import IN_PLACE
from .row_producers import ROWWISE, Readings, RowProducer, alone, first_output, tensor_of


class RowToRecompute(NamedTuple):
    """A row that a kernel reads as these inputs, and shall make itself."""

    inputs: Sequence[int]
    readings: Readings
    producer: RowProducer


def inputs_of(producers: Iterable[RowProducer]) -> list[BlockArgument]:
    """The tensors of a kernel that rows of it are made of."""
    return list(dict.fromkeys(tensor for producer in producers for tensor in producer.inputs()))


def with_recomputed_rows(reader: ops.KernelOp, rows: Sequence[RowToRecompute]) -> ops.KernelOp | None:
    """A kernel like `reader` that makes rows of another one itself: `inputs_of` them come behind its other inputs. None
    where its tiles cannot be as those of the rows."""
    known: dict[SSAValue, SSAValue] = {}
    ranks = {row.readings.rank for row in rows}
    rank = max(ranks | {row.producer.least_rank for row in rows})
    more = rank - min(ranks)
    if len(ranks) != 1 or (more and not _can_raise_rank(reader)):
        return None
    kernel = reader.clone(known)
    block, first, behind = kernel.body.block, len(to_ints(kernel.grid)), first_output(reader)
    tensors = [block.args[first + i] for row in rows for i in row.inputs]
    indices = {old: Expr.of(new) for old, new in known.items() if old.type == INDEX}
    section = alone(kernel)
    assert section is not None
    loads = {op: known[op.result].owner for row in rows for op in row.readings.places}
    _raise_rank(kernel, more)
    anchor = next(op for op in section.body.block.ops if any(inner in loads.values() for inner in op.walk()))
    done: _Done = {}
    given: dict[BlockArgument, SSAValue] = {}
    for tensor in inputs_of(row.producer for row in rows):
        given[tensor] = block.insert_arg(tensor.type, behind + len(given))
    made: list[tuple[_Recomputing, SSAValue]] = []
    for row in rows:
        begin = row.readings.begin.substitute(indices)
        build = _Recomputing(row.producer, row.readings, begin, given, section, anchor, done)
        made.append((build, build.row(rank)))
    for build, value in made:
        for load, place in build.readings.places.items():
            copy = loads[load]
            assert isinstance(copy, ops.LoadOp)
            build.read(copy, value, place.substitute(indices))
    for tensor in tensors:
        for view in [use.operation for use in tensor.uses]:
            view.detach()
            view.erase()
        block.erase_arg(tensor)
    return kernel


def _can_raise_rank(kernel: ops.KernelOp) -> bool:
    """Whether the tiles of a kernel may have leading extents of 1 more."""
    section = alone(kernel)
    known = (*ROWWISE, ops.StoreOp, ForOp, YieldOp)
    return section is not None and all(isinstance(op, known) for op in section.body.walk())


def _raise_rank(kernel: ops.KernelOp, more: int) -> None:
    """Gives the tiles of a kernel so many leading extents of 1."""
    if not more:
        return
    for op in list(kernel.walk()):
        inside = [a for region in op.regions for block in region.blocks for a in block.args]
        for value in (*op.results, *inside):
            if isinstance(kind := value.type, TileType):
                raised = TileType.of([1] * more + [*kind.shape], kind.element, kind.space)
                Rewriter.replace_value_with_new_type(value, raised)
        if isinstance(op, ops.ReduceOp):
            op.dims = ints([d + more for d in to_ints(op.dims)])


_Done = dict[tuple[TileOp, int, Expr[SSAValue]], Operation]
"""What rows are made of, by the op that it repeats, the elements and where they begin."""


@dataclass
class _Recomputing:
    """Adds the ops of a row before `anchor`, an op of a section: for the elements that its core reads, from `begin`
    on. given: the tensors of the kernel for those that the row is made of; done: what is there, for other rows too."""

    producer: RowProducer
    readings: Readings
    begin: Expr[SSAValue]
    given: Mapping[BlockArgument, SSAValue]
    section: ops.SectionOp
    anchor: Operation
    done: _Done

    @property
    def length(self) -> int:
        """Elements of the row that the core makes."""
        return self.producer.extent if self.producer.whole else self.readings.length

    def row(self, rank: int) -> SSAValue:
        """The tile of the row, among tiles of this rank."""
        done: dict[SSAValue, SSAValue] = {}
        more = rank - self.producer.rank
        for op in self.producer.done:
            key = op, self.length, self.begin
            if key in self.done:
                done.update(zip(op.results, self.done[key].results, strict=True))
                continue
            types = [self._typed(v, more) for v in op.results]
            properties = dict(op.properties)
            operands = [done.get(v, v) for v in op.operands]
            if isinstance(op, ops.LoadOp):
                operands, properties = self._load(op, properties)
            elif isinstance(op, ops.ReduceOp):
                properties["dims"] = ints([d + more for d in to_ints(op.dims)])
            new = type(op).create(
                operands=operands,
                result_types=types,
                properties=properties,
                attributes=dict(op.attributes),
                location=op.location,
            )
            self._put(new)
            self.done[key] = new
            done.update(zip(op.results, new.results, strict=True))
        return done[self.producer.row]

    def _typed(self, value: SSAValue, more: int) -> TileType:
        kind = tile_type(value)
        shape = [*kind.shape]
        if shape[-1] != 1:
            shape[-1] = self.length
        return TileType.of([1] * more + shape[max(-more, 0) :], kind.element, kind.space)

    def _load(
        self, op: ops.LoadOp, properties: dict[str, Attribute]
    ) -> tuple[list[SSAValue], dict[str, Attribute]]:
        at, sizes = [Expr(e.constant) for e in op.linear()], [*to_ints(op.sizes)]
        along = self.producer.places.get(op)
        if along is not None:
            sizes[along] = self.length
            at[along] = at[along] + (Expr() if self.producer.whole else self.begin)
        source = self.given[tensor_of(op.source)]
        if source.type != op.source.type:
            view = ops.ViewOp.create(operands=[source], result_types=[op.source.type], location=op.location)
            block = self.section.parent
            assert block is not None
            block.insert_op_before(view, self.section)
            source = view.result
        indices, rows = pack(at)
        return [source, *indices], {**properties, "offsets": rows, "sizes": ints(sizes)}

    def _put(self, op: Operation) -> None:
        block = self.anchor.parent
        assert block is not None
        block.insert_op_before(op, self.anchor)

    def read(self, load: ops.LoadOp, row: SSAValue, place: Expr[SSAValue]) -> None:
        """Takes what a load reads from the row, in its place."""
        block, kind = load.parent, tile_type(load.result)
        assert block is not None
        length, last = size(kind.shape), len(kind.shape) - 1
        across = next((d for d, n in enumerate(kind.shape) if n != 1), last)
        found, begins = row, place + self.begin if self.producer.whole else place
        if length != self.length or begins != Expr() or across != last or _is_written(load.result):
            sizes = [1] * last + [length]
            indices, offsets = pack([Expr()] * last + [begins])
            cut = ops.ExtractOp.create(
                operands=[row, *indices],
                result_types=[TileType.of(sizes, kind.element, kind.space)],
                properties={"offsets": offsets, "sizes": ints(sizes), "steps": ints([1] * len(sizes))},
                location=load.location,
            )
            block.insert_op_before(cut, load)
            found = cut.result
        if across != last:
            perm = [*range(last + 1)]
            perm[across], perm[last] = last, across
            transposed = ops.TransposeOp.create(
                operands=[found], result_types=[kind], properties={"perm": ints(perm)}, location=load.location
            )
            block.insert_op_before(transposed, load)
            found = transposed.result
        load.result.replace_all_uses_with(found)
        load.detach()
        load.erase()


def _is_written(tile: SSAValue) -> bool:
    """Whether something is written over a tile."""
    users = (use.operation for use in tile.uses)
    return is_updated(tile) or any(IN_PLACE in op.attributes for op in users)
