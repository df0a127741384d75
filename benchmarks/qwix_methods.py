"""Quantised weights against those of qwix (Google's library for JAX) on the same random layers: SQNR of outputs in dB.

python benchmarks/qwix_methods.py                # some two minutes; needs `pip install qwix==0.1.8`

Weights are calibrated with one half of the inputs; the table is about the other half. qwix is no dependency of this
project: install it into an environment of its own that has the project, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilewright.quantization import balancing, rounding, weights

LAYERS: dict[str, tuple[int, int, float, float]] = {
    "even, independent": (512, 512, 0.0, 0.0),
    "correlated": (512, 512, 0.7, 0.3),
    "correlated, strong channels": (768, 768, 0.7, 1.5),
    "few strong channels": (768, 768, 0.0, 2.5),
}
"""Channels in and out, the share of common directions, and the deviation of the logarithm of channels' strengths."""

ROWS = 2048


def random_layer(k: int, n: int, shared: float, skew: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inputs for calibration and for the test, and a weight."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(ROWS, k // 8)) @ rng.normal(size=(k // 8, k))
    x = (rng.normal(size=(ROWS, k)) + shared * common) * np.exp(rng.normal(0, skew, k))
    w = rng.standard_t(5, (k, n)) / np.sqrt(k)
    x32 = jnp.asarray(x, jnp.float32)
    return x32[: ROWS // 2], x32[ROWS // 2 :], jnp.asarray(w, jnp.float32)


def of_qwix(w: jax.Array, group: int | None, bits: int) -> Any:
    """How qwix is told to quantise a weight [n, k]."""
    from qwix._src.core import qarray

    tiles = {} if group is None else {1: group}
    return qarray.HowToQuantize(
        qtype=jnp.int4 if bits == 4 else jnp.int8, channelwise_axes=(0,), tiled_axes=tiles
    )


def theirs(method: str, x: jax.Array, w: jax.Array, group: int | None, bits: int) -> jax.Array:
    """The weight that qwix yields, dequantised, [k, n]."""
    from qwix._src.core import qarray
    from qwix.contrib import awq_core, gptq_core

    how = of_qwix(w, group, bits)
    if method == "nearest":
        return qarray.dequantize(qarray.quantize(w.T, how)).T
    if method == "gptq":
        found, _ = gptq_core.quantize_weight(w.T, gptq_core.compute_hessian(x.T), how)
        return qarray.dequantize(found).T
    found, scale = awq_core.quantize_weight(w.T, awq_core.compute_act_scale(x), how)
    return (qarray.dequantize(found) / scale).T


def ours(method: str, x: jax.Array, w: jax.Array, group: int | None, bits: int) -> jax.Array:
    """Our weight; a method's name may end with that of its scales, and with `order` or `clip`."""
    name, *options = method.split()
    scales = next((o for o in options if o in rounding.SCALE_METHODS), "absmax")
    low, high = rounding.stored_range(f"i{bits}", symmetric=scales == "absmax")
    h = weights.update_hessian(weights.start_hessian(len(w)), x)
    if name == "nearest":
        return weights.nearest(w, (low, high), group, scales).dequantized()
    if name == "gptq":
        return weights.gptq(w, h, (low, high), group, scales, act_order="order" in options).dequantized()
    magnitude = jnp.mean(jnp.abs(x), 0)
    return weights.awq(w, h, magnitude, (low, high), group, scales, clip="clip" in options).dequantized()


METHODS = {
    "nearest": ("nearest", "nearest extended", "nearest mse"),
    "gptq": ("gptq", "gptq extended", "gptq mse order"),
    "awq": ("awq", "awq extended", "awq clip"),
}
"""Of each of qwix's methods ours, plainest first."""


def smoothed(x: jax.Array, test: jax.Array, w: jax.Array, scale: jax.Array, of_weight: Any) -> jax.Array:
    """The product of i8 inputs and weights whose ranges are balanced by a scale, dequantised."""
    unit = jnp.max(jnp.abs(x / scale)) / 127
    return rounding.fake(test / scale, unit) @ of_weight(w * scale[:, None])


def smooth_quant(x: jax.Array, test: jax.Array, w: jax.Array) -> tuple[float, float, float]:
    """SQNR of 8-bit inputs and weights: not balanced, ours, qwix's."""
    from qwix.contrib import smooth_quant as module

    y = test @ w
    inputs, rows = jnp.max(jnp.abs(x), 0), balancing.largest_along([w], 0)
    each = (
        jnp.ones(len(w)),
        balancing.smooth_scale(inputs, rows),
        module.compute_scales_ratio(inputs, rows, 0.5),
    )
    kinds: tuple[Callable[[jax.Array], jax.Array], ...] = (
        lambda v: weights.nearest(v).dequantized(),
        lambda v: weights.nearest(v).dequantized(),
        lambda v: theirs("nearest", x, v, None, 8),
    )
    first, second, third = (
        rounding.sqnr(y, smoothed(x, test, w, scale, of_weight)) for scale, of_weight in zip(each, kinds)
    )
    return first, second, third


def timed(f: Callable[[], jax.Array]) -> tuple[jax.Array, float]:
    """A result and the seconds of a second run, which compiles nothing."""
    jax.block_until_ready(f())
    begin = time.perf_counter()
    result = jax.block_until_ready(f())
    return result, time.perf_counter() - begin


def main() -> int:
    """Prints the tables."""
    try:
        import qwix  # noqa: F401
    except ImportError:
        print(
            "qwix is not installed: `pip install qwix==0.1.8` in an environment that has tilewright",
            file=sys.stderr,
        )
        return 1
    print("| layer | 4-bit weights | qwix dB (s) | ours dB (s) |\n|---|---|---:|---:|")
    for name, shape in LAYERS.items():
        x, test, w = random_layer(*shape)
        y = test @ w
        for group in (None, 64):
            for method, mine in METHODS.items():
                found, seconds = timed(lambda: theirs(method, x, w, group, 4))  # noqa: B023
                cells = [f"{rounding.sqnr(y, test @ found):.2f} ({seconds:.2f})"]
                for i, kind in enumerate(mine):
                    found, seconds = timed(lambda: ours(kind, x, w, group, 4))  # noqa: B023
                    label = "" if not i else kind.removeprefix(method).strip() + " "
                    cells.append(f"{label}{rounding.sqnr(y, test @ found):.2f} ({seconds:.2f})")
                of = f"{method}, {'per channel' if group is None else f'groups of {group}'}"
                print(f"| {name} | {of} | {cells[0]} | {', '.join(cells[1:])} |", flush=True)
    print("\n| layer | 8 bits, not balanced dB | SmoothQuant, qwix dB | ours dB |\n|---|---:|---:|---:|")
    for name, shape in LAYERS.items():
        without, mine, other = smooth_quant(*random_layer(*shape))
        print(f"| {name} | {without:.2f} | {other:.2f} | {mine:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
