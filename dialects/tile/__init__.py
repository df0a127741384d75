"""The tile level: kernels over tiles in named memory spaces; the machine is known, addresses and flags are not."""

from xdsl.ir import Dialect

from . import ops
from .ops import TileOp, tile_type
from .types import TileType

Tile = Dialect("tile", ops.ALL, [TileType])

__all__ = ["Tile", "TileOp", "TileType", "ops", "tile_type"]
