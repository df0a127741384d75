"""A sample of `make faults`: nothing escapes, nothing is alarmed for nothing, and the judge is not blind."""

from __future__ import annotations

import random

import numpy as np
import pytest
from campaign import KernelSubject, judge_host, launched, work_of
from mutants import drop_flag, shift_address
from oracle import Crash, Device, Launch, Schedule, Stuck, schedules
from subjects import TARGETS, example, random_subjects

import tilewright as tw
from tilewright.dialects.npu import NpuOp
from tilewright.dialects.npu.ops import VectorOp


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", ["gpt2:tiny", "lstm:forward"])
def test_no_mutant_escapes(model: str, target: str) -> None:
    subject = example(model, target)
    total = 0
    for name, op in launched(subject.module).items():
        if work_of(op) > 500_000:
            continue
        tally = KernelSubject(subject, name).mutants(6, seed=7)
        assert not tally.alarms
        assert not tally.escapes
        total += tally.total
    tally = judge_host(subject, 12, seed=7)
    assert not tally.escapes
    assert total + tally.total >= 30


def test_no_mutant_of_a_random_kernel_escapes() -> None:
    for subject in random_subjects(6):
        for name in launched(subject.module):
            tally = KernelSubject(subject, name).mutants(8, seed=7)
            assert not tally.alarms
            assert not tally.escapes


def differs(subject: KernelSubject, kernel) -> bool:
    """Whether some order of instructions ends with other bytes than program order, or gets stuck."""
    plain = subject.outcome(kernel, False, 1)
    used = sorted({o.PIPE.value for o in kernel.walk() if isinstance(o, NpuOp) and hasattr(o, "PIPE")})
    try:
        return any(
            not np.array_equal(plain, subject.outcome(kernel, False, 3 + i, s))
            for i, s in enumerate(schedules(used, 6))
        )
    except Stuck:
        return True


@pytest.mark.parametrize("name", ["contract_1", "reduce_1"])
def test_the_oracle_sees_a_missing_flag(name: str) -> None:
    """Each flag of a minimal kernel is there for a race that some order shows, but for those that are only
    there so that another one is not raised twice: the oracle counts flags."""
    from tilewright.machine import Machine

    subject = KernelSubject(example("gpt2:tiny", "ascend-910b1"), name)
    subject.original(False)
    assert not differs(subject, subject.kernel)
    rng = random.Random(3)
    seen = []
    for _ in range(12):
        mutant = subject.kernel.clone()
        assert drop_flag(mutant, rng, Machine.load("ascend-910b1")) is not None
        seen.append(differs(subject, mutant))
    assert sum(seen) >= 9


def test_the_oracle_sees_an_overlap() -> None:
    from tilewright.machine import Machine

    subject = KernelSubject(example("gpt2:tiny", "ascend-910b1"), "contract_3")
    wanted = subject.original(False)
    rng = random.Random(5)
    changed = caught = 0
    for _ in range(10):
        mutant = subject.kernel.clone()
        if shift_address(mutant, rng, Machine.load("ascend-910b1")) is None:
            continue
        verdict, _ = subject.judge(mutant, False)
        caught += verdict == "checker"
        if verdict == "checker":
            try:
                changed += not np.array_equal(subject.outcome(mutant, False, 1), wanted)
            except (Crash, Stuck):
                changed += 1
    assert caught
    assert changed


def test_the_oracle_moves_what_the_interpreter_moves() -> None:
    """A kernel that only moves data leaves the bytes that the interpreter leaves."""
    x = np.random.default_rng(0).integers(0, 1000, (40, 24)).astype(np.int32)
    program = tw.compile(lambda x: x.T[::2], x)
    names = launched(program.module())
    assert len(names) == 1
    ((_, kernel),) = names.items()
    assert {o.name for o in kernel.walk() if isinstance(o, NpuOp)} >= {"npu.load_nd", "npu.store_nd"}
    assert not any(isinstance(o, VectorOp) for o in kernel.walk())
    wanted = np.asarray(program(x))
    arena = np.zeros(1 << 14, np.uint8)
    arena[: x.nbytes] = np.frombuffer(x.tobytes(), np.uint8)
    Launch(kernel, program.machine, Device(arena), [0, 8192]).run(Schedule(0, 1.0))
    np.testing.assert_array_equal(arena[8192:][: wanted.nbytes].view(np.int32).reshape(wanted.shape), wanted)
