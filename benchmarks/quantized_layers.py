"""How much each layer of MobileNetV2 and ResNet-50 keeps in int8, with random weights and batch statistics: with one
scale for each weight tensor and for each channel, before and after equalisation; and with the scales of norms drawn
log-uniformly over 2^-4 to 2^4, as trained nets may have them. And what calibration costs against running the same
images in JAX.

    python benchmarks/quantized_layers.py [--size 64] [--images 4] [--each]

Batch norms are in the weights before these are rounded. `--each` prints a row for each layer, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import jax.numpy as jnp
import numpy as np

import tilewright as tw
from tilewright.machine import DEFAULT_TARGET, Machine
from tilewright.quantization import weights
from tilewright.quantization.calibrate import gather, with_scales
from tilewright.quantization.matrices import Matrices
from tilewright.quantization.quantize import QuantTable, table_of
from tilewright.quantization.recovery import recovered, weights_of
from tilewright.quantization.traced import TracedSource, trace_source

VARIANTS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "per tensor": (True, ()),
    "per tensor, equalized": (True, ("equalize",)),
    "per channel": (False, ()),
    "per channel, equalized": (False, ("equalize",)),
    "per channel, equalized, biases corrected": (False, ("equalize", "bias")),
}
"""Whether a weight tensor has one scale, and what recovers it."""


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


def table(net: Any, params: Any, images: jax.Array, one_scale: bool, steps: Sequence[str]) -> QuantTable:
    """What each layer keeps in `w8a8`, on the images that it is calibrated with."""
    traced = trace_source(net, (params, images), {}, None)
    batches = [traced.signature.flatten("net", (params, images))]
    config = tw.QuantConfig("w8a8")
    balanced = recovered(traced, config, batches, [s for s in steps if s != "bias"], False)
    balances = {n: b for n in traced.names if (b := balanced.choice(n).balance) is not None}
    statistics = gather(traced, batches, traced.names, False, balances=balances)
    config = with_scales(traced, balanced, statistics)
    if one_scale:
        config = per_tensor(traced, config, batches[0])
    config = recovered(traced, config, batches, [s for s in steps if s == "bias"], False)
    return table_of(traced, config, batches, None, "sqnr", Machine.load(DEFAULT_TARGET))


def layers(name: str, net: Any, params: Any, images: jax.Array, each: bool) -> None:
    """Prints rows of a net: the SQNR of depthwise and of other layers, and that of the logits; and of each layer."""
    found = {}
    for variant, (one_scale, steps) in VARIANTS.items():
        made = found[variant] = table(net, params, images, one_scale, steps)
        wide = [r.sqnr for r in made.rows if _is_depthwise(r)]
        others = [r.sqnr for r in made.rows if not _is_depthwise(r)]
        cells = [name, variant]
        cells += [f"{np.mean(part):.1f} ({min(part):.1f})" if part else "" for part in (wide, others)]
        print(f"| {' | '.join([*cells, f'{made.sqnr:.1f}', f'{made.cosine:.4f}'])} |", flush=True)
    if each:
        print(f"\n| layer of {name} | weights | {' | '.join(VARIANTS)} |\n|---|---|{'--:|' * len(VARIANTS)}")
        for rows in zip(*(f.rows for f in found.values()), strict=True):
            shown = " | ".join(f"{r.sqnr:.1f}" for r in rows)
            print(
                f"| {rows[0].name.removeprefix('params')} | {'x'.join(map(str, rows[0].shape))} | {shown} |"
            )
        print()


def _is_depthwise(row: Any) -> bool:
    return row.kind == "convolution" and row.shape[2] == 1


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
        print("| net | int8 weights | depthwise, dB (least) | others, dB (least) | logits, dB | cosine |")
        print("|---|---|--:|--:|--:|--:|")
        for name, net in nets:
            params = net.forward_inputs()[0]
            for title, each in ((name, params), (f"{name}, norms spread", spread(params))):
                if not given.nets or any(part in title for part in given.nets):
                    layers(title, net.forward, folded(each, net.EPS), images, given.each)
    if given.only != "layers":
        calibration(resnet50.forward, resnet50.forward_inputs()[0], images, given.batches)


if __name__ == "__main__":
    main()
