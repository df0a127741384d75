"""The programs that faults are injected into: the examples, random functions, random programs with control flow, and
ones whose flags are too many, so that they have barriers.

A source is a string: `gpt2:tiny`, `random 3`, `fuzz 17`, `quantized 2`, `columns 1`, `narrow 1`, `sparse 1`,
`barriers 1`, `attention 3`, `chained 1`, `handed 1`, `gradient 1`, `grouped 1`, `rows 1`, `statistics 1`, `pooled 1`,
`winograd 1`, `skinny 2`, `decoding 1`, `inlined 1`, `widened 1`, `streamed 1`, `placed 1`,
`waiting 1`.
Nothing here imports JAX before a program is compiled.
"""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.passes.graph import chained, grouped_products, own_scores
from tilewright.passes.tile import pooling_choice

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    p
    for p in map(str, (ROOT / "tests", *(ROOT / "tests" / d for d in ("ops", "quantized", "support"))))
    if p not in sys.path
]

TARGETS = ("ascend-910b1", "ascend-310")

NARROW_TARGET = "ascend-950pr"
"""The machine with 8-bit floats."""

CONTROL = "call,cond,fori,while,scan,map,sort,top_k,cumulative,scatter,gather,dynamic,unary,binary,reduce"
"""The generators of `tests/fuzz` that make loops, branches, calls, numbers of the host, and indexed instructions."""


@dataclass(frozen=True)
class Subject:
    """A compiled program."""

    name: str
    module: ModuleOp
    target: str


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


def columns_subject(number: int, target: str) -> Subject:
    """A product of integers, with a bias and a factor for each column where odd numbers do not leave one out, over
    several tiles of rows and columns on each core."""
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.default_rng(number)
    rows, terms, columns = (int(rng.integers(17, most)) for most in (70, 80, 90))
    bias = rng.integers(-9999, 9999, columns).astype("i4") * (number % 3 != 1)
    factors = (1 + rng.integers(0, 4, columns)).astype("f4") / (64 if number % 3 != 2 else 1)

    def layer(a: Any, w: Any) -> Any:
        sums = lax.dot(a, w, preferred_element_type=jnp.int32)
        sums = jnp.maximum(sums + bias if number % 3 != 1 else sums, 0)
        if number % 3 == 2:
            return sums
        return jnp.clip(
            lax.round(sums.astype("f4") * factors, lax.RoundingMethod.TO_NEAREST_EVEN), -128, 127
        ).astype("i1")

    args = [rng.integers(-128, 128, shape, np.int8) for shape in ((rows, terms), (terms, columns))]
    pins = {"inner": "mn"[number // 2 % 2]} if number % 4 < 2 else {}
    schedule = tw.Schedule(base_m=16, base_n=16, base_k=32, cores=1 + number % 2, **pins)
    options = tw.Options(schedule=schedule)
    module = tw.compile(layer, *args, target=target, options=options).module()
    return Subject(f"columns {number} for {target}", module, target)


def narrow_subject(number: int, target: str) -> Subject:
    """A product of 8-bit floats of two types, cast from f32 before it, over several tiles of rows and columns on each
    core; its sums leave the cube saturated where the number is even, and else through the vector cores."""
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.default_rng(number)
    rows, terms, columns = (int(rng.integers(17, most)) for most in (70, 80, 90))

    def layer(a: Any, w: Any) -> Any:
        a, w = a.astype(jnp.float8_e4m3fn), w.astype(jnp.float8_e5m2)
        sums = 0.25 * lax.dot(a, w, preferred_element_type=jnp.float32)
        if number % 2:
            return jnp.tanh(sums).astype(jnp.float8_e5m2)
        return jnp.clip(sums, -448, 448).astype(jnp.float8_e4m3fn)

    args = [rng.standard_normal(shape).astype("f4") for shape in ((rows, terms), (terms, columns))]
    schedule = tw.Schedule(base_m=16, base_n=16, base_k=32, cores=1 + number % 2)
    module = tw.compile(layer, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"narrow {number} for {target}", module, target)


def sparse_subject(number: int, target: str) -> Subject:
    """A product of integers whose right side is 2:4 sparse, over several tiles and steps on each core; of odd numbers
    with its rows in memory."""
    from sparsity import product_text

    rng = np.random.default_rng(number)
    m, n = (int(rng.integers(17, 60)) for _ in range(2))
    k = 8 * int(rng.integers(5, 20))
    schedule = tw.Schedule(base_m=16, base_n=16, base_k=32, cores=1 + number // 2 % 2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sparse.mlir"
        file.write_text(product_text((), m, k, n, columns=number % 2 == 0))
        options = tw.Options(schedule=schedule)
        module = tw.compile(str(file), target=target, options=options).module()
        return Subject(f"sparse {number} for {target}", module, target)


def barriers_subject(number: int, target: str) -> Subject:
    """Loads into one buffer, `number` times twelve of them: they wait at barriers."""
    from sums import sums

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sums.mlir"
        file.write_text(sums(1, number))
        return Subject(
            f"barriers {number} for {target}", tw.compile(str(file), target=target).module(), target
        )


def widened_subject(number: int, target: str) -> Subject:
    """Rows that are longer in memory than what a kernel stores of them, in small tiles."""
    from wide_rows import wide_rows

    options = tw.Options(schedule=tw.Schedule(base_m=16, base_n=16, base_k=16))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.mlir"
        file.write_text(wide_rows(number))
        module = tw.compile(str(file), target=target, options=options).module()
    return Subject(f"widened {number} for {target}", module, target)


def attention_subject(number: int, target: str) -> Subject:
    """Attention in small tiles: several pieces of the keys, and several tiles on each core. Even numbers are causal,
    and every third one shares its keys between two heads; from 4 on, scores and parts of the result are handed over in
    two steps, and odd ones leave out weights; from 8 on, there are two bands of rows."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    banded, shared = bool(number // 8 % 2), 2 if number % 3 == 2 else 1
    rows, keys = int(rng.integers(17, 48)), int(rng.integers(33, 100))
    heads, rows, keys = (24 // shared, rows + 128, keys + 128) if banded else (2, rows, keys)
    stepwise, kept = bool(number // 4 % 2), rng.random((rows, keys)) < 0.75

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hgqd,hkd->hgqk", q, k, preferred_element_type=jnp.float32) * 0.25
        if number % 2 == 0:
            scores = jnp.where(jnp.arange(keys) <= jnp.arange(rows)[:, None], scores, -1e9)
        weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
        if stepwise and number % 2:
            weights = jnp.where(kept, weights, 0)
        return jnp.einsum("hgqk,hkd->hgqd", weights, v)

    kind = ("f2", "f4")[number // 2 % 2]
    shapes = ((heads, shared, rows, 16), (heads, keys, 16), (heads, keys, 24))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    schedule = tw.Schedule(rows=16, keys=16, cores=1 + number % 2)
    if stepwise:
        schedule = tw.Schedule(rows=16, keys=32, scored=16, columns=16, cores=1 + number % 2)
    if banded:
        schedule = tw.Schedule(rows=32, keys=48, bands=2)
    module = tw.compile(attention, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"attention {number} for {target}", module, target)


def chained_subject(number: int, target: str) -> Subject:
    """Two products without a softmax between them, in small tiles of several pieces of the keys: the last parts are
    added in the loop over them, and behind it for odd numbers. From 2 on, scores are handed over in two steps."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, keys = int(rng.integers(17, 60)), int(rng.integers(70, 150))

    def chained_products(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return jnp.einsum("hqk,hkd->hqd", jax.nn.relu(jnp.einsum("hqd,hkd->hqk", q, k) + bias), v)

    shapes = ((2, rows, 16), (2, keys, 16), (2, keys, 24), (keys,))
    args = [rng.standard_normal(shape).astype(("f2", "f4")[number // 2 % 2]) for shape in shapes]
    stepwise = {"scored": 16} if number // 2 % 2 else {}
    schedule = tw.Schedule(rows=16, keys=32, places=1 + number % 2, cores=2, **stepwise)
    with patch.multiple(chained, LEAST_BYTES=0, LEAST_TILE=0):
        module = tw.compile(chained_products, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"chained {number} for {target}", module, target)


def back_to_back_subject(number: int, target: str) -> Subject:
    """Two products that a cube core hands on through l1, in pieces of one part and, for odd numbers, of two, with one
    step of the first product, which stays in l0a, and from 2 on with two."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, columns = int(rng.integers(33, 70)), int(rng.integers(17, 40))

    def back_to_back(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum("hqk,hkd->hqd", jax.nn.relu(jnp.einsum("hqd,hkd->hqk", q, k)), v)

    args = [rng.standard_normal(s).astype("f2") for s in ((2, rows, 32), (2, 96, 32), (2, 96, columns))]
    parts, features = 1 + number % 2, 32 // (1 + number // 2 % 2)
    schedule = tw.Schedule(rows=16, keys=16 * parts, scored=16, features=features, cores=2)
    module = tw.compile(back_to_back, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"back to back {number} for {target}", module, target)


def grouped_subject(number: int, target: str) -> Subject:
    """Rows in groups, each with a matrix of its own: the places of tiles are read by the scalar unit. Odd numbers have
    an epilogue on the vector cores."""
    import jax

    rng = np.random.default_rng(number)
    rows, groups = int(rng.integers(40, 90)), int(rng.integers(2, 5))

    def grouped_product(x: Any, w: Any, sizes: Any) -> Any:
        y = jax.lax.ragged_dot(x, w, sizes)
        return jax.nn.relu(y) if number % 2 else y

    kind = ("f2", "f4")[number // 2 % 2]
    shapes = ((rows, 40), (groups, 40, 24))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    sizes = np.full(groups, rows // groups, np.int32)
    with patch.multiple(grouped_products, LAUNCHES=-inf, TILES=(16,)):
        module = tw.compile(grouped_product, *args, sizes, target=target).module()
    return Subject(f"grouped {number} for {target}", module, target)


def pooled_subject(number: int, target: str) -> Subject:
    """A convolution whose result is pooled in its kernel, over several tiles of windows on each core. Windows overlap,
    with a border around the images, where the number is even; from 2 on there are several tiles of columns."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.default_rng(number)
    height, width = 16, 2 * int(rng.integers(5, 8))
    window, border = (3, 1) if number % 2 == 0 else (2, 0)

    def pooled_layer(x: Any, w: Any, b: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y, start = jax.nn.relu(y + b), jnp.asarray(-inf, x.dtype)
        padding = [(0, 0), (border, border), (border, border), (0, 0)]
        return lax.reduce_window(y, start, lax.max, (1, window, window, 1), (1, 2, 2, 1), padding)

    columns = 16 * (1 + number // 2 % 2)
    shapes = ((1, height, width, 16), (3, 3, 16, columns), (columns,))
    args = [rng.standard_normal(shape).astype("f2") for shape in shapes]
    schedule = tw.Schedule(base_m=64, base_n=16, base_k=16, cores=1 + number % 2)
    with patch.object(pooling_choice, "pays", lambda together, apart: True):
        module = tw.compile(pooled_layer, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"pooled {number} for {target}", module, target)


def waiting_subject(number: int, target: str) -> Subject:
    """A product that waits for a norm, and has all columns of a core in l1 before: it goes through them in two tiles.
    Odd numbers add to what the vector cores make of it; from 2 on there are several tiles of rows."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows = int(rng.integers(20, 60)) if number < 2 else int(rng.integers(130, 250))

    def waiting_product(x: Any, w: Any, v: Any) -> Any:
        y = (x @ w).astype("float32")
        y = (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1.0)).astype(x.dtype)
        z = jnp.tanh(y @ v)
        return z + y[:, :1] if number % 2 else z

    args = [rng.standard_normal(shape).astype("f2") for shape in ((rows, 40), (40, 64), (64, 128))]
    program = tw.compile(waiting_product, *args, target=target, options=tw.Options(tails=False))
    assert re.search(r"step = \[\d+, 64, 64\][^>]*rhs = \[\d+, 128, 64\]", program.ir("graph"))
    return Subject(f"waiting {number} for {target}", program.module(), target)


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


def statistics_subject(number: int, target: str) -> Subject:
    """A product whose kernel reduces rows of its result, with the result beside what becomes of it: several blocks of
    rows on a core, and on a split machine several tiles of columns in each. Odd numbers have one core, and from 2 on
    there are batches."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    batch = (2,) if number // 2 % 2 else ()
    rows, terms, columns = (int(rng.integers(17, most)) for most in (70, 60, 90))

    def normed(x: Any, w: Any, r: Any) -> Any:
        y = (x @ w + r).astype("f4")
        centred = y - y.mean(-1, keepdims=True)
        return y, centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

    kind = ("f2", "f4")[number // 4 % 2 if target == TARGETS[0] else 0]
    shapes = ((*batch, rows, terms), (*batch, terms, columns), (columns,))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    split = {"base_n": 16} if target == TARGETS[0] else {}
    schedule = tw.Schedule(tail=1, base_m=16, base_k=32, cores=1 + (number + 1) % 2, **split)
    module = tw.compile(normed, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"statistics {number} for {target}", module, target)


def gradient_subject(number: int, target: str) -> Subject:
    """Attention that stores its maxima and sums, and its gradient in kernels with two first products, in small tiles of
    several pieces. Odd numbers add the last parts behind the loop over the pieces, and from 2 on all is in f32."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, keys = int(rng.integers(33, 60)), int(rng.integers(70, 100))

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32) * 0.25
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores).astype(v.dtype), v)

    def gradient(q: Any, k: Any, v: Any, d: Any) -> Any:
        result, back = jax.vjp(attention, q, k, v)
        return (result, *back(d))

    shapes = ((2, rows, 16), (2, keys, 16), (2, keys, 24), (2, rows, 24))
    args = [rng.standard_normal(shape).astype(("f2", "f4")[number // 2 % 2]) for shape in shapes]
    schedule = tw.Schedule(rows=16, keys=32 if number % 2 else 16, places=1 + number % 2, cores=2)
    small = patch.multiple(chained, LEAST_BYTES=0, LEAST_LENGTH=0, LEAST_TILE=0)
    with small, patch.object(own_scores, "LEAST_GROWTH", 0):
        module = tw.compile(gradient, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"gradient {number} for {target}", module, target)


def winograd_subject(number: int, target: str) -> Subject:
    """A small convolution by F(2, 3), or F(4, 3) for odd numbers: its transforms store many parts of one tensor."""
    import jax

    rng = np.random.default_rng(number)
    size, channels = int(rng.integers(5, 9)), int(rng.integers(17, 40))
    kind = ("f2", "f4")[number // 2 % 2]
    x = rng.standard_normal((1, size, size + 1, channels)).astype(kind)
    w = rng.standard_normal((3, 3, channels, 16)).astype(kind)

    def convolution(x: Any, w: Any) -> Any:
        layouts = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layouts)

    options = tw.Options(winograd=("2", "4")[number % 2])
    module = tw.compile(convolution, x, w, target=target, options=options).module()
    return Subject(f"winograd {number} for {target}", module, target)


def decoding_subject(number: int, target: str) -> Subject:
    """Attention of few rows in small pieces of the keys, with something left behind the last whole one. Odd numbers cut
    the keys into parts, and every third one has rows that share keys."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    keys, shared = 2 * int(rng.integers(17, 40)), 3 if number % 3 == 2 else 1

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hgd,khd->hgk", q, k, preferred_element_type=jnp.float32) * 0.25
        scores = jnp.where(jnp.arange(keys) < keys - 5, scores, -1e9)
        return jnp.einsum("hgk,khd->hgd", jax.nn.softmax(scores, axis=-1).astype(q.dtype), v)

    kind = ("f2", "f4")[number // 2 % 2]
    shapes = ((2, shared, 16), (keys, 2, 16), (keys, 2, 24))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    schedule = tw.Schedule(keys=16, **({"split_keys": 2} if number % 2 else {"cores": 1}))
    module = tw.compile(attention, *args, target=target, options=tw.Options(schedule=schedule)).module()
    return Subject(f"decoding {number} for {target}", module, target)


def skinny_subject(number: int, target: str) -> Subject:
    """A product of few rows on the vector cores in small tiles, with something left behind the last whole piece. Odd
    numbers have an epilogue, and every third one sums in parts."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, summed, columns = 1 + number // 2 % 2, 3 * int(rng.integers(14, 33)), int(rng.integers(33, 100))

    def layer(x: Any, w: Any, b: Any) -> Any:
        y = x @ w
        return jnp.maximum(y + b, 0) * y if number % 2 else y

    kind = ("f2", "f4")[number // 4 % 2]
    shapes = ((rows, summed), (summed, columns), (columns,))
    args = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    pinned = {"split_k": 3} if number % 3 == 2 else {"tile": ((16, 32), (1, 16, 32))[rows - 1]}
    options = tw.Options(schedule=tw.Schedule(on="vector", **pinned))
    module = tw.compile(layer, *args, target=target, options=options).module()
    return Subject(f"skinny {number} for {target}", module, target)


def inlined_subject(number: int, target: str) -> Subject:
    """A row that the kernels which read it make themselves: its norm before a product on the vector cores, whose parts
    are added up, with a residual for odd numbers, where the next norm is."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    summed, columns = 32 * int(rng.integers(12, 17)), 32 * int(rng.integers(6, 13))

    def norm(x: Any) -> Any:
        y = x - x.mean(axis=-1, keepdims=True)
        return y / jnp.sqrt((y * y).mean(axis=-1, keepdims=True) + 1e-5)

    def layer(x: Any, w: Any, v: Any) -> Any:
        y = jnp.maximum(norm(x) @ w, 0) @ v
        return norm(x + y if number % 2 else y) @ w

    shapes = (1, summed), (summed, columns), (columns, summed)
    args = [rng.standard_normal(shape).astype(("f2", "f4")[number // 2 % 2]) for shape in shapes]
    options = tw.Options(schedule=tw.Schedule(on="vector", split_k=3 if number % 4 == 3 else None))
    module = tw.compile(layer, *args, target=target, options=options).module()
    return Subject(f"inlined {number} for {target}", module, target)


def streamed_subject(number: int, target: str) -> Subject:
    """A product in small tiles of which the sums of the last rows alone are cut, or those of the last columns for odd
    numbers. Every third one has an epilogue."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, summed, columns = (int(n) for n in rng.integers(33, 80, 3))

    def layer(x: Any, w: Any, b: Any) -> Any:
        y = x @ w
        return jnp.maximum(y + b, 0) * y if number % 3 == 2 else y

    args = [rng.standard_normal(shape).astype("f2") for shape in ((rows, summed), (summed, columns), (columns,))]
    last = {"stream_n" if number % 2 else "stream_m": int(rng.integers(1, 33))}
    options = tw.Options(schedule=tw.Schedule(base_m=16, base_n=16, base_k=16, split_k=2 + number // 2 % 2, **last))
    module = tw.compile(layer, *args, target=target, options=options).module()
    return Subject(f"streamed {number} for {target}", module, target)


def placed_subject(number: int, target: str) -> Subject:
    """Two products in small tiles, or one and a kernel of the vector cores for odd numbers, that store into one tensor,
    and a copy behind them."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, summed, columns = (int(n) for n in rng.integers(17, 60, 3))

    def stack(x: Any, w: Any, y: Any) -> Any:
        first = x @ w
        return jnp.concatenate([first, jnp.tanh(y) if number % 2 else jnp.maximum(x * 2 @ w, 0), y])

    args = [rng.standard_normal(shape).astype("f2") for shape in ((rows, summed), (summed, columns), (rows, columns))]
    options = tw.Options(schedule=tw.Schedule(base_m=16, base_n=16, base_k=16))
    module = tw.compile(stack, *args, target=target, options=options).module()
    return Subject(f"placed {number} for {target}", module, target)


SUBJECTS: dict[str, Callable[[int, str], Subject]] = {
    "random": random_subject,
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
    "inlined": inlined_subject,
    "widened": widened_subject,
    "skinny": skinny_subject,
    "streamed": streamed_subject,
    "placed": placed_subject,
}
"""Sources that are a kind and a number."""
