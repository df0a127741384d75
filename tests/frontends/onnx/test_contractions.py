"""Products, contractions and determinants: odd shapes, other dtypes, bytes."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_cases import Cases, near
from onnx_models import model_of, outputs

from tilewright.frontends.onnx import OnnxFunction, read_model

RNG = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((7,), (7,)),
    ((3, 7), (7,)),
    ((7,), (7, 5)),
    ((2, 3, 7), (7, 5)),
    ((2, 1, 3, 7), (4, 7, 1)),
    ((0, 7), (7, 2)),
    ((3, 0), (0, 2)),
]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u4", "i8", BF16])
def test_matmul(dtype: Any) -> None:
    cases = Cases()
    for a, b in PRODUCTS:
        x, y = (RNG.integers(0, 5, s).astype(dtype) for s in (a, b))
        want = np.asarray(x.astype("f8") @ y.astype("f8")).astype(dtype)
        cases.add(model_of("MatMul", [x, y]), [x, y], want, 1e-2)
    cases.check()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u8", BF16])
def test_gemm(dtype: Any) -> None:
    cases = Cases()
    for i, shape in enumerate(((), (1,), (7,), (3, 1), (1, 7), (3, 7))):
        left, right = i % 2, i // 2 % 2
        a = RNG.integers(0, 4, (5, 3) if left else (3, 5)).astype(dtype)
        b = RNG.integers(0, 4, (7, 5) if right else (5, 7)).astype(dtype)
        c = RNG.integers(0, 4, shape).astype(dtype)
        product = (a.T if left else a).astype("f8") @ (b.T if right else b).astype("f8")
        sides = {"transA": left, "transB": right}
        want = (2 * product + 3 * c.astype("f8")).astype(dtype)
        cases.add(model_of("Gemm", [a, b, c], **sides, alpha=2.0, beta=3.0), [a, b, c], want, 1e-2)
        cases.add(model_of("Gemm", [a, b], **sides), [a, b], product.astype(dtype), 1e-2)
    cases.check()


def test_gemm_scales_nothing_where_alpha_and_beta_are_one() -> None:
    a = np.ones((2, 3), "f4")
    inputs = [a, a.T, np.ones(2, "f4")]
    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(OnnxFunction(read_model(model_of("Gemm", inputs))))(*inputs))
    assert " mul " not in text
    assert "transpose[" not in text
    half = model_of("Gemm", [np.full((1, 1), 3, "i4")] * 3, alpha=0.5, beta=0.5)
    near(outputs(half, *[np.full((1, 1), 3, "i4")] * 3)[0], np.array([[6]], "i4"))


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 5), (5, 2)]),
    ("ij , jk", [(3, 5), (5, 2)]),
    ("bij,bjk", [(2, 3, 5), (2, 5, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 5), (4, 5, 2)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("ij->ji", [(3, 5)]),
    ("i,j->ij", [(3,), (5,)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("Ab,bC", [(3, 5), (5, 2)]),
    ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("i->", [(0,)]),
    ("...->...", [(2, 3)]),
]


def test_einsum() -> None:
    cases = Cases()
    for equation, shapes in EQUATIONS:
        for dtype in ("f4", "i4", "f2"):
            xs = [RNG.integers(0, 4, s).astype(dtype) for s in shapes]
            want = np.asarray(np.einsum(equation, *[x.astype("f8") for x in xs])).astype(dtype)
            cases.add(model_of("Einsum", xs, equation=equation), xs, want, 1e-2)
    cases.check()


BYTES = st.sampled_from(["i1", "u1"])
ZEROS = st.sampled_from(["", "one", "each"])


@settings(deadline=None, max_examples=10)
@given(BYTES, BYTES, ZEROS, ZEROS, st.integers(0, 2**32 - 1))
def test_products_of_bytes(a_type: str, b_type: str, a_zero: str, b_zero: str, seed: int) -> None:
    rng, cases = np.random.default_rng(seed), Cases()

    def draw(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    a, b = draw(a_type, (3, 17)), draw(b_type, (17, 5))
    kinds = (a_type, a_zero, 3), (b_type, b_zero, 5)
    zeros = [draw(t, {"one": (), "each": (n,)}[z]) if z else None for t, z, n in kinds]
    za, zb = (np.int64(0) if z is None else z.astype("i8") for z in zeros)
    want = ((a.astype("i8") - za.reshape(-1, 1)) @ (b.astype("i8") - zb)).astype("i4")
    inputs = [a, b, *zeros]
    for constants in ((), (1, 2, 3)):
        left = [x for i, x in enumerate(inputs) if x is not None and i not in constants]
        cases.add(model_of("MatMulInteger", inputs, opset=10, constants=constants), left, want, 0, 0)
    cases.check()


def test_products_of_bytes_are_products_of_i8() -> None:
    cases, b = Cases(), np.ones((8, 3), "i1")
    for a_type in ("i1", "u1"):
        a = np.ones((2, 4, 8), a_type)
        model = model_of("MatMulInteger", [a, b], opset=10)
        with jax.enable_x64(True):
            text = str(jax.make_jaxpr(OnnxFunction(read_model(model)))(a, b))
        assert "preferred_element_type=int32" in text
        assert "i16" not in text
        cases.add(model, [a, b], np.full((2, 4, 3), 8, "i4"))
    v, a, rows = np.arange(8, dtype="u1"), np.ones((2, 4, 8), "u1"), np.ones((2, 4, 1), "u1")
    cases.add(model_of("MatMulInteger", [v, b], opset=10), [v, b], np.full(3, 28, "i4"))
    cases.add(model_of("MatMulInteger", [v, v], opset=10), [v, v], np.int32(140))
    cases.add(model_of("MatMulInteger", [a, b, rows], opset=10), [a, b, rows], np.zeros((2, 4, 3), "i4"))
    cases.check()


def test_determinants() -> None:
    cases = Cases()
    for n in (0, 1, 2, 3, 5):
        for dtype, tolerance in (("f4", 1e-4), ("f8", 1e-9), ("f2", 1e-2)):
            for batch in ((), (2, 3)):
                x = RNG.normal(size=(*batch, n, n)).astype(dtype)
                want = np.linalg.det(x.astype("f8")).astype(dtype)
                cases.add(model_of("Det", [x]), [x], want, tolerance, tolerance)
    cases.check()


@pytest.mark.parametrize(
    ("dtype", "large"),
    [(np.float16, 300), (ml_dtypes.bfloat16, 300), (np.float32, 2)],
    ids=["f2", "bf2", "f4"],
)
def test_factors_of_products_that_are_out_of_range(dtype: Any, large: float) -> None:
    """alpha and beta scale sums of f32: a product of narrow floats may be too large before, and the sum may be."""
    a = np.array([[large, 1]], dtype)
    b = np.array([[large, 2], [1, 1]], dtype)
    c = np.array([large, 1], dtype)
    product = a.astype("f8") @ b.astype("f8")
    for alpha, beta in ((1 / 1024, 1.0), (-0.25 / large, 0.5), (1 / 1024, 0.0)):
        want = (alpha * product + beta * c.astype("f8")).astype(dtype)
        near(*outputs(model_of("Gemm", [a, b, c], opset=13, alpha=alpha, beta=beta), a, b, c), want, 1e-2)
    want = (product / 1024).astype(dtype)
    fused = model_of("FusedMatMul", [a, b], domain="com.microsoft", alpha=1 / 1024)
    near(*outputs(fused, a, b), want, 1e-2)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8"])
def test_integer_factors_are_cut_off_once(dtype: str) -> None:
    ones = np.ones((1, 1), dtype)
    for alpha, beta, want in ((0.5, 0.5, 1), (1.5, 1.0, 2), (0.25, 0.5, 0), (2.0, 3.0, 5)):
        (got,) = outputs(model_of("Gemm", [ones, ones, ones], alpha=alpha, beta=beta), ones, ones, ones)
        np.testing.assert_array_equal(got, np.array([[want]], dtype))
