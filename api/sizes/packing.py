"""Programs with open dimensions whose weights are packed: one set of packed weights serves all sizes.

The program is in two. `packing`, of what depends on the weights alone, has no open sizes and is compiled once. The rest
is a program with open dimensions of its own, `DynamicProgram.rest`: its inputs are those of the whole that stay, and
behind them what the packing gives. Each version is split for itself, and takes of the packing what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialects.dtypes import element_type, tensor
from ...dialects.open_sizes import TYPICAL, Assumptions
from ...dialects.sizes import Size, Sizes, fixed
from ...frontends import FrontendError
from ...passes.errors import CompileError
from ...passes.program.pack import SplitProgram
from ...passes.quantized.products_named import main_function, name_arguments
from ...passes.templates import NoTemplate
from ..arguments.parameters import Parameters
from ..arguments.signature import Signature
from ..files.parts import OpenProgramParts
from ..mains import main_results
from ..modes import mode_of
from ..options import Options
from ..packing import (
    SKIPPED,
    PackedProgram,
    Packs,
    cast_and_split,
    compile_packing,
    part,
    split_source,
    without_weights,
)
from ..prepared import prepare_open, prepared
from ..program import Level, Lowering, Program, compile_source
from ..quantized import named_module
from ..sources import Source, as_compile_error
from .codes import OpenCode
from .dynamic import DynamicProgram, OpenSource
from .shapes import OpenShapes
from .templates import Key, Version, Versions

if TYPE_CHECKING:
    from ...frontends.open_module import OpenModule

_SIZES = (TYPICAL, 32, 128, 16, 8, 256, 96, 48, 24, 12, 7, 5, 4, 3, 2, 1)
"""The sizes that a program is first split at: the first of these that it takes, for all its symbols."""


@dataclass(frozen=True)
class OpenParts:
    """How a program with open dimensions is split. whole: the program; options, target: what it is compiled with; made:
    its parts at some sizes; signature: how it is called at these."""

    whole: OpenSource
    options: Options
    target: str | None
    made: SplitProgram
    signature: Signature

    @staticmethod
    def of(whole: OpenSource, options: Options, target: str | None) -> OpenParts:
        """Splits a program. Raises CompileError where it cannot be packed for all sizes."""
        if whole.variants or whole.dispatch is not None:
            raise CompileError(f"{whole.name}: weights= is for programs of one implementation that have a source")
        made, signature = _first_split(whole, options, target)
        # whether biases are cast differs by the sizes around them: they are there as they are, too
        small = {i for i, flag in enumerate(made.weights) if flag and len(signature.inputs[i][0]) <= 1}
        made = replace(made, left=tuple(sorted({*made.left, *small})))
        parts = OpenParts(whole, options, target, made, signature)
        for i, flag in enumerate(parts.made.weights):
            if flag and any(n.terms for n in whole.shapes.inputs[i][0]):
                raise CompileError(
                    f"{whole.name}: {parts.signature.place(i)} is weights, which are packed once for all sizes, and "
                    f"its shape is open: {whole.shapes.shown(i)}"
                )
        return parts

    @cached_property
    def rest(self) -> OpenShapes:
        """The inputs of the rest."""
        shapes, made = self.whole.shapes, self.made
        packed = [(tuple(map(fixed, shape)), dtype) for shape, dtype in main_results(made.packing)]
        stays = [shapes.inputs[i] for i in made.left]
        deciding = {made.left.index(i): names for i, names in shapes.deciding.items()}
        return OpenShapes((*stays, *packed), shapes.symbols, shapes.constraints, deciding)

    @cached_property
    def parameters(self) -> Parameters:
        """What the inputs of the rest are called."""
        names = [self.signature.names[i] for i in self.made.left]
        names += [f"packed{i}" for i in range(len(self.rest.inputs) - len(names))]
        return Parameters(tuple(names), only=len(names), noun=self.signature.parameters.noun)

    @cached_property
    def _numbering(self) -> _Numbering:
        return _Numbering()

    @cached_property
    def _kept(self) -> list[int]:
        """What the packing gives, by number."""
        return self._numbering.results(self.made)

    def fit(self, made: SplitProgram, count: int) -> bool:
        """Has the rest of a version, in place, take what that of the program takes, and behind it its sizes. count: how
        many inputs the program has. Gives False where it needs weights that are packed otherwise."""
        left, kept = [i for i in made.left if i < count], self._numbering.results(made)
        if not (set(left) <= set(self.made.left) and set(kept) <= set(self._kept)):
            return False
        main = main_function(made.rest)
        block = main.body.block
        old = list(block.args)
        attributes = [{}] * len(old) if main.arg_attrs is None else [a.data for a in main.arg_attrs]
        sizes = range(len(left), len(old) - len(kept))
        given = [self.signature.inputs[i] for i in self.made.left]
        types: list[Attribute] = [tensor(shape, element_type(dtype)) for shape, dtype in given]
        types += main_function(self.made.packing).function_type.outputs
        places = [left.index(i) if i in left else None for i in self.made.left]
        places += [len(old) - len(kept) + kept.index(n) if n in kept else None for n in self._kept]
        for place, kind in [*zip(places, types, strict=True), *((i, old[i].type) for i in sizes)]:
            new = block.insert_arg(kind if place is None else old[place].type, len(block.args))
            if place is not None:
                new.name_hint = old[place].name_hint
                old[place].replace_all_uses_with(new)
        for argument in old:
            block.erase_arg(argument)
        said = [DictionaryAttr({} if i is None else {**attributes[i]}) for i in [*places, *sizes]]
        main.arg_attrs = ArrayAttr(said) if any(a.data for a in said) else None
        results = list(main.function_type.outputs)
        main.function_type = FunctionType.from_lists([a.type for a in block.args], results)
        return True

    def source_at(self, sizes: Sizes) -> Source:
        """The rest at given sizes. Raises CompileError where its weights would be packed otherwise."""
        plain = self.whole.specialize(sizes)

        def lower() -> tuple[ModuleOp, Signature]:
            origin = prepared(plain, self.options, self.target)
            made, signature = split_source(origin, self.options, self.target)
            if not self.fit(made, len(signature.inputs)):
                said = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                raise CompileError(
                    f"{self.whole.name}: its weights are packed otherwise at {said}: compile it for these sizes"
                )
            return part(made.rest, self.whole.name, None).lower()

        return Source(lower, self.whole.name)

    def signature_at(self, sizes: Sizes) -> Signature:
        """How the whole program is called at given sizes."""
        if self.whole.structs is None or self.whole.whole is not None:
            return replace(self.signature, inputs=self.whole.shapes.types(sizes))
        with as_compile_error():
            return named_module(self.whole.specialize(sizes))[1]


def _first_split(whole: OpenSource, options: Options, target: str | None) -> tuple[SplitProgram, Signature]:
    """The parts of a program at the first sizes at which it is one. Raises CompileError where there are none among
    those that are tried."""
    reason: CompileError | None = None
    for sizes in filter(whole.shapes.allows, map(partial(_clamped, whole.shapes), _SIZES)):
        try:
            origin = prepared(whole.specialize(sizes), options, target)
            return split_source(origin, options, target)
        except CompileError as error:
            if not isinstance(error.__cause__, FrontendError):
                raise
            reason = reason or error  # its shapes may not go together at these sizes, which no constraint says
    if reason is not None:
        raise reason
    raise CompileError(f"{whole.name}: weights= needs sizes to begin with, and takes none of {_SIZES}")


def _clamped(shapes: OpenShapes, size: int) -> dict[str, int]:
    """This size for each symbol, or what of its bounds is next to it."""
    return {
        s.name: max(s.lower, size if s.upper is None else min(size, s.upper)) for s in shapes.symbols.values()
    }


class _Numbering:
    """Numbers what is computed of weights: values that are computed alike have one number, whatever program they are
    in."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def results(self, made: SplitProgram) -> list[int]:
        """The numbers of what a packing gives."""
        block = main_function(made.packing).body.block
        numbers: dict[SSAValue, int] = {}
        numbers.update((a, self._number(("input", i))) for a, i in zip(block.args, made.taken, strict=True))
        last = block.last_op
        assert last is not None
        for op in block.ops:
            if op is not last:
                self._add(op, numbers)
        return [numbers[v] for v in last.operands]

    def _add(self, op: Operation, numbers: dict[SSAValue, int]) -> Any:
        """Numbers the results of an op; gives what it does."""
        operands = tuple(numbers[v] for v in op.operands)
        regions = tuple(self._block(block, numbers) for region in op.regions for block in region.blocks)
        said = (op.name, operands, frozenset(op.properties.items()), tuple(op.result_types), regions)
        for i, result in enumerate(op.results):
            numbers[result] = self._number((said, i))
        return said

    def _block(self, block: Block, numbers: dict[SSAValue, int]) -> Any:
        for i, argument in enumerate(block.args):
            numbers[argument] = self._number(("argument", i, argument.type))
        return tuple([self._add(op, numbers) for op in block.ops])

    def _number(self, what: Any) -> int:
        return self._known.setdefault(what, len(self._known))


class PackedVersions(Versions):
    """The versions of the rest of a program for ranges of sizes: the whole is lowered with open sizes, and split."""

    def __init__(self, *given: Any, parts: OpenParts) -> None:
        """given: as `Versions` takes it, the shapes being those of the rest."""
        _, *others = given
        super().__init__(parts.whole.shapes, *others)
        self._parts = parts

    def _called(self, sizes: Sizes) -> Signature:
        return Signature(self._parts.rest.types(sizes), parameters=self._parts.parameters)

    def _entry(self, code: OpenCode, known: Mapping[str, Size]) -> None:
        """What is split is not kept."""

    def _prepared(
        self, code: OpenCode, known: dict[str, Size], assumed: Assumptions, source: Source
    ) -> OpenModule:
        parts, opened = self._parts, self._united(code, known, assumed)
        signature = self._whole.signature(assumed.example)
        prepare_open(opened.module, signature, code.donated, source, parts.options, self._target)
        name_arguments(opened.module, signature.names)
        made = cast_and_split(opened.module, parts.options, self._target)
        if not parts.fit(made, len(signature.inputs)):
            raise NoTemplate("the weights are packed otherwise than at other sizes")
        return replace(opened, module=made.rest)


class PackedDynamicProgram(Packs, DynamicProgram):
    """A program for all sizes of its open dimensions, in two parts. `packing` runs once for the weights; `rest`, which
    has the open sizes, takes what it gives. Packed weights may stand where they belong in calls with any sizes, also of
    its versions."""

    def __init__(self, parts: OpenParts, packing: Program, rest: DynamicProgram, options: Options) -> None:
        super().__init__(replace(parts.whole, whole=None), _no_version, rest.target, options)
        self.packing, self.rest, self._split = packing, rest, parts.made
        self._parts, self._form, self._title = parts, parts.signature, parts.whole.name
        self.pool = rest.pool

    @property
    def ranges(self) -> dict[Key, Version | NoTemplate]:
        return self.rest.ranges

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the version for the sizes of the arguments, as `DynamicProgram` does. Packed weights may stand where
        they belong; else they are packed for this call."""
        import jax

        mode, kwargs = mode_of(kwargs, self._form, self.options.memory)
        packed, given, named = self._given(args, kwargs)
        leaves = list(self._open.leaves(given, named))
        known = self._parts.signature.inputs
        sizes = self._open.sizes(
            [jax.ShapeDtypeStruct(known[i][0], "float32") if v is SKIPPED else v for i, v in enumerate(leaves)]
        )
        version = self._version(sizes)
        assert isinstance(version, PackedProgram)
        if packed is None:
            packed = self._packed(version.flatten(args, kwargs))
        found = self.rest(*self._rest_inputs(leaves, packed), mode=mode)
        return self._parts.signature.unflatten(found if isinstance(found, tuple) else (found,))

    def _new_version(self, sizes: Sizes) -> Program:
        source = prepared(self._open.specialize(sizes), self._parts.options, self._parts.target)
        signature = self._parts.signature_at(sizes)
        rest = self.rest.at(sizes)
        return PackedProgram(source, signature, self._split, self.packing, rest, self._parts.options)

    def parts(self, targets: Sequence[str] = (), weights: Mapping[str, Any] | None = None) -> OpenProgramParts:
        """Raises CompileError: a file has weights apart for known sizes alone."""
        raise CompileError(f"save: {self.name} has open sizes and weights apart: save programs of its sizes, as at() "
                           "gives them")  # fmt: skip

    def module(self, level: Level = "npu", at: Mapping[str, int] | None = None) -> ModuleOp:
        return self.rest.module(level, at)


def _no_version(source: Source) -> Program:
    raise AssertionError(f"{source.name} is compiled in parts")


def compile_open_packed(lowering: Lowering, whole: OpenSource, target: str | None, options: Options) -> Program:
    """Compiles a program with open dimensions in two parts. Raises CompileError where it cannot be packed for all
    sizes, PassError for weights that are no arguments."""
    parts = OpenParts.of(whole, options, target)
    packing = compile_packing(lowering, parts.made, whole.name, target, options)
    own = replace(without_weights(options), donate=())

    def compile_rest(source: Source) -> Program:
        return compile_source(lowering, source, target, own)

    source = OpenSource(
        whole.name, parts.rest, parts.source_at, parameters=parts.parameters, whole=whole.whole
    )
    versions: Callable[..., Versions] = partial(PackedVersions, parts=parts)
    rest = DynamicProgram(source, compile_rest, target, own, versions)
    return PackedDynamicProgram(parts, packing, rest, options)
