"""The IR before and after each pass gives the same values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import DTYPES, INTEGERS, assert_close, data, tolerance
from hypothesis import given, note
from hypothesis import strategies as st
from jax import lax
from judging import Elements
from programs import programs
from references import reference
from tiering import ALL, examples, number, sampled
from xdsl.context import Context

from tilewright import Machine
from tilewright.api.compiling import lower
from tilewright.backends.interpreter import Executable, run_graph
from tilewright.backends.tile_level import run_tile
from tilewright.frontends import lower_function
from tilewright.passes.pipeline import PIPELINE, make_pass
from tilewright.verification.compare import compare


def levels(fn: Callable[..., Any], args: tuple[jax.Array, ...], target: str) -> dict[str, list[Any]]:
    """The results after the frontend and after each pass, by the level the module is then on. What a pass leaves as it
    was is not run again."""
    machine = Machine.load(target)
    module = lower_function(fn, args).module
    found = {"frontend": run_graph(module, *args)}
    last, text = found["frontend"], str(module)
    for stage in PIPELINE:
        make_pass(stage, target).apply(Context(), module)
        module.verify()
        before, text = text, str(module)
        if text == before:
            found[stage.name] = last
        elif stage.level == "graph":
            found[stage.name] = run_graph(module, *args)
        elif stage.level == "tile":
            found[stage.name] = run_tile(module, *args)
        else:
            found[stage.name] = Executable(module, machine, "typed")(*args)
        last = found[stage.name]
    found["bytes"] = Executable(module, machine, "bytes")(*args)
    return found


def check_levels(fn: Callable[..., Any], args: tuple[jax.Array, ...], target: str, length: int) -> None:
    """Each level is held against JAX, and each element against the bound of its own roundings; from tile-to-npu on no
    bit changes."""
    found = levels(fn, args, target)
    want = reference(fn, *args)
    allowed = tolerance([x.dtype for x in (*args, *want)], length)
    elements = Elements(lambda: lower(fn, *args))
    for name, got in found.items():
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, allowed, name)
        elements.hold(got, want, what=name)
    placed = ("npu-allocate", "npu-synchronize", "npu-plan-memory", "npu-schedule-host", "npu-join-launches")
    for name in (*placed, "bytes"):
        for a, b in zip(found[name], found["tile-to-npu"], strict=True):
            assert compare(a, b, bits=True).ratio == 0, name


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "interior padding": (
        lambda x: lax.pad(x, jnp.float32(1), [(1, -1, 2), (0, 2, 0)]),
        ((5, 7),),
        "ascend-910b1",
    ),
    "a product wanted with its rows last": (
        lambda k, q: jax.nn.softmax(jnp.einsum("bkd,bqrd->brqk", k, q)),
        ((3, 37, 8), (3, 11, 2, 8)),
        "ascend-910b1",
    ),
    "a split sum": (lambda x: x.sum(), ((300, 257),), "ascend-910b1"),
    "a product on the vector engine": (lambda x, y: x @ y + 1, ((7, 13), (13, 5)), "ascend-310"),
    "a product and its epilogue": (lambda x, y: jax.nn.softmax(x @ y), ((130, 31), (31, 64)), "ascend-910b1"),
    "a dilated convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((1, -1), (2, 1)), (2, 1), (1, 2)),
        ((2, 3, 7, 5), (4, 3, 2, 2)),
        "ascend-910b1",
    ),
    "a wide window over few places, without a cube": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (2, 1), ((0, 1), (0, 0)), rhs_dilation=(1, 2), feature_group_count=2
        ),
        ((2, 4, 8, 9), (6, 2, 7, 4)),
        "ascend-310",
    ),
    "a streamed reduction": (lambda x: jnp.exp(x).sum(1), ((2, 50257),), "ascend-910b1"),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda i, x: x * 0.5 + i, x), ((5, 7),), "ascend-910b1"),
}


@sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_keeps_the_values(name: str) -> None:
    fn, shapes, target = PROGRAMS[name]
    check_levels(fn, tuple(data("f32", s, i) for i, s in enumerate(shapes)), target, 4096)


@examples(8)
@given(programs(), st.sampled_from(("bf16", "f16", "f32")))
def test_each_pass_keeps_the_values_of_random_programs(program: Any, dtype: str) -> None:
    note(f"{program}\n{dtype}")
    check_levels(program, tuple(program.arguments(dtype)), "ascend-910b1", program.length)


def one_of_each(x: Any, y: Any, at: Any, count: Any, part: int = 0, parts: int = 1) -> list[Any]:
    """Something of each class of ops, and for each pass something to do. x: [12, 40], y: [40, 6], at: [5] rows of x.
    part, of parts: every so manieth of them."""
    number = jnp.issubdtype(x.dtype, jnp.floating)
    wide = x.dtype if number else jnp.int32

    def product() -> Any:
        return lax.dot(x, y, preferred_element_type=wide)

    def folded() -> Any:
        chain = (
            jnp.maximum(x * 3 - 1, x) if not number else jnp.tanh(x) * jnp.exp(-abs(x)) + lax.logistic(x)
        )
        return (chain.T.reshape(8, 5, 12).transpose(2, 0, 1).reshape(12, 40) + 0)[::-1]

    def behind() -> Any:
        narrow = product().astype(x.dtype)
        return product(), jax.nn.softmax(narrow) if number else narrow ^ 5

    def looped() -> Any:
        step = x.max(1, keepdims=True)
        return lax.fori_loop(0, count, lambda i, c: jnp.where(c > 2, c, c + step), x)

    made: list[Callable[[], Any]] = [
        behind,
        folded,
        lambda: lax.reduce_window(x, np.zeros((), x.dtype), lax.max, (2, 3), (1, 2), "SAME"),
        looped,
        lambda: lax.cond(count > 1, lambda: x.sum(0, dtype=x.dtype) * 2, lambda: x[0]),
        lambda: lax.pad(lax.rev(x, (1,)), np.ones((), x.dtype), ((1, 0, 1), (0, -2, 0))),
        lambda: jnp.cumsum(x, 0, dtype=x.dtype),
        lambda: jnp.sort(x, 1),
        lambda: x.at[at].add(x[:5]),
        lambda: x[at] - lax.dynamic_slice(x, (count, 0), (5, 40)),
        lambda: x.argmin(1),
        lambda: x.astype(jnp.int32).sum(),
    ]
    return jax.tree.leaves([make() for make in made[part::parts]])


ONE_TARGET = {"f16": "ascend-310", "bf16": "ascend-910b1", "i8": "ascend-910b1", "ui16": "ascend-310"}
"""Types of each kind, and a target for each."""
ALL_TYPES = [(d, t) for d in (*DTYPES[:-1], *INTEGERS) for t in ("ascend-910b1", "ascend-310")]


def keeps_values_of(dtype: str, target: str, half: int) -> None:
    """half: which of the classes, in the first tier; the second has all."""
    part, parts = (0, 1) if ALL else (half, 2)
    at, count = jnp.int32([3, 0, 7, 3, 11]), jnp.int32(2)
    args = (data(dtype, (12, 40)), data(dtype, (40, 6), 1), at, count)
    check_levels(partial(one_of_each, part=part, parts=parts), args, target, 64)


@sampled(4)
@pytest.mark.parametrize(("dtype", "target"), ONE_TARGET.items())
def test_each_pass_keeps_the_values_of_narrow_types(dtype: str, target: str) -> None:
    """In the first tier half of the classes for each: all of them for floats, and for integers."""
    keeps_values_of(dtype, target, list(ONE_TARGET).index(dtype) % 2)


@pytest.mark.parametrize(("dtype", "target"), [x for x in ALL_TYPES if x not in ONE_TARGET.items()])
@sampled(16)
def test_each_pass_keeps_the_values_of_every_type(dtype: str, target: str) -> None:
    keeps_values_of(dtype, target, number(dtype) % 2)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32"])
def test_everything_runs_on_the_npu(dtype: str) -> None:
    """All flops of a program that touches each class of op, and no host op."""
    import tilewright as tw

    def fn(x: Any, y: Any, i: Any) -> list[Any]:
        wide = lax.dot(x, y, preferred_element_type=jnp.int32 if dtype in ("i8", "i32") else None)
        pooled = lax.reduce_window(x, np.zeros((), x.dtype), lax.add, (2, 2), (1, 1), "VALID")
        looped = lax.fori_loop(0, i, lambda _, z: jnp.where(z > 1, z, z + 1), x)
        return [wide, pooled, looped, x[i], lax.dynamic_slice(y, (i, 0), (2, 3)), x.argmax(1), x.sum(0)]

    program = tw.compile(fn, data(dtype, (7, 13)), data(dtype, (13, 5)), jnp.int32(3))
    names = {op.name for op in program.module("graph").walk()} | {
        op.name for op in program.module("npu").walk()
    }
    assert not names & {"graph.host", "npu.host_call"}
    assert not any(kernel.kind == "host" for kernel in program.report().kernels)
