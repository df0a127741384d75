"""Products back to back on the cube alone: values of JAX in both memories, where it pays, and what it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from memories import outputs
from products import EPS, assert_as_in_f32, data
from tiering import covering, examples

import tilewright as tw
from tilewright.machine import Machine
from tilewright.passes.choose import chain_apart
from tilewright.passes.lower.chains.back_to_back import BackToBackKernel
from tilewright.passes.npu.check import check as hazards


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one kernel whatever their parts take."""
    monkeypatch.setitem(chain_apart.MARGINS, BackToBackKernel, ("", float("inf")))


def layers(x: Any, a: Any, b: Any) -> Any:
    return jax.nn.relu(x @ a) @ b


def heads(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jnp.einsum("hqd,hkd->hqk", q, k), v)


def compiled(fn: Callable[..., Any], *args: Any, **options: Any) -> tw.Program:
    """One kernel without vector cores and without workspace, which npu-check finds nothing in."""
    target = options.pop("target", "ascend-910b1")
    program = tw.compile(fn, *args, target=target, options=tw.Options(**options))
    assert [(k.name, k.kind) for k in program.report().kernels] == [("chain_0", "cube")]
    assert "npu.fixpipe_l1" in program.ir("npu")
    assert hazards(program.module("npu"), Machine.load(target)) == []
    return program


@examples(24)
@given(
    st.integers(16, 300),
    st.integers(2, 80),
    st.integers(1, 12).map(lambda n: 16 * n),
    st.integers(2, 90),
    st.sampled_from(["f16", "bf16"]),
    st.booleans(),
)
def test_two_layers(rows: int, shared: int, keys: int, columns: int, dtype: str, relu: bool) -> None:
    fn = layers if relu else lambda x, a, b: (x @ a) @ b
    args = data(dtype, (rows, shared), (shared, keys), (keys, columns))
    assert_as_in_f32(compiled(fn, *args), fn, args, 8)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "heads": (heads, [(3, 70, 24), (3, 96, 24), (3, 96, 40)]),
    "rows in batches": (layers, [(4, 50, 48), (48, 64), (64, 20)]),
    "weights on the right": (lambda x, a, b: b @ jax.nn.relu(a @ x), [(48, 130), (64, 48), (30, 64)]),
    "keys and values transposed": (
        lambda x, a, b: jax.nn.relu(x @ a.T) @ b.T,
        [(130, 48), (64, 48), (20, 64)],
    ),
    "result transposed": (lambda x, a, b: layers(x, a, b).T, [(130, 48), (48, 64), (64, 20)]),
    "many pieces": (layers, [(600, 160), (160, 512), (512, 160)]),
    "much that is summed up": (layers, [(40, 1500), (1500, 32), (32, 48)]),
    "many columns": (layers, [(40, 32), (32, 64), (64, 500)]),
}


@covering(4)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b3", "ascend-950pr"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_layouts_and_chips(name: str, target: str) -> None:
    fn, shapes = CASES[name]
    args = data("f16", *shapes)
    assert_as_in_f32(compiled(fn, *args, target=target), fn, args, 8)


def test_one_rounding_of_sums() -> None:
    """Sums in f32 become the operand in one rounding, as the parts round them: another one would be off by 2^-11. The
    results leave as they are, sums of f32 in another order."""

    def wide(x: Any, a: Any, b: Any) -> Any:
        hidden = jax.nn.relu(jnp.dot(x, a, preferred_element_type=jnp.float32)).astype(jnp.float16)
        return jnp.dot(hidden, b, preferred_element_type=jnp.float32)

    args = data("f16", (100, 16), (16, 16), (16, 24))
    whole = compiled(wide, *args)
    apart = tw.compile(wide, *args, options=tw.Options(without={"attention"}))
    for one, two in zip(outputs(whole, args), outputs(apart, args), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, two, atol=2.0**-20, rtol=0)


def test_no_number_comes_out_of_padding() -> None:
    """Infinity times what lies behind the last column or row of an operand is no part of any result."""
    x, a, b = data("f16", (33, 20), (20, 48), (48, 9))
    x[3, 4], b[5, 2] = np.inf, np.inf
    a = np.abs(a) + np.float16(0.01)
    program = compiled(layers, x, a, b)
    want = np.asarray(layers(*(v.astype(np.float32) for v in (x, a, b))))
    (got,) = outputs(program, (x, a, b))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


@pytest.mark.parametrize("scored", [16, 64])
@pytest.mark.parametrize("parts", [1, 2])
def test_pins(scored: int, parts: int) -> None:
    """Parts of a piece change no bit, if sums are of steps of one length."""
    args = data("f16", (200, 64), (64, 256), (256, 48))
    pins = tw.Schedule(rows=48, keys=scored * parts, scored=scored, summed=16, features=64)
    program = compiled(layers, *args, schedule=pins)
    one = compiled(layers, *args, schedule=replace(pins, keys=16, scored=16))
    got, want = outputs(program, args)[0], outputs(one, args)[0]
    # XLA adds up products of other shapes in another order
    np.testing.assert_allclose(got, want, rtol=0, atol=2 * EPS["f16"] * float(np.abs(want).max()))


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        ({"rows": 24}, "must be multiples of 16"),
        ({"keys": 128, "scored": 32}, "not one part of 32, or 2"),
        ({"keys": 96, "scored": 96}, "pieces of 96 keys do not divide 256"),
        ({"columns": 16}, "columns must be all 48"),
        ({"bands": 2}, "have no bands"),
        ({"scored": 64, "summed": 48}, "steps of 48 keys do not divide 64"),
        ({"rows": 128, "scored": 256, "keys": 256}, "bytes of l0c"),
        ({"grid": (30,)}, "more than the 24 there are"),
        ({"grid": (1, 2)}, "1 axes of tiles, and the grid 2"),
        ({"rows": 128, "grid": (3,)}, "cannot be split over 3 cores"),
    ],
)
def test_pins_that_cannot_be_obeyed(pins: dict[str, Any], reason: str) -> None:
    args = data("f16", (200, 64), (64, 256), (256, 48))
    with pytest.raises(tw.CompileError, match=rf"@chain_0 cannot obey .*{reason}"):
        tw.compile(layers, *args, options=tw.Options(schedule=tw.Schedule(**pins)))


APART: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str, str]] = {
    "another function": (lambda x, a, b: jnp.tanh(x @ a) @ b, [(64, 16), (16, 32), (32, 16)], "f16", ""),
    "f32": (layers, [(64, 16), (16, 32), (32, 16)], "f32", ""),
    "keys that are no fractals": (layers, [(64, 16), (16, 40), (40, 16)], "f16", ""),
    "an epilogue": (lambda x, a, b: jnp.tanh(layers(x, a, b)), [(64, 16), (16, 32), (32, 16)], "f16", ""),
    "two roundings": (
        lambda x, a, b: (x @ a).astype(jnp.bfloat16).astype(jnp.float16) @ b,
        [(64, 16), (16, 32), (32, 16)],
        "f16",
        "",
    ),
    "what else needs the first result": (
        lambda x, a, b: (layers(x, a, b), x @ a),
        [(64, 16), (16, 32), (32, 16)],
        "f16",
        "",
    ),
    "a fused core": (layers, [(64, 16), (16, 32), (32, 16)], "f16", "ascend-310"),
}


@pytest.mark.parametrize("name", APART)
def test_what_stays_apart(name: str) -> None:
    fn, shapes, dtype, target = APART[name]
    args = data(dtype, *shapes)
    program = tw.compile(fn, *args, target=target or "ascend-910b1")
    assert "hand_on" not in program.ir("tile")
    assert_as_in_f32(program, fn, args, 16) if name != "what else needs the first result" else None


def test_what_a_second_product_adds_is_its_own_epilogue() -> None:
    """A product and a low-rank one beside it: the sum is part of the first one's kernel."""

    def adapted(x: Any, w: Any, a: Any, b: Any) -> Any:
        return x @ w + (x @ a) @ b

    args = data("f16", (64, 48), (48, 64), (48, 16), (16, 64))
    program = tw.compile(adapted, *args)
    assert {k.name for k in program.report().kernels} == {"chain_0", "contract_0"}
    assert_as_in_f32(program, adapted, args, 16)
