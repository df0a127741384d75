"""What a configuration chose for a product, which the location of its op says: locations survive every pass.

    loc("tilewright.product w8a8 params['conv1_w']"("model.py":51:8))
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import LocationAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, Operation

MARK = "tilewright.product "


@dataclass(frozen=True)
class ChosenMode:
    """The name of a product, `params['conv1_w']`, and the mode that was chosen for it, `w8a8`."""

    name: str
    mode: str


def location_with(chosen: ChosenMode, location: LocationAttr) -> NameLoc:
    """A location that also says what was chosen for the product at it."""
    return NameLoc(StringAttr(f"{MARK}{chosen.mode} {chosen.name}"), location)


def chosen_mode(op: Operation) -> ChosenMode | None:
    """What was chosen for the product that an op came from; None where its location does not say."""
    loc: Attribute = op.location
    while isinstance(loc, NameLoc):
        if loc.desc.data.startswith(MARK):
            mode, _, name = loc.desc.data.removeprefix(MARK).partition(" ")
            return ChosenMode(name, mode)
        loc = loc.location
    return None
