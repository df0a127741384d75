"""What the trained examples share: Adam, a learning rate that falls, and a cache of what takes long to make.

Weights are stored under the names of their places in the tree (`['blocks'][0]['attention']['q']`), in
`$TILEWRIGHT_CACHE` or `~/.cache/tilewright`.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Params = Any
"""A tree of arrays."""


class Rows(NamedTuple):
    """Examples with their labels: inputs [n, ...] and int32 [n]."""

    inputs: np.ndarray
    labels: np.ndarray


BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam(NamedTuple):
    """Weights, their first and second moment estimates, and the number of steps taken (int32 [])."""

    params: Params
    mean: Params
    square: Params
    step: jax.Array


def adam(params: Params) -> Adam:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Adam(params, zeros, zeros, jnp.zeros((), jnp.int32))


def adam_step(state: Adam, grads: Params, rate: jax.Array | float, decay: float = 0.0) -> Adam:
    """One update with bias correction (Kingma and Ba 2015, with the two corrections in the rate, as at the end of
    their section 2). decay: what `rate` times it takes from each matrix in a step (Loshchilov and Hutter 2019)."""
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.mean, grads)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state.square, grads)
    corrected = rate * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)

    def moved(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        kept = p * (1 - rate * decay) if decay and p.ndim > 1 else p
        return kept - corrected * m / (jnp.sqrt(v) + EPSILON)

    return Adam(jax.tree.map(moved, state.params, mean, square), mean, square, step)


def warm_and_fall(step: jax.Array, steps: int, peak: float, warm: int) -> jax.Array:
    """The rate of a step: rises linearly to `peak` over `warm` steps, then falls linearly to zero at `steps`."""
    return peak * jnp.minimum((step + 1) / warm, (steps - step) / (steps - warm))


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over all rows, f32 []; logits [..., n], labels int32 [...]."""
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[..., None], axis=-1))


def place_of(name: str) -> Path:
    """The path of the cache file `name`, which need not exist."""
    return Path(os.environ.get("TILEWRIGHT_CACHE") or Path.home() / ".cache" / "tilewright") / name


def name_of(kind: str, decides: object) -> str:
    """The name of the cache file of weights: `kind`, and a hash of the `repr` of everything that decides them."""
    return f"{kind}-{hashlib.sha256(repr(decides).encode()).hexdigest()[:12]}.npz"


def cached(name: str, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of the cache file `name`, which `make` fills when it does not exist."""
    path = place_of(name)
    folder = path.parent
    if not path.exists():
        with (
            jax.ensure_compile_time_eval()
        ):  # only the shapes of the inputs may be asked for, by `jax.eval_shape`
            arrays = make()
        folder.mkdir(parents=True, exist_ok=True)
        # Tests may run in parallel: nobody may see half a file, and the last complete one wins.
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    with np.load(path) as stored:
        return dict(stored)


def cached_params(
    kind: str, decides: object, init: Callable[[], Params], make: Callable[[], Params]
) -> Params:
    """Trained weights from the cache file `name_of(kind, decides)`, or from `make`, which trains them.

    init: gives a tree of the weights' structure.
    """

    def named() -> dict[str, np.ndarray]:
        leaves, _ = jax.tree.flatten_with_path(make())
        return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}

    arrays = cached(name_of(kind, decides), named)
    return jax.tree.map_with_path(
        lambda path, _: jnp.asarray(arrays[jax.tree_util.keystr(path)]), jax.eval_shape(init)
    )
