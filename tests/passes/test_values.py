"""The IR before and after each pass gives the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import assert_close, data, tolerance
from hypothesis import given, note
from jax import lax
from programs import programs
from tiers import examples
from xdsl.context import Context

from tilewright import Machine
from tilewright.backends.interpreter import Executable, run_graph, run_tile
from tilewright.frontends import lower_function
from tilewright.passes.pipeline import PIPELINE, make_pass


def levels(fn: Callable[..., Any], args: tuple[jax.Array, ...], target: str) -> dict[str, list[Any]]:
    """The results after the frontend and after each pass, by the level the module is then on."""
    machine = Machine.load(target)
    module = lower_function(fn, args).module
    found = {"frontend": run_graph(module, *args)}
    for stage in PIPELINE:
        make_pass(stage, target).apply(Context(), module)
        module.verify()
        if stage.level == "graph":
            found[stage.name] = run_graph(module, *args)
        elif stage.level == "tile":
            found[stage.name] = run_tile(module, machine, *args)
        else:
            found[stage.name] = Executable(module, machine, "typed")(*args)
    return found


def check_levels(fn: Callable[..., Any], args: tuple[jax.Array, ...], target: str, length: int) -> None:
    found = levels(fn, args, target)
    want = jax.tree.leaves(jax.jit(fn)(*args))
    allowed = tolerance([x.dtype for x in (*args, *want)], length)
    for name, got in found.items():
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, allowed, name)
    for name in ("npu-allocate", "npu-synchronize", "npu-plan-memory"):
        for a, b in zip(found[name], found["tile-to-npu"], strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_keeps_the_values(name: str) -> None:
    fn, shapes, target = PROGRAMS[name]
    check_levels(fn, tuple(data("f32", s, i) for i, s in enumerate(shapes)), target, 4096)


@examples(5)
@given(programs())
def test_each_pass_keeps_the_values_of_random_programs(program: Any) -> None:
    note(str(program))
    check_levels(program, tuple(program.arguments("f32")), "ascend-910b1", program.length)


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
