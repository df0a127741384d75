"""Rows and columns that instructions repeat themselves: values stay, larger tiles fit, and the vendor's IR says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.hivm import check_module, export_module
from tilewright.backends.hivm.tools import VendorTools
from tilewright.dialects.base import text
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.npu import ElementwiseVectorOp, VBroadcastOp, buffer
from tilewright.machine import Machine
from tilewright.passes.lower.vector import VectorKernel
from tilewright.passes.npu import allocate, repeated
from tilewright.passes.npu.check import check


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has instructions repeat all that they can, whatever it costs."""
    made = repeated.repeat_in_place
    monkeypatch.setattr(allocate, "repeat_in_place", lambda section, machine, every=True: made(section, machine, True))


def layernorm(x: Any, g: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g + b


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, -1)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str]] = {
    "layernorm": (layernorm, [(40, 72), (72,), (72,)], "float32"),
    "layernorm in f16": (layernorm, [(33, 131), (131,), (131,)], "float16"),
    "softmax": (softmax, [(37, 129)], "float32"),
    "rows and columns": (lambda x, r, c: jnp.maximum(x * r, c) - r, [(17, 40), (1, 40), (17, 1)], "float32"),
    "integers": (lambda x, r, c: (x + r) * c, [(17, 40), (1, 40), (17, 1)], "int32"),
    "bytes": (lambda x, r, c: jnp.minimum(x, r) & c, [(17, 40), (1, 40), (17, 1)], "int8"),
    "three dimensions": (lambda x, c: x / (1 + c * c), [(3, 5, 24), (3, 5, 1)], "float32"),
    "a choice": (lambda x, c: jnp.where(x > c, x, c), [(9, 40), (9, 1)], "float32"),
    "one row": (softmax, [(1, 300)], "float32"),
    "long rows": (lambda x: jax.nn.log_softmax(x, -1), [(2, 20011)], "float32"),
}


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * 3).astype(dtype)


def repeating(program: tw.Program) -> list[ElementwiseVectorOp]:
    """The instructions that repeat a row or a column."""
    ops = [op for op in program.module().walk() if isinstance(op, ElementwiseVectorOp)]
    return [op for op in ops if op.row() is not None or op.column() is not None]


@pytest.mark.parametrize("memory", ["typed", "bytes", "step"])
@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str, memory: Any, every: None) -> None:
    fn, shapes, dtype = CASES[name]
    args = [numbers(dtype, shape, i) for i, shape in enumerate(shapes)]
    program = tw.compile(fn, *args, options=tw.Options(memory=memory))
    assert check(program.module("npu"), Machine.load("ascend-910b1")) == []
    want = np.asarray(fn(*map(jnp.asarray, args)), np.float64)
    off = 1e-5 if dtype == "float32" else 4e-3 if dtype == "float16" else 0
    np.testing.assert_allclose(np.asarray(program(*args), np.float64), want, rtol=off, atol=4 * off)


@pytest.mark.parametrize("target", ["ascend-310", "ascend-910b4", "ascend-950pr"])
def test_chips(target: str, every: None) -> None:
    fn, shapes, dtype = CASES["softmax"]
    args = [numbers(dtype, shape, i) for i, shape in enumerate(shapes)]
    program = tw.compile(fn, *args, target=target)
    assert repeating(program)
    np.testing.assert_allclose(np.asarray(program(*args)), np.asarray(fn(*args)), rtol=1e-5, atol=1e-6)


def test_no_tile_is_left(every: None) -> None:
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((256, 1024), (1024,), (1024,))]
    pins = tw.Schedule(tile=(4, 1024), grid=(16, 1))
    program = tw.compile(layernorm, *args, options=tw.Options(schedule=pins))
    assert not any(isinstance(op, VBroadcastOp) for op in program.module().walk())
    assert len(repeating(program)) == 4


def tiles(program: tw.Program) -> list[tuple[int, ...]]:
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    return [tuple(map(int, re.findall(r"\d+", re.search(r"tile = \[([\d, ]*)\]", str(op))[1]))) for op in fusions]  # type: ignore[index]


def test_whole_rows_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were read in pieces, in several walks, are loaded once, and a kernel takes less time for that."""
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((96, 4096), (4096,), (4096,))]
    whole = tw.compile(layernorm, *args)
    assert [tile[-1] for tile in tiles(whole)] == [4096]
    monkeypatch.setattr(VectorKernel, "_built_tiles", lambda self, name, cores: [])
    pieces = tw.compile(layernorm, *args)
    assert all(tile[-1] < 4096 for tile in tiles(pieces))
    assert whole.simulation().microseconds < pieces.simulation().microseconds


@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_whole_rows_have_their_values(memory: Any) -> None:
    args = [numbers("float32", s, i) for i, s in enumerate(((5, 4099), (4099,), (4099,)))]
    program = tw.compile(layernorm, *args, options=tw.Options(memory=memory))
    assert check(program.module("npu"), Machine.load("ascend-910b1")) == []
    np.testing.assert_allclose(np.asarray(program(*args)), np.asarray(layernorm(*args)), rtol=1e-4, atol=1e-4)


def test_tile_that_does_not_fit_is_refused() -> None:
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((96, 4096), (4096,), (4096,))]
    with pytest.raises(tw.CompileError, match=r"takes .* bytes of ub"):
        tw.compile(layernorm, *args, options=tw.Options(schedule=tw.Schedule(tile=(12, 4096), ub=2)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_vendor_repeats_them(dtype: str, every: None) -> None:
    """Rows and columns are `broadcast = [0]` and `[1]`, columns with the scratch that the vendor's library asks for."""
    shapes = [(17, 40), (1, 40), (17, 1)]
    args = [jax.ShapeDtypeStruct(s, dtype) for s in shapes]
    program = tw.compile(lambda x, r, c: (x + r) * c, *args, options=tw.Options(hivm=True))
    export = export_module(program.module())
    assert not export.refused and len(repeating(program)) == 2
    (kernel,) = export.kernels.values()
    assert "broadcast = [0]" in kernel.text
    width = np.dtype(dtype).itemsize
    name = {"float32": "f32", "float16": "f16", "int32": "i32"}[dtype]
    assert re.search(rf"vmul .*temp_buffer\(%\S+ : memref<{256 // width}x{name}, .*broadcast = \[1\]", kernel.text)


def test_vendor_takes_them(every: None) -> None:
    pytest.importorskip("ascendnpuir")
    args = [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 128), (128,), (128,))]
    program = tw.compile(layernorm, *args, options=tw.Options(hivm=True))
    export = export_module(program.module())
    assert not export.refused
    for found in check_module(program.module(), export, VendorTools.find()):
        assert found.ok, found.problem
    assert any(buffer(op.sources()[1]).shape[-1] == 1 for op in repeating(program) if op.column() is not None)
    assert all(text(op.kind) for op in program.module("graph").walk() if isinstance(op, FusionOp))
