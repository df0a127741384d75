"""A character language model trained on the text that Python ships; run the file to print its perplexity.

The text is the docstrings of the standard library, the language reference of `help()` and the licence, so it depends
on the version of Python, and so do the weights and the perplexity.
"""

import ast
import inspect
import math
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from trained import (
    Adam,
    Params,
    adam,
    adam_step,
    cached,
    cached_params,
    cross_entropy,
    name_of,
    place_of,
    warm_and_fall,
)
from transformer import block, init_block, init_norm, layer_norm, normal

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
"""The character of each token; every other one is left out of the text."""
SKIPPED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip")
"""Folders of the library whose text is not its own, or says little."""


class Hyper(NamedTuple):
    """Everything that decides the trained weights but for the text."""

    n_layers: int = 4
    d_model: int = 128
    n_heads: int = 4
    context: int = 128
    steps: int = 2600
    batch: int = 8
    rate: float = 3e-3
    warm: int = 100
    decay: float = 0.05
    seed: int = 0


HYPER = Hyper()


def forward(params: Params, tokens: jax.Array) -> jax.Array:
    """tokens int32 [b, t] with t at most 128; logits of each next token [b, t, 96] in the dtype of the weights."""
    x = params["embedding"][tokens] + params["positions"][: tokens.shape[1]]
    for p in params["blocks"]:
        x = block(x, p, HYPER.n_heads, causal=True)
    return layer_norm(x, params["norm"]) @ params["head"]


def params(seed: int = 0) -> Params:
    """The trained weights of a seed, all f32: 'embedding' and 'positions', 'blocks', 'norm', 'head'. Training takes
    some 4 minutes on 2 cores."""
    hyper = HYPER._replace(seed=seed)
    return cached_params("char-lm", _decides(hyper), lambda: init(hyper), lambda: train(hyper))


def is_trained(seed: int = 0) -> bool:
    """Whether the weights of a seed are in the cache."""
    return place_of(name_of("char-lm", _decides(HYPER._replace(seed=seed)))).exists()


def data() -> tuple[np.ndarray, np.ndarray]:
    """The tokens of the text for training and of that for validation, int32 [n] each. No file is in both."""
    arrays = cached(_text_name(), _read_text)
    return arrays["train"].astype(np.int32), arrays["validation"].astype(np.int32)


def windows(tokens: np.ndarray, count: int | None = None) -> np.ndarray:
    """The text cut into rows of a context and the token after it, int32 [n, 129]: `count` of them, evenly apart, or
    as many as there are without overlap."""
    size = HYPER.context + 1
    whole = (len(tokens) - 1) // HYPER.context
    if count is not None and not 0 < count <= whole:
        raise ValueError(f"there are {whole} windows, so say a count from 1 to {whole}, not {count}")
    picked = np.arange(whole) if count is None else np.linspace(0, whole - 1, count).round().astype(int)
    return tokens[picked[:, None] * HYPER.context + np.arange(size)]


def perplexity(model: Params | Callable[[jax.Array], Any], tokens: np.ndarray, batch: int = 16) -> float:
    """exp of the mean cross entropy per character.

    model: weights, or a function that makes logits [batch, 128, 96] of tokens int32 [batch, 128]: a compiled program,
    say. tokens: a text int32 [n], or windows of one int32 [n, 129]. The last windows are left out where they do not
    fill a batch. Raises ValueError where not even one is filled.
    """
    rows = windows(tokens) if tokens.ndim == 1 else tokens
    if len(rows) < batch:
        raise ValueError(
            f"{len(rows)} windows do not fill a batch of {batch}: give more text, or a smaller batch"
        )
    run = model if callable(model) else jax.tree_util.Partial(_jitted, model)
    total = [
        float(_jitted_loss(jnp.asarray(run(jnp.asarray(part[:, :-1]))), jnp.asarray(part[:, 1:])))
        for part in (rows[i : i + batch] for i in range(0, len(rows) - batch + 1, batch))
    ]
    return math.exp(sum(total) / len(total))


def init(hyper: Hyper = HYPER) -> Params:
    """Random f32 weights."""
    rng = np.random.default_rng(hyper.seed)
    d, n = hyper.d_model, len(CHARACTERS)
    return {
        "embedding": normal(rng, n, d, std=0.05),
        "positions": normal(rng, hyper.context, d, std=0.05),
        "blocks": [init_block(rng, d, hyper.n_layers) for _ in range(hyper.n_layers)],
        "norm": init_norm(d),
        "head": normal(rng, d, n, std=1 / math.sqrt(d)),
    }


def loss(params: Params, rows: jax.Array) -> jax.Array:
    """Mean cross entropy of windows int32 [b, 129], f32 []."""
    return cross_entropy(forward(params, rows[:, :-1]), rows[:, 1:])


def train(hyper: Hyper = HYPER, each: Callable[[int, float], None] | None = None) -> Params:
    """Trains from scratch on random windows of the text. each: is told the step and the mean loss since the last
    time, every 100 steps."""
    rng = np.random.default_rng(hyper.seed)
    text, _ = data()
    state = adam(init(hyper))

    @jax.jit
    def run(state: Adam, rows: jax.Array) -> tuple[Adam, jax.Array]:
        def step(state: Adam, batch: jax.Array) -> tuple[Adam, jax.Array]:
            value, grads = jax.value_and_grad(loss)(state.params, batch)
            rate = warm_and_fall(state.step, hyper.steps, hyper.rate, hyper.warm)
            return adam_step(state, grads, rate, hyper.decay), value

        return jax.lax.scan(step, state, rows)

    together = 100
    for done in range(0, hyper.steps, together):
        starts = rng.integers(
            0, len(text) - hyper.context, (min(together, hyper.steps - done), hyper.batch, 1)
        )
        state, losses = run(state, jnp.asarray(text[starts + np.arange(hyper.context + 1)]))
        if each is not None:
            each(done + len(losses), float(jnp.mean(losses)))
    return state.params


def forward_inputs() -> tuple[Params, jax.Array]:
    """The trained weights and 4 windows of the text for validation, int32 [4, 128]."""
    return params(), jnp.asarray(windows(data()[1], 4)[:, :-1])


_jitted = jax.jit(forward)
_jitted_loss = jax.jit(cross_entropy)


def _decides(hyper: Hyper) -> object:
    return hyper, _text_name()


def _text_name() -> str:
    return f"char-lm-text-{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}.npz"


def _read_text() -> dict[str, np.ndarray]:
    library = Path(sysconfig.get_paths()["stdlib"])
    parts: dict[str, list[str]] = {"train": [], "validation": []}
    for path in sorted([*library.rglob("*.py"), *library.glob("LICENSE*")]):
        name = path.relative_to(library).as_posix()
        if not set(SKIPPED) & {*name.split("/")[:-1]}:
            # One file in twelve, whatever other files there are.
            part = "validation" if zlib.crc32(name.encode()) % 12 == 0 else "train"
            parts[part] += _texts(path)
    place = {character: token for token, character in enumerate(CHARACTERS)}
    return {
        part: np.array([place[c] for c in "\n\n".join(texts) if c in place], np.uint8)
        for part, texts in parts.items()
    }


def _texts(path: Path) -> Iterator[str]:
    """The texts of a file: a docstring each, or all of it; of `pydoc_data/topics.py` what `help()` shows."""
    source = path.read_text(encoding="utf-8", errors="ignore")
    if path.suffix != ".py":
        yield source
        return
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node)
            if said:
                yield said
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path.name == "topics.py":
            if len(node.value) > 200:
                yield inspect.cleandoc(node.value)


if __name__ == "__main__":
    _, validation = data()
    print(f"perplexity of the validation text {perplexity(params(), validation):.3f} per character")
