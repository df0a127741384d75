"""An epilogue that takes several columns of a product together: elementwise ops behind it that combine numbers of a row
which lie apart, as a rotary embedding does with the two halves of each head, are computed beside the cube.

Their own domain has no axis along which these numbers lie. The dimension of columns is parted for them, so that there
is one: the epilogue has all of it in its tiles, and each op takes one place along it.

Before:  %y = graph.fusion %x, %w {x @ w} : tensor<128x1024xf16>
         %z = graph.fusion %y, %c, %s {domain = [128, 8, 64]} of heads of two halves: a * c - b * s, b * c + a * s
After:   %z = graph.fusion %x, %w, %c, %s {domain = [128, 8, 2, 64], kind = "mix"} of the ops of both
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ...dialects.base import Expr, ints, text, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import ELEMENTWISE, ConcatOp, ContractOp, ElementwiseOp, FusionOp, YieldOp
from ...dialects.graph.control import AXES, axes_of, besides_axes
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..forms.access import Load, splat_of
from ..forms.fingerprint import structure
from ..forms.tensor_builder import BlockBuilder
from ..fusion.merged import MergedBody, put_in_place
from ..instantiation import has_open_sizes
from ..lower.axes import FusionAxes, behind_merges, is_member
from ..lower.cube.contraction_axes import product_in
from ..lower.cube.split import product_of
from .oversized import members_of
from .rewrites import Offer, Proposal, Rewrites

EVERY_OTHER = "it takes every other column of the product, and tiles of the vector cores have whole runs"


class _Part(NamedTuple):
    """A part of a dimension: its extent, and the axis that a reader walks along it, -1 where it reads single places."""

    extent: int
    axis: int


class ColumnEpilogue(Rewrites):
    """A product and what combines columns of it, as one fusion."""

    EARLY = True

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        reader = fusion.results[0].get_user_of_unique_use() if len(fusion.results) == 1 else None
        if not self._may_take(fusion) or not isinstance(reader, FusionOp) or not _is_elementwise(reader):
            return None
        if reader.parent is not fusion.parent or has_open_sizes(reader):
            return None
        parts = _parted(fusion, reader, self.machine)
        if parts is None:
            return None
        if isinstance(parts, str):
            return Offer((fusion, reader), (), (), lambda: Proposal([], list), obstacle=parts)
        (key, details), (more, others) = structure(fusion), structure(reader)
        same = tuple(fusion.operands.index(v) if v in fusion.operands else -1 for v in reader.operands)
        return Offer(
            (fusion, reader), (key, more, same), (details, others), lambda: _as_one(fusion, reader, parts)
        )

    def _may_take(self, fusion: FusionOp) -> bool:
        """Whether a fusion is a product with nothing but elementwise ops behind it, which may change."""
        product = product_of(fusion)
        if not isinstance(product, ContractOp) or self.machine.fused or fusion.schedule is not None:
            return False
        value, shape = fusion.yielded(0).values[0], shape_of(product.result)
        others = [op for op in members_of(fusion) if op is not product]
        alike = all(isinstance(op, ElementwiseOp) and shape_of(op.results[0]) == shape for op in others)
        return (
            alike
            and is_member(value)
            and len(members_of(fusion)) == len(others) + 1
            and not has_open_sizes(fusion)
        )


def _is_elementwise(fusion: FusionOp) -> bool:
    """Whether a fusion of the vector cores, of which nothing is asked, has elementwise ops alone."""
    if text(fusion.kind) != "vector" or fusion.schedule is not None or fusion.on_host:
        return False
    return all(isinstance(op, ElementwiseOp) for op in members_of(fusion))


class _Reader(FusionAxes):
    """A fusion by the places at which it reads its inputs."""

    def reads(self, given: BlockArgument) -> Iterator[Load]:
        """How an input is read by each of its uses."""
        for value, axes in self._uses():
            if splat_of(value) is None and (load := self._trace(value, axes)).base is given:
                yield load


def _parted(fusion: FusionOp, reader: FusionOp, machine: Machine) -> Sequence[Sequence[_Part]] | str | None:
    """The parts of each dimension of a product's result, the outermost first, for a fusion that reads it. Why there are
    none for one that combines columns; None where it does not."""
    product, given = product_in(fusion), reader.body.block.args[reader.operands.index(fusion.results[0])]
    assert isinstance(product, ContractOp)
    loads, domain = list(_Reader(reader, machine, apart=True).reads(given)), to_ints(reader.domain)
    if not loads or any(load.fill is not None for load in loads):
        return None
    found: list[Sequence[_Part]] = []
    rows = len(to_ints(product.lhs_batch)) + len(product.free_dims()[0])
    for d, extent in enumerate(shape_of(given)):
        parts = _parts_of(extent, [load.position[d] for load in loads], domain)
        if parts is None or (d < rows and any(part.axis < 0 and part.extent != 1 for part in parts)):
            return None
        found.append(parts)
    flat = [part for parts in found for part in parts]
    walked = sorted(part.axis for part in flat if part.axis >= 0 and part.extent != 1)
    combines = any(part.axis < 0 and part.extent != 1 for part in flat)
    if not combines or walked != [a for a, n in enumerate(domain) if n != 1]:
        return None
    return EVERY_OTHER if flat[-1].axis < 0 else found


def _parts_of(extent: int, reads: Sequence[Expr[int]], domain: Sequence[int]) -> Sequence[_Part] | None:
    """The parts of a dimension of this extent that is read at these places, all along the same axes; None where there
    are none."""
    terms = set(reads[0].terms)
    if any(set(read.terms) != terms for read in reads):
        return None
    parts, stride = list[_Part](), 1
    for axis, step in sorted(terms, key=lambda term: term[1]):
        if step < stride or step % stride:
            return None
        if step != stride:
            parts.append(_Part(step // stride, -1))
        parts.append(_Part(domain[axis], axis))
        stride = step * domain[axis]
    if extent % stride or any(read.constant < 0 for read in reads):
        return None
    if extent != stride or not parts:
        parts.append(_Part(extent // stride, -1))
    constants, places = [read.constant for read in reads], 1
    for part in parts:
        if part.axis >= 0 and any(constant // places % part.extent for constant in constants):
            return None
        places *= part.extent
    return parts[::-1]


def _as_one(fusion: FusionOp, reader: FusionOp, parts: Sequence[Sequence[_Part]]) -> Proposal:
    """Both as one fusion, in the place of the reader."""
    made, product = fusion.results[0], product_in(fusion)
    assert isinstance(product, ContractOp)
    flat = [part for each in parts for part in each]
    body = MergedBody(v for v in (*fusion.inputs, *reader.inputs) if v is not made)
    inside: dict[SSAValue, SSAValue] = {
        a: body.known[v] for a, v in zip(fusion.body.block.args, fusion.inputs, strict=True)
    }
    build = BlockBuilder(body.block, product.location)
    shape = [part.extent for part in flat]
    split: dict[SSAValue, SSAValue] = {}
    for op in fusion.body.block.ops:
        build.location = op.location
        if op is product:
            split[op.results[0]] = _split_product(build, product, inside, parts)
        elif axes_of(op) is not None:
            operands = [split.get(v) or build.reshape(inside[v], shape) for v in op.operands]
            kind = tensor(shape, element_of(op.results[0]))
            copy = type(op).create(
                operands=operands,
                result_types=[kind],
                properties=op.properties,
                attributes={**besides_axes(op), AXES: ints(range(len(shape)))},
                location=op.location,
            )
            body.block.add_op(copy)
            split[op.results[0]] = copy.results[0]
        elif op.results:
            body.block.add_op(copy := op.clone(inside))
            inside.update(zip(op.results, copy.results, strict=True))
    body.known[made] = build.reshape(split[fusion.yielded(0).values[0]], shape_of(made))
    number = {part.axis: i for i, part in enumerate(flat) if part.axis >= 0}

    def renumbered(op: Operation) -> Mapping[str, Attribute]:
        axes = axes_of(op)
        return (
            op.attributes
            if axes is None
            else {**besides_axes(op), AXES: ints([number.get(a, -1) for a in axes])}
        )

    body.add(reader, renumbered)
    one = body.fusion(reader.results, reader)
    one.properties["domain"] = ints(shape)
    _compute_all(one, [number.get(a, -1) for a, _ in enumerate(to_ints(reader.domain))])

    def replace() -> list[FusionOp]:
        put_in_place(one, (fusion, reader), reader.results, at=reader)
        return [one]

    return Proposal([one], replace)


def _compute_all(fusion: FusionOp, axes: Sequence[int]) -> None:
    """Makes members, with these axes, of what a fusion stores as it is read: conversions, which compute nothing."""
    for op in list(fusion.body.block.ops):
        for i, value in enumerate(op.operands if isinstance(op, ConcatOp | YieldOp) else ()):
            if not isinstance(value.owner, ConcatOp) and not is_member(behind_merges(value)[0]):
                copy = ELEMENTWISE["convert"].create(
                    operands=[value],
                    result_types=[value.type],
                    attributes={AXES: ints(axes)},
                    location=op.location,
                )
                fusion.body.block.insert_op_before(copy, op)
                op.operands[i] = copy.results[0]


def _split_product(
    build: BlockBuilder, op: ContractOp, inside: Mapping[SSAValue, SSAValue], parts: Sequence[Sequence[_Part]]
) -> SSAValue:
    """A product whose result has these parts of its dimensions as its own."""
    batch, (m, n) = len(to_ints(op.lhs_batch)), op.free_dims()
    properties, operands = dict(op.properties), list[SSAValue]()
    own = (parts[batch : batch + len(m)], parts[batch + len(m) :])
    for side, value, free, mine in zip(("lhs", "rhs"), op.operands, (m, n), own, strict=True):
        over = to_ints(getattr(op, f"{side}_batch"))
        along = {**dict(zip(over, parts, strict=False)), **dict(zip(free, mine, strict=True))}
        shape, dims = list[int](), list[list[int]]()
        for d, extent in enumerate(shape_of(value)):
            extents = [part.extent for part in along[d]] if d in along else [extent]
            dims.append(list(range(len(shape), len(shape) + len(extents))))
            shape += extents
        operands.append(
            inside[value] if tuple(shape) == shape_of(value) else build.reshape(inside[value], shape)
        )
        for what in ("batch", "contract"):
            properties[f"{side}_{what}"] = ints(
                [i for d in to_ints(getattr(op, f"{side}_{what}")) for i in dims[d]]
            )
    shape = [part.extent for each in parts for part in each]
    result = build.add(ContractOp, operands, tensor(shape, element_of(op.result)), **properties)
    assert isinstance(result.owner, Operation)
    result.owner.attributes.update({**besides_axes(op), AXES: ints(range(len(shape)))})
    return result
