"""Takes attention of few rows, and products back to back, apart again, where one kernel does not take clearly less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation

from ...dialects.graph import FusionOp, RowAttentionSchedule
from ..forms.chained import better_apart
from ..forms.fingerprint import structure
from ..lower.chains.attention_parts import chained_in, is_chained
from ..lower.chains.back_to_back import BackToBackKernel
from ..lower.chains.row_attention_parts import fusions_of, note_apart, taken_apart
from ..lower.cube.contraction_choice import CLEARLY_BETTER
from ..rewriting import inline_for
from .launches import kind_of_chain, launches_of
from .rewrites import Offer, Proposal, Rewrites, Verdict

CLEARLY_BETTER_THAN_TWO = 0.75
"""The same for products back to back: the bound of two kernels does not know that L2 has what is between them."""


class ChainApart(Rewrites):
    """The fusions that a chain is in parts."""

    WARM = False

    def offer(self, fusion: FusionOp, position: Mapping[Operation, int]) -> Offer | None:
        if fusion.schedule is not None or not is_chained(fusion):
            return None
        if not self._of_few_rows(fusion):
            at = chained_in(fusion, self.machine)
            if kind_of_chain(at, self.machine) is not BackToBackKernel or better_apart(at, self.machine) is None:
                return None
        return Offer([fusion], *structure(fusion), lambda: self._parts(fusion))

    def _of_few_rows(self, fusion: FusionOp) -> bool:
        (plan,) = launches_of(fusion, self.machine)
        return issubclass(plan.choices, RowAttentionSchedule)

    def _parts(self, fusion: FusionOp) -> Proposal:
        block = taken_apart(fusion, self.machine)

        def replace() -> list[FusionOp]:
            pieces = fusions_of(block)
            inline_for(fusion, block, fusion.inputs)
            fusion.detach()
            fusion.erase()
            return pieces

        return Proposal(fusions_of(block), replace)

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        few = self._of_few_rows(offer.fusions[0])
        apart = self.scheduler.price(proposal.fusions, warm=False, cut=True)
        whole = self.scheduler.price(offer.fusions)
        taken = whole >= apart * (CLEARLY_BETTER if few else CLEARLY_BETTER_THAN_TWO)
        of = "attention of few rows takes" if few else "products back to back take"
        said = f"{of} {apart:.1f} us in parts, and {whole:.1f} us as one kernel"
        return Verdict(taken, f"{said}, which is not clearly less" if taken else said)

    def took(self, fusions: Sequence[FusionOp], why: str) -> None:
        note_apart(fusions, why)
