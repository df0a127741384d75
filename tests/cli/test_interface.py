"""What every command has: JSON as its schema says, plain output in a pipe, help with examples, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from plan_entries import ENTRY
from records import ADD
from tiering import sampled

import tilewright as tw
from tilewright.cli import engines
from tilewright.cli.commands.inspect import SHELLS
from tilewright.cli.grammar import make_parser
from tilewright.cli.help import EXAMPLES
from tilewright.cli.main import main
from tilewright.knowledge.base import KnowledgeBase
from tilewright.machine import Machine
from tilewright.machine.sources import figures

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "cli.json").read_text())
MODEL = """
import jax.numpy as jnp

def layer(x, w):
    return jnp.maximum(x @ w, 0)
"""
RECORDS = [
    ADD,
    {"id": "unknown", "chip": "A3", "workload": {"op": "topk"}, "measured_us": {"task": 5.0}},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "program.mlir").write_text(
        "func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {\n"
        "  %y = graph.add %x, %x : tensor<8x16xf32>\n  func.return %y : tensor<8x16xf32>\n}\n"
    )
    (tmp_path / "records.json").write_text(json.dumps(RECORDS))
    (tmp_path / "buffers.csv").write_text("id,lower,upper,size\nb1,0,3,4\nb2,2,9,4\n")
    (tmp_path / "kernel.mlir").write_text(
        "func.func @k(%x: memref<64xf32>) {\n  %a = memref.alloc() : memref<64xf32>\n"
        "  memref.copy %x, %a : memref<64xf32> to memref<64xf32>\n  return\n}\n"
    )
    KnowledgeBase(tmp_path / "plans.sqlite").add([ENTRY])
    (tmp_path / "tiers.toml").write_text("[tiers.edge]\nprecision = 'f16'\nbatch = 2\n[tiers.cloud]\nbatch = 4\n")
    (tmp_path / "wide.tw").write_text("fn f(x:f32[2])->f32[2]{return x}\n")
    tw.compile(tmp_path / "program.mlir").save(tmp_path / "saved.twm")
    np.savez(tmp_path / "values.npz")
    return tmp_path


LAYER = ["model.py:layer", "--shapes", "f32[8,16],f32[16,24]"]
CALLS = {
    "run": ["run", *LAYER, "--check"],
    "report": ["report", *LAYER],
    "verify": ["verify", *LAYER, "--flags"],
    "debug": ["debug", *LAYER, "-c", "break mmad; run; print %0; where"],
    "reduce": ["reduce", "program.mlir", "--check", "cost>0"],
    "trace": ["trace", *LAYER],
    "compile": ["compile", *LAYER, "--emit", "tile"],
    "export": ["export", *LAYER, "--hivm", "."],
    "explain": ["explain", *LAYER],
    "machines": ["machines"],
    "cache": ["cache", "."],
    "ops": ["ops", "add", "dot_general", "sort", "while"],
    "quantize": ["quantize", *LAYER],
    "tune": ["tune", *LAYER, "--evaluations", "100"],
    "checklist": ["checklist", *LAYER, "--evaluations", "50"],
    "autotune": ["autotune", *LAYER, "--space", "precision=f32,int8", "winograd=off,auto"],
    "kb": ["kb", "list", "plans.sqlite"],
    "calibrate": ["calibrate", "records.json"],
    "fmt": ["fmt", "wide.tw"],
    "serve-sim": ["serve-sim", "saved.twm", "--arrivals", "burst:5,every=1ms,seconds=10ms", "--goal", "p99=1s"],
    "inspect": ["inspect", "saved.twm"],
    "verify-file": ["verify-file", "saved.twm"],
    "update": ["update", "saved.twm", "-o", "updated.twm", "--values", "values.npz"],
    "diff": ["diff", "saved.twm", "saved.twm", "--all"],
    "tiers": ["tiers", "model.py:layer", "--shapes", "f32[b,16],f32[16,24]", "--spec", "tiers.toml", "-o", "made"],
    "fleet": ["fleet", "simulate", "--devices", "20", "--fault", "values"],
    "pack": ["pack", "buffers.csv"],
    "explain-overflow": ["explain-overflow", "kernel.mlir"],
}


def validate(command: str, value: Any) -> None:
    jsonschema.validate(value, {"$ref": f"#/$defs/{command}", "$defs": SCHEMA["$defs"]})


def commands() -> dict[str, Any]:
    (subparsers,) = (a for a in make_parser()._actions if a.dest == "command")
    assert isinstance(subparsers.choices, dict)
    return subparsers.choices


@sampled(2)
@pytest.mark.parametrize("command", CALLS)
def test_json_is_as_its_schema_says(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([*CALLS[command], "--json"]) == 0
    validate(command, json.loads(capsys.readouterr().out))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        validate("report", {"schema": "tilewright.report/1"})


def test_every_command_with_json_has_a_schema() -> None:
    with_json = {n for n, p in commands().items() if any("--json" in a.option_strings for a in p._actions)}
    assert with_json == CALLS.keys() <= SCHEMA["$defs"].keys()
    assert commands().keys() - with_json == {"completion"}  # it prints a script


@sampled(2)
@pytest.mark.parametrize("command", CALLS)
def test_piped_output_is_plain(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(CALLS[command]) == 0
    said = capsys.readouterr()
    assert said.out
    assert not re.search(r"\x1b|\r", said.out + said.err)


def test_a_terminal_gets_a_table(folder: Path) -> None:
    """Under a terminal there are borders, and what takes its time says so."""
    said = on_a_terminal("report", *LAYER)
    assert "┃" in said
    assert "compiling layer" in said


@sampled(3)
@pytest.mark.parametrize(
    ("args", "steps"),
    [
        (["verify", "program.mlir"], r"verifying program.mlir: .* \d+/17"),
        (["explain", "program.mlir"], r"drawing the page: .* \d/4"),
        (["calibrate", "records.json"], r"simulating .* \d/2"),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_a_terminal_gets_a_bar(folder: Path, args: list[str], steps: str) -> None:
    """Where it is known how many steps there are, each is counted; nothing of it stays on the screen."""
    said = on_a_terminal(*args)
    assert re.search(steps, re.sub(r"\x1b\[[\d;?]*\w", "", said)), said


def on_a_terminal(*args: str) -> str:
    """What a command that succeeds writes to a terminal."""
    own, other = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    command = [sys.executable, "-m", "tilewright.cli.main", *args]
    with subprocess.Popen(command, stdout=other, stderr=other, env=env) as process:
        os.close(other)
        said = b""
        while True:
            try:
                more = os.read(own, 4096)
            except OSError:
                break
            if not more:
                break
            said += more
    os.close(own)
    assert process.returncode == 0
    return said.decode()


def test_progress_counts_every_step(folder: Path) -> None:
    import numpy as np

    told: list[tuple[str, int, int]] = []

    def tell(*step: Any) -> None:
        told.append(step)

    for options in ({}, {"quick": True}):
        told.clear()
        tw.verify("program.mlir", np.ones((8, 16), np.float32), progress=tell, **options)
        (steps,) = {steps for _, _, steps in told}
        assert [done for _, done, _ in told] == list(range(steps))
        assert [what for what, _, _ in told][-2:] == ["run (typed memory)", "run (bytes memory)"]


# -- help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_has_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "examples:" in said and "exit codes:" in said
    for example in EXAMPLES[command]:
        assert example in said
        words = re.split(r" [|>] ", example.removeprefix('eval "$(').removesuffix(')"'))[0]
        args = [w.strip("'") for w in re.findall(r"'[^']*'|\S+", words)][1:]
        assert make_parser().parse_args(args).command in (command, "report")  # quantize shows what to do next


def test_examples_for_every_command() -> None:
    # what other modules add to the grammar brings its own
    assert EXAMPLES.keys() <= commands().keys()
    for name, parser in commands().items():
        assert "exit codes" in (parser.epilog or "") or name not in EXAMPLES


# -- exit codes ----------------------------------------------------------------------------------------------


def test_exit_codes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["machines"]) == 0
    assert main(["machines", "ascend-9"]) == 1
    assert "unknown target 'ascend-9'" in capsys.readouterr().err
    assert main(["ops", "addd"]) == 1
    assert "StableHLO has no op addd; did you mean add" in capsys.readouterr().err

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.cli.build.compile", interrupted)
    assert main(["report", *LAYER]) == 130


def test_a_failed_check_is_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "stages.py").write_text(
        "from dataclasses import dataclass, replace\n"
        "from xdsl.passes import ModulePass\n"
        "from tilewright.passes.pipeline import PIPELINE\n"
        "from tilewright.dialects.graph import ELEMENTWISE\n"
        "@dataclass(frozen=True)\nclass Wrong(ModulePass):\n    name = 'graph-simplify'\n"
        "    def apply(self, ctx, op):\n"
        "        for o in list(op.walk()):\n"
        "            if o.name == 'graph.add':\n"
        "                new = ELEMENTWISE['mul'].create(operands=o.operands, result_types=[o.results[0].type])\n"
        "                o.parent.insert_op_before(new, o)\n"
        "                o.results[0].replace_all_uses_with(new.results[0])\n                o.detach(); o.erase()\n"
        "stages = [replace(s, implementation=Wrong) if s.name == Wrong.name else s for s in PIPELINE]\n"
    )
    assert main(["verify", "program.mlir", "--stages", "stages.py:stages"]) == 1
    assert "DIFFERS" in capsys.readouterr().out


# -- documentation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_option_is_documented(command: str) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    assert f"`{command}`" in page
    for action in commands()[command]._actions:
        for option in action.option_strings:
            if option.startswith("--") and option not in ("--help", "--output"):
                assert re.search(rf"{option}\b", page), option
        for choice in action.choices or ():
            assert re.search(rf"\b{choice}\b", page), choice


# -- completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in commands():
        assert command in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
    # the arguments that are files are completed as such
    files = {"bash": "_shtab_compgen_files", "zsh": ":NPZ:_files", "fish": "__fish_complete_path"}
    assert files[shell] in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="completes in bash itself")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ve", "verify verify-file"),
        ("verify --b", "--bisect"),
        ("compile x.mlir --emit t", "tile tw"),
        ("run x.mlir --memory ", "typed bytes step"),
        ("report prog", "program.mlir"),
        ("run model.py --inputs rec", "records.json"),
    ],
)
def test_bash_completes(folder: Path, capsys: pytest.CaptureFixture[str], line: str, expected: str) -> None:
    assert main(["completion", "bash"]) == 0
    (folder / "completion.sh").write_text(capsys.readouterr().out)
    words = " ".join(f"'{w}'" for w in f"tilewright {line}".split(" "))
    script = (
        f"source ./completion.sh; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        'COMPREPLY=(); _shtab_tilewright; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


# -- machines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", Machine.names())
def test_a_machine_shows_every_figure(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of the file is there with its value, and most have a source."""
    assert main(["machines", name, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    validate("machines", said)
    (machine,) = said["machines"]
    own = {f["key"]: f for f in machine["figures"] if f["file"] == name}
    table = tomllib.loads((ROOT / "machine" / f"{name}.toml").read_text())
    table.pop("extends", None)

    def walk(value: Any, prefix: str) -> None:
        if prefix in own:
            assert own.pop(prefix)["value"] == value
        elif isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, f"{prefix}.{key}" if prefix else key)
        else:
            assert value == {}, f"{prefix} is missing"

    walk(table, "")
    assert own == {}
    assert machine["about"]


def test_sources_are_the_comments_beside() -> None:
    _, found = figures("ascend-310")
    by_key = {f.key: f for f in found}
    assert by_key["clock_mhz"].source.startswith("ge; 2 x 8192 int8 MAC x 680 MHz")
    assert by_key["cores.cube"].source == "ge, hw"
    assert by_key["cube.rates.f16"].value == {"m": 16, "k": 16, "n": 16, "k0": 16}


def test_a_machine_that_extends_another_has_its_figures() -> None:
    _, base = figures("ascend-910b1")
    _, found = figures("ascend-910b4")
    by_key = {f.key: f for f in found}
    assert {f.key for f in base} <= by_key.keys()
    assert {f.file for f in found} == {"ascend-910b1", "ascend-910b4"}


# -- ops -----------------------------------------------------------------------------------------------------


def one(name: str, target: str = "ascend-910b1") -> dict[str, engines.Support]:
    (row,) = engines.rows(target, [name])
    return row.support


def test_engines_follow_the_machine() -> None:
    assert one("dot_general")["f32"].engines == ("cube",)
    assert "cube" not in one("dot_general", "ascend-310")["f32"].engines  # its cube has no f32
    assert "cube" in one("dot_general", "ascend-310")["f16"].engines
    assert one("exponential")["f16"].engines == ("vector",)
    assert one("exponential")["f64"].engines == ("host",)
    assert "i32" not in one("exponential")  # StableHLO has no such form
    assert one("transpose")["f32"].engines == ("dma",)
    assert one("reshape")["f32"].engines == ("folded",)


def test_rates_are_the_machines() -> None:
    found = one("exponential")["f32"].instructions
    machine = Machine.load("ascend-910b1")
    assert 0 < found["vexp"] <= machine.vector.rates["exp"]["f32"]


def test_every_form_is_stablehlo() -> None:
    """Each form compiles for f32 or i32 at least, so that none is misspelt."""
    for name in engines.forms():
        found = one(name)
        assert any(not s.problem for s in found.values()), name
        assert "f32" in found or "i32" in found, name


def test_every_op_is_there() -> None:
    names = engines.known_ops()
    assert {"add", "sort", "while", "dot_general", "rng"} <= names
    assert "return" not in names


def test_help_has_the_options_of_the_command_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    said = capsys.readouterr().out
    order = ["usage: tilewright run SOURCE [options]", "options:", "--check", "target and inputs:", "--shapes"]
    order += ["what is asked of the compiler:", "--without", "output:", "--json", "examples:"]
    places = [said.index(part) for part in order]
    assert places == sorted(places)
