"""Units that several arrays share: their importance, and nets without some of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples, sampled

import tilewright as tw
from tilewright import pruning
from tilewright.pruning import Coupled, best, magnitude, prune, taylor, zeroed

from .nets import CHANNELS, FLATTENED, HEADS, JOINED, attention, attention_params, cnn, cnn_params, numbers


def near(a: jax.Array, b: jax.Array) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1.0, float(jnp.abs(b).max())))


def subsets(units: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, units - 1), min_size=1).map(sorted)


@given(subsets(6), subsets(8))
@examples(20)
def test_a_net_without_channels_computes_what_it_does_with_zeros_for_them(
    first: list[int], second: list[int]
) -> None:
    params, x = cnn_params(), numbers(9, 3, 4, 4, 2)
    small = prune(prune(params, CHANNELS, first), FLATTENED, second)
    assert small["conv2"].shape == (3, 3, len(first), len(second))
    assert small["dense"]["w"].shape == (4 * len(second), 5) and small["dense"]["b"].shape == (5,)
    near(cnn(small, x), cnn(zeroed(zeroed(params, CHANNELS, first), FLATTENED, second), x))


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("kept", [[0], [1, 2], [0, 2], [0, 1, 2]])
def test_attention_without_heads(kept: list[int], joined: bool) -> None:
    """A head whose columns of q, k, v and rows of out are zero adds nothing; q, k and v may be one array."""
    params, x, coupled = attention_params(joined), numbers(9, 7, 10), JOINED if joined else HEADS
    near(
        attention(prune(params, coupled, kept), x, len(kept)), attention(zeroed(params, coupled, kept), x, 3)
    )
    apart = zeroed(attention_params(), HEADS, kept)
    near(attention(prune(params, coupled, kept), x, len(kept)), attention(apart, x, 3))


def test_all_units_change_nothing_and_an_order_is_kept() -> None:
    params = cnn_params()
    jax.tree.map(np.testing.assert_array_equal, prune(params, CHANNELS, range(6)), params)
    jax.tree.map(np.testing.assert_array_equal, zeroed(params, CHANNELS, range(6)), params)
    turned = prune(params, CHANNELS, [5, 4, 3, 2, 1, 0])
    near(cnn(turned, numbers(9, 3, 4, 4, 2)), cnn(params, numbers(9, 3, 4, 4, 2)))


def test_the_importance_is_that_of_the_arrays() -> None:
    """By the definition, unit by unit."""
    params, grads = cnn_params(), jax.tree.map(jnp.cos, cnn_params())
    for unit, found in enumerate(magnitude(params, CHANNELS)):
        squares = [params["conv1"][..., unit] ** 2, params["b1"][unit] ** 2, params["conv2"][:, :, unit] ** 2]
        near(found, jnp.sqrt(sum(jnp.sum(x) for x in squares)))
    for unit, found in enumerate(taylor(params, grads, CHANNELS)):
        near(found, jnp.abs(jnp.sum((params["conv2"] * grads["conv2"])[:, :, unit])))
    for unit, found in enumerate(taylor(params, grads, CHANNELS, ["['b1']"])):
        near(found, jnp.abs(params["b1"] * grads["b1"])[unit])
    for unit, found in enumerate(magnitude(attention_params(), HEADS)):
        at = slice(4 * unit, 4 * unit + 4)
        whole = attention_params()
        squares = [whole[n][:, at] ** 2 for n in "qkv"] + [whole["out"][at] ** 2]
        near(found, jnp.sqrt(sum(jnp.sum(x) for x in squares)))
    near(magnitude(attention_params(joined=True), JOINED), magnitude(attention_params(), HEADS))


def test_a_dead_channel_has_no_first_order_term_and_a_zero_unit_no_magnitude() -> None:
    params, x = cnn_params(), numbers(9, 3, 4, 4, 2)
    params["b1"] = params["b1"].at[2].set(-1e4)  # its relu is never positive
    grads = jax.grad(lambda p: jnp.sum(jnp.square(cnn(p, x))))(params)
    terms = taylor(params, grads, CHANNELS)
    assert float(terms[2]) == 0 and int(jnp.sum(terms == 0)) == 1
    assert 2 not in best(terms, 5)
    assert float(magnitude(zeroed(params, CHANNELS, [0, 1, 3, 4, 5]), CHANNELS)[2]) == 0


def test_the_first_order_term_is_the_change_of_the_loss_for_a_small_change() -> None:
    params, x = cnn_params(), numbers(9, 3, 4, 4, 2)
    loss = lambda p: jnp.mean(jnp.square(cnn(p, x)))  # noqa: E731
    terms = taylor(params, jax.grad(loss)(params), CHANNELS)
    small = 1e-3
    for unit in range(6):
        kept = [i for i in range(6) if i != unit]
        gone = zeroed(params, Coupled([("['conv2']", 2)]), kept)
        slightly = jax.tree.map(lambda p, g: p + small * (g - p), params, gone)
        change = abs(float(loss(slightly) - loss(params))) / small
        assert change == pytest.approx(float(terms[unit]), rel=0.1, abs=0.02 * float(terms.max()))


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=9), st.data())
@examples(40)
def test_the_best_units_are_in_order_and_the_first_of_equal_ones(
    values: list[float], data: st.DataObject
) -> None:
    keep = data.draw(st.integers(1, len(values)))
    want = sorted(sorted(range(len(values)), key=lambda i: (-values[i], i))[:keep])
    assert best(jnp.asarray(values), keep).tolist() == want


@sampled(2)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_importance_and_pruning_compile(memory: str) -> None:
    """All of it on the device: gradients, terms, the choice, and the smaller arrays."""

    def shrink(params: Any, x: jax.Array) -> Any:
        grads = jax.grad(lambda p: jnp.mean(jnp.square(cnn(p, x))))(params)
        return prune(params, CHANNELS, best(taylor(params, grads, CHANNELS), 4))

    params, x = cnn_params(), numbers(9, 3, 4, 4, 2)
    options = tw.Options(memory="bytes") if memory == "bytes" else tw.Options()
    program = tw.compile(shrink, params, x, options=options)
    jax.tree.map(np.testing.assert_array_equal, program(params, x), jax.jit(shrink)(params, x))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: Coupled([]), "name at least one array"),
        (lambda p: Coupled([("['b1']", 0, 0)]), "0 times: say 1 or more"),
        (lambda p: Coupled([("['b1']", 0), ("['b1']", 0)]), "name each once"),
        (
            lambda p: magnitude(p, Coupled([("['conv3']", 0)])),
            r"no parameter has the name \['conv3'\]; did you mean",
        ),
        (lambda p: magnitude(p, Coupled([("xyz", 0)])), r"there are \['b1'\], \['b2'\]"),
        (lambda p: magnitude(p, Coupled([("['b1']", 1)])), r"\['b1'\] \[6\] has no axis 1"),
        (
            lambda p: magnitude(p, Coupled([("['b1']", 0), ("['b2']", 0)])),
            "8 elements, which are not 1 times 6 units",
        ),
        (
            lambda p: magnitude(p, Coupled([("['b2']", 0)], units=3)),
            "8 elements, which are not 1 times 3 units",
        ),
        (lambda p: taylor(p, p, Coupled([("['b1']", 0)])), r"name in `of` those that do, of \['b1'\]"),
        (lambda p: best(jnp.ones(3), 4), "from 1 to 3, not 4"),
        (lambda p: best(jnp.ones(3), 0), "from 1 to 3, not 0"),
    ],
)
def test_what_cannot_be_coupled(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(cnn_params())


# -- blocks --------------------------------------------------------------------------------------------------


def test_blocks() -> None:
    blocks = [{"up": numbers(i, 4, 6) * i, "down": numbers(9, 6, 4)} for i in range(4)]
    found = pruning.block_magnitude(blocks)
    for block, size in zip(blocks, found, strict=True):
        flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(block)])
        assert float(size) == pytest.approx(float(np.sqrt((flat**2).mean())), rel=1e-5)
    grads = jax.tree.map(jnp.sin, blocks)
    terms = pruning.block_taylor(blocks, grads)
    near(terms[1], jnp.abs(sum(jnp.sum(p * jnp.sin(p)) for p in jax.tree.leaves(blocks[1]))))
    assert pruning.without_blocks(blocks, [1, 3]) == [blocks[0], blocks[2]]
    for removed in ([4], [-1], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="from 0 to 3, not all"):
            pruning.without_blocks(blocks, removed)


def test_the_influence_of_blocks() -> None:
    """None where a block only lengthens, 1 where it turns by a right angle, 2 where it turns round."""
    x = jnp.asarray([[1.0, 0.0], [0.0, 2.0]])
    turned = x @ jnp.asarray([[0.0, 1.0], [-1.0, 0.0]])
    near(pruning.block_influence([x, 3 * x, 3 * turned, -turned]), jnp.asarray([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="2 arrays or more"):
        pruning.block_influence([x])
