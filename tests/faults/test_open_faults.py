"""A sample of the mutants of kernels with open dimensions: nothing escapes, and the judge is not blind."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from mutation import Mutation
from open_campaign import GUARDS, PROGRAMS, Judge, random_program, written
from open_mutants import OPEN_MUTATIONS, change, changed, places
from tiering import sampled

from tilewright.dialects.affine import Expr, Symbol
from tilewright.dialects.npu import WaitFlagOp
from tilewright.dialects.npu.structure import KernelOp
from tilewright.dialects.open_sizes import OpenSize, is_open
from tilewright.passes.templates import NoTemplate, check_template

TARGET = "ascend-910b1"


@sampled(2)
@pytest.mark.parametrize("name", ["product", "rows", "parts", "table", "softmax", "attention"])
def test_no_mutant_escapes(name: str) -> None:
    assert name in PROGRAMS
    total: Counter[str] = Counter()
    for subject in written(name, 2, TARGET):
        tally = Judge(subject).mutants(8, seed=5)
        assert not tally.escapes
        for (_, verdict), count in tally.counts.items():
            total[verdict] += count
    assert total["verifier"] + total["checker"] >= 3


def test_a_constraint_that_is_dropped_is_missed() -> None:
    """At sizes that break it the instance is no program, has a hazard, or computes something else."""
    verdicts = Counter(
        verdict
        for seed in (16,)  # one of few programs whose version assumes something that is needed
        for subject in random_program(seed, 1, TARGET)
        for (kind, verdict), count in Judge(subject).guards(1, seed=0).counts.items()
        for _ in range(count)
        if kind == GUARDS
    )
    assert verdicts["checker"] + verdicts["values"] >= 1


def kernel_of(name: str) -> tuple[Judge, str, KernelOp]:
    (subject,) = written(name, 2, TARGET)
    (kernel,) = (op for op in subject.template.module.ops if isinstance(op, KernelOp))
    return Judge(subject), str(kernel.sym_name.data), kernel


@sampled(3)
@pytest.mark.parametrize(
    ("name", "what", "said"),
    [
        ("rows", "trip count", "checker"),
        ("elementwise", "extent", "verifier checker"),
        ("elementwise", "grid", "verifier checker harmless"),
        ("rows", "place", "checker values"),
        ("rows", "stride", "verifier checker"),
    ],
)
def test_each_kind_of_open_number_is_changed_and_judged(name: str, what: str, said: str) -> None:
    judge, called, kernel = kernel_of(name)
    assert places(kernel, what)
    seen: Counter[str] = Counter()
    for seed in range(12):
        mutation: Mutation = change(what)
        mutant = kernel.clone()
        if mutation(mutant, random.Random(seed), judge.machine) is not None:
            seen[judge.verdict(called, mutant)[0]] += 1
    assert not seen["ESCAPED"] and any(seen[verdict] for verdict in said.split())


def test_every_kind_of_mutation_is_drawn() -> None:
    (subject,) = written("rows", 1, TARGET)
    kinds = {kind for kind, _ in Judge(subject).mutants(24, seed=1).counts}
    assert len(kinds) >= len(OPEN_MUTATIONS) - 1


def test_a_changed_number_is_another_one() -> None:
    number = OpenSize.of(Expr.of(Symbol("b", 3, 9), 2))
    made = {str(changed(number, random.Random(seed))) for seed in range(40)}
    assert {"2*b + 1", "2*b - 1", "4*b", "b", "6", "18"} <= made
    assert any(is_open(changed(number, random.Random(seed))) for seed in range(5))


def test_what_the_check_of_a_template_misses_is_judged_at_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge whose check of templates finds nothing still sees the flag that is missing."""
    judge, called, kernel = kernel_of("elementwise")
    mutant = kernel.clone()
    flag = next(op for op in mutant.walk() if isinstance(op, WaitFlagOp))
    flag.detach()
    subject = judge.subject
    broken = subject.template.module.clone()
    old = next(op for op in broken.ops if isinstance(op, KernelOp))
    broken.body.block.insert_op_before(mutant.clone(), old)
    old.detach()
    with pytest.raises(NoTemplate):
        check_template(replace(subject.template, module=broken), judge.names)
    monkeypatch.setattr("open_campaign.check_template", lambda *_: None)
    assert judge.verdict(called, mutant)[0] == "checker"
