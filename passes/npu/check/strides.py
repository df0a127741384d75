"""How transfers step through device memory: what touches.py, device.py and in_place.py share."""

from __future__ import annotations

from ....dialects.npu import GmType
from .model import CheckedKernel, TensorAccess


def by_stride(view: GmType) -> tuple[int, ...]:
    """The dimensions of a view that move, those with the longest strides first."""
    return tuple(sorted((d for d, n in enumerate(view.shape) if n > 1), key=lambda d: -view.strides[d]))


def core_variables(kernel: CheckedKernel, transfer: TensorAccess) -> list[int]:
    """The variables that tell cores apart: grid coordinates and the unit, where they move."""
    kernel.counts[kernel.unit] = transfer.section.units
    return [v for v in range(kernel.unit + 1) if kernel.counts[v] > 1]
