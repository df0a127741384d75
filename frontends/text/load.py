"""Reads a `.tw` file and the files it imports; finds the function a path names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...support.files import read_plain, real_path
from . import syntax
from .diagnostics import DiagnosticLog, SourceFile, did_you_mean, in_words
from .functions import functions
from .parse import parse_items
from .source import decoded


@dataclass(eq=False)
class Module:
    """One file: what it defines by name, in order, and what it imports."""

    source: SourceFile
    items: dict[str, syntax.Item] = field(default_factory=dict)
    imports: dict[str, Module] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where relative paths of the file start."""
        return Path(self.source.path).parent

    def functions(self) -> list[syntax.FunctionItem]:
        return [i for i in self.items.values() if isinstance(i, syntax.FunctionItem)]


def load_module(path: str, text: str, report: DiagnosticLog) -> Module:
    """The module of a file's text, with all it imports. Raises TwError for syntax errors, also in imported files."""
    modules: dict[Path, Module] = {}
    module = _load(path, text, report, modules, [])
    report.check()
    return module


def _load(
    path: str, text: str, report: DiagnosticLog, modules: dict[Path, Module], chain: list[Path]
) -> Module:
    source = SourceFile(path, text)
    module = modules[real_path(path)] = Module(source)
    before = len(report.found)
    items = parse_items(source, report)
    sound = len(report.found) == before
    for item in items:
        _define(module, item, report)
        if isinstance(item, syntax.Import) and sound:
            _import(module, item, report, modules, [*chain, real_path(path)])
    return module


def _define(module: Module, item: syntax.Item, report: DiagnosticLog) -> None:
    name = item.id.id
    before = module.items.get(name)
    if before is not None:
        other = (module.source, before.id.span, "first defined here")
        report.add(module.source, item.id.span, f"`{name}` is defined twice", other=other)
    elif name in functions() and isinstance(item, syntax.FunctionItem):
        message = f"`{name}` is a function of the language"
        report.add(module.source, item.id.span, message, help="give yours another name")
    elif name == "graph":
        report.add(
            module.source,
            item.id.span,
            "`graph` names the ops of the graph dialect",
            help="choose another name",
        )
    else:
        module.items[name] = item


def _import(
    module: Module, item: syntax.Import, report: DiagnosticLog, modules: dict[Path, Module], chain: list[Path]
) -> None:
    name = str(item.path.value)
    path = module.folder / name
    key = real_path(path)
    if key in chain:
        names = [p.name for p in [*chain[chain.index(key) :], key]]
        report.add(
            module.source,
            item.path.span,
            "files import each other in a circle",
            notes=[" -> ".join(names)],
            help="move what both need to a third file",
        )
        return
    if key not in modules:
        if path.suffix != ".tw":
            report.add(module.source, item.path.span, f'"{name}" is not a .tw file')
            return
        try:
            text = decoded(read_plain(path))
        except FileNotFoundError:
            near = sorted(p.name for p in path.parent.glob("*.tw")) if path.parent.is_dir() else []
            help = did_you_mean(path.name, near)
            report.add(
                module.source, item.path.span, f'there is no file "{name}"', f"looked for {path}", help=help
            )
            return
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            report.add(module.source, item.path.span, f'"{name}" cannot be read', why or "")
            return
        _load(str(path), text, report, modules, chain)
    module.imports[item.id.id] = modules[key]


def entry(module: Module, name: str | None, report: DiagnosticLog) -> syntax.FunctionItem:
    """The function to compile: the one called `name`, else the only public one, else the only one. Raises TwError."""
    every = module.functions()
    public = [f for f in every if f.public]
    source = module.source
    start = (0, min(1, len(source.text)))
    if name is not None:
        found = next((f for f in every if f.id.id == name), None)
        if found is None:
            names = [f.id.id for f in every]
            help = did_you_mean(name, names) or (f"it has {in_words(names, 'and')}" if names else "")
            report.add(source, start, f"{source.path} has no function `{name}`", help=help)
            report.check()
        assert found is not None
        return found
    candidates = public or every
    if len(candidates) != 1:
        if not candidates:
            report.add(
                source,
                start,
                f"{source.path} has no function",
                help="write `fn name(x: f32[N]) -> f32[N] { ... }`",
            )
        else:
            kind = "public functions" if public else "functions, none of them `pub`"
            names = in_words([f"`{f.id.id}`" for f in candidates], "and")
            report.add(
                source,
                candidates[1].head,
                f"{source.path} has several {kind}: {names}",
                help=f"say which, as in {source.path}:{candidates[0].id.id}, or write `pub` before one",
            )
        report.check()
    return candidates[0]


__all__ = ["Module", "entry", "load_module"]
