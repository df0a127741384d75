"""Products of numbers of 4 bits at the npu level, in both memories, against models in numpy integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

import tilewright as tw
from tilewright.dialects.npu import FixpipeOp, MmadOp

MODULE = """
builtin.module {{
  func.func @main(%x: tensor<{lhs}x!graph.i4x2>, %w: tensor<{rhs}x!graph.i4x2>) -> tensor<{out}xi32> {{
    %y = graph.contract %x, %w {{lhs_batch = {batch}, rhs_batch = {batch}, lhs_contract = [{k}], rhs_contract = [{k}]}}
      : (tensor<{lhs}x!graph.i4x2>, tensor<{rhs}x!graph.i4x2>) -> tensor<{out}xi32>
    func.return %y : tensor<{out}xi32>
  }}
}}
"""

SIZES = st.sampled_from([1, 2, 3, 7, 16, 31, 33, 64, 97])


def numbers(pairs: np.ndarray) -> np.ndarray:
    """The numbers of bytes, along the last dimension: the lower half first."""
    lower, upper = pairs.astype(np.int64) & 15, pairs.astype(np.int64) >> 4 & 15
    both = np.stack([lower, upper], -1)
    return np.where(both < 8, both, both - 16).reshape(*pairs.shape[:-1], -1)


@examples(4)
@given(
    batch=st.sampled_from([(), (1,), (3,)]),
    sizes=st.tuples(SIZES, SIZES, st.one_of(SIZES, st.just(2500))),
    seed=st.integers(0, 99),
)
def test_pairs_are_multiplied_as_the_numbers_in_them(
    batch: tuple[int, ...], sizes: tuple[int, int, int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All bytes occur; a long sum is shared by cores."""
    rng, (m, n, k) = np.random.default_rng(seed), sizes
    shapes = [(*batch, m, k), (*batch, n, k), (*batch, m, n)]
    lhs, rhs, out = ("x".join(map(str, shape)) for shape in shapes)
    path = tmp_path_factory.mktemp("pairs") / "product.mlir"
    dims = list(range(len(batch)))
    path.write_text(MODULE.format(lhs=lhs, rhs=rhs, out=out, batch=dims, k=len(batch) + 1))
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes[:2])
    program = tw.compile(path)
    wanted = numbers(x) @ np.swapaxes(numbers(w), -1, -2)
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(program.executable(memory)(x, w), [wanted])  # pyright: ignore


def short(x: np.ndarray) -> np.ndarray:
    """f32 numbers with 10 bits behind the point."""
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0x7FFFE000)).view(np.float32)


def net(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.einsum("bmk,kn->bmn", x, params["w"]) + params["b"]


def transposed(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """The weights on the left side, and the input's summed dimension is not its last one."""
    return jnp.einsum("kn,bkm->bmn", params["w"], x.transpose(0, 2, 1)) + params["b"]


@examples(4)
@given(
    sizes=st.tuples(st.sampled_from([1, 2]), SIZES, SIZES, st.integers(1, 70)),
    zero=st.sampled_from([0, -8, 3, 7]),
    wide=st.booleans(),
    left=st.booleans(),
    target=st.sampled_from(["ascend-910b1", "ascend-910b4", "ascend-310p3"]),
    seed=st.integers(0, 99),
)
def test_the_mode_computes_what_the_integer_model_does(
    sizes: tuple[int, int, int, int], zero: int, wide: bool, left: bool, target: str, seed: int
) -> None:
    """Inputs are rounded, shifted and saturated to 4 bits; sums get one factor a feature."""
    rng, (batch, m, n, k) = np.random.default_rng(seed), sizes
    scale = np.float32(0.25)
    x = (rng.standard_normal((batch, m, k)) * (40 if wide else 1)).astype(np.float32)
    stored, scales = rng.integers(-7, 8, (k, n)), rng.uniform(0.01, 1, n).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    params = {"w": jnp.zeros((k, n), jnp.float32), "b": jnp.asarray(bias)}
    choice = tw.ProductChoice("w4a4", float(scale), zero, stored=stored.astype(np.int8), scales=scales)
    config = tw.QuantConfig("origin", {}, {"params['w']": choice})
    q = np.clip(np.rint(x / scale).astype(np.int64) + zero, -8, 7)
    factor = short(scales * scale)
    wanted = ((q - zero) @ stored).astype(np.float32) * factor + bias
    for memory in ("typed", "bytes"):
        options = tw.Options(quantization=config, weights="params", memory=memory)
        shown = transposed if left else net
        program = tw.compile(shown, params, jnp.asarray(x), target=target, options=options)
        np.testing.assert_array_equal(program(params, x), wanted)
        np.testing.assert_array_equal(program(program.pack(params), x), wanted)


def test_two_numbers_are_in_a_byte_and_sums_leave_the_cube_scaled() -> None:
    rng = np.random.default_rng(5)
    params = {"w": jnp.asarray(rng.standard_normal((129, 48)), jnp.float16), "b": jnp.zeros(48, jnp.float16)}
    x = jnp.asarray(rng.standard_normal((1, 32, 129)), jnp.float16)
    made = tw.quantize(lambda params, x: x @ params["w"], params, x, config="w4a4", progress=False)
    assert ((48, 65), "i8") in made.program.rest.inputs
    assert [row.weight_bytes for row in made.table.rows] == [(129 * 48 + 1) // 2 + 4 * 48]
    ops = [*made.program.module("npu").walk()]
    assert [op.arithmetic() for op in ops if isinstance(op, MmadOp)] == ["i4x2 -> i32"]
    assert [op.scales is not None for op in ops if isinstance(op, FixpipeOp)] == [True]
    assert made.program.report().to_json()


def test_convolutions_multiply_the_same_numbers_in_bytes() -> None:
    """Stored numbers of one convolution are the input of the next one, and of a matrix product, in 4 bits each."""
    rng = np.random.default_rng(7)
    params = {"c": (3, 3, 4, 8), "d": (1, 1, 8, 6), "w": (54, 5)}
    params = {name: jnp.asarray(rng.standard_normal(shape), jnp.float32) for name, shape in params.items()}

    def layers(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for name in "cd":
            x = jax.lax.conv_general_dilated(
                x, params[name], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
        return x.reshape(len(x), -1) @ params["w"]

    x = jnp.asarray(rng.standard_normal((2, 12, 12, 4)), jnp.float32)
    made = tw.quantize(layers, params, x, config="w4a4", progress=False)
    kinds = [op.arithmetic() for op in made.program.module("npu").walk() if isinstance(op, MmadOp)]
    assert sorted(kinds) == ["i4x2 -> i32", "i8 -> i32", "i8 -> i32"]
    twin = np.asarray(jax.jit(made.function)(params, x))
    np.testing.assert_array_equal(made.program(params, x), twin)
    assert made.table.sqnr > 8


def test_no_product_is_left_out_by_verify() -> None:
    rng = np.random.default_rng(6)
    params = {"w": jnp.asarray(rng.standard_normal((19, 7)), jnp.float32), "b": jnp.ones(7, jnp.float32)}
    x = jnp.asarray(rng.standard_normal((1, 5, 19)), jnp.float32)
    made = tw.quantize(net, params, x, config="w4a4", progress=False)
    found = tw.verify(net, params, x, program=made.program)
    assert found.ok, found.verdict


@pytest.mark.parametrize("target", ["ascend-310", "ascend-910a", "ascend-950pr", "systolic-tpu1"])
def test_chips_without_such_products_say_so(target: str) -> None:
    params = {"w": jnp.zeros((8, 4), jnp.float32), "b": jnp.zeros(4, jnp.float32)}
    config = tw.QuantConfig("origin", {}, {"params['w']": tw.ProductChoice("w4a4", 0.5)})
    with pytest.raises(tw.CompileError, match=rf"the cube of {target} has no products of 4 bits: take w4a8$"):
        tw.compile(net, params, jnp.zeros((1, 2, 8)), target=target, options=tw.Options(quantization=config))
