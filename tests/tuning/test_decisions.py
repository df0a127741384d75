"""Decisions of graph-schedule that a source of plans makes otherwise: what tuning finds of whole programs is kept and
taken, and what is known changes no values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import Schedule
from tilewright.machine import Machine
from tilewright.passes.decisions import Decision, Option
from tilewright.passes.known_plans import KnownPlan
from tilewright.tuning.subgraphs import Whole, best_whole


@dataclass
class Deciding:
    """A source that knows no plans, and decides some kinds of decisions by their last option."""

    kinds: Sequence[str] = ()
    option: str | None = None
    asked: list[Decision] = field(default_factory=list[Decision])
    explores: bool = True
    binding: bool = False
    records: bool = False

    def find(self, fusion: FusionOp, machine: Machine) -> Sequence[KnownPlan] | None:
        return None

    def near(self, fusion: FusionOp, machine: Machine) -> Sequence[Schedule]:
        return ()

    def refuse(self, fusion: FusionOp, why: str) -> None: ...

    def chosen(self, fusion: FusionOp, schedules: Sequence[Schedule], machine: Machine) -> None: ...

    def decides(self, machine: Machine) -> bool:
        return True

    def decided(self, decision: Decision) -> str:
        self.asked.append(decision)
        if decision.kind not in self.kinds:
            return decision.default
        others = [name for name, _ in decision.options if name != decision.default]
        return self.option or (others or [decision.default])[-1]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def few_results(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def test_every_number_of_parts(rng: np.random.Generator) -> None:
    """A product of few results and long sums, in each way that there is: the same values but for rounding, and the
    program is the one that is asked for."""
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((16, 3072), (3072, 32)))
    asked = Deciding()
    default = tw.compile(few_results, x, w, options=tw.Options(plans=asked))
    (sums,) = (d for d in asked.asked if d.kind == "split-k")
    names = [name for name, _ in sums.options]
    assert sums.default in names and len(names) == len(set(names)) > 6
    assert {"#graph.cube_schedule<split_k = 3>", "#graph.cube_schedule<split_k = 12>"} <= set(names)
    whole = [name for name in names if "split_k" not in name]
    for name in [*whole, "#graph.cube_schedule<split_k = 3>", "#graph.cube_schedule<split_k = 12>"]:
        program = tw.compile(few_results, x, w, options=tw.Options(plans=Deciding(["split-k"], name)))
        np.testing.assert_allclose(program(x, w), few_results(x, w), atol=2e-5)
        cut = "split_k" in name
        kernels = len(program.report().kernels)
        assert kernels > 1 if cut else kernels == 1
    # what is not known how to be done is not done
    odd = tw.compile(few_results, x, w, options=tw.Options(plans=Deciding(["split-k"], "by magic")))
    assert odd.report().microseconds == default.report().microseconds


def normed(x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
    y = x @ w
    return y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * g


def test_alternatives_here_and_there(rng: np.random.Generator) -> None:
    """An alternative that stands for some fusions is left out, or taken against its price, of these alone."""
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((512, 256), (256, 256)))
    g = np.ones(256, np.float32)
    asked = Deciding()
    tw.compile(normed, x, w, g, options=tw.Options(plans=asked))
    offers = [d for d in asked.asked if {name for name, _ in d.options} == {"taken", "left"}]
    assert offers and all(d.default in ("taken", "left") and len(d.key) == 64 for d in offers)
    assert all(d.loss(d.default) == 0.0 for d in offers)
    first = offers[0]
    other = tw.compile(normed, x, w, g, options=tw.Options(plans=Deciding([first.kind])))
    again = tw.compile(normed, x, w, g, options=tw.Options(plans=Deciding()))
    assert len(other.report().kernels) != len(again.report().kernels)
    np.testing.assert_allclose(other(x, w, g), normed(x, w, g), atol=1e-4)


def test_layouts(rng: np.random.Generator) -> None:
    """An operand of a product gets no other layout, or another one than the price gives it."""
    specs = [jax.ShapeDtypeStruct(s, "float16") for s in ((1024, 1000), (1000, 1500))]
    asked = Deciding()
    program = tw.compile(jnp.matmul, *specs, options=tw.Options(plans=asked))
    found = [d for d in asked.asked if d.kind in ("pitch", "transposed")]
    assert found and all(d.options[0] == Option("as it is", 0.0) for d in found)
    kinds = {d.kind for d in found}
    other = tw.compile(jnp.matmul, *specs, options=tw.Options(plans=Deciding(tuple(kinds), "as it is")))
    padded = any(d.default != "as it is" for d in found)
    assert padded == (other.report().microseconds != program.report().microseconds)
    a, b = (rng.standard_normal(s.shape).astype(np.float16) for s in specs)
    np.testing.assert_array_equal(other(a, b), program(a, b))


def test_search() -> None:
    """What helps alone and together, what does harm, and what cannot be compiled, within a budget."""
    decisions = [
        Decision("pooled", "k0", "a", (Option("taken", 3.0), Option("left", 4.0)), "taken"),
        Decision("split-k", "k1", "b", (Option("1", 5.0), Option("2", 5.1), Option("4", 9.0)), "1"),
        Decision("pitch", "k2", "c", (Option("0", 1.0), Option("8", 1.5)), "0"),
    ]
    asked: list[Whole] = []

    def judge(whole: Whole) -> float:
        asked.append(whole)
        decided, without = dict(whole.decided), {*whole.without}
        if "banks" in without:
            return float("inf")
        gain = 5 * (decided.get("k1") == "4") + 2 * (decided.get("k0") == "left") + 3 * ("join" in without)
        return 100.0 - gain + 7 * ("k2" in decided) + 4 * ("bands" in without)

    names = ["fusion", "banks", "bands", "join"]
    found = best_whole(names, decisions, judge, 30, 100.0)
    assert found.value == 90.0 and found.best == Whole(("join",), (("k0", "left"), ("k1", "4")))
    assert found.tried == len(asked) == len({*asked}) <= 30
    assert not any("fusion" in whole.without for whole in asked)
    # an option that the price is least sure of comes first
    assert next(w.decided for w in asked if w.decided) == (("k1", "2"),)
    assert best_whole(names, decisions, lambda _: 100.0, 3, 100.0).best == Whole()
    assert best_whole([], [], judge, 3, 100.0).tried == 0


def two_norms(x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
    return normed(jax.nn.relu(normed(x, w, g)), w, g)


def test_tuned_decisions_are_kept(tmp_path: Path, rng: np.random.Generator) -> None:
    """What a whole program is better with is in the report and in the knowledge base, and the next compilation takes
    it; values stay."""
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((300, 256), (256, 256), (256,))]
    store = tmp_path / "plans.sqlite"
    tuned = tw.tune(two_norms, *args, budget="2s", evaluations=50, alternatives=12, store=store)
    report = tuned.report
    assert report.after <= report.before
    kept = [e for e in tuned.store.entries() if e.family == "decisions"] if tuned.store else []
    assert sorted(e.plan for e in kept) == sorted(d.taken for d in report.decided)
    again = tw.compile(two_norms, *args, options=tuned.options)
    assert again.report().microseconds == pytest.approx(report.after)
    values = [rng.standard_normal(a.shape).astype(np.float32) for a in args]
    np.testing.assert_allclose(again(*values), two_norms(*values), atol=1e-4)
