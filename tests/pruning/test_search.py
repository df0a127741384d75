"""How far nets can be pruned: nets whose dead units are known, and what the search promises of any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

import tilewright as tw
from tilewright import pruning
from tilewright.pruning import Blocks, Coupled, PruneSearch

from .nets import CHANNELS, FLATTENED, attention, attention_params, cnn, cnn_params, numbers

HIDDEN = Coupled([("['up']", 1), ("['down']", 0)])


def mlp(params: Any, x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ params["up"]) @ params["down"]


def mlp_params(live: list[int], units: int = 64) -> Any:
    """Only the units `live` reach the result; the others are large where they are made, zero where they are read."""
    up, down = numbers(1, 32, units), numbers(2, units, 8)
    alive = jnp.zeros(units, bool).at[jnp.asarray(live)].set(True)
    return {"up": jnp.where(alive, up, 10 * up), "down": jnp.where(alive[:, None], down, 0.0)}


def read(params: Any, units: pruning.Units) -> jax.Array:
    """The magnitude of what reads each unit."""
    return jnp.linalg.norm(params["down"], axis=1)


def searched(params: Any, **options: Any) -> PruneSearch:
    return pruning.search(
        mlp, params, numbers(3, 16, 32), units={"hidden": HIDDEN}, progress=False, **options
    )


def test_dead_units_go_and_nothing_is_lost() -> None:
    live = [1, 5, 8, 9, 20, 21, 22, 30, 31, 33, 40, 44, 50, 57, 62, 63]
    params = mlp_params(live)
    found = searched(params, importance=read, max_drop=1e-6)
    assert [p.units["hidden"] for p in found.points] == [(64, 64), (48, 64), (32, 64), (16, 64)]
    assert [p.said for p in found.points][-1] == "hidden 16/64"
    assert found.best is found.points[-1] and found.original == 1
    np.testing.assert_array_equal(found.best.params["up"], params["up"][:, np.asarray(live)])
    np.testing.assert_array_equal(found.best.params["down"], params["down"][np.asarray(live)])
    assert [p.weight_bytes for p in found.points] == [4 * n * (32 + 8) for n in (64, 48, 32, 16)]
    assert [(r.change, r.weight_bytes) for r in found.sensitivity] == [
        (f"{n}/64", 160 * n) for n in (48, 32, 16)
    ]
    assert all(abs(r.drop) < 1e-6 for r in found.sensitivity)
    # by magnitude the dead units are the important ones
    assert all(p.drop > 0.3 for p in searched(params).points[1:])


def test_the_cost_is_that_of_the_compiled_net() -> None:
    found = searched(mlp_params(list(range(16))), importance=read, target="ascend-310")
    for point in found.points:
        report = tw.compile(mlp, point.params, numbers(3, 16, 32), target="ascend-310").report()
        assert (point.microseconds, point.energy_joules) == (report.microseconds, report.energy_joules)
    sizes = [p.weight_bytes for p in found.points]
    assert sizes == sorted(sizes, reverse=True)


def test_what_is_cheap_for_what_it_saves_goes_first() -> None:
    """A layer whose units are all dead goes before one whose units are alive, in both orders of their names."""
    rng = np.random.default_rng(0)

    def net(params: Any, x: jax.Array) -> jax.Array:
        return mlp(params["a"], x) + mlp(params["b"], x)

    def half(name: str) -> Coupled:
        return Coupled([(f"['{name}']['up']", 1), (f"['{name}']['down']", 0)])

    for dead, alive in (("a", "b"), ("b", "a")):
        params = {n: {k: jnp.asarray(rng.standard_normal(v.shape), jnp.float32) for k, v in mlp_params([0]).items()}
                  for n in ("a", "b")}  # fmt: skip
        params[dead]["down"] *= 1e-3
        units = {n: half(n) for n in ("a", "b")}
        found = pruning.search(net, params, numbers(3, 16, 32), units=units, ratios=(0.5,), progress=False)
        assert [(p.units[dead][0], p.units[alive][0]) for p in found.points] == [(64, 64), (32, 64), (32, 32)]


@given(st.integers(1, 8), st.lists(st.floats(0.05, 0.95), min_size=1, max_size=4))
@examples(6)
def test_multiples_and_ratios(multiple: int, ratios: list[float]) -> None:
    params = mlp_params([0, 1, 2], units=24)
    whole = {n for r in ratios if (n := -(-round(24 * (1 - r), 6) // multiple) * multiple) < 24}
    if not whole:
        with pytest.raises(tw.CompileError, match=f"no kind of units has a smaller multiple of {multiple}"):
            searched(params, ratios=ratios, multiple=multiple)
        return
    found = searched(params, ratios=ratios, multiple=multiple)
    left = [p.units["hidden"][0] for p in found.points]
    assert left == [24, *sorted(map(int, whole), reverse=True)]


def test_a_net_of_channels() -> None:
    """Kinds that share an array; accuracy by labels; data in batches."""
    data = [numbers(i, 3, 4, 4, 2) for i in range(4)]
    params = cnn_params()
    labels = [np.asarray(jnp.argmax(cnn(params, x), axis=-1)) for x in data]
    units = {"first": CHANNELS, "second": FLATTENED}
    found = pruning.search(
        cnn, params, jax.ShapeDtypeStruct((3, 4, 4, 2), "float32"), units=units, data=data, labels=labels,
        metric="accuracy", multiple=2, max_drop=10, progress=False,
    )  # fmt: skip
    assert found.metric == "accuracy" and found.original == found.points[0].metric == 100
    assert found.points[-1].units == {"first": (2, 6), "second": (2, 8)}
    assert found.points[-1].params["conv2"].shape == (3, 3, 2, 2)
    for point in found.points:
        logits = [jnp.argmax(cnn(point.params, x), axis=-1) for x in data]
        right = np.mean([np.mean(np.asarray(a) == b) for a, b in zip(logits, labels, strict=True)])
        assert point.metric == pytest.approx(100 * right) and point.drop == pytest.approx(100 - 100 * right)
    assert found.best is not None and found.best.drop <= 10


def test_heads_are_whole_multiples_and_blocks_go_last() -> None:
    """A head of 4 columns: 8 elements are 2 heads. Blocks are cut after the units inside them."""

    def net(params: Any, x: jax.Array) -> jax.Array:
        for block in params["blocks"]:
            x = x + attention(block, x, block["q"].shape[1] // 4)
        return x

    params = {"blocks": [attention_params() for _ in range(4)]}
    for i, factor in ((2, 1e-3), (0, 0.5)):
        params["blocks"][i] = jax.tree.map(lambda p, f=factor: f * p, params["blocks"][i])
    last = Coupled(
        [(f"['blocks'][3]['{n}']", a) for n, a in (("q", 1), ("k", 1), ("v", 1), ("out", 0))], units=3
    )
    units = {"blocks": Blocks("['blocks']"), "heads": last}
    found = pruning.search(
        net, params, numbers(9, 7, 10), units=units, ratios=(0.25, 0.5), multiple=8, progress=False
    )
    assert found.points[-1].units == {"blocks": (2, 4), "heads": (2, 3)}
    without = next(p for p in found.points if p.units["blocks"][0] == 3)
    assert len(without.params["blocks"]) == 3 and without.drop < 1e-3
    np.testing.assert_array_equal(without.params["blocks"][1]["q"], params["blocks"][1]["q"])
    assert found.points[-1].params["blocks"][-1]["q"].shape == (10, 8)


@pytest.mark.parametrize("kind", [list, tuple])
def test_blocks_with_zeros_add_nothing(kind: Callable[[Any], Any]) -> None:
    blocks = [{"w": numbers(i, 4, 4), "b": numbers(i + 9, 4)} for i in range(3)]
    params = {"blocks": kind(blocks), "head": numbers(7, 4)}

    def net(params: Any, x: jax.Array) -> jax.Array:
        for block in params["blocks"]:
            x = x + jax.nn.relu(x @ block["w"] + block["b"])
        return x @ params["head"]

    units, x = Blocks("['blocks']"), numbers(8, 5, 4)
    assert units.units(params) == 3 and units.step(params, 16) == 1
    cut, blank = units.cut(params, [0, 2]), units.blank(params, [0, 2])
    assert type(cut["blocks"]) is type(blank["blocks"]) is kind and len(cut["blocks"]) == 2
    np.testing.assert_allclose(net(cut, x), net(blank, x), rtol=1e-6)
    np.testing.assert_allclose(units.magnitudes(params), pruning.block_magnitude(blocks))
    for wrong in ("['head']", "['block']"):
        with pytest.raises(ValueError, match="no list of blocks has the name"):
            Blocks(wrong).units(params)


def test_what_is_trained_further() -> None:
    """Each pruned net is; the whole one is as it was given."""
    params = mlp_params(list(range(64)))
    x = numbers(3, 16, 32)
    want = mlp(params, x)
    seen = []

    def solved(small: Any) -> Any:
        seen.append(small["up"].shape[1])
        hidden = jax.nn.relu(x @ small["up"])
        return small | {"down": jnp.linalg.lstsq(hidden, want)[0]}

    plain, trained = searched(params), searched(params, retrain=solved)
    assert seen == [48, 32, 16]
    for a, b in zip(plain.points[1:], trained.points[1:], strict=True):
        assert b.metric > a.metric + 0.01
    assert trained.points[1].metric == pytest.approx(1, abs=1e-4)
    assert plain.points[0].metric == trained.points[0].metric == pytest.approx(1)


def test_the_ratio_of_signal_and_noise() -> None:
    """It is infinite for the whole net: drops count from the best net with one change."""
    found = searched(mlp_params(list(range(64))), metric="sqnr", max_drop=1.0)
    assert found.points[0].metric == float("inf") and found.original == found.sensitivity[0].metric
    assert found.best is found.points[1] and found.best.drop == pytest.approx(0, abs=0.01)


def fixed(params: Any, x: jax.Array) -> jax.Array:
    """Takes 64 units only."""
    return (x @ params["up"]).reshape(-1, 64) @ params["down"]


X = numbers(3, 16, 32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": []}, "the data has no batches"),
        ({"data": [X, X[:3]]}, r"batch 1 of the data is \('float32\[3, 32\]',\), and the function"),
        ({"data": [X.at[0, 0].set(jnp.nan)]}, "batch 0 of the data has NaN or infinity"),
        ({"data": [jax.ShapeDtypeStruct((16, 32), "float32")]}, "give arrays as data"),
        ({"ratios": (0.5, 1.0)}, "ratios above 0 and below 1"),
        ({"ratios": ()}, "ratios above 0 and below 1"),
        ({"multiple": 0}, "a multiple of 1 or more"),
        ({"multiple": 64}, "no kind of units has a smaller multiple of 64"),
        ({"units": {}}, "nothing may be removed"),
        ({"metric": "f1"}, "there is no metric 'f1'"),
        ({"metric": "accuracy"}, "needs labels"),
        ({"fn": fixed}, "does not take parameters with 48 of 64 units of hidden"),
    ],
)
def test_mistakes(change: dict[str, Any], said: str) -> None:
    given = {"fn": mlp, "units": {"hidden": HIDDEN}, "progress": False} | change
    with pytest.raises(tw.CompileError, match=said):
        pruning.search(given.pop("fn"), mlp_params([0]), X, **given)


def test_units_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="no parameter has the name"):
        searched({"up": numbers(1, 32, 64), "dwn": numbers(2, 64, 8)})
