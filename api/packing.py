"""Programs that keep what depends on their weights alone: it is computed once, by a program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from xdsl.dialects.builtin import ModuleOp

from ..backends.report import Report
from ..dialects.module import target_of
from ..machine import DEFAULT_TARGET
from ..passes.graph.pack import SplitProgram, split_weights
from ..passes.pipeline import run_stage
from ..support.precisions import ORIGIN
from .program import Lowering, Options, Program, compile_source
from .quantized import named_module
from .signature import CompileError, Signature
from .sources import Source, as_compile_error, main_inputs

if TYPE_CHECKING:
    from ..backends.interpreter import Executable


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


class PackedProgram(Program):
    """A program in two: `packing` runs once for the weights, the rest takes what it gives."""

    def __init__(
        self, source: Source, signature: Signature, split: SplitProgram, packing: Program, rest: Program
    ):
        super().__init__(rest.source, rest.module(), signature, rest.target, rest.options)
        self._origin = source
        self.packing, self.rest, self._split = packing, rest, split
        self._last: tuple[tuple[int, ...], Packed] | None = None

    @property
    def origin(self) -> Source:
        return self._origin

    def pack(self, /, *args: Any, **kwargs: Any) -> Packed:
        """Runs what depends on the weights alone. It takes the arguments that hold them, in their order or by keyword;
        the program then takes the result in the place of each of them. Raises CompileError for arguments of another
        structure, shapes or dtypes."""
        places = self._weight_arguments()
        if len(args) + len(kwargs) != len(places):
            said = ", ".join(self._signature.parameters.label(i) for i in places)
            raise CompileError(
                f"{self._origin.name}: pack takes {said or 'no arguments'}, called with "
                f"{len(args) + len(kwargs)}"
            )
        filled = dict(zip(places, args, strict=False))
        given = [filled.get(i, self._skipped(i)) for i in range(self._signature.form[0])]
        flat = self._signature.flatten(self._origin.name, given, kwargs, given=SKIPPED)
        return self._packed(flat)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the program on arrays, as `Program` does; packed weights may stand where they belong."""
        packed = next((a for a in (*args, *kwargs.values()) if isinstance(a, Packed)), None)
        if packed is None:
            return super().__call__(*args, **kwargs)
        if packed.program != self._key:
            raise CompileError(f"{self._origin.name} is given weights that were packed for another program")
        given = [self._skipped(i) if isinstance(a, Packed) else a for i, a in enumerate(args)]
        flat = self._signature.flatten(self._origin.name, given, kwargs, given=SKIPPED)
        with as_compile_error():
            return self.unflatten(self.rest.executable(self.options.memory)(*self._rest_inputs(flat, packed)))

    def executable(self, memory: Literal["typed", "bytes"]) -> Executable:
        """What runs both parts, one behind the other, on the inputs of the whole program."""
        return _Both(self, memory)  # pyright: ignore[reportReturnType]  # called as one is

    def report(self) -> Report:
        """What the rest costs; `packing_microseconds` is what the packing costs once."""
        return replace(super().report(), packing_microseconds=self.packing.report().microseconds)

    @property
    def _key(self) -> str:
        return f"{self._origin.name} {id(self)}"

    def _weight_arguments(self) -> list[int]:
        """The numbers of the arguments by position that hold weights."""
        import jax

        tree = self._signature.in_tree
        if tree is None:
            return [i for i, flag in enumerate(self._split.weights) if flag]
        flags = jax.tree.unflatten(tree, self._split.weights)
        return [i for i, arg in enumerate(flags[0]) if any(jax.tree.leaves(arg))]

    def _skipped(self, i: int) -> Any:
        """The argument at a position, without arrays."""
        import jax

        tree = self._signature.in_tree
        if tree is None:
            return SKIPPED
        child = tree.children()[0].children()[i]
        return jax.tree.unflatten(child, [SKIPPED] * child.num_leaves)

    def _packed(self, flat: Sequence[Any]) -> Packed:
        with as_compile_error():
            memory = self.options.memory
            arrays = self.packing.executable(memory)(*(flat[i] for i in self._split.taken))
        numbers = [i for i in self._split.left if flat[i] is not SKIPPED and i in self._in_weights()]
        return Packed(tuple(arrays), {i: flat[i] for i in numbers}, self._key)

    def _in_weights(self) -> set[int]:
        """The numbers of the inputs that are in arguments with weights."""
        import jax

        tree = self._signature.in_tree
        places = {*self._weight_arguments()}
        if tree is None:
            return places
        numbered = jax.tree.unflatten(tree, range(tree.num_leaves))
        return {n for i, arg in enumerate(numbered[0]) if i in places for n in jax.tree.leaves(arg)}

    def _rest_inputs(self, flat: Sequence[Any], packed: Packed) -> list[Any]:
        inputs = [packed.leaves[i] if flat[i] is SKIPPED else flat[i] for i in self._split.left]
        return [*inputs, *packed.arrays]


class _Skipped:
    """Stands for an input that a packed argument has."""

    def __repr__(self) -> str:
        return "packed"


SKIPPED = _Skipped()


class _Both:
    """Runs a packing program and the rest."""

    def __init__(self, program: PackedProgram, memory: Literal["typed", "bytes"]):
        self.program = program
        self.parts = [part.executable(memory) for part in (program.packing, program.rest)]

    def compile(self) -> None:
        for part in self.parts:
            part.compile()

    def __call__(self, *arrays: Any) -> list[Any]:
        split = self.program._split
        packed = self.parts[0](*(arrays[i] for i in split.taken))
        return self.parts[1](*(arrays[i] for i in split.left), *packed)


def compile_packed(lowering: Lowering, origin: Source, target: str | None, options: Options) -> Program:
    """Compiles a source in two parts. Casts come before it, so those of weights are packed. Raises PassError for
    weights that are no arguments."""
    own = replace(options, weights=None, quantization=None, precision=ORIGIN)
    with as_compile_error():
        module, signature = named_module(origin)
        for stage in options.stages():
            if stage.optional and stage.asked:
                run_stage(stage, module, target_of(module) or target or DEFAULT_TARGET)
        made = split_weights(module, options.weight_patterns)

    def part(module: ModuleOp, name: str) -> Source:
        def lower() -> tuple[ModuleOp, Signature]:
            copy = module.clone()
            return copy, Signature(tuple(main_inputs(copy)))

        return Source(lower, name, origin.places)

    packing = compile_source(lowering, part(made.packing, f"{origin.name} (packing)"), target, own)
    rest = compile_source(lowering, part(made.rest, origin.name), target, own)
    return PackedProgram(origin, signature, made, packing, rest)
