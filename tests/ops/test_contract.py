"""Products: dot_general with any batch, free and contracted dimensions, and what may surround them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import FLOATS, JAX_DTYPE, SIZES, check, data, targets
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import covering, examples, sampled

import tilewright as tw
from tilewright import Machine
from tilewright.dialects.graph import CubeSchedule, FusionOp
from tilewright.dialects.graph.schedules import to_schedules

TARGETS = targets()


@sampled(2)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32"])
@examples(5)
@given(draw=st.data(), target=TARGETS)
def test_dot_general(dtype: str, draw: st.DataObject, target: str) -> None:
    extent: dict[str, int] = {}
    budget = 8_000

    def names(kind: str, most: int) -> list[str]:
        nonlocal budget
        found = [f"{kind}{i}" for i in range(draw.draw(st.integers(0, most)))]
        for name in found:
            extent[name] = draw.draw(st.sampled_from([s for s in SIZES if s <= max(budget, 1)]))
            budget //= extent[name]
        return found

    k, m, n, batch = names("k", 2), names("m", 2), names("n", 2), names("b", 2)
    lhs = draw.draw(st.permutations([*batch, *m, *k]))
    rhs = draw.draw(st.permutations([*batch, *n, *k]))
    contract = [lhs.index(a) for a in k], [rhs.index(a) for a in k]
    both = [lhs.index(a) for a in batch], [rhs.index(a) for a in batch]
    wide = jnp.int32 if dtype in ("i8", "i32") else None

    def fn(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, (contract, both), preferred_element_type=wide)

    x, y = (data(dtype, [extent[a] for a in names_of], i) for i, names_of in enumerate((lhs, rhs)))
    check(fn, x, y, target=target, length=math.prod(extent[a] for a in k))


@covering()
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("shape", [(300, 200, 150), (5, 3000, 7), (1, 257, 1000), (1000, 16, 1), (1, 1, 1)])
def test_products_larger_than_a_tile(dtype: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    wide = jnp.int32 if dtype == "i8" else None
    x, y = data(dtype, (m, k)), data(dtype, (k, n))
    check(lambda x, y: lax.dot(x, y, preferred_element_type=wide), x, y, length=k)


@pytest.mark.parametrize("columns", [7, 8, 9, 17])
def test_products_of_few_columns_add_up_alike_in_both_memories(columns: int) -> None:
    """XLA has kernels of their own for few columns, and adds up in another order with them."""
    x, y = data("f32", (3, 200, 256)), data("f32", (3, 256, columns))
    check(lambda x, y: jnp.einsum("bmk,bkn->bmn", x, y), x, y, length=256)


A, B = data("f32", (7, 13)), data("f32", (13, 5))
HALF = data("f16", (17, 3))


def shifted(x: jax.Array) -> jax.Array:
    return lax.pad(x, jnp.asarray(0, x.dtype), [(2, 2, 0), (2, 0, 0)])


OPERANDS: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "a transposed slice": (lambda x, y: x.T @ y[:, ::2].T, (data("f32", (13, 7)), data("f32", (5, 26)))),
    "a row repeated": (lambda x, y: jnp.broadcast_to(x, (7, 13)) @ y, (data("f32", (13,)), B)),
    "a column repeated": (lambda x, y: y @ jnp.broadcast_to(x[:, None], (13, 7)), (data("f32", (13,)), A)),
    "one number": (lambda x: x @ jnp.ones((13, 3)), (A,)),
    "one number, often": (lambda x: x @ jnp.full((2049, 3), 0.5), (data("f32", (40, 2049)),)),
    "an unknown number": (lambda x, y: jnp.broadcast_to(x, (7, 13)) @ y, (data("f32", ()), B)),
    "a matrix for each batch": (
        lambda x, y: jnp.einsum("bij,bjk->bik", jnp.broadcast_to(x, (3, 7, 13)), y),
        (A, data("f32", (3, 13, 5))),
    ),
    "positions": (lambda x: x @ jnp.arange(39.0).reshape(13, 3), (A,)),
    "padded": (lambda x, y: jnp.pad(x, ((0, 0), (1, 2))) @ y, (data("f32", (7, 10)), B)),
    "padded with ones": (
        lambda x, y: jnp.pad(x, ((0, 0), (1, 2)), constant_values=1) @ y,
        (data("f32", (7, 10)), B),
    ),
    "padded on both sides": (lambda x: jnp.tensordot(shifted(x + 1), shifted(x + 1), (1, 1)), (HALF,)),
    "padded twice": (lambda x, y: shifted(shifted(x)) @ y, (HALF, data("f16", (7, 4)))),
    "reversed": (lambda x, y: x[:, ::-1] @ y, (A, B)),
    "slices along k": (lambda x, y: x[:, 3:10] @ y[1:8], (A, B)),
    "merged dimensions": (
        lambda x, y: x.reshape(6, 15) @ y,
        (data("f32", (2, 3, 3, 5)), data("f32", (15, 4))),
    ),
    "the same matrix": (lambda x: (x @ x.T, x.T @ x), (A,)),
    "mixed types": (
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32),
        (data("bf16", (7, 9)), data("bf16", (9, 5))),
    ),
    "a chain": (lambda x, y: jnp.einsum("ij,jk,lk->il", x, y, y.T @ y), (A, B)),
}


@covering(6)
@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_operands(name: str, target: str) -> None:
    fn, args = OPERANDS[name]
    check(fn, *args, target=target, length=64)


WAYS: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[int, int], tuple[int, ...]]]] = {
    "as it is": (lambda x: x, lambda m, n: (m, n)),
    "transposed": (lambda x: x.T, lambda m, n: (n, m)),
    "of every other column": (lambda x: x[:, ::2], lambda m, n: (m, 2 * n)),
    "of every other column, transposed": (lambda x: x[:, ::2].T, lambda m, n: (n, 2 * m)),
    "of the last rows": (lambda x: x[3:], lambda m, n: (m + 3, n)),
    "of the last rows, transposed": (lambda x: x[3:].T, lambda m, n: (n + 3, m)),
    "computed, transposed": (lambda x: (x * 2).T, lambda m, n: (n, m)),
    "one of a batch": (lambda x: x.transpose(1, 2, 0)[0], lambda m, n: (n, 1, m)),
}
"""What a matrix [m, n] is taken from, and the shape of that."""

USES: dict[str, Callable[[jax.Array, jax.Array], Any]] = {
    "a product": lambda a, b: a @ b,
    "transposed": lambda a, b: (a @ b).T,
    "both": lambda a, b: (a @ b, b.T @ a.T),
    "of products": lambda a, b: (a @ b).T @ (a @ b),
    "a chain": lambda a, b: b @ (a @ b).T,
    "a batch": lambda a, b: jnp.einsum("bmk,bkn->bnm", jnp.stack([a, -a]), jnp.stack([b, b + 1])),
}
EXTENTS = st.sampled_from((1, 2, 3, 5, 7, 8, 13, 31, 63, 64, 65, 97, 101, 128, 130, 192, 257, 300))


@sampled(6)
@pytest.mark.parametrize("use", USES)
@examples(10)
@given(
    sides=st.tuples(st.sampled_from([*WAYS]), st.sampled_from([*WAYS])),
    extents=st.tuples(EXTENTS, EXTENTS, EXTENTS),
    dtype=st.sampled_from(FLOATS),
    target=TARGETS,
)
def test_transposes_change_no_bit(
    use: str, sides: tuple[str, str], extents: tuple[int, int, int], dtype: str, target: str
) -> None:
    """Typed memory shows XLA the transposes around a product, bytes memory does not."""
    m, k, n = extents
    (left, left_of), (right, right_of) = (WAYS[side] for side in sides)
    x, y = data(dtype, left_of(m, k)), data(dtype, right_of(k, n), 1) / math.sqrt(k)
    check(lambda x, y: USES[use](left(x), right(y)), x, y, target=target, length=k * m)


EPILOGUES: dict[str, Callable[..., Any]] = {
    "bias and relu": lambda x, w, b, r: jax.nn.relu(x @ w + b),
    "residual": lambda x, w, b, r: x @ w + r * 2,
    "transposed residual": lambda x, w, b, r: (x @ w).T + r.T,
    "a column": lambda x, w, b, r: x @ w + r[:, :1],
    "two results": lambda x, w, b, r: (x @ w, jnp.tanh(x @ w)),
    "transposed": lambda x, w, b, r: (x @ w).T,
    "sliced": lambda x, w, b, r: (x @ w)[1:4, ::2],
    "heads": lambda x, w, b, r: (x @ w).reshape(17, 3, 13).transpose(1, 0, 2),
    "a sum of products": lambda x, w, b, r: x @ w + x @ (w + 1),
    "a row sum": lambda x, w, b, r: (x @ w).sum(-1),
    "a column maximum": lambda x, w, b, r: (x @ w + b).max(0),
    "softmax": lambda x, w, b, r: jax.nn.softmax(x @ w),
    "the best": lambda x, w, b, r: (x @ w).argmax(-1),
    "parts": lambda x, w, b, r: jnp.split(x @ w, 3, axis=-1),
    "converted": lambda x, w, b, r: (x @ w + b).astype(jnp.float16),
    "of its own result": lambda x, w, b, r: (x @ w) * jax.nn.sigmoid(x @ w),
}


@sampled(4)
@pytest.mark.parametrize("name", EPILOGUES)
@examples(1)
@given(dtype=st.sampled_from(FLOATS), target=TARGETS)
def test_epilogues(name: str, dtype: str, target: str) -> None:
    args = data(dtype, (17, 31)), data(dtype, (31, 39)), data(dtype, (39,)), data(dtype, (17, 39))
    fn = EPILOGUES[name]
    if name == "the best":
        args = tuple(jnp.round(a * 2) for a in args)
    check(fn, *args, target=target, length=31 * 4)


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_quantised(target: str) -> None:
    def fn(x: jax.Array, w: jax.Array, scale: jax.Array) -> list[jax.Array]:
        wide = lax.dot(x, w, preferred_element_type=jnp.int32)
        return [wide, wide.astype(jnp.float32) * scale, jnp.clip(wide >> 4, -128, 127).astype(jnp.int8)]

    check(fn, data("i8", (130, 97)), data("i8", (97, 64)), data("f32", (64,)), target=target)


def test_rows_beyond_ub_after_a_product() -> None:
    check(lambda x, w: jax.nn.softmax(x @ w), data("f32", (3, 17)), data("f32", (17, 50257)), length=17)


def test_products_of_single_terms_in_a_loop() -> None:
    """XLA makes them multiplications; both memories round them before what follows is added."""

    def fn(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda _, a: a + a[:, :1] @ a[:1, :], x)

    check(fn, data("f32", (37, 53)) / 8, length=5)


@sampled(2)
@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("ka,kb->ab", ((8192, 64), (8192, 48)), "f16"),
        ("ka,kb->ab", ((10007, 30), (10007, 50)), "f32"),  # a prime: a part of the sum is left over
        ("k,k->", ((50021,), (50021,)), "f32"),
        ("ck,kcd->cd", ((3, 9000), (9000, 3, 33)), "bf16"),
        ("abmc,cban->mn", ((24, 17, 20, 30), (30, 17, 24, 24)), "f32"),
    ],
)
def test_long_sums_of_few_results_use_the_cores(equation: str, shapes, dtype: str) -> None:
    """As in gradients of weights: parts of the sum are products of their own."""
    args = [data(dtype, shape, i) for i, shape in enumerate(shapes)]
    program = check(lambda x, y: jnp.einsum(equation, x, y), *args, length=math.prod(shapes[0]))
    kernel = max(program.report().kernels, key=lambda k: k.macs)
    assert kernel.cores >= 8


@pytest.mark.parametrize("rows", [197, 113])
def test_an_epilogue_is_cut_where_that_makes_few_parts(rows: int) -> None:
    """Of a prime number of rows there are no parts but single ones: the columns are cut."""
    x, w, b = data("f16", (rows, 96)), data("f16", (96, 128), 1), data("f16", (128,), 2)

    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.gelu(x @ w + b)

    pins = tw.Schedule(base_m=rows, base_n=128)
    program = check(layer, x, w, b, length=96, options=tw.Options(schedule=pins))
    (fusion,) = (op for op in program.module("graph").walk() if isinstance(op, FusionOp))
    (schedule,) = to_schedules(fusion.schedule)
    assert isinstance(schedule, CubeSchedule) and schedule.step and schedule.epilogue
    parts = math.prod(-(-n // part) for n, part in zip(schedule.step, schedule.epilogue, strict=False))
    assert parts <= 16, schedule


def wide_conv(x: jax.Array, w: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=numbers, preferred_element_type=jnp.float32
    )


WIDE_PRODUCTS: dict[str, tuple[Callable[..., jax.Array], tuple[int, ...], tuple[int, ...]]] = {
    "plain": (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32), (33, 40), (40, 70)),
    "batched": (
        lambda x, y: jnp.einsum("bij,bjk->bik", x, y, preferred_element_type=jnp.float32),
        (3, 17, 24),
        (3, 24, 20),
    ),
    "transposed and reshaped": (
        lambda x, y: jnp.einsum("ij,jk->ki", x, y, preferred_element_type=jnp.float32).reshape(7, 10, -1),
        (33, 40),
        (40, 70),
    ),
    "a convolution": (wide_conv, (1, 6, 7, 16), (3, 3, 16, 24)),
}


@covering(6)
@pytest.mark.parametrize("name", WIDE_PRODUCTS)
@pytest.mark.parametrize(
    ("dtype", "wanted"), [("bf16", "bf16"), ("f16", "bf16"), ("f16", "f16"), ("f32", "f16")]
)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-310", "ascend-950pr"])
def test_a_cast_behind_wide_sums_is_their_way_out_of_the_cube(
    name: str, dtype: str, wanted: str, target: str
) -> None:
    """Only the sums are rounded by it: a bias that is added behind it is added to what is rounded."""
    product, left, right = WIDE_PRODUCTS[name]
    x, y = data(dtype, left), data(dtype, right)

    def cast(x: jax.Array, y: jax.Array) -> jax.Array:
        return product(x, y).astype(JAX_DTYPE[wanted])

    program = check(cast, x, y, target=target, length=144)
    if dtype in Machine.load(target).cube:
        (kernel,) = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
        assert kernel.kind.data == "cube"
    check(lambda x, y: cast(x, y) + cast(x, y)[-1:] * 3, x, y, target=target, length=144)


def test_sums_that_something_else_reads_stay_wide() -> None:
    x, y = data("bf16", (33, 40)), data("bf16", (40, 70))

    def both(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        sums = lax.dot(x, y, preferred_element_type=jnp.float32)
        return sums, sums.astype(jnp.bfloat16)

    check(both, x, y, length=40)


@pytest.mark.parametrize("activation", [lambda x: x, jax.nn.relu, jax.nn.gelu])
def test_wide_sums_of_a_large_product_are_not_stored(activation: Callable[[Any], Any]) -> None:
    """8192 x 8192 sums in f32 and their cast to bf16: 849 us in strips, 441 us as one kernel."""
    x, y = (jax.ShapeDtypeStruct(s, "bfloat16") for s in ((8192, 1024), (1024, 8192)))
    program = tw.compile(
        lambda x, y: activation(lax.dot(x, y, preferred_element_type=jnp.float32)).astype(x.dtype), x, y
    )
    plain = tw.compile(lambda x, y: x @ y, x, y)
    assert program.report().microseconds < 1.16 * plain.report().microseconds
