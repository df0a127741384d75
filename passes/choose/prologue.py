"""What is elementwise before an operand of a product is computed where that is loaded, and never stored as a whole:
weights that are stored as integers are widened, shifted and scaled between their load and their use.

Before:  %w = graph.fusion %q, %s {f16(q) * s} : 16 MB stored ; %y = graph.fusion %x, %w {x @ w}
After:   %y = graph.fusion %x, %q, %s {sum(x * (f16(q) * s))}, of the vector cores, where the product has few rows ; or
         %y = graph.fusion %x, %q, %s {x @ (f16(q) * s)}, tiles of the operand going from vector cores to the cube
         (lower/cube/prologue.py)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects.base import ints, text, to_ints
from ...dialects.graph import ContractOp, ElementwiseOp, FusionOp, ReduceOp, TransposeOp
from ...dialects.graph.control import axes_of, besides_axes
from ...dialects.graph.interface import shape_of
from ..forms.fingerprint import structure
from ..fusion.merged import MergedBody, put_in_place
from ..instantiation import has_open_sizes
from ..lower.axes import behind_transposes, is_member
from ..lower.cube.contraction_axes import PROLOGUE, made_operand, product_in
from ..lower.cube.contraction_choice import CLEARLY_BETTER
from ..lower.cube.pooling import pooling_in
from ..lower.cube.spreading import Prologue, spread, why_not_spread
from ..rewriting import erase_dead
from .oversized import FusionParts, members_of
from .rewrites import Offer, Proposal, Rewrites


class _PrologueOfProduct(Rewrites):
    """A product and what makes one of its operands, as one fusion."""

    EARLY = True
    MARGIN = CLEARLY_BETTER
    MEMBERS: ClassVar[tuple[type[Operation], ...]] = (ElementwiseOp,)
    """What may stand before the product."""
    TRANSPOSED: ClassVar[bool]
    """Whether the operand may be stored and read transposed."""

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        reader = _only_reader(fusion, self.MEMBERS)
        if reader is None or not self.may_take(reader):
            return None
        prologue = _prologue(fusion, reader, self.TRANSPOSED)
        if prologue is None:
            return None
        (key, details), (more, others) = structure(fusion), structure(reader)
        number = reader.operands.index(fusion.results[0])
        same = tuple(fusion.operands.index(v) if v in fusion.operands else -1 for v in reader.operands)
        return Offer(
            (fusion, reader), (key, more, number, same), (details, others), lambda: self.joined(reader, prologue)
        )

    @abstractmethod
    def may_take(self, reader: FusionOp) -> bool:
        """Whether the fusion of a product may have a prologue of its operand."""

    @abstractmethod
    def joined(self, reader: FusionOp, prologue: Prologue) -> Proposal:
        """Both as one fusion."""


class PrologueOnVector(_PrologueOfProduct):
    """A product of few rows and what makes one of its operands, on the vector cores."""

    TRANSPOSED = False

    def may_take(self, reader: FusionOp) -> bool:
        return why_not_spread(reader, self.machine) is None

    def joined(self, reader: FusionOp, prologue: Prologue) -> Proposal:
        fusion = prologue.fusion
        inputs: list[SSAValue] = [*fusion.operands, *(v for v in reader.operands if v is not fusion.results[0])]
        one = spread(reader, prologue)
        one.operands = inputs
        return _in_place_of(fusion, reader, one)


class PrologueOnCube(_PrologueOfProduct):
    """A product on the cube and what makes one of its operands, on the vector cores beside it: that may reduce rows, as
    a norm does."""

    MEMBERS = (ElementwiseOp, ReduceOp)
    TRANSPOSED = True

    def may_take(self, reader: FusionOp) -> bool:
        product = product_in(reader)
        if not isinstance(product, ContractOp) or self.machine.fused or len(reader.results) != 1:
            return False
        return made_operand(reader) is None and pooling_in(reader) is None

    def joined(self, reader: FusionOp, prologue: Prologue) -> Proposal:
        fusion, product = prologue.fusion, product_in(reader)
        assert product is not None
        first, behind = reader, list[FusionOp]()
        if text(reader.kind) != "cube":  # what stands behind the product is a kernel of its own
            others = {op for op in members_of(reader) if op is not product}
            first, *behind = FusionParts(reader, [{product}, others]).fusions
        body = MergedBody(v for v in (*fusion.inputs, *first.inputs) if v is not fusion.results[0])

        def apart(op: Operation) -> Mapping[str, Attribute]:
            axes = axes_of(op)
            if axes is None:
                return op.attributes
            return {**besides_axes(op), PROLOGUE: ints([prologue.dims.get(a, -1) for a in axes])}

        body.add(fusion, apart)
        body.add(first, lambda op: op.attributes)
        one = body.fusion(first.results, first)
        _drop_transposes(one)
        for each in behind:
            each.operands = [one.results[0] if v is first.results[0] else v for v in each.operands]
        if behind:
            first.erase()
        return _in_place_of(fusion, reader, one, *behind)


def _drop_transposes(fusion: FusionOp) -> None:
    """Takes transposes away that undo each other between what a fusion makes of an operand and its product."""
    product = product_in(fusion)
    assert isinstance(product, ContractOp)
    for i, value in enumerate(product.operands):
        made, dims = behind_transposes(value, range(len(shape_of(value))))
        if list(dims) == sorted(dims):
            product.operands[i] = made
    erase_dead(fusion.body.block)


def _only_reader(fusion: FusionOp, may: tuple[type[Operation], ...]) -> FusionOp | None:
    """The one fusion that reads the one result of a fusion of ops of these kinds, once; None where there is another, or
    what may not change."""
    if text(fusion.kind) != "vector" or len(fusion.results) != 1 or fusion.schedule is not None:
        return None
    reader = fusion.results[0].get_user_of_unique_use()
    if not isinstance(reader, FusionOp) or reader.on_host or reader.parent is not fusion.parent:
        return None
    fixed = reader.schedule is not None or has_open_sizes(fusion) or has_open_sizes(reader)
    members = [op for op in fusion.body.block.ops if axes_of(op) is not None]
    return reader if not fixed and all(isinstance(op, may) for op in members) else None


def _prologue(fusion: FusionOp, reader: FusionOp, transposed: bool) -> Prologue | None:
    """How a product takes what a fusion makes, which may be stored and read `transposed`; None where it does not take
    it as it is."""
    op, made = product_in(reader), fusion.yielded(0).values[0]
    given: SSAValue = reader.body.block.args[reader.operands.index(fusion.results[0])]
    if transposed:
        made, _ = behind_transposes(made)
        while isinstance(user := given.get_user_of_unique_use(), TransposeOp):
            given = user.result
    if not isinstance(op, ContractOp) or not given.has_one_use() or not is_member(made):
        return None
    (use,) = given.uses
    if not isinstance(made.owner, ElementwiseOp):  # of a reduction, an axis is no dimension
        return None
    axes, shape = axes_of(made.owner) or (), shape_of(made)
    wide = {a for a, n in enumerate(to_ints(fusion.domain)) if n != 1}
    same = sorted(shape) == sorted(shape_of(given)) if transposed else shape == shape_of(given)
    if use.operation is not op or not same or {a for a in axes if a >= 0} < wide:
        return None
    return Prologue(fusion, use.index, {a: d for d, a in enumerate(axes) if a >= 0})


def _in_place_of(fusion: FusionOp, reader: FusionOp, one: FusionOp, *behind: FusionOp) -> Proposal:
    """One fusion, and those behind it, in the place of a product and what makes one of its operands. The last one gives
    the results."""

    *before, last = one, *behind

    def replace() -> list[FusionOp]:
        block = reader.parent
        assert block is not None
        block.insert_ops_before(before, reader)
        put_in_place(last, (fusion, reader), reader.results, at=reader)
        return [*before, last]

    return Proposal([*before, last], replace)
