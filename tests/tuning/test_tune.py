"""Tuning: no program is slower, values stay, what is known is not searched for again, and oracles are asked."""

from __future__ import annotations

import shlex
import sys
import warnings
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.costs import build_report
from tilewright.cli.main import main
from tilewright.knowledge.base import KnowledgeBase, KnowledgeWarning
from tilewright.tuning.alone import CommandJudge, LaunchQuestion, Measured, SimulatorJudge, lowered


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.maximum(x @ w, 0), -1)


ARGS = [jax.ShapeDtypeStruct(s, "float16") for s in ((256, 192), (192, 320))]


def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(a.shape).astype(a.dtype) for a in ARGS]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Tuned, Path]:
    path = tmp_path_factory.mktemp("tuned") / "plans.sqlite"
    return tw.tune(layer, *ARGS, budget="1h", evaluations=40_000, verify=3, store=path), path


def test_no_program_is_slower(tuned: tuple[tw.Tuned, Path]) -> None:
    report, plain = tuned[0].report, tw.compile(layer, *ARGS)
    assert report.before == plain.report().microseconds
    assert report.after == tuned[0].program.report().microseconds <= report.before
    assert sum(k.launches for k in report.kernels) == 2
    for kernel in report.kernels:
        assert kernel.after <= kernel.before and kernel.work_after <= kernel.work_before
        assert 0 < kernel.bound <= kernel.priced and kernel.evaluations > 0
        assert kernel.certified == (kernel.bound == kernel.priced) or not kernel.certified
    assert any(k.after < k.before for k in report.kernels)


def test_a_plot(tuned: tuple[tw.Tuned, Path], tmp_path: Path) -> None:
    tuned[0].report.plot(tmp_path / "best.svg")
    drawn = (tmp_path / "best.svg").read_text()
    assert "<svg" in drawn and len(drawn) > 5000
    with pytest.raises(tw.CompileError, match="No such file or directory"):
        tuned[0].report.plot(tmp_path / "none" / "best.svg")


def test_values_stay(tuned: tuple[tw.Tuned, Path]) -> None:
    got, want = tuned[0].program(*arrays()), layer(*map(jnp.asarray, arrays()))
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), atol=2e-3)
    same = tuned[0].program(*arrays(), mode="bytes")
    assert np.asarray(same).tobytes() == np.asarray(got).tobytes()


def test_a_compilation_takes_what_is_known(tuned: tuple[tw.Tuned, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found, path = tuned
    options = tw.Options(plans=path)
    report = tw.compile(layer, *ARGS, options=options).report()
    assert report.microseconds == found.report.after
    assert report.known_plans >= 1 and "as the knowledge base says" in report.table(120)
    monkeypatch.setenv("TILEWRIGHT_PLANS", str(path))
    assert tw.compile(layer, *ARGS).report().microseconds == found.report.after
    off = tw.compile(layer, *ARGS, options=tw.Options(plans="")).report()
    assert off.microseconds == found.report.before and off.known_plans == 0


def test_what_is_proven_is_not_searched_for_again(tuned: tuple[tw.Tuned, Path], tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    base = KnowledgeBase(path)
    base.add(replace(e, certified=True) for e in KnowledgeBase(tuned[1]).entries())
    again = tw.tune(layer, *ARGS, store=path)
    assert all(k.evaluations == 0 and k.how == "known" for k in again.report.kernels)
    assert again.report.after == tuned[0].report.after


def test_another_machine_knows_nothing(tuned: tuple[tw.Tuned, Path]) -> None:
    options = tw.Options(plans=tuned[1])
    assert tw.compile(layer, *ARGS, target="ascend-310p3", options=options).report().known_plans == 0


def test_kernels_of_other_sizes_have_plans_made_to_fit(tuned: tuple[tw.Tuned, Path]) -> None:
    other = [jax.ShapeDtypeStruct((272, 176), "float16"), jax.ShapeDtypeStruct((176, 336), "float16")]
    plain, near = (tw.compile(layer, *other, options=tw.Options(plans=p)) for p in ("", tuned[1]))
    assert near.report().known_plans >= 1
    assert near.report().microseconds <= plain.report().microseconds * 1.05  # the price chooses, and is that exact


@pytest.mark.parametrize(
    "plan",
    [
        "#graph.vector_schedule<tile = [8, 8], grid = [1, 1], ub = 2>",
        "#graph.cube_schedule<axes = [[0], [1], [2]], step = [4096, 16, 16], lhs = [16, 16, 16], rhs = [16, 16, 16], "
        "grid = [1, 1, 1], inner = m, l1 = 2, l0a = 2, l0b = 2, l0c = 2, ub = 2>",
        "#graph.data<f32, [], (0.0)>",
        "junk",
        "",
    ],
)
def test_plans_of_others_do_no_harm(tuned: tuple[tw.Tuned, Path], tmp_path: Path, plan: str) -> None:
    """A plan that cannot be read or obeyed is left out with one line; one of another kind is none of the kernel's."""
    path = tmp_path / "plans.sqlite"
    KnowledgeBase(path).add(replace(e, plan=plan) for e in KnowledgeBase(tuned[1]).entries())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", KnowledgeWarning)
        report = tw.compile(layer, *ARGS, options=tw.Options(plans=path)).report()
    assert report.microseconds == tuned[0].report.before and report.known_plans == 0
    assert all("a plan is left out" in str(w.message) or "is left out: " in str(w.message) for w in said)


IMPOSSIBLE = Measured(inf)


def question() -> LaunchQuestion:
    module = (
        '"builtin.module"() ({\n  func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {\n'
        '    %y = graph.fusion %x {domain = [64, 64], kind = "vector"} : tensor<64x64xf32> {\n'
        "    ^bb0(%0: tensor<64x64xf32>):\n"
        "      %e = graph.exp %0 attributes {axes = array<i64: 0, 1>} : tensor<64x64xf32>\n"
        "      graph.yield %e : (tensor<64x64xf32>)\n    }\n    func.return %y : tensor<64x64xf32>\n  }\n"
        '}) {tilewright.target = "ascend-910b1", tilewright.states = ["fused"]} : () -> ()'
    )
    schedule = "#graph.vector_schedule<axes = [[0, 1]], tile = [1024], grid = [4], ub = 2>"
    return LaunchQuestion(module, schedule, "ascend-910b1")


def test_judges() -> None:
    simulator = SimulatorJudge()
    (alone,) = simulator.measure([question()])
    wrong = replace(question(), schedule=question().schedule.replace("1024", "4096000"))
    assert 0 < alone.microseconds < 10 and simulator.measure([wrong, question()]) == [IMPOSSIBLE, alone]
    report = build_report(lowered(question()), tw.Machine.load("ascend-910b1"))
    assert (alone.microseconds, alone.joules) == (report.microseconds, pytest.approx(report.energy_joules))
    assert sum(k.energy_joules for k in report.kernels) == pytest.approx(report.energy_joules)
    assert alone.watts == pytest.approx(report.watts) == pytest.approx(report.kernels[0].watts)


WRITES = "open(sys.argv[2], 'w').write("


@pytest.mark.parametrize(
    ("code", "measured"),
    [
        (
            f"import sys; assert 'npu.kernel' in open(sys.argv[1]).read(); {WRITES}'{{\"microseconds\": 7}}')",
            Measured(7.0),
        ),
        (f"import sys; {WRITES}'{{\"microseconds\": 7, \"joules\": 0.5}}')", Measured(7.0, 0.5)),
        (f"import sys; {WRITES}'{{\"microseconds\": \"7\"}}')", IMPOSSIBLE),
        (f"import sys; {WRITES}'{{\"microseconds\": NaN}}')", IMPOSSIBLE),
        (f"import sys; {WRITES}'[]')", IMPOSSIBLE),
        (f"import sys; {WRITES}'{{')", IMPOSSIBLE),
        ("import sys; sys.exit(1)", IMPOSSIBLE),
        ("import time; time.sleep(60)", IMPOSSIBLE),
        ("pass", IMPOSSIBLE),
    ],
)
def test_a_command_that_measures(code: str, measured: Measured) -> None:
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {{npu}} {{out}}"
    judge = CommandJudge(command, seconds=2.0 if "sleep" in code else 60.0)
    assert judge.measure([question()]) == [measured]
    assert CommandJudge("/there/is/none {npu}").measure([question()]) == [IMPOSSIBLE]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('no device')", "command measured none of the kernels: it ended with 1: no device"),
        ("pass", r'it wrote nothing such as {"microseconds": 12.5}'),
        (f"import sys; {WRITES}'{{\"microseconds\": NaN}}')", "it wrote nan as its microseconds"),
        ("import time; time.sleep(60)", "it took longer than 2 s"),
    ],
)
def test_a_command_that_measures_nothing(code: str, said: str) -> None:
    judge = CommandJudge(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {{npu}} {{out}}", seconds=2.0)
    with pytest.raises(tw.CompileError, match=said):
        tw.tune(lambda x: jnp.exp(x), jax.ShapeDtypeStruct((64, 64), "float32"), oracle=judge)
    with pytest.raises(tw.CompileError, match="it cannot be run: No such file"):
        tw.tune(jnp.exp, jax.ShapeDtypeStruct((8, 8), "float32"), oracle=CommandJudge("/there/is/none {npu}"))


def test_what_the_judge_says_counts() -> None:
    """With a judge that says that all plans but the first take twice as long, nothing changes."""

    class Judge:
        name = "twice"

        def measure(self, questions: list[LaunchQuestion]) -> list[Measured]:
            self.first = getattr(self, "first", None) or {}
            for q in questions:
                self.first.setdefault(q.module, q.schedule)
            return [Measured(10.0 if self.first[q.module] == q.schedule else 20.0) for q in questions]

    judge: Any = Judge()
    found = tw.tune(layer, *ARGS, oracle=judge, budget=0, evaluations=100)
    assert found.report.after == found.report.before
    assert all(k.before == k.after == 10.0 and isfinite(k.priced) for k in found.report.kernels)


@pytest.mark.parametrize("search", ["genetic", "tree", "random"])
def test_searches_that_prove_nothing(search: str) -> None:
    found = [tw.tune(layer, *ARGS, search=search, evaluations=60, verify=1, seed=3).report for _ in range(2)]
    assert found[0].kernels == found[1].kernels and found[0].after <= found[0].before
    assert not any(k.certified for k in found[0].kernels)
    assert all(0 < k.evaluations <= 120 for k in found[0].kernels)


def test_alternatives_are_left_out_where_that_is_faster(tmp_path: Path) -> None:
    found = tw.tune(layer, *ARGS, evaluations=50, alternatives=24, store=tmp_path / "p.sqlite")
    assert found.report.after <= found.report.before
    again = tw.compile(layer, *ARGS, options=found.options).report().microseconds
    assert again == pytest.approx(found.report.after)
    assert {*found.report.without} <= {*found.options.without}


def test_mistakes() -> None:
    with pytest.raises(tw.CompileError, match="there is no search 'best'; there are exact, random"):
        tw.tune(layer, *ARGS, search="best")
    with pytest.raises(tw.CompileError, match="tune: budget: 'soon' is no time"):
        tw.tune(layer, *ARGS, budget="soon")
    with pytest.raises(tw.CompileError, match="layer has open sizes: b; say for which it is tuned, with at="):
        tw.tune(layer, *open_args())
    with pytest.raises(tw.CompileError, match="at= is for programs with open sizes, and layer has none"):
        tw.tune(layer, *ARGS, at={"b": 3})
    with pytest.raises(tw.CompileError, match="has no size 'c'"):
        tw.tune(layer, *open_args(), at={"c": 3})


def open_args() -> list[jax.ShapeDtypeStruct]:
    (b,) = jax.export.symbolic_shape("b")
    return [jax.ShapeDtypeStruct((b, 192), "float16"), ARGS[1]]


def test_open_sizes(tmp_path: Path) -> None:
    """A program with open sizes is tuned for those that it is asked for, and its other sizes have right values."""
    store = tmp_path / "p.sqlite"
    found = tw.tune(layer, *open_args(), at={"b": 200}, evaluations=20_000, store=store)
    report = found.report
    assert report.after < report.before and {k.launches for k in report.kernels} == {1}
    assert all(k.certified and k.kernels for k in report.kernels)
    again = tw.compile(layer, *open_args(), options=tw.Options(plans=store))
    known = again.report(at={"b": 200})
    assert known.microseconds == report.after and known.known_plans >= 1
    for rows in (1, 67, 256, 300):
        x, w = (a.astype("float16") for a in (np.random.default_rng(rows).normal(size=(rows, 192)), arrays()[1]))
        np.testing.assert_allclose(again(x, w), layer(x, w), atol=2e-3)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.tw").write_text("fn f(x: f32[64, 64]) -> f32[64, 64] {\n    return exp(x) + 1.0\n}\n")
    assert main(["tune", "f.tw", "--evaluations", "500", "--plans", "p.sqlite"]) == 0
    assert "plans are kept in p.sqlite" in capsys.readouterr().out
    assert main(["kb", "export", "p.sqlite", "-o", "p.jsonl"]) == main(["kb", "import", "q.sqlite", "p.jsonl"]) == 0
    assert main(["kb", "merge", "q.sqlite", "p.sqlite"]) == 0
    assert KnowledgeBase("q.sqlite").entries() == KnowledgeBase("p.sqlite").entries() != []
    assert main(["kb", "prune", "q.sqlite"]) == 0 and len(KnowledgeBase("q.sqlite").entries()) == 2
    assert main(["kb", "prune", "q.sqlite", KnowledgeBase("q.sqlite").entries()[0].kernel[:8]]) == 0
    assert KnowledgeBase("q.sqlite").entries() == []
    capsys.readouterr()
    for words in (
        ["kb", "list", "none.sqlite"],
        ["kb", "merge", "q.sqlite"],
        ["kb", "import", "q.sqlite", "f.tw"],
        ["tune", "f.tw", "--oracle", "measure"],
        ["kb", "import", "f.tw", "p.jsonl"],
        ["tune", "f.tw", "--verify", "0"],
    ):
        assert main(words) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_pieces_of_cut_sums_are_kernels(tmp_path: Path) -> None:
    """What makes the program no better is kept, but not taken: the next compilation is no slower than without."""
    path, args = tmp_path / "plans.sqlite", [jax.ShapeDtypeStruct(s, "float16") for s in ((16, 30000), (30000, 128))]

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w

    report = tw.tune(product, *args, search="genetic", evaluations=150, store=path).report
    assert [k.name for k in report.kernels] == ["contract", "reduce"]
    entries, again = KnowledgeBase(path).entries(), tw.compile(product, *args, options=tw.Options(plans=path)).report()
    assert len(entries) == 4 and again.microseconds == report.after <= report.before
    if report.after == report.before:
        assert all(e.withdrawn for e in entries if e.microseconds < e.before)
