"""The tile level: kernels over tiles in named memory spaces; the machine is known, addresses and flags are not."""

from xdsl.ir import Dialect

from .cube import DrainOp, MmaOp, MoveOp, MoveRowOp, ZeroOp
from .interface import TileOp, tile_type
from .structure import BarrierOp, KernelOp, LaunchOp, SectionOp
from .transfers import LoadIndirectOp, LoadOp, ScalarOp, StoreOp, ViewOp
from .types import TileType
from .vector import (
    ELEMENTWISE,
    ArgReduceOp,
    BroadcastOp,
    CumulateOp,
    ElementwiseTileOp,
    ExtractOp,
    FillOp,
    IotaOp,
    MaskOp,
    ReduceOp,
    RoundToOp,
    ScatterOp,
    SortOp,
    TransposeOp,
)

Tile = Dialect(
    "tile",
    [
        *ELEMENTWISE.values(),
        ArgReduceOp,
        BarrierOp,
        BroadcastOp,
        CumulateOp,
        DrainOp,
        ExtractOp,
        FillOp,
        IotaOp,
        KernelOp,
        LaunchOp,
        LoadIndirectOp,
        LoadOp,
        MaskOp,
        MmaOp,
        MoveOp,
        MoveRowOp,
        ReduceOp,
        RoundToOp,
        ScalarOp,
        ScatterOp,
        SectionOp,
        SortOp,
        StoreOp,
        TransposeOp,
        ViewOp,
        ZeroOp,
    ],
    [TileType],
)

__all__ = [
    "ArgReduceOp",
    "BarrierOp",
    "BroadcastOp",
    "CumulateOp",
    "DrainOp",
    "ELEMENTWISE",
    "ElementwiseTileOp",
    "ExtractOp",
    "FillOp",
    "IotaOp",
    "KernelOp",
    "LaunchOp",
    "LoadIndirectOp",
    "LoadOp",
    "MaskOp",
    "MmaOp",
    "MoveOp",
    "MoveRowOp",
    "ReduceOp",
    "RoundToOp",
    "ScalarOp",
    "ScatterOp",
    "SectionOp",
    "SortOp",
    "StoreOp",
    "Tile",
    "TileOp",
    "TileType",
    "TransposeOp",
    "ViewOp",
    "ZeroOp",
    "tile_type",
]
