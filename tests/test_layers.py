"""Imports point downwards only, and nothing the driver needs imports JAX."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tiering import whole

ROOT = Path(__file__).resolve().parent.parent
RANK = {
    "support": 0,
    "machine": 1,
    "packing": 1,
    "knowledge": 1,
    "modelfile": 1,
    "dialects": 2,
    "kernels": 3,
    "passes": 4,
    "frontends": 4,
    "backends": 4,
    "footprint": 4,
    "debugger": 5,
    "verification": 5,
    "api": 6,
    "calibration": 7,
    "compression": 7,
    "serving": 7,
    "fleet": 7,
    "training": 7,
    "explain": 7,
    "pruning": 8,
    "quantization": 8,
    "tuning": 9,
    "tiers": 10,
    "cli": 11,
    "__init__": 12,
}
FOLDERS = (
    "support",
    "machine",
    "packing",
    "knowledge",
    "modelfile",
    "dialects",
    "kernels",
    "passes",
    "frontends",
    "backends",
    "footprint",
    "debugger",
    "verification",
    "api",
    "calibration",
    "compression",
    "fleet",
    "pruning",
    "training",
    "explain",
    "quantization",
    "serving",
    "tuning",
    "tiers",
    "cli",
)


def modules() -> list[Path]:
    return [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]


def layer(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> list[str]:
    """Top-level names inside the package that a module imports relatively."""
    depth = len(path.relative_to(ROOT).parts)
    found = []
    for node in imports_in(path, typed=True):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module.split(".")[0]] if node.module else [a.name for a in node.names]
            found += names
    return found


@whole()
def test_imports_point_down() -> None:
    peers = {"passes", "frontends", "backends"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path in modules()
        for other in imported(path)
        if other in RANK
        and other != layer(path)
        and (RANK[other] >= RANK[layer(path)] or {layer(path), other} <= peers)
    ]
    assert not wrong


def test_the_executors_do_not_know_each_other() -> None:
    """What both need is below them, in `backends/functions`."""
    homes = ("functions", "interpreter", "stepper")
    for own in homes:
        for path in (ROOT / "backends" / own).rglob("*.py"):
            found = {
                p.relative_to(ROOT / "backends").parts[0]
                for p in imports_of(path)
                if p.is_relative_to(ROOT / "backends")
            }
            assert found <= {own, "functions"}, f"{path.relative_to(ROOT)} imports {found}"


def test_no_jax_at_import() -> None:
    import subprocess
    import sys

    code = "import sys, tilewright, tilewright.cli.universe; assert 'jax' not in sys.modules, 'jax imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


@whole()
def test_few_modules_use_the_bindings_of_jaxlib() -> None:
    """Those that docs/architecture.md names: the bindings change with jaxlib's releases."""

    def named(node: Import) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        return [] if node.level else [node.module or ""]

    found = {
        path.relative_to(ROOT).as_posix()
        for path in modules()
        for node in imports_in(path)
        if any(name.split(".")[0] == "jaxlib" for name in named(node))
    }
    names = ("attributes", "bindings", "bounding", "custom", "isolation", "refining")
    within = {f"frontends/{name}.py" for name in names}
    assert found == within | {"backends/functions/host.py", "cli/engines.py", "dialects/host_modules.py"}


@whole()
def test_nothing_makes_the_parser_of_xdsl() -> None:
    """It takes exponential time for a string without an end; `TextParser` does not."""
    makers = ("Parser", "AttrParser", "MLIRLexer")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in modules()
        if any(f"{name}(" in path.read_text() for name in makers)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in makers
    }
    assert not found


Import = ast.Import | ast.ImportFrom


def imports_in(path: Path, typed: bool = False) -> list[Import]:
    """The imports of a module, wherever in it. typed: with what only a type checker imports."""
    return [node for node, for_types in all_imports(path) if typed or not for_types]


@cache
def all_imports(path: Path) -> Sequence[tuple[Import, bool]]:
    """Each import of a module, and whether only a type checker runs it."""

    def below(node: ast.AST, for_types: bool) -> Iterator[tuple[Import, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Import):
                yield child, for_types
            elif not isinstance(child, ast.expr):
                only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from below(child, for_types or only)

    return list(below(ast.parse(path.read_text()), False))


def imports_of(path: Path) -> set[Path]:
    """The modules of ours that a module imports, wherever in it; what only a type checker imports is left out."""
    found: set[Path] = set()
    for node in imports_in(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1]
            base = base.joinpath(*(node.module or "").split(".")) if node.module else base
            names = [base / f"{alias.name}.py" for alias in node.names]
            inner = [name for name in names if name.is_file()]
            home = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
            found.update(inner or [home])
    return {p for p in found if p.is_file() and p != path and p.name != "__init__.py"}


@whole()
def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {path: imports_of(path) for path in modules()}
    done: set[Path] = set()

    def follow(path: Path, way: list[Path]) -> None:
        if path in way:
            names = [str(p.relative_to(ROOT)) for p in (*way[way.index(path) :], path)]
            raise AssertionError(" -> ".join(names))
        if path not in done:
            for other in graph.get(path, ()):
                follow(other, [*way, path])
            done.add(path)

    for path in graph:
        follow(path, [])


ROOMS = {
    "": 0,
    "npu": 1,
    "forms": 1,
    "numbers": 2,
    "quantized": 2,
    "fusion": 2,
    "program": 3,
    "lower": 3,
    "lower/indexed": 4,
    "order": 4,
    "lower/cube": 5,
    "lower/chains": 6,
    "simplify": 6,
    "strips": 7,
    "choose": 8,
}
"""The rooms of `passes/`, each above those that it may import (docs/architecture.md)."""

DRIVERS = ("templates.py",)
"""Modules beside the rooms that run passes."""


def room(path: Path) -> str:
    """The room that a module of `passes/` is in, the innermost one that is named."""
    parts = path.relative_to(ROOT / "passes").parts[:-1]
    return max((r for r in ROOMS if tuple(filter(None, r.split("/"))) == parts[: r.count("/") + bool(r)]), key=len)


@whole()
def test_rooms_of_passes_import_downwards() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {other.relative_to(ROOT)}"
        for path in (ROOT / "passes").rglob("*.py")
        if path.name not in DRIVERS
        for other in imports_of(path)
        if other.is_relative_to(ROOT / "passes")
        and room(other) != room(path)
        and ROOMS[room(other)] >= ROOMS[room(path)]
    ]
    assert not wrong


@whole()
def test_rooms_of_passes_are_small() -> None:
    """A room has one subject."""
    counts = Counter(path.parent for path in (ROOT / "passes").rglob("*.py") if path.name != "__init__.py")
    assert max(counts.values()) <= 25
