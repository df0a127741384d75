"""`tilewright debug`: scripts and what they print, to the letter."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli.main import main
from tilewright.debugger.prompt import PROMPT

PROGRAM = """
builtin.module attributes {tilewright.target = "ascend-910b1", tilewright.states = ["stored", "real",
    "partitioned", "fused", "scheduled", "tiled", "bufferized", "addressed", "synchronized",
    "planned", "ordered", "joined", "checked"]} {
  func.func @main(%x: !npu.gm<64xf32>) -> !npu.gm<64xf32>
      attributes {npu.addresses = array<i64: 0>, npu.arena_bytes = 512 : i64} {
    %y = npu.gm_alloc {address = 256} : () -> !npu.gm<64xf32>
    npu.launch @exp_0 %x, %y {outputs = 1, stream = "compute", workspaces = 0}
      : (!npu.gm<64xf32>, !npu.gm<64xf32>)
    func.return %y : !npu.gm<64xf32>
  }
  npu.kernel @exp_0 {grid = [2], kind = "vector", outputs = 1, workspaces = 0} {
  ^bb0(%block: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
    npu.section {core = "vector", units = 1} {
    ^bb0(%unit: index):
      %in = npu.alloc {address = 0} : () -> !npu.buffer<2x16xf32, ub>
      %out = npu.alloc {address = 128} : () -> !npu.buffer<2x16xf32, ub>
      npu.load_nd %x, %in at [%block * 32] {sizes = [32]} : (!npu.gm<64xf32>, !npu.buffer<2x16xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
      npu.vexp %in, %out : (!npu.buffer<2x16xf32, ub>, !npu.buffer<2x16xf32, ub>)
      npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
      npu.store_nd %out, %y at [%block * 32] {sizes = [32]} : (!npu.buffer<2x16xf32, ub>, !npu.gm<64xf32>)
    }
  }
}
"""
INPUTS = "x.npz"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.chdir(tmp_path)
    Path("exp.mlir").write_text(PROGRAM)
    wait = 'npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2"'
    lines = [line for line in PROGRAM.splitlines(keepends=True) if wait not in line]
    assert len(lines) == PROGRAM.count("\n") - 1
    Path("race.mlir").write_text("".join(lines))
    x = np.arange(64, dtype=np.float32) - 32
    x[40] = np.nan
    np.savez(INPUTS, x=x)


def debug(capsys: pytest.CaptureFixture[str], commands: str, program: str = "exp.mlir", code: int = 0) -> str:
    assert main(["debug", program, "--inputs", INPUTS, "-c", commands]) == code
    return capsys.readouterr().out


def test_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert debug(capsys, "break exp; run; print %in[1, :4]; who %in; where; continue; continue") == SCRIPT


SCRIPT = """\
(tilewright) break exp
breakpoint 1, exp: 1 instruction
(tilewright) run
breakpoint 1, exp
instruction 4, launch 1: @exp_0, vector core 0 of block [0], %block = 0, %unit = 0
exp.mlir:21: npu.vexp %in, %out on V
(tilewright) print %in[1, :4]
%in, 2x16xf32 at ub+0..127
[-16. -15. -14. -13.]
(tilewright) who %in
ub+0..127: npu.load_nd %x, %in at [%block * 32] {sizes = [32]}
  exp.mlir:18, MTE2 of vector core 0 of block [0] of @exp_0, %block = 0, %unit = 0
(tilewright) where
instruction 4, launch 1: @exp_0, vector core 0 of block [0], %block = 0, %unit = 0
exp.mlir:21: npu.vexp %in, %out on V
       npu.load_nd %x, %in at [%block * 32] {sizes = [32]}
       npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
       npu.wait_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"}
->     npu.vexp %in, %out
       npu.set_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
       npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
       npu.store_nd %out, %y at [%block * 32] {sizes = [32]}
(tilewright) continue
breakpoint 1, exp
instruction 11, launch 1: @exp_0, vector core 0 of block [1], %block = 1, %unit = 0
exp.mlir:21: npu.vexp %in, %out on V
(tilewright) continue
exp.mlir is over after 14 instructions: 1 result
"""


def test_a_race(capsys: pytest.CaptureFixture[str]) -> None:
    """A mutant without a wait: found, who wrote, what waits; exit code 1."""
    assert debug(capsys, "run; who %in; waits; faults", "race.mlir", code=1) == RACE


RACE = """\
(tilewright) run
race: 'npu.vexp' (race.mlir:20) reads %in while 'npu.load_nd' on MTE2 may still write it: ub bytes 0..127
the other one: npu.load_nd %x, %in at [%block * 32] {sizes = [32]} (race.mlir:18)
instruction 3, launch 1: @exp_0, vector core 0 of block [0], %block = 0, %unit = 0
race.mlir:20: npu.vexp %in, %out on V
(tilewright) who %in
ub+0..127: npu.load_nd %x, %in at [%block * 32] {sizes = [32]}
  race.mlir:18, MTE2 of vector core 0 of block [0] of @exp_0, %block = 0, %unit = 0
(tilewright) waits
vector core 0 of block [0]
  MTE2, 2 begun: is done
  V, 1 begun: npu.vexp %in, %out
    reads %in, and knows of no end of npu.load_nd %x, %in at [%block * 32] {sizes = [32]} on MTE2
  MTE3, 0 begun: npu.wait_flag at [0] {event = 0, slots = 1, source = "V", target = "MTE3"}
    waits for flag 0 of V: not raised yet
  raised: flag 0 of MTE2 for V
(tilewright) faults
race: 'npu.vexp' (race.mlir:20) reads %in while 'npu.load_nd' on MTE2 may still write it: ub bytes 0..127
the other one: npu.load_nd %x, %in at [%block * 32] {sizes = [32]} (race.mlir:18)
instruction 3, launch 1: @exp_0, vector core 0 of block [0], %block = 0, %unit = 0
race.mlir:20: npu.vexp %in, %out on V
"""


def test_values_that_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert debug(capsys, "break nan; break inf; run; print nan(%in[0, 7:]); delete 1; continue") == VALUES


VALUES = """\
(tilewright) break nan
breakpoint 1, nan
(tilewright) break inf
breakpoint 2, inf
(tilewright) run
breakpoint 1, nan: %in[0, 8] = nan, written by npu.load_nd %x, %in at [%block * 32] {sizes = [32]}
instruction 9, launch 1: @exp_0, vector core 0 of block [1], %block = 1, %unit = 0
exp.mlir:19: npu.set_flag at [0] {event = 0, slots = 1, source = "MTE2", target = "V"} on MTE2
(tilewright) print nan(%in[0, 7:])
[False  True False False False False False False False]
(tilewright) delete 1
deleted 1
(tilewright) continue
exp.mlir is over after 14 instructions: 1 result
"""


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ("brek exp", "there is no command 'brek'; did you mean break?"),
        ("frobnicate", "there is no command 'frobnicate'; help lists them"),
        ("break", "say where, as in break exp, break model.py:12, break ub+4096 write or break nan"),
        ("break exq", "the program has no instruction or kernel exq; did you mean exp?"),
        ("break @exp_1", "there is no kernel @exp_1; did you mean @exp_0?"),
        ("break %nothing", "@exp_0 has no value %nothing"),
        ("break exp.mlir:3", "no instruction comes from exp.mlir:3; those of exp.mlir come from 18, 19, 20, 21, 22, "),
        ("break other.py:3", "no instruction comes from other.py:3"),
        ("break xy+4", "the machine has no memory xy; it has gm, l1, l0a, l0b, l0c, ub"),
        ("break ub+9..3", "ub+9..3: the last byte is before the first one"),
        ("break exp write", "'write' is for bytes and values, as in break ub+4096 write"),
        ("break exp if", "say what must hold behind 'if', as in break exp if %5 > 100"),
        ("break exp if %in >", "cannot read '%in >'; write %5, %5[0, :8] or max(abs(%5)) > 100"),
        ("break if %nothing > 1", "@exp_0 has no value %nothing"),
        ("break outside 3..1", "cannot read 'outside 3..1'; write outside -1..1"),
        ("break outside x..1", "cannot read 'outside x..1'; write outside -1..1"),
        ("delete 4", "there is no breakpoint 4"),
        ("delete x", "delete takes numbers of breakpoints, got 'x'"),
        ("info", "info is about breakpoints or kernels"),
        ("info stack", "info is about breakpoints or kernels, got 'stack'"),
        ("step x", "'x' is no number of instructions"),
        ("step 0", "'0' is no number of instructions"),
        ("run fast", "'run' takes nothing behind it, got 'fast'"),
        ("print", "say what, as in print %5, print %5[0, :8] or print results"),
        ("step; print %nothing", "@exp_0 has no value %nothing"),
        ("print %in", "the host program here has no value %in"),
        ("step; print %in[7]", "%in[7]: index 7 is out of bounds for axis 0 with size 2"),
        ("step; print %in +", "cannot read '%in +'; write %5, %5[0, :8] or max(abs(%5)) > 100"),
        ("step; print open('x')", "cannot compute 'open('x')'; there are %names, slices, + - * / //, comparisons, "),
        ("step; print %in + %x", "%in + %x: operands could not be broadcast together with shapes (2,16) (64,) "),
        ("print results", "the program is not over: 'continue' runs it to its end"),
        ("who", "say what, as in who %5 or who ub+4096"),
        ("step; who %block", "%block has no bytes in a memory"),
        ("who ub+0", "ub+0: no core runs here"),
        ("step; who l1+0", "@exp_0 has no buffer in l1"),
        ("step; who ub+4096", "no buffer of @exp_0 has bytes of ub+4096"),
        ("who gm+512", "gm+512 is behind the 512 bytes of device memory that the program takes"),
        ("waits", "the program has not begun: 'run' or 'step' does it"),
        ("run; waits", "no launch runs"),
        ("run; step", "the program is over: 'back' goes to the last launch, 'run' to the beginning"),
        ("finish", "no launch runs: 'run' or 'step' begins the program"),
        ("back", "the program has not begun"),
        ("step; back", "there is no instruction before that"),
        ("step 3; back 3", "there is no instruction before that"),
        ("list", "exp.mlir has not begun: 'run' or 'step' does it; 'list KERNEL' shows a kernel"),
        ("list exp_9", "there is no kernel @exp_9; did you mean @exp_0?"),
        ("help brake", "there is no command 'brake'; help lists them"),
    ],
)
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], commands: str, said: str) -> None:
    assert main(["debug", "exp.mlir", "--inputs", INPUTS, "-c", commands]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"tilewright: error: {said}")
    assert error.count("\n") == 1


def test_what_may_follow_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "race.mlir", "-c", "run; continue"]) == 1
    assert "the program stopped at a fault: 'back' goes to the launch" in capsys.readouterr().err
    said = debug(capsys, "run; back; where; step", "race.mlir")
    assert said.count("instruction 1, launch 1: @exp_0") == 2
    assert "instruction 2, launch 1" in said


def test_commands_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines or semicolons; # begins a comment; what is behind `quit` is not done."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("break exp  # here\nrun; print %block\n\nquit\nnonsense\n"))
    assert main(["debug", "exp.mlir", "--inputs", INPUTS]) == 0
    piped = capsys.readouterr().out
    assert main(["debug", "exp.mlir", "--inputs", INPUTS, "-c", "break exp", "-c", "run; print %block", "-c", "q"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == piped.splitlines()[:-1]
    assert piped.endswith("%block, an index: 0\n(tilewright) quit\n")


def test_a_program_from_stdin_needs_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "-"]) == 1
    assert capsys.readouterr().err == "tilewright: error: the program is read from stdin: give commands with -c\n"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "race.mlir", "-c", "run; print %block", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fault"].startswith("race: 'npu.vexp' (race.mlir:20)")
    assert found["commands"][1] == {"command": "print %block", "output": "%block, an index: 0"}


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/debugger.md: its mutant, and each transcript."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "debugger.md").read_text()
    Path("mutant.mlir").write_text(page.split("```mlir mutant\n")[1].split("```")[0])
    shown = re.findall(r"^```text\n\$ tilewright (.*)\n((?:.*\n)*?)```$", page, re.M)
    assert len(shown) == 2
    for command, printed in shown:
        main(shlex.split(command))
        assert capsys.readouterr().out == printed


def test_the_prompt_on_a_terminal() -> None:
    """Errors leave the prompt open, an empty line steps again, Ctrl-D leaves."""
    own, other = pty.openpty()
    command = [sys.executable, "-m", "tilewright.cli.main", "debug", "exp.mlir", "--inputs", INPUTS]
    env = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    said = ""

    def answer(line: bytes) -> None:
        """Writes a line, and reads up to the next prompt or the end."""
        nonlocal said
        os.write(own, line)
        said += until_prompt(own)

    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=env) as process:
        os.close(other)
        try:
            said += until_prompt(own)
            for line in (b"step\n", b"\n", b"brek\n", b"step\n", b"who ub+0\n", b"\x04"):
                answer(line)
        finally:
            process.kill() if process.poll() is None and PROMPT in said[-len(PROMPT) :] else process.wait()
    os.close(own)
    assert process.returncode == 0, said
    assert "exp.mlir has not begun" in said
    assert "instruction 3, launch 1" in said
    assert "error: there is no command 'brek'; did you mean break?" in said
    assert re.search(r"^ub\+0\.\.127: npu.load_nd", said, re.M)


def until_prompt(terminal: int) -> str:
    """What a terminal shows up to the next prompt, or to the end."""
    found = b""
    while not found.endswith(PROMPT.encode()) and select.select([terminal], [], [], 60)[0]:
        try:
            more = os.read(terminal, 4096)
        except OSError:
            break
        if not more:
            break
        found += more
    return found.decode().replace("\r\n", "\n")
