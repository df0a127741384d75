"""What each mode of quantization keeps: two nets on digits, three seeds each, and a character language model.

    python benchmarks/quantized_accuracy.py                 # all, some minutes
    python benchmarks/quantized_accuracy.py digits          # those whose name has this in it
    python benchmarks/quantized_accuracy.py --modes f8      # these modes

Values are those of `tw.fake_quant`, which equal the compiled program's. Scales come from training data, accuracy and
perplexity from test data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import jax.numpy as jnp
import numpy as np
import trained

import tilewright as tw
from tilewright.compression.measures import sqnr

STEPS, RATE = 150, 3e-4
"""Of quantisation-aware training."""

Modes = tuple[tuple[str, tuple[str, ...]], ...]

MODES: Modes = (
    ("w8a8", ()),
    ("w8a8-dynamic", ()),
    ("w8a16", ()),
    ("w4a16-g32", ()),
    ("w4a16-g32", ("awq",)),
    ("w4a16-g32", ("gptq",)),
    ("w4a8", ()),
    ("w4a8", ("round",)),
    ("w4a8", ("gptq", "bias")),
    ("f8", ()),
    ("f8-e5m2", ()),
    ("w8a8-sparse", ()),
    ("w8a8-sparse", ("smooth", "bias")),
)
"""What is measured: modes, and what recovers them. Behind these comes training in `TRAINED`."""

TRAINED = ("w4a8", "w8a8-sparse")

TARGETS = dict.fromkeys(("f8", "f8-e5m2"), "ascend-950pr")
"""The machines of modes that the default one does not have."""


def digits(net: Any, seed: int, modes: Modes) -> Iterator[tuple[str, float, float]]:
    """Rows of a net on digits: what, accuracy, and SQNR of the logits in dB. modes: those of `MODES` to measure."""
    params = net.params(seed)
    (images, labels), (test, wanted) = net.data()
    count = len(test)
    batches = [jnp.asarray(images[i : i + count]) for i in range(0, len(images) - count + 1, count)]
    reference = jax.jit(net.forward)(params, test)
    yield "f32", accuracy(reference, wanted), float("inf")
    for mode, recover in modes:
        made = _quantized(net, params, batches, mode, recover)
        logits = jax.jit(made.function)(params, test)
        yield _name(mode, recover), accuracy(logits, wanted), sqnr([reference], [logits])
    if modes != MODES:
        return
    for mode in TRAINED:
        made = _quantized(net, params, batches, mode, ())
        trained_on = tuned(
            made.function, params, batches, [labels[i * count : (i + 1) * count] for i in range(len(batches))]
        )
        logits = jax.jit(made.function)(trained_on, test)
        yield f"{mode}, trained", accuracy(logits, wanted), sqnr([reference], [logits])


def _quantized(net: Any, params: Any, batches: Sequence[Any], mode: str, recover: Sequence[str]) -> Any:
    return tw.quantize(
        net.forward,
        params,
        batches[0],
        data=batches,
        config=mode,
        target=TARGETS.get(mode),
        recover=recover,
        progress=False,
    )


def _name(mode: str, recover: Sequence[str]) -> str:
    return ", ".join([mode, *recover])


def accuracy(logits: Any, labels: Any) -> float:
    return 100 * float((np.asarray(logits).argmax(-1) == np.asarray(labels)).mean())


def tuned(forward: Callable[..., Any], params: Any, batches: Sequence[Any], labels: Sequence[Any]) -> Any:
    """Weights trained a little further as the program will use them."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return trained.cross_entropy(forward(params, x), y)

    @jax.jit
    def step(state: Any, x: jax.Array, y: jax.Array) -> Any:
        return trained.adam_step(state, jax.grad(loss)(state.params, x, y), RATE)

    state = trained.adam(params)
    for i in range(STEPS):
        state = step(state, batches[i % len(batches)], jnp.asarray(labels[i % len(labels)]))
    return state.params


def language(modes: Modes) -> Iterator[tuple[str, float, float]]:
    """Rows of the language model: what, perplexity on validation text, and SQNR of the logits in dB. modes: those of
    `MODES` to measure."""
    import char_lm as net

    params = net.params()
    train, validation = net.data()
    context = net.windows(train, 64)[:, :-1].reshape(4, 16, -1)
    batches = [jnp.asarray(b) for b in context]
    some = jnp.asarray(net.windows(validation, 16)[:, :-1])
    reference = jax.jit(net.forward)(params, some)
    text = validation[: 64 * 1024]
    yield "f32", net.perplexity(lambda x: net.forward(params, x), text), float("inf")
    for mode, recover in modes:
        made = _quantized(net, params, batches, mode, recover)
        logits = jax.jit(made.function)(params, some)
        value = net.perplexity(jax.jit(lambda x, f=made.function: f(params, x)), text)
        yield _name(mode, recover), value, sqnr([reference], [logits])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", help="parts of the names of nets")
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="nets on digits that are trained (default 3)"
    )
    parser.add_argument("--modes", default="", help="only these, by comma")
    given = parser.parse_args()
    modes = tuple(m for m in MODES if not given.modes or m[0] in given.modes.split(","))
    import digits_cnn
    import vit_digits

    for name, net in (("digits CNN", digits_cnn), ("digits transformer", vit_digits)):
        if given.nets and not any(part in name for part in given.nets):
            continue
        print(f"\n| {name} | accuracy by seed, % | mean drop | SQNR, dB |\n|---|---|--:|--:|")
        runs = list(zip(*(digits(net, seed, modes) for seed in range(given.seeds)), strict=True))
        first = runs[0]
        for rows in runs:
            accuracies = ", ".join(f"{r[1]:.2f}" for r in rows)
            drop = np.mean([a[1] - r[1] for a, r in zip(first, rows, strict=True)])
            noise = "" if rows[0][0] == "f32" else f"{np.mean([r[2] for r in rows]):.1f}"
            print(f"| {rows[0][0]} | {accuracies} | {drop:.2f} | {noise} |", flush=True)
    if not given.nets or any(part in "language model" for part in given.nets):
        print("\n| language model | perplexity | of f32 | SQNR, dB |\n|---|--:|--:|--:|")
        before = None
        for name, value, noise in language(modes):
            before = before or value
            print(f"| {name} | {value:.4f} | {value / before:.4f} | {noise:.1f} |", flush=True)


if __name__ == "__main__":
    main()
