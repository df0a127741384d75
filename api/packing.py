"""Programs that keep what depends on their weights alone: it is computed once, by a program of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from ..backends.report import Report
from ..dialects.module import target_of
from ..machine import DEFAULT_TARGET, Machine
from ..passes.alternatives import TRANSPOSED
from ..passes.choose.weight_layouts import find_weight_layouts, relayout_weights
from ..passes.pipeline import run_stage
from ..passes.program.pack import SplitProgram, split_weights
from ..support.precisions import ORIGIN
from ..support.winograd import OFF
from .arguments.signature import CompileError, Signature
from .files.packed import packed_signature
from .files.parts import ProgramParts
from .mains import main_inputs
from .modes import Memory, Runnable, mode_of
from .options import Options
from .program import Lowering, Program, compile_source
from .quantized import named_module
from .sources import Source, as_compile_error

if TYPE_CHECKING:
    from ..debugger import Debugger


@dataclass(frozen=True, eq=False)
class Packed:
    """What a program keeps of its weights: it takes this where it would take them. arrays: what the packing program
    gave; leaves: inputs that are taken as they are, by number; program: the one that it is for."""

    arrays: tuple[Any, ...]
    leaves: dict[int, Any]
    program: str

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(a.nbytes for a in (*self.arrays, *self.leaves.values()))


class Packs:
    """What a program that is in two parts does with its arguments. packing: runs what depends on the weights alone;
    form: how the program is called; split: its parts; title: what messages call it."""

    options: Options
    packing: Program
    _form: Signature
    _split: SplitProgram
    _title: str

    def pack(self, /, *args: Any, **kwargs: Any) -> Packed:
        """Runs what depends on the weights alone. It takes the arguments that hold them, in their order or by keyword;
        the program then takes the result in the place of each of them. Raises CompileError for arguments of another
        structure, shapes or dtypes."""
        held = self._weight_arguments()
        if len(args) + len(kwargs) != len(held):
            said = ", ".join(n if isinstance(n, str) else self._form.parameters.label(n) for n in held)
            raise CompileError(
                f"{self._title}: pack takes {said or 'no arguments'}, called with {len(args) + len(kwargs)}"
            )
        filled = dict(zip(held, args, strict=False))
        count, keywords = self._form.form
        given = [filled.get(i, self._skipped(i)) for i in range(count)]
        named = {n: filled.get(n, self._skipped(n)) for n in keywords}
        return self._packed(self._form.flatten(self._title, given, {**named, **kwargs}, given=SKIPPED))

    def _given(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Packed | None, list[Any], dict[str, Any]]:
        """The packed weights of a call, and its arguments without them. Raises CompileError for those of another
        program."""
        packed = next((a for a in (*args, *kwargs.values()) if isinstance(a, Packed)), None)
        if packed is not None and packed.program != self._key:
            raise CompileError(f"{self._title} is given weights that were packed for another program")
        by_place = [self._skipped(i) if isinstance(a, Packed) else a for i, a in enumerate(args)]
        positional = self._form.parameters.positional
        places: dict[str, int | str] = {n: i for i, n in enumerate(positional)}
        by_name = {
            n: self._skipped(places.get(n, n)) if isinstance(a, Packed) else a for n, a in kwargs.items()
        }
        return packed, by_place, by_name

    @property
    def _key(self) -> str:
        return f"{self._title} {id(self.packing)}"

    def _weight_arguments(self) -> list[int | str]:
        """The arguments that hold weights: those by position by number, then those by keyword by name."""
        import jax

        tree = self._form.in_tree
        if tree is None:
            return [i for i, flag in enumerate(self._split.weights) if flag]
        by_position, by_keyword = jax.tree.unflatten(tree, self._split.weights)
        found: list[int | str] = [i for i, arg in enumerate(by_position) if any(jax.tree.leaves(arg))]
        return found + [name for name, arg in by_keyword.items() if any(jax.tree.leaves(arg))]

    def _skipped(self, which: int | str) -> Any:
        """The argument at a position, or of a name, without arrays."""
        import jax

        tree = self._form.in_tree
        if tree is None:
            return SKIPPED
        by_position, by_keyword = tree.children()
        if isinstance(which, int):
            child = by_position.children()[which]
        else:
            child = by_keyword.children()[self._form.form[1].index(which)]
        return jax.tree.unflatten(child, [SKIPPED] * child.num_leaves)

    def _packed(self, flat: Sequence[Any]) -> Packed:
        with as_compile_error():
            arrays = self.packing.executable(self.packing.usual_mode)(*(flat[i] for i in self._split.taken))
        numbers = [i for i in self._split.left if flat[i] is not SKIPPED and i in self._in_weights()]
        return Packed(tuple(arrays), {i: flat[i] for i in numbers}, self._key)

    def _in_weights(self) -> set[int]:
        """The numbers of the inputs that are in arguments with weights."""
        import jax

        tree = self._form.in_tree
        held = {*self._weight_arguments()}
        if tree is None:
            return {n for n in held if isinstance(n, int)}
        by_position, by_keyword = jax.tree.unflatten(tree, range(tree.num_leaves))
        named = [*enumerate(by_position), *by_keyword.items()]
        return {leaf for which, arg in named if which in held for leaf in jax.tree.leaves(arg)}

    def _rest_inputs(self, flat: Sequence[Any], packed: Packed) -> list[Any]:
        inputs = [packed.leaves[i] if flat[i] is SKIPPED else flat[i] for i in self._split.left]
        return [*inputs, *packed.arrays]


class PackedProgram(Packs, Program):
    """A program in two: `packing` runs once for the weights, the rest takes what it gives."""

    def __init__(
        self,
        source: Source,
        signature: Signature,
        split: SplitProgram,
        packing: Program,
        rest: Program,
        asked: Options,
    ):
        super().__init__(rest.source, rest.module, signature, rest.target, rest.options, rest.donations)
        self._origin, self._title, self._form = source, source.name, signature
        self.packing, self.rest, self._split, self._asked = packing, rest, split, asked
        self._donations = copy(rest.donations)
        self._donations.taken = [split.left[i] for i in rest.donations.taken]

    @property
    def origin(self) -> Source:
        return self._origin

    @property
    def asked(self) -> Options:
        return self._asked

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the program on arrays, as `Program` does; packed weights may stand where they belong."""
        mode, rest = mode_of(kwargs, self._form, self.rest.usual_mode)
        packed, given, named = self._given(args, rest)
        if packed is None:
            return super().__call__(*args, **kwargs)
        flat = self._signature.flatten(self._title, given, named, given=SKIPPED)
        inputs = [*self._rest_inputs(flat, packed), *self.rest.extras]
        with as_compile_error():
            return self.unflatten(self.rest.executable(mode)(*inputs))

    def debug(self, /, *args: Any, **kwargs: Any) -> Debugger:
        """A debugger of the rest of the program, with the weights packed."""
        flat = self.flatten(args, kwargs)
        return self.rest.debug(*self._rest_inputs(flat, self._packed(flat)), *self.rest.extras)

    def parts(self, targets: Sequence[str] = (), weights: Mapping[str, Any] | None = None) -> ProgramParts:
        """The part that runs on each call, with its weights packed. Raises CompileError where values of these are
        missing, and for further chips, each of which packs them in its own way."""
        further = [chip for chip in map(Machine.named, targets) if chip != self.target]
        if further:
            raise CompileError(f"save: {self._title} has its weights packed for {self.target}: compile it for "
                               f"{further[0]}, too, and save that")  # fmt: skip
        names = [n if isinstance(n, str) else self._form.parameters.label(n) for n in self._weight_arguments()]
        missing = [name for name in names if name not in (weights or {})]
        if missing:
            raise CompileError(f"save: {self._title} packs {missing[0]} before it is saved: give its value, as "
                               f"weights={{{missing[0]!r}: ...}}")  # fmt: skip
        packed = self.pack(*((weights or {})[name] for name in names))
        rest = self.rest.alone()
        signature = packed_signature(self._form, self._split.left, rest.inputs, packed.arrays, packed.leaves)
        source = Source(lambda: (rest.source.lower()[0], signature), self._title)
        return ProgramParts(source, self.asked, self.target, {self.target: rest.chip_parts()}, frozenset(names))

    def executable(self, memory: Memory) -> Runnable:
        """What runs both parts, one behind the other, on the inputs of the whole program."""
        return _Both(self, memory)

    def report(self, at: Mapping[str, int] | None = None) -> Report:
        """What the rest costs; `packing_microseconds` is what the packing costs once."""
        return replace(super().report(at), packing_microseconds=self.packing.report().microseconds)


class _Skipped:
    """Stands for an input that a packed argument has."""

    def __repr__(self) -> str:
        return "packed"


SKIPPED = _Skipped()


class _Both:
    """Runs a packing program and the rest."""

    def __init__(self, program: PackedProgram, memory: Memory):
        self.program = program
        self.parts = [part.executable(memory) for part in (program.packing, program.rest)]

    def compile(self) -> None:
        for part in self.parts:
            part.compile()

    def __call__(self, *arrays: Any) -> list[Any]:
        split = self.program._split
        packed = self.parts[0](*(arrays[i] for i in split.taken))
        return self.parts[1](*(arrays[i] for i in split.left), *packed, *self.program.rest.extras)


def without_weights(options: Options) -> Options:
    """The options of the parts of a program, which is quantized, cast and rewritten before it is split."""
    return replace(options, weights=None, quantization=None, precision=ORIGIN, winograd=OFF)


def cast(module: ModuleOp, options: Options, target: str | None) -> None:
    """Does to a module of the graph level, in place, what comes before it is split: casts and Winograd's transforms, so
    that those of weights are packed."""
    for stage in options.stages():
        if stage.level == "graph" and stage.optional and stage.asked:
            run_stage(stage, module, target_of(module) or target or DEFAULT_TARGET)


def cast_and_split(module: ModuleOp, options: Options, target: str | None) -> SplitProgram:
    """Splits a module of the graph level, which it changes, so that it is for other sizes, too. Raises PassError for
    weights that are no arguments."""
    cast(module, options, target)
    return split_weights(module, options.weight_patterns, moved=False)


def split_source(
    origin: Source, options: Options, target: str | None
) -> tuple[SplitProgram, Signature]:
    """The parts of a source, for other sizes, too, and how it is called. Raises as `cast_and_split` does."""
    with as_compile_error():
        module, signature = named_module(origin)
        return cast_and_split(module, options, target), signature


def split_in_layouts(
    origin: Source, options: Options, target: str | None
) -> tuple[list[SplitProgram], Signature]:
    """The parts of a source, and how it is called: with all weights in other layouts that may take less time so, and
    where that is not sure of some, without these. Raises as `cast_and_split` does."""
    with as_compile_error():
        module, signature = named_module(origin)
        cast(module, options, target)
        patterns = options.weight_patterns
        found = find_weight_layouts(module, patterns, options.stages(), target)
        sure = [each for each in found if each.sure]
        made: list[SplitProgram] = []
        for chosen in [found] if len(sure) == len(found) else [found, sure]:
            copied = module.clone()
            relayout_weights(copied, chosen)
            made.append(split_weights(copied, patterns, in_layout=options.may(TRANSPOSED)))
        return made, signature


def part(module: ModuleOp, name: str, places: tuple[int, ...] | None) -> Source:
    """A part of a program as a source of its own, which takes flat inputs."""

    def lower() -> tuple[ModuleOp, Signature]:
        made = module.clone()
        return made, Signature(tuple(main_inputs(made)))

    return Source(lower, name, places)


def compile_packing(
    lowering: Lowering, made: SplitProgram, name: str, target: str | None, options: Options
) -> Program:
    """Compiles what depends on the weights alone. Pins of kernels by name are of those that run on each call."""
    source, own = part(made.packing, f"{name} (packing)", None), without_weights(options)
    named = isinstance(own.schedule, Mapping)
    return compile_source(lowering, source, target, replace(own, schedule=None) if named else own)


def compile_packed(lowering: Lowering, origin: Source, target: str | None, options: Options) -> Program:
    """Compiles a source in two parts, of which the second one takes least. Raises PassError for weights that are no
    arguments."""
    ways, signature = split_in_layouts(origin, options, target)

    def rest_of(made: SplitProgram) -> Program:
        rest = part(made.rest, origin.name, origin.places)
        return compile_source(lowering, rest, target, without_weights(options))

    found = [(made, rest_of(made)) for made in ways]
    made, rest = found[0] if len(found) == 1 else min(found, key=lambda way: way[1].report().microseconds)
    packing = compile_packing(lowering, made, origin.name, target, options)
    return PackedProgram(origin, signature, made, packing, rest, options)
