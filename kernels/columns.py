"""Arithmetic on one number, or on an array with a number for each of many plans: a formula is written once for both.

A number may be an open size (`dialects/open_sizes.py`) where it stands alone, never in an array. Sums, products and
quotients are Python's operators; here is what Python has no operator for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..machine import Machine
from ..machine.parts import Move

Number: TypeAlias = Any
"""An int, a float, an open size, or an array of ints or floats."""


def is_many(*numbers: Number) -> bool:
    """Whether one of these is an array."""
    return any(isinstance(n, np.ndarray) for n in numbers)


def most(first: Number, *others: Number) -> Number:
    """The largest."""
    for other in others:
        many = isinstance(first, np.ndarray) or isinstance(other, np.ndarray)
        first = np.maximum(first, other) if many else max(first, other)
    return first


def least(first: Number, *others: Number) -> Number:
    """The smallest."""
    for other in others:
        many = isinstance(first, np.ndarray) or isinstance(other, np.ndarray)
        first = np.minimum(first, other) if many else min(first, other)
    return first


def pick(condition: Number, this: Number, that: Number) -> Number:
    """One of two numbers that are both known."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, this, that)
    return this if condition else that


def parts(count: Number, each: Number) -> Number:
    """In how many parts of `each` something is."""
    return -(-count // each)


def column(numbers: Iterable[float]) -> Number:
    """Numbers of plans: an array, or the one number where there is one plan."""
    found = list(numbers)
    return found[0] if len(found) == 1 else np.array(found)


def columns(rows: Sequence[Sequence[float]]) -> Sequence[Number]:
    """The columns of a table with a row for each plan; the one row where there is one plan."""
    return rows[0] if len(rows) == 1 else list(np.array(rows, float).T)


def as_list(numbers: Number, count: int) -> list[float]:
    """The numbers of so many plans."""
    return np.broadcast_to(np.asarray(numbers, float), count).tolist()


def moving(move: Move, bytes: Number, runs: Number = 0, overlapped: bool = False) -> Number:
    """Cycles of a move whose bytes all hit L2, as `Move.cycles` of machine/parts.py has them for one plan."""
    if not is_many(bytes, runs):
        return move.cycles(bytes, runs, overlapped)
    alone = move.fixed_cycles + most(move.run_cycles * runs, bytes / move.bytes_per_cycle)
    return np.ceil(alone * (move.overlap_factor if overlapped else 1))


def missing(move: Move, bus: Number, cycles: Number) -> Number:
    """Cycles of a move whose bytes all miss L2, as `Move.missed_cycles` of machine/parts.py has them for one plan."""
    if not is_many(bus, cycles):
        return move.missed_cycles(bus, cycles)
    return np.maximum(cycles, move.fixed_cycles + bus / move.miss_bytes_per_cycle)


def launching(machine: Machine, cores: Number, mixed: Number = False) -> Number:
    """Microseconds to launch kernels on so many cube cores; mixed: whether their vector cores work along."""
    if not is_many(cores, mixed):
        return machine.launch_microseconds(cores, mixed)
    numbers = range(machine.cube_cores + 1)
    known = np.array([[machine.launch_microseconds(n, m) for n in numbers] for m in (False, True)])
    return known[np.asarray(mixed, int), np.minimum(cores, machine.cube_cores).astype(int)]


def launching_vectors(machine: Machine, cores: Number) -> Number:
    """The same for kernels on so many vector cores alone."""
    if not is_many(cores):
        return machine.vector_launch_microseconds(cores)
    return launching(machine, -(-cores * machine.cube_cores // machine.vector_cores))
