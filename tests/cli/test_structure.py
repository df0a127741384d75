"""The modules of cli/ import each other in one direction, late imports included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

CLI = Path(__file__).resolve().parents[2] / "cli"


def test_no_import_circle() -> None:
    names = {path.stem for path in CLI.glob("*.py")}
    graph: dict[str, set[str]] = {}
    for path in CLI.glob("*.py"):
        found = graph.setdefault(path.stem, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                found |= {node.module} if node.module else {alias.name for alias in node.names}
    assert {"main", "commands", "inspect"} <= names
    assert set().union(*graph.values()) <= names
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
