"""The site: the sessions' code runs and prints what the page says, the reference is generated, the site builds."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from loading import module_at
from tiering import later, sampled, whole

import tilewright
from tilewright.passes.alternatives import table
from tilewright.passes.pipeline import PIPELINE

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = {
    "checklist": 1,
    "debugger": 1,
    "dynamic-shapes": 5,
    "libraries/equinox": 2,
    "libraries/haiku": 1,
    "onnx": 2,
    "precision": 3,
    "quantization": 7,
    "serving": 2,
    "training": 3,
    "tutorial": 9,
}
"""Pages whose blocks `python tutorial` or `python session` are one program, and how many outputs they show."""
LATER = ("quantization", "training")
"""Pages of which a program takes minutes."""

BLOCK = re.compile(r"^```(python tutorial|python session|text output)\n(.*?)^```$", re.M | re.S)


def as_pattern(text: str) -> str:
    """`...` inside a line is any text, alone on a line any lines."""
    out = []
    for line in text.splitlines():
        if line.strip() == "...":
            out.append(r"(?:.*\n)*?")
        else:
            out.append(".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r" *\n")
    return "".join(out)


@sampled(2)
@pytest.mark.parametrize("name", [pytest.param(x, marks=later()) if x in LATER else x for x in SESSIONS])
def test_a_session_prints_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / f"{name}.md"
    module = f"{Path(name).name}_page"
    monkeypatch.setitem(sys.modules, module, type(sys)(module))
    space: dict[str, Any] = {"__name__": module}
    text = page.read_text()
    printed = ""
    outputs = 0
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found[1] != "text output":
            assert not printed, f"{page.name}:{line}: what was printed before is not shown"
            said = io.StringIO()
            code = compile("\n" * line + found[2], str(page), "exec")
            with redirect_stdout(said):
                exec(code, space)
            printed = said.getvalue()
        else:
            assert re.fullmatch(as_pattern(found[2]), printed), (
                f"{page.name}:{line} is not what is printed:\n{printed}"
            )
            printed = ""
            outputs += 1
    assert outputs >= SESSIONS[name]


@whole()
def test_the_reference_is_generated() -> None:
    made = module_at(ROOT / "docs" / "reference" / "generate.py")
    for page, content in made.pages():
        assert page.read_text() == content, f"{page.name} is old: run python docs/reference/generate.py"
    assert f"\n{table()}\n" in made.ALTERNATIVES.read_text(), "run python docs/reference/generate.py"


def test_the_passes_are_in_pipeline_order_in_the_navigation() -> None:
    listed = re.findall(r"passes/([\w-]+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert listed == [stage.name for stage in PIPELINE]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert listed == pages


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "site" / "reference" / "npu.html").is_file()
    raw = [page.name for page in (tmp_path / "site").rglob("*.html") if "```" in page.read_text()]
    assert not raw, f"pages with a fence that is no block: {', '.join(raw)}"
    api = (tmp_path / "site" / "api.html").read_text()
    assert [name for name in tilewright.__all__ if f'id="tilewright.{name}"' not in api] == []
