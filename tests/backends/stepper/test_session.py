"""Sessions: a run that is stopped before each instruction, and what a debugger asks of it."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.stepper import StepProgram, StepRun
from tilewright.backends.stepper.events import StepEvent, byte_ranges, said_by

X = np.linspace(-2, 2, 64 * 100, dtype=np.float32).reshape(64, 100)


def exponential(x: Any) -> Any:
    return jnp.exp(x) * 2 + 1


def session(fn: Any = exponential, *args: np.ndarray, **how: Any) -> StepRun:
    args = args or (X,)
    program = tw.compile(fn, *args).executable("step")
    assert isinstance(program, StepProgram)
    return program.session(args, **how)


def test_a_session_gives_every_instruction_before_it_runs() -> None:
    run = session()
    events = list(run)
    assert run.is_over and run.event is None
    names = [e.op.name for e in events]
    assert names.count("npu.vexp") >= 1 and names.index("npu.load_nd") < names.index("npu.vexp")
    assert run.steps == len(events)
    np.testing.assert_array_equal(run.results()[0], np.asarray(tw.compile(exponential, X)(X, mode="step")))


def first(run: StepRun, name: str) -> StepEvent:
    return next(e for e in run if e.op.name == name)


def test_values_are_there_before_and_after() -> None:
    run = session()
    event = first(run, "npu.vexp")
    (read,), (written,) = event.reads, event.writes
    assert read.space == written.space == "ub" and not read.write
    before = read.values.copy()
    run.step()
    np.testing.assert_allclose(written.values[: len(before)], np.exp(before), rtol=1e-6)


def test_where_an_instruction_is() -> None:
    run = session()
    event = first(run, "npu.vexp")
    assert event.pipe == "V" and event.kernel == "add_0"
    assert event.location is not None and "test_session.py" in event.location
    assert event.indices and all(isinstance(n, int) for n in event.indices.values())
    assert "on V of vector core 0 of block" in str(event)
    load = first(session(), "npu.load_nd")
    (source,) = load.reads
    assert source.space == "gm" and len(load.offsets) == len(source.values.shape)
    np.testing.assert_array_equal(source.values.reshape(-1, 100), X[: source.values.size // 100])


def test_who_wrote_these_bytes() -> None:
    run = session()
    event = first(run, "npu.vexp")
    byte = event.reads[0].ranges[0][0]
    writer = run.who_wrote("ub", byte)
    assert (
        writer is not None and writer.op.name == "npu.load_nd" and "on MTE2 of vector core" in said_by(writer)
    )
    argument = run.who_wrote("gm", 0)
    assert argument is not None and argument.core is None
    run.run()
    stored = [
        w for n in range(0, run.room, 4) if (w := run.who_wrote("gm", n)) is not None and w.core is not None
    ]
    assert {w.op.name for w in stored} == {"npu.store_nd"}


def test_what_pipes_wait_for() -> None:
    run = session()
    wait = next(e for e in run if e.waits_for)
    assert wait.op.name == "npu.wait_flag" and wait.waits_for.startswith("flag 0 from MTE2")
    before = run.known(wait.core)[wait.pipe]["MTE2"]
    run.step()
    after = run.known(wait.core)[wait.pipe]["MTE2"]
    assert after[0] > before[0] and after[0] <= after[1]


def test_cores_of_a_block_take_turns() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T) @ v

    args = [np.ones((64, 32), np.float16)] * 3
    run = session(attention, *args)
    cores = [(e.core.section.core, e.core.unit) for e in run]
    assert {"cube", "vector"} <= {core for core, _ in cores}
    switches = sum(a != b for a, b in itertools.pairwise(cores))
    assert 2 <= switches < len(cores) / 2


def test_sessions_side_by_side() -> None:
    """Each has memory of its own, so an old one goes on where it was."""
    program = tw.compile(exponential, X).executable("step")
    assert isinstance(program, StepProgram)
    want = program.session([X]).run()
    one, other = program.session([X]), program.session([X * 2])
    while one.step() is not None:
        other.step()
    other.run()
    np.testing.assert_array_equal(one.results()[0], want[0])


def test_races_may_be_left_out() -> None:
    run = session(races=False)
    run.run()
    assert not any(core.order.checks for core in [e.core for e in session(races=False)])


def test_byte_ranges() -> None:
    assert byte_ranges(100, (4, 8), (32, 4), 4) == ((100, 228),)
    assert byte_ranges(0, (2, 3), (100, 4), 4) == ((0, 12), (100, 112))
    assert byte_ranges(0, (3,), (-4,), 4) == ((-8, 4),)
    assert byte_ranges(0, (0, 3), (100, 4), 4) == ()


def test_a_fault_leaves_the_session_where_it_was_met() -> None:
    module = tw.compile(exponential, X).module().clone()
    load = next(op for op in module.walk() if op.name == "npu.load_nd")
    load.detach()
    load.erase()
    from tilewright.backends.stepper import StepFault
    from tilewright.machine import Machine

    run = StepProgram(module, Machine.load("ascend-910b1")).session([X])
    with pytest.raises(StepFault):
        run.run()
    assert run.core is not None and run.core.node.op.name == "npu.vexp"
