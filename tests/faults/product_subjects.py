"""Products and what stands around them, as programs that faults are injected into."""

from __future__ import annotations

import re
import tempfile
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from subject_types import TARGETS, Subject

import tilewright as tw
from tilewright.kernels.product_cost import CubeCost
from tilewright.passes.choose.column_epilogue import ColumnEpilogue
from tilewright.passes.choose.pooling_choice import PooledProduct
from tilewright.passes.choose.prologue import PrologueOnCube
from tilewright.passes.simplify import grouped_products


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


def padded_subject(number: int, target: str) -> Subject:
    """Rows that are longer in memory than what a kernel stores of them, in small tiles."""
    from wide_rows import wide_rows

    options = tw.Options(schedule=tw.Schedule(base_m=16, base_n=16, base_k=16))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.mlir"
        file.write_text(wide_rows(number))
        module = tw.compile(str(file), target=target, options=options).module()
    return Subject(f"padded {number} for {target}", module, target)


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
    with patch.object(PooledProduct, "pays", lambda self, made, now: True):
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

    args = [rng.standard_normal(shape).astype("f2") for shape in ((rows, 40), (40, 64), (64, 64))]
    # whatever that costs: with the most tiles of one load of what is there before the norm
    with patch.object(CubeCost, "behind_barrier", lambda cost, side, cores, tiles, *_: -tiles):
        program = tw.compile(waiting_product, *args, target=target, options=tw.Options(without={"row-epilogue"}))
        assert re.search(r"step = \[\d+, 32, 64\][^>]*rhs = \[\d+, 64, 64\]", program.ir("graph"))
    return Subject(f"waiting {number} for {target}", program.module(), target)


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


def made_subject(number: int, target: str) -> Subject:
    """A product of which vector cores make an operand: weights that are widened and scaled, in pieces that go through a
    ring; for every third number whole rows of a norm instead. Odd numbers end inside a piece."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, summed, columns = int(rng.integers(5, 40)), 1024 + 8 * (number % 2), 64 + 16 * (number % 2)

    def scaled(x: Any, w: Any, s: Any) -> Any:
        return x @ (w.astype(x.dtype) * s)

    def normed(x: Any, w: Any, s: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide / (wide * wide).mean(-1, keepdims=True)).astype(x.dtype) @ w * s

    if number % 3 == 2:
        rows, summed, columns = 96, 256, 64
    x, s = (rng.standard_normal(shape).astype("f2") for shape in ((rows, summed), (columns,)))
    w = rng.integers(-9, 9, (summed, columns)).astype("f2" if number % 3 == 2 else "i1")
    options = tw.Options(without={"split-k", "stream-k"})
    with patch.object(PrologueOnCube, "pays", lambda self, made, now: made < inf):
        module = tw.compile(normed if number % 3 == 2 else scaled, x, w, s, target=target, options=options).module()
    return Subject(f"made {number} for {target}", module, target)


def rotated_subject(number: int, target: str) -> Subject:
    """A product whose heads are rotated in its epilogue, over several tiles on each core; of odd numbers with heads
    before rows."""
    import jax.numpy as jnp

    rng = np.random.default_rng(number)
    rows, summed, heads, half = int(rng.integers(33, 90)), 48, int(rng.integers(2, 5)), 16 * int(rng.integers(1, 3))

    def rotary(x: Any, w: Any, cos: Any, sin: Any) -> Any:
        y = (x @ w).reshape(rows, heads, 2 * half)
        if number % 2:
            y = y.transpose(1, 0, 2)
        else:
            cos, sin = cos[:, None], sin[:, None]
        a, b = jnp.split(y, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    shapes = (rows, summed), (summed, heads * 2 * half), (rows, half), (rows, half)
    args = [rng.standard_normal(shape).astype("f2") for shape in shapes]
    options = tw.Options(without={"split-k", "stream-k"})
    with patch.object(ColumnEpilogue, "pays", lambda self, made, now: made < inf):
        module = tw.compile(rotary, *args, target=target, options=options).module()
    return Subject(f"rotated {number} for {target}", module, target)


def recomputed_subject(number: int, target: str) -> Subject:
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
    return Subject(f"recomputed {number} for {target}", module, target)


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
