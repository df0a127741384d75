"""The shape and dtype of what an instruction gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import BufferType
from ...dialects.tile import TileType


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of a result."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @staticmethod
    def of(value: SSAValue) -> Spec:
        assert isinstance(value.type, BufferType | TileType)
        return Spec(value.type.shape, numpy_dtype(value.type.element))
