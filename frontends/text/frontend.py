"""The way in: a `.tw` file to a module of the graph level."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp, TensorType

from ...dialects.dtypes import element_type, shape_in, tensor
from ...dialects.size_numbers import SizeNumber
from ...support.files import open_plain
from . import syntax
from .builder import type_text
from .diagnostics import DiagnosticLog
from .load import Module, entry, load_module
from .lower import Spec, TwLowering
from .scope import BlockNames


@dataclass(frozen=True)
class TwProgram:
    """A lowered `.tw` function. inputs: shape and element type of each parameter; names: what they are called; extras:
    the numbers that @main takes behind the inputs, where these have open sizes."""

    module: ModuleOp
    name: str
    inputs: tuple[Spec, ...]
    names: tuple[str, ...]
    extras: tuple[tuple[SizeNumber, str], ...] = ()


def lower_tw(
    path: str,
    text: str,
    function: str | None = None,
    inputs: Sequence[Spec] | None = None,
    dimensions: Mapping[str, int] | None = None,
) -> TwProgram:
    """The graph level of a function of a `.tw` file: the one called `function`, else the only public one.

    path: for messages, and where imports and weights are looked for; inputs: shapes and element types, which bind the
    symbolic dimensions, and may have open sizes within `assuming`; dimensions: what binds them instead. Raises TwError,
    and NotOpen for what open sizes are not enough for.
    """
    report = DiagnosticLog()
    module = load_module(path, text, report)
    main = entry(module, function, report)
    lowering = TwLowering(module, report)
    types = _types(lowering, module, main, inputs, dimensions or {}, report)
    made = lowering.main(main, types)
    _check_rest(module, lowering, report)
    names = tuple(p.id.id for p in main.parameters)
    return TwProgram(made, main.id.id, _specs(types, main), names, lowering.extras.listed)


def tw_inputs(path: str, text: str, function: str | None, dimensions: Mapping[str, int]) -> tuple[Spec, ...]:
    """Shape and element type of each input of a function with these symbolic dimensions; its body is parsed, and not
    lowered. Raises TwError."""
    report = DiagnosticLog()
    module = load_module(path, text, report)
    main = entry(module, function, report)
    return _specs(_types(TwLowering(module, report), module, main, None, dimensions, report), main)


def tw_identity(path: str, text: str) -> list[str]:
    """All that a `.tw` file says: its text and path, those of the files it imports, and a hash of each file of weights.
    Raises TwError for what cannot be parsed."""
    report = DiagnosticLog()
    modules = [load_module(path, text, report)]
    for module in modules:  # also those that are added here
        modules += [m for m in module.imports.values() if m not in modules]
    weights = {
        module.folder / str(item.path.value): None
        for module in modules
        for item in module.items.values()
        if isinstance(item, syntax.Param)
    }
    said = [part for module in modules for part in (module.source.path, module.source.text)]
    return [*said, *(part for file in weights for part in (str(file), _hash(file)))]


def _hash(file: Path) -> str:
    """A hash of a file's content; empty where it cannot be read, which the program says where it does."""
    try:
        with open_plain(file) as content:
            return file_digest(content, "sha256").hexdigest()
    except OSError:
        return ""


@dataclass(frozen=True)
class TwParameters:
    """A `.tw` function whose dimensions may be symbolic.

    inputs: for each parameter its dimensions, numbers or the text of what they are in symbols, and its element type.
    """

    name: str
    inputs: tuple[tuple[tuple[int | str, ...], str], ...]
    names: tuple[str, ...]
    symbols: tuple[str, ...]


def tw_parameters(path: str, text: str, function: str | None) -> TwParameters:
    """The parameters of a function of a `.tw` file; its body is parsed, and not lowered. Raises TwError."""
    report = DiagnosticLog()
    module = load_module(path, text, report)
    main = entry(module, function, report)
    symbols = dict.fromkeys(d.id for p in main.parameters for d in _symbols(p.type, module))
    lowering, scope = TwLowering(module, report), BlockNames(None, 0)

    def dimension(node: syntax.Expr) -> int | str | None:
        names = {n.id: n for n in syntax.names_in(node)}
        if not names.keys() & symbols.keys():
            return lowering.dimension(node, scope)
        written = module.source.text[node.span[0] : node.span[1]]
        for name, part in names.items():
            if name not in symbols:
                written = re.sub(rf"\b{name}\b", str(lowering.dimension(part, scope)), written)
        return " ".join(written.replace("/", "//").replace("////", "//").split())

    inputs = [(tuple(map(dimension, p.type.dims)), p.type.dtype.id) for p in main.parameters]
    report.check()
    known = tuple((tuple(n for n in dims if n is not None), dtype) for dims, dtype in inputs)
    return TwParameters(main.id.id, known, tuple(p.id.id for p in main.parameters), tuple(symbols))


def _specs(types: Sequence[TensorType], main: syntax.FunctionItem) -> tuple[Spec, ...]:
    return tuple((shape_in(t), p.type.dtype.id) for t, p in zip(types, main.parameters, strict=True))


def _types(
    lowering: TwLowering,
    module: Module,
    main: syntax.FunctionItem,
    inputs: Sequence[Spec] | None,
    dimensions: Mapping[str, int],
    report: DiagnosticLog,
) -> list[TensorType]:
    """The types of the inputs. Raises TwError where they do not follow from what is given."""
    if inputs is not None:
        if len(inputs) != len(main.parameters):
            count = len(main.parameters)
            message = f"`{main.id.id}` takes {count} input{'s' * (count != 1)}, got {len(inputs)}"
            report.add(module.source, main.head, message)
            report.check()
        types = [tensor(shape, element_type(dtype)) for shape, dtype in inputs]

        def complain(i: int, message: str, label: str, notes: Sequence[str]) -> None:
            report.add(module.source, main.parameters[i].span, message, f"the input is {label}", notes)

        lowering.bind(module, main, types, complain)
        report.check()
        return types
    symbols = {d.id for p in main.parameters for d in _symbols(p.type, module)}
    types_ = [*(p.type for p in main.parameters), *main.results]
    named = {n.id for t in types_ for d in t.dims for n in syntax.names_in(d)}
    for name in sorted(set(dimensions) - symbols):
        known = f"it has {', '.join(sorted(symbols))}" if symbols else "it has none"
        if name in module.items:
            known = f"`{name}` is defined in the file"
        elif name in named:
            known = f"no parameter has `{name}` as a dimension by itself: write `const {name} = {dimensions[name]}`"
        report.add(module.source, main.head, f"`{main.id.id}` has no dimension `{name}`", help=known)
    missing: dict[str, syntax.Name] = {}
    for p in main.parameters:
        for d in _symbols(p.type, module):
            if d.id not in dimensions:
                missing.setdefault(d.id, d)
    for name, node in missing.items():
        help = f"give inputs, or `--shapes {','.join(f'{n}=8' for n in missing)}`"
        report.add(module.source, node.span, f"the dimension `{name}` is not known", "symbolic", help=help)
    report.check()
    scope = BlockNames(None, 0, dict(dimensions))
    types = [lowering.type(p.type, scope) for p in main.parameters]
    report.check()
    return [t for t in types if t is not None]


def _symbols(node: syntax.Type, module: Module) -> list[syntax.Name]:
    return [d for d in node.dims if isinstance(d, syntax.Name) and d.id not in module.items]


def _check_rest(module: Module, lowering: TwLowering, report: DiagnosticLog) -> None:
    """What the program does not use is checked too, functions where their types say enough."""
    other = TwLowering(module, report)
    for item in module.items.values():
        if isinstance(item, syntax.Const | syntax.Param):
            other.item(module, item, item)
    report.check()
    for function in module.functions():
        if function in lowering.seen or any(_symbols(p.type, module) for p in function.parameters):
            continue
        types = [lowering.type(p.type, BlockNames(None, 0)) for p in function.parameters]
        if not report.found:
            other = TwLowering(module, report)
            other.main(function, [t for t in types if t is not None])
    report.check()


__all__ = ["TwProgram", "lower_tw", "tw_inputs", "type_text"]
