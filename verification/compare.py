"""How far two arrays are apart, relative to what is allowed, and where most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Difference:
    """ratio: the largest difference over what is allowed there (inf where it must be equal); error: that
    difference relative to the largest golden number; element: where it is; got, want: the values there; count:
    elements that differ by more than allowed."""

    ratio: float = 0.0
    error: float = 0.0
    element: tuple[int, ...] = ()
    got: Any = None
    want: Any = None
    count: int = 0


SAME = Difference()
WRONG = Difference(float("inf"), float("inf"))
"""What differs in shape, or not in its values."""


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays have one shape, one dtype and equal bytes."""
    if a is b:
        return True
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = (np.ascontiguousarray(np.asarray(v)).reshape(-1).view(np.uint8) for v in (a, b))
    words = x.size // 8 * 8
    return bool(
        np.array_equal(x[:words].view(np.uint64), y[:words].view(np.uint64))
        and (x[words:] == y[words:]).all()
    )


def compare(got: Any, want: Any, allowed: Any = None, bits: bool = False) -> Difference:
    """Compares two arrays of one shape. allowed: largest absolute difference of each element, None for equality;
    bits: every bit counts, the sign of zero too; a NaN equals any NaN, since nobody says which of two operands' signs
    and payloads it takes."""
    if got is want:
        return SAME
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape or a.dtype != b.dtype:
        return WRONG
    if a.size == 0 or same_bits(a, b):
        return SAME
    if bits:
        width = a.dtype.itemsize
        rows = [np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, width) for x in (a, b)]
        differ = (rows[0] != rows[1]).any(axis=1).reshape(a.shape) & ~((a != a) & (b != b))
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(kind), b.astype(kind)
    with np.errstate(all="ignore"):
        if not bits:
            differ = ~((x == y) | (np.isnan(x) & np.isnan(y)))
        gap = np.abs(x - y)
        gap = np.where(np.isnan(gap), np.inf, gap)
        room = np.zeros_like(gap) if allowed is None else np.asarray(allowed, np.float64)
        ratio = np.where(gap <= room, np.where(room > 0, gap / np.maximum(room, 1e-300), np.inf), gap / room)
        # where everything is allowed nothing can be wrong
        ratio = np.where(np.isposinf(room), 0.0, ratio)
        ratio = np.where(differ, np.where(np.isnan(ratio), np.inf, ratio), 0.0)
    if not ratio.any():
        return SAME
    # among infinite ratios, the largest gap
    worst = ratio == ratio.max()
    at = np.unravel_index(
        int(np.argmax(np.where(worst, np.where(np.isfinite(gap), gap, np.inf), -1))), a.shape
    )
    finite = np.abs(y[np.isfinite(y)])
    scale = float(finite.max()) if finite.size else 1.0
    return Difference(
        float(ratio[at]),
        float(gap[at]) / (scale or 1.0),
        tuple(int(i) for i in at),
        a[at],
        b[at],
        int((ratio > 1).sum()),
    )
