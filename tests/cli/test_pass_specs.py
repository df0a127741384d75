"""The text of -p: what is wrong with it, and how it should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.utils.arg_spec import parse_pipeline

from tilewright.cli import opt

QUOTES = "needs double quotes, which the shell keeps within single ones"
MISTAKES = {
    "graph-schedule{schedule=base_m=64}": (
        f"the value base_m=64 {QUOTES}",
        'graph-schedule{schedule="base_m=64"}',
    ),
    "graph-schedule{schedule=base_m=64,split_n=2 target=a}": (
        f"the value base_m=64,split_n=2 {QUOTES}",
        'graph-schedule{schedule="base_m=64,split_n=2" target=a}',
    ),
    "graph-fuse{target=chips/mine.toml}": (
        f"the value chips/mine.toml {QUOTES}",
        'graph-fuse{target="chips/mine.toml"}',
    ),
    "graph-schedule{target=a schedule=contract_0:base_m=64;add_0:tile=8x512}": (
        f"the value contract_0:base_m=64;add_0:tile=8x512 {QUOTES}",
        'graph-schedule{target=a schedule="contract_0:base_m=64;add_0:tile=8x512"}',
    ),
    "graph-fuse{target='a'}": ("values are quoted with double quotes", 'graph-fuse{target="a"}'),
    "'graph-fuse{target=a}'": ("one pair of quotes around the whole is enough", "graph-fuse{target=a}"),
    'graph-fuse{target="a}': ("a double quote is never closed", None),
    "graph-fuse{target=a": ("a '{' is never closed", None),
    "graph-fuse{target=a}}": ("a '}' closes nothing", None),
    "graph-fuse target=a": ("options stand in braces behind the pass", "graph-fuse{target=a}"),
    "graph-fuse{target = a}": ("no space may stand around '='", "graph-fuse{target=a}"),
    "graph-fuse{target:a}": ("an option and its value are joined by '='", "graph-fuse{target=a}"),
    "graph-fuse{target=}": ("option 'target' has no value", None),
    "graph-schedule{target=a,schedule=b}": (
        "options are separated by spaces",
        "graph-schedule{target=a schedule=b}",
    ),
    "graph-fuse graph-to-tile": ("passes are separated by commas", "graph-fuse,graph-to-tile"),
    "graph-fuse;graph-to-tile{target=a}": (
        "passes are separated by commas",
        "graph-fuse,graph-to-tile{target=a}",
    ),
    "builtin.module(graph-fuse,cse)": (
        "passes stand there without builtin.module(...) around them",
        "graph-fuse,cse",
    ),
    'graph-fuse{target="a"b}': ('the value ""b needs double quotes', None),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_pipeline_that_cannot_be_read(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason, better = MISTAKES[text]
    assert opt.main([str(tmp_path / "none.mlir"), "-p", text]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"tilewright-opt: error: cannot read the passes '{text}': {reason}")
    assert said.count("\n") == 1
    if better is None:
        assert "; write -p" not in said
    else:
        assert said.endswith(f"; write -p '{better}'\n")
        list(parse_pipeline(better))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("graph-fuse{target=310}", "must be str, not '310'; as text it is target=\"310\"\n"),
        ("graph-fuse{target=true}", "must be str, not 'true'; as text it is target=\"true\"\n"),
        ("graph-schedule{schedule=a,b}", "must be str, not 'a,b'; as text it is schedule=\"a,b\"\n"),
        ("graph-schedule{schedule}", "must be str, not ''\n"),
        (
            "graph-fuse{targt=a}",
            "pass graph-fuse has no option 'targt'; did you mean target; its options are target, without\n",
        ),
    ],
)
def test_an_option_of_a_wrong_type(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opt.main([str(tmp_path / "none.mlir"), "-p", text]) == 1
    assert capsys.readouterr().err.endswith(said)
