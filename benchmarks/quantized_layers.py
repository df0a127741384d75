"""How much each layer of MobileNetV2 and ResNet-50 keeps in int8, with random weights and batch statistics: before and
after equalisation, and with the scales of batch norms drawn log-uniformly over 2^-4 to 2^4, as trained nets may have
them. And what calibration costs against running the same batches in JAX.

    python benchmarks/quantized_layers.py [--size 64] [--images 16]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import jax.numpy as jnp
import numpy as np

import tilewright as tw


def spread_norms(params: Any, seed: int = 0) -> Any:
    """Weights with the scales of batch norms drawn log-uniformly over 2^-4 to 2^4."""
    rng = np.random.default_rng(seed)

    def walk(tree: Any) -> Any:
        if isinstance(tree, dict) and {"mean", "var", "scale", "bias"} <= set(tree):
            scale = 2.0 ** rng.uniform(-4, 4, tree["scale"].shape)
            return {**tree, "scale": jnp.asarray(scale, tree["scale"].dtype)}
        if isinstance(tree, dict):
            return {k: walk(v) for k, v in tree.items()}
        return [walk(v) for v in tree] if isinstance(tree, list) else tree

    return walk(params)


def layers(name: str, net: Any, params: Any, images: jax.Array) -> None:
    """Prints rows of a net: the SQNR of depthwise and of other layers, and the cosine of the logits."""
    for recover in ((), ("equalize",), ("equalize", "bias")):
        made = tw.quantize(net, params, images, config="w8a8", recover=recover, progress=False)
        depthwise = [r.sqnr for r in made.table.rows if r.kind == "convolution" and r.shape[2] == 1]
        others = [r.sqnr for r in made.table.rows if r.sqnr not in depthwise]
        shown = f"{np.mean(depthwise):.1f}" if depthwise else ""
        said = ", ".join(recover) or "as calibrated"
        cells = [name, said, shown, f"{np.mean(others):.1f}", f"{made.table.sqnr:.1f}", f"{made.table.cosine:.4f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def calibration(net: Any, params: Any, image: jax.Array, batches: int) -> None:
    """Prints what calibrating takes and what running takes, both compiled."""
    from tilewright.quantization.calibrate import gather
    from tilewright.quantization.traced import trace_source

    traced = trace_source(net, (params, image), {}, None)
    leaves = traced.signature.flatten("net", (params, image))
    run = jax.jit(net)
    jax.block_until_ready(run(params, image))
    gather(traced, [leaves], traced.names, False)

    def seconds(work: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - start

    once = seconds(lambda: gather(traced, [leaves], traced.names, False))  # with its compilation
    many = seconds(lambda: gather(traced, [leaves] * batches, traced.names, False)) - once
    plain = seconds(lambda: [run(params, image) for _ in range(batches - 1)])
    print(f"\ncalibrating {batches - 1} batches of {len(image)}: {many:.2f} s, running them in JAX {plain:.2f} s: "
          f"{many / plain:.2f} times as long")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=64, help="of the images, in pixels (default 64)")
    parser.add_argument("--images", type=int, default=4, help="in a batch (default 4)")
    parser.add_argument("--batches", type=int, default=9, help="that are calibrated for the time (default 9)")
    given = parser.parse_args()
    import mobilenet_v2
    import resnet50

    rng = np.random.default_rng(1)
    images = jnp.asarray(rng.standard_normal((given.images, given.size, given.size, 3)), jnp.float32)
    nets = (
        ("MobileNetV2", mobilenet_v2.forward, mobilenet_v2.forward_inputs()[0]),
        ("ResNet-50", resnet50.forward, resnet50.forward_inputs()[0]),
    )
    print(
        "| net | recovery | depthwise, dB | other layers, dB | logits, dB | cosine |\n|---|---|--:|--:|--:|--:|"
    )
    for name, net, params in nets:
        layers(name, net, params, images)
        layers(f"{name}, norms spread", net, spread_norms(params), images)
    calibration(nets[1][1], nets[1][2], images, given.batches)


if __name__ == "__main__":
    main()
