"""How much each layer of MobileNetV2 and ResNet-50 keeps in int8, with random weights and batch statistics: with one
scale for each weight tensor and for each channel, before and after equalisation; and with the scales of norms drawn
log-uniformly over 2^-4 to 2^4, as trained nets may have them. And what calibration costs against running the same
images in JAX.

    python benchmarks/quantized_layers.py [--size 64] [--images 4] [--each]

Batch norms are in the weights before these are rounded. The SQNR of a layer is that of its own results on exact
inputs: of all of them, which the strongest channels decide, and the mean over channels of the SQNR of each. `--each`
prints a row for each layer, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import jax.numpy as jnp
import numpy as np

import tilewright as tw
from tilewright.compression.measures import cosine, decibels, sqnr
from tilewright.dialects.graph import ConvOp
from tilewright.dialects.graph.interface import shape_of
from tilewright.passes.quantized.products_named import NamedProduct, feature_dims
from tilewright.quantization import weights
from tilewright.quantization.calibrate import gather, with_scales
from tilewright.quantization.matrices import Matrices
from tilewright.quantization.modes import product_in_mode
from tilewright.quantization.recovery import recovered, weights_of
from tilewright.quantization.traced import ChangedRunner, TracedSource, WatchingRunner, trace_source

VARIANTS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "per tensor": (True, ()),
    "per tensor, equalized": (True, ("equalize",)),
    "per channel": (False, ()),
    "per channel, equalized": (False, ("equalize",)),
}
"""Whether a weight tensor has one scale, and what recovers it."""


class Layer(NamedTuple):
    """What a layer keeps: SQNR of all its results in dB, and the mean over channels of the SQNR of each."""

    product: NamedProduct
    whole: float
    channels: float

    @property
    def is_depthwise(self) -> bool:
        return isinstance(self.product.op, ConvOp) and shape_of(self.product.weights)[2] == 1


def mapped_norms(tree: Any, change: Callable[[dict[str, Any], str], dict[str, Any]]) -> Any:
    """Weights in which `change(layers, name)` has replaced entries of each dict with a batch norm called so."""
    if isinstance(tree, list):
        return [mapped_norms(v, change) for v in tree]
    if not isinstance(tree, dict):
        return tree
    made = {k: mapped_norms(v, change) for k, v in tree.items()}
    for name, norm in tree.items():
        if isinstance(norm, dict) and {"mean", "var", "scale", "bias"} <= set(norm):
            made |= change(made, name)
    return made


def spread(params: Any, seed: int = 0) -> Any:
    """Weights with the scales of batch norms drawn log-uniformly over 2^-4 to 2^4."""
    rng = np.random.default_rng(seed)

    def change(layers: dict[str, Any], name: str) -> dict[str, Any]:
        norm = layers[name]
        scale = jnp.asarray(2.0 ** rng.uniform(-4, 4, norm["scale"].shape), norm["scale"].dtype)
        return {name: {**norm, "scale": scale}}

    return mapped_norms(params, change)


def with_statistics(net: ModuleType, params: Any, images: jax.Array) -> Any:
    """Weights whose batch norms have the means and variances that the images give."""
    found: dict[int, tuple[jax.Array, jax.Array]] = {}

    def batch_norm(x: jax.Array, p: dict[str, Any]) -> jax.Array:
        mean, variance = found[id(p["scale"])] = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        return plain(x, {**p, "mean": mean, "var": variance})

    def change(layers: dict[str, Any], name: str) -> dict[str, Any]:
        mean, variance = found[id(layers[name]["scale"])]
        return {name: {**layers[name], "mean": mean, "var": variance}}

    plain = net.batch_norm
    with patch.object(net, "batch_norm", batch_norm):
        net.forward(params, images)
    return mapped_norms(params, change)


def folded(params: Any, epsilon: float) -> Any:
    """Weights of the same function whose batch norms only add: their factors are in the convolutions before them."""

    def change(layers: dict[str, Any], name: str) -> dict[str, Any]:
        norm = layers[name]
        convolution = f"conv{name[2:]}" if name.startswith("bn") else name.removesuffix("_bn")
        factor = norm["scale"] * jax.lax.rsqrt(norm["var"] + epsilon)
        plain = jnp.ones_like(factor)
        left = {"mean": norm["mean"] * factor, "var": plain - epsilon, "scale": plain, "bias": norm["bias"]}
        return {convolution: layers[convolution] * factor, name: left}

    return mapped_norms(params, change)


def per_tensor(traced: TracedSource, config: tw.QuantConfig, leaves: Sequence[Any]) -> tw.QuantConfig:
    """A configuration with weights that are rounded with one scale for each product."""
    found = weights_of(traced, leaves, traced.names)
    products = dict(config.products)
    for product in traced.products:
        matrices, choice = Matrices.of(product), config.choice(product.name)
        assert matrices is not None
        w = matrices.matrix(found[product.name])
        if choice.balance is not None:
            w = w * matrices.factors(jnp.asarray(choice.balance, jnp.float32))[..., None]
        channels = weights.nearest(w).scale
        scale = jnp.full_like(channels, jnp.max(channels))
        stored = jnp.clip(jnp.round(w / scale), -127, 127).astype(jnp.int8)
        products[product.name] = replace(
            choice,
            stored=np.asarray(matrices.operand(stored)),
            scales=np.asarray(matrices.scales(scale, choice.recipe)),
        )
    return replace(config, products=products)


class ChannelNoise(WatchingRunner):
    """Gathers sums of squares of each channel of products' results, and those of its errors on the same operands."""

    def __init__(self, traced: TracedSource, config: tw.QuantConfig) -> None:
        super().__init__(traced.products, dict.fromkeys(traced.names), lambda name, state, x: state)
        self.config = config

    def op(self, op: Any, env: Any) -> None:
        super().op(op, env)
        product = self.products.get(op)
        if product is not None:
            exact, choice = env[op.results[0]], self.config.choice(product.name)
            made = product_in_mode(product, choice, env[product.input], env[product.weights])
            rest = tuple(d for d in range(exact.ndim) if d not in feature_dims(product))
            self.states[product.name] = jnp.sum(exact**2, rest), jnp.sum((exact - made) ** 2, rest)


def measured(
    traced: TracedSource, config: tw.QuantConfig, leaves: Sequence[Any]
) -> tuple[list[Layer], float, float]:
    """What each layer keeps, alone on exact inputs; and SQNR in dB and cosine of the logits of all together."""
    changes = {p.name: partial(product_in_mode, p, config.choice(p.name)) for p in traced.products}

    @jax.jit
    def run(leaves: Sequence[Any]) -> Any:
        watching = ChannelNoise(traced, config)
        exact = traced.run(watching, leaves)
        return watching.states, exact, traced.run(ChangedRunner(traced.products, changes), leaves)

    states, exact, made = jax.device_get(run(leaves))
    layers = []
    for product in traced.products:
        signal, noise = (np.asarray(v, np.float64) for v in states[product.name])
        alive = (signal > 0) & (noise > 0)
        each = 10 * np.log10(signal[alive] / noise[alive])
        layers.append(Layer(product, decibels(float(signal.sum()), float(noise.sum())), float(each.mean())))
    return layers, sqnr(exact, made), cosine(exact, made)


def calibrated(traced: TracedSource, leaves: Sequence[Any], steps: Sequence[str]) -> tw.QuantConfig:
    """A configuration of `w8a8` with scales from one batch."""
    balanced = recovered(traced, tw.QuantConfig("w8a8"), [leaves], steps, False)
    balances = {n: b for n in traced.names if (b := balanced.choice(n).balance) is not None}
    return with_scales(traced, balanced, gather(traced, [leaves], traced.names, False, balances=balances))


def layers(name: str, net: Any, params: Any, images: jax.Array, each: bool) -> None:
    """Prints rows of a net: the SQNR of depthwise and of other layers, and that of the logits; and of each layer."""
    traced = trace_source(net, (params, images), {}, None)
    leaves = traced.signature.flatten("net", (params, images))
    configs = {steps: calibrated(traced, leaves, steps) for _, steps in VARIANTS.values()}
    found = {}
    for variant, (one_scale, steps) in VARIANTS.items():
        config = per_tensor(traced, configs[steps], leaves) if one_scale else configs[steps]
        rows, noise, angle = measured(traced, config, leaves)
        found[variant] = rows
        cells = [name, variant]
        for part in ([r for r in rows if r.is_depthwise], [r for r in rows if not r.is_depthwise]):
            cells += [f"{np.mean([r.whole for r in part]):.1f}" if part else ""]
            cells += [f"{np.mean([r.channels for r in part]):.1f}" if part else ""]
        print(f"| {' | '.join([*cells, f'{noise:.1f}', f'{angle:.4f}'])} |", flush=True)
    if each:
        print(
            f"\n| layer of {name}, dB (of channels) | {' | '.join(VARIANTS)} |\n|---|{'--:|' * len(VARIANTS)}"
        )
        for rows in zip(*found.values(), strict=True):
            shown = " | ".join(f"{r.whole:.1f} ({r.channels:.1f})" for r in rows)
            print(f"| `{rows[0].product.name.removeprefix('params')}` | {shown} |")
        print(flush=True)


def calibration(net: Any, params: Any, images: jax.Array, batches: int, turns: int = 5) -> None:
    """Prints what calibrating takes and what running takes, both compiled: medians of turns."""
    traced = trace_source(net, (params, images), {}, None)
    leaves = traced.signature.flatten("net", (params, images))
    run = jax.jit(net)
    jax.block_until_ready(run(params, images))

    def seconds(work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - start

    taken, plain = [], []
    for _ in range(turns):
        # `gather` compiles its step anew, which a calibration of one batch shows
        once = seconds(lambda: gather(traced, [leaves], traced.names, False))
        taken.append(seconds(lambda: gather(traced, [leaves] * batches, traced.names, False)) - once)
        plain.append(seconds(lambda: [run(params, images) for _ in range(batches - 1)]))
    count = (batches - 1) * len(images)
    print(
        f"\ncalibrating {count} images of {images.shape[1]} pixels: {median(taken):.2f} s, running them in JAX "
        f"{median(plain):.2f} s: {median(taken) / median(plain):.2f} times as long"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", help="parts of the names of nets")
    parser.add_argument("--size", type=int, default=64, help="of the images, in pixels (default 64)")
    parser.add_argument("--images", type=int, default=4, help="in a batch (default 4)")
    parser.add_argument("--batches", type=int, default=9, help="that are calibrated for the time (default 9)")
    parser.add_argument("--each", action="store_true", help="a row for each layer, too")
    parser.add_argument("--only", choices=("layers", "calibration"), help="one of both")
    given = parser.parse_args()
    import mobilenet_v2
    import resnet50

    rng = np.random.default_rng(1)
    images = jnp.asarray(rng.standard_normal((given.images, given.size, given.size, 3)), jnp.float32)
    nets: tuple[tuple[str, ModuleType], ...] = (("MobileNetV2", mobilenet_v2), ("ResNet-50", resnet50))
    if given.only != "calibration":
        print(
            "| net | int8 weights | depthwise, dB | by channel | others, dB | by channel | logits, dB | cosine |"
        )
        print("|---|---|--:|--:|--:|--:|--:|--:|")
        for name, net in nets:
            params = net.forward_inputs()[0]
            for title, each in ((name, params), (f"{name}, norms spread", spread(params))):
                if not given.nets or any(part in title for part in given.nets):
                    each = with_statistics(net, each, images)
                    layers(title, net.forward, folded(each, net.EPS), images, given.each)
    if given.only != "layers":
        calibration(resnet50.forward, resnet50.forward_inputs()[0], images, given.batches)


if __name__ == "__main__":
    main()
