"""`tw.load`: programs of model files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from ...machine import Machine
from ...modelfile.keys import Secret
from ...modelfile.manifest import EntryFacts
from ...support.files import FilePath
from ..options import Options
from ..program import Program, compile_source, run_passes
from ..quantized import requantized
from ..source import Source
from .opened import open_program
from .options import KEPT_OPTIONS, options_in, with_plans
from .reading import ModelFile


def load(
    path: FilePath,
    target: str | None = None,
    entry: str | None = None,
    *,
    key: Secret | None = None,
    trusted: FilePath | Sequence[FilePath] = (),
    least_sequence: int = 0,
) -> Program:
    """A program of a file.

    Args:
        path: A file that `tw.save` or `Program.save` has written.
        target: The chip; the first one that the file has, where it is None. One that it has not is compiled for.
        entry: The function; it may be left out where the file has one.
        key: What the file is sealed with: `tw.Secret.of_key_file(path)`; for a plain file none.
        trusted: PEM files of public keys, one of which has to have signed the file; none: it need not be signed.
        least_sequence: The earliest release that is taken.

    Raises:
        ModelFileError: The file is none of ours, is damaged, sealed with another key, not signed by who is trusted,
            of an earlier release, or has no such function.
        CompileError: It cannot be compiled for the chip.
        MachineError: There is no such chip.
        OSError: The file cannot be read.
    """
    return program_of(opened(path, key, trusted, least_sequence), target, entry)


def opened(
    path: FilePath, key: Secret | None = None, trusted: FilePath | Sequence[FilePath] = (), least_sequence: int = 0
) -> ModelFile:
    """A file that is signed by who is trusted, and of no earlier release than is taken. key: what it is sealed with.
    Raises ModelFileError, and OSError."""
    file, keys = ModelFile(path, key), [trusted] if isinstance(trusted, str | os.PathLike) else trusted
    if keys:
        file.trusted_by(keys)
    file.no_older_than(least_sequence)
    return file


def program_of(file: ModelFile, target: str | None = None, entry: str | None = None) -> Program:
    """A program of a file that is open: several have its weights in the same memory. Raises as `load` does."""
    name, facts = file.entry(entry)
    chip = facts.target if target is None else Machine.named(target)
    options = _options_of(file, facts)
    if facts.open:
        return open_program(file, name, facts, chip, options)
    if chip not in facts.npu:
        origin = requantized(file.portable(name, facts, f"for {chip}"), options, chip)
        return compile_source(run_passes, origin, chip, with_plans(options, file.plans(chip)))
    signature, member = file.signature(facts), facts.npu[chip]
    made = partial(file.program, member, signature, "npu")
    origin = partial(file.program, facts.graph, signature, "graph") if facts.graph else made
    source = Source(lambda: (origin(), signature), name, stablehlo=file.stablehlo(facts))
    if facts.graph:
        source = requantized(source, options, chip)
    reported = partial(file.report, facts, chip)
    return Program(source, made, signature, chip, options, reported=reported)


def _options_of(file: ModelFile, facts: EntryFacts) -> Options:
    """What a function is compiled with. Raises ModelFileError."""
    unknown = sorted(facts.options.keys() - {*KEPT_OPTIONS})
    if unknown:
        raise file.archive.error(f"it is compiled with {unknown[0]!r}, which this Tilewright does not know")
    with file.reading("what it is compiled with"):
        return options_in(facts.options, file.stored)
