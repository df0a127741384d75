"""The programs that faults are injected into: the examples, random functions, random programs with control flow, and
ones whose flags are too many, so that they have barriers.

A source is a string: `gpt2:tiny`, `random 3`, `fuzz 17`, `quantized 2`, `columns 1`, `narrow 1`, `sparse 1`,
`barriers 1`, `attention 3`, `chained 1`, `handed 1`, `gradient 1`, `grouped 1`, `rows 1`, `statistics 1`, `pooled 1`,
`winograd 1`, `skinny 2`, `made 1`, `decoding 1`, `recomputed 1`, `padded 1`, `streamed 1`, `placed 1`,
`waiting 1`, `elements 1`, `imported 1`.
Nothing here imports JAX before a program is compiled.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attention_subjects import (
    attention_subject,
    back_to_back_subject,
    chained_subject,
    decoding_subject,
    gradient_subject,
)
from imported_subjects import imported_subject
from product_subjects import (
    columns_subject,
    grouped_subject,
    made_subject,
    narrow_subject,
    padded_subject,
    placed_subject,
    pooled_subject,
    recomputed_subject,
    rotated_subject,
    skinny_subject,
    sparse_subject,
    statistics_subject,
    streamed_subject,
    waiting_subject,
    winograd_subject,
)
from subject_types import ROOT, Subject

import tilewright as tw

CONTROL = "call,cond,fori,while,scan,map,sort,top_k,cumulative,scatter,gather,dynamic,unary,binary,reduce"
"""The generators of `tests/fuzz` that make loops, branches, calls, numbers of the host, and indexed instructions."""


def examples() -> list[str]:
    """Every function of `examples/*.py` with inputs of its own."""
    found = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        for name in re.findall(r"^def ([a-z]\w*)_inputs\(", path.read_text(), re.M):
            found.append(f"{path.stem}:{name}")
    return found


@functools.lru_cache(maxsize=8)
def example(model: str, target: str) -> Subject:
    """One of the example models."""
    from loading import load

    fn, args = load(model)
    return Subject(f"{model} for {target}", tw.compile(fn, *args, target=target).module(), target)


def subject(source: str, target: str) -> Subject:
    """A source, compiled for a target."""
    kind, _, number = source.partition(" ")
    made = SUBJECTS.get(kind)
    return example(source, target) if made is None else made(int(number), target)


@functools.cache
def _random_programs(count: int) -> list[Any]:
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from programs import programs

    found: list[Any] = []

    @seed(20)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program: Any) -> None:
        found.append(program)

    collect()
    return found


MOST_RANDOM = 60


def random_subject(number: int, target: str) -> Subject:
    """A chain of elementwise ops, reductions, layout changes and products."""
    program = _random_programs(MOST_RANDOM)[number]
    dtype = ("f32", "f16")[number // 2 % 2]
    args = [np.asarray(a) for a in program.arguments(dtype)]
    module = tw.compile(program, *args, target=target).module()
    return Subject(f"random {number} {dtype} for {target}", module, target)


def fuzz_subject(number: int, target: str) -> Subject:
    """A program with loops, branches, calls, sorts and scatters."""
    import jax
    from fuzz.tables import program_of

    program = program_of(number, CONTROL)
    with jax.enable_x64(program.x64):
        module = tw.compile(program.function(), *program.arguments(), target=target).module()
    return Subject(f"fuzz {number} for {target}", module, target)


def quantized_subject(number: int, target: str) -> Subject:
    """Layers of quantized numbers, and one whose sums leave the cube scaled where the machine can do that."""
    from layers import Grid, Layer, module, random_layer

    rng = np.random.default_rng(number)
    grids = [Grid("i8", (scale,), (zero,), -128, 127) for scale, zero in ((0.5, 0), (0.25, 0), (32.0, -3))]
    drained = Layer((40, 64), (64, 48), (40, 48), (grids[0], grids[1], grids[2]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "layers.mlir"
        file.write_text(module([drained, *(random_layer(rng) for _ in range(3))]))
        return Subject(
            f"quantized {number} for {target}", tw.compile(str(file), target=target).module(), target
        )


def barriers_subject(number: int, target: str) -> Subject:
    """Loads into one buffer, `number` times twelve of them: they wait at barriers."""
    from sums import sums

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sums.mlir"
        file.write_text(sums(1, number))
        return Subject(
            f"barriers {number} for {target}", tw.compile(str(file), target=target).module(), target
        )


def rows_subject(number: int, target: str) -> Subject:
    """Softmax whose rows are read in pieces, several rows on each core. Odd numbers have one core, and store what is
    made in the first walk as well; from 2 on, the last piece is as long as the others."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, piece = int(rng.integers(5, 12)), 8 * int(rng.integers(1, 4))
    length = piece * 3 if number // 2 % 2 else piece * 3 + int(rng.integers(1, piece))

    def softmax(x: Any, w: Any) -> Any:
        y = x * w
        weights = jnp.exp(y - y.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True)
        return (y, out) if number % 2 else out

    kind = ("f2", "f4")[number // 4 % 2]
    args = [rng.standard_normal(shape).astype(kind) for shape in ((rows, length), (length,))]
    options = tw.Options(schedule=tw.Schedule(tile=(2, piece), **({"cores": 1} if number % 2 else {})))
    module = tw.compile(softmax, *args, target=target, options=options).module()
    return Subject(f"rows {number} for {target}", module, target)


def elements_subject(number: int, target: str) -> Subject:
    """Elements that are picked on chip, of rows or, where the number is odd, of columns; in small tiles, several on
    each core. From 2 on, what is left behind the last whole tile is less."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    axis, many, rows = 1 - number % 2, int(rng.integers(20, 40)), int(rng.integers(9, 14))
    shape = (rows, 60) if axis else (30, 16 * 5 + number // 2 % 2)
    places = (rows, many) if axis else (many, shape[1])
    args = [rng.standard_normal(shape).astype("f2"), rng.integers(0, 30, places, "i4")]
    tile = (1, many // (1 + number // 2 % 2)) if axis else (many, 16)
    options = tw.Options(schedule={"gather_0": tw.Schedule(tile=tile)})
    program = tw.compile(lambda x, i: jnp.take_along_axis(x, i, axis, "clip"), *args, target=target, options=options)
    return Subject(f"elements {number} for {target}", program.module(), target)


SUBJECTS: dict[str, Callable[[int, str], Subject]] = {
    "random": random_subject,
    "imported": imported_subject,
    "fuzz": fuzz_subject,
    "quantized": quantized_subject,
    "sparse": sparse_subject,
    "columns": columns_subject,
    "narrow": narrow_subject,
    "barriers": barriers_subject,
    "attention": attention_subject,
    "chained": chained_subject,
    "handed": back_to_back_subject,
    "grouped": grouped_subject,
    "rows": rows_subject,
    "statistics": statistics_subject,
    "pooled": pooled_subject,
    "waiting": waiting_subject,
    "gradient": gradient_subject,
    "winograd": winograd_subject,
    "decoding": decoding_subject,
    "recomputed": recomputed_subject,
    "padded": padded_subject,
    "skinny": skinny_subject,
    "made": made_subject,
    "rotated": rotated_subject,
    "elements": elements_subject,
    "streamed": streamed_subject,
    "placed": placed_subject,
}
"""Sources that are a kind and a number."""
