"""Modelled time against device memory: train steps at limits from all of what they need down to 40 % of it.

python benchmarks/memory_limit.py                      # both nets, some five minutes
python benchmarks/memory_limit.py resnet50 --batch 8
python benchmarks/memory_limit.py --shares 0.6,0.5 --target ascend-310

Nets are compiled from shapes alone, without npu-check; nothing runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples")]

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4)
HEADER = (
    "| share | limit, MB | plan, MB | us (modelled) | time | again | us again | moved, MB | compile, s |",
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)

Net = tuple[Callable[..., Any], tuple[Any, ...]]


def shapes(tree: Any) -> Any:
    """The shapes and dtypes of a tree of arrays."""
    import jax

    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def resnet50(batch: int) -> Net:
    """A plain update of ResNet-50 in f16: gradient of the mean cross entropy, batch norm with the statistics of the
    batch, in f32; weights donated, images [batch, 224, 224, 3]."""
    import jax
    import jax.numpy as jnp

    net = importlib.import_module("resnet50")

    def batch_norm(x: jax.Array, p: Any) -> jax.Array:
        wide = x.astype(jnp.float32)
        mean = jnp.mean(wide, axis=(0, 1, 2))
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide - mean), axis=(0, 1, 2)) + net.EPS)
        return (x - mean.astype(x.dtype)) * scale.astype(x.dtype) * p["scale"] + p["bias"]

    setattr(net, "batch_norm", batch_norm)  # noqa: B010  # the net is a module, found by its name

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        logs = jax.nn.log_softmax(net.classify(params, images).astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=-1))

    def step(params: Any, images: jax.Array, labels: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, images, labels)
        return jax.tree.map(lambda p, g: p - (0.01 * g).astype(p.dtype), params, grads), value

    params = shapes(net.init(net.RESNET50, jnp.float16))
    images = jax.ShapeDtypeStruct((batch, 224, 224, 3), jnp.float16)
    return jax.jit(step, donate_argnums=0), (params, images, jax.ShapeDtypeStruct((batch,), jnp.int32))


def transformer(batch: int) -> Net:
    """An Adam step of examples/train_transformer.py in f32, its state donated, tokens [batch, 129]."""
    import jax
    import jax.numpy as jnp

    net = importlib.import_module("train_transformer")
    config = net.SMALL._replace(batch=batch)
    params = shapes(net.init(config))
    state = net.Adam(params, params, params, jax.ShapeDtypeStruct((), jnp.int32))
    tokens = jax.ShapeDtypeStruct((batch, config.n_tokens + 1), jnp.int32)
    step = jax.jit(lambda state, tokens: net.adam_step(state, tokens, config.n_heads), donate_argnums=0)
    return step, (state, tokens)


NETS: dict[str, Callable[[int], Net]] = {"resnet50": resnet50, "transformer": transformer}


def main() -> int:
    """Prints a table for each net."""
    import tilewright as tw

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", default=list(NETS), help="resnet50 or transformer")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--target", default="ascend-910b1")
    args = parser.parse_args()
    for name in args.nets:
        fn, inputs = NETS[name](args.batch)

        def row(share: float, limit: int | None, base: float = 0.0) -> tuple[int, float]:
            start = time.perf_counter()
            options = tw.Options(check=False, memory_limit=limit)
            try:
                program = tw.compile(fn, *inputs, target=args.target, options=options)  # noqa: B023
            except tw.CompileError as error:
                print(f"| {share:.0%} | {(limit or 0) / 1e6:,.0f} | {str(error).split(', at ')[0]} |", flush=True)
                return 0, 0.0
            taken = time.perf_counter() - start
            report = program.report()
            less, arena = report.memory.less, report.memory.arena_bytes
            print(
                f"| {share:.0%} | {(limit or arena) / 1e6:,.0f} | {arena / 1e6:,.0f} | {report.microseconds:,.0f} "
                f"| {report.microseconds / (base or report.microseconds):.3f} | {less.again_launches} "
                f"| {less.again_microseconds:,.0f} | {less.moved_bytes / 1e6:,.0f} | {taken:.1f} |",
                flush=True,
            )
            return arena, report.microseconds

        print(f"\n{name}, batch {args.batch}, {args.target}\n", *HEADER, sep="\n")
        arena, base = row(1.0, None)
        for share in map(float, args.shares.split(",")):
            row(share, int(arena * share), base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
