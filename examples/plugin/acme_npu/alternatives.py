"""What graph-schedule may do with fusions on a chip of Acme, beside its own alternatives."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation

from tilewright.dialects.base import text
from tilewright.dialects.graph import FusionOp
from tilewright.passes.alternatives import Alternative
from tilewright.passes.choose.oversized import FusionParts, members_of
from tilewright.passes.choose.rewrites import Offer, Proposal, Rewrites
from tilewright.passes.forms.fingerprint import structure
from tilewright.passes.instantiation import has_open_sizes

HALVES = Alternative(
    name="acme-halves",
    does="what one kernel of the vector cores would do is done by two, one behind the other",
    without="leave what one kernel of the vector cores does to one",
    stages=("graph-schedule",),
    rewrites="acme_npu.alternatives:Halves",
)


class Halves(Rewrites):
    """A vector fusion as two, cut in the middle of its members."""

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        members = members_of(fusion)
        if text(fusion.kind) != "vector" or len(members) < 2 or fusion.schedule is not None or has_open_sizes(fusion):
            return None

        def make() -> Proposal:
            middle = len(members) // 2
            parts = FusionParts(fusion, [set(members[:middle]), set(members[middle:])])

            def replace() -> list[FusionOp]:
                parts.replace()
                return parts.fusions

            return Proposal(parts.fusions, replace)

        return Offer([fusion], *structure(fusion), make)
