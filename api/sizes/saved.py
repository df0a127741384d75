"""What of a program with open sizes a model file has: what it is for all of them, and its versions for each chip."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...dialects.sizes import Constraint
from ...passes.errors import CompileError
from ...passes.templates import NoTemplate
from ..files.parts import OpenChipParts, OpenProgramParts
from .codes import OpenCode
from .templates import ForAllSizes, Ranges, SizedProgram

if TYPE_CHECKING:
    from .dynamic import DynamicProgram

MOST_CODES = 32
"""Ranges for which a file has what a program is, at most."""

LARGEST_TRACED = (1 << 31) - 1
"""The most that JAX takes for the bound of a size where it compares that."""


def parts_of(program: DynamicProgram, others: Sequence[DynamicProgram]) -> OpenProgramParts:
    """What of a program that has a version a file has; others: the same program for other chips. Raises CompileError
    for one that is made of variants."""
    if program.open_source.variants:
        raise CompileError(f"save: {program.name} is made of variants: save a program of each")
    signature = next(iter(program.versions.values())).signature
    chips = {each.target: _versions_of(each) for each in (program, *others)}
    shapes = program.open_source.shapes
    return OpenProgramParts(shapes, _codes_of(program), signature, program.options, program.target, chips)


def _versions_of(program: DynamicProgram) -> OpenChipParts:
    """The versions of a program for its chip."""
    alone = {key: v.chip_parts() for key, v in program.versions.items() if not isinstance(v, SizedProgram)}
    return OpenChipParts(program.ranges, alone)


def _codes_of(program: DynamicProgram) -> list[tuple[Ranges, OpenCode]]:
    """What a program is for all sizes, and for those that this leaves out, as the size 1; where it is nothing for all,
    what it is for the ranges of its versions."""
    code, symbols = program.open_source.whole, program.symbols
    if code is None:
        return []
    ends: Ranges = {s.name: (s.lower, LARGEST_TRACED if s.upper is None else s.upper) for s in symbols.values()}
    narrow: list[Ranges] = [dict(zip(symbols, key, strict=True)) for key in program.ranges]
    return _codes_within([ends], code) or _codes_within(narrow, code)


def _codes_within(asked: list[Ranges], whole: ForAllSizes) -> list[tuple[Ranges, OpenCode]]:
    """What a program is for ranges of sizes, and for those in them that this leaves out."""
    found: list[tuple[Ranges, OpenCode]] = []
    for ranges in asked:
        with suppress(NoTemplate):
            code = whole.code(ranges)
            found.append((ranges, code))
            apart = [{**ranges, name: (n, n)} for name, n in map(_excluded, code.constraints) if name]
            asked += [each for each in apart if each not in asked and len(asked) < MOST_CODES]
    return found


def _excluded(constraint: Constraint) -> tuple[str, int]:
    """The size that a constraint leaves out, and its symbol; an empty name where it says something else."""
    gap = constraint.left - constraint.right
    symbols = constraint.symbols
    if constraint.compare != "!=" or len(symbols) != 1 or [c for _, c in gap.terms] not in ([1], [-1]):
        return "", 0
    return symbols[0].name, abs(gap.constant)
