"""The IR in README.md and docs/ is what the package prints.

Fenced blocks that are checked, by the words after the language:

    mlir before [target=T] [precision=P]    a module, the input of the page's pass (docs/passes/name.md: `name`)
    mlir after               what the pass makes of the nearest `before` above
    python source            defines `layer` and `args` (docs/architecture.md)
    mlir <pass>              the program of `source` after that pass
    python tour              a session that ends with `program` compiled and run (README.md, docs/index.md)
    mlir <level>             `program.ir(level)` of the tour

In a checked block `...` inside a line stands for any text and a line `...` for any lines; all other lines
follow each other in the printed module, up to the names of SSA values. A line that begins with `:`, `->` or
`attributes` goes on with the line before it. `before` blocks are whole modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module, verify
from tilewright.passes.pipeline import PIPELINE, PassChoices, make_pass
from tilewright.support.precisions import ORIGIN

ROOT = Path(__file__).resolve().parents[2]
README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs" / "architecture.md"
PAGES = sorted((ROOT / "docs" / "passes").glob("*.md"))
HOME = ROOT / "docs" / "index.md"
DOCS = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
STAGES = {s.name: s for s in PIPELINE}
LEVELS = ("graph", "tile", "npu")
WIDTH = 110

NAME = re.compile(r"[%^][\w$.]+")
CONTINUES = (":", "->", "attributes ")
PROPERTY = re.compile(r"[a-z]\w* = ")
"""How a continuation line with a property begins."""
NEW_SCOPE = ("func.func", "tile.kernel", "npu.kernel")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, the words behind it, its text and the line it starts on."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page."""
    found: list[Fence] = []
    info: list[str] | None = None
    body: list[str] = []
    start = 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            body.append(line)
        elif info is None:
            info, body, start = line[3:].split(), [], number
        else:
            found.append(Fence(info[0] if info else "", tuple(info[1:]), "\n".join(body), start))
            info = None
    assert info is None, f"{page.name}:{start}: this block is never closed"
    return found


def the(page: Path, language: str, word: str) -> Fence:
    """The only block of a page with this word."""
    (found,) = [f for f in fences(page) if f.language == language and f.words[:1] == (word,)]
    return found


# -- matching ------------------------------------------------------------------------------------------------


def statements(text: str) -> list[str]:
    """The lines of a block, stripped, with continuation lines joined."""
    out: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if out and (line.startswith(CONTINUES) or PROPERTY.match(line)):
            out[-1] += " " + line
        elif line:
            out.append(line)
    return out


@cache
def pattern(line: str) -> re.Pattern[str]:
    """A line of an excerpt as a pattern; each SSA name is a group."""
    parts = [NAME.sub("\0", part) for part in line.split("...")]
    escaped = [re.escape(part).replace(re.escape("\0"), r"([%^][\w$.]+)") for part in parts]
    return re.compile(".*?".join(escaped))


def bind(line: str, printed: str, names: dict[str, str]) -> dict[str, str] | None:
    """`names` (of the excerpt -> printed) extended by those of one line; None where it does not match."""
    found = pattern(line).fullmatch(printed)
    if found is None:
        return None
    out = {} if line.startswith(NEW_SCOPE) else dict(names)
    back = {v: k for k, v in out.items()}
    for mine, theirs in zip(NAME.findall(line), found.groups(), strict=True):
        if out.setdefault(mine, theirs) != theirs or back.setdefault(theirs, mine) != mine:
            return None
    return out


def matches(lines: list[str], printed: list[str]) -> bool:
    """Whether an excerpt stands in a printed module, anywhere."""
    return _matches(["...", *lines], printed, 0, 0, {})


def _matches(lines: list[str], printed: list[str], i: int, j: int, names: dict[str, str]) -> bool:
    if i == len(lines):
        return True
    if lines[i] == "...":
        return any(_matches(lines, printed, i + 1, k, names) for k in range(j, len(printed) + 1))
    if j == len(printed):
        return False
    bound = bind(lines[i], printed[j], names)
    return bound is not None and _matches(lines, printed, i + 1, j + 1, bound)


def check(page: Path, fence: Fence, printed: str) -> None:
    """Fails with the first line of a block that is not in `printed`."""
    lines, result = statements(fence.text), statements(printed)
    if matches(lines, result):
        return
    bad = next(n for n in range(1, len(lines) + 1) if not matches(lines[:n], result))
    place = f"{page.relative_to(ROOT)}:{fence.line}"
    pytest.fail(f"{place}: line `{lines[bad - 1]}` is not what the package prints:\n{printed}", pytrace=False)


# -- the pages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pass_page(page: Path) -> None:
    stage = STAGES[page.stem]
    module: ModuleOp | None = None
    checked = 0
    for fence in fences(page):
        if fence.words[:1] == ("before",):
            said = dict(w.split("=") for w in fence.words[1:])
            limit = int(said["memory_limit"]) if "memory_limit" in said else None
            without = tuple(filter(None, said.get("without", "").split(",")))
            hivm = said.get("hivm") == "true"
            choices = PassChoices(
                precision=said.get("precision", ORIGIN), memory_limit=limit, hivm=hivm, without=without
            )
            asked = replace(stage, choices=choices)
            module = parse_module(make_context(), fence.text, page.name, fence.line + 1)
            verify(module)
            make_pass(asked, said.get("target", "ascend-910b1")).apply(Context(), module)
            verify(module)
        elif fence.words[:1] == ("after",):
            assert module is not None, f"{page.name}:{fence.line}: there is no `before` above"
            check(page, fence, str(module))
            checked += 1
    assert checked, f"{page.name} has no example"


def test_the_pages_of_passes_have_one_plan() -> None:
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        sections = re.findall(r"^## (.*)$", text, re.M)
        assert sections == ["When", "Before and after", "Limits"], f"{page.name} has the sections {sections}"


def test_a_page_for_each_pass() -> None:
    assert sorted(p.stem for p in PAGES) == sorted(stage.name for stage in PIPELINE)


@cache
def architecture_program() -> dict[str, str]:
    """The text of architecture.md's program after each pass."""
    from tilewright.frontends import lower_function

    space: dict[str, Any] = {}
    exec(the(ARCHITECTURE, "python", "source").text, space)
    module = lower_function(space["layer"], space["args"]).module
    found = {"graph": str(module)}
    for stage in PIPELINE:
        make_pass(stage, "ascend-910b1").apply(Context(), module)
        found[stage.name] = str(module)
    return found


def architecture_blocks() -> list[Fence]:
    return [f for f in fences(ARCHITECTURE) if f.language == "mlir" and f.words]


@pytest.mark.parametrize("fence", architecture_blocks(), ids=lambda f: f"{f.words[0]}-{f.line}")
def test_architecture(fence: Fence) -> None:
    check(ARCHITECTURE, fence, architecture_program()[fence.words[0]])


def test_architecture_shows_each_pass() -> None:
    assert [f.words[0] for f in architecture_blocks() if f.words[0] in STAGES] == list(STAGES)


def test_readme_tour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # the tour writes a trace
    space: dict[str, Any] = {}
    tour = the(README, "python", "tour")
    exec(compile(tour.text, str(tmp_path / "tour.py"), "exec"), space)
    shown = next(f for f in fences(README) if f.line > tour.line and f.language == "text")
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert shown.text == printed, f"README.md:{shown.line} is not what is printed:\n{printed}"
    for level in LEVELS:
        check(README, the(README, "mlir", level), space["program"].ir(level))


def test_readme_figures() -> None:
    """What the tour prints of time, traffic and energy, which shapes alone decide: the first tier has no time for its
    values."""
    space: dict[str, Any] = {}
    tour = the(README, "python", "tour")
    shown = next(f for f in fences(README) if f.line > tour.line and f.language == "text")
    shapes = re.sub(r"np\.random\.normal\(size=(\w+)\)\.astype\((.*?)\)", r"jax.ShapeDtypeStruct(\1, \2)", tour.text)
    kept = [line for line in shapes.splitlines() if not re.match(r"y = |print", line)]
    exec(compile("\n".join(kept), "tour.py", "exec"), space)
    printed = space["program"].report().table(borders=False)
    assert shown.text.splitlines()[1:] == [line.rstrip() for line in printed.splitlines()]


def test_home_page_shows_the_same_tour() -> None:
    ours, theirs = fences(README), fences(HOME)
    start = ours.index(the(README, "python", "tour"))
    assert [(f.language, f.words, f.text) for f in theirs[:2]] == [
        (f.language, f.words, f.text) for f in ours[start : start + 2]
    ]


def test_readme_begins_with_the_commands_an_example_and_a_picture() -> None:
    """The first screen, of 50 lines, has all that a newcomer looks for; lists come after it."""
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:50])
    for part in ("make demo", "make test", "```python tour", "](docs/images/explain.png)"):
        assert part in first


# -- the text ------------------------------------------------------------------------------------------------


def test_width() -> None:
    """Lines fit the page; rows of tables and printed output cannot be wrapped. One test, so that no page is left to the
    second tier."""
    long: list[str] = []
    for page in DOCS:
        printed = {
            n
            for f in fences(page)
            if f.language == "text"
            for n in range(f.line, f.line + f.text.count("\n") + 2)
        }
        lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        wide = [n for n, line in lines if len(line) > WIDTH and not line.startswith("|") and n not in printed]
        long += [f"{page.relative_to(ROOT)}:{n}" for n in wide]
    assert not long, f"lines of more than {WIDTH} characters: {long}"


def test_links_and_paths() -> None:
    """Links between pages lead somewhere, and so do files of the repository named in `code`. One test, as above."""
    broken: list[str] = []
    for page in DOCS:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        named = re.findall(r"`((?:\w[\w-]*/)+[\w.-]+\.(?:py|toml|md))`", text)
        gone = [link for link in links if not (page.parent / link).exists()]
        gone += [path for path in named if not (ROOT / path).exists()]
        broken += [f"{page.relative_to(ROOT)}: {path}" for path in gone]
    assert not broken, f"these lead nowhere: {broken}"
