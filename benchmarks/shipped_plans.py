"""Makes the plans that Tilewright comes with: those of common shapes, each tuned by itself.

python benchmarks/shipped_plans.py [--target T ...] [--budget 20s] [--workers N] [--only NAME]

Kept are plans that are better than those of graph-schedule, and those that are proven, so that nobody searches for them
again. What is there already and is of this version of the price is not searched for again, either.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.kernels.price import VERSION
from tilewright.knowledge.base import KnowledgeBase, read_lines
from tilewright.knowledge.shipped import FOLDER

TARGETS = ("ascend-910b1", "ascend-310")

Program = tuple[str, Callable[..., Any], list[jax.ShapeDtypeStruct]]


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def dense(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w + b)


def layer_norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def rms_norm(x: jax.Array, g: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * g


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, -1)


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.relu(
        jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )


def of(*shapes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, "float16") for shape in shapes]


def programs() -> Iterator[Program]:
    """Names, functions and operands: layers of transformers of 768 to 4,096 columns, and of ResNets."""
    for width in (768, 1024, 2048, 4096):
        for rows in (128, 512, 2048):
            yield "product", product, of((rows, width), (width, width))
            yield "product", product, of((rows, 4 * width), (4 * width, width))
            yield "dense", dense, of((rows, width), (width, 4 * width), (4 * width,))
            yield "layer norm", layer_norm, of((rows, width), (width,), (width,))
            yield "rms norm", rms_norm, of((rows, width), (width,))
            yield "softmax", softmax, of((rows, width))
    for hw, c, o, k in ((56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3), (56, 64, 256, 1)):
        yield "convolution", convolution, of((1, hw, hw, c), (k, k, c, o))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    for target in args.target or TARGETS:
        path = FOLDER / f"{target}.jsonl"
        with tempfile.TemporaryDirectory() as folder:
            base = KnowledgeBase(Path(folder) / "plans.sqlite")
            if path.is_file():
                base.add(e for e in read_lines(path.read_text().splitlines(), path.name) if e.price == VERSION)
            for name, function, operands in programs():
                if args.only not in name:
                    continue
                found = tw.tune(
                    function, *operands, target=target, store=base.path, budget=args.budget, workers=args.workers
                )
                print(target, name, *(o.shape for o in operands), found.report, flush=True)
                kept = [e for e in base.entries() if e.certified or e.microseconds < e.before]
                lines = (line for line, e in zip(base.export(), base.entries(), strict=True) if e in kept)
                FOLDER.mkdir(exist_ok=True)
                path.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
