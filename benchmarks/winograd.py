"""Winograd's convolutions beside the direct ones, in modelled microseconds.

python benchmarks/winograd.py [--target T] [--page docs/passes/graph-winograd.md]

One of the 3 x 3 convolutions of ResNet-50 and two of VGG-16, behind another kernel, so that L2 has their input.
Columns: the direct convolution; F(2, 3) and F(4, 3) with the weights transformed in each call, and once before
(`packed`), split into what the vector cores take for transforms and the cube for products; the pipe that limits the
longest of the transforms; and what `auto` takes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.api.packing import PackedProgram
from tilewright.support.files import write_part

BEGIN, END = "<!-- winograd: begin -->", "<!-- winograd: end -->"

SHAPES = ((1, 56, 64), (8, 112, 128), (8, 56, 256))
"""Images, their side, features in and out."""

HEADER = (
    "| shape | type | direct us | F(2, 3) us | packed | transforms + products | limit | F(4, 3) us | packed "
    "| transforms + products | limit | auto |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    layouts = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(jnp.abs(x), w, (1, 1), "SAME", dimension_numbers=layouts)


@dataclass(frozen=True)
class Times:
    """Microseconds of a convolution alone, of its transforms and of its products, and of the transform of its weights;
    what limits the longest transform."""

    transforms: float
    products: float
    weights: float
    limit: str
    direct: bool

    @property
    def total(self) -> float:
        return self.transforms + self.products


def times(args: tuple[Any, Any], target: str, choice: str) -> Times:
    """Of the kernels behind the one that makes the input."""
    options = tw.Options(winograd=choice, weights="w", check=False)
    program = tw.compile(convolution, *args, target=target, options=options)
    assert isinstance(program, PackedProgram)
    once = program.packing.report().kernels
    found = [k for k in program.rest.report().kernels if not k.name.startswith("abs_")]
    transforms = [k for k in found if not k.name.startswith(("contract_", "conv_"))]
    longest = max(transforms, key=lambda k: k.microseconds, default=found[0])
    pipe, busy = max(longest.pipes.items(), key=lambda item: item[1])
    return Times(
        sum(k.microseconds for k in transforms),
        sum(k.microseconds for k in found if k not in transforms),
        sum(k.microseconds for k in once),
        "launches" if longest.launch_microseconds > busy else pipe,
        any(k.name.startswith("conv_") for k in found),
    )


def line(shape: tuple[int, int, int], kind: str, target: str) -> str:
    n, side, features = shape
    dtype = {"f32": jnp.float32, "f16": jnp.float16}[kind]
    args = (
        jax.ShapeDtypeStruct((n, side, side, features), dtype),
        jax.ShapeDtypeStruct((3, 3, features, features), dtype),
    )
    direct, two, four, auto = (times(args, target, choice) for choice in ("off", "2", "4", "auto"))
    cells = [f"{n} x {side} x {side} x {features}", kind, f"{direct.total:.1f}"]
    for found in (two, four):
        cells += [f"{found.total + found.weights:.1f}", f"{found.total:.1f}"]
        cells += [f"{found.transforms:.1f} + {found.products:.1f}", found.limit]
    return f"| {' | '.join([*cells, 'direct' if auto.direct else 'F(2, 3)'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--page", help="the page whose table is replaced")
    args = parser.parse_args()
    lines: list[str] = [*HEADER]
    for kind in ("f32", "f16"):
        for shape in SHAPES:
            lines.append(line(shape, kind, args.target))
            print(lines[-1], flush=True)
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
