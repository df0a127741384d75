"""The streams of host programs: every order that the events allow ends alike, each is needed, no fault escapes."""

from __future__ import annotations

import random
from functools import cache
from typing import Literal

import jax
import numpy as np
import pytest
from stream_mutants import STREAM_MUTATIONS
from streams import PROGRAMS, RandomHost, compiled, hosted, outcomes
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tilewright.backends.interpreter.program import Executable
from tilewright.backends.simulator import simulate
from tilewright.dialects import make_context
from tilewright.dialects.base import integer_attr, ints, to_ints
from tilewright.dialects.npu.structure import CallOp, LaunchOp, LoopOp, WaitEventOp
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.npu.check import Finding, check
from tilewright.passes.npu.schedule_host import NpuScheduleHostPass

B1 = Machine.load("ascend-910b1")
cases = pytest.mark.parametrize("name", PROGRAMS)


@cache
def program(name: str) -> tw.Program:
    return compiled(name)


def module(name: str) -> ModuleOp:
    return program(name).module()


def findings(mutant: ModuleOp) -> list[Finding]:
    return [f for f in check(mutant, B1) if f.blame in ("npu-schedule-host", "npu-join-launches")]


def test_the_programs_have_what_they_are_for() -> None:
    assert any(isinstance(op, CallOp) for op in module("called").walk())
    assert any(isinstance(op, LoopOp) and op.trip_count is None for op in module("until").walk())
    assert all(any(isinstance(op, WaitEventOp) for op in module(name).walk()) for name in PROGRAMS)


@cases
def test_every_order_ends_alike(name: str) -> None:
    assert check(module(name), B1) == []
    assert len(outcomes(module(name), 40)) == 1


@cases
def test_the_oracle_and_the_checker_miss_each_wait(name: str) -> None:
    """No wait can go: the checker says so of each, and most show as another outcome in some order."""
    waits = sum(isinstance(op, WaitEventOp) for op in module(name).walk())
    (right,) = outcomes(module(name), 1)
    seen = 0
    for i in range(waits):
        mutant = module(name).clone()
        wait = [op for op in mutant.walk() if isinstance(op, WaitEventOp)][i]
        where = f"wait {i} of {waits} on {wait.stream.data}"
        wait.detach()
        wait.erase()
        assert findings(mutant), f"{where} is not needed"
        seen += set(outcomes(mutant, 25)) != {right}
    assert seen >= 0.7 * waits


@cases
def test_no_fault_in_the_events_escapes(name: str) -> None:
    rng = random.Random(name)
    (right,) = outcomes(module(name), 1)
    caught = 0
    for mutations in STREAM_MUTATIONS.values():
        for _ in range(12):
            mutant = module(name).clone()
            said = rng.choice(mutations)(mutant, rng, B1)
            if said is None:
                continue
            try:
                mutant.verify()
            except VerifyException:
                continue
            if findings(mutant):
                caught += 1
                continue
            assert set(outcomes(mutant, 25)) == {right}, said
    assert caught >= 12


def independent(x: jax.Array, w: jax.Array) -> jax.Array:
    """Chains that need nothing of each other, then what needs all of them."""
    parts = [jax.numpy.tanh(x @ (w + i)) @ w for i in range(4)]
    return (parts[0] @ parts[1]) + (parts[2] @ parts[3]) @ w


def test_no_missing_barrier_escapes() -> None:
    """Where launches wait for no barrier, every order ends alike; each other barrier is needed, and both say so."""
    rng = np.random.default_rng(0)
    right = tw.compile(independent, *(rng.random((256, 256), np.float32) for _ in range(2))).module()
    joined = [op for op in right.walk() if isinstance(op, LaunchOp) and op.joined is not None]
    assert sum(op.nowait is not None for op in joined) >= 3
    assert check(right, B1) == []
    (wanted,) = outcomes(right, 40)
    barriers = 0
    for i, op in enumerate(joined):
        if op.nowait is None:
            barriers += 1
            mutant = right.clone()
            launch = [op for op in mutant.walk() if isinstance(op, LaunchOp) and op.joined is not None][i]
            launch.properties["nowait"] = UnitAttr()
            launch.properties.pop("ahead", None)
            launch.properties.pop("barriers", None)
            assert findings(mutant), f"barrier {i} is not needed"
            assert set(outcomes(mutant, 40)) != {wanted}
    assert barriers >= 2


def test_no_input_that_is_read_too_early_escapes() -> None:
    """What is read ahead of barriers may be read at any time since the one before; any other input may not."""
    rng = np.random.default_rng(0)
    right = tw.compile(independent, *(rng.random((256, 256), np.float32) for _ in range(2))).module()
    joined = [op for op in right.walk() if isinstance(op, LaunchOp) and op.joined is not None]
    assert any(op.ahead is not None for op in joined) and check(right, B1) == []
    (wanted,) = outcomes(right, 40)
    caught = 0
    for number, op in enumerate(joined):
        if op.nowait is not None:
            continue
        for i in {*range(len(op.inputs()))} - {*to_ints(op.ahead)}:
            mutant = right.clone()
            launch = [op for op in mutant.walk() if isinstance(op, LaunchOp) and op.joined is not None][number]
            launch.properties["ahead"] = ints([i])
            if findings(mutant):
                caught += set(outcomes(mutant, 40)) != {wanted}
            else:
                assert set(outcomes(mutant, 40)) == {wanted}
    assert caught >= 2


def norms(x: jax.Array, w: jax.Array) -> jax.Array:
    """Products of what a kernel makes early, with norms between them."""

    def norm(y: jax.Array) -> jax.Array:
        return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1.0)

    v = jax.numpy.tanh(w)
    return norm(norm(norm(x @ w) @ w) @ v) @ v


def test_no_barrier_is_passed_that_is_needed() -> None:
    """Where cores read ahead of several barriers, every order ends alike; where they passed more of them, both say so
    or neither."""
    args = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 256), (256, 256))]
    right = tw.compile(norms, *args, options=tw.Options(without={"row-epilogue"})).module()
    joined = [op for op in right.walk() if isinstance(op, LaunchOp) and op.joined is not None]
    assert any(op.passes_barriers > 1 for op in joined) and check(right, B1) == []
    (wanted,) = outcomes(right, 60)
    caught = 0
    for number, op in enumerate(joined):
        for passed in range(op.passes_barriers + 1, sum(1 for _ in op.sets_before()) + 1) if op.ahead else ():
            mutant = right.clone()
            launch = [op for op in mutant.walk() if isinstance(op, LaunchOp) and op.joined is not None][number]
            launch.properties["barriers"] = integer_attr(passed)
            if findings(mutant):
                caught += set(outcomes(mutant, 60)) != {wanted}
            else:
                assert set(outcomes(mutant, 60)) == {wanted}
    assert caught


@pytest.mark.parametrize(("name", "memory"), [*((name, "typed") for name in PROGRAMS), ("rounds", "bytes")])
def test_values(name: str, memory: Literal["typed", "bytes"]) -> None:
    """JAX's values, with streams and events in place."""
    fn, rng = PROGRAMS[name], np.random.default_rng(0)
    args = [rng.random((16, 16), np.float32) for _ in range(2)]
    wanted = jax.tree.leaves(jax.jit(fn)(*args))
    for got, want in zip(Executable(module(name), B1, memory)(*args), wanted, strict=True):
        scale = np.abs(np.asarray(want)).max()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * scale)


@cases
def test_time_is_between_the_busiest_queue_and_all_in_turn(name: str) -> None:
    report = program(name).report()
    steps = simulate(module(name), B1)
    serial = sum(step.microseconds * times for step, times in steps.flat())
    assert max(report.queues.values()) <= report.microseconds + 1e-6
    assert report.microseconds <= serial + 1e-6
    assert sum(report.queues.values()) == pytest.approx(serial)


def test_what_does_not_need_the_host_runs_meanwhile() -> None:
    """Products take as long as the host's work: the shorter of the two is hidden."""

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        y = hosted(x)
        for _ in range(4):
            w = w @ w
        return y.sum() + w

    rng = np.random.default_rng(0)
    report = tw.compile(fn, rng.random((128, 128), np.float32), rng.random((1024, 1024), np.float32)).report()
    assert report.microseconds < 0.8 * sum(report.queues.values())


def scheduled(text: str) -> ModuleOp:
    found = parse_module(make_context(), text, "random.mlir")
    found.verify()
    NpuScheduleHostPass().apply(Context(), found)
    found.verify()
    return found


@pytest.mark.parametrize("seed", range(30))
def test_random_host_programs(seed: int) -> None:
    """Loops and branches in one another, memory used again: safe in every order, and no wait can go."""
    program = scheduled(RandomHost(random.Random(seed)).text())
    assert findings(program) == []
    assert len(outcomes(program, 12, seed)) == 1
    for i in range(sum(isinstance(op, WaitEventOp) for op in program.walk())):
        mutant = program.clone()
        wait = [op for op in mutant.walk() if isinstance(op, WaitEventOp)][i]
        said = f"wait {i}, for event {wait.event.value.data} on {wait.stream.data}, is not needed"
        wait.detach()
        wait.erase()
        assert findings(mutant), said
