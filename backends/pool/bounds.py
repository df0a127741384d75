"""How much memory a trace needs at least, and how much allocators need at worst.

Robson's bound is about the worst trace of some peak and largest block, not about the one at hand. With M units live at
most and blocks of 1, 2, 4, ... n units, an allocator that moves nothing needs

    M (1 + log2(n) / 2) - n + 1

units: some trace makes every one of them use as many, and one allocator never uses more. J. M. Robson, An Estimate of
the Store Size Necessary for Dynamic Storage Allocation, JACM 18(3), 1971, pages 416-423, for the trace; Bounds for Some
Functions Concerning Dynamic Storage Allocation, JACM 21(3), 1974, pages 491-499, for the formula. It takes n as a power
of two and M as a multiple of n. Elsewhere sizes are rounded: down for what is forced, up for what is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import PoolError
from .events import PoolEvent, sizes


@dataclass(frozen=True)
class RobsonBound:
    """Bytes that some trace forces on every allocator without moves, and bytes with which the best one never fails. The
    trace has the peak and the largest block of a given one."""

    forced_bytes: int
    enough_bytes: int


def peak_of_live(trace: Sequence[PoolEvent], rounded: Callable[[int], int] = lambda size: size) -> int:
    """The most bytes that are live at one time, each allocation's rounded as given: no allocator uses less."""
    live = peak = 0
    for before, after in sizes(trace):
        live += rounded(after) - rounded(before)
        peak = max(peak, live)
    return peak


def robson_bound(trace: Sequence[PoolEvent], alignment: int) -> RobsonBound | None:
    """Robson's bound for the peak and the largest block of a trace, in units of an alignment; None for a trace that
    allocates nothing."""
    largest = -(-max((after for _, after in sizes(trace)), default=0) // alignment)
    if not largest:
        return None
    low, high = 1 << largest.bit_length() - 1, 1 << (largest - 1).bit_length()
    peak = peak_of_live(trace, lambda size: -(-size // alignment))
    rounded_peak = peak_of_live(trace, lambda size: _power_of_two(-(-size // alignment)))
    return RobsonBound(
        _robson(peak // low * low, low) * alignment,
        _robson(-(-rounded_peak // high) * high, high) * alignment,
    )


def best_fit_bound(trace: Sequence[PoolEvent], alignment: int) -> int:
    """Bytes above which `best-fit` without moves never goes for a trace of `allocate` and `free` that it serves. Raises
    PoolError for one with growth, which may take memory behind the last block though a hole is large enough.

    Memory in use ends with a block, so it has no more holes than blocks. It grows for a request of r units only if
    every hole has r - 1 at most: with L units in B blocks it is then L + B (r - 1) + r at most. The bound is the
    largest of these over the trace. For M units live and blocks of n units at most it is M n or less, which is about
    what Robson found: Worst Case Fragmentation of First Fit and Best Fit Storage Allocation Strategies, The Computer
    Journal 20(3), 1977.
    """
    if any(event.event == "grow" for event in trace):
        raise PoolError("the bound of best-fit is about traces without growth")
    live = blocks = most = 0
    for before, after in sizes(trace):
        had, wanted = -(-before // alignment), -(-after // alignment)
        if wanted > had:
            most = max(most, live + blocks * (wanted - 1) + wanted)
        live += wanted - had
        blocks += (wanted > 0) - (had > 0)
    return most * alignment


def _robson(live: int, largest: int) -> int:
    """Robson's formula, in units, for a power of two `largest` and a multiple `live` of it."""
    return live + live * (largest.bit_length() - 1) // 2 - largest + 1


def _power_of_two(units: int) -> int:
    """The smallest power of two that is not less; 0 for 0."""
    return 1 << (units - 1).bit_length() if units else 0
