"""What every op on tiles answers: the npu instruction that it becomes, and where its tiles lie."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.scf import ForOp
from xdsl.dialects.scf import YieldOp as ForYieldOp
from xdsl.ir import SSAValue
from xdsl.traits import EffectInstance

from ..effects import MemoryEffectInterface, allocates
from ..npu.interface import NpuOp
from ..npu.legality import EngineOp
from ..npu.types import Pipe
from ..shapes import check_offsets
from .types import TileType


def tile_type(value: SSAValue) -> TileType:
    """The tile type of a value. Raises TypeError for anything else."""
    if not isinstance(value.type, TileType):
        raise TypeError(f"expected !tile.tile, got {value.type}")
    return value.type


def is_updated(tile: SSAValue) -> bool:
    """Whether a tile's memory is one that a loop carries, or an accumulator: what comes next is written over it."""
    for use in tile.uses:
        user = use.operation
        if isinstance(user, ForYieldOp | ForOp) or (user.name == "tile.mma" and use.index == ACCUMULATOR):
            return True
    return False


ACCUMULATOR = 2
"""The operand of tile.mma that it adds to."""


class TileOp(EngineOp, MemoryEffectInterface):
    """An op on tiles; `INSTRUCTION` is the npu op that computes it. It has no effect but the memory of a result
    that is updated in place."""

    INSTRUCTION: ClassVar[type[NpuOp] | None] = None

    def effects(self) -> AbstractSet[EffectInstance]:
        return allocates(v for v in self.results if is_updated(v))

    def pipes(self) -> Sequence[Pipe]:
        """The pipe of the instruction that the op becomes."""
        return () if self.INSTRUCTION is None else (self.INSTRUCTION.PIPE,)

    def verify_(self) -> None:
        check_offsets(self, len(self.index_operands()))

    def check_space(self, *values: SSAValue, space: str = "ub") -> None:
        for v in values:
            if tile_type(v).space != space:
                raise self.error(f"works on {space}, not {v.type}")
