"""Sums that leave the cube scaled: where the fixpipe can do what stands behind a product, no vector core does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.machine import Machine

RNG = np.random.default_rng(0)


def product(m: int, k: int, n: int, made: str) -> str:
    """A product of quantized matrices, by 0.5 and 0.25, as graph-level text."""
    kinds = [
        f"tensor<{m}x{k}x!graph.quantized<i8:f32, 0.5>>",
        f"tensor<{k}x{n}x!graph.quantized<i8:f32, 0.25>>",
        f"tensor<{m}x{n}x{made}>",
    ]
    dims = "{lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]}"
    return (
        f"func.func @main(%a: {kinds[0]}, %w: {kinds[1]}) -> {kinds[2]} {{\n"
        f"  %r = graph.contract %a, %w {dims} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}\n"
        f"  func.return %r : {kinds[2]}\n}}\n"
    )


def compiled(text: str, folder: Path, target: str = "ascend-910b1") -> tw.Program:
    path = folder / "product.mlir"
    path.write_text(text)
    return tw.compile(path, target=target)


def drains(program: tw.Program) -> list[dict[str, str]]:
    """The properties of the drains of a program that scale."""
    walked = program.module("npu").walk()
    found = [op.properties for op in walked if op.name == "npu.fixpipe"]
    return [{k: str(v) for k, v in p.items()} for p in found if "factor" in p]


@pytest.mark.parametrize(("scale", "zero"), [(64.0, 0), (64.0, -5), (1.0, 127), (0.015625, -128)])
@pytest.mark.parametrize("storage", ["i8", "ui8"])
def test_integers_are_stored_by_the_fixpipe(storage: str, scale: float, zero: int, tmp_path: Path) -> None:
    low, high = (0, 255) if storage == "ui8" else (-128, 127)
    zero = zero + 128 if storage == "ui8" else zero
    program = compiled(product(37, 65, 50, f"!graph.quantized<{storage}:f32, {scale}:{zero}>"), tmp_path)
    assert len(drains(program)) == 1 and [k.kind for k in program.report().kernels] == ["cube"]
    a, w = (RNG.integers(-128, 128, s, np.int8) for s in [(37, 65), (65, 50)])
    sums = (a.astype(np.int32) @ w.astype(np.int32)).astype(np.float32)
    want = np.clip(np.rint(sums * np.float32(0.125 / scale)) + zero, low, high)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(a, w)[0]).astype(int), want)


@pytest.mark.parametrize(
    ("made", "target"),
    [
        ("!graph.quantized<i8:f32, 0.3>", "ascend-910b1"),  # the factor has more bits
        ("!graph.quantized<i8<-127:127>:f32, 1.0>", "ascend-910b1"),  # saturates elsewhere
        ("!graph.quantized<i16:f32, 1.0>", "ascend-910b1"),
        ("!graph.quantized<i8:f32:1, {1.0, 2.0, 1.0, 1.0}>", "ascend-910b1"),
        ("f32", "ascend-910b1"),
        ("!graph.quantized<i8:f32, 1.0>", "ascend-310"),  # has no fixpipe
    ],
)
def test_others_are_scaled_on_the_vector_cores(made: str, target: str, tmp_path: Path) -> None:
    assert not drains(compiled(product(8, 16, 4, made), tmp_path, target))


def test_numbers_of_16_bits_leave_as_such() -> None:
    def layer(a: np.ndarray, w: np.ndarray) -> np.ndarray:
        return ((a.astype("f4") * 0.5) @ (w.astype("f4") * 0.0625)).astype("f2")

    args = [RNG.integers(-128, 128, s, np.int8) for s in [(20, 33), (33, 17)]]
    program = tw.compile(layer, *args)
    assert len(drains(program)) == 1
    sums = args[0].astype(np.int32) @ args[1].astype(np.int32)
    want = (sums.astype(np.float32) / 32).astype(np.float16)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(*args)[0]), want)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_factors_have_ten_bits(factor: float) -> None:
    machine = Machine.load("ascend-910b1")
    bits = int(np.float32(factor).view(np.uint32))
    cut = float(np.uint32(bits & ~0x1FFF).view(np.float32))
    assert (machine.scales_drains("i32", "i8", factor, 0) is None) == (cut == factor != 0)


def test_what_the_machine_lacks_is_said() -> None:
    machine = Machine.load("ascend-910b1")
    assert machine.scales_drains("i32", "i8", 0.5, 256) == "adds 256, which does not fit 9 bits"
    assert machine.scales_drains("i32", "bf16", 0.5, 0) is not None
    assert "no path" in str(Machine.load("ascend-310").scales_drains("i32", "i8", 0.5, 0))
