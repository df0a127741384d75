"""The halves of attention of few rows on the vector cores, as stages: scores of a piece of the keys, and what its
values add to the result. And how parts of the keys are combined, and how attention is taken apart again.

Axes are `outer` (those of the scores but the keys), the keys, and what is summed over (in the scores) or the columns of
the values. A score is a column of a tile, so that it is repeated over the values without being transposed.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Block, SSAValue

from ....dialects.dtypes import element_type, size, tensor
from ....dialects.graph import ContractOp, FusionOp, ReshapeOp, YieldOp
from ....dialects.graph.control import AXES
from ....dialects.graph.interface import element_of, shape_of
from ....kernels.stage import Given, KernelStage, Ref
from ....machine import Machine
from ...forms.access import Load
from ...forms.attention import Attention
from ...forms.copied_fusion import CopiedFusion
from ...forms.layout_axes import base_of
from ...forms.nests import nest_of_contract
from ...fusion.fuse import fuse_block
from ...reasons import Reason, asked_reasons
from ..axes import StoredPart
from ..cube.spreading import AxesBuilder
from ..fusion_stages import FusionStages

WIDE = element_type("f32")
"""The type of scores, weights and sums."""


WEIGHTS = "weights"
"""What the stages of values know the weights by."""


class HalfStages(FusionStages):
    """The stages of one half over a domain whose last axis is its own. `result` gives what the half is for: `spans`
    says along which axes. weighed: whether the last block argument is the weights, of which a tile is given."""

    def __init__(
        self,
        fusion: FusionOp,
        machine: Machine,
        spans: frozenset[int],
        weighed: bool = False,
    ):
        super().__init__(fusion, machine, apart=True)
        self.spans, self.weighed = spans, weighed
        self.result: Ref = (-1, 0)
        self.build_stages()

    def _load(self, load: Load, element: Attribute) -> Ref:
        if not self.weighed or load.base is not self.block.args[-1]:
            return super()._load(load, element)
        if ("given",) not in self.loads:
            axes = frozenset(range(len(self.domain) - 1))
            self.loads[("given",)] = self._stage(KernelStage(Given(WEIGHTS), [element], axes))
        return self.loads[("given",)]

    def _store(self, part: StoredPart) -> None:
        """Nothing is stored: the softmax, or the next piece, goes on from here."""
        self.result = self._spanning(self.made[base_of(part.value)], self.spans)

    @property
    def last(self) -> int:
        """The extent of its own axis."""
        return self.domain[-1]

    @property
    def loaded(self) -> Attribute:
        """The element type of what is loaded for every piece."""
        loads = [stage for stage in self.stages if stage.view is not None]
        return max(loads, key=lambda stage: size(stage.view.shape) if stage.view else 0).elements[0]

    def constant(self, axis: int) -> list[int]:
        """The stages that are the same for all places along an axis, but whose tiles may lie along it."""
        found: list[int] = []
        moving: set[int] = set()
        for i, stage in enumerate(self.stages):
            if axis in stage.moves or stage.kind == "given" or any(j in moving for j, _ in stage.operands):
                moving.add(i)
            else:
                found.append(i)
        return found


def score_stages(fusion: FusionOp, at: Attention, outer: Sequence[int], machine: Machine) -> HalfStages:
    """What the softmax is of, by queries and keys."""
    op = at.scores
    copied = CopiedFusion(fusion, [], {axis: i for i, axis in enumerate([*outer, at.keys])})
    build = AxesBuilder(copied.block)
    build.location = op.location
    nest = nest_of_contract(op)
    place = {axis: i for i, axis in enumerate([*outer, at.keys])}
    own = len(place)
    place |= {a: own for a, role in nest.roles.items() if role == "k"}
    scores = build.product(op, copied.value(op.lhs), copied.value(op.rhs), place)
    kept = [place.get(a, -1) if n != 1 else -1 for a, n in enumerate(shape_of(op.result))]
    copied.inside[op.result] = build.converted(scores, element_of(op.result), kept)
    summed = max(n for a, n in enumerate(nest.extents) if nest.roles[a] == "k")
    extents = shape_of(op.result)
    domain = [*(extents[a] for a in outer), extents[at.keys], summed]
    whole = copied.fusion("vector", domain, copied.value(at.x))
    return HalfStages(whole, machine, frozenset(range(own)))


def value_stages(fusion: FusionOp, at: Attention, outer: Sequence[int], machine: Machine) -> HalfStages:
    """What a piece of the values adds to the result, by weights that are given."""
    op, nest = at.product, nest_of_contract(at.product)
    copied = CopiedFusion(fusion, [], {})
    weights = op.operands[at.weights]
    argument = copied.block.insert_arg(tensor(shape_of(weights), WIDE), len(copied.block.args))
    build = AxesBuilder(copied.block)
    build.location = op.location
    values = copied.value(at.values)
    named = [*outer, at.keys, len(shape_of(at.scores.result))]
    place = {i: named.index(axis) for i, axis in enumerate(at.axes[op.result]) if axis is not None} | {
        a: len(outer) for a, role in nest.roles.items() if role == "k"
    }
    operands = (argument, values) if at.weights == 0 else (values, argument)
    total = build.product(op, *operands, place)
    extents = shape_of(at.scores.result)
    domain = [*(extents[a] for a in outer), extents[at.keys], at.domain[-1]]
    spans = frozenset([*range(len(outer)), len(outer) + 1])
    return HalfStages(copied.fusion("vector", domain, total), machine, spans, weighed=True)


def parts_combined(
    fusion: FusionOp, at: Attention, outer: Sequence[int], parts: int, machine: Machine
) -> Block:
    """A block that combines parts of the keys, in fusions. Its arguments are the results of the parts, their maxima and
    their sums; its yield has the fusion's results."""
    extents = shape_of(at.scores.result)
    lead, wide = [extents[a] for a in outer], at.domain[-1]
    shapes = ([parts, *lead, wide], [parts, *lead], [parts, *lead])
    build = AxesBuilder(Block(arg_types=[tensor(shape, WIDE) for shape in shapes]))
    build.location = at.product.location
    results, peaks, sums = build.block.args
    along = range(1, len(lead) + 1)
    peak = build.broadcast(build.reduce(peaks, "max", [0]), shapes[1], along)
    scale = build.elementwise("exp", build.elementwise("sub", peaks, peak))
    total = build.reduce(build.elementwise("mul", sums, scale), "sum", [0])
    scaled = build.elementwise("mul", results, build.broadcast(scale, shapes[0], [0, *along]))
    quotient = build.elementwise(
        "div", build.reduce(scaled, "sum", [0]), build.broadcast(total, [*lead, wide], range(len(lead)))
    )
    named = [*outer, len(extents)]
    order = [named.index(axis) for axis in at.axes[at.product.result] if axis is not None]
    shaped = build.reshape(build.transpose(quotient, order), shape_of(at.product.result))
    values: dict[SSAValue, SSAValue] = {
        at.product.result: build.convert(shaped, element_of(at.product.result))
    }
    for op in fusion.body.block.ops:
        if isinstance(op, YieldOp):
            build.block.add_op(YieldOp.create(operands=[values[v] for v in op.operands]))
        elif op.operands and all(v in values for v in op.operands):
            build.block.add_op(op.clone(values))
    fuse_block(build.block, machine)
    return build.block


def taken_apart(fusion: FusionOp, machine: Machine) -> Block:
    """A block that computes the same as attention in one fusion, in several. Its arguments are the fusion's inputs, and
    its yield has the fusion's results."""
    block = Block(arg_types=[v.type for v in fusion.inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(fusion.body.block.args, block.args, strict=True))
    for op in fusion.body.block.ops:
        copy = op.clone(values)
        copy.attributes.pop(AXES, None)
        block.add_op(copy)
    fuse_block(block, machine, attention=False)
    return block


def fusions_of(block: Block) -> list[FusionOp]:
    """The fusions of a block, in order."""
    return [op for op in block.ops if isinstance(op, FusionOp)]


def note_apart(pieces: Sequence[FusionOp], why: str) -> None:
    """Notes why attention is in these fusions, where somebody asks: at its product, and between each of them and what
    it hands a value to or takes one from."""
    reasons = asked_reasons()
    if reasons is None:
        return
    products = [op for piece in pieces for op in piece.body.block.ops if isinstance(op, ContractOp)]
    reasons += [Reason("not attention", (op,), why) for op in products[-1:]]
    readers = [*pieces, *(user for piece in pieces for r in piece.results for user in _readers(r))]
    for reader in dict.fromkeys(readers):
        for value in reader.operands:
            while isinstance(value.owner, ReshapeOp):
                value = value.owner.x
            maker = value.owner
            if isinstance(maker, FusionOp) and not maker.on_host and (maker in pieces or reader in pieces):
                reasons.append(Reason("not fused", (maker, reader), why, maker.results.index(value)))


def _readers(value: SSAValue) -> list[FusionOp]:
    """The fusions that read a value, as it is or through a view."""
    found: list[FusionOp] = []
    for use in value.uses:
        if isinstance(use.operation, FusionOp):
            found.append(use.operation)
        elif isinstance(use.operation, ReshapeOp):
            found += _readers(use.operation.result)
    return found
