"""What quantization gains by the model: ResNet-50 in int8, a token of GPT-2 and of Llama 7B with 8- and 4-bit weights.

Every number is from a report of a whole program; shapes alone are compiled, so that no weight is made. `products` are
the kernels with matrix products or convolutions, launches taken out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.quantization.traced import trace_source

PRODUCTS = ("contract", "conv_", "gemv", "vector_product")


@dataclass(frozen=True)
class Row:
    """microseconds: of the whole program; products, rest: of kernels without launches; weights: bytes of what the
    program reads of its weights."""

    program: str
    target: str
    mode: str
    microseconds: float
    products: float
    rest: float
    weights: int


def shapes_in(dtype: Any, tree: Any) -> Any:
    """The shapes of a tree, floats in another type."""

    def one(leaf: Any) -> jax.ShapeDtypeStruct:
        kind = dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.dtype
        return jax.ShapeDtypeStruct(leaf.shape, kind)

    return jax.tree.map(one, tree)


def measure(name: str, fn: Callable[..., Any], args: Sequence[Any], target: str, mode: str) -> Row:
    """Compiles a program in a mode (f16: as it is) and reports it. Static inputs get a scale of 1/32: costs do not
    depend on it."""
    names = trace_source(fn, args, {}, ["params"]).names
    products = {n: tw.ProductChoice(mode, 2.0**-5) for n in names}
    config = None if mode == "f16" else tw.QuantConfig(mode, {}, products)
    program = tw.compile(fn, *args, target=target, options=tw.Options(quantization=config, weights="params"))
    report = program.report()
    is_product = [k.name.removeprefix("@").startswith(PRODUCTS) for k in report.kernels]
    own = [k.microseconds - k.launch_microseconds for k in report.kernels]
    rest = program.rest.inputs  # what the program takes behind its other arguments
    weights = sum(_bytes(shape, dtype) for shape, dtype in rest) - sum(
        leaf.size * leaf.dtype.itemsize for arg in args[1:] for leaf in jax.tree.leaves(arg)
    )
    return Row(
        name,
        target,
        mode,
        report.microseconds,
        sum(us for us, flag in zip(own, is_product, strict=True) if flag),
        sum(us for us, flag in zip(own, is_product, strict=True) if not flag),
        weights,
    )


def _bytes(shape: Sequence[int], dtype: str) -> int:
    from tilewright.dialects.dtypes import numpy_dtype, size

    return size(shape) * numpy_dtype(dtype).itemsize


def resnet50(batch: int) -> tuple[Callable[..., Any], list[Any]]:
    """ResNet-50 on a batch of images, in f16."""
    import resnet50 as net

    params, image = jax.eval_shape(net.forward_inputs)
    image = jax.ShapeDtypeStruct((batch, *image.shape[1:]), image.dtype)
    return net.forward, [shapes_in(jnp.float16, params), shapes_in(jnp.float16, image)]


def gpt2_token() -> tuple[Callable[..., Any], list[Any]]:
    """A token of GPT-2 (124 M) with 512 positions of keys and values, in f16."""
    import generate as net

    layers, d, heads, vocab, positions = 12, 768, 12, 50257, 512
    layer = {
        "norm1": (d,),
        **dict.fromkeys("qkvo", (d, d)),
        "norm2": (d,),
        "up": (d, 4 * d),
        "down": (4 * d, d),
    }
    params = _half(
        {
            "embedding": (vocab, d),
            "positions": (positions, d),
            "layers": [layer] * layers,
            "norm": (d,),
            "head": (d, vocab),
        }
    )
    cache = net.Cache(*_half([(layers, 1, positions, heads, d // heads)] * 2))

    def token(params: Any, cache: Any, token: jax.Array, at: jax.Array) -> Any:
        return net.step(params, cache, token, at, heads)

    return token, [params, cache, jax.ShapeDtypeStruct((1,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)]


def large_product() -> tuple[Callable[..., Any], list[Any]]:
    """4096 rows of 4096 numbers times weights, in f16."""
    params, x = _half({"w": (4096, 4096)}), _half((4096, 4096))
    return (lambda params, x: x @ params["w"]), [params, x]


def llama7b_token() -> tuple[Callable[..., Any], list[Any]]:
    """A token of Llama 7B with 512 positions of keys and values, in f16."""
    import llama as net

    d, ff = 4096, 11008
    config = net.SMALL._replace(n_layers=32, d_model=d, n_heads=32, n_kv_heads=32, d_ff=ff, vocab=32000)
    layer = {"norm1": (d,), **dict.fromkeys("qkvo", (d, d)), "norm2": (d,)}
    layer |= {"gate": (d, ff), "up": (d, ff), "down": (ff, d)}
    params = {"embedding": (32000, d), "layers": [layer] * 32, "norm": (d,), "head": (d, 32000)}
    cache = net.Cache(*_half([(32, 1, config.n_positions, 32, d // 32)] * 2))

    def token(params: Any, cache: Any, tokens: jax.Array, start: jax.Array) -> Any:
        return net.run(config, params, cache, tokens, start)

    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    return token, [_half(params), cache, tokens, jax.ShapeDtypeStruct((), jnp.int32)]


def _half(shapes: Any) -> Any:
    """f16 arrays of shapes, which are tuples of numbers."""
    is_shape = lambda x: isinstance(x, tuple) and all(isinstance(n, int) for n in x)  # noqa: E731
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float16), shapes, is_leaf=is_shape)


CHIPS = ("ascend-910b1", "ascend-310", "ascend-310p3", "ascend-910a")
"""Those that multiply i8 faster than f16, and no 8-bit floats."""

CASES: dict[str, tuple[Callable[[], tuple[Callable[..., Any], list[Any]]], dict[str, tuple[str, ...]]]] = {
    "ResNet-50, 16 images": (
        lambda: resnet50(16),
        {
            **dict.fromkeys(CHIPS, ("f16", "w8a8")),
            "ascend-910b1": ("f16", "w8a8", "w8a8-sparse"),
            "ascend-950pr": ("f16", "w8a8", "f8"),
        },
    ),
    "GPT-2, a token": (gpt2_token, {"ascend-910b1": ("f16", "w8a16", "w8a16-sparse", "w4a16")}),
    "Llama 7B, a token": (llama7b_token, {"ascend-910b1": ("f16", "w8a16", "w8a16-sparse", "w4a16")}),
    "a product of 4096 x 4096 x 4096": (
        large_product,
        {
            "ascend-910b1": ("f16", "w8a8", "w8a8-sparse", "w4a4"),
            "ascend-950pr": ("f16", "f8", "f8-dynamic"),
        },
    ),
}
"""Programs by name, and the modes of each on machines."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="parts of the names of cases")
    parser.add_argument("--target", action="append", help="a chip in the place of those of the case; may be repeated")
    parser.add_argument("--mode", action="append", help="a mode in the place of those of the case; may be repeated")
    given = parser.parse_args()
    print("| program | chip | mode | us | products, us | other kernels, us | weights, MB |")
    print("|---|---|---|--:|--:|--:|--:|")
    for name, (make, modes) in CASES.items():
        if given.cases and not any(part in name for part in given.cases):
            continue
        fn, args = make()
        for target in given.target or modes:
            for mode in given.mode or modes.get(target, ("f16", "w8a8")):
                r = measure(name, fn, args, target, mode)
                cells = [
                    r.program,
                    r.target,
                    r.mode,
                    f"{r.microseconds:,.1f}",
                    f"{r.products:,.1f}",
                    f"{r.rest:,.1f}",
                ]
                print("| " + " | ".join([*cells, f"{r.weights / 1e6:,.1f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
