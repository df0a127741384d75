"""What programs for several devices have: their parts are refused, and what one device alone does is the identity."""

from __future__ import annotations

from ..bindings import Op
from ..errors import FrontendError
from ..walk import Rule, Walk
from .base import Results, Types, Values

_REMEDY = "Tilewright compiles for one device: compile what each of them runs, or the function without a mesh"


def _divided(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    raise FrontendError(f"{walk.named()} divides the program among devices; {_REMEDY}")


def _collective(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """The identity within groups of one device. Raises FrontendError for larger groups."""
    members = list(op.attributes["replica_groups"].type.shape)[-1]
    if members > 1:
        raise FrontendError(f"{walk.named()} exchanges data among {members} devices; {_REMEDY}")
    alike = members == 1 and [x.type for x in args] == list(types)
    return args if alike else None


def _permute(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    pairs, _ = op.attributes["source_target_pairs"].type.shape
    if pairs > 1:
        raise FrontendError(f"{walk.named()} exchanges data among {pairs} devices; {_REMEDY}")
    return None


RULES: dict[str, Rule] = {
    "sdy.manual_computation": _divided,
    **dict.fromkeys(
        (
            "stablehlo.all_gather",
            "stablehlo.all_reduce",
            "stablehlo.all_to_all",
            "stablehlo.collective_broadcast",
            "stablehlo.reduce_scatter",
        ),
        _collective,
    ),
    "stablehlo.collective_permute": _permute,
}
