"""Matrices in memories of the cube take whole fractals, which its instructions fill, on every chip that has them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.dialects.base import integer
from tilewright.dialects.dtypes import itemsize
from tilewright.dialects.npu import AllocOp, MmadOp, NpuOp, buffer, whole_buffer
from tilewright.machine import Machine
from tilewright.passes.npu.check import check

CUBE = ("l1", "l0a", "l0b", "l0c")


def matrices(program: tw.Program) -> list[AllocOp]:
    """The buffers of matrices, of which no two that live at once may share a byte. Each has room for 16 rows of whole
    blocks of 32 bytes, what is summed over in l0b for as many bytes, sums for 16 by 16."""
    found = []
    for op in program.module().walk():
        if not isinstance(op, NpuOp):
            continue
        for value, dims in op.matrices():
            kind, alloc = buffer(value), whole_buffer(value).owner
            assert isinstance(alloc, AllocOp)
            split, width = len(kind.shape) - dims, itemsize(kind.element)
            rows, columns = np.prod(kind.shape[:split], dtype=int), np.prod(kind.shape[split:], dtype=int)
            side, block = 16, 16 if kind.space == "l0c" else 32 // width
            if kind.space == "l0b":
                side, block = block, side
            assert kind.slot_bytes >= -(-rows // side) * side * -(-columns // block) * block * width
            found.append(alloc)
    return list(dict.fromkeys(found))


def apart(allocs: list[AllocOp]) -> None:
    """No matrix begins before the one below it in its memory ends."""
    held: dict[Any, list[tuple[int, int]]] = {}
    for alloc in allocs:
        kind = buffer(alloc.result)
        assert alloc.address is not None
        start = integer(alloc.address)
        held.setdefault((alloc.parent, kind.space), []).append((start, start + kind.slot_bytes * kind.slots))
    for spans in held.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Small whole numbers, whose products every type has."""
    return np.asarray(jnp.asarray(np.arange(np.prod(shape)).reshape(shape) % 5 - 2, dtype))


def product(dtype: str) -> Callable[..., Any]:
    total = jnp.int32 if dtype == "int8" else jnp.float32
    return lambda a, b: jnp.matmul(a, b, preferred_element_type=total)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (15, 16, 17), (17, 37, 15), (16, 131, 5), (1, 33, 40)])
@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("ascend-910b1", "float16"),
        ("ascend-910b4", "float32"),
        ("ascend-910b1", "int8"),
        ("ascend-310", "float16"),
        ("ascend-310", "int8"),
        ("ascend-950pr", "bfloat16"),
    ],
)
def test_products(target: str, dtype: str, m: int, k: int, n: int) -> None:
    a, b = numbers(dtype, m, k), numbers(dtype, k, n)
    program = tw.compile(product(dtype), a, b, target=target, options=tw.Options(memory="step"))
    found = matrices(program)
    apart(found)
    assert found or not any(isinstance(op, MmadOp) for op in program.module().walk())
    assert check(program.module("npu"), Machine.load(target)) == []
    assert np.array_equal(np.asarray(program(a, b), "f4"), a.astype("f4") @ b.astype("f4"))


def convolution(x: Any, w: Any, b: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=dims) + b)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32)
    return jax.nn.softmax(scores, axis=-1).astype(q.dtype) @ v


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str]] = {
    "a convolution": (convolution, [(1, 7, 7, 17), (3, 3, 17, 19), (19,)], "float16"),
    "a convolution in f32": (convolution, [(1, 5, 5, 3), (3, 3, 3, 17), (17,)], "float32"),
    "attention": (attention, [(1, 17, 16)] * 3, "float16"),
    "parts of sums": (product("float16"), [(17, 4000), (4000, 31)], "float16"),
    "a row by a matrix": (product("float16"), [(1, 515), (515, 33)], "float16"),
}


@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str, memory: Any) -> None:
    fn, shapes, dtype = CASES[name]
    args = [numbers(dtype, *shape) for shape in shapes]
    program = tw.compile(fn, *args, options=tw.Options(memory=memory))
    apart(matrices(program))
    np.testing.assert_allclose(
        np.asarray(program(*args), "f4"), np.asarray(fn(*args), "f4"), rtol=4e-3, atol=4e-3
    )


def test_systolic_array_has_rows() -> None:
    """A cube that takes a row at a time fills no more than the rows that there are."""
    a, b = numbers("int8", 5, 40), numbers("int8", 40, 7)
    program = tw.compile(product("int8"), a, b, target="systolic-tpu1")
    found = [buffer(op.result) for op in program.module().walk() if isinstance(op, AllocOp)]
    assert all(kind.fractals is None for kind in found if kind.space in CUBE)
    assert Machine.load("systolic-tpu1").fractal("i8") is None


def test_chips_say_what_their_fractals_are() -> None:
    """16 rows of 32 bytes, where the cube takes the type."""
    for target in ("ascend-910b1", "ascend-310", "ascend-910a", "ascend-950pr"):
        machine = Machine.load(target)
        assert machine.fractal("f16") == (16, 16, 16)
        assert machine.fractal("i8") == (16, 32, 16)
        assert machine.fractal("i16") is None
