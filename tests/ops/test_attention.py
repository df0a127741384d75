"""Attention in one kernel: from plain JAX, with masks, biases, shared heads, odd lengths, every type; both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from products import EPS
from tiering import covering, sampled

import tilewright as tw
from tilewright.api.program import Program
from tilewright.passes.choose import chain_apart
from tilewright.passes.lower.chains.attention import AttentionKernel

NEVER = float("-inf")


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is one kernel whatever its parts take: values are those of that kernel."""
    monkeypatch.setitem(chain_apart.MARGINS, AttentionKernel, ("", float("inf")))


def kernels(program: Program) -> list[str]:
    return [kernel.name for kernel in program.report().kernels]


def inputs(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    return [data(dtype, shape, seed) for seed, shape in enumerate(shapes)]


def plain(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return jax.nn.softmax(scores, axis=-1) @ v


def in_f32(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("...qd,...kd->...qk", q, k, preferred_element_type=jnp.float32) * 0.125
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("...qk,...kd->...qd", weights, v)


@covering(1)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    ("rows", "keys", "size", "wide"),
    [
        (16, 16, 16, 16),
        (64, 257, 64, 64),
        (197, 197, 64, 64),
        (130, 97, 24, 40),
        (31, 1031, 8, 3),
        (512, 640, 128, 128),
    ],
)
def test_lengths(dtype: str, rows: int, keys: int, size: int, wide: int) -> None:
    q, k, v = inputs(dtype, (2, rows, size), (2, keys, size), (2, keys, wide))
    program = check(in_f32, q, k, v, length=keys + size)
    assert kernels(program) == ["attention_0"]


@sampled(3)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_all_of_it_in_the_types_of_the_inputs(dtype: str) -> None:
    q, k, v = inputs(dtype, (3, 48, 32), (3, 80, 32), (3, 80, 32))
    assert kernels(check(plain, q, k, v, length=128)) == ["attention_0"]


def test_without_a_batch() -> None:
    q, k, v = inputs("f32", (100, 32), (300, 32), (300, 16))
    assert kernels(check(in_f32, q, k, v, length=400)) == ["attention_0"]


def einsums(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def einsum_first(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.3, axis=-1) @ v


def einsum_last(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(q @ k.swapaxes(-1, -2) * 0.3, axis=-1), v)


def in_each_head(q: Any, k: Any, v: Any) -> Any:
    return jax.vmap(jax.vmap(lambda q, k, v: jax.nn.softmax(q @ k.T * 0.3, axis=-1) @ v))(q, k, v)


def masked(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(seen, scores, -1e4), axis=-1) @ v


def heads_merged(q: Any, k: Any, v: Any) -> Any:
    """The products have three dimensions, the softmax four."""
    of_heads = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v)]
    scores = (of_heads[0] @ of_heads[1].swapaxes(-1, -2)).reshape(*q.shape[:3], -1)
    weights = jax.nn.softmax(scores * 0.3, axis=-1)
    return (weights.reshape(-1, *weights.shape[2:]) @ of_heads[2]).reshape(*q.shape[:3], -1)


@covering(6)
@pytest.mark.parametrize("fn", [plain, einsums, einsum_first, einsum_last, in_each_head, masked, heads_merged])
@pytest.mark.parametrize(
    ("lead", "rows", "keys", "size"),
    [
        ((1, 3), 32, 32, 16),
        ((2, 1), 33, 48, 16),
        ((1, 1), 17, 40, 8),
        ((1, 2), 1, 64, 16),
        ((1, 1), 1, 40, 8),
        ((2, 2), 40, 1, 16),
        ((1, 2), 32, 32, 1),
    ],
)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-950pr", "ascend-310"])
def test_unit_dimensions(
    fn: Callable[..., Any], lead: tuple[int, int], rows: int, keys: int, size: int, target: str
) -> None:
    """Dimensions of 1, which are squeezed and put back around the softmax in one spelling or another."""
    q, k, v = inputs("f32", (*lead, rows, size), (*lead, keys, size), (*lead, keys, size))
    check(fn, q, k, v, target=target, length=keys + size)


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, k) * 0.2
    rows, columns = (jax.lax.broadcasted_iota(jnp.int32, scores.shape[1:], d) for d in (0, 1))
    return jax.nn.softmax(jnp.where(rows >= columns, scores, NEVER), axis=-1) @ v


def test_causal() -> None:
    q, k, v = inputs("f32", (2, 150, 32), (2, 150, 32), (2, 150, 32))
    program = check(causal, q, k, v, length=200)
    assert kernels(program) == ["attention_0"]


def test_a_mask_of_keys_and_one_of_everything() -> None:
    def masked(q: Any, k: Any, v: Any, padding: Any, mask: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
        scores = jnp.where(padding[:, None, None, :], scores, -1e30) + mask[None, None]
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)

    q, k, v = inputs("f32", (2, 33, 3, 16), (2, 70, 3, 16), (2, 70, 3, 16))
    padding, mask = data("i1", (2, 70)), data("f32", (33, 70), 5)
    assert "attention_0" in kernels(check(masked, q, k, v, padding, mask, length=100))


def test_the_first_keys_of_a_row_may_all_be_masked() -> None:
    """The largest score so far is then minus infinity, and the difference of two of those is no number."""

    def late(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("qd,kd->qk", q, k)
        rows, columns = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, d) for d in (0, 1))
        return jax.nn.softmax(jnp.where(columns >= rows * 5, scores, NEVER), axis=-1) @ v

    q, k, v = inputs("f32", (128, 16), (640, 16), (640, 16))
    check(late, q, k, v, length=700)


def test_a_row_without_keys_is_no_number() -> None:
    def none(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("qd,kd->qk", q, k)
        rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
        return jax.nn.softmax(jnp.where(rows != 7, scores, NEVER), axis=-1) @ v

    q, k, v = inputs("f32", (32, 16), (600, 16), (600, 16))
    got = np.asarray(tw.compile(none, q, k, v)(q, k, v))
    assert np.isnan(got[7]).all() and np.isfinite(np.delete(got, 7, 0)).all()


@sampled(3)
@pytest.mark.parametrize("heads", [(4, 4), (8, 2), (6, 1)])
def test_heads_that_share_keys(heads: tuple[int, int]) -> None:
    """jax.nn.dot_product_attention, grouped queries and one key head for all."""
    queries, keys = heads
    q, k, v = inputs("f32", (2, 40, queries, 16), (2, 90, keys, 16), (2, 90, keys, 16))

    def shared(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v)

    assert "attention_0" in kernels(check(shared, q, k, v, length=110))


def test_a_soft_cap() -> None:
    def capped(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", q, k)
        return jax.nn.softmax(20 * jnp.tanh(scores / 20), axis=-1) @ v

    q, k, v = inputs("f32", (2, 64, 16), (2, 128, 16), (2, 128, 32))
    assert kernels(check(capped, q, k, v, length=150)) == ["attention_0"]


def test_a_bias_of_rows_and_keys() -> None:
    """Tiles of it have their keys side by side in memory, and their rows in ub."""

    def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores + bias, axis=-1).astype(v.dtype), v)

    q, k, v = inputs("f16", (2, 70, 16), (2, 650, 16), (2, 650, 24))
    program = check(biased, q, k, v, data("f32", (2, 70, 650), 7), length=670)
    assert kernels(program) == ["attention_0"]
    transposed = [op for op in program.module("tile").walk() if op.name == "tile.transpose"]
    assert len(transposed) > 1


def dropped(how: str) -> Callable[..., Any]:
    """Attention whose weights are multiplied, by a rule, by what is given for each of them."""

    def attention(q: Any, k: Any, v: Any, keep: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32) * 0.25
        weights = jax.nn.softmax(scores, axis=-1)
        if how == "select":
            weights = jnp.where(keep, weights / 0.75, 0)
        elif how == "not":
            weights = jnp.where(keep, 0, weights)
        elif how == "product":
            weights = weights * (keep.astype(jnp.float32) / 0.75)
        else:
            weights = -weights / (1 + keep.astype(jnp.float32))
        return jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v)

    return attention


@sampled(6)
@pytest.mark.parametrize(
    ("how", "dtype", "keys"),
    [
        ("select", "f16", 600),
        ("select", "bf16", 512),
        ("select", "f32", 97),
        ("not", "f16", 97),
        ("product", "f32", 600),
        ("division", "f16", 600),
    ],
)
def test_dropout(how: str, dtype: str, keys: int) -> None:
    q, k, v = inputs(dtype, (2, 70, 16), (2, keys, 16), (2, keys, 24))
    program = check(dropped(how), q, k, v, data("i1", (2, 70, keys), 9), length=keys + 40)
    assert "attention_0" in kernels(program)
    assert not any(name.startswith("contract") for name in kernels(program))


def test_weights_that_are_added_to() -> None:
    """What is not linear in the weights stays a kernel of its own."""

    def shifted(q: Any, k: Any, v: Any, more: Any) -> Any:
        return (jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), axis=-1) + more) @ v

    def squared(q: Any, k: Any, v: Any, more: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), axis=-1)
        return (weights * weights + 0 * more) @ v

    q, k, v = inputs("f32", (2, 32, 16), (2, 40, 16), (2, 40, 16))
    for fn in (shifted, squared):
        assert "attention_0" not in kernels(check(fn, q, k, v, data("f32", (2, 32, 40), 3), length=80))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_the_attention_of_jax(dtype: str) -> None:
    """JAX itself lowers that of f16, which says how its products add up, for no CPU."""
    args = inputs(dtype, (1, 70, 2, 16), (1, 70, 2, 16), (1, 70, 2, 16))
    program = tw.compile(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), *args)
    assert kernels(program) == ["attention_0"]
    with jax.default_matmul_precision("highest"):
        wide = jax.nn.dot_product_attention(*(x.astype("float32") for x in args), is_causal=True)
    np.testing.assert_allclose(
        np.asarray(program(*args), np.float32), wide, rtol=0, atol=8 * EPS[dtype] * np.abs(wide).max()
    )


def test_verify_runs_products_that_no_cpu_of_jax_has() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return jax.lax.dot(x, x.T, precision="F16_F16_F32", preferred_element_type=jnp.float32)

    found = tw.verify(fn, inputs("f16", (20, 33))[0])
    assert found.ok, found.culprit


@sampled(3)
@pytest.mark.parametrize("groups", [1, 3, 17])
def test_queries_that_see_several_groups_of_keys(groups: int) -> None:
    def fn(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(jnp.einsum("hqd,ghkd->hgqk", q, k) / 4)
        return jnp.einsum("hgqk,ghkd->qghd", weights, v)

    q, k, v = inputs("f32", (2, 33, 16), (groups, 2, 40, 16), (groups, 2, 40, 24))
    assert kernels(check(fn, q, k, v, length=80)) == ["attention_0"]


def test_keys_behind_the_last_one_do_not_reach_other_rows() -> None:
    """A row that is no number stays alone, in its tile and in the next one on its core."""
    q, k, v = inputs("f32", (96, 16), (160, 16), (160, 16))
    q = q.at[5].set(np.nan)
    pins = tw.Schedule(rows=32, keys=32, cores=1)
    got = np.asarray(tw.compile(in_f32, q, k, v, options=tw.Options(schedule=pins))(q, k, v))
    assert np.isnan(got[5]).all() and np.isfinite(np.delete(got, 5, 0)).all()


@sampled(3)
@pytest.mark.parametrize(("heads", "length", "size"), [(3, 1000, 40), (3, 350, 40), (1, 1000, 64)])
def test_lengths_that_leave_places_empty(heads: int, length: int, size: int) -> None:
    """The temporaries of a softmax in f32 of scores in f16 fit on chip, with a mask of what is behind the last key."""

    def scaled(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) * np.float16(0.125)
        return jax.nn.softmax(scores.astype(np.float32), -1).astype(q.dtype) @ v

    q, k, v = inputs("f16", *[(heads, length, size)] * 3)
    assert "attention_0" in kernels(check(scaled, q, k, v, length=length + size))


def test_scores_in_place() -> None:
    """Scores that are worked on where they were loaded, summed up in parts, give what others give."""
    q, k, v = inputs("f16", (1, 100, 32), (1, 256, 32), (1, 256, 64))
    got = []
    for pins in ({"buffered": 1, "scored": 32, "columns": 32}, {"buffered": 2}):
        options = tw.Options(schedule=tw.Schedule(rows=32, keys=64, **pins))
        program = check(in_f32, q, k, v, length=290, options=options)
        got.append(np.asarray(program(q, k, v)))
    # XLA adds up products of other shapes in another order
    np.testing.assert_allclose(*got, rtol=0, atol=2 * EPS["f16"] * float(np.abs(got[1]).max()))


def test_places() -> None:
    """Where the last parts are added changes no bit, if both ways sum up in steps of one length."""
    q, k, v = inputs("f16", (1, 100, 32), (1, 250, 32), (1, 250, 64))
    got = []
    for places in (1, 2):
        pins = tw.Schedule(rows=32, keys=64, summed=32, columns=32, places=places)
        program = check(in_f32, q, k, v, length=290, options=tw.Options(schedule=pins))
        got.append(np.asarray(program(q, k, v)))
    np.testing.assert_array_equal(*got)


def test_weights_on_the_right() -> None:
    """The products may have their operands either way round."""

    def transposed(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bkd,bqd->bkq", k, q)
        weights = jax.nn.softmax(scores, axis=1)
        return jnp.einsum("bkd,bkq->bdq", v, weights)

    q, k, v = inputs("f32", (2, 50, 16), (2, 100, 16), (2, 100, 24))
    assert kernels(check(transposed, q, k, v, length=120)) == ["attention_0"]


@sampled(3)
@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (
            lambda q, k, v: (causal(q, k, v), jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k))),
            "weights are a result",
        ),
        (
            lambda q, k, v: jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k), axis=1) @ v,
            "the softmax is over rows",
        ),
        (
            lambda q, k, v: jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k[:, :8])) @ v[:, :8],
            "eight keys",
        ),
    ],
)
def test_what_is_no_attention(fn: Callable[..., Any], why: str) -> None:
    q, k, v = inputs("f32", (2, 32, 16), (2, 32, 16), (2, 32, 16))

    def shared(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k))
        return weights @ v, weights

    chosen = shared if why == "weights are a result" else fn
    assert "attention_0" not in kernels(check(chosen, q, k, v, length=64))


def test_pinned_tiles() -> None:
    """Tiles, cores and buffers are as asked, and change no more than roundings."""
    q, k, v = inputs("f16", (2, 70, 32), (2, 150, 32), (2, 150, 48))
    pins = tw.Schedule(rows=32, keys=48, grid=(2, 2), l1=1)
    program = check(in_f32, q, k, v, length=182, options=tw.Options(schedule=pins))
    (schedule,) = (str(op.schedule) for op in program.module("graph").walk() if op.name == "graph.fusion")
    for part in ("rows = 32", "keys = 48", "grid = [2, 2]", "l1 = 1"):
        assert part in schedule


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        ({"rows": 20}, "rows"),
        ({"keys": 4096}, "keys"),
        ({"grid": (9, 9)}, "grid"),
        ({"keys": 64, "scored": 48}, "scores of 48 keys"),
        ({"keys": 64, "columns": 32}, "32 columns"),
        ({"keys": 64, "buffered": 1}, "cannot be worked on in place"),
        ({"keys": 64, "buffered": 3}, "3 tiles of scores"),
    ],
)
def test_pins_that_cannot_be_obeyed(pins: dict[str, Any], reason: str) -> None:
    q, k, v = inputs("f16", (2, 70, 32), (2, 5000, 32), (2, 5000, 48))
    with pytest.raises(tw.CompileError, match=rf"@attention_0 cannot obey .*{reason}"):
        tw.compile(in_f32, q, k, v, options=tw.Options(schedule=tw.Schedule(**pins)))


@pytest.mark.parametrize(("rows", "parts"), [(2048, True), (8192, False)])
def test_what_takes_less_in_parts(rows: int, parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights stay in L2 then: more of them would take memory, whatever is quicker."""
    monkeypatch.setitem(chain_apart.MARGINS, AttentionKernel, ("attention takes", chain_apart.BETTER))
    x = jax.ShapeDtypeStruct((1, 2, rows, 256), "float16")
    reports = {
        name: tw.compile(plain, x, x, x, target="ascend-950pr", options=tw.Options(without=name)).report()
        for name in ("", "attention", "unchained")
    }
    if parts:
        assert reports["unchained"].microseconds > 1.1 * reports["attention"].microseconds
    one = any(kernel.name.startswith("attention") for kernel in reports[""].kernels)
    assert one == (not parts)
    assert reports[""].microseconds <= 1.001 * reports["unchained"].microseconds


def test_left_out() -> None:
    q, k, v = inputs("f16", (2, 70, 32), (2, 150, 32), (2, 150, 48))
    program = check(in_f32, q, k, v, length=182, options=tw.Options(without={"attention", "row-epilogue"}))
    assert kernels(program) == ["contract_0", "reduce_0", "contract_1"]


@sampled(2)
@pytest.mark.parametrize("length", [3, 1200])
def test_chains_beside_it(length: int) -> None:
    """What a bias is made of does not matter, nor how long it takes; many ops of positions are an input, too."""

    def attention(q: Any, k: Any, v: Any, bias: Any) -> Any:
        positions = jnp.arange(k.shape[1], dtype=np.float32)
        for _ in range(length):
            bias, positions = jnp.sin(bias), jnp.cos(positions)
        scores = jnp.einsum("hqd,hkd->hqk", q, k) + bias + positions
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)

    q, k, v, bias = inputs("f32", (2, 33, 16), (2, 65, 16), (2, 65, 16), (33, 65))
    if length == 3:
        assert kernels(check(attention, q, k, v, bias, length=81)) == ["sin_0", "attention_0"]
    else:
        assert kernels(tw.compile(attention, q, k, v, bias)) == ["sin_0", "cos_0", "attention_0"]
