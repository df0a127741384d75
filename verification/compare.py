"""How far two arrays are apart, relative to what is allowed, and where most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Difference:
    """ratio: the largest difference over what is allowed there (inf where it must be equal); error: that
    difference relative to the largest golden number; element: where it is; got, want: the values there; count:
    elements that differ by more than allowed; open: elements that differ, but whose bound is larger than any golden
    number of the tensor, so that nothing is known of them."""

    ratio: float = 0.0
    error: float = 0.0
    element: tuple[int, ...] = ()
    got: Any = None
    want: Any = None
    count: int = 0
    open: int = 0


CHUNK = 1 << 16
"""Elements that are compared at a time: their temporaries stay in the cache, which fresh pages do not."""

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


def largest_finite(x: np.ndarray) -> float:
    """The largest magnitude of a finite number in x; 0 where there is none."""
    flat, largest = x.reshape(-1), 0.0
    for at in range(0, flat.size, CHUNK):
        part = np.abs(_wide(flat[at : at + CHUNK]))
        largest = max(largest, float(part.max(initial=0, where=np.isfinite(part))))
    return largest


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
    flat_a, flat_b = (np.ascontiguousarray(x).reshape(-1) for x in (a, b))
    room = None if allowed is None else np.broadcast_to(np.asarray(allowed), a.shape).reshape(-1)
    scale = largest_finite(flat_b) or 1.0
    worst, at, count, unsettled = (0.0, 0.0), 0, 0, 0
    for first in range(0, a.size, CHUNK):
        here = slice(first, first + CHUNK)
        ratio, gap, free = _apart(
            flat_a[here], flat_b[here], None if room is None else room[here], bits, scale
        )
        unsettled += free
        count += int((ratio > 1).sum())
        top = float(ratio.max())
        if top < worst[0] or top == 0:
            continue
        # among infinite ratios, the largest gap
        place = int(np.argmax(np.where(ratio == top, gap, -1)))
        if (top, float(gap[place])) > worst:
            worst, at = (top, float(gap[place])), first + place
    if worst[0] == 0:
        return Difference(open=unsettled)
    element = tuple(int(i) for i in np.unravel_index(at, a.shape))
    error = worst[1] / scale
    return Difference(worst[0], error, element, a[element], b[element], count, unsettled)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _apart(
    a: np.ndarray, b: np.ndarray, allowed: np.ndarray | None, bits: bool, scale: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """For each element the difference over what is allowed, and the difference; and how many elements differ although
    anything up to `scale` is allowed there."""
    if bits:
        width = a.dtype.itemsize
        rows = [x.view(np.uint8).reshape(-1, width) for x in (a, b)]
        differ = (rows[0] != rows[1]).any(axis=1) & ~((a != a) & (b != b))
    x, y = _wide(a), _wide(b)
    with np.errstate(all="ignore"):
        if not bits:
            differ = ~((x == y) | (np.isnan(x) & np.isnan(y)))
        gap = np.abs(x - y)
        gap = np.where(np.isnan(gap), np.inf, gap)
        room = np.zeros_like(gap) if allowed is None else allowed.astype(np.float64)
        ratio = np.where(gap <= room, np.where(room > 0, gap / np.maximum(room, 1e-300), np.inf), gap / room)
        # where everything is allowed nothing can be wrong
        ratio = np.where(np.isposinf(room), 0.0, ratio)
        ratio = np.where(differ, np.where(np.isnan(ratio), np.inf, ratio), 0.0)
    free = 0 if allowed is None else int((differ & ((room > scale) | np.isposinf(room))).sum())
    return ratio, gap, free
