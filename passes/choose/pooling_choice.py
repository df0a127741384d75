"""Whether a product and the reduction of windows behind it are one kernel: where that takes less time than two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf

from xdsl.ir import Operation

from ...dialects.graph import FusionOp
from ..forms.fingerprint import structure
from ..fusion.merged import put_in_place
from ..instantiation import has_open_sizes
from ..lower.cube.pooled import WINDOWS_ACROSS, PooledKernel
from ..lower.cube.pooling import chain_behind, pooled_fusion, pooling_in
from .launches import launches_of
from .rewrites import Offer, Proposal, Rewrites, Verdict

DOES_NOT_FIT = "the rows that one window reaches do not fit on chip as one tile"
OPEN = "sizes are open, and tiles of whole windows have known ones"


class PooledProduct(Rewrites):
    """A product and those that pool its result as one."""

    OBEYS_PINS = True

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        chain, why = chain_behind(fusion, position) if pooling_in(fusion) is None else ([], "")
        if not chain:
            return None
        if not why and any(has_open_sizes(each) for each in chain):
            why = OPEN
        one = None if why else pooled_fusion(chain)
        if one is None:
            return Offer(chain, (), (), lambda: _fused(chain), why)
        key, details = structure(one)
        one.erase()
        return Offer(chain, key, details, lambda: _fused(chain))

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        (plan,) = launches_of(proposal.fusions[0], self.machine)
        kernel = plan.kernel(plan.stem, None)
        if isinstance(kernel, PooledKernel) and kernel.windows_across:
            return Verdict(False, WINDOWS_ACROSS)
        return super().judge(offer, proposal)

    def comparison(self, many: int, made: float, before: int, now: float) -> str:
        if isinf(made):
            return DOES_NOT_FIT
        return f"one kernel takes {made:.1f} us, in tiles of whole windows, and {before} take {now:.1f}"


def _fused(chain: Sequence[FusionOp]) -> Proposal:
    """The fusions of a chain as one."""
    one = pooled_fusion(chain)
    assert one is not None

    def replace() -> list[FusionOp]:
        put_in_place(one, chain, chain[-1].results)
        return [one]

    return Proposal([one], replace)
