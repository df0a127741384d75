"""Takes attention, and products back to back, apart again, where one kernel does not take less.

Attention of many rows is one kernel whatever that takes where its weights have no room in L2, as what is between its
products would take memory, and where sizes are open, as it would for larger ones. What the parts become by other
alternatives, as a softmax that is part of a product's kernel, counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation

from ...dialects.graph import FusionOp
from ..forms.chained import better_apart, stays_in_l2
from ..forms.fingerprint import structure
from ..instantiation import has_open_sizes
from ..lower.chains.attention import AttentionKernel
from ..lower.chains.attention_parts import chained_in, is_chained
from ..lower.chains.back_to_back import BackToBackKernel
from ..lower.chains.row_attention import RowAttentionKernel
from ..lower.chains.row_attention_parts import fusions_of, note_apart, taken_apart
from ..rewriting import inline_for
from .launches import kind_of_chain
from .rewrites import Offer, Proposal, Rewrites, Verdict

BETTER = 1.05
"""Attention of many rows stays one kernel where that takes less than so many times its parts, which are taken to wait
at barriers over all cores: below it both take the same as far as the bound knows."""

MOST_PARTS = 3
"""Attention of many rows in more parts has a mask that is made of positions, which one kernel makes anew for each tile:
a part of its own would store it for the softmax to load."""

CLEARLY_BETTER_THAN_TWO = 0.75
"""The same for products back to back: the bound of two kernels does not know that L2 has what is between them."""

MARGINS: Mapping[type, tuple[str, float]] = {
    AttentionKernel: ("attention takes", BETTER),
    RowAttentionKernel: ("attention of few rows takes", 1.0),
    BackToBackKernel: ("products back to back take", CLEARLY_BETTER_THAN_TWO),
}
"""Of each kernel that may be taken apart what reasons call it, and the share of its parts' time that it takes less
than."""


class ChainApart(Rewrites):
    """The fusions that attention, or another chain, is in parts."""

    WARM = False

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        if fusion.schedule is not None or not is_chained(fusion):
            return None
        kind = self._kind(fusion)
        at = chained_in(fusion, self.machine)
        if kind is AttentionKernel and (has_open_sizes(fusion) or not stays_in_l2(at)):
            return None
        if kind is BackToBackKernel and better_apart(at, self.machine) is None:
            return None
        if kind not in MARGINS:
            return None
        return Offer([fusion], *structure(fusion), lambda: self._parts(fusion))

    def _kind(self, fusion: FusionOp) -> type:
        at = chained_in(fusion, self.machine)
        return RowAttentionKernel if at.is_decode else kind_of_chain(at, self.machine)

    def _parts(self, fusion: FusionOp) -> Proposal:
        block = taken_apart(fusion, self.machine)
        position: dict[Operation, float] = {op: i for i, op in enumerate(block.ops)}
        for piece in fusions_of(block):
            if piece.parent is not None:  # one before it may have taken it in
                self.scheduler.rewritten(piece, position)

        def replace() -> list[FusionOp]:
            pieces = fusions_of(block)
            inline_for(fusion, block, fusion.inputs)
            fusion.detach()
            fusion.erase()
            return pieces

        return Proposal(fusions_of(block), replace)

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        of, margin = MARGINS[kind := self._kind(offer.fusions[0])]
        apart = self.scheduler.price(proposal.fusions, warm=False, cut=True)
        whole = self.scheduler.price(offer.fusions)
        parts = len(proposal.fusions)
        among = apart + self._waiting(parts, kind)
        taken = whole >= among * margin
        if kind is AttentionKernel and parts > MOST_PARTS:
            taken = False
        said = f"{of} {apart:.1f} us in parts, and {whole:.1f} us as one kernel"
        return Verdict(taken, f"{said}, which is not clearly less" if taken and margin < 1 else said, among, whole)

    def _waiting(self, parts: int, kind: type) -> float:
        """Microseconds of barriers between the parts of attention among its neighbours, which occupy all cores: a group
        of these parts alone occupies as many as they use."""
        if kind is not AttentionKernel or not self.scheduler.join:
            return 0.0
        return (parts - 1) * self.machine.barrier_microseconds(self.machine.cube_cores)

    def took(self, fusions: Sequence[FusionOp], why: str) -> None:
        note_apart(fusions, why)
