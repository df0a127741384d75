"""What every op on tiles answers: the npu instruction that it becomes, and where its tiles lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import SSAValue

from ..base import Linear
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


class TileOp(EngineOp):
    """A pure op on tiles; `instruction` is the npu op that computes it."""

    INSTRUCTION: ClassVar[type[NpuOp] | None] = None

    def pipes(self) -> Sequence[Pipe]:
        """The pipe of the instruction that the op becomes."""
        return () if self.INSTRUCTION is None else (self.INSTRUCTION.PIPE,)

    def linear(self) -> Linear:
        attr = self.properties["offsets"]
        assert isinstance(attr, DenseArrayBase)
        return Linear.decode(attr, len(self.index_operands()))

    def verify_(self) -> None:
        check_offsets(self, len(self.index_operands()))

    def check_space(self, *values: SSAValue, space: str = "ub") -> None:
        for v in values:
            if tile_type(v).space != space:
                raise self.error(f"works on {space}, not {v.type}")
