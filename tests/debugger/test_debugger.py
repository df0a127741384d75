"""The debugger from Python: programs of all kinds, stops of all kinds, calls under it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.stepper import Race, StepFault
from tilewright.debugger import DebugError, Debugger
from tilewright.debugger.commands import ALIASES, TABLE
from tilewright.debugger.expressions import Expression
from tilewright.debugger.listing import Listing
from tilewright.dialects.npu.structure import KernelOp
from tilewright.passes.choose.prologue import PrologueOnCube


def product(x: Any, y: Any) -> Any:
    return jnp.exp(x) @ y + 1.0


@pytest.fixture(autouse=True)
def two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is before a product has a kernel of its own."""
    monkeypatch.setattr(PrologueOnCube, "may_take", lambda *_: False)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def names(debugger: Debugger) -> set[str]:
    return set(debugger.code.kernels)


def test_names_are_those_of_the_printed_module() -> None:
    program = tw.compile(product, *arrays((64, 96), (96, 32)))
    printed = program.ir()
    for kernel in (op for op in program.module().ops if isinstance(op, KernelOp)):
        listing = Listing(kernel)
        assert "\n".join(f"  {line}" for line in listing.lines) in printed
        assert {listing.lines[n].lstrip().startswith((op.name, "%")) for op, n in listing.line_of.items()} == {True}


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-310", "ascend-950pr"])
def test_every_instruction_can_be_looked_at(target: str) -> None:
    """On all chips, at each instruction of several cores: where, waits, and values of its operands; and the results are
    those of a call."""
    x, y = arrays((19, 33), (33, 17))
    program = tw.compile(product, x, y, target=target)
    debugger = program.debug(x, y)
    stop = debugger.step()
    seen = 0
    while stop.reason != "end":
        seen += 1
        assert debugger.where().count("->") == 1
        assert debugger.core is not None
        assert debugger.waits().count(" begun: ") == sum(len(c.section.pipes) for c in debugger.session.running.running)
        listing = debugger.listing(debugger.op)
        for value in debugger.op.operands:
            assert debugger.shown(listing.name(value))
        stop = debugger.step()
    assert seen == debugger.position
    np.testing.assert_array_equal(debugger.results()[0], program(x, y, mode="step"))


def test_the_next_instruction_of_a_core_and_of_a_launch() -> None:
    debugger = tw.debug(product, *arrays((64, 96), (96, 32)))
    debugger.step()
    first = debugger.core
    while debugger.session.running is debugger.launches[0][0] and debugger.core is first:
        before = debugger.position
        debugger.next()
        assert debugger.position == before + 1
    debugger.run()
    debugger.break_at("mmad")
    debugger.run()
    cube = debugger.core
    debugger.break_at("wait_cross")
    debugger.resume()
    assert debugger.core is not cube
    assert "not raised yet" not in debugger.do("waits").split("vector core 0")[1].split("V,")[0]
    launch = len(debugger.launches)
    for each in list(debugger.breakpoints):
        debugger.delete(each.number)
    stop = debugger.finish()
    assert stop.reason == "end" or len(debugger.launches) == launch + 1


def test_back_is_where_it_was() -> None:
    """Each launch, and each instruction before: the same place and the same values."""
    debugger = tw.debug(product, *arrays((64, 96), (96, 32)))
    texts = [debugger.step().text for _ in range(12)]
    assert debugger.back(5).text == texts[6]
    assert debugger.step().text == texts[7]
    debugger.run()
    starts = [first for _, first in debugger.launches]
    for start in reversed(starts):
        debugger.back()
        assert debugger.position == start
    with pytest.raises(DebugError, match="there is no instruction before that"):
        debugger.back()
    assert debugger.run().reason == "end"


def test_addresses_and_who_wrote_them() -> None:
    debugger = tw.debug(product, *arrays((64, 96), (96, 32)))
    debugger.do("break @exp_0; run")
    kernel = debugger.do("break gm+36864 write; continue")
    assert "npu.store_nd" in kernel
    address = debugger.value("@main %0")
    assert address.shape == (64, 96)
    debugger.step()
    assert "npu.store_nd" in debugger.who("gm+36864")
    assert "nothing wrote it" in debugger.who("gm+61439")
    assert "--" in debugger.shown("@main %0")
    assert "breakpoint 3, gm+36864 read" in debugger.do("break gm+36864 read; delete 1 2; continue")


@pytest.mark.parametrize(
    ("where", "when", "said"),
    [
        ("", "inf", "inf, written by npu.vexp"),
        ("exp", "inf", "inf, written by npu.vexp"),
        ("", "outside -1e9..1e9", "inf, written by npu.vexp"),
        ("exp", "outside 0..50", "inf, written by npu.vexp"),
        ("@{k}", "inf", "inf, written by npu.vexp"),
        ("", "max({out}) > 3e38", "after npu.vexp"),
        ("{out}", "inf", "inf, written by npu.vexp"),
        ("exp", "max({in}) > 100", "npu.vexp"),
    ],
)
def test_conditions(where: str, when: str, said: str) -> None:
    x = np.array([1, 2, 100.5, 3], np.float32)
    debugger = tw.debug(jnp.exp, x)
    (kernel,) = names(debugger)
    op = next(op for op in debugger.code.instructions[kernel] if op.name == "npu.vexp")
    source, dest = (debugger.code.kernels[kernel].name(v) for v in op.operands)
    given = {"k": kernel, "out": dest, "in": source}
    debugger.break_at(where.format(**given), when.format(**given))
    stop = debugger.run()
    assert stop.reason == "breakpoint"
    assert said in stop.text
    assert tw.debug(jnp.exp, x[:2]).run().reason == "end"


def test_conditions_that_do_not_hold() -> None:
    x = np.ones(4, np.float32)
    debugger = tw.debug(jnp.exp, x)
    for each in ("nan", "inf", "outside 0..3"):
        debugger.break_at(each)
    debugger.break_at("exp", "%0 == 7")
    assert debugger.run().reason == "end"


def test_a_line_stops_once_on_each_core() -> None:
    x, y = arrays((64, 96), (96, 32))
    debugger = tw.debug(product, x, y)
    line = product.__code__.co_firstlineno + 1
    debugger.break_at(f"{Path(__file__).name}:{line}")
    stops = 0
    stop = debugger.run()
    while stop.reason == "breakpoint":
        stops += 1
        assert f"{Path(__file__).name}:{line}: " in stop.text
        stop = debugger.resume()
    assert 0 < stops <= sum(len(run.running) * len(list(run.plan.points)) for run, _ in debugger.launches)


def test_host_ops_and_loops_of_the_host() -> None:
    """A loop whose trips the data decides launches its kernels again and again."""

    def halved(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: jnp.max(v) > 1, lambda v: v / 2, x)

    x = np.array([5, 3], np.float32)
    debugger = tw.debug(halved, x)
    debugger.run()
    np.testing.assert_array_equal(debugger.results()[0], halved(x))
    assert len(debugger.launches) >= 3
    launches = [run.plan.name for run, _ in debugger.launches]
    debugger.back()
    assert [run.plan.name for run, _ in debugger.launches] == launches


def test_a_program_without_launches() -> None:
    debugger = tw.debug(lambda x: x, np.ones((2, 3), np.float32))
    assert debugger.do("info kernels") == "the program has no kernels"
    with pytest.raises(DebugError, match="the program has no instruction or kernel exp"):
        debugger.break_at("exp")
    with pytest.raises(DebugError, match="the program has no kernels"):
        debugger.break_at("%1")
    assert debugger.step().reason == "end"
    assert debugger.results()[0].shape == (2, 3)
    with pytest.raises(DebugError, match="there is no instruction before that"):
        debugger.back()


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 1), ()])
def test_small_extents(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.5, np.float32)
    debugger = tw.debug(lambda x: jnp.exp(x) + 1, x)
    assert debugger.run().reason == "end"
    np.testing.assert_allclose(debugger.results()[0], np.exp(x) + 1, rtol=1e-6)
    assert debugger.shown("@main %x")


def test_dtypes_are_shown() -> None:
    x = jnp.arange(4, dtype=jnp.bfloat16)
    debugger = tw.debug(lambda x: x * 2, x)
    assert debugger.shown("@main %x").startswith("%x, 4xbf16 at gm+0..7\n[0. 1. 2. 3.]")
    assert debugger.value("@main %x").dtype == jnp.bfloat16


def test_open_sizes_at_given_sizes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    program = tw.compile(lambda x: jnp.exp(x) * 2, jax.ShapeDtypeStruct((n, 5), "float32"))
    (x,) = arrays((3, 5))
    debugger = program.debug(x)
    assert "breakpoint 1, exp" in debugger.do("break exp; run")
    assert debugger.shown("@main %x").startswith("%x, 3x5xf32")
    debugger.resume()
    np.testing.assert_array_equal(debugger.results()[0], program(x, mode="step"))
    with tw.debugging("break exp; run"):
        np.testing.assert_array_equal(program(x), program(x, mode="step"))


def test_packed_weights() -> None:
    x, y = arrays((64, 96), (96, 32))
    program = tw.compile(product, x, y, options=tw.Options(weights="y"))
    debugger = program.debug(x, y)
    assert debugger.run().reason == "end"
    np.testing.assert_array_equal(debugger.results()[0], program(x, y, mode="step"))


# -- calls under the debugger --------------------------------------------------------------------------------


def test_calls_within_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = arrays((8, 16), (16, 8))
    program = tw.compile(product, x, y)
    want = program(x, y, mode="step")
    with tw.debugging("break mmad; run; print 1 + 1"):
        np.testing.assert_array_equal(program(x, y), want)
    assert capsys.readouterr().out.splitlines()[0].startswith("breakpoint 1, mmad: ")
    program(x, y)
    assert capsys.readouterr().out == ""


def test_a_prompt_in_a_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The prompt closes when the program is over; leaving it earlier runs on to the end."""
    x = np.ones(4, np.float32)
    program = tw.compile(jnp.exp, x)
    for lines in (["step", "", "continue"], ["step", "quit"]):
        said = iter(lines)
        monkeypatch.setattr("builtins.input", lambda prompt, said=said: next(said))
        np.testing.assert_array_equal(program(x, mode="debug"), program(x, mode="step"))
        assert list(said) == []
    assert "instruction 1, launch 1" in capsys.readouterr().out


def test_ctrl_c_stops_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before its next instruction; the run can go on, and at the prompt it leaves the line."""
    debugger = tw.debug(jnp.exp, np.ones(4, np.float32))
    advance = debugger._advance
    lines = iter(["run", KeyboardInterrupt, "where", "continue", "quit"])

    def pressed() -> Any:
        found = advance()
        if debugger.position == 3:
            signal.raise_signal(signal.SIGINT)
        return found

    def read(prompt: str) -> str:
        line = next(lines)
        if not isinstance(line, str):
            signal.raise_signal(signal.SIGINT)
        return str(line)

    monkeypatch.setattr(debugger, "_advance", pressed)
    monkeypatch.setattr("builtins.input", read)
    before = signal.getsignal(signal.SIGINT)
    debugger.interact()
    assert signal.getsignal(signal.SIGINT) is before
    said = capsys.readouterr().out
    assert "interrupted\ninstruction 3, launch 1" in said
    assert "is over after" in said


def test_a_gather_reads_what_its_indices_say() -> None:
    table, rows = np.ones((1000, 4), np.float32), np.array([5, 900, 3], np.int32)
    debugger = tw.debug(lambda t, i: t[i], table, rows)
    debugger.break_at(f"gm+{900 * 16} read")
    debugger.break_at(f"gm+{901 * 16} read")
    stop = debugger.run()
    assert stop.breakpoint is debugger.breakpoints[0]
    assert "npu.load_indirect" in stop.text
    assert debugger.resume().reason == "end"


def test_a_compiled_program_has_its_target() -> None:
    x = np.ones(4, np.float32)
    program = tw.compile(jnp.exp, x)
    assert tw.debug(program, x).run().reason == "end"
    with pytest.raises(tw.CompileError, match="compiled already"):
        tw.debug(program, x, target="ascend-310")


# -- faults --------------------------------------------------------------------------------------------------


def without(program: tw.Program, instruction: str) -> str:
    """The text of a program without the first line of an instruction."""
    lines = program.ir().splitlines()
    lines.pop(next(i for i, line in enumerate(lines) if instruction in line))
    return "\n".join(lines)


def test_faults_are_stops_and_raise_in_calls() -> None:
    x = np.ones(4, np.float32)
    text = without(tw.compile(jnp.exp, x), "npu.wait_flag").encode()
    debugger = tw.debug(text, x)
    stop = debugger.run()
    assert stop.reason == "fault"
    assert isinstance(stop.fault, Race)
    assert debugger.faults() == stop.text
    assert "knows of no end of npu.load_nd" in debugger.waits()
    with pytest.raises(DebugError, match="stopped at a fault"):
        debugger.step()
    assert debugger.back().reason == "step"
    assert debugger.fault is None
    program = tw.compile(text, options=tw.Options(check=False))
    with tw.debugging("run"), pytest.raises(StepFault):
        program(x)


def test_what_nothing_wrote() -> None:
    x = np.ones(4, np.float32)
    text = without(tw.compile(jnp.exp, x), "npu.load_nd").encode()
    debugger = tw.debug(text, x)
    stop = debugger.run()
    assert stop.fault is not None
    assert stop.fault.kind == "uninitialised"
    listing = debugger.listing(debugger.op)
    source = listing.name(debugger.op.operands[0])
    assert "nothing wrote it" in debugger.shown(source)
    assert "nothing wrote it" in debugger.who(source)
    assert f"reads {source}, which nothing wrote yet" in debugger.waits()


# -- the language of commands --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("%a[1, 0] + 2 * 3", 8.0),
        ("-%a[0, 1]", -1.0),
        ("max(%a) > 4 and not %i == 3", True),
        ("0 < %i <= 2 or nan(%a)", True),
        ("sum(%a[:, 1:]) / 2", 6.0),
        ("any(%a == inf)", False),
        ("7 // 2 - 1", 2),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    values = {"%a": np.arange(6, dtype=np.float32).reshape(2, 3), "%i": 2}
    values["%a"][1, 0] = 2
    assert Expression(text).value(values) == value


def test_help_says_every_command() -> None:
    said = tw.debug(lambda x: x, np.ones(1, np.float32)).do("help")
    assert all(f"\n{name}" in f"\n{said}" for name in TABLE)
    assert set(ALIASES.values()) <= TABLE.keys()
