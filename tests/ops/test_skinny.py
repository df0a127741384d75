"""Products of few rows or columns on the vector cores: odd shapes, layouts, epilogues, every type; both memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from tiering import sampled

import tilewright as tw
from tilewright.api.program import Program
from tilewright.passes.errors import PassError

VECTOR = tw.Options(schedule=tw.Schedule(on="vector"))


def on_vector(program: Program) -> bool:
    """Whether no kernel of a program has work for a cube core."""
    return all(kernel.kind == "vector" for kernel in program.report().kernels)


def inputs(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    return [data(dtype, shape, seed) for seed, shape in enumerate(shapes)]


def product(x: Any, w: Any) -> Any:
    return x @ w


@sampled(6)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (1, 64, 64),
        (1, 97, 31),
        (1, 513, 257),
        (1, 2, 1031),
        (2, 100, 300),
        (3, 67, 130),
        (4, 257, 17),
        (130, 67, 1),
        (257, 300, 2),
        (1, 1031, 1),
    ],
)
def test_shapes(dtype: str, m: int, k: int, n: int) -> None:
    assert on_vector(check(product, *inputs(dtype, (m, k), (k, n)), length=k, options=VECTOR))


@sampled(2)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.T,
        lambda x, w: w @ x.T,
        lambda x, w: jnp.einsum("mk,nk->nm", x, w),
        lambda x, w: jnp.maximum(x @ w.T + 1, 0) * 0.5,
        lambda x, w: (jnp.sum(jnp.abs(x @ w.T), axis=1, keepdims=True) + 1) * w[:1, :1],
    ],
)
def test_weights_that_lie_along_the_sums(dtype: str, function: Callable[..., Any]) -> None:
    assert on_vector(check(function, *inputs(dtype, (1, 301), (203, 301)), length=301 * 16, options=VECTOR))


@sampled(2)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_epilogues(dtype: str) -> None:
    def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
        return jax.nn.silu(x @ w + b) * r

    operands = inputs(dtype, (1, 131), (131, 515), (515,), (1, 515))
    assert on_vector(check(layer, *operands, length=131, options=VECTOR))


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_batches_and_several_axes_that_are_summed_over(dtype: str) -> None:
    def batched(x: Any, w: Any) -> Any:
        return jnp.einsum("bqk,bkn->bqn", x, w)

    def heads(x: Any, w: Any) -> Any:
        return jnp.einsum("qhc,hcn->qn", x, w)

    assert on_vector(check(batched, *inputs(dtype, (5, 1, 70), (5, 70, 33)), length=70, options=VECTOR))
    assert on_vector(check(heads, *inputs(dtype, (1, 3, 37), (3, 37, 290)), length=111, options=VECTOR))
    swapped = lambda x, w: jnp.einsum("qhc,chn->qn", x, w)  # noqa: E731
    assert on_vector(check(swapped, *inputs(dtype, (1, 3, 37), (37, 3, 290)), length=111, options=VECTOR))


def test_sums_in_f32_of_two_types() -> None:
    def mixed(x: Any, w: Any) -> Any:
        return jnp.matmul(x, w, preferred_element_type=jnp.float32)

    x, w = data("f16", (1, 300)), data("bf16", (300, 130))
    check(mixed, x, w, length=300, options=VECTOR)


@sampled(3)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(("parts", "k"), [(2, 512), (3, 333), (5, 301), (4, 1024)])
def test_sums_in_parts(dtype: str, parts: int, k: int) -> None:
    options = tw.Options(schedule=tw.Schedule(on="vector", split_k=parts))
    program = check(lambda x, w: (x @ w) * 2, *inputs(dtype, (1, k), (k, 70)), length=k, options=options)
    assert f"split_k = {parts}" in program.ir("graph")
    assert "vector_schedule<" in program.ir("graph").split("split_k")[0].rsplit("#graph.", 1)[1]


@pytest.mark.parametrize("tile", [(24, 64), (1, 300), (97, 17), (7, 8)])
def test_pinned_tiles(tile: tuple[int, int]) -> None:
    """What is left behind the last whole piece is a piece of its own."""
    options = tw.Options(schedule=tw.Schedule(on="vector", tile=tile))
    program = check(product, *inputs("f16", (1, 97), (97, 300)), length=97, options=options)
    assert f"tile = [{tile[0]}, {tile[1]}]" in program.ir("graph")
    assert "tile.mask" not in program.ir("tile")


def cost(m: int, k: int, n: int, schedule: tw.Schedule | None = None) -> float:
    shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((m, k), (k, n))]
    return tw.compile(product, *shapes, options=tw.Options(schedule=schedule)).report().microseconds


def test_a_row_by_many_weights_takes_little_longer_than_reading_them() -> None:
    assert cost(1, 4096, 4096) <= 33
    assert cost(1, 4096, 4096) < cost(1, 4096, 4096, tw.Schedule(on="cube"))


def test_the_better_cores_are_chosen() -> None:
    for m, k, n in ((1, 768, 768), (1, 2048, 32000), (2, 1024, 1024), (4, 4096, 1024)):
        either = cost(m, k, n)
        for cores in ("cube", "vector"):
            assert either <= cost(m, k, n, tw.Schedule(on=cores)) * 1.02, (m, k, n, cores)


def test_the_choice_can_be_pinned_by_name_and_is_refused_with_a_reason() -> None:
    x, w = inputs("f16", (1, 700), (700, 800))
    pinned = {"contract_0": tw.Schedule(on="cube")}
    assert "cube_schedule" in tw.compile(product, x, w, options=tw.Options(schedule=pinned)).ir("graph")
    rows = data("f16", (64, 700))
    for schedule, args, why in (
        (tw.Schedule(on="vector"), (rows, w), "more than 4 rows and columns"),
        (tw.Schedule(on="vector", base_m=16), (x, w), "no such choice"),
    ):
        with pytest.raises(tw.CompileError, match=why):
            tw.compile(product, *args, options=tw.Options(schedule={"contract_0": schedule}))
    with pytest.raises(PassError, match="on must be cube or vector"):
        tw.Schedule(on="both")


def test_pins_for_all_kernels_leave_products_of_many_rows_on_the_cube() -> None:
    x, w = inputs("f16", (64, 70), (70, 80))
    assert "cube_schedule" in tw.compile(product, x, w, options=VECTOR).ir("graph")


def test_fused_cores_keep_theirs() -> None:
    x, w = inputs("f16", (1, 700), (700, 800))
    assert "cube_schedule" in tw.compile(product, x, w, target="ascend-310").ir("graph")


def test_open_dimensions_stay_on_the_cube() -> None:
    """Also where the same product was on the vector cores for one size."""
    program = tw.jit(product, dynamic=("_, k", "k, _"))
    for k in (512, 384):
        x, w = inputs("f16", (1, k), (k, 700))
        np.testing.assert_allclose(program(x, w), np.asarray(x @ w), rtol=2e-2, atol=0.1)
