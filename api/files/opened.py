"""Programs with open sizes in model files: they are loaded with the versions that they have there, and are compiled for
other sizes and chips from what they are for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from ...backends.report import Report
from ...dialects.affine import Expr, Symbol
from ...dialects.graph.donation import donate
from ...dialects.sizes import Sizes, parse_constraint, replaced
from ...machine import Machine
from ...modelfile.manifest import EntryFacts
from ...passes.templates import PLANNED, NoTemplate, Template
from ..arguments.signature import Signature
from ..kept import Extras, version_of
from ..options import Options
from ..prepared import compile_prepared
from ..program import Program, run_passes
from ..sizes.codes import STABLEHLO, OpenCode, StableHloCode, code_in
from ..sizes.dynamic import DynamicProgram, OpenSource
from ..sizes.relations import Relations
from ..sizes.shapes import OpenShapes
from ..sizes.templates import ForAllSizes, Key, Ranges, Versions
from ..source import Source
from ..sources import entry_of
from .open_facts import shapes_in
from .options import with_plans
from .reading import ModelFile

NOT_FOR_ALL = "the file has no graph level of it for these sizes"


@dataclass(kw_only=True)
class StoredSource(Source):
    """The source for sizes that a file has a program for. signature: how it is called; npu: gives its npu level;
    reported: what it costs."""

    signature: Signature
    npu: Callable[[], ModuleOp]
    reported: Callable[[], Report | None]


def open_source_in(file: ModelFile, name: str, facts: EntryFacts, chip: str | None) -> OpenSource:
    """A function with open sizes of a file. chip: whose programs for sizes alone are taken; None for none. Raises
    ModelFileError."""
    with file.reading(f"what {name} takes"):
        signature = file.signature(facts)
        shapes = shapes_in(facts.open, facts.signature["inputs"])
        codes = Codes(file, name, facts, shapes.symbols)
        alone = {tuple(row["sizes"]): row for row in facts.open["alone"].get(chip, ())}
    machine = None if chip is None else Machine.load(chip)

    def signature_at(sizes: Sizes) -> Signature:
        return replace(signature, inputs=shapes.types(sizes))

    def specialize(sizes: Sizes) -> Source:
        def lower() -> tuple[ModuleOp, Signature]:
            code = codes.at(sizes)
            made = code.at(shapes, sizes, machine)
            if any(code.donated):
                donate(entry_of(made), code.donated)
            return made, signature_at(sizes)

        row, artifact = alone.get(tuple(sizes[symbol] for symbol in shapes.symbols)), codes.artifact(shapes, sizes)
        if row is None or chip is None:
            return Source(lower, name, stablehlo=artifact)
        reported, own = partial(file.report_of, row.get("report"), chip), signature_at(sizes)
        npu = partial(file.program, row["npu"], own, "npu")
        return StoredSource(lower, name, stablehlo=artifact, signature=own, npu=npu, reported=reported)

    whole = ForAllSizes(codes.of, signature_at)
    return OpenSource(
        name, shapes, specialize, signature.in_tree, signature.parameters, whole, stored=tuple(sorted(alone))
    )


def open_program(file: ModelFile, name: str, facts: EntryFacts, chip: str, options: Options) -> DynamicProgram:
    """A function with open sizes of a file as a program for a chip. Raises ModelFileError."""
    rows: Sequence[Mapping[str, Any]] = facts.open["versions"].get(chip, ())
    if chip not in facts.chips:
        options = with_plans(options, file.plans(chip))
    with file.reading(f"the versions of {name}"):
        stored = StoredRanges(file, {tuple((low, high) for low, high in row["ranges"]): row for row in rows}, options)
    origin = open_source_in(file, name, facts, chip)
    return DynamicProgram(
        origin, partial(_version, chip, options), chip, options, partial(Versions, stored=stored)
    )


def _version(chip: str, options: Options, source: Source) -> Program:
    """The program for sizes that no version is for."""
    if isinstance(source, StoredSource):
        return Program(source, source.npu, source.signature, chip, options, reported=source.reported)
    return compile_prepared(run_passes, chip, options, source)


class StoredRanges:
    """The versions of a program that a file has for a chip."""

    def __init__(self, file: ModelFile, rows: Mapping[Key, Mapping[str, Any]], options: Options) -> None:
        self.file, self.rows = file, rows
        self.stages = tuple(stage for stage in options.stages() if stage.name in PLANNED)

    @property
    def ranges(self) -> Sequence[Key]:
        """Those that it has versions for."""
        return [*self.rows]

    def find(self, key: Key, symbols: Mapping[str, Symbol]) -> tuple[Template, Extras] | NoTemplate | None:
        """The version for a range. Raises ModelFileError."""
        row = self.rows.get(key)
        if row is None:
            return None
        if "reason" in row:
            return NoTemplate(str(row["reason"]))
        with self.file.reading(str(row.get("npu"))):
            return version_of(row, partial(self.file.module, row["npu"], symbols), symbols, self.stages)


class Codes:
    """What a function is for ranges of sizes, which is read where it is asked for."""

    def __init__(self, file: ModelFile, name: str, facts: EntryFacts, symbols: Mapping[str, Symbol]) -> None:
        """Raises ValueError, KeyError, TypeError or SizeError for what cannot be read."""
        self.file, self.name, self.symbols = file, name, symbols
        self.rows: list[tuple[Ranges, Mapping[str, Any]]] = []
        for row in facts.open["codes"]:
            code_in(row, b"", symbols, "")
            ends = ((int(low), int(high)) for low, high in row["ranges"])
            self.rows.append((dict(zip(symbols, ends, strict=True)), row))

    def at(self, sizes: Sizes) -> OpenCode:
        """What it is for given sizes. Raises ModelFileError."""
        for ranges, row in self.rows:
            if all(low <= sizes[name] <= high for name, (low, high) in ranges.items()):
                code = self._read(row, self.symbols)
                if all(c.met_by(sizes) for c in code.constraints):
                    return code
        said = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise self.file.archive.error(f"{self.name} is not for {said}: {NOT_FOR_ALL}")

    def artifact(self, shapes: OpenShapes, sizes: Sizes) -> Callable[[], bytes] | None:
        """Gives it at given sizes as a portable artifact of StableHLO; None where it is no StableHLO."""
        if any(row["kind"] != STABLEHLO for _, row in self.rows):
            return None

        def made() -> bytes:
            code = self.at(sizes)
            assert isinstance(code, StableHloCode)
            return code.artifact_at(shapes, sizes)

        return made

    def of(self, ranges: Ranges, united: Relations) -> OpenCode:
        """What it is for ranges of sizes, constraints included; united: sizes in the place of symbols. Raises
        NoTemplate, and ModelFileError."""
        within = {name: Symbol(name, low, high) for name, (low, high) in ranges.items()}
        sizes = {name: Expr.of(symbol) for name, symbol in within.items()}
        sizes |= {name: replaced(size, sizes) for name, size in united.items()}
        for own, row in self.rows:
            if all(own[name][0] <= low and high <= own[name][1] for name, (low, high) in ranges.items()):
                code = self._read(row, within)
                if all(parse_constraint(str(c), sizes).always() is not False for c in code.constraints):
                    return code
        raise NoTemplate(NOT_FOR_ALL)

    def _read(self, row: Mapping[str, Any], symbols: Mapping[str, Symbol]) -> OpenCode:
        with self.file.reading(row["graph"]):
            return code_in(row, self.file.content(row["graph"]), symbols, row["graph"].rpartition("/")[2])
