"""The trained examples: training in f16, compiled, against JAX; and what nets that quantisation is measured on can."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loading import example_module
from tiering import ALL, MEMORIES, later, sampled

import tilewright as tw


@pytest.fixture(scope="module")
def mixed() -> ModuleType:
    return example_module("train_mixed")


def options(memory: str) -> tw.Options:
    return tw.Options(memory="bytes") if memory == "bytes" else tw.Options()


def close(got: Any, want: Any, room: float) -> None:
    """Each array within `room` times the largest number of the expected one; integers and booleans equal."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=0, atol=room * max(float(np.abs(b).max()), 1e-30))


def start(mixed: ModuleType, net: str, **scale: float) -> Any:
    """The first state of a step by name."""
    params = mixed.mlp_init() if net.startswith("dense") else mixed.digits_cnn.init()
    return mixed.start(params, **scale)


@sampled(8)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("net", ["dense", "cnn", pytest.param("accumulated", marks=sampled(2))])
def test_a_step_that_overflows_is_skipped_on_the_device(mixed: ModuleType, net: str, memory: str) -> None:
    """2^24 times the loss has gradients that f16 has no numbers for: weights, moments and the counter stay as they
    are, bit for bit, and the scale is halved, as in JAX."""
    step, state = getattr(mixed, net), start(mixed, net, initial=2.0**24)
    images, labels = mixed.batches(1)[0]
    program = tw.compile(step, state, images, labels, options=options(memory))
    report = program.report()
    assert not report.host_ops and report.npu_flops_fraction == 1
    new, loss, finite = program(state, images, labels)
    want, want_loss, expected = jax.jit(step)(state, images, labels)
    assert not bool(finite) and not bool(expected)
    assert float(new.scale.scale) == float(want.scale.scale) == 2.0**23
    assert int(new.scale.good_steps) == int(want.scale.good_steps) == 0
    for a, b in zip(jax.tree.leaves(new.adam), jax.tree.leaves(state.adam), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    close(loss, want_loss, 1e-3)


@sampled(4)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("net", ["dense", "cnn"])
def test_a_good_step_is_that_of_jax(mixed: ModuleType, net: str, memory: str) -> None:
    """Moments hold the gradient: they are within the roundings of f16. Adam's first step moves every weight by the
    rate, whatever the gradient's size, so weights are compared where the gradient is no rounding error itself."""
    step, state = getattr(mixed, net), start(mixed, net, initial=2.0**10, period=1)
    images, labels = mixed.batches(1)[0]
    new, loss, finite = tw.compile(step, state, images, labels, options=options(memory))(
        state, images, labels
    )
    want, want_loss, _ = jax.jit(step)(state, images, labels)
    assert bool(finite) and int(new.adam.step) == 1
    assert float(new.scale.scale) == float(want.scale.scale) == 2.0**11
    close(loss, want_loss, 1e-3)
    close(new.adam.mean, want.adam.mean, 4 * 2.0**-10)
    for a, b, g in zip(
        *(jax.tree.leaves(x) for x in (new.adam.params, want.adam.params, want.adam.mean)), strict=True
    ):
        clear = np.abs(np.asarray(g)) > 0.05 * float(jnp.abs(g).max(initial=0))
        np.testing.assert_allclose(np.asarray(a)[clear], np.asarray(b)[clear], rtol=0, atol=1e-5)


@sampled(2)
@pytest.mark.parametrize("net", ["dense", pytest.param("cnn", marks=sampled(2))])
def test_four_micro_batches_are_one_batch(mixed: ModuleType, net: str) -> None:
    """Compiled, both ways. Each part's gradient is rounded to f16 on its way: a part has a quarter of the rows, and its
    sums are four times the mean, so the difference is some roundings of f16 of the largest gradient."""
    parts = "dense_accumulated" if net == "dense" else "accumulated"
    state, (images, labels) = start(mixed, net, initial=2.0**10), mixed.batches(1)[0]
    whole, loss, _ = tw.compile(getattr(mixed, net), state, images, labels)(state, images, labels)
    cut, cut_loss, finite = tw.compile(getattr(mixed, parts), state, images, labels)(state, images, labels)
    assert bool(finite)
    close(cut_loss, loss, 1e-3)
    close(cut.adam.mean, whole.adam.mean, 8 * 2.0**-10)


def test_a_run_with_overflows_follows_jax(mixed: ModuleType) -> None:
    """A scale that starts too large and doubles every five good steps: the same steps are skipped, the same scales
    come, and the loss falls alike."""
    state = start(mixed, "dense", initial=2.0**20, period=5)
    rows = mixed.batches(40, seed=3)
    program, reference = tw.jit(mixed.dense), jax.jit(mixed.dense)
    mine = theirs = state
    ours, jaxs, skipped = [], [], 0
    for images, labels in rows:
        mine, loss, finite = program(mine, images, labels)
        theirs, want, expected = reference(theirs, images, labels)
        # from the first overflow that only a rounding decides, the two have scales of their own
        if bool(finite) != bool(expected):
            break
        assert float(mine.scale.scale) == float(theirs.scale.scale)
        skipped += not bool(finite)
        ours.append(float(loss))
        jaxs.append(float(want))
    assert skipped >= 3 and len(ours) >= 12
    np.testing.assert_allclose(ours, jaxs, rtol=1e-2)
    assert ours[-1] < 0.8 * ours[0]


# -- nets that quantisation is measured on -------------------------------------------------------------------


def test_the_vision_transformer() -> None:
    """Weights of a seed, >= 92 % of the test digits, and the same classes compiled. Training follows the roundings of
    the processor: this seed ends at 93.6 % on one with AMX, at 95.8 % on another."""
    vit = example_module("vit_digits")
    params, (train, test) = vit.params(), vit.data()
    assert len(train.labels) == 1437 and len(test.labels) == 360
    assert vit.accuracy(params, jnp.asarray(test.inputs), test.labels) >= 0.92
    images = jnp.asarray(test.inputs[:64])
    got, want = tw.compile(vit.forward, params, images)(params, images), vit.forward(params, images)
    close(got, want, 1e-5)


def test_names_and_seeds_of_the_cnn() -> None:
    cnn = example_module("digits_cnn")
    first, other = cnn.params(0), cnn.params(1)
    assert jax.tree.structure(first) == jax.tree.structure(other)
    assert not np.array_equal(first["conv1_w"], other["conv1_w"])
    _, test = cnn.data()
    for params in (first, other):
        assert cnn.accuracy(params, jnp.asarray(test.inputs)) >= 0.95


@pytest.fixture(scope="module")
def language() -> ModuleType:
    return example_module("char_lm")


def test_the_text_is_split_by_file(language: ModuleType) -> None:
    train, validation = language.data()
    assert len(train) > 8 * len(validation) > 4e5
    assert train.min() >= 0 and train.max() < len(language.CHARACTERS) == 96
    rows = language.windows(validation, 7)
    assert rows.shape == (7, 129)
    np.testing.assert_array_equal(rows[0], validation[:129])
    np.testing.assert_array_equal(language.windows(validation)[1, :1], language.windows(validation)[0, 128:])
    with pytest.raises(ValueError, match="say a count from 1 to"):
        language.windows(validation, 10**6)


def test_the_language_model(language: ModuleType) -> None:
    """What 4 minutes of training reach, of weights and of a compiled program. Readable names."""
    if not (ALL or language.is_trained()):
        pytest.skip("the weights are not there yet: run python examples/char_lm.py, which takes 4 minutes")
    params = language.params()
    assert params["blocks"][0]["attention"]["q"].shape == (128, 128)
    assert sum(p.size for p in jax.tree.leaves(params)) == 829_696
    rows = language.windows(language.data()[1], 16)
    want = language.perplexity(params, rows)
    assert want < 6
    tokens = jnp.asarray(rows[:4, :-1])
    program = tw.compile(language.forward, params, tokens)
    got = language.perplexity(lambda tokens: program(params, tokens), rows, batch=4)
    assert got == pytest.approx(want, rel=1e-4)
    with pytest.raises(ValueError, match="16 windows do not fill a batch of 32"):
        language.perplexity(params, rows, 32)


def test_a_perplexity_by_its_definition(language: ModuleType) -> None:
    """A model that knows nothing has as many characters to choose from as there are; a short training helps."""
    rows = language.windows(language.data()[1], 16)
    blind = lambda tokens: jnp.zeros((*tokens.shape, 96))  # noqa: E731
    assert language.perplexity(blind, rows) == pytest.approx(96, rel=1e-5)
    few = language.HYPER._replace(n_layers=1, d_model=32, n_heads=4, steps=100, rate=1e-2, warm=20)
    assert language.perplexity(language.train(few), rows) < 25


def test_the_small_net_is_as_good_and_four_times_smaller() -> None:
    compress = example_module("compress")
    cnn, images = compress.digits_cnn, jnp.asarray(compress.digits_cnn.data()[1].inputs)
    found = {step.name: step.params for step in compress.steps()}
    sizes = {name: sum(p.size for p in jax.tree.leaves(params)) for name, params in found.items()}
    right = {name: cnn.accuracy(params, images) for name, params in found.items()}
    assert 4 * sizes["pruned and distilled"] <= sizes["trained"]
    assert sizes["pruned"] == sizes["pruned and distilled"]
    assert right["pruned and distilled"] >= right["trained"] - 0.01 > right["pruned"]


@later()
def test_in_integers_it_is_ten_times_smaller() -> None:
    """At most a point of accuracy is lost, and so small a net takes hardly longer in int8 than in f32."""
    rows = {row.name: row for row in example_module("compress").rows()}
    first, small = rows["trained"], rows["pruned and distilled"]
    assert small.microseconds < first.microseconds
    for mode, times in (("w8a8", 15), ("w4a16-g32", 25)):
        row = rows[f"and in {mode}"]
        assert row.size * times <= first.size and row.accuracy >= first.accuracy - 1
    assert rows["and in w8a8"].microseconds < 1.1 * small.microseconds


@later()
def test_pruning_at_once_has_a_front() -> None:
    """What is chosen is smaller and faster, at a point of the accuracy on the training digits."""
    found = example_module("compress").searched()
    whole, best = found.points[0], found.best
    assert len(found.front) > 4 and best.drop <= 1
    assert best.weight_bytes < whole.weight_bytes and best.microseconds < whole.microseconds
    # of those as accurate, one that is much smaller takes hardly longer than the fastest
    smallest = min((p for p in found.points if p.drop <= 1), key=lambda p: p.weight_bytes)
    assert smallest.weight_bytes < 0.7 * whole.weight_bytes and smallest.microseconds < whole.microseconds
    assert smallest.microseconds < 1.002 * best.microseconds
