"""Whether the programs of a model file compute what a source does: `verify_file`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ...backends.interpreter.graph import needs_host, run_graph
from ...passes.quantized.products_named import main_function
from ...support.collector import collector_paused
from ...support.files import FilePath
from ...verification.levels import JudgedLevel, LevelDifference, verify_levels
from ...verification.results import Progress, Verification
from ...verification.work import too_much
from ..arguments.calls import Call, Referenced
from ..arguments.parameters import Parameters, title_of
from ..arguments.signature import CompileError, Signature
from ..compiling import Compared, references
from ..mains import main_results
from ..modes import Memory
from ..onnx_sources import resolved
from ..program import Program
from ..quantized import requantized
from ..sizes.sources import sized_origin
from ..source import Source
from ..sources import as_compile_error, called
from .loading import program_of
from .names import named_file
from .reading import ModelFile

FILE = "file"
"""What the rows of a file are called."""

Types = Mapping[str, tuple[tuple[int, ...], str]]
"""Shapes and element types by the names of inputs."""

Draw = Callable[[Sequence[tuple[tuple[int, ...], str]]], Sequence[np.ndarray]]


@dataclass(frozen=True)
class FileVerification:
    """What a file computes beside a source. verification: a row for each level; first: one sentence on the first level
    and output that differ, empty where none does; sqnr: of the level that is furthest away, in dB."""

    verification: Verification
    first: str
    sqnr: float | None

    @property
    def ok(self) -> bool:
        """Whether all levels are within what is allowed."""
        return self.verification.ok


def verify_file(
    path: FilePath,
    source: Any,
    /,
    *args: Any,
    target: str | None = None,
    entry: str | None = None,
    min_sqnr: float | None = None,
    draw: Draw | None = None,
    progress: Progress | None = None,
) -> FileVerification:
    """Compares a function of a model file with a source on the same inputs: its graph level, where the file has it, and
    its npu level in both memories.

    Args:
        path: The file.
        source: What it should compute: as for `tw.compile`, another model file too.
        *args: Arguments of the source with values. Those that are types alone, also of open sizes, and those of a
            source without arguments, are drawn with the types that the file takes.
        target: The chip; None: the first one that the file has.
        entry: The function of the file; it may be left out where there is one.
        min_sqnr: The least SQNR in dB at which a level is right. None: each number is held against the bound of
            roundings of the source, with the casts that the file says, and a quantized program against the source
            quantized as the file says: then this is what its results have to have beside those that are not.
        draw: Makes arrays of shapes and element types.
        progress: Is told of each step.

    Raises:
        ModelFileError: The file cannot be read.
        CompileError: The source takes or gives something else than the file, in a sentence that names which, or it
            cannot be compiled.
        OSError: A file cannot be read.
    """
    file = ModelFile(path)
    program = program_of(file, target, entry)
    name, facts = file.entry(entry)
    if facts.open:
        raise CompileError(f"{path}: {name} has open sizes: compare a file of the program for some, as compile --at "
                           "writes it")  # fmt: skip
    taken = _Taken.of(f"{path}:{name}", file.signature(facts))
    with as_compile_error(), collector_paused():
        golden = _golden(source, args or tuple(file.arguments(name, taken.drawn(draw))), taken, draw)
        if golden.portable:
            golden = replace(golden, source=requantized(golden.source, program.asked, program.target))
        module, signature = golden.source.lower()
        if (why := too_much(module)) is not None:
            raise CompileError(f"{golden.title} is not verified: {why}")
        flat = golden.flatten(signature)
        given = taken.matched(golden.title, signature, flat)
        compiled = program.module()
        _check_results(taken.title, compiled, golden.title, module)
        levels = [*_graph_level(program, facts.graph, given), *_npu_levels(program, given)]
        wanted, stages = golden.compared(module, flat), program.asked.stages()
        found, first, ratio = verify_levels(
            module,
            flat,
            wanted.reference,
            program.target,
            stages,
            levels,
            compiled,
            golden.name if wanted.original is None else wanted.name,
            min_sqnr,
            progress,
            wanted.original,
        )
    return FileVerification(found, "" if first is None else _sentence(first, taken.signature), ratio)


# -- the file ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Taken:
    """What a function of a file takes. title: what messages call it; values: flat inputs that the file has, by name."""

    title: str
    signature: Signature
    values: Mapping[str, Any]

    @staticmethod
    def of(title: str, signature: Signature) -> _Taken:
        import jax

        values = {
            f"{label}{jax.tree_util.keystr(path)}": leaf
            for label, value in signature.parameters.defaults.items()
            for path, leaf in jax.tree_util.tree_leaves_with_path(value)
        }
        return _Taken(title, signature, values)

    @property
    def types(self) -> Types:
        """The inputs."""
        return dict(zip(self.signature.names, self.signature.inputs, strict=True))

    def drawn(self, draw: Draw | None) -> list[Any]:
        """All flat inputs: values of the file where it has some, and drawn ones. Raises CompileError where nobody
        draws."""
        types = self.types
        missing = [key for key in types if key not in self.values]
        if missing and draw is None:
            raise CompileError(f"{self.title} is verified on inputs: give arguments of its source with values")
        found = dict(zip(missing, draw([types[key] for key in missing]) if draw is not None else (), strict=True))
        return [self.values[key] if key in self.values else found[key] for key in types]

    def matched(self, title: str, other: Signature, flat: Sequence[Any]) -> list[Any]:
        """Its flat inputs out of those of a source that messages call by its title: by name, or by place where no name
        is in both. Raises CompileError, which names the input, where they take something else."""
        kinds = dict(zip(other.names, other.inputs, strict=True))
        found = dict(zip(other.names, flat, strict=True))
        if not self.values and not kinds.keys() & self.types.keys() and len(kinds) == len(self.types):
            found = dict(zip(self.types, flat, strict=True))
            kinds = dict(zip(self.types, other.inputs, strict=True))
        for key, kind in self.types.items():
            if key in self.values:
                continue
            if key not in kinds:
                raise CompileError(f"{self.title} takes {key}, {_said(kind)}, and {title} does not")
            if kinds[key] != kind:
                raise CompileError(f"{key} is {_said(kind)} in {self.title}, and {_said(kinds[key])} in {title}")
        own = [self.signature.parameters.label(i) for i in range(self.signature.form[0])]
        for key, kind in kinds.items():
            packed = key not in self.types and any(key == label or key.startswith(f"{label}[") for label in own)
            if key not in self.types and not packed:
                raise CompileError(f"{title} takes {key}, {_said(kind)}, and {self.title} does not")
        return [self.values[key] if key in self.values else found[key] for key in self.types]


def _said(kind: tuple[tuple[int, ...], str]) -> str:
    shape, dtype = kind
    return f"{dtype}{list(shape)}"


def _graph_level(program: Program, member: str, given: Sequence[Any]) -> list[JudgedLevel]:
    """The graph level, quantized as the program is, where the file has it and nothing of it runs on the host."""
    if not member:
        return []
    twin = program.origin.twin
    module = program.origin.lower()[0] if twin is None else twin()
    if needs_host(main_function(module)):
        return []
    return [JudgedLevel(FILE, "graph", "typed", lambda: list(run_graph(module, *given)))]


def _npu_levels(program: Program, given: Sequence[Any]) -> list[JudgedLevel]:
    """The npu level as users run it, and one instruction at a time on addressed bytes."""

    def run(memory: Memory) -> Callable[[], Sequence[Any]]:
        return lambda: program.executable(memory)(*given)

    return [JudgedLevel(FILE, "npu", "typed", run("typed")), JudgedLevel(FILE, "npu", "bytes", run("step"))]


def _check_results(title: str, made: ModuleOp, other: str, module: ModuleOp) -> None:
    """Raises CompileError, which names the result, where a file gives something else than its source."""
    ours, theirs = main_results(made), main_results(module)
    for i, (own, kind) in enumerate(zip(ours, theirs, strict=False)):
        if own != kind:
            raise CompileError(f"result {i} is {_said(own)} in {title}, and {_said(kind)} in {other}")
    if len(ours) != len(theirs):
        raise CompileError(f"{title} gives {len(ours)} results, and {other} {len(theirs)}")


def _sentence(found: LevelDifference, signature: Signature) -> str:
    """What differs first."""
    import jax

    tree, where = signature.out_tree, found.difference
    names = [f"result {found.result}"]
    if tree is not None and found.result < tree.num_leaves:
        paths = jax.tree_util.tree_leaves_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))
        names += [jax.tree_util.keystr(path) for path, _ in paths[found.result : found.result + 1] if path]
    level = f"{found.level.level} level" + (f", {found.level.memory} memory" if found.level.level == "npu" else "")
    said = f"first difference: {level}, {' '.join(names)}"
    if where.want is None:
        return said
    element = f"element {list(where.element)} " if where.element else ""
    return f"{said}: {element}is {where.got}, should be {where.want} ({where.count} elements differ)"


# -- the source ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Golden:
    """What a file should compute. source: its module; title: what messages call it; name: what its values are from;
    flatten: its flat inputs, by its signature; call: its function, where it is one of JAX; portable: whether it is a
    program of numbers that are not quantized yet."""

    source: Source
    title: str
    name: str
    flatten: Callable[[Signature], list[Any]]
    call: Call | None = None
    portable: bool = True

    def compared(self, module: ModuleOp, flat: Sequence[Any]) -> Compared:
        """What results are compared with. module: of the source; flat: its inputs."""
        return references(self.source, module, flat, self.call, None, (), {})


def _golden(source: Any, args: Sequence[Any], taken: _Taken, draw: Draw | None) -> _Golden:
    """Raises CompileError for what is no source, and ModelFileError."""
    if (named := named_file(source)) is not None:
        return _golden_file(str(source), ModelFile(named[0]), named[1], taken, draw)
    source, args, kwargs = resolved(source, args, {})
    if callable(source):
        args = _filled(source, args, taken, draw)
    title = title_of(source) if callable(source) else str(source)
    origin, call = sized_origin(source, args, kwargs, None), called(source, args, kwargs)
    own = (args, kwargs) if call is None else (call.args, call.kwargs)
    name = f"{title} in JAX" if call is not None else title
    if call is not None and isinstance(call.fn, Referenced):
        name = call.fn.reference_name
    return _Golden(
        origin,
        title,
        name,
        lambda signature: signature.flatten(title, *own),
        call,
    )


def _golden_file(title: str, file: ModelFile, entry: str | None, taken: _Taken, draw: Draw | None) -> _Golden:
    """A function of another file: its graph level, or its npu level where that is all there is."""
    program = program_of(file, entry=entry)

    def flatten(signature: Signature) -> list[Any]:
        own = _Taken.of(title, signature)
        values = {**dict(zip(taken.types, taken.drawn(draw), strict=True)), **own.values}
        for key, kind in own.types.items():
            if key not in values:
                raise CompileError(f"{title} takes {key}, {_said(kind)}, and {taken.title} does not")
        return [values[key] for key in own.types]

    portable = bool(file.entry(entry)[1].graph) and program.origin.original is None
    return _Golden(program.origin, title, title, flatten, portable=portable)


def _filled(fn: Any, args: Sequence[Any], taken: _Taken, draw: Draw | None) -> tuple[Any, ...]:
    """Arguments of a function with drawn values for those that are types alone: of the types that the file takes, since
    sizes may be open. Raises CompileError."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten_with_path((tuple(args), {}))
    own, types = Parameters.of(fn), taken.types
    found = [leaf for _, leaf in leaves]
    for i, (path, leaf) in enumerate(leaves):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            continue
        key = own.path(path)
        if key not in types:
            raise CompileError(f"{title_of(fn)} takes {key}, and {taken.title} does not")
        if draw is None:
            raise CompileError(f"argument {key} of {title_of(fn)} has no values: give some")
        found[i] = draw([types[key]])[0]
    return jax.tree.unflatten(tree, found)[0]
