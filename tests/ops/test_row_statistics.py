"""Products whose kernel reduces rows of their results, on cores with all columns of these: values of JAX in both
memories, for all types, shapes and machines, and where two kernels stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import FLOATS, check, data
from hypothesis import given
from hypothesis import strategies as st
from tiering import covering, examples, sampled

import tilewright as tw
from tilewright.machine import Machine
from tilewright.passes.npu.check import check as hazards

TARGETS = ("ascend-910b1", "ascend-310p3")


def as_one(
    fn: Callable[..., Any], *args: Any, target: str = TARGETS[0], length: int = 64, **pins: Any
) -> tw.Program:
    """One kernel, whose values in both memories are JAX's."""
    options = tw.Options(schedule=tw.Schedule(tail=1, **pins))
    program = check(fn, *args, target=target, length=length, options=options)
    assert len(program.report().kernels) == 1, [k.name for k in program.report().kernels]
    assert hazards(program.module("npu"), Machine.load(target)) == []
    return program


def small(dtype: str, *shape: int, seed: int = 0) -> jax.Array:
    """Numbers with which sums of products stay near 1."""
    return data(dtype, shape, seed) / jnp.asarray(max(shape[0], 1) ** 0.5, data(dtype, ()).dtype)


def layer_norm(x: Any, w: Any, b: Any, r: Any, g: Any) -> Any:
    """The residual stream and what is normed of it, as behind the output projection of attention."""
    stream = (x @ w + b + r).astype(jnp.float32)
    centred = stream - stream.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return stream.astype(x.dtype), (centred * scale * g).astype(x.dtype)


def rms_norm(x: Any, w: Any) -> Any:
    y = (x @ w).astype(jnp.float32)
    return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)


def softmax(x: Any, w: Any) -> Any:
    return jax.nn.softmax((x @ w).astype(jnp.float32), axis=-1)


def log_softmax(x: Any, w: Any) -> Any:
    return jax.nn.log_softmax((x @ w).astype(jnp.float32), axis=-1)


def sums(x: Any, w: Any) -> Any:
    y = (x @ w).astype(jnp.float32)
    return y.sum(-1), y.max(-1)


def best(x: Any, w: Any) -> Any:
    y = x @ w
    return y.argmax(-1), y.max(-1)


def norm_inputs(dtype: str, m: int, k: int, n: int) -> list[Any]:
    return [small(dtype, *s) for s in ((m, k), (k, n), (n,), (m, n), (n,))]


@covering(2)
@pytest.mark.parametrize("kind", [*((TARGETS[0], d) for d in FLOATS), (TARGETS[1], "f16")], ids=str)
@pytest.mark.parametrize("shape", [(100, 70, 97), (33, 48, 300), (35, 64, 40)], ids=str)
def test_residual_and_norm(kind: tuple[str, str], shape: tuple[int, int, int]) -> None:
    """The cube of a fused core has no products of f32 and bf16."""
    target, dtype = kind
    as_one(layer_norm, *norm_inputs(dtype, *shape), target=target)


@covering(4)
@pytest.mark.parametrize("fn", [rms_norm, softmax, log_softmax, sums, best], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_statistics(fn: Callable[..., Any], target: str) -> None:
    as_one(fn, small("f16", 50, 40), small("f16", 40, 97), target=target)


@examples(6)
@given(
    st.sampled_from(FLOATS),
    st.sampled_from([1, 7, 17, 64, 130]),
    st.sampled_from([2, 5, 31, 80]),
    st.sampled_from([2, 3, 16, 97, 257]),
    st.sampled_from([softmax, rms_norm, sums]),
)
def test_any_size(dtype: str, m: int, k: int, n: int, fn: Callable[..., Any]) -> None:
    """As one kernel where there is anything to reduce and a product for the cube, and as JAX in any case."""
    options = tw.Options(schedule=tw.Schedule(tail=1))
    check(fn, small(dtype, m, k), small(dtype, k, n), length=k, options=options)


def test_several_tiles_of_rows_and_columns_on_a_core() -> None:
    """Blocks of 16 rows, of which a core has several; in each, columns of 16 of the 97, and rows in parts in ub."""
    args = norm_inputs("f16", 100, 70, 97)
    program = as_one(layer_norm, *args, base_m=16, base_n=16, base_k=32, cores=2)
    text = program.ir("npu")
    assert text.count("npu.set_cross") == text.count("npu.wait_cross") == 1
    before, behind = text.split("npu.set_cross")
    # behind the loop over columns, inside that over rows
    assert before.rstrip().endswith("}") and behind.split("npu.section")[0].count("\n      }") == 1


def test_batches() -> None:
    as_one(
        lambda x, w: jax.nn.softmax(jnp.einsum("bmk,bkn->bmn", x, w), -1),
        small("f16", 3, 33, 48),
        small("f16", 3, 48, 40),
    )


@pytest.mark.parametrize("axis", [-1, (1, 2)], ids=str)
def test_columns_of_several_axes(axis: Any) -> None:
    """Columns are heads and features: rows of each head, or of all of them."""
    as_one(
        lambda x, w: jax.nn.softmax(jnp.einsum("mk,khd->mhd", x, w), axis),
        small("f16", 33, 48),
        small("f16", 48, 4, 40),
    )


@sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", [1, 3])
def test_channels_of_a_convolution(target: str, channels: int) -> None:
    layouts = ("NHWC", "HWIO", "NHWC") if channels == 3 else ("NCHW", "OIHW", "NCHW")
    image, weights = ((2, 9, 9, 16), (3, 3, 16, 24)) if channels == 3 else ((2, 16, 9, 9), (24, 16, 3, 3))

    def fn(x: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layouts)
        return jax.nn.softmax(y, channels)

    as_one(fn, data("f16", image) / 12, data("f16", weights), target=target, length=144)


def test_integers() -> None:
    """Sums of 8-bit numbers, scaled by columns and reduced."""

    def fn(x: Any, w: Any, s: Any) -> Any:
        y = jax.lax.dot(x, w, preferred_element_type=jnp.int32).astype(jnp.float32) * s
        return (y - y.max(-1, keepdims=True)).astype(jnp.float16), y.sum(-1)

    as_one(fn, data("i8", (33, 64)), data("i8", (64, 70)), data("f32", (70,)) / 4096)


def test_extremes_of_integers() -> None:
    as_one(
        lambda x, w: jax.lax.dot(x, w, preferred_element_type=jnp.int32).max(-1),
        data("i8", (33, 64)),
        data("i8", (64, 70)),
    )


def test_masks() -> None:
    """One that is loaded, and one of positions."""
    mask = jnp.asarray(np.random.default_rng(0).random((48, 48)) < 0.7).at[:, 0].set(True)

    def fn(x: Any, w: Any, m: Any) -> Any:
        scores = jnp.where(m, (x @ w).astype(jnp.float32), -1e9)
        seen = jnp.arange(48) <= jnp.arange(48)[:, None]
        return jax.nn.softmax(jnp.where(seen, scores, -1e9), -1)

    as_one(fn, small("f16", 48, 64), small("f16", 64, 48), mask)


def test_a_transposed_result() -> None:
    as_one(lambda x, w: softmax(x, w).T, small("f16", 33, 48), small("f16", 48, 130))


# -- where two kernels stay -----------------------------------------------------------------------------------


def kernels(fn: Callable[..., Any], *shapes: tuple[int, ...], **options: Any) -> int:
    args = [jax.ShapeDtypeStruct(s, "float16") for s in shapes]
    return sum(k.launches for k in tw.compile(fn, *args, options=tw.Options(**options)).report().kernels)


def test_it_pays_where_little_is_multiplied() -> None:
    """With a long right side each core would load all of it."""
    assert kernels(softmax, (512, 64), (64, 64)) == 1
    assert kernels(softmax, (512, 64), (64, 64), without="row-epilogue") == 2
    assert kernels(softmax, (512, 64), (64, 64), schedule=tw.Schedule(tail=2)) == 2
    assert kernels(softmax, (512, 3072), (3072, 1024)) == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: jax.nn.softmax(x @ w, 0),  # along rows, of which a core has some
        lambda x, w: jax.nn.softmax((x @ w).reshape(-1, 2, 32), -1),  # of another domain
        lambda x, w: jax.nn.softmax((x @ w) + (x @ w).T, -1),  # read along other axes
    ],
)
def test_what_stays_two_kernels(fn: Callable[..., Any]) -> None:
    args = small("f16", 64, 48), small("f16", 48, 64)
    program = check(fn, *args, length=48, options=tw.Options(schedule=tw.Schedule(tail=1)))
    assert len(program.report().kernels) == 2


def test_rows_that_do_not_fit() -> None:
    args = small("f16", 16, 16), small("f16", 16, 60_000)
    program = check(softmax, *args, length=16, options=tw.Options(schedule=tw.Schedule(tail=1)))
    assert len(program.report().kernels) > 1


def test_columns_that_no_step_of_a_fused_core_has_room_for() -> None:
    """All columns of a row would have to be one tile there; nothing is pinned, so there are two kernels."""
    x, w = small("f16", 16, 32), small("f16", 32, 4096)
    program = tw.compile(softmax, x, w, target="ascend-310")
    assert len(program.report().kernels) == 2
    assert tw.verify(softmax, x, w, program=program).ok


@pytest.mark.parametrize("dynamic", [("b, 64", None), (None, "64, n")], ids=str)
def test_open_sizes(dynamic: tuple[str | None, ...]) -> None:
    """Rows of an open number, or of open lengths, stay in a kernel of their own."""
    f = tw.jit(softmax, dynamic=dynamic)
    for size in (33, 64):
        m, n = (size, 64) if dynamic[0] else (64, size)
        x, w = small("f16", m, 64), small("f16", 64, n)
        np.testing.assert_allclose(f(x, w), softmax(x, w), atol=1e-3)
