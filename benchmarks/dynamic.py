"""What one program for all sizes costs: modelled time and compile time against programs compiled for one size.

    python benchmarks/dynamic.py [--sizes 20] [--seed 0] [--only softmax,mlp] [--target T]

Six models have an open batch, length or both. At random sizes, log-uniform within the bounds, the report of the program
with open dimensions is compared with that of the function compiled for these shapes alone: microseconds, launches
included. Compile times are the CPU time of the process, each the median of some rounds: of one range of sizes, against
one compilation for sizes in it; and of a further size of a range that is compiled, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDS = 3
"""Ranges whose compile times are taken, besides a first one."""


@dataclass(frozen=True)
class Model:
    """fn: a JAX function. shapes: its inputs, as `b, s, 64`, with a dtype behind a bar where that is not f32. bounds:
    the range of each size; usual: the sizes whose range is compiled for the compile time."""

    fn: Callable[..., Any]
    shapes: tuple[str, ...]
    bounds: Mapping[str, tuple[int, int]]
    usual: Mapping[str, int]

    def structs(self, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """Types of the inputs: with symbols, or for given sizes."""
        import jax
        from jax import export

        limits = [
            f"{n} {o} {v}" for n, b in self.bounds.items() for o, v in zip((">=", "<="), b, strict=True)
        ]
        scope, found = export.SymbolicScope(limits), []
        for text in self.shapes:
            shape, _, dtype = text.partition("|")
            if sizes is None:
                dims: Any = export.symbolic_shape(shape, scope=scope)
            else:
                dims = tuple(sizes.get(n.strip()) or int(n) for n in shape.split(","))
            found.append(jax.ShapeDtypeStruct(dims, dtype or "float32"))
        return found

    def drawn(self, count: int, seed: int) -> list[dict[str, int]]:
        """So many random sizes."""
        rng = np.random.default_rng(seed)
        return [
            {n: round(float(np.exp(rng.uniform(*np.log(b))))) for n, b in self.bounds.items()}
            for _ in range(count)
        ]


def models() -> dict[str, Model]:
    """The models by name."""
    import jax
    import jax.numpy as jnp

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def attended(x: Any, qkv: Any, out: Any, heads: int, causal: bool) -> Any:
        b, s, d = x.shape
        q, k, v = (a.reshape(b, s, heads, d // heads) for a in jnp.split(x @ qkv, 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // heads) ** -0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e4)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        return mixed.reshape(b, s, d) @ out

    def block(x: Any, qkv: Any, out: Any, up: Any, down: Any, heads: int = 4, causal: bool = False) -> Any:
        x = x + attended(normed(x), qkv, out, heads, causal)
        return x + jax.nn.gelu(normed(x) @ up) @ down

    def gpt2(tokens: Any, table: Any, places: Any, *layers: Any) -> Any:
        x = (table[tokens] + places[: tokens.shape[0]])[None]
        for i in range(0, len(layers), 4):
            x = block(x, *layers[i : i + 4], heads=8, causal=True)
        return normed(x)[0] @ table.T

    def cnn(x: Any, first: Any, second: Any, last: Any) -> Any:
        for kernel in (first, second):
            numbers = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
            x = jax.lax.reduce_window(
                jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
            )
        return jax.nn.softmax(x.reshape(x.shape[0], -1) @ last)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(jnp.einsum("hsd,htd->hst", q, k) / 8) @ v

    def mlp(x: Any, up: Any, down: Any) -> Any:
        return jax.nn.gelu(x @ up) @ down

    layer = ("256, 768|float16", "256, 256|float16", "256, 1024|float16", "1024, 256|float16")
    batch, length = (2, 256), (2, 1024)
    return {
        "softmax": Model(jax.nn.softmax, ("b, s",), {"b": batch, "s": (2, 4096)}, {"b": 64, "s": 512}),
        "mlp": Model(mlp, ("b, 256", "256, 1024", "1024, 256"), {"b": (2, 2048)}, {"b": 256}),
        "attention": Model(attention, ("8, s, 64|float16",) * 3, {"s": length}, {"s": 256}),
        "cnn": Model(
            cnn, ("b, 28, 28, 1", "3, 3, 1, 16", "3, 3, 16, 32", "1568, 10"), {"b": batch}, {"b": 64}
        ),
        "transformer": Model(
            lambda *a: block(*a),
            ("b, s, 256|float16", *layer),
            {"b": (2, 16), "s": (2, 256)},
            {"b": 8, "s": 128},
        ),
        "gpt2": Model(
            gpt2,
            ("s|int32", "8192, 256|float16", "1024, 256|float16", *layer * 2),
            {"s": length},
            {"s": 256},
        ),
    }


@dataclass(frozen=True)
class Priced:
    """Modelled time of the open program over that of a program for each size alone; at how many sizes the former is a
    version of a range; and why others are not."""

    ratios: list[float]
    ranged: int
    reasons: list[str]


def priced(model: Model, sizes: Sequence[Mapping[str, int]], target: str) -> Priced:
    """What the open program and those for one size cost."""
    import tilewright as tw
    from tilewright.passes.templates import NoTemplate

    opened = tw.compile(model.fn, *model.structs(), target=target)
    assert isinstance(opened, tw.DynamicProgram)
    found, ranged = [], 0
    for at in sizes:
        alone = tw.compile(model.fn, *model.structs(at), target=target).report().microseconds
        found.append(opened.report(at=dict(at)).microseconds / alone)
        ranged += type(opened.at(at)) is not tw.Program
    versions = opened.ranges.values()
    reasons = {str(v) for v in versions if isinstance(v, NoTemplate)}
    reasons |= {
        f"needs {c}" for v in versions if not isinstance(v, NoTemplate) for c in v.template.constraints
    }
    return Priced(found, ranged, sorted(reasons))


def seconds(work: Callable[[], Any]) -> float:
    """CPU seconds that something takes, where JAX has traced nothing before."""
    import jax

    jax.clear_caches()
    start = time.process_time()
    work()
    return time.process_time() - start


def compile_times(model: Model, target: str) -> tuple[float, float, float]:
    """CPU seconds of one compilation for one size, of one of a range, and of a further size in that range: the medians
    of some ranges, each compiled once before, so that what the first compilation imports is nobody's."""
    import tilewright as tw

    alone, ranged, further = [], [], []
    for k in range(ROUNDS + 1):
        sizes = {n: min(max(v * 2 // (1 << k), low), high) for (n, v), (low, high) in
                 zip(model.usual.items(), model.bounds.values(), strict=True)}  # fmt: skip
        other = {n: max(v - 1, 2) for n, v in sizes.items()}
        alone.append(seconds(lambda at=sizes: tw.compile(model.fn, *model.structs(at), target=target)))
        made: list[Any] = []

        def one_range(at: dict[str, int] = sizes, made: list[Any] = made) -> None:
            made.append(tw.compile(model.fn, *model.structs(), target=target))
            made[0].at(at)

        ranged.append(seconds(one_range))
        start = time.process_time()
        made[0].at(other)
        further.append(time.process_time() - start)
    middle = statistics.median
    return middle(alone[1:]), middle(ranged[1:]), middle(further[1:])


def main() -> None:
    """Prints a row for each model, and the medians."""
    parser = argparse.ArgumentParser(description="One program for all sizes against one for each.")
    parser.add_argument("--sizes", type=int, default=20, help="random sizes of each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="models, separated by commas")
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--verbose", action="store_true", help="also why sizes are compiled alone")
    options = parser.parse_args()
    print(
        "| model | sizes by ranges | modelled: median | largest | one size | one range | ratio | further size |"
    )
    print("|---|---|---|---|---|---|---|---|")
    every: list[float] = []
    for name, model in models().items():
        if options.only and name not in options.only.split(","):
            continue
        cost = priced(model, model.drawn(options.sizes, options.seed), options.target)
        found = cost.ratios
        alone, ranged, further = compile_times(model, options.target)
        every += found
        print(
            f"| {name} | {cost.ranged} of {len(found)} | {statistics.median(found):.3f} | {max(found):.3f} | "
            f"{alone:.2f} s | {ranged:.2f} s | {ranged / alone:.2f}x | {1000 * further:.1f} ms |",
            flush=True,
        )
        if options.verbose:
            print(*(f"    {reason}" for reason in cost.reasons), sep="\n")
    print(f"all {len(every)}: median {statistics.median(every):.3f}, largest {max(every):.3f}")


if __name__ == "__main__":
    main()
