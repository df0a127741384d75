"""Each op has a lit test of its syntax, and each refusal of a verifier has one that meets it."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from xdsl.irdl import IRDLOperation

from tilewright.cli.opt import main
from tilewright.dialects.graph import Graph
from tilewright.dialects.hivm import Hivm
from tilewright.dialects.npu import Npu
from tilewright.dialects.tile import Tile

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "lit_tests" / "dialects"
DIALECTS = ROOT / "dialects"
OPS = [op for dialect in (Graph, Tile, Npu, Hivm) for op in dialect.operations]
NAME = re.compile(r"\b(?:graph|tile|npu|hivm\.hir)\.\w+")

REFUSALS = {"error", "VerifyException", "ValueError"}
"""What verifiers raise; other exceptions are for programs that misuse a class, not for IR."""

ANOTHERS = {
    "dialects/affine.py": "who makes a symbol gives its bounds; no IR has one",
    "dialects/dtypes.py": "what reads or writes a type raises these, and asks verifiers nothing",
    "dialects/schedule_text.py": "the knowledge base reads schedules as text, and tests/knowledge has what are none",
    "dialects/host_modules.py": "npu-check and who runs a host op raise it; verifiers do not read its module",
}


def checked(page: Path) -> set[str]:
    """The ops that a lit file expects in its output."""
    lines = [line.split("CHECK", 1)[1] for line in page.read_text().splitlines() if "CHECK" in line]
    return {name for line in lines for name in NAME.findall(line)}


def refuses(op: type[IRDLOperation]) -> bool:
    """Whether some text of this op could be wrong: it takes or gives something. Else there is nothing to verify."""
    found = op.get_irdl_definition()
    return bool(found.operands or found.results or found.regions or found.properties)


def shares_verifier(op: type[IRDLOperation]) -> bool:
    """Whether the op is a row of a table, all of whose rows one class verifies."""
    return hasattr(op, "FUNCTION") or hasattr(op, "ROW")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_each_op_is_printed_and_parsed(op: type[IRDLOperation]) -> None:
    pages = [p for p in (CASES / op.name.split(".")[0]).glob("*.mlir") if not p.name.startswith("invalid")]
    assert op.name in set().union(*map(checked, pages))
    for page in pages:
        assert page.read_text().startswith("// RUN: ROUNDTRIP\n// RUN: GENERIC_ROUNDTRIP\n"), page


@pytest.mark.parametrize("op", [op for op in OPS if refuses(op)], ids=lambda op: op.name)
def test_each_op_has_a_case_that_is_refused(op: type[IRDLOperation]) -> None:
    found = set().union(*map(checked, (CASES / op.name.split(".")[0]).glob("invalid*.mlir")))
    if shares_verifier(op):
        assert any(o.name in found for o in OPS if shares_verifier(o) and o.__base__ is op.__base__)
    elif op.name == "graph.yield":
        assert "graph.fusion" in found  # takes anything: what holds it checks its types
    else:
        assert op.name in found


def refusals() -> dict[tuple[str, int], tuple[str, int]]:
    """The line on which each refusal of dialects/ begins, by file and each of its lines."""
    found = {}
    for path in DIALECTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            raised = node.exc.func
            if (raised.attr if isinstance(raised, ast.Attribute) else getattr(raised, "id", "")) in REFUSALS:
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    found[str(path), line] = (str(path.relative_to(ROOT)), node.lineno)
    return found


def test_each_refusal_is_met() -> None:
    sites, met = refusals(), set()

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        return step if frame.f_code.co_filename.startswith(str(DIALECTS)) else None

    def step(frame: FrameType, event: str, arg: Any) -> Any:
        met.add(sites.get((frame.f_code.co_filename, frame.f_lineno)))
        return step

    before = sys.gettrace()
    for page in sorted(CASES.rglob("invalid*.mlir")):
        sys.settrace(enter)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                main([str(page), "--split-input-file", "--verify-diagnostics", "--parsing-diagnostics"])
        finally:
            sys.settrace(before)
    missed = sorted(site for site in {*sites.values()} - met if site[0] not in ANOTHERS)
    assert len(sites) > 100
    assert not missed, f"no case of lit_tests/dialects meets {', '.join(f'{f}:{n}' for f, n in missed)}"
