"""Packages outside the tree that add to it: how they are found, and how what they name is loaded.

A package says `[project.entry-points."tilewright.plugins"] acme = "acme_npu:PLUGIN"`, where PLUGIN is a `Plugin`: names
and places (`module:attribute`) of what it adds. Only the module with PLUGIN is imported to learn the names; what a
place names is imported when a program needs it. A plugin that cannot be read is left out with one warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

GROUP = "tilewright.plugins"
"""The entry-point group."""


FAILURES = (Exception, SystemExit)
"""What a module of a plugin may raise when it is imported, and what others' code raises that is called: a plugin does
not end the process."""


class PluginError(Exception):
    """Something of a plugin that a program needs cannot be loaded; the message is one sentence."""


class PluginWarning(UserWarning):
    """A plugin, or a part of it, is left out; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class AddedPass:
    """A pass of a plugin and its place in the pipeline.

    Attributes:
        load: `module:Class`, an xDSL ModulePass whose `name` is its key.
        after: The pass that it follows; empty for a pass that only runs when `tilewright-opt -p` names it.
        level: The module's level after it: `graph`, `tile` or `npu`.
        requires: States that it needs, as docs/architecture.md lists them.
        establishes: States that hold after it.
    """

    load: str
    after: str = ""
    level: str = "graph"
    requires: tuple[str, ...] = ()
    establishes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What a package adds. Places are `module:attribute`; those of files are `package:path/in/it`.

    Attributes:
        functions: Places of `dialects.elementwise.Function` rows, or of sequences of them.
        patterns: Places of `passes.patterns.GraphPattern` classes, which graph-simplify tries after its own.
        alternatives: Places of `passes.alternatives.Alternative` rows, which may be left out by name.
        dialects: Places of xDSL dialects, by name.
        rules: Places of frontend rules, by op (`stablehlo.name`, `stablehlo.custom_call @target`).
        forms: StableHLO text that `tilewright ops` compiles, by the same names without `stablehlo.`.
        passes: Passes by name.
        machines: Places of machine files, by target name.
        frontends: Places of functions (content: bytes, filename) -> module, by file extension.
    """

    functions: Sequence[str] = ()
    patterns: Sequence[str] = ()
    alternatives: Sequence[str] = ()
    dialects: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
    passes: Mapping[str, AddedPass] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)
    frontends: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundPlugin:
    """A plugin and the package that it comes with."""

    name: str
    package: str
    plugin: Plugin

    def __str__(self) -> str:
        return f"plugin {self.name} of package {self.package}"


@dataclass(frozen=True)
class PluginEntry:
    """One thing that a plugin adds: its name, and its place or value as the plugin gives it."""

    name: str
    given: Any
    found: FoundPlugin

    def load(self, place: str | None = None) -> Any:
        """What stands at `place`, or at the entry's own. Raises PluginError."""
        wanted = self.given if place is None else place
        try:
            return resolve(wanted)
        except FAILURES as error:
            raise PluginError(f"{self.found}: cannot load {wanted}: {_said(error)}") from error

    def function(self) -> Any:
        """The function at the entry's place. Raises PluginError, also where something else is there."""
        found = self.load()
        if not callable(found):
            raise PluginError(f"{self.found}: {self.given} is no function")
        return found

    def file(self) -> Path:
        """The file at the entry's place. Raises PluginError."""
        package, _, inside = str(self.given).partition(":")
        try:
            home = import_module(package).__file__
        except FAILURES as error:
            raise PluginError(f"{self.found}: cannot load {package}: {_said(error)}") from error
        path = Path(home or "").parent / inside
        if not path.is_file():
            raise PluginError(f"{self.found}: {self.name} is not at {self.given}: {path} is not a file")
        return path


def resolve(place: str) -> Any:
    """What a `module:attribute` names, imported now. Raises what the import raises, or ValueError."""
    module, colon, path = place.partition(":")
    if not colon or not path:
        raise ValueError(f"'{place}' is not module:attribute")
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


@cache
def plugins() -> tuple[FoundPlugin, ...]:
    """The plugins of all installed packages, by name. Those that cannot be read are left out with a warning."""
    out: dict[str, FoundPlugin] = {}
    for name, value, package in sorted(_entry_points()):
        try:
            plugin = _checked(resolve(value))
        except FAILURES as error:
            _warn(f"plugin {name} of package {package} is left out: {value}: {_said(error)}")
            continue
        if name in out:
            _warn(f"plugin {name} of package {package} is left out: {out[name].package} has one of this name")
            continue
        out[name] = FoundPlugin(name, package, plugin)
    return tuple(out.values())


@cache
def _entries(kind: str) -> tuple[PluginEntry, ...]:
    out: dict[str, PluginEntry] = {}
    for found in plugins():
        for name, given in getattr(found.plugin, kind).items():
            if name in out:
                _warn(f"{found}: {name} ({kind}) is left out: {out[name].found} has one of this name")
            else:
                out[name] = PluginEntry(name, given, found)
    return tuple(out.values())


_clashes: set[tuple[str, str]] = set()


def entries(kind: str, taken: Collection[str] = ()) -> dict[str, PluginEntry]:
    """What plugins add to a field of `Plugin`, by name; those `taken` are left out with one warning each."""
    out = {}
    for entry in _entries(kind):
        if entry.name not in taken:
            out[entry.name] = entry
        elif (kind, entry.name) not in _clashes:
            _clashes.add((kind, entry.name))
            _warn(f"{entry.found}: {entry.name} ({kind}) is left out: tilewright has one of this name")
    return out


def listed(kind: str) -> Iterator[tuple[FoundPlugin, Any]]:
    """What stands at the places that plugins list in a field of `Plugin`; those that cannot be loaded are left out
    with a warning."""
    for found in plugins():
        for place in getattr(found.plugin, kind):
            try:
                yield found, PluginEntry(place, place, found).load()
            except PluginError as error:
                _warn(f"{error}; its {kind} are left out")


def modules() -> tuple[str, ...]:
    """The modules that have the plugins of installed packages; none is imported."""
    return tuple(sorted(place.partition(":")[0] for _, place, _ in _entry_points()))


def _entry_points() -> Iterator[tuple[str, str, str]]:
    """(name, place, package) of each entry point of our group. The standard library's own search parses the entry
    points of every package, which takes several times as long."""
    from importlib.metadata import distributions

    seen: set[str] = set()
    for distribution in distributions():
        try:
            text = distribution.read_text("entry_points.txt")
            if text is None or GROUP not in text:
                continue
            package = distribution.metadata["Name"]
            if package in seen:  # the same one again, further down the path
                continue
            seen.add(package)
            points = [(p.name, p.value) for p in distribution.entry_points.select(group=GROUP)]
            said = f"{package} {distribution.version}"
        except Exception as error:  # of whatever package, which may have nothing to do with this one
            where = getattr(distribution, "_path", None) or "a package"
            if str(where) not in _unread:
                _unread.add(str(where))
                _warn(f"{where}: its entry points cannot be read: {_said(error)}; plugins of it are left out")
            continue
        yield from ((name, value, said) for name, value in points)


_unread: set[str] = set()
"""Packages whose entry points cannot be read, of which the user knows."""


def _checked(plugin: Any) -> Plugin:
    """The plugin itself. Raises TypeError where a field is not what `Plugin` says."""
    if not isinstance(plugin, Plugin):
        raise TypeError(f"expected a tilewright.Plugin, got {type(plugin).__name__}")
    for known in fields(Plugin):
        given = getattr(plugin, known.name)
        if known.name in ("functions", "patterns", "alternatives"):
            good = isinstance(given, Sequence) and not isinstance(given, str)
            wanted, values = "a sequence of places", given if good else ()
        else:
            good = isinstance(given, Mapping)
            wanted, values = "a mapping of names", given.values() if good else ()
        kind = AddedPass if known.name == "passes" else str
        names = given if isinstance(given, Mapping) else ()
        if not good or not all(isinstance(v, kind) for v in values) or not all(isinstance(n, str) for n in names):
            raise TypeError(f"its {known.name} must be {wanted} ({kind.__name__})")
    for name, added in plugin.passes.items():
        texts = (added.load, added.after, added.level)
        if not all(isinstance(t, str) for t in (*texts, *added.requires, *added.establishes)):
            raise TypeError(f"the pass {name} must have texts alone")
    return plugin


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _warn(sentence: str) -> None:
    warnings.warn(sentence, PluginWarning, stacklevel=2)
