"""Operands of products in other layouts, transposed or padded: the values stay what they are, and what gets one is what
pays."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import layouts
import numpy as np
import pytest
from layouts import prefer
from tiering import sampled

import tilewright as tw
from tilewright.dialects.base import text
from tilewright.dialects.graph import FusionOp, WidenOp
from tilewright.passes.reasons import reasons_asked

LARGE = 8192


def shape(*sizes: int, dtype: str = "float16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has everything transposed and padded that can be."""
    prefer(monkeypatch, lambda layout: 10 + 5 * (layout.row > 0))


def matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.matmul(x, w)


def of_both(x: jax.Array, w: jax.Array) -> jax.Array:
    """Both operands are the wrong way round."""
    return jnp.einsum("km,kn->mn", x, w)


def batched_first(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("bmk,kbn->bmn", x, w)


def two_sums(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("mkj,jkn->mn", x, w)


def reshaped(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w.reshape(w.shape[0], -1)


def with_users(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The matrix is read by two products and by another kernel."""
    return jax.nn.relu(x @ w), jnp.tanh(w) * (x @ (w * 2)).sum()


def after_kernel(x: jax.Array, w: jax.Array) -> jax.Array:
    """A kernel computes the right side."""
    return x @ jnp.tanh(w.astype(jnp.float32)).astype(w.dtype)


def after_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """A product computes the right side of another one."""
    return x @ (x.T @ w)


def in_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w), x)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], int]] = {
    "primes": (matmul, (37, 53), (53, 29), 1),
    "one column": (matmul, (37, 53), (53, 1), 0),
    "one row": (matmul, (1, 53), (53, 31), 1),
    "one term": (matmul, (37, 1), (1, 29), 0),
    "batched": (matmul, (3, 17, 40), (3, 40, 23), 1),
    "both": (of_both, (47, 19), (47, 33), 2),
    "a batch in the middle": (batched_first, (3, 17, 20), (20, 3, 23), 1),
    "two sums": (two_sums, (11, 6, 16), (16, 6, 23), 1),
    "reshaped": (reshaped, (19, 24), (24, 5, 7), 1),
    "several users": (with_users, (17, 48), (48, 24), 1),
    "computed": (after_kernel, (17, 48), (48, 24), 0),
    "of a product": (after_product, (17, 40), (17, 24), 2),
    "in a loop": (in_loop, (17, 32), (32, 32), 1),
}


def both_stored(x: jax.Array, w: jax.Array) -> jax.Array:
    """Kernels compute both sides: one a product, with a relu, the other one vector cores."""
    return jax.nn.relu(x @ w) @ jnp.exp(w.T)


def over_rows(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What a product gives is read by another one and by a kernel that sums up rows."""
    y = x @ w
    return y @ w.T, (y * 2).sum(1)


def of_three(x: jax.Array, w: jax.Array) -> jax.Array:
    """Each side is read where rows are matrices, too."""
    return jnp.einsum("bmk,kn->bmn", x, jnp.tanh(w))


def in_a_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w) @ (w * 2), x)


def over_others(x: jax.Array, w: jax.Array) -> jax.Array:
    """What lies in longer rows lies where something else did, which filled them."""
    for _ in range(3):
        full = jnp.exp(jnp.tanh(x @ w) @ jnp.ones((w.shape[1], 512), w.dtype) * 0.01)
        x = jnp.tanh(full @ jnp.ones((512, w.shape[0]), w.dtype) * 0.001)
    return x @ w


WIDE: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], str, int]] = {
    "given": (matmul, (37, 300), (300, 29), "float16", 0),
    "both given": (matmul, (3, 257), (257, 513), "float16", 0),
    "in f32": (matmul, (37, 131), (131, 29), "float32", 0),
    "in bf16": (matmul, (1, 1000), (1000, 31), "bfloat16", 0),
    "batched": (matmul, (3, 17, 300), (3, 300, 23), "float16", 0),
    "both": (of_both, (47, 300), (47, 270), "float16", 0),
    "computed": (after_kernel, (17, 300), (300, 271), "float16", 1),
    "of a product": (after_product, (17, 300), (17, 264), "float16", 1),
    "both computed": (both_stored, (19, 300), (300, 300), "float16", 2),
    "read by rows": (over_rows, (19, 300), (300, 301), "float16", 1),
    "of three dimensions": (of_three, (2, 19, 300), (300, 300), "float16", 1),
    "in a loop": (in_a_loop, (17, 300), (300, 300), "float16", 1),
    "over others": (over_others, (17, 300), (300, 300), "float16", 6),
}


@sampled(2)
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("case", WIDE)
def test_longer_rows(case: str, memory: str) -> None:
    """Longer rows give the numbers that rows as long as they are give, but for the lengths of sums, and what a kernel
    computes it stores so itself."""
    fn, left, right, dtype, stored = WIDE[case]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s) * 0.1, dtype) for s in (left, right)]
    options = tw.Options(memory="bytes" if memory == "bytes" else "typed", without={"transposed"})
    wide = tw.compile(fn, *args, options=options)
    plain = tw.compile(fn, *args, options=dataclasses.replace(options, without={"transposed", "pitch"}))
    assert str(wide.module("graph")).count("graph.widen") >= max(stored, 1)
    padded = [op.parent_op() for op in wide.module("graph").walk() if isinstance(op, WidenOp)]
    assert sum(isinstance(op, FusionOp) and text(op.kind) != "move" for op in padded) == stored
    off = 4 * float(jnp.finfo(dtype).eps)
    for a, b in zip(jax.tree.leaves(wide(*args)), jax.tree.leaves(plain(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=off, atol=off)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("case", ["both computed", "in a loop", "batched", "over others"])
def test_longer_rows_are_verified(case: str) -> None:
    """verify holds what lies in longer rows against the values before, and nothing of what is behind it."""
    fn, left, right, dtype, _ = WIDE[case]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s) * 0.1, dtype) for s in (left, right)]
    assert tw.verify(fn, *args).ok


def test_longer_rows_in_the_hosts_memory() -> None:
    """What lies in longer rows may wait in the host's memory, where device memory is short: npu-check knows what of it
    comes back."""

    def loss(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in ws:
            x = jnp.tanh(x @ w)
        return (x * x).sum()

    args = [shape(1000, 1000)] * 6, shape(4096, 1000)
    limit = int(0.8 * tw.compile(jax.grad(loss), *args).report().memory.arena_bytes)
    program = tw.compile(jax.grad(loss), *args, options=tw.Options(memory_limit=limit))
    assert "npu.to_host" in program.ir("npu") and "graph.widen" in program.ir("graph")
    assert program.report().memory.arena_bytes <= limit


OTHER_TYPES = [(case, dtype) for case in ("primes", "both", "batched") for dtype in ("bfloat16", "float32")]


@sampled(2)
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("case", "dtype"), [*((case, "float16") for case in CASES), *OTHER_TYPES])
def test_values(case: str, dtype: str) -> None:
    """What is transposed gives the numbers that it gives as it is, bit by bit."""
    fn, left, right, moves = CASES[case]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s), dtype) for s in (left, right)]
    transposed = tw.compile(fn, *args)
    plain = tw.compile(fn, *args, options=tw.Options(without={"transposed"}))
    graphs = [str(program.module("graph")) for program in (transposed, plain)]
    assert graphs[0].count('kind = "move"') - graphs[1].count('kind = "move"') == moves
    assert (graphs[0] == graphs[1]) == (case in ("one column", "one term"))
    for a, b in zip(jax.tree.leaves(transposed(*args)), jax.tree.leaves(plain(*args)), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


def test_large_product() -> None:
    """A right side that is given on every call is transposed where that pays, and a small one is not: the reasons say
    so."""
    with reasons_asked() as found:
        program = tw.compile(
            matmul, shape(LARGE, LARGE), shape(LARGE, LARGE), options=tw.Options(check=False)
        )
    plain = tw.compile(
        matmul, shape(LARGE, LARGE), shape(LARGE, LARGE), options=tw.Options(check=False, without={"transposed"})
    )
    assert program.report().microseconds < 0.93 * plain.report().microseconds
    assert [r.kind for r in found if "transposed" in r.kind] == ["transposed"]
    with reasons_asked() as found:
        tw.compile(matmul, shape(64, 512), shape(512, 512))
    (why,) = (r.why for r in found if r.kind == "not transposed")
    assert "to transpose it takes" in why


def test_kernel_that_transposes() -> None:
    """A kernel that transposes a tensor has long runs on both sides: it takes little more than its bytes over HBM."""
    program = tw.compile(jnp.transpose, shape(LARGE, LARGE), options=tw.Options(check=False))
    (kernel,) = program.report().kernels
    assert kernel.microseconds < 1.15 * kernel.floor_microseconds


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("fn", [matmul, of_both, after_kernel, in_loop], ids=lambda fn: fn.__name__)
def test_verified(fn: Callable[..., Any]) -> None:
    """verify takes a matrix that is transposed for another one than the matrix, though it has the same type."""
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal((48, 48)), "float16") for _ in range(2)]
    assert tw.verify(fn, *args).ok


@pytest.mark.usefixtures("eager")
def test_constant() -> None:
    """A constant is transposed at compile time, and no kernel does it."""
    matrix = np.arange(48 * 23).reshape(48, 23).astype(np.float16) / 64
    program = tw.compile(lambda x: x @ matrix, shape(17, 48))
    text = str(program.module("graph"))
    assert text.count("graph.constant") == 1 and "tensor<23x48xf16>" in text and 'kind = "move"' not in text
    x = np.random.default_rng(0).standard_normal((17, 48)).astype(np.float16)
    plain = tw.compile(lambda x: x @ matrix, shape(17, 48), options=tw.Options(without={"transposed"}))
    assert np.array_equal(program(x), plain(x))


@pytest.mark.parametrize(
    ("pins", "written"),
    [
        (tw.Schedule(base_m=128), "step = [128,"),
        ({"contract_0": tw.Schedule(base_m=128)}, "step = [128,"),
        ({"move_0": tw.Schedule(ub=1)}, "ub = 1>"),
    ],
)
def test_pins_meet_transposed_operands(pins: Any, written: str) -> None:
    """What is pinned of a program's kernels is pinned of these kernels, the one that transposes an operand among
    them."""
    args = shape(LARGE, LARGE), shape(LARGE, LARGE)
    free = tw.compile(matmul, *args, options=tw.Options(check=False))
    pinned = tw.compile(matmul, *args, options=tw.Options(check=False, schedule=pins))
    names = [k.name for k in pinned.report().kernels]
    assert names == [k.name for k in free.report().kernels] and len(names) == 2
    assert written in pinned.ir("graph")


def test_pins_of_kernels_that_read_packed_weights() -> None:
    """Pins by name are of the kernels that run on each call, and packed weights are transposed as without pins."""
    args = shape(LARGE // 2, LARGE // 2), shape(LARGE // 2, LARGE // 2)
    options = tw.Options(check=False, weights="a")
    free = tw.compile(lambda a, x: x @ a, *args, options=options)
    pins = {"contract_0": tw.Schedule(base_m=128)}
    pinned = tw.compile(lambda a, x: x @ a, *args, options=dataclasses.replace(options, schedule=pins))
    assert pinned.report().packing_microseconds == free.report().packing_microseconds != 0
    assert [k.name for k in pinned.report().kernels] == ["contract_0"]
    named = dataclasses.replace(options, schedule={"move_0": tw.Schedule(ub=1)})
    with pytest.raises(tw.CompileError, match="there is no kernel 'move_0'; there are contract_0"):
        tw.compile(lambda a, x: x @ a, *args, options=named)


def test_all_that_was_chosen_is_pinned() -> None:
    """The schedules that the compiler chose, as pins, give the same program."""
    args = shape(LARGE, LARGE), shape(LARGE, LARGE)
    free = tw.compile(matmul, *args, options=tw.Options(check=False))
    (step,) = re.findall(r"step = \[(\d+), (\d+), (\d+)\]", free.ir("graph"))
    base_m, base_n, base_k = map(int, step)
    pins = {"contract_0": tw.Schedule(base_m=base_m, base_n=base_n, base_k=base_k)}
    pinned = tw.compile(matmul, *args, options=tw.Options(check=False, schedule=pins))
    assert pinned.report().microseconds <= 1.001 * free.report().microseconds


def test_a_pin_that_a_transposed_operand_cannot_obey_names_the_switch() -> None:
    pins = {"contract_0": tw.Schedule(base_m=4096, base_n=4096)}
    args = shape(LARGE, LARGE), shape(LARGE, LARGE)
    said = r"cannot obey .*; tensors of it are transposed in memory, which --without transposed"
    with pytest.raises(tw.CompileError, match=said):
        tw.compile(matmul, *args, options=tw.Options(schedule=pins))
    with pytest.raises(tw.CompileError) as caught:
        tw.compile(matmul, *args, options=tw.Options(schedule=pins, without={"transposed"}))
    assert "--without" not in str(caught.value)


Params = dict[str, jax.Array]


def layer(params: Params, x: jax.Array) -> jax.Array:
    return x @ params["w"]


def twice(params: Params, x: jax.Array) -> jax.Array:
    """One matrix, read in one order and in the other one."""
    return jnp.tanh(x @ params["w"]) @ params["w"].T


def shared(params: Params, x: jax.Array) -> jax.Array:
    """A matrix of which rows are picked, too: it keeps its order."""
    return x @ params["w"] + params["w"][jnp.array([3, 1, 2])].sum()


def batched(params: Params, x: jax.Array) -> jax.Array:
    return jnp.einsum("bmk,kbn->bmn", x.reshape(3, -1, x.shape[1]), params["w"].reshape(x.shape[1], 3, -1))


def called(params: Params, x: jax.Array) -> jax.Array:
    return layouts.called(layouts.called(x, params["w"], params["v"]), params["w"] * 2, params["v"] * 2)


def looped(params: Params, x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ params["w"] @ params["v"]), x)


PACKED: dict[str, tuple[Callable[..., Any], tuple[int, int], list[tuple[int, ...]] | None]] = {
    "a layer": (layer, (300, 509), [(520, 509)]),
    "both orders": (twice, (300, 509), [(520, 512)]),
    "shared": (shared, (300, 509), None),
    "batched": (batched, (300, 509), None),
    "called": (called, (300, 509), None),
    "in a loop": (looped, (300, 509), None),
}


@sampled(2)
@pytest.mark.parametrize("case", PACKED)
def test_packed(case: str) -> None:
    """A packed program gives what the program gives that packs on every call, and, but for the lengths of its sums,
    what the one that is not transposed gives; it takes no longer, and counts what packing takes."""
    fn, sizes, arrays = PACKED[case]
    rng = np.random.default_rng(1)
    columns = 520 if case != "batched" else 519
    params = {
        "w": jnp.asarray(rng.standard_normal((sizes[1], columns)) * 0.05, "float16"),
        "v": jnp.asarray(rng.standard_normal((columns, sizes[1])) * 0.05, "float16"),
    }
    x = jnp.asarray(rng.standard_normal(sizes), "float16")
    program = tw.compile(fn, params, x, options=tw.Options(weights="params"))
    plain = tw.compile(fn, params, x, options=tw.Options(without={"transposed"}))
    packed = program.pack(params)
    given = np.asarray(program(packed, x))
    assert np.array_equal(given, program(params, x))
    assert np.allclose(
        given.astype(np.float32), np.asarray(plain(params, x), np.float32), rtol=4e-3, atol=4e-3
    )
    assert program.report().microseconds <= plain.report().microseconds
    if arrays is not None:
        assert [a.shape for a in packed.arrays] == arrays
        assert program.report().microseconds < plain.report().microseconds
        assert program.report().packing_microseconds


def test_called_weights() -> None:
    """What a function that is called takes is transposed where all calls give weights, and once for each."""
    params = {"w": shape(4096, 4096), "v": shape(4096, 4096)}
    options = tw.Options(check=False, weights="params")
    transposed = tw.compile(called, params, shape(512, 4096), options=options).report()
    plain = tw.compile(
        called, params, shape(512, 4096), options=tw.Options(check=False, weights="params", without={"transposed"})
    )
    assert transposed.microseconds < 0.97 * plain.report().microseconds
    assert transposed.packing_microseconds
