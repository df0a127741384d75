"""What is elementwise before an operand of a product of few rows is computed where vector cores load it.

Before:  %w = graph.fusion %q, %s {f16(q) * s} : 16 MB stored ; %y = graph.fusion %x, %w {x @ w}
After:   %y = graph.fusion %x, %q, %s {sum(x * (f16(q) * s))}, of the vector cores: 8 MB are loaded

The product has few rows, so that each element of the operand is used a few times, and never needed in memory: weights
that are stored as integers are widened, shifted and scaled between their load and their use.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from ...dialects.base import text, to_ints
from ...dialects.graph import ContractOp, ElementwiseOp, FusionOp
from ...dialects.graph.control import axes_of
from ...dialects.graph.interface import shape_of
from ..forms.fingerprint import structure
from ..fusion.merged import put_in_place
from ..instances import has_open_sizes
from ..lower.axes import is_member
from ..lower.cube.contraction_axes import product_in
from ..lower.cube.contraction_choice import CLEARLY_BETTER
from ..lower.cube.spreading import Prologue, spread, why_not_spread
from .rewrites import Offer, Proposal, Rewrites


class PrologueOnVector(Rewrites):
    """A product of few rows and what makes one of its operands, as one fusion of the vector cores."""

    EARLY = True
    MARGIN = CLEARLY_BETTER

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        reader = _only_reader(fusion)
        if reader is None or why_not_spread(reader, self.machine) is not None:
            return None
        prologue = _prologue(fusion, reader)
        if prologue is None:
            return None
        (key, details), (more, others) = structure(fusion), structure(reader)
        number = reader.operands.index(fusion.results[0])
        same = tuple(fusion.operands.index(v) if v in fusion.operands else -1 for v in reader.operands)
        return Offer(
            (fusion, reader), (key, more, number, same), (details, others), lambda: _joined(fusion, reader, prologue)
        )


def _only_reader(fusion: FusionOp) -> FusionOp | None:
    """The one fusion that reads the one result of an elementwise fusion, once; None where there is another, or what
    may not change."""
    if text(fusion.kind) != "vector" or len(fusion.results) != 1 or fusion.schedule is not None:
        return None
    reader = fusion.results[0].get_user_of_unique_use()
    if not isinstance(reader, FusionOp) or reader.on_host or reader.parent is not fusion.parent:
        return None
    fixed = reader.schedule is not None or has_open_sizes(fusion) or has_open_sizes(reader)
    members = [op for op in fusion.body.block.ops if axes_of(op) is not None]
    return reader if not fixed and all(isinstance(op, ElementwiseOp) for op in members) else None


def _prologue(fusion: FusionOp, reader: FusionOp) -> Prologue | None:
    """How a product takes what a fusion makes; None where it does not take it as it is."""
    op, made = product_in(reader), fusion.yielded(0).values[0]
    given = reader.body.block.args[reader.operands.index(fusion.results[0])]
    if not isinstance(op, ContractOp) or not given.has_one_use() or not is_member(made):
        return None
    (use,) = given.uses
    assert isinstance(made.owner, Operation)
    axes, shape = axes_of(made.owner) or (), shape_of(made)
    wide = {a for a, n in enumerate(to_ints(fusion.domain)) if n != 1}
    if use.operation is not op or shape != shape_of(given) or {a for a in axes if a >= 0} < wide:
        return None
    return Prologue(fusion, use.index, {a: d for d, a in enumerate(axes) if a >= 0})


def _joined(fusion: FusionOp, reader: FusionOp, prologue: Prologue) -> Proposal:
    """Both as one fusion of the vector cores, in the place of the product."""
    inputs: list[SSAValue] = [*fusion.operands, *(v for v in reader.operands if v is not fusion.results[0])]
    one = spread(reader, prologue)
    one.operands = inputs

    def replace() -> list[FusionOp]:
        put_in_place(one, (fusion, reader), reader.results, at=reader)
        return [one]

    return Proposal([one], replace)
