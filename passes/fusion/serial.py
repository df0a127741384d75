"""Kernels that do on few cores, one after the other, what could be done for each of several tensors by itself.

A group that reduces along most of its domain has few rows, and so few cores. What joins it and shares none of its large
tensors is one more *strand*: more work for the same cores. Whether the strands of a kernel are better done side by side
depends on all of them, so graph-schedule decides it (passes/choose/strands.py). Here their number is limited, as the
time to judge a kernel grows with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.ir import SSAValue

from ...dialects.dtypes import size
from ...dialects.open_sizes import choosing
from ...machine import Machine
from .dependencies import Group
from .held import Facts

ABSORB_RATIO = 16
"""What is this many times smaller than a domain is no large tensor of it, and a group this many times smaller than its
consumer is recomputed there instead of stored and loaded."""

MOST_MEMBERS = 32
"""Members of a kernel on few cores to which no more strands are added."""

MANY_STRANDS = "it does for several tensors, one after the other on few cores, what it does for many already"


@choosing()
def is_small(elements: int, domain: Sequence[int]) -> bool:
    """Whether a tensor of so many elements is no large one of a domain."""
    return elements * ABSORB_RATIO <= size(domain)


@choosing()
def on_few_cores(domain: Sequence[int], reduced: Iterable[int], machine: Machine) -> bool:
    """Whether the rows of a domain, reduced along some axes, occupy less than half of the cores."""
    along = set(reduced)
    return (
        bool(along) and 2 * size([n for a, n in enumerate(domain) if a not in along]) <= machine.vector_cores
    )


def why_no_strand(
    group: Group,
    reads: Iterable[SSAValue],
    more: int,
    reduced: Iterable[int],
    of: Callable[[SSAValue], Facts],
    machine: Machine,
) -> str | None:
    """Why `more` members that read these values do not join a group: they are one strand too many, with which it
    reduces along the axes `reduced`. None where they may."""
    if len(group.members) + more <= MOST_MEMBERS or not on_few_cores(group.domain, reduced, machine):
        return None
    large = {of(v).base for v in reads if not (of(v).splat or is_small(of(v).elements, group.domain))}
    large = {v for v in large if not is_small(of(v).elements, group.domain)}
    shares = any(v in group.axes or v in group.reads or v.owner in group.inside for v in large)
    return MANY_STRANDS if large and not shares else None
