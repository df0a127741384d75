"""Text generation with `lax.while_loop` in plain JAX: `greedy` and `beam` search over a small decoder with a KV
cache, and their `tiny_` variants."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]

EPS = 1e-5
END = 1
UNLIKELY = -1e9


class Config(NamedTuple):
    """Shape of the decoder, and how far it writes."""

    n_layers: int
    d_model: int
    n_heads: int
    vocab: int
    n_new: int
    beams: int


SMALL = Config(n_layers=4, d_model=512, n_heads=8, vocab=8192, n_new=32, beams=4)
TINY = Config(n_layers=2, d_model=32, n_heads=4, vocab=53, n_new=9, beams=3)


class Cache(NamedTuple):
    """Keys and values so far, each [layers, rows, positions, heads, head size]."""

    k: jax.Array
    v: jax.Array


class Greedy(NamedTuple):
    """tokens int32 [rows, n_new + 1], of which `at` are written; done bool [rows]."""

    at: jax.Array
    tokens: jax.Array
    done: jax.Array
    cache: Cache


class Beams(NamedTuple):
    """As Greedy, for one text; scores f32 [beams] are sums of log probabilities, best first."""

    at: jax.Array
    tokens: jax.Array
    scores: jax.Array
    done: jax.Array
    cache: Cache


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square norm over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + EPS) * scale


def step(
    params: Params, cache: Cache, token: jax.Array, at: jax.Array, n_heads: int
) -> tuple[jax.Array, Cache]:
    """Log probabilities [rows, vocab] of what follows `token` (int32 [rows]), which stands at position `at`."""
    x = params["embedding"][token] + jax.lax.dynamic_index_in_dim(params["positions"], at, keepdims=False)
    rows, d = x.shape
    c = d // n_heads
    for i, p in enumerate(params["layers"]):
        q, k, v = ((norm(x, p["norm1"]) @ p[name]).reshape(rows, n_heads, c) for name in ("q", "k", "v"))
        cache = Cache(
            *(
                jax.lax.dynamic_update_slice(old, new[None, :, None], (i, 0, at, 0, 0))
                for old, new in zip(cache, (k, v), strict=True)
            )
        )
        scores = jnp.einsum("rhc,rthc->rht", q, cache.k[i]) / math.sqrt(c)
        scores = jnp.where(jnp.arange(scores.shape[-1]) <= at, scores, UNLIKELY)
        mixed = jnp.einsum("rht,rthc->rhc", jax.nn.softmax(scores, axis=-1), cache.v[i]).reshape(rows, d)
        x = x + mixed @ p["o"]
        x = x + jax.nn.gelu(norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return jax.nn.log_softmax(norm(x, params["norm"]) @ params["head"], axis=-1), cache


def empty_cache(config: Config, rows: int, dtype: Any) -> Cache:
    """A cache of zeros for `rows` texts."""
    shape = (config.n_layers, rows, config.n_new, config.n_heads, config.d_model // config.n_heads)
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def greedy_search(config: Config, params: Params, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The likeliest next token again and again, until all rows have ended; first int32 [rows].

    Gives the tokens, int32 [rows, n_new + 1], and how many of them are written, int32.
    """
    rows = first.shape[0]
    tokens = jnp.full((rows, config.n_new + 1), END, jnp.int32).at[:, 0].set(first)
    cache = empty_cache(config, rows, params["head"].dtype)

    def unfinished(s: Greedy) -> jax.Array:
        return (s.at < config.n_new) & ~jnp.all(s.done)

    def body(s: Greedy) -> Greedy:
        token = jax.lax.dynamic_index_in_dim(s.tokens, s.at, axis=1, keepdims=False)
        logits, cache = step(params, s.cache, token, s.at, config.n_heads)
        chosen = jnp.where(s.done, END, jnp.argmax(logits, axis=-1).astype(jnp.int32))
        tokens = jax.lax.dynamic_update_slice(s.tokens, chosen[:, None], (0, s.at + 1))
        return Greedy(s.at + 1, tokens, s.done | (chosen == END), cache)

    start = Greedy(jnp.int32(0), tokens, jnp.zeros(rows, bool), cache)
    last = jax.lax.while_loop(unfinished, body, start)
    return last.tokens, last.at + 1


def beam_search(config: Config, params: Params, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best texts of `beams` at each length; first int32 []. Gives tokens [beams, n_new + 1] and scores [beams]."""
    n, vocab = config.beams, config.vocab
    tokens = jnp.full((n, config.n_new + 1), END, jnp.int32).at[:, 0].set(first)
    scores = jnp.full(n, UNLIKELY, jnp.float32).at[0].set(0.0)
    # A finished text goes on with END alone, at no cost.
    ended = jnp.full(vocab, UNLIKELY, jnp.float32).at[END].set(0.0)

    def unfinished(s: Beams) -> jax.Array:
        return (s.at < config.n_new) & ~jnp.all(s.done)

    def body(s: Beams) -> Beams:
        token = jax.lax.dynamic_index_in_dim(s.tokens, s.at, axis=1, keepdims=False)
        logits, cache = step(params, s.cache, token, s.at, config.n_heads)
        total = s.scores[:, None] + jnp.where(s.done[:, None], ended, logits)
        scores, best = jax.lax.top_k(total.reshape(-1), n)
        parent, chosen = best // vocab, best % vocab
        tokens = jax.lax.dynamic_update_slice(s.tokens[parent], chosen[:, None], (0, s.at + 1))
        cache = Cache(cache.k[:, parent], cache.v[:, parent])
        return Beams(s.at + 1, tokens, scores, s.done[parent] | (chosen == END), cache)

    cache = empty_cache(config, n, params["head"].dtype)
    start = Beams(jnp.int32(0), tokens, scores, jnp.zeros(n, bool), cache)
    last = jax.lax.while_loop(unfinished, body, start)
    return last.tokens, last.scores


def init(config: Config, seed: int = 0) -> Params:
    """Random f32 weights; large at the head, so that no two tokens are nearly as likely."""
    rng = np.random.default_rng(seed)
    d = config.d_model

    def matrix(n: int, m: int, gain: float = 1.0) -> jax.Array:
        return jnp.asarray(gain / math.sqrt(n) * rng.standard_normal((n, m), dtype=np.float32))

    def scale() -> jax.Array:
        return jnp.asarray(rng.uniform(0.8, 1.2, d), jnp.float32)

    layers = [
        {
            "norm1": scale(),
            **{name: matrix(d, d) for name in ("q", "k", "v", "o")},
            "norm2": scale(),
            "up": matrix(d, 4 * d),
            "down": matrix(4 * d, d),
        }
        for _ in range(config.n_layers)
    ]
    return {
        "embedding": matrix(config.vocab, d, math.sqrt(config.vocab)),
        "positions": matrix(config.n_new, d, 0.3),
        "layers": layers,
        "norm": scale(),
        "head": matrix(d, config.vocab, 2.0),
    }


def greedy(params: Params, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """first int32 [2]; tokens int32 [2, 33] and how many are written, int32."""
    return greedy_search(SMALL, params, first)


def greedy_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and two first tokens."""
    return init(SMALL), jnp.asarray([17, 4021], jnp.int32)


def beam(params: Params, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """first int32 []; tokens int32 [4, 33] and scores f32 [4]."""
    return beam_search(SMALL, params, first)


def beam_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and a first token."""
    return init(SMALL), jnp.int32(17)


def tiny_greedy(params: Params, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For tests; first int32 [2]."""
    return greedy_search(TINY, params, first)


def tiny_greedy_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and two first tokens."""
    return init(TINY), jnp.asarray([17, 40], jnp.int32)


def tiny_beam(params: Params, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For tests; first int32 []."""
    return beam_search(TINY, params, first)


def tiny_beam_inputs() -> tuple[Params, jax.Array]:
    """f32 weights and a first token."""
    return init(TINY), jnp.int32(17)
