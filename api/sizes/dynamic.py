"""Programs with open dimensions: one program for every size, and its versions for those that were asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from ...backends.html import folded_html
from ...backends.report import Report
from ...backends.simulator import Simulation
from ...dialects.affine import Symbol
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import DispatchOp
from ...dialects.sizes import Constraint, Sizes
from ...machine import DEFAULT_TARGET, Machine
from ...passes.errors import CompileError
from ...passes.templates import NoTemplate
from ..arguments.parameters import Arguments, Parameters
from ..arguments.signature import Signature
from ..files.parts import OpenProgramParts
from ..modes import mode_of
from ..options import Options
from ..prepared import compile_prepared
from ..program import Level, Program, run_passes
from ..sources import Source
from .codes import StableHloCode
from .dispatching import Dispatch, guard_text
from .memory_pool import Demand, Owner, PooledCall, ProgramPool
from .saved import codes_of, parts_of
from .shapes import OpenShapes
from .templates import ForAllSizes, Key, SizedProgram, Version, Versions, typical_sizes
from .variants import Choices, PricedVariant

if TYPE_CHECKING:
    from ...debugger import Debugger

_OF_VERSIONS = frozenset({"_source", "_module", "_executables", "_report", "_simulation", "donations"})
"""What a version has and a program of open sizes has not."""

VERSIONS_KEPT = 64
"""Versions that a program keeps; of more, those go that were not used for longest."""


_SHOWN = 8
"""Inputs that a text shows; of more, only open ones are."""


@dataclass(frozen=True)
class SizedVariant:
    """A variant of a program (`tw.variants`) for given sizes: its guard, whether that holds, and its source."""

    name: str
    guard: str | None
    holds: bool
    source: Source


@dataclass(frozen=True)
class Variant:
    """A variant of a program (`tw.variants`): its guard in the program's symbols, empty where it always holds, and its
    source for given sizes."""

    name: str
    guard: tuple[Constraint, ...]
    specialize: Callable[[Sizes], Source]


@dataclass(frozen=True)
class OpenSource:
    """Where a program with open dimensions came from.

    shapes: its inputs. specialize: the source for given sizes. whole: the program for all sizes, None where each size
    has to be compiled. in_tree, parameters: how it is called, as `Signature` has it. structs: the types of its
    flat inputs for given sizes, where they are not plain arrays. alternatives: its variants for given sizes, where it
    is made of some; variants: the same for all sizes. dispatch: the choice of its versions, where it was
    written as that. undecided: why it is not traced for all sizes at once, where it is not: with ranges of sizes it
    may be, and is with those of a call. stored: sizes that a program is there for, in the order of the symbols.
    """

    name: str
    shapes: OpenShapes
    specialize: Callable[[Sizes], Source]
    in_tree: Any = None
    parameters: Parameters = field(default_factory=Parameters)
    whole: ForAllSizes | None = None
    structs: Callable[[Sizes], list[Any]] | None = None
    alternatives: Callable[[Sizes], Sequence[SizedVariant]] | None = None
    variants: tuple[Variant, ...] = ()
    dispatch: Dispatch | None = None
    undecided: str = ""
    stored: tuple[tuple[int, ...], ...] = ()

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """The open sizes by name, with their bounds."""
        return self.shapes.symbols

    @cached_property
    def signature(self) -> Signature:
        """What it takes, without shapes."""
        blank = tuple(((), dtype) for _, dtype in self.shapes.inputs)
        return Signature(blank, self.in_tree, parameters=self.parameters)

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """The flat inputs of a call. Raises CompileError for arguments of another structure."""
        return self.signature.leaves(self.name, args, kwargs)

    def sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The sizes that flat inputs have. Raises CompileError where they do not fit."""
        import numpy as np

        shapes = [tuple(np.shape(v)) for v in leaves]
        for i, shape in enumerate(shapes):
            if not all(isinstance(n, int) for n in shape):
                raise CompileError(
                    f"{self.signature.place(i)} of {self.name} has the symbolic shape ({', '.join(map(str, shape))}), "
                    "and the sizes of a call are numbers"
                )
        values = {i: self._value(i, leaves[i]) for i in self.shapes.deciding}
        places = [self.signature.place(i) for i in range(len(leaves))]
        return dict(self.shapes.solve(self.name, places, shapes, values))

    def _value(self, i: int, leaf: Any) -> Any:
        """The value of an input that decides sizes."""
        import numpy as np

        try:
            value = np.asarray(leaf)
        except TypeError:
            value = np.zeros((), np.float64)
        count = len(self.shapes.deciding[i])
        if value.dtype.kind not in "iu" or value.size != count:
            numbers = "a whole number" if count == 1 else f"{count} whole numbers"
            raise CompileError(
                f"{self.signature.place(i)} of {self.name} must be {numbers}: sizes depend on its value"
            )
        return value

    def arguments(self, sizes: Sizes) -> Arguments:
        """Arguments of a call with these sizes: jax.ShapeDtypeStructs, and arrays where values are sizes."""
        import jax
        import numpy as np

        types = self.shapes.types(sizes)
        flat: list[Any] = (
            self.structs(sizes)
            if self.structs is not None
            else [jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in types]
        )
        for i, names in self.shapes.deciding.items():
            shape, dtype = types[i]
            flat[i] = np.array([sizes[n] for n in names], numpy_dtype(dtype)).reshape(shape)
        return (tuple(flat), {}) if self.in_tree is None else jax.tree.unflatten(self.in_tree, flat)


class DynamicProgram(Program):
    """A program for all sizes of its open dimensions. Called with arrays, it finds their sizes, checks them, and runs
    its version for them, which it compiles where there is none yet.

    `at(b=4, s=128)` is the version for given sizes; what is asked of a program takes sizes as `at={"b": 4, "s": 128}`.
    Everything else that depends on sizes raises CompileError: ask it of a version.
    """

    def __init__(
        self,
        origin: OpenSource,
        compile_version: Callable[[Source], Program],
        target: str | None,
        options: Options,
        make_versions: Callable[..., Versions] = Versions,
    ) -> None:
        """compile_version: compiles the source for given sizes; make_versions: makes the versions for ranges, as
        `Versions` does."""
        signature = origin.signature
        called = [signature.place(i) for i in range(len(origin.shapes.inputs))]
        self._dispatch = origin.dispatch or Dispatch.of(origin.shapes, called, signature.names)
        self._open, self._compile = replace(origin, shapes=self._dispatch.shapes), compile_version
        self.target, self.options = target or DEFAULT_TARGET, options
        self.machine = Machine.load(self.target)
        self._lock = threading.RLock()
        """Held while a version is compiled, which other threads wait for."""
        self._versions: OrderedDict[tuple[int, ...], Program] = OrderedDict()
        self._demands: dict[tuple[int, ...], Demand] = {}
        self.pool = ProgramPool(self.machine, options.pool, options.pool_bytes)
        """The device memory that its calls share."""
        self._ranges: Versions | None = None
        if origin.whole is not None:
            self._ranges = make_versions(
                self._open.shapes, origin.whole, target, options, compile_version, self._dispatch, origin.name
            )
        for variant in origin.variants:
            guard = guard_text({}, variant.guard)
            self._dispatch.add_alone(guard, "a variant is compiled for each size", variant.name)
        if self._ranges is None and not self._dispatch.op.cases:
            self._dispatch.add_alone("", "it is compiled for each size")
        self._signature = signature

    def __getattr__(self, attribute: str) -> Any:
        """What only a version has. Raises CompileError, and AttributeError for what no program has."""
        if attribute in _OF_VERSIONS:
            raise self._unsized()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")

    def _unsized(self) -> CompileError:
        given = ", ".join(f"{s}=..." for s in self.symbols)
        return CompileError(
            f"{self.name} has open sizes: say which, with at=, or ask its version .at({given})"
        )

    @property
    def open_source(self) -> OpenSource:
        """Where the program came from."""
        return self._open

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._open.name

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """The open sizes by name, with their bounds."""
        return self._open.symbols

    @property
    def dispatch(self) -> DispatchOp:
        """The op that says where sizes are, what they have to fulfil, and which version they get: calls go by it. It
        gets a case for each range that is lowered."""
        return self._dispatch.op

    @property
    def constraints(self) -> tuple[str, ...]:
        """What must hold of the sizes besides their bounds, as text."""
        return tuple(map(str, self._open.shapes.constraints))

    @property
    def inputs(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Raises CompileError: shapes are those of a version. `input_types` has them with symbols."""
        raise self._unsized()

    @property
    def input_types(self) -> tuple[str, ...]:
        """Each flat input as text: `f32[b, 8*s]`."""
        shapes = self._open.shapes
        return tuple(shapes.shown(i) for i in range(len(shapes.inputs)))

    @property
    def output_types(self) -> tuple[str, ...]:
        """Raises CompileError: these are of a version."""
        raise self._unsized()

    @property
    def ranges(self) -> dict[Key, Version | NoTemplate]:
        """The versions that were lowered for ranges of sizes, by these in the order of `symbols`; or why a range has
        none, and each size in it is compiled."""
        return {} if self._ranges is None else self._ranges.known

    @property
    def versions(self) -> dict[tuple[int, ...], Program]:
        """The versions that were compiled and are kept, by the sizes in the order of `symbols`."""
        return dict(self._versions)

    def __repr__(self) -> str:
        count = len(self._versions)
        inputs = list(zip(self.input_names, self.input_types, self._open.shapes.inputs, strict=True))
        shown = inputs if len(inputs) <= _SHOWN else [i for i in inputs if any(n.terms for n in i[2][0])]
        said = [f"{name} {type_}" for name, type_, _ in shown[:_SHOWN]]
        more = ["..."] if len(said) < len(inputs) else []
        return (
            f"<tilewright.DynamicProgram {self.name}({', '.join([*said, *more])}): {count} "
            f"version{'s' * (count != 1)} for {self.machine.name}{self._by_size()}>"
        )

    def _by_size(self) -> str:
        """Why sizes are traced range by range, or each alone; empty for a program that all sizes share."""
        return f"; traced by size, as {self._open.undecided}" if self._open.undecided else ""

    def _repr_html_(self) -> str:
        """The open sizes, what must hold of them, and the versions, for notebooks."""
        sizes = [
            f"{s.name}: {f'at least {s.lower}' if s.upper is None else f'{s.lower} to {s.upper}'}"
            for s in self.symbols.values()
        ]
        versions = [
            ", ".join(f"{n} = {v}" for n, v in zip(self.symbols, key, strict=True)) for key in self._versions
        ]
        lines = [*sizes, *self.constraints, *(f"version for {version}" for version in versions)]
        return folded_html(repr(self), "\n".join(lines))

    # -- sizes ---------------------------------------------------------------------------------------------

    def sizes(self, /, *args: Any, **kwargs: Any) -> dict[str, int]:
        """The sizes that the arguments of a call have: arrays, or jax.ShapeDtypeStructs where no values are sizes.

        Raises CompileError where they do not fit together, or break a bound or a constraint.
        """
        return self._open.sizes(self._open.leaves(args, kwargs))

    def arguments(self, at: Mapping[str, int] | None = None, /, **named: int) -> Arguments:
        """Arguments, by position and by keyword, that have given sizes: `arguments(b=4, s=128)`. They are
        jax.ShapeDtypeStructs, and arrays where values are sizes.

        Raises CompileError as `at` does.
        """
        return self._open.arguments(self._checked(at, named))

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> Program:
        """The version for given sizes, compiled where there is none yet: `at(b=4, s=128)` or `at({"b": 4, "s": 128})`.

        Raises CompileError for missing, unknown and impossible sizes, and for what cannot be compiled.
        """
        return self._version(self._checked(sizes, named))

    def _checked(self, sizes: Mapping[str, int] | None, named: Mapping[str, int]) -> dict[str, int]:
        """Sizes that are given in a mapping, by keyword or both."""
        if not isinstance(sizes, Mapping | None):
            raise CompileError(f"{self.name}: sizes are given as in at={{'b': 4}}, not as {sizes!r}")
        signature = self._open.signature
        places = [signature.place(i) for i in range(len(self._open.shapes.inputs))]
        return self._open.shapes.checked(self.name, {**(sizes or {}), **named}, places)

    def _key_of(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[name] for name in self.symbols)

    def _version(self, sizes: Sizes) -> Program:
        key = self._key_of(sizes)
        with self._lock:
            found = self._versions.get(key)
            if found is None:
                found = self._versions[key] = self._new_version(sizes)
                if len(self._versions) > VERSIONS_KEPT:
                    gone, _ = self._versions.popitem(last=False)
                    self._demands.pop(gone, None)
                    self.pool.drop(("constants", gone))
            self._versions.move_to_end(key)
            return found

    def _new_version(self, sizes: Sizes) -> Program:
        """The version for given sizes."""
        source = self._source_at(sizes)
        ranged = None if self._ranges is None else self._ranges.program(sizes, source)
        return ranged or self._compile(source)

    def _source_at(self, sizes: Sizes) -> Source:
        """The source for given sizes, as the variant that is chosen."""
        variant = self._variant(sizes)
        return self._open.specialize(sizes) if variant is None else variant.specialize(sizes)

    def _variant(self, sizes: Sizes) -> Variant | None:
        """The variant that is chosen for sizes; None for a program without variants, and where no guard holds."""
        case = self._dispatch.chosen(sizes) if self._open.variants else None
        return None if case is None else self._open.variants[self._dispatch.op.cases.index(case)]

    # -- what a program does -------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the version for the sizes of the arguments; gives the pytree that the function gives.

        Raises CompileError where the arguments do not fit, or break a bound or a constraint, and where what the call
        needs at once is more than the pool has.
        """
        import jax

        _, named = mode_of(kwargs, self._signature, self.options.memory)
        leaves = self._open.leaves(args, named)
        sizes = self._open.sizes(leaves)
        version = self._version(sizes)
        owners = [self.pool.watch(leaf) for leaf in leaves]
        with self._pooled(sizes, version, owners) as running:
            found = version(*args, **kwargs)
            self.pool.hand_over(running, list(map(self.pool.watch, jax.tree.leaves(found))))
        for i in version.donations.taken:
            self.pool.drop(owners[i])
        return found

    def debug(self, /, *args: Any, **kwargs: Any) -> Debugger:
        """A debugger of a call of the version for the sizes of these arguments."""
        return self.at(self.sizes(*args, **kwargs)).debug(*args, **kwargs)

    def _pooled(
        self, sizes: Sizes, version: Program, owners: Sequence[Owner | None], pool: ProgramPool | None = None
    ) -> AbstractContextManager[PooledCall]:
        """Device memory for a call of a version."""
        key = self._key_of(sizes)
        with self._lock:
            demand = self._demands.get(key)
            if demand is None:
                demand = self._demands[key] = version.demand
        shared = version.range_number if isinstance(version, SizedProgram) else key
        said = ", ".join(f"{name} = {sizes[name]}" for name in self.symbols)
        return (pool or self.pool).call(f"{self.name} at {said}", demand, owners, shared)

    def replay(self, calls: Iterable[Mapping[str, int]]) -> ProgramPool:
        """A new pool after calls with these sizes in this order, none of which is run. What no size changes is passed
        once and stays, as weights do; other inputs, and results, go with the call.

        Raises CompileError as `at` does, and as a call does that does not fit.
        """
        found = ProgramPool(self.machine, self.options.pool, self.options.pool_bytes)
        shapes = [shape for shape, _ in self._open.shapes.inputs]
        owners = [None if any(n.terms for n in shape) else ("input", i) for i, shape in enumerate(shapes)]
        for each in calls:
            sizes = self._checked(each, {})
            with self._pooled(sizes, self._version(sizes), owners, found) as running:
                found.hand_over(running, ())
        return found

    def check(self, /, *args: Any, **kwargs: Any) -> None:
        """Raises CompileError where a call with such arguments would; nothing is compiled."""
        self.sizes(*args, **kwargs)

    def _sized(self, at: Mapping[str, int] | None) -> Program:
        if at is None:
            raise self._unsized()
        return self.at(at)

    def report(self, at: Mapping[str, int] | None = None) -> Report:
        """Time, traffic and energy by kernel at given sizes, as `report(at={"b": 4, "s": 128})`."""
        return self._sized(at).report()

    def simulation(self, at: Mapping[str, int] | None = None) -> Simulation:
        """What the program does in time at given sizes."""
        return self._sized(at).simulation()

    def module(self, level: Level = "npu", at: Mapping[str, int] | None = None) -> ModuleOp:
        """The module of the version for given sizes at a level. Without sizes, the npu level is the host program that
        chooses a version, with those that there are; where there is none yet, one is lowered."""
        if at is not None or level != "npu":
            return self._sized(at).module(level)
        if self._ranges is None:
            return self._dispatch.module({}, self.target)
        if not self._dispatch.op.cases:
            self._ranges.lower_first(self._source_at)
        return self._dispatch.module(self._ranges.templates, self.target)

    def to_stablehlo(self) -> bytes:
        """What it is for all sizes, or as many as it can be traced for at once, as a portable artifact of StableHLO.
        Raises CompileError for what is not, and for a source that is neither of JAX nor StableHLO."""
        for _, code in codes_of(self):
            if isinstance(code, StableHloCode):
                return code.artifact()
        raise CompileError(f"{self.name} comes from no StableHLO with open sizes")

    def parts(
        self, targets: Sequence[str] = (), weights: Mapping[str, Any] | None = None
    ) -> OpenProgramParts:
        """What of it a file has: what it is for all sizes, and its versions, also those of the file that it comes from,
        compiled for further chips as well; one is lowered where there is none yet. Raises CompileError."""
        if self._ranges is not None:
            self._ranges.lower_stored(self._source_at)
            if not self._dispatch.op.cases:
                self._ranges.lower_first(self._source_at)
        if not (self._versions or self._open.stored or any(isinstance(v, Version) for v in self.ranges.values())):
            self.at(typical_sizes(self.symbols))
        others = [chip for chip in dict.fromkeys(map(Machine.named, targets)) if chip != self.target]
        return parts_of(self, [self._for_chip(chip) for chip in others])

    def _for_chip(self, chip: str) -> DynamicProgram:
        """The program for another chip, with versions for the same ranges and sizes."""
        made = DynamicProgram(self._open, partial(compile_prepared, run_passes, chip, self.options), chip, self.options)
        if made._ranges is not None:
            made._ranges.lower_all(self.ranges, made._source_at)
        for key in {**dict.fromkeys(self._open.stored), **self._versions}:
            made.at(dict(zip(self.symbols, key, strict=True)))
        return made

    def sweep(
        self, symbol: str, values: Sequence[int], at: Mapping[str, int] | None = None
    ) -> Iterator[tuple[int, Report]]:
        """A report for each of `values` of a symbol, the others being as in `at`.

        Raises CompileError as `at` does, before anything is compiled.
        """
        every = [self._checked(at, {symbol: value}) for value in values]
        return ((sizes[symbol], self.at(sizes).report()) for sizes in every)

    # -- variants ------------------------------------------------------------------------------------------

    def choice(self, at: Mapping[str, int] | None = None, /, **named: int) -> str:
        """The name of the variant (`tw.variants`) that is used at given sizes: `choice(b=4, s=128)`.

        Raises CompileError as `at` does, and for a program that is not compiled from variants.
        """
        sizes = self._checked(at, named)
        self._alternatives(sizes)  # whether there are any
        variant = self._variant(sizes)
        assert variant is not None
        return variant.name

    def choices(self, at: Mapping[str, int] | None = None, /, **named: int) -> Choices:
        """What each variant costs at given sizes: a report for each that can be compiled for them, chosen or not.

        Raises CompileError as `choice` does.
        """
        sizes = self._checked(at, named)
        rows: list[PricedVariant] = []
        found, variant = self._alternatives(sizes), self._variant(sizes)
        for a, one in zip(found, self._open.variants, strict=True):
            chosen, report, problem = one is variant, None, ""
            try:
                report = (self._version(sizes) if chosen else self._compile(a.source)).report()
            except CompileError as error:
                problem = str(error)
            except (
                TypeError,
                ValueError,
            ) as error:  # what JAX says of a function that does not take such shapes
                problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            rows.append(PricedVariant(a.name, a.guard, a.holds, chosen, report, problem))
        return Choices(sizes, tuple(rows))

    def _alternatives(self, sizes: Sizes) -> Sequence[SizedVariant]:
        if self._open.alternatives is None:
            raise CompileError(f"{self.name} is not made of variants: compile a tw.variants")
        found = self._open.alternatives(sizes)
        if not any(a.holds for a in found):
            self._open.specialize(sizes)  # which says so
        return found
