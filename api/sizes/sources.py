"""Sources with open dimensions: JAX functions with symbolic shapes, StableHLO with `?`, and `.tw` functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ...dialects.affine import Expr, Symbol
from ...dialects.dtypes import name_of_numpy, numpy_dtype
from ...dialects.sizes import (
    LARGEST,
    Constraint,
    Size,
    SizeError,
    Sizes,
    fixed,
    parse_size,
    replaced,
    size_text,
)
from ...frontends import is_stablehlo
from ...frontends.jax import donated_inputs, tracing
from ...frontends.text import find_tw
from ...frontends.undecided import noting_equalities
from ...machine import Machine
from ...passes.errors import CompileError
from ...passes.templates import NoTemplate
from ...support.sentences import counted
from ..arguments.calls import parameters_of
from ..arguments.parameters import INPUTS, Parameters, title_of
from ..arguments.signature import Signature, is_key, signature_of, types_of
from ..arguments.specs import symbolic_shapes
from ..files.names import named_file
from ..files.opened import open_source_in
from ..files.reading import ModelFile
from ..mains import main_inputs
from ..sources import Source, as_compile_error, called, content_of, origin_of, stage_of, tw_text
from .codes import OpenCode, StableHloCode, TwCode
from .dispatched import chooses, source_of_dispatch
from .dynamic import OpenSource, SizedVariant, Variant
from .probing import first_line, why_undecided
from .relations import FEW_TRACES, MANY_TRACES, Relations, RelationSearch
from .shapes import OpenShapes, Shape, exported_shapes, is_symbolic, structs_at
from .templates import ForAllSizes, Ranges
from .variants import Variants, exact_choices

if TYPE_CHECKING:
    from ...frontends.text.frontend import TwParameters


def open_source_of(
    source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None
) -> OpenSource | None:
    """The source that `compile` is given, where it has open dimensions; None for all others.

    These are symbolic shapes among the example arguments of a function, also one of a `.tw` file; without arguments,
    a `jax.export.Exported` with symbolic shapes, StableHLO with `?` in its inputs, and a `.tw` function with symbolic
    dimensions.

    Raises CompileError.
    """
    if (named := named_file(source)) is not None:
        with as_compile_error():
            file = ModelFile(named[0])
            name, facts = file.entry(named[1])
            return open_source_in(file, name, facts, None) if facts.open else None
    if callable(source) or stage_of(source) is not None:
        if stage_of(source) == "Exported":
            return None if args or kwargs else _of_export(source, target)
        return _of_function(source, args, kwargs, target)
    found = find_tw(str(source)) if isinstance(source, str | Path) else None
    if found is not None and not kwargs:
        return _of_tw(*found, target) if not args else _of_tw_inputs(*found, args, target)
    if args or kwargs:
        return None
    read = content_of(source)
    if read is not None and chooses(read[0]):
        return source_of_dispatch(*read)
    if read is None or not _may_be_open(read[0]):
        return None
    return _of_stablehlo(*read, None if target is None else Machine.load(target))


_BYTECODE = b"ML\xefR"
_OPEN = re.compile(rb"tensor<(?:\d+x)*\?")
_OWN = re.compile(rb"(?:^|[\s\"=])(?:graph|tile|npu)\.[a-z]")


def _may_be_open(content: bytes) -> bool:
    """Whether MLIR may have open dimensions. Our own levels have none; what has none need not be parsed here."""
    if content.startswith(_BYTECODE):
        return True
    return bool(_OPEN.search(content)) and (is_stablehlo(content) or not _OWN.search(content))


# -- JAX ---------------------------------------------------------------------------------------------------


def _of_function(
    source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None
) -> OpenSource | None:
    """A function whose example arguments have symbolic shapes. JAX traces it with these, and says what it cannot decide
    without sizes; its versions are traced anew, so that they are what the function is for their sizes."""
    import jax

    leaves = jax.tree.leaves((tuple(args), dict(kwargs)))
    if not any(is_symbolic(d) for leaf in leaves for d in getattr(leaf, "shape", ())):
        return None
    call = called(source, args, kwargs)
    assert call is not None
    name, parameters = title_of(source), parameters_of(call)
    with tracing(call.fn):
        given = types_of(name, (call.args, call.kwargs), parameters)
    types, tree = jax.tree.flatten(given)
    shapes = exported_shapes(types, list(map(_dtype, types)), getattr(call.fn, "smallest_size", 1))
    made = call.fn.bound(shapes) if isinstance(call.fn, Variants) else None

    def structs(sizes: Sizes) -> list[Any]:
        return structs_at(types, shapes, sizes)

    def trace(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        with tracing(call.fn):
            jax.jit(call.fn).trace(*args, **kwargs)

    def related(known: Relations) -> tuple[Sequence[tuple[Any, Any]], Exception | None]:
        with noting_equalities() as noted:
            try:
                args, kwargs = jax.tree.unflatten(tree, _within(types, shapes, {}, known))
                trace(args, kwargs)
            except Exception as error:
                return list(noted.values()), error
            return list(noted.values()), None

    undecided, relations = "", None
    if made is None:
        try:
            trace(*given)
        except Exception as error:  # of the function, too
            why = why_undecided(error, shapes, lambda at: trace(*jax.tree.unflatten(tree, structs(at))))
            search = RelationSearch(shapes, related, FEW_TRACES if why else MANY_TRACES, why is None)
            relations = search.run()
            if why is None and relations is None:
                with as_compile_error():
                    raise
            undecided = why or first_line(error)

    def source_at(fn: Any, sizes: Sizes) -> Source:
        args, kwargs = jax.tree.unflatten(tree, structs(sizes))
        return replace(origin_of(fn, args, kwargs, target), name=name, places=call.places or None)

    def specialize(sizes: Sizes) -> Source:
        if made is None:
            return source_at(call.fn, sizes)
        return source_at(made.functions[made.chosen(*jax.tree.unflatten(tree, structs(sizes)))], sizes)

    def alternatives(sizes: Sizes) -> list[SizedVariant]:
        assert made is not None
        held, _ = made.holding(*jax.tree.unflatten(tree, structs(sizes)))
        rows = zip(made.names, made.guards, held, made.functions, strict=True)
        return [SizedVariant(n, guard, bool(holds), source_at(fn, sizes)) for n, guard, holds, fn in rows]

    def fitting(fn: Any, sizes: Sizes) -> Source:
        assert made is not None
        made.holding(*jax.tree.unflatten(tree, structs(sizes)))  # raises for sizes that its guards do not mean
        return source_at(fn, sizes)

    if made is not None:
        guards = zip(made.names, made.guards_over(shapes, call.args, call.kwargs), made.functions, strict=True)
        variants = tuple(Variant(n, guard, partial(fitting, fn)) for n, guard, fn in guards)
        return OpenSource(name, shapes, specialize, tree, parameters, None, structs, alternatives, variants)

    exported: list[Any] = []

    def code(ranges: Ranges, united: Relations) -> OpenCode:
        if united or not undecided:
            return code_of(ranges, united)
        first: NoTemplate | None = None
        for tried in _united(ranges, relations or {}):
            try:
                return code_of(ranges, tried)
            except NoTemplate as error:
                first = first or error
        assert first is not None
        raise first

    def code_of(ranges: Ranges, united: Relations) -> OpenCode:
        with _as_no_template():
            args, kwargs = jax.tree.unflatten(tree, _within(types, shapes, ranges, united))
            with exact_choices(), tracing(call.fn), noting_equalities() as noted:
                made = jax.export.export(jax.jit(call.fn, keep_unused=True), platforms=["cpu"])(*args, **kwargs)
            exported.append(made)
            found = _code(made, shapes)
            dims = (n for t in jax.tree.leaves((args, kwargs)) for n in t.shape if is_symbolic(n))
            scope = next((n.scope for n in dims), None)  # who traces with symbols of its own asks of these, too
            own = [pair for pair in noted.values() if pair[0].scope is scope]
            apart = [*_equal(united, ranges), *_unequal(own, ranges)]
            return replace(found, donated=tuple(donated_inputs(call.fn, args, kwargs)), constraints=tuple(apart))

    def signature(sizes: Sizes) -> Signature:
        made = exported[0]  # a version is called after its code was asked for
        return signature_of(structs(sizes), made.out_avals, made.in_tree, made.out_tree, parameters)

    whole = None if any(map(is_key, types)) else ForAllSizes(code, signature)
    return OpenSource(name, shapes, specialize, tree, parameters, whole, structs, undecided=undecided)


def _united(ranges: Ranges, relations: Relations) -> Iterator[Relations]:
    """Sizes in the place of symbols: none, then those that a program needs, then of each two of the same range one in
    the place of the other."""
    yield {}
    if relations and all(c.always() is not False for c in _equal(relations, ranges)):
        yield relations
    names = [name for name, (low, high) in ranges.items() if low < high]
    symbols = _symbols(ranges)
    yield from ({b: Expr.of(symbols[a])} for a, b in combinations(names, 2) if ranges[a] == ranges[b])


def _symbols(ranges: Ranges) -> dict[str, Symbol]:
    return {name: Symbol(name, low, high) for name, (low, high) in ranges.items()}


def _equal(united: Relations, ranges: Ranges) -> list[Constraint]:
    """What must hold of sizes in ranges where others stand in their place."""
    symbols = {name: Expr.of(symbol) for name, symbol in _symbols(ranges).items()}
    made = [Constraint(symbols[n], "==", replaced(size, symbols)) for n, size in united.items()]
    return [c for c in made if not c.always()]


def _unequal(noted: Sequence[tuple[Any, Any]], ranges: Ranges) -> list[Constraint]:
    """What must hold of sizes in ranges where equalities of them were taken for false. Raises NoTemplate where that
    cannot be said of them."""
    symbols = _symbols(ranges)
    found: dict[Constraint, None] = {}
    for one, other in noted:
        try:
            sides = [parse_size(str(n), symbols) for n in (one, other)]
        except SizeError as error:
            raise NoTemplate(f"whether {one} is {other} is open: {error}") from None
        holds = Constraint(sides[0], "==", sides[1]).always()
        if holds:
            raise NoTemplate(f"whether {one} is {other} is not decided, and it is")
        if holds is None:
            found[Constraint(sides[0], "!=", sides[1])] = None
    return list(found)


@contextmanager
def _as_no_template() -> Iterator[None]:
    """What a function raises where it is traced with ranges of sizes, and what JAX does where it does not export it, is
    the reason why a range has no version."""
    try:
        yield
    except NoTemplate:
        raise
    except Exception as error:  # it exports no calls of Python
        raise NoTemplate(f"JAX does not export it with open sizes: {first_line(error)}") from None


def _within(types: Sequence[Any], shapes: OpenShapes, ranges: Ranges, united: Relations) -> list[Any]:
    """The types of flat inputs with symbolic shapes, each size in its range: JAX decides by these what it traces.
    united: sizes in the place of symbols."""
    import jax

    gone = {name: fixed(low) for name, (low, high) in ranges.items() if low == high}
    gone |= {name: replaced(size, gone) for name, size in united.items()}
    rows = [[replaced(n, gone) for n in shape] for shape, _ in shapes.inputs]
    dims = [tuple(size_text(n) if n.terms else n.constant for n in row) for row in rows]
    said = [c for c in shapes.constraints if not {s.name for s in c.symbols} & gone.keys()]
    ends = [
        f"{n} {end}" for n, r in ranges.items() if n not in gone for end in (f">= {r[0]}", f"<= {r[1]}")
    ]
    made = symbolic_shapes(dims, [*map(str, said), *ends], "its sizes")
    return [
        jax.ShapeDtypeStruct(shape, t.dtype, weak_type=bool(getattr(t, "weak_type", False)))
        for t, shape in zip(types, made, strict=True)
    ]


def _of_export(exported: Any, target: str | None) -> OpenSource | None:
    """What JAX has exported with symbolic shapes."""
    import jax

    if not any(is_symbolic(d) for a in exported.in_avals for d in a.shape):
        return None
    shapes = exported_shapes(exported.in_avals, list(map(_dtype, exported.in_avals)))

    def structs(sizes: Sizes) -> list[Any]:
        return structs_at(exported.in_avals, shapes, sizes)

    def specialize(sizes: Sizes) -> Source:
        args, kwargs = jax.tree.unflatten(exported.in_tree, structs(sizes))
        return origin_of(exported, args, kwargs, target)

    def signature(sizes: Sizes) -> Signature:
        return signature_of(
            structs(sizes), exported.out_avals, exported.in_tree, exported.out_tree, Parameters()
        )

    kept = len(exported.module_kept_var_idx) == len(exported.in_avals)
    whole = None
    if kept and not any(map(is_key, exported.in_avals)):
        whole = ForAllSizes(lambda *_: _code(exported, shapes), signature)
    return OpenSource(exported.fun_name, shapes, specialize, exported.in_tree, whole=whole, structs=structs)


def _code(exported: Any, shapes: OpenShapes) -> StableHloCode:
    """The StableHLO of what JAX has exported. The function behind the one that checks shapes takes the sizes first."""
    from ...frontends.bindings import functions, parse

    content = exported.mlir_module_serialized
    module = parse(content, None)
    found = functions(module)
    entry = _CHECKED if _CHECKED in found else "main"
    attributes = found[entry].attributes
    arguments = attributes["arg_attrs"] if entry == _CHECKED and "arg_attrs" in attributes else ()
    names = [a[_SIZE].value for a in arguments if _SIZE in a]
    return StableHloCode(content, entry, tuple(Expr.of(shapes.symbols[name]) for name in names))


_CHECKED, _SIZE = "_wrapped_jax_export_main", "jax.global_constant"
"""What JAX calls that function, and its arguments that are sizes."""


def _dtype(aval: Any) -> str:
    return str(aval.dtype) if is_key(aval) else name_of_numpy(aval.dtype)


# -- StableHLO ---------------------------------------------------------------------------------------------


def _of_stablehlo(content: bytes, filename: str | None, machine: Machine | None) -> OpenSource | None:
    """StableHLO whose inputs have open dimensions: each is a symbol, called `arg1_0` for dimension 0 of %arg1, and
    so is each input whose value decides shapes, `arg0`."""
    from ...frontends.bindings import parse
    from ...frontends.refining import open_inputs

    with as_compile_error():
        module = parse(content, filename)
        inputs = open_inputs(module)
    if not any(i.is_open for i in inputs):
        return None
    symbols: dict[str, Symbol] = {}
    dims: list[tuple[Shape, str]] = []
    deciding: dict[int, tuple[str, ...]] = {}
    for i, one in enumerate(inputs):
        shape = [fixed(n) if n is not None else None for n in one.shape]
        for d, limit in enumerate(one.limits):
            if shape[d] is None:
                symbol = symbols[f"arg{i}_{d}"] = Symbol(f"arg{i}_{d}", 0, limit)
                shape[d] = Expr.of(symbol)
        dims.append((tuple(n for n in shape if n is not None), one.dtype))
        if one.decides:
            count = int(np.prod([n for n in one.shape if n is not None], dtype=np.int64))
            names = [f"arg{i}"] if count == 1 else [f"arg{i}_{k}" for k in range(count)]
            deciding[i] = tuple(names)
            top = int(ml_dtypes.iinfo(numpy_dtype(one.dtype)).max)
            symbols |= {n: Symbol(n, 0, min(top, LARGEST)) for n in names}
    shapes = OpenShapes(tuple(dims), symbols, (), deciding)
    name = Path(filename).name if filename else "program"

    def specialize(sizes: Sizes) -> Source:
        def lower() -> tuple[ModuleOp, Signature]:
            with as_compile_error():
                made = code.at(shapes, sizes, machine)
            return made, Signature(main_inputs(made, name))

        return Source(lower, name, stablehlo=lambda: code.artifact_at(shapes, sizes))

    def signature(sizes: Sizes) -> Signature:
        return Signature(shapes.types(sizes))

    code = StableHloCode(content, "main", (), filename)
    whole = ForAllSizes(lambda *_: code, signature)
    return OpenSource(name, shapes, specialize, parameters=INPUTS, whole=whole)


# -- .tw ---------------------------------------------------------------------------------------------------


def _of_tw(path: str, function: str | None, target: str | None) -> OpenSource | None:
    """A `.tw` function with symbolic dimensions."""
    from ...frontends.text.frontend import tw_parameters

    with as_compile_error():
        found = tw_parameters(path, tw_text(path), function)
    if not found.symbols:
        return None
    symbols = {name: Symbol(name) for name in found.symbols}
    try:
        inputs = tuple(
            (tuple(fixed(n) if isinstance(n, int) else parse_size(n, symbols) for n in dims), dtype)
            for dims, dtype in found.inputs
        )
    except SizeError as error:
        raise CompileError(f"{path}: {error}") from None
    return _of_tw_shapes(path, function, found, OpenShapes(inputs, symbols), target)


def _of_tw_inputs(
    path: str, function: str | None, args: Sequence[Any], target: str | None
) -> OpenSource | None:
    """A `.tw` function on inputs with symbolic shapes."""
    from ...frontends.text.frontend import tw_parameters

    if not any(is_symbolic(d) for a in args for d in getattr(a, "shape", ())):
        return None
    with as_compile_error():
        found = tw_parameters(path, tw_text(path), function)
    if len(args) != len(found.inputs):
        takes = counted(len(found.inputs), "input", "inputs")
        raise CompileError(f"{found.name} takes {takes}, called with {len(args)}")
    types = types_of(found.name, (tuple(args), {}), Parameters(found.names, noun="input"))[0]
    return _of_tw_shapes(path, function, found, exported_shapes(types, list(map(_dtype, types))), target)


def _of_tw_shapes(
    path: str, function: str | None, found: TwParameters, shapes: OpenShapes, target: str | None
) -> OpenSource:
    source = path if function is None else f"{path}:{function}"
    parameters = Parameters(found.names, noun="input")

    def specialize(sizes: Sizes) -> Source:
        import jax

        structs = [jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in shapes.types(sizes)]
        return origin_of(source, structs, target=target)

    def code(ranges: Ranges, united: Relations) -> OpenCode:
        return TwCode(path, tw_text(path), function)

    def signature(sizes: Sizes) -> Signature:
        return Signature(shapes.types(sizes), parameters=parameters)

    return OpenSource(found.name, shapes, specialize, parameters=parameters, whole=ForAllSizes(code, signature))


def tw_arguments(source: str, dimensions: Mapping[str, int | tuple[int, int | None]]) -> list[Any]:
    """Inputs for `model.tw[:fn]` whose dimensions have these sizes, or are open within bounds (None: no upper one):
    jax.ShapeDtypeStructs with symbolic dimensions. Raises CompileError."""
    import jax

    from ...frontends.text.frontend import tw_inputs, tw_parameters

    where = find_tw(source)
    if where is None:
        raise CompileError(f"{source}: not a .tw file")
    path, function = where
    text = tw_text(path)
    open_ = {n: b for n, b in dimensions.items() if not isinstance(b, int)}
    fixed_ = {n: b for n, b in dimensions.items() if isinstance(b, int)}
    with as_compile_error():
        # it says which dimensions are missing or unknown, for whatever sizes
        tw_inputs(path, text, function, fixed_ | {n: low for n, (low, _) in open_.items()})
        found = tw_parameters(path, text, function)
    names = {**{n: Symbol(n, low, high) for n, (low, high) in open_.items()}, **fixed_}
    try:
        dims = [
            [d if isinstance(d, int) else _number_or_text(parse_size(d, names)) for d in row]
            for row, _ in found.inputs
        ]
    except SizeError as error:
        raise CompileError(f"{path}: {error}") from None
    said = [f"{n} >= {low}" for n, (low, _) in open_.items()]
    said += [f"{n} <= {high}" for n, (_, high) in open_.items() if high is not None]
    shapes = symbolic_shapes([tuple(row) for row in dims], said, path)
    return [
        jax.ShapeDtypeStruct(s, numpy_dtype(dtype))
        for s, (_, dtype) in zip(shapes, found.inputs, strict=True)
    ]


def _number_or_text(size: Size) -> int | str:
    return size_text(size) if size.terms else size.constant


def sized_origin(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None) -> Source:
    """As `origin_of`; StableHLO with open dimensions is that for the sizes of its arguments. Raises CompileError."""
    if args or kwargs:
        import jax

        leaves = jax.tree.leaves((args, kwargs))
        if any(is_symbolic(n) for leaf in leaves for n in getattr(leaf, "shape", ())):
            name = title_of(source) if callable(source) else "the program"
            raise CompileError(f"{name}: symbolic shapes are for functions that tw.compile takes: give sizes")
    is_file = named_file(source) is not None
    if not is_file and (not args or kwargs or callable(source) or stage_of(source) is not None):
        return origin_of(source, args, kwargs, target)
    is_tw = isinstance(source, str | Path) and find_tw(str(source)) is not None
    open_ = None if is_tw else open_source_of(source, (), {}, target)
    return (
        origin_of(source, args, kwargs, target)
        if open_ is None
        else open_.specialize(open_.sizes(open_.leaves(args, kwargs)))
    )
