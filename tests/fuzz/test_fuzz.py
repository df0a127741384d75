"""A sample of `make fuzz`, and the fuzzer's own parts: programs repeat, reproducers stand alone, shrinking shrinks."""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from loading import module_at
from tiering import ALL

import tilewright as tw
from fuzz import campaign
from fuzz.compare import Judge, judge
from fuzz.generate import walk
from fuzz.shrink import reduced
from fuzz.tables import TABLE, program_of
from tilewright.backends.functions import values

SAMPLE = 40 if ALL else 16
"""Programs of the sample, from seed 0 on."""


def options(**given: object) -> argparse.Namespace:
    usual = {
        "seed": 0,
        "count": 1,
        "seconds": 0,
        "only": "",
        "levels": "",
        "kind": campaign.RANDOM,
        "jobs": 1,
        "patience": 120,
        "log": None,
    }
    return argparse.Namespace(**usual | given)


def test_a_sample_of_the_campaign() -> None:
    """In a process of its own, whose compiler is told to be quick."""
    found = campaign.campaign(options(count=SAMPLE))
    assert found.programs == SAMPLE
    assert not found.failures, found.failures
    assert found.counts["refused"] <= 2
    assert min(found.counts[level] for level in ("graph", "tile", "npu", "bytes", "text", "report")) >= SAMPLE // 8


def test_a_seed_gives_one_program() -> None:
    for seed in (3, 4, 13, 20):
        assert program_of(seed).text == program_of(seed).text


def test_every_generator_is_used() -> None:
    kinds = Counter(s.kind for seed in range(150) for s in walk(program_of(seed).main))
    assert {name for name, _, _ in TABLE} <= set(kinds)
    assert all(s.results for s in walk(program_of(7).main))


def test_only_the_generators_asked_for() -> None:
    kinds = {s.kind for seed in range(20) for s in walk(program_of(seed, "matmul,reduce").main)}
    assert kinds <= {"matmul", "reduce", "constant"}


def test_a_reproducer_stands_alone(tmp_path: Path) -> None:
    program = next(p for p in map(program_of, range(100)) if p.steps() > 6 and not p.x64)
    file = tmp_path / "reproducer.py"
    file.write_text(program.text)
    module = module_at(file)
    got = jax.tree.leaves(module.program(*module.program_inputs()))
    want = jax.tree.leaves(program.function()(*program.arguments()))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_wrong_function_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    made = (program_of(seed, "unary,reshape,cond,fori,call") for seed in range(0, 400, 2))
    some = (p for p in made if p.steps() > 8 and "jnp.cos(" in p.text and not p.x64)
    right = values.SCALAR["cos"]

    def wrong(x: jax.Array) -> jax.Array:
        return right(x) + jax.numpy.ones((), x.dtype)

    for program in itertools.islice(some, 4):
        values.SCALAR["cos"] = right
        assert judge(program, "ascend-910b1", ["graph"]).ok
        monkeypatch.setitem(values.SCALAR, "cos", wrong)
        if judge(program, "ascend-910b1", ["graph"]).kind == "mismatch":  # not where the branch is not taken
            break
    else:
        pytest.fail("no program shows it")
    small = reduced(program, lambda p: "jnp.cos(" in p.text)
    assert small.steps() == 1
    assert judge(small, "ascend-910b1", ["graph"]).kind == "mismatch"


def test_what_xla_makes_of_the_whole_is_held_against_the_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is JAX's op by op is no mismatch where the whole program gives another; any third one is."""
    against = Judge._against_jax

    def disturbed(self: Judge, got: list[Any]) -> None:
        self.want = [x + np.ones((), x.dtype) for x in self.want]
        against(self, got)

    program = program_of(8, "matmul,dot_general")
    assert not judge(program, "ascend-910b1", ["graph"]).disputed
    monkeypatch.setattr(Judge, "_against_jax", disturbed)
    verdict = judge(program, "ascend-910b1", ["graph"])
    assert verdict.ok and "must be" in verdict.disputed
    monkeypatch.setattr(Judge, "_against_jax", lambda self, got: disturbed(self, [x * 2 + 3 for x in got]))
    assert judge(program, "ascend-910b1", ["graph"]).kind == "mismatch"


def test_a_crash_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise tw.CompileError("no 17 ways: here")

    monkeypatch.setattr(Judge, "_lower", refuse)
    verdict = judge(program_of(0), "ascend-910b1", ["npu"])
    assert (verdict.kind, verdict.where) == ("crash", "frontend")
    assert "no 17 ways" in verdict.message


@pytest.mark.parametrize(
    ("dies", "verdict"),
    [
        ([()], "crash process"),
        ([(), ("alone",)], "fine apart"),
        ([(), ("alone",), ("apart",)], "crash process"),
        ([(), ("alone",), ("apart",), ("apart", "alone")], "refused"),
    ],
)
def test_whose_crash_it_is(
    dies: list[tuple[str, ...]], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where JAX alone dies of a program, it is held against JAX op by op, and where that dies, JAX has refused it."""

    def ask(self: campaign.Worker, seed: int, *how: str) -> dict[str, Any]:
        died = how in dies
        return {"key": campaign.DIED if died else " ".join(["fine", *how]), "kind": "crash" if died else ""}

    monkeypatch.setattr(campaign.Worker, "ask", ask)
    found = campaign.Worker(options()).judge(7)
    if verdict == "refused":
        assert found["refused"] and not found["kind"]
    else:
        assert (found["key"], found["kind"]) == (verdict, "crash" if verdict == campaign.DIED else "")


def test_op_by_op_and_alone() -> None:
    worker = campaign.Worker(options())
    try:
        assert worker.ask(1)["seconds"].keys() >= {"reference", "graph", "npu"}
        assert worker.ask(1, "alone")["seconds"].keys() == set()
        found = worker.ask(1, "apart")
        assert found["apart"] and not found["kind"] and found["elements"]
    finally:
        worker.stop()


def test_a_process_that_dies_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next program runs in a new one."""
    worker = campaign.Worker(options(levels="graph"))
    try:
        assert worker.judge(1)["kind"] == ""
        first = worker.process
        assert first is not None
        first.kill()
        first.wait()
        assert worker.judge(1)["kind"] == ""
        assert worker.process is not first
        worker.options.patience = 0
        assert worker.judge(2)["kind"] == "hang"
    finally:
        worker.stop()
