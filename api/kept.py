"""What is compiled, kept across processes in a directory of the user's: static programs, and versions for ranges.

An entry has the npu level as text, with places and symbols, and what belongs to it. It is found by all that decides
what the compiler makes of a program (`support.cache.digest`), so that another program, machine, option or compiler
finds nothing. What is read is verified again; what cannot be read as it was written is compiled.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ..dialects.affine import Symbol
from ..dialects.callbacks import KEY as CALLBACK
from ..dialects.dtypes import numpy_dtype
from ..dialects.open_sizes import assuming
from ..dialects.size_numbers import SizeNumber, number_text, parse_number
from ..dialects.sizes import SizeError, Sizes, parse_constraint
from ..dialects.text import DIMENSION_LIMIT, one_line
from ..dialects.text import verify as verify_module
from ..machine import DEFAULT_TARGET, Machine
from ..passes.oracle import BOUND
from ..passes.pipeline import Stage, level_of
from ..passes.quantized.quantize import read_config
from ..passes.templates import PLANNED, NoTemplate, Template
from ..support.cache import CacheDirectory, digest, private_directory
from ..support.plugins import modules
from .mains import main_inputs, main_results
from .texts import module_in, text_of

if TYPE_CHECKING:
    from .options import Options

VARIABLE = "TILEWRIGHT_CACHE"
"""The environment variable that names the directory where options name none."""

PROGRAMS, EXECUTABLES = "programs", "xla"
"""Folders of the directory: what we compile, and what XLA does."""

Extras = tuple[tuple[SizeNumber, str], ...]
"""The numbers that a version's @main takes behind its inputs, each in an element type."""


def cache_directory(given: str | Path | None) -> Path | None:
    """The directory that options, or else the environment, name; None where nothing is kept. An empty name is none."""
    said = os.environ.get(VARIABLE, "") if given is None else str(given)
    return Path(said) if said else None


def usable_directory(given: str | Path | None) -> Path | None:
    """The same, if it is the user's own and closed to others: else None, with one warning."""
    directory = cache_directory(given)
    return None if directory is None else private_directory(directory)


def what_options_decide(options: Options, names: Sequence[str]) -> list[str]:
    """What options do to a program before its passes, as text: donated arguments, and quantized products, which go by
    the names of the arguments. Raises PassError for a configuration that cannot be read."""
    said = [repr(options.donate)]
    if options.quantization is None:
        return said
    config = read_config(options.quantization)
    said += [config.to_toml(), repr(options.weight_patterns), *names]
    for product, choice in sorted(config.products.items()):
        for name, array in choice.arrays().items():
            said.append(f"{product} {name} {array.dtype} {array.shape} {sha256(array.tobytes()).hexdigest()}")
    return said


class KeptPrograms:
    """The entries of a directory for a target and a list of passes."""

    def __init__(self, directory: Path, target: str | None, stages: Sequence[Stage]) -> None:
        self._cache = CacheDirectory(directory / PROGRAMS)
        machine = Machine.load(target or DEFAULT_TARGET)
        self._target = target or DEFAULT_TARGET
        self._how = "\n".join([self._target, machine.fingerprint, *map(repr, stages)])
        self._stages = tuple(s for s in stages if s.name in PLANNED)

    @staticmethod
    def of(given: str | Path | None, target: str | None, stages: Sequence[Stage]) -> KeptPrograms | None:
        """What is kept in the directory that options name; None where nothing is, and for passes and oracles of this
        process, whose sources nobody knows."""
        directory = usable_directory(given)
        known = directory is not None and all(_is_known(s) for s in stages)
        return KeptPrograms(directory, target, stages) if directory is not None and known else None

    def program(self, module: ModuleOp, name: str) -> ProgramEntry | None:
        """The entry of a program, of which `module` is what the passes are given; None where that calls functions of
        this process."""
        text = text_of(module)
        if CALLBACK in text:
            return None
        key = digest("program", self._how, text)
        return ProgramEntry(self._cache, key, self._about(name, ""), _interface(module))

    def version(
        self, code: Sequence[str], also: Sequence[str], name: str, symbols: Mapping[str, Symbol]
    ) -> VersionEntry | None:
        """The entry of a version, of which `code` is the program for all sizes (`OpenCode.identity`), and `also` what
        else decides it. symbols: its sizes within their ranges. None where it calls functions of this process."""
        if any(CALLBACK in part for part in code):
            return None
        ranges = [f"{s.name} = {s.lower} to {s.upper}" for s in symbols.values()]
        key = digest("version", self._how, *code, *also, *ranges)
        return VersionEntry(self._cache, key, self._about(name, ", ".join(ranges)), symbols, self._stages)

    def _about(self, name: str, sizes: str) -> dict[str, str]:
        return {"program": name, "sizes": sizes, "target": self._target}


def _is_known(stage: Stage) -> bool:
    """Whether keys follow the sources of a pass and of who judges schedules: those of ours, and of plugins."""
    place = stage.implementation
    if not isinstance(place, str) or stage.choices.oracle != BOUND:
        return False
    if place.startswith("."):
        return True
    return re.split("[.:]", place)[0] in {module.partition(".")[0] for module in modules()}


@dataclass(frozen=True)
class ProgramEntry:
    """Where the npu level of a program is kept. about: what lists say of it; interface: what it takes and gives."""

    cache: CacheDirectory
    key: str
    about: Mapping[str, str]
    interface: tuple[Any, ...]

    def read(self) -> ModuleOp | None:
        """The npu level; None where it is not kept."""
        text = self.cache.get(self.key)
        with _unreadable(self.cache, self.key):
            if text is None:
                return None
            module = module_in(text, {}, {})
            if level_of(module) != "npu" or _interface(module) != self.interface:
                raise ValueError("it is another program")
            return module
        return None

    def write(self, module: ModuleOp) -> None:
        """Keeps the npu level."""
        if _interface(module) == self.interface:
            self.cache.put(self.key, self.about, text_of(module))


@dataclass(frozen=True)
class VersionEntry:
    """Where a version is kept. about: what lists say of it; symbols: its sizes; stages: what runs for an
    instance whose device memory is planned for it alone."""

    cache: CacheDirectory
    key: str
    about: Mapping[str, str]
    symbols: Mapping[str, Symbol]
    stages: tuple[Stage, ...]

    def read(self) -> tuple[Template, Extras] | NoTemplate | None:
        """The template and the extras, or why there is no version; None where it is not kept."""
        content = self.cache.get(self.key)
        if content is None:
            return None
        with _unreadable(self.cache, self.key):
            said, _, text = content.partition("\n")
            facts: dict[str, Any] = json.loads(said)
            if "reason" in facts:
                return NoTemplate(str(facts["reason"]))
            made = partial(module_in, text, self.symbols)
            return version_of(facts, made, self.symbols, self.stages)
        return None

    def write(self, template: Template, extras: Extras) -> None:
        """Keeps a version; not one whose module is no valid text, or whose constraints or extras are read as others."""
        facts = version_facts(template, extras, self.symbols)
        if facts is not None:
            self.cache.put(self.key, self.about, f"{json.dumps(facts)}\n{text_of(template.module)}")

    def write_reason(self, reason: NoTemplate) -> None:
        """Keeps why a range has no version."""
        self.cache.put(self.key, self.about, f"{json.dumps({'reason': str(reason)})}\n")


def version_facts(template: Template, extras: Extras, symbols: Mapping[str, Symbol]) -> dict[str, Any] | None:
    """What belongs to a version besides its npu level, as JSON. symbols: its sizes within their ranges. None where the
    module is no valid text, or constraints or extras are read as others."""
    constraints = list(map(str, template.constraints))
    numbers = [[number_text(number), dtype] for number, dtype in extras]
    if [parse_constraint(c, symbols) for c in constraints] != [*template.constraints]:
        return None
    if [parse_number(said, symbols) for said, _ in numbers] != [number for number, _ in extras]:
        return None
    try:
        with assuming(template.example):
            verify_module(template.module)
    except (VerifyException, SizeError):
        return None
    facts = {"symbols": [*template.symbols], "example": dict(template.example)}
    return facts | {"constraints": constraints, "extras": numbers, "unplanned": template.unplanned}


def version_of(
    facts: Mapping[str, Any],
    module: Callable[[Sizes], ModuleOp],
    symbols: Mapping[str, Symbol],
    stages: tuple[Stage, ...],
) -> tuple[Template, Extras]:
    """The version that `version_facts` has said. module: gives its npu level, for an example of its sizes; stages: what
    runs for an instance whose device memory is planned for it alone. Raises ValueError, KeyError, TypeError or
    SizeError for what is none."""
    _check_facts(facts, symbols)
    own = {name: symbols[name] for name in facts["symbols"]}
    constraints = tuple(parse_constraint(c, symbols) for c in facts["constraints"])
    extras = tuple((parse_number(number, symbols), dtype) for number, dtype in facts["extras"])
    made, unplanned = module(facts["example"]), facts["unplanned"]
    if level_of(made) != "npu":
        raise ValueError("it is another program")
    template = Template(made, own, facts["example"], constraints, unplanned=unplanned)
    return (replace(template, stages=stages) if unplanned else template), extras


@contextmanager
def _unreadable(cache: CacheDirectory, key: str) -> Iterator[None]:
    """What is not read as it was written is no entry, with a warning."""
    try:
        yield
    except Exception as error:  # of a text that anyone may have changed
        cache.refuse(key, one_line(str(error)) or type(error).__name__)


def _check_facts(facts: Mapping[str, Any], symbols: Mapping[str, Symbol]) -> None:
    """Raises ValueError for what a version would not say of itself."""
    example = facts["example"]
    fits = (
        isinstance(example, dict)
        and all(type(n) is int and 0 <= n < DIMENSION_LIMIT for n in example.values())
        and {*facts["symbols"]} <= symbols.keys() & example.keys()
        and all(s.lower <= example[n] <= (s.upper or example[n]) for n, s in symbols.items() if n in example)
        and isinstance(facts["unplanned"], str)
        and all(numpy_dtype(dtype) for _, dtype in facts["extras"])
    )
    if not fits:
        raise ValueError("its sizes are others than those of the version")


def _interface(module: ModuleOp) -> tuple[Any, ...]:
    """The types that the @main of a module takes and gives, at any level."""
    return tuple(main_inputs(module)), tuple(main_results(module))
