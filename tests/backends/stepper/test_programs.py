"""Programs run one instruction at a time: the results of typed memory, on all instructions and types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from npu_programs import MACHINE, SOFTMAX, matmul, parse, random
from step_campaign import arguments
from subjects import subject
from tiering import whole
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.backends.interpreter import Executable
from tilewright.backends.stepper import StepProgram
from tilewright.backends.stepper.errors import Race
from tilewright.backends.stepper.rules import TABLE
from tilewright.backends.stepper.streams import Streams
from tilewright.dialects.npu import FillL1Op, VUnpackOp
from tilewright.dialects.npu.interface import NpuOp
from tilewright.machine import Machine
from tilewright.verification.compare import compare

F16 = np.float16


def rand(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed + sum(shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 50, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 8, axis=-1) @ v


def conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def numbers_of(x: Any) -> Any:
    """A loop whose trips depend on data, and numbers of the host."""
    return lax.while_loop(lambda c: c[1].sum() < 100, lambda c: (c[0] + 1, c[1] * 1.5 + 1), (0, x))


CASES: dict[str, tuple[Callable[..., Any], Sequence[np.ndarray], bool]] = {
    "product": (
        lambda x, w, b: jax.nn.relu(x @ w + b),
        [rand(64, 48, dtype=F16), rand(48, 80, dtype=F16), rand(80, dtype=F16)],
        False,
    ),
    "ints": (
        lambda a, b: (a * b // 3, a % 7, a > b, a >> 2),
        [rand(6, 10, dtype=np.int32), rand(6, 10, dtype=np.int32, seed=9)],
        True,
    ),
    "integer product": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        [rand(33, 70, dtype=np.int8), rand(70, 20, dtype=np.int8)],
        True,
    ),
    "softmax": (jax.nn.softmax, [rand(32, 100)], True),
    "attention": (
        attention,
        [rand(2, 64, 32, dtype=F16), rand(2, 64, 32, dtype=F16), rand(2, 64, 32, dtype=F16)],
        False,
    ),
    "norm": (
        lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5),
        [rand(40, 97)],
        True,
    ),
    "bf16": (
        lambda x, y: jnp.tanh(x) * y - x / (jnp.abs(y) + 1),
        [rand(7, 33, dtype=ml_dtypes.bfloat16), rand(7, 33, dtype=ml_dtypes.bfloat16)],
        True,
    ),
    "layouts": (
        lambda x: (x.T, x[::-1], jnp.pad(x, ((1, 2), (0, 3)), constant_values=7), x[1:9:2, ::-1]),
        [rand(12, 20)],
        True,
    ),
    "tables": (
        lambda t, i: (t[i], t.at[i].add(1.0), jnp.take(t, i, axis=1)),
        [rand(30, 16), np.array([3, 5, 29, 0, 5], np.int32)],
        True,
    ),
    "orders": (
        lambda x: (jnp.sort(x, -1), lax.top_k(x, 3), jnp.argmax(x, -1), jnp.cumsum(x, 1)),
        [rand(8, 33)],
        True,
    ),
    "convolution": (conv, [rand(1, 8, 8, 16, dtype=F16), rand(3, 3, 16, 16, dtype=F16)], False),
    "pooling": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        [rand(1, 8, 8, 16)],
        True,
    ),
    "loop": (lambda x: lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y) * 1.5 + i, x), [rand(16, 40)], True),
    "numbers": (numbers_of, [np.abs(rand(16))], True),
    "branch": (
        lambda n, x: lax.switch(n, [jnp.exp, jnp.sin, lambda y: y * 2], x),
        [np.int32(1), rand(9, 9)],
        True,
    ),
    "host": (lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(6)), [rand(6, 6)], False),
    "masks": (lambda x: jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -1), [rand(30, 30)], True),
    "bits": (
        lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) ^ 5, jnp.float32),
        [rand(5, 70)],
        True,
    ),
    "empty": (lambda x, w: (x @ w, x.sum(1), jnp.exp(x)), [rand(3, 0), rand(0, 4)], True),
    "complex": (lambda x: jnp.fft.fft(x * (1 + 2j)).real, [rand(2, 8)], False),
}
"""Functions, arguments, and whether the results are those of typed memory bit for bit: products are not."""

SEEN: set[type] = set()
"""The classes of instructions that the programs have."""


def both(
    fn: Callable[..., Any], args: Sequence[Any], target: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results step by step and in typed memory."""
    program = tw.compile(fn, *args, target=target)
    SEEN.update(type(op) for op in program.module().walk() if isinstance(op, NpuOp))
    flat = program.flatten(args)
    return tuple([np.asarray(x) for x in program.executable(mode)(*flat)] for mode in ("step", "typed"))  # pyright: ignore


def agree(got: Sequence[np.ndarray], want: Sequence[np.ndarray], exact: bool) -> None:
    for x, y in zip(got, want, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        if exact:
            assert compare(x, y, bits=True).ratio == 0
        else:
            rtol = 2e-3 if y.dtype == F16 else 1e-5
            np.testing.assert_allclose(x.astype(complex), y.astype(complex), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    fn, args, exact = CASES[name]
    agree(*both(fn, args, "ascend-910b1"), exact)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("product", "ascend-310"),
        ("attention", "ascend-950pr"),
        ("norm", "ascend-910b4"),
        ("convolution", "ascend-310"),
    ],
)
def test_values_on_other_chips(name: str, target: str) -> None:
    fn, args, exact = CASES[name]
    agree(*both(fn, args, target), exact)


SUBJECTS = [
    ("columns 0", "ascend-910b1"),
    ("handed 0", "ascend-910b1"),
    ("quantized 1", "ascend-310"),
    ("narrow 0", "ascend-950pr"),
    ("sparse 0", "ascend-910b1"),
    ("rows 0", "ascend-910b1"),
    ("grouped 0", "ascend-910b1"),
    ("made 0", "ascend-910b1"),
]
"""Programs of the fault campaigns that have what few others have."""


WINDOWS = [rand(1, 6, 6, 16, dtype=F16), rand(3, 3, 16, 16, dtype=F16)]


def windows(x: jax.Array, w: jax.Array) -> jax.Array:
    """A padded convolution, whose windows are loaded one place at a time where the vendor's IR is asked for."""
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def test_padding_of_windows_is_filled_in_l1() -> None:
    program = tw.compile(windows, *WINDOWS, options=tw.Options(hivm=True))
    assert any(isinstance(op, FillL1Op) for op in program.module().walk())
    found, want = program(*WINDOWS, mode="step"), windows(*map(jnp.asarray, WINDOWS))
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=2e-2, atol=2e-2)


@whole()
@pytest.mark.parametrize(("source", "target"), SUBJECTS)
def test_values_of_rare_instructions(source: str, target: str) -> None:
    made = subject(source, target)
    SEEN.update(type(op) for op in made.module.walk() if isinstance(op, NpuOp))
    machine, args = Machine.load(target), arguments(made.module, 0)
    got = StepProgram(made.module, machine).session(args).run()
    want = [np.asarray(x) for x in Executable(made.module, machine, "typed")(*args)]
    for x, y in zip(got, want, strict=True):
        if compare(x, y, bits=True).ratio:
            wide = y.astype(np.float64)
            assert np.abs(x.astype(np.float64) - wide).max() <= 1e-4 * np.abs(wide).max()


def test_the_table_of_instructions_is_met() -> None:
    """The programs above have every instruction that there is a rule for, but for pairs: see test_numbers.py."""
    for name in ("product", "attention", "tables", "orders"):
        fn, args, _ = CASES[name]
        SEEN.update(type(op) for op in tw.compile(fn, *args).module().walk() if isinstance(op, NpuOp))
    modules = [subject(*SUBJECTS[i]).module for i in (0, 1, 2, 5)]
    fn, args, _ = CASES["product"]
    modules.append(tw.compile(fn, *args, target="ascend-310").module())
    texts = Path(__file__).resolve().parents[2] / "frontends" / "hivm" / "texts"
    modules.append(tw.compile(texts / "shifted_row.hivm.mlir").module())
    modules.append(tw.compile(windows, *WINDOWS, options=tw.Options(hivm=True)).module())
    SEEN.update(type(op) for module in modules for op in module.walk() if isinstance(op, NpuOp))
    assert {cls for cls in TABLE if any(issubclass(seen, cls) for seen in SEEN)} == TABLE.keys() - {VUnpackOp}


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (100, 70, 45), (33, 1, 7)])
def test_a_kernel_by_hand(m: int, n: int, k: int) -> None:
    """It has no flags, so it is only run where races are none."""
    x, w = random(m, k), random(k, n)
    (got,) = StepProgram(parse(matmul(m, n, k)), MACHINE, races=False)(x, w)
    np.testing.assert_allclose(np.asarray(got), x @ w, rtol=1e-5, atol=1e-5)


def test_an_overlap_changes_numbers() -> None:
    """Buffers are at their addresses. What one of two that share bytes holds is lost when the other is written."""
    x, text = random(50, 37), SOFTMAX.replace("OVERLAP", "1536")
    (got,) = StepProgram(parse(text), MACHINE, races=False)(x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.nn.softmax(x, axis=-1)), atol=1e-3)


def test_open_sizes_are_numbers() -> None:
    """One module for many sizes, and a plan of its kernels for each."""
    b = jax.export.symbolic_shape("b")[0]
    program = tw.compile(lambda x: jax.nn.softmax(x * 2, -1), jax.ShapeDtypeStruct((b, 40), np.float32))
    for n in (1, 3, 40, 77):
        x = rand(n, 40)
        np.testing.assert_array_equal(np.asarray(program(x, mode="step")), np.asarray(program(x)))


def test_numbers_along_a_dimension_may_be_an_open_size_apart() -> None:
    (n,) = jax.export.symbolic_shape("n")
    program = tw.compile(lambda x: jnp.arange(x.shape[0]) * x.shape[0], jax.ShapeDtypeStruct((n,), np.float32))
    for size in (1, 5, 7):
        x = np.zeros(size, np.float32)
        np.testing.assert_array_equal(np.asarray(program(x, mode="step")), np.arange(size) * size)


def test_a_second_call_begins_anew() -> None:
    program = tw.compile(lambda x: jnp.exp(x) + 1, rand(4, 5))
    first, second = program(rand(4, 5), mode="step"), program(rand(4, 5, seed=3), mode="step")
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.asarray(program(rand(4, 5), mode="step")), np.asarray(first))


def test_arguments_are_checked() -> None:
    stepper = tw.compile(lambda x: x + 1, rand(4, 5)).executable("step")
    with pytest.raises(TypeError, match="takes 1 arrays, got 2"):
        stepper(rand(4, 5), rand(4, 5))
    with pytest.raises(TypeError, match=r"argument 0 of @main is .*, got float32\[5, 4\]"):
        stepper(rand(5, 4))


def test_sums_over_an_open_length_are_those_of_compiled_code() -> None:
    """In the same order, whatever the length: bit for bit, extreme values and their places, too."""
    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 1", "n <= 2048"])

    def fn(x: jax.Array) -> tuple[jax.Array, ...]:
        return x.mean(0), x.max(0), x.argmin(0)

    program = tw.compile(fn, jax.ShapeDtypeStruct((n, 4), np.float32))
    for length in (1, 50, 64):
        x = np.random.default_rng(length).standard_normal((length, 4)).astype(np.float32)
        for typed, stepped in zip(program(x, mode="typed"), program(x, mode="step"), strict=True):
            assert np.asarray(typed).tobytes() == np.asarray(stepped).tobytes()


def test_what_has_no_bytes_waits_for_nobody() -> None:
    """An empty tensor that comes from the host lies, at this place, within one that a kernel writes."""
    streams = Streams()
    launch, copy = ModuleOp([]), ModuleOp([])
    streams.command(launch, "compute", (), [(2048, 2608)])
    streams.command(copy, "copy_in", (), [(2560, 2560)])
    with pytest.raises(Race, match=r"writes on copy_in what 'builtin\.module' on compute may still write"):
        streams.command(copy, "copy_in", (), [(2607, 2608)])
