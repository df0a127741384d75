"""The command lines of the pages: each is read by the grammar, and those of indented blocks run, page by page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiering import later

from tilewright.cli.grammar import make_parser
from tilewright.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

COMMAND = re.compile(r"^(    |\$ )(tilewright .*)$")
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\w\|\w|\.\.\.")
"""What a line of the grammar has and a command line does not, outside of quotes."""

MODEL = """
import jax, jax.numpy as jnp, numpy as np

def fn(x, w=None):
    return jax.nn.softmax(x) if w is None else jax.nn.relu(x @ w)

def fn_inputs():
    return [np.ones((16384, 256), "f4")]

def forward(params, x):
    return jax.nn.relu(x @ params["vision"]) @ params["text"]

def forward_inputs():
    r = np.random.default_rng(0)
    params = {n: r.normal(size=(32, 32)).astype("f4") / 6 for n in ("vision", "text")}
    return params, r.normal(size=(8, 32)).astype("f4")

def batches():
    r = np.random.default_rng(1)
    return [r.normal(size=(8, 32)).astype("f4") for _ in range(3)], [r.integers(0, 32, 8) for _ in range(3)]

def step(state, x):
    return state + x

def step_inputs():
    return np.ones((8, 32), "f4"), np.ones((8, 32), "f4")

program, program_inputs = fn, fn_inputs
"""

TW = """fn mlp(x: f32[T, 8], w: f32[8, N]) -> f32[T, N] {
    return relu(x @ w)
}
"""

STABLEHLO = """func.func public @main(%arg0: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = stablehlo.add %arg0, %arg0 : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
"""

KEY = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
-----END PRIVATE KEY-----
"""
"""A private key that nobody uses: the bytes from 0 to 31."""

TRUSTED = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=
-----END PUBLIC KEY-----
"""
"""Its public key."""

FILES = {
    "model.py": MODEL,
    "model.tw": TW,
    "exported.mlir": STABLEHLO,
    "scaled_sum.hivm.mlir": (ROOT / "tests/frontends/hivm/texts/scaled_sum.hivm.mlir").read_text(),
    "build/fuzz/seed_323.py": MODEL,
    "key.pem": KEY,
    "trusted.pem": TRUSTED,
    "model.key": "0123456789abcdef" * 4,
    "trace.csv": "seconds\n0.001\n0.002\n",
    "buffers.csv": "id,lower,upper,size\na,0,2,100\nb,1,3,200\n",
}
"""Files that pages speak of and do not define."""

LATER = {"README.md", "docs/quantization.md"}
"""Pages whose commands take more than half a minute."""

OTHERS = {"docs/plugins.md"}
"""Pages whose commands need more: a plugin, which tests/plugins installs."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """(what stands before it, the command line) of a page; lines that end in a backslash go on."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for line in text.splitlines():
        found = COMMAND.match(line)
        if found and not PLACEHOLDER.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", found[2].partition(" #")[0])):
            yield found[1], found[2]


def arguments(line: str) -> list[str]:
    """A command line without the program and without what a shell does."""
    words = shlex.split(line, comments=True)[1:]
    return words[: words.index(">")] if ">" in words else words


WITH_COMMANDS = [p for p in PAGES if any(True for _ in commands(p))]
TO_RUN = [
    p
    for p in WITH_COMMANDS
    if str(p.relative_to(ROOT)) not in OTHERS and any(b != "$ " for b, _ in commands(p))
]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_the_grammar_has_each_command(page: Path) -> None:
    for _, line in commands(page):
        make_parser().parse_args(arguments(line))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=later()) if named(p) in LATER else p for p in TO_RUN], ids=named
)
def test_each_command_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    prepare(page)
    for before, line in commands(page):
        if before != "$ ":
            code = main(arguments(line))
            assert code == 0, f"{named(page)}: {line}\n{capsys.readouterr().err}"


def prepare(page: Path) -> None:
    """What the commands of a page need besides: its sessions, its first .tw program, data."""
    import numpy as np

    r = np.random.default_rng(0)
    Path("docs/images").mkdir(parents=True)
    np.savez("batches.npz", x=r.normal(size=(3, 8, 32)).astype("f4"), labels=r.integers(0, 32, (3, 8)))
    text = page.read_text(encoding="utf-8")
    if page.name == "onnx.md":
        space: dict[str, object] = {}
        for code in re.findall(r"^```python session\n(.*?)^```", text, re.M | re.S)[:2]:
            exec(compile(code, "session.py", "exec"), space)
    program = re.search(r"^```tw[^\n]*\n(.*?)^```", text, re.M | re.S)
    if program is not None:
        Path("layer.tw").write_text(program[1])
