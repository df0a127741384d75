"""What plain `xdsl-opt` learns about us through the `xdsl.universe` entry point."""

from __future__ import annotations

from xdsl.ir import Dialect
from xdsl.universe import Universe
from xdsl.utils.target import Target

from ..dialects import VENDOR, added_dialects, vendor_dialects
from ..passes.pipeline import all_passes


def _graph() -> Dialect:
    from ..dialects.graph import Graph

    return Graph


def _tile() -> Dialect:
    from ..dialects.tile import Tile

    return Tile


def _npu() -> Dialect:
    from ..dialects.npu import Npu

    return Npu


def _stages() -> type[Target]:
    from .optimizer.stages import StagesTarget

    return StagesTarget


def _nests() -> type[Target]:
    from .optimizer.stages import NestsTarget

    return NestsTarget


DIALECTS = {"graph": _graph, "tile": _tile, "npu": _npu}

TILEWRIGHT_UNIVERSE = Universe(
    all_dialects=DIALECTS | vendor_dialects(VENDOR) | added_dialects(),
    all_passes=all_passes(),
    all_targets={"stages": _stages, "nests": _nests},
)
