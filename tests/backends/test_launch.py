"""Heavy kernels, whose cores run in two groups."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from npu_programs import MACHINE, matmul, parse, random, run
from tiering import sampled

import tilewright as tw
from tilewright.backends.interpreter import Executable, launch
from tilewright.dialects.npu.structure import KernelOp

jax.config.update("jax_platforms", "cpu")


def dense(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.gelu(x @ w + b)


def parts_of_a_sum(x: Any, w: Any) -> Any:
    return x @ w


def image(x: Any, w: Any) -> Any:
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))


CASES: dict[str, tuple[Callable[..., Any], str, list[tuple[int, ...]]]] = {
    "epilogue": (dense, "float32", [(128, 768), (768, 3000), (3000,)]),
    "f16": (dense, "float16", [(128, 768), (768, 3072), (3072,)]),
    "bf16": (dense, "bfloat16", [(97, 768), (768, 3031), (3031,)]),
    "deep": (parts_of_a_sum, "float32", [(128, 6144), (6144, 768)]),
    "conv": (image, "float32", [(1, 56, 56, 64), (3, 3, 64, 128)]),
}


@sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_groups_of_cores_use_their_memory_again(name: str) -> None:
    """What a run leaves behind is in no later result, and no later run changes a result; runs may overlap."""
    fn, dtype, shapes = CASES[name]
    numbers = np.random.default_rng(0)

    def draw() -> list[Any]:
        return [jnp.asarray(numbers.standard_normal(s) / 8, dtype) for s in shapes]

    pins = tw.Schedule(split_m=4) if name == "conv" else None
    program = tw.compile(fn, *draw(), options=tw.Options(schedule=pins))
    typed, in_bytes = program.executable("typed"), program.executable("bytes")
    inputs = [draw() for _ in range(4)]
    want = [np.asarray(in_bytes(*args)[0]) for args in inputs]
    found = [typed(*args)[0] for args in inputs]
    assert any(getattr(one.code, "split", None) is not None for (one,) in typed.compiled.values())
    with ThreadPoolExecutor(4) as pool:
        found += list(pool.map(lambda args: typed(*args)[0], inputs * 4))
    for x, y in zip(found, want * 5, strict=True):
        np.testing.assert_array_equal(np.asarray(x), y)


def test_results_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = random(100, 45), random(45, 70)
    (one,) = run(matmul(100, 70, 45), x, w)
    splits = split_wherever_possible(monkeypatch)
    (two,) = run(matmul(100, 70, 45), x, w)
    assert any(splits)
    np.testing.assert_array_equal(one, two)


def split_wherever_possible(monkeypatch: pytest.MonkeyPatch) -> list[launch.Split | None]:
    """Gives every kernel to two groups of cores that can be. How each was split, as it happens."""
    splits: list[launch.Split | None] = []
    find_split = launch.find_split

    def find(*args: Any) -> launch.Split | None:
        splits.append(find_split(*args))
        return splits[-1]

    for name in ("HEAVY_FLOPS", "SPLIT_FLOPS", "JOIN_FLOPS"):
        monkeypatch.setattr(launch, name, 0)
    monkeypatch.setattr(launch, "find_split", find)
    monkeypatch.setattr(launch, "batched_axes", lambda kernel, batches: set())
    return splits


def convolve(strides: tuple[int, int], x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=layout) + b)


@sampled(2)
@pytest.mark.parametrize(
    ("x", "w", "strides"),
    [
        ((1, 14, 14, 32), (3, 3, 32, 48), (1, 1)),  # rows of the image to each core
        ((1, 7, 7, 64), (3, 3, 64, 160), (1, 1)),  # columns
        ((1, 7, 7, 64), (1, 1, 64, 200), (1, 1)),  # stored as a matrix, cores with less to do
        ((2, 32, 24, 16), (3, 3, 16, 96), (2, 1)),
    ],
)
def test_convolutions_do_not_depend_on_threads(
    monkeypatch: pytest.MonkeyPatch, x: tuple[int, ...], w: tuple[int, ...], strides: tuple[int, int]
) -> None:
    arrays = random(*x), random(*w), random(w[-1])
    program = tw.compile(functools.partial(convolve, strides), *arrays)
    whole, addressed = (np.asarray(program.executable(m)(*arrays)[0]) for m in ("typed", "bytes"))
    splits = split_wherever_possible(monkeypatch)
    parts = np.asarray(Executable(program.module("npu"), MACHINE, "typed")(*arrays)[0])
    assert any(splits)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(addressed, whole)


@pytest.mark.parametrize(("out", "splits"), [("6x8", True), ("1x6x8", True), ("48", False)])
def test_an_output_is_split_only_where_each_view_of_it_has_the_dimension(out: str, splits: bool) -> None:
    (kernel,) = parse(f"""
npu.kernel @copy {{kind="vector", grid=[2], outputs=1, workspaces=0}} {{
^bb0(%g: index, %x: !npu.gm<6x8xf32>, %o: !npu.gm<{out}xf32>):
  %v = npu.view %o : (!npu.gm<{out}xf32>) -> !npu.gm<6x8xf32>
  npu.section {{core="vector", units=1}} {{
  ^bb1(%u: index):
    %t = npu.alloc {{address=0}} : () -> !npu.buffer<3x8xf32, ub>
    npu.load_nd %x, %t at [%g * 3, 0] {{sizes=[3,8]}} : (!npu.gm<6x8xf32>, !npu.buffer<3x8xf32, ub>)
    npu.store_nd %t, %v at [%g * 3, 0] {{sizes=[3,8]}} : (!npu.buffer<3x8xf32, ub>, !npu.gm<6x8xf32>)
  }}
}}""").ops
    assert isinstance(kernel, KernelOp)
    f32 = np.dtype(np.float32)
    tensors = launch.BoundTensor((6, 8), f32, False, False), launch.BoundTensor((6, 8), f32, True, True)
    signature = launch.LaunchBinding((0, 1), tensors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "batched_axes", lambda kernel, batches: set())
        split = launch.find_split(kernel, signature, {})
    assert (split is not None) == splits
    x = random(6, 8)

    def run_part(start: jax.Array) -> jax.Array:
        return launch.trace_kernel(
            kernel, signature, jax.numpy.float32(0), [jax.numpy.asarray(x)], None, split, start
        )[0]

    parts = [np.asarray(jax.jit(run_part)(np.int32(i))) for i in ((0, 1) if splits else (0,))]
    np.testing.assert_array_equal(np.concatenate(parts), x)
