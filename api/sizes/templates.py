"""Versions of a program with open dimensions: by ranges of sizes, each compiled once for all sizes in it.

The range of a size is that between powers of two, or a half of that: 33 to 64, 65 to 96, 97 to 128. A version is
lowered with these bounds, and its choices are made for the largest sizes of the range. Sizes of 0 and 1 are versions of
their own, in which they are numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ...dialects.affine import Expr, Symbol
from ...dialects.graph.donation import donated
from ...dialects.graph.extents import Extent, extents_of
from ...dialects.module import target_of
from ...dialects.npu import VersionOp
from ...dialects.open_sizes import TYPICAL, Assumptions, OpenSize, assuming
from ...dialects.size_numbers import scalar_at
from ...dialects.sizes import (
    Constraint,
    Size,
    SizeError,
    Sizes,
    bounds,
    fixed,
    replaced,
    size_text,
    symbols_of,
)
from ...dialects.text import verify as verify_module
from ...frontends import FrontendError
from ...machine import DEFAULT_TARGET, Machine
from ...passes.errors import CompileError, FusionWarning, PassError, fault_of
from ...passes.instantiation import Instantiation
from ...passes.pipeline import run_pipeline
from ...passes.templates import NoTemplate, Template, check_template, lower_template
from ...support.collector import collector_paused
from ..arguments.donation import Donations
from ..arguments.signature import Signature
from ..kept import Extras, KeptPrograms, VersionEntry, what_options_decide
from ..modes import Memory, Runnable
from ..options import Options
from ..prepared import prepare_open, prepared
from ..program import Level, Program
from ..sources import Source, as_compile_error, entry_of
from .codes import OpenCode
from .dispatching import Dispatch, guard_text
from .memory_pool import Demand, demand_of
from .shapes import OpenShapes
from .shared import SharedExecutables

if TYPE_CHECKING:
    from ...frontends.open_module import OpenModule
    from .relations import Relations

HALVED = 64
"""Up to this size there is one range between two powers of two; above it there are two, of equal length. Tiles are cut
for the largest size of a range, so time is lost at the smallest ones: at most a third of the work."""

EXAMPLES = 1000
"""So many sizes of a range are tried, the largest ones first, until some fulfil what must hold of them."""

Key = tuple[tuple[int, int], ...]
"""The range of each size, its ends included."""

Ranges = Mapping[str, tuple[int, int]]
"""The same by the names of the sizes."""


@dataclass(frozen=True)
class ForAllSizes:
    """A program for all sizes at once. code: what it is, for ranges of sizes, and with sizes in the place of symbols,
    or NoTemplate; signature: how a version is called, for given sizes."""

    code: Callable[[Ranges, Relations], OpenCode]
    signature: Callable[[Sizes], Signature]


@dataclass(frozen=True)
class Version:
    """A template, with the numbers that its @main takes behind its inputs, each in an element type."""

    template: Template
    extras: Extras

    @cached_property
    def executables(self) -> SharedExecutables:
        """What XLA compiled of it, for all its sizes."""
        return SharedExecutables(self.template)


class StoredVersions(Protocol):
    """Versions that are known before they are asked for. ranges: those that have some."""

    @property
    def ranges(self) -> Sequence[Key]: ...

    def find(self, key: Key, symbols: Mapping[str, Symbol]) -> tuple[Template, Extras] | NoTemplate | None:
        """The version for a range, or why it has none; None where that is not known. symbols: its sizes, those of which
        it has several."""
        ...


class SizedProgram(Program):
    """A version at given sizes. extras: what its @main takes behind its inputs, numbers that follow from the sizes;
    upper: gives its module at a level above npu. compile_alone: compiles a source for its sizes alone."""

    def __init__(
        self,
        source: Source,
        version: Version,
        signature: Signature,
        options: Options,
        sizes: Sizes,
        extras: Sequence[Any],
        upper: Callable[[Level], ModuleOp],
        compile_alone: Callable[[Source], Program],
    ) -> None:
        """Raises PassError for what is too large for the device."""
        template = version.template
        make, donations = partial(template.instance, dict(sizes)), None
        if not template.unplanned and not any(donated(entry_of(template.module))):
            donations = Donations(template.module, source.name, signature)
        target = target_of(template.module) or DEFAULT_TARGET
        super().__init__(prepared(source, options, target), make, signature, target, options, donations)
        self.sizes, self._template, self._plain = dict(sizes), template, source
        self.extras = tuple(extras)
        self._upper, self._compile = upper, compile_alone
        self._alone: Program | None = None
        self._shared = version.executables

    def executable(self, memory: Memory) -> Runnable:
        """What runs the version for these sizes in a mode; made on first use, then kept."""
        shared = self._shared.at(self.sizes, memory)
        return super().executable(memory) if shared is None else shared

    @property
    def demand(self) -> Demand:
        if self._template.unplanned:
            return super().demand
        return demand_of(self._template.module, self.machine, self.sizes)

    @cached_property
    def extents(self) -> tuple[Extent, ...]:
        return tuple(extents_of(entry_of(self._template.module)))

    @property
    def range_number(self) -> int:
        """A number that versions of the same range share."""
        return id(self._template)

    def alone(self) -> Program:
        if self._alone is None:
            self._alone = self._compile(self._plain)
        return self._alone

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        return [*super().flatten(args, kwargs), *self.extras]

    def module(self, level: Level = "npu", at: Sizes | None = None) -> ModuleOp:
        if at is not None or level not in ("graph", "tile"):
            return super().module(level, at)
        with as_compile_error():
            return self._upper(level)


def typical_sizes(symbols: Mapping[str, Symbol]) -> dict[str, int]:
    """A typical size of each symbol, within its bounds."""
    return {
        s.name: max(s.lower, TYPICAL if s.upper is None else min(s.upper, TYPICAL)) for s in symbols.values()
    }


def range_of(size: int, symbol: Symbol) -> tuple[int, int]:
    """The range of a size, its ends included, within the bounds of its symbol: that between powers of two, above HALVED
    the half of it."""
    if size <= 1:
        return size, size
    high = 1 << (size - 1).bit_length()
    low = high // 2 + 1
    if high > HALVED:
        middle = high // 4 * 3
        low, high = (low, middle) if size <= middle else (middle + 1, high)
    top = high if symbol.upper is None else min(high, symbol.upper)
    return max(low, symbol.lower), max(top, size)


class Versions:
    """The versions of one program, which are compiled where they are asked for."""

    def __init__(
        self,
        shapes: OpenShapes,
        whole: ForAllSizes,
        target: str | None,
        options: Options,
        compile_alone: Callable[[Source], Program],
        dispatch: Dispatch,
        name: str,
        stored: StoredVersions | None = None,
    ) -> None:
        """dispatch: gets a case for each range; name: what lists call the program."""
        self._stored = stored
        self._dispatch = dispatch
        self._alone, self._name = compile_alone, name
        self._kept = KeptPrograms.of(options.cache, target, options.stages())
        self._shapes, self._whole = shapes, whole
        self._target, self._options = target, options
        self._known: dict[Key, Version | NoTemplate] = {}
        self._named_versions: dict[str, Version] = {}

    @property
    def known(self) -> dict[Key, Version | NoTemplate]:
        """The versions that were asked for, by range; or why there is none for that range."""
        return dict(self._known)

    def program(self, sizes: Sizes, source: Source) -> SizedProgram | None:
        """The program at given sizes; None where it has to be compiled for them alone. source: what it is then."""
        key = tuple(range_of(sizes[name], symbol) for name, symbol in self._shapes.symbols.items())
        if all(low == high for low, high in key):
            return None
        self.lower(key, source)
        case = self._dispatch.chosen(sizes)
        if not isinstance(case, VersionOp):
            return None
        version = self._named_versions[case.version]
        types = (dtype for _, dtype in version.extras)
        signature = self._called(sizes)
        upper = partial(self._upper, key, sizes, source)
        try:
            extras = [scalar_at(n, dtype, sizes) for n, dtype in zip(case.numbers(), types, strict=True)]
            return SizedProgram(source, version, signature, self._options, sizes, extras, upper, self._alone)
        except (PassError, SizeError):  # too large for the device, or a number that its element type does not hold:
            return None  # compiling it for these sizes says so

    def lower(self, key: Key, source: Source) -> None:
        """Compiles the version for a range, where that was not done yet, and adds its case. source: the program for
        sizes in it."""
        if key in self._known:
            return
        with collector_paused():
            found = self._known[key] = self._compiled(key, source)
        ranges = dict(zip(self._shapes.symbols, key, strict=True))
        if isinstance(found, NoTemplate):
            self._dispatch.add_alone(guard_text(ranges), str(found))
            return
        name = "_".join(
            f"{n}{low}" if low == high else f"{n}{low}to{high}" for n, (low, high) in ranges.items()
        )
        self._named_versions[name] = found
        guard = guard_text(ranges, found.template.constraints)
        self._dispatch.add_version(guard, name, [size for size, _ in found.extras])

    def lower_stored(self, specialize: Callable[[Sizes], Source]) -> None:
        """Has all versions that are stored. specialize: gives the program for sizes."""
        self.lower_all(() if self._stored is None else self._stored.ranges, specialize)

    def lower_all(self, keys: Iterable[Key], specialize: Callable[[Sizes], Source]) -> None:
        """Has the versions for ranges. specialize: gives the program for sizes."""
        for key in keys:
            largest = {name: high for name, (_, high) in zip(self._shapes.symbols, key, strict=True)}
            self.lower(key, specialize(largest))

    def lower_first(self, specialize: Callable[[Sizes], Source]) -> None:
        """Has the versions that are stored, or else compiles the one for the range of a typical size of each symbol,
        within its bounds. specialize: gives the program for sizes."""
        self.lower_stored(specialize)
        if self._known:
            return
        sizes = typical_sizes(self._shapes.symbols)
        key = tuple(range_of(sizes[name], symbol) for name, symbol in self._shapes.symbols.items())
        if any(low < high for low, high in key):
            self.lower(key, specialize(sizes))
        else:
            self._dispatch.add_alone("", "all sizes are numbers")

    @property
    def templates(self) -> dict[str, Template]:
        """The template of each version, by the name that its case has."""
        return {name: version.template for name, version in self._named_versions.items()}

    def _upper(self, key: Key, sizes: Sizes, source: Source, level: Level) -> ModuleOp:
        """The module of the version for a range at a level above npu, at given sizes; lowered again."""
        named, known = self._named(key)
        code = self._whole.code(named, {})
        with assuming(self._example(named, code.constraints)) as assumed:
            opened = self._prepared(code, known, assumed, source)
            run_pipeline(opened.module, self._target, level, self._options.stages())
        return Instantiation(sizes).of(opened.module)

    def _example(self, ranges: Ranges, constraints: Sequence[Constraint]) -> dict[str, int]:
        """The sizes that choices are made for in a range: the largest ones that fulfil what must hold of them. Raises
        NoTemplate where none are found."""
        most = [high - low for low, high in ranges.values()]
        steps = chain.from_iterable(_sums(total, most) for total in range(sum(most) + 1))
        for less in islice(steps, EXAMPLES):
            sizes = {name: high - n for (name, (_, high)), n in zip(ranges.items(), less, strict=True)}
            if self._shapes.allows(sizes) and all(c.met_by(sizes) for c in constraints):
                return sizes
        raise NoTemplate("no sizes of the range are found that fulfil what must hold of them")

    def _called(self, sizes: Sizes) -> Signature:
        """How a version is called at given sizes."""
        return self._whole.signature(sizes)

    def _named(self, key: Key) -> tuple[Ranges, dict[str, Size]]:
        """The ranges by name, and what each size is: a symbol, or the only number in its range."""
        named = dict(zip(self._shapes.symbols, key, strict=True))
        return named, {
            name: Expr.of(Symbol(name, low, high)) if low < high else fixed(low)
            for name, (low, high) in named.items()
        }

    def _compiled(self, key: Key, source: Source) -> Version | NoTemplate:
        """The version for a range, or why there is none. source: the program for sizes in it."""
        named, known = self._named(key)
        if self._stored is not None:
            stored = self._stored.find(key, _symbols_in(known))
            if stored is not None:
                return stored if isinstance(stored, NoTemplate) else Version(*stored)
        try:
            code = self._whole.code(named, {})
            example = self._example(named, code.constraints)
        except NoTemplate as error:
            return error
        entry = self._entry(code, known)
        found = None if entry is None else entry.read()
        if isinstance(found, NoTemplate):
            return found
        if found is not None:
            return Version(*found)
        try:
            with assuming(example) as assumed:
                opened = self._prepared(code, known, assumed, source)
                symbols = _symbols_in(known)
                template = lower_template(
                    opened.module, self._target, self._options.stages(), symbols, example
                )
            template = replace(template, constraints=tuple(dict.fromkeys([*code.constraints, *assumed.made])))
            check_template(template, tuple(known))
        except (CompileError, FrontendError, PassError, SizeError, VerifyException) as error:
            reason = error if isinstance(error, NoTemplate) else NoTemplate(str(error))
            if entry is not None:
                entry.write_reason(reason)
            return reason
        except Exception as error:  # a bug; each size alone may be compiled all the same
            fault = fault_of(error)
            sizes = guard_text(named)
            said = f"the version for {sizes} failed ({fault}), and each size is compiled alone; please report it"
            warnings.warn(said, FusionWarning, stacklevel=4)
            return NoTemplate(f"internal error, {fault}")
        if entry is not None:
            entry.write(template, opened.extras)
        return Version(template, opened.extras)

    def _entry(self, code: OpenCode, known: Mapping[str, Size]) -> VersionEntry | None:
        """Where the version for a range is kept, whose sizes are `known`."""
        if self._kept is None:
            return None
        shapes = self._shapes
        also = [repr(shapes.deciding), *(shapes.shown(i) for i in range(len(shapes.inputs)))]
        also += [f"{name} = {size_text(size)}" for name, size in known.items()]
        largest = {name: bounds(size)[1] or 0 for name, size in known.items()}
        try:
            also += what_options_decide(self._options, self._whole.signature(largest).names)
        except PassError:  # whoever quantizes the program says so
            return None
        return self._kept.version(code.identity(), also, self._name, _symbols_in(known))

    def _prepared(
        self, code: OpenCode, known: dict[str, Size], assumed: Assumptions, source: Source
    ) -> OpenModule:
        """The graph level as options want it."""
        opened = self._united(code, known, assumed)
        signature = self._whole.signature(assumed.example)
        prepare_open(opened.module, signature, code.donated, source, self._options, self._target)
        return opened

    def _united(self, code: OpenCode, known: dict[str, Size], assumed: Assumptions) -> OpenModule:
        """The graph level. Sizes that have to be equal for the program to be one, as those of two operands of a sum,
        are one symbol in it: `known` says which. Raises NoTemplate where they are two numbers."""
        while True:
            opened = self._opened(code, known)
            verify_module(opened.module)  # asks whether operands go together
            equal = next(
                (
                    pair
                    for c in assumed.made
                    if (pair := _same(c)) is not None and not _is_united(pair, known)
                ),
                None,
            )
            if equal is None:
                return opened
            one, other = (known[name] for name in sorted(equal))
            gone = symbols_of(other) or symbols_of(one)
            stays = one if symbols_of(other) else other
            if not gone:
                raise NoTemplate(f"the sizes {' and '.join(sorted(equal))} have to be equal, and are not")
            for name, size in known.items():
                known[name] = replaced(size, {gone[0].name: stays})

    def _opened(self, code: OpenCode, known: Mapping[str, Size]) -> OpenModule:
        machine = None if self._target is None else Machine.load(self._target)
        return code.graph(self._shapes, lambda size: OpenSize.of(replaced(size, known)), machine)


def _sums(total: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All numbers that add up to a total, each at most so many; those in which the last ones are largest first."""
    if not most:
        yield from [()] * (not total)
        return
    for first in range(min(total, most[0]) + 1):
        if total - first <= sum(most[1:]):
            yield from ((first, *rest) for rest in _sums(total - first, most[1:]))


def _symbols_in(known: Mapping[str, Size]) -> dict[str, Symbol]:
    """The symbols of sizes, by name."""
    return {s.name: s for size in known.values() for s in symbols_of(size)}


def _same(constraint: Constraint) -> tuple[str, str] | None:
    """The two symbols that a constraint says are equal; None for other constraints."""
    gap = constraint.left - constraint.right
    if constraint.compare != "==" or gap.constant or sorted(c for _, c in gap.terms) != [-1, 1]:
        return None
    names = [v.name for v in gap.variables if isinstance(v, Symbol)]
    return (names[0], names[1]) if len(names) == 2 else None


def _is_united(names: tuple[str, str], known: Mapping[str, Size]) -> bool:
    """Whether two symbols are the same size already."""
    return known[names[0]] == known[names[1]]
