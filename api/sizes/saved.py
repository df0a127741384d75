"""What of a program with open sizes a model file has: what it is for all of them, and its versions for each chip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ...dialects.affine import Expr, Symbol
from ...dialects.sizes import Constraint, replaced, symbols_of
from ...passes.errors import CompileError
from ...passes.templates import NoTemplate
from ..arguments.signature import Signature
from ..files.parts import OpenChipParts, OpenProgramParts
from .codes import OpenCode
from .relations import Relations
from .templates import ForAllSizes, Ranges, SizedProgram, typical_sizes

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
    chips = {each.target: _versions_of(each) for each in (program, *others)}
    shapes, codes = program.open_source.shapes, [*codes_of(program)]
    signature = _signature_of(program)
    return OpenProgramParts(shapes, codes, signature, program.options, program.target, chips)


def _signature_of(program: DynamicProgram) -> Signature:
    """How a program is called, at some sizes: of one that has a version, and whose code was asked for."""
    for version in program.versions.values():
        return version.signature
    whole = program.open_source.whole
    assert whole is not None  # it has versions for ranges
    return whole.signature(typical_sizes(program.symbols))


def _versions_of(program: DynamicProgram) -> OpenChipParts:
    """The versions of a program for its chip."""
    kept = {key: dict(zip(program.symbols, key, strict=True)) for key in program.open_source.stored}
    versions = {key: program.at(sizes) for key, sizes in kept.items()} | program.versions
    alone = {key: v.chip_parts() for key, v in versions.items() if not isinstance(v, SizedProgram)}
    return OpenChipParts(program.ranges, alone)


def codes_of(program: DynamicProgram) -> Iterator[tuple[Ranges, OpenCode]]:
    """What a program is for all sizes, and for those that this leaves out, as the size 1 or two equal ones; where it is
    nothing for all, what it is for the ranges of its versions. Each is traced when it is asked for."""
    code, symbols = program.open_source.whole, program.symbols
    if code is None:
        return
    ends: Ranges = {s.name: (s.lower, LARGEST_TRACED if s.upper is None else s.upper) for s in symbols.values()}
    narrow: list[Ranges] = [dict(zip(symbols, key, strict=True)) for key in program.ranges]
    first = next(whole := _codes_within([ends], code), None)
    yield from _codes_within(narrow, code) if first is None else chain([first], whole)


def _codes_within(ranges: Sequence[Ranges], whole: ForAllSizes) -> Iterator[tuple[Ranges, OpenCode]]:
    """What a program is for ranges of sizes, and for those in them that this leaves out."""
    asked: list[tuple[Ranges, Relations]] = [(each, {}) for each in ranges]
    for within, united in asked:
        try:
            code = whole.code(within, united)
        except NoTemplate:
            continue
        yield within, code
        for each in (_left_out(within, united, c) for c in code.constraints if c.compare == "!="):
            if each not in asked and len(asked) < MOST_CODES:
                asked.append(each)


def _left_out(within: Ranges, united: Relations, constraint: Constraint) -> tuple[Ranges, Relations]:
    """The sizes that an inequality leaves out: a number for a symbol, or a size of the others in its place. They are
    those that it had before where no symbol can be told from the others."""
    gap = constraint.left - constraint.right
    for variable, times in gap.terms:
        if not isinstance(variable, Symbol) or times not in (1, -1):
            continue
        rest = Expr.combine(0, [(-times, gap), (1, Expr.of(variable))])
        if not rest.terms and rest.constant >= 0:
            return {**within, variable.name: (rest.constant, rest.constant)}, united
        if rest.terms and variable not in symbols_of(rest):
            moved = {name: replaced(size, {variable.name: rest}) for name, size in united.items()}
            return within, {**moved, variable.name: rest}
    return within, united
