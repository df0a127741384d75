"""Alternatives: left out by name in every spelling, with the same values; those of others, and their faults."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled, whole
from xdsl.ir import Block, Operation

import tilewright as tw
from tilewright.cli.dispatch import dispatch
from tilewright.dialects.base import text
from tilewright.dialects.graph import FusionOp
from tilewright.passes import alternatives as table
from tilewright.passes.alternatives import (
    FORMER,
    OURS,
    POOLED,
    ROW_EPILOGUE,
    Alternative,
    check_names,
    listing,
)
from tilewright.passes.choose import rewrites
from tilewright.passes.choose.oversized import FusionParts, members_of
from tilewright.passes.choose.rewrites import Offer, Proposal, Rewrites, Verdict
from tilewright.passes.errors import FusionWarning, PassError
from tilewright.passes.forms.fingerprint import structure
from tilewright.passes.pipeline import PIPELINE

KEYS = jax.random.split(jax.random.key(3), 8)


def array(i: int, *shape: int) -> jax.Array:
    return (jax.random.normal(KEYS[i], shape, "float32") / shape[-1] ** 0.5).astype("float16")


# -- the list ------------------------------------------------------------------------------------------------


def test_names_are_unique_and_passes_exist() -> None:
    names = [each.name for each in OURS]
    assert len(set(names)) == len(names)
    passes = {stage.name for stage in PIPELINE}
    for each in OURS:
        assert each.stages and set(each.stages) <= passes
        assert each.name in listing()


def test_the_options_of_before_are_those_of_the_list() -> None:
    parameters = [name for name in tw.Options.__init__.__annotations__ if name in FORMER]
    assert parameters == list(FORMER)


@pytest.mark.parametrize(
    "given", ["pooled,pitch", {"pitch", "pooled"}, ["pooled", "pitch", "pitch"], ("pitch", "pooled")]
)
def test_spellings_of_options(given: Any) -> None:
    options = tw.Options(without=given)
    assert options.without == ("pitch", "pooled")
    assert not options.may("pitch") and options.may("transposed")
    assert dataclasses.replace(options, check=False).without == options.without
    assert hash(options) == hash(tw.Options(without="pitch,pooled"))


@pytest.mark.parametrize("former", list(FORMER))
def test_an_option_of_before(former: str) -> None:
    name = FORMER[former]
    said = "does nothing any more" if name is None else f"without={{'{name}'}}"
    with pytest.warns(DeprecationWarning, match=said):
        options = tw.Options(**{former: False})
    assert options.without == ((name,) if name else ())
    with pytest.warns(DeprecationWarning, match=former):
        assert dataclasses.replace(options, **{former: True}).without == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"turned"}, "no alternative is called 'turned'; did you mean transposed?"),
        ("pooledd", "did you mean pooled"),
        ("?", "there are fusion, attention"),
        (3, "without must be the names of alternatives, not 3"),
        ([3], "without must be the names of alternatives"),
    ],
)
def test_what_is_no_alternative(given: Any, said: str) -> None:
    with pytest.raises(tw.CompileError) as caught:
        tw.Options(without=given)
    assert said in str(caught.value)


def test_what_is_no_alternative_for_a_pass() -> None:
    check_names([each.name for each in OURS])
    with pytest.raises(PassError, match="no alternative is called 'joined'; did you mean join"):
        check_names(["joined"])


# -- values --------------------------------------------------------------------------------------------------


def layers(x: Any, w: Any, v: Any, u: Any) -> tuple[Any, ...]:
    """Attention, a product with a norm of its rows, one that is pooled, and norms of several tensors."""
    heads = jax.nn.softmax(x @ w, axis=-1) @ v
    normed = x @ u
    normed = (normed - normed.mean(-1, keepdims=True)) / (normed.std(-1, keepdims=True) + 1)
    pooled = (x @ u).reshape(24, 2, -1).max(1)
    total = sum(jnp.sum(jnp.square(y.astype("float32"))) for y in (w, v, u))
    return heads, jnp.concatenate((normed, pooled)), w / jnp.sqrt(total).astype(w.dtype)


ARGS = array(0, 48, 64), array(1, 64, 80), array(2, 80, 48), array(3, 64, 40)


@sampled(5)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310p3", "ascend-950pr"])
@pytest.mark.parametrize("name", [*(each.name for each in OURS), "all"])
def test_values_stay(name: str, target: str) -> None:
    without = [each.name for each in OURS] if name == "all" else name
    program = tw.compile(layers, *ARGS, target=target, options=tw.Options(without=without))
    assert program.report().left_out is None
    for got, want in zip(program(*ARGS, mode="step"), layers(*ARGS), strict=True):
        np.testing.assert_allclose(np.float32(got), np.float32(want), atol=2e-2, rtol=2e-2)


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    source = tmp_path / "net.py"
    source.write_text("import jax.numpy as jnp\ndef net(x):\n    return jnp.exp(jnp.sort(x, axis=0) + 1)\n")
    found = []
    for more in ([], ["--without", "join"], ["--no-join"], ["--without", "pitch", "--without", "pooled,join"]):
        assert dispatch(["report", f"{source}:net", "--shapes", "f32[64,64]", "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["counts"]["joined"])
    assert found[0] > 0 and found[1:] == [0, 0, 0]
    assert dispatch(["report", f"{source}:net", "--shapes", "f32[64,64]", "--without", "jion"]) == 1
    assert "no alternative is called 'jion'; did you mean join" in capsys.readouterr().err


# -- alternatives of others ----------------------------------------------------------------------------------


class Halves(Rewrites):
    """Every vector fusion as two, whatever that costs."""

    MARGIN = 1e9

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        members = members_of(fusion)
        if len(members) < 2 or fusion.schedule is not None:
            return None

        def make() -> Proposal:
            parts = FusionParts(fusion, [set(members[:1]), set(members[1:])])

            def replace() -> list[FusionOp]:
                parts.replace()
                return parts.fusions

            return Proposal(parts.fusions, replace)

        return Offer([fusion], *structure(fusion), make)


class Never(Halves):
    """The same, and never taken."""

    MARGIN = 0.0


class FailsToOffer(Halves):
    """Fails by a fault of its own."""

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        raise KeyError("offer")


class FailsToMake(Halves):
    """The same, later."""

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        def fail() -> Proposal:
            raise IndexError("make")

        return Offer([fusion], *structure(fusion), fail)


class FailsToJudge(Halves):
    """The same, later still."""

    def judge(self, offer: Offer, proposal: Proposal) -> Any:
        raise ValueError("judge")


class InThree(Rewrites):
    """A fusion of six ops as three, whatever that costs."""

    MARGIN = 1e9
    PARTS = (0, 1, 2, 6)

    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        members = members_of(fusion)
        if len(members) != 6 or text(fusion.kind) != "vector":
            return None

        def make() -> Proposal:
            parts = FusionParts(fusion, [set(members[i:j]) for i, j in pairwise(self.PARTS)])

            def replace() -> list[FusionOp]:
                parts.replace()
                return parts.fusions

            return Proposal(parts.fusions, replace)

        return Offer([fusion], *structure(fusion), make)


class InTwo(InThree):
    """The same as two, which take less."""

    PARTS = (0, 2, 6)


class NeverInTwo(InTwo):
    """The same, and never taken."""

    MARGIN = 0.0


class InTwoOfUnknownTime(InTwo):
    """The same, and does not say how long they take."""

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        return Verdict(True, "")


@contextmanager
def added(monkeypatch: pytest.MonkeyPatch, *classes: type[Rewrites], place: str = "") -> Iterator[str]:
    """More alternatives in the list; gives the name of the first."""
    given = [
        Alternative(
            name="added" if number == 0 else f"added_{number}",
            does="",
            without="",
            stages=("graph-schedule",),
            rewrites=place or f"{__name__}:{cls.__name__}",
        )
        for number, cls in enumerate(classes)
    ]
    with monkeypatch.context() as patch:
        for module in (table, rewrites):
            patch.setattr(module, "alternatives", lambda: (*OURS, *given))
        yield given[0].name


def softened(x: Any) -> Any:
    return jnp.tanh(x) * jnp.exp(-jnp.abs(x)) + 1


X = np.float32(jax.random.normal(KEYS[4], (33, 65)))


def fusions(**options: Any) -> int:
    program = tw.compile(softened, X, options=tw.Options(**options))
    np.testing.assert_allclose(program(X, mode="step"), softened(X), rtol=1e-5, atol=1e-6)
    return program.ir("graph").count("graph.fusion")


def test_what_is_taken_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fusions()
    with added(monkeypatch, Halves) as name:
        assert fusions() > plain
        assert fusions(without=name) == plain
    with added(monkeypatch, Never):
        assert fusions() == plain


@pytest.mark.parametrize(
    ("classes", "many"),
    [
        ((InThree,), 3),
        ((InTwo,), 2),
        ((InThree, InTwo), 2),
        ((InTwo, InThree), 2),
        ((InThree, NeverInTwo), 3),
        ((NeverInTwo, InThree), 3),
        ((InThree, InTwoOfUnknownTime), 3),
        ((InTwoOfUnknownTime, InThree), 3),
        ((NeverInTwo, InTwoOfUnknownTime), 2),
        ((FailsToOffer, InThree, FailsToMake, FailsToJudge, InTwo), 2),
    ],
)
@pytest.mark.filterwarnings("ignore:the alternative 'added:tilewright.passes.errors.FusionWarning")
def test_of_those_for_the_same_fusions_the_one_that_takes_least_is_taken(
    classes: tuple[type[Rewrites], ...], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is in the list, if it pays."""
    assert fusions() == 1
    with added(monkeypatch, *classes):
        assert fusions() == many


@pytest.mark.parametrize("classes", [(InThree, InTwo), (InTwo, InThree)])
def test_what_another_is_taken_for_uses_nothing_of_the_program(
    classes: tuple[type[Rewrites], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = put_aside(monkeypatch)
    with added(monkeypatch, *classes):
        assert fusions() == 2
    assert aside, "both were judged"
    uses_nothing(aside)


@pytest.mark.parametrize("cls", [FailsToOffer, FailsToMake, FailsToJudge])
def test_a_fault_is_left_out_with_a_warning(cls: type[Rewrites], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fusions()
    with added(monkeypatch, cls), pytest.warns(FusionWarning, match="the alternative 'added' of"):
        assert fusions() == plain


@pytest.mark.parametrize("place", ["nowhere:Rewrites", "json:loads", f"{__name__}:X"])
def test_what_cannot_be_loaded(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with added(monkeypatch, Halves, place=place), pytest.raises(tw.CompileError, match="the alternative added: "):
        fusions()


@whole()
def test_what_is_not_taken_uses_nothing_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operands would count as readers of what others look at."""
    aside = put_aside(monkeypatch)
    wide = [jax.ShapeDtypeStruct(shape, "float16") for shape in ((512, 3072), (3072, 768))]
    tw.compile(lambda x, w: jax.nn.standardize(x @ w), *wide)
    assert aside, "nothing was judged"
    uses_nothing(aside)


def put_aside(monkeypatch: pytest.MonkeyPatch) -> list[FusionOp]:
    """The fusions that are judged from now on and not taken."""
    found: list[FusionOp] = []
    let_go = rewrites.let_go

    def noted(made: Sequence[FusionOp]) -> None:
        found.extend(made)
        let_go(made)

    monkeypatch.setattr(rewrites, "let_go", noted)
    return found


def uses_nothing(aside: Sequence[FusionOp]) -> None:
    """Raises AssertionError where one of these fusions uses something of a program."""
    for value in (value for fusion in aside for value in fusion.operands):
        owner = value.owner
        assert owner in aside or (isinstance(owner, Block) and owner.parent_op() is None)


def test_a_pin_counts_where_its_alternative_is_left_out() -> None:
    """`tail=1` is obeyed by the kernel that it names; without a pin nothing is joined."""

    def normed(x: Any, w: Any) -> Any:
        y = x @ w
        return y - y.max(-1, keepdims=True)

    args = array(5, 64, 32), array(6, 32, 48)
    counts = [
        len(
            tw.compile(normed, *args, options=tw.Options(without=ROW_EPILOGUE, schedule=pins))
            .report()
            .kernels
        )
        for pins in (None, {"contract_0": tw.Schedule(tail=1)})
    ]
    assert counts == [2, 1]
    assert POOLED in listing()
