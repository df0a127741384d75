"""Depthwise convolutions on the vector cores and on the cube, in modelled microseconds.

python benchmarks/depthwise.py [--target T] [--page docs/passes/graph-simplify.md]

Layers of MobileNetV2, f16, with a bias and a clip behind them, behind another kernel. Columns: on the vector cores,
one multiplication for each window position; on the cube, each feature a group of its own; on the cube with blocks of 32
or 48 features as one group, whose other weights are zero (given as such, so making them is not counted).
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.passes.simplify import vector_products
from tilewright.support.files import write_part

BEGIN, END = "<!-- depthwise: begin -->", "<!-- depthwise: end -->"

LAYERS = ((112, 32, 1), (7, 960, 1))
"""Side of the image, features, stride."""

BLOCKS = (48, 32)

HEADER = (
    "| images | layer | vector us | limit | cube us | cube, blocks us | block |",
    "|---|---|---|---|---|---|---|",
)


def kernels(images: int, layer: tuple[int, int, int], block: int, target: str) -> list[Any]:
    """The kernels behind the one that makes the input, as a report has them, with `block` features in a group."""
    side, features, stride = layer

    def net(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            jnp.abs(x),
            w,
            (stride, stride),
            ((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=features // block,
        )
        return jnp.clip(y + b, 0, 6)

    shapes = ((images, side, side, features), (3, 3, block, features), (features,))
    args = [jax.ShapeDtypeStruct(shape, jnp.float16) for shape in shapes]
    program = tw.compile(net, *args, target=target, options=tw.Options(check=False))
    return [kernel for kernel in program.report().kernels if not kernel.name.startswith("abs_")]


def total(found: list[Any]) -> float:
    return sum(kernel.microseconds for kernel in found)


def line(images: int, layer: tuple[int, int, int], target: str) -> str:
    side, features, stride = layer
    vector = kernels(images, layer, 1, target)
    longest = max(vector, key=lambda kernel: kernel.microseconds)
    pipe, busy = max(longest.pipes.items(), key=lambda item: item[1])
    with patch.object(vector_products, "MOST_TAPS", 0):
        cube = total(kernels(images, layer, 1, target))
    best, block = min((total(kernels(images, layer, b, target)), b) for b in BLOCKS if features % b == 0)
    cells = [
        str(images),
        f"{side} x {side} x {features}, stride {stride}",
        f"{total(vector):.1f}",
        "launch" if longest.launch_microseconds > busy else pipe,
        f"{cube:.1f}",
        f"{best:.1f}",
        str(block),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--page", help="the page whose table is replaced")
    args = parser.parse_args()
    lines: list[str] = [*HEADER]
    for images in (1, 8):
        for layer in LAYERS:
            lines.append(line(images, layer, args.target))
            print(lines[-1], flush=True)
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
