"""Attributes that are real numbers at ops of integers: formulas in real numbers, cut off in the end."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from onnx_models import model_of, outputs


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_shrink(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([v for v in range(-10, 11) if v >= info.min] + [info.max // 2 - 20], dtype)
    for limit, bias in (
        (1.5, 1.5),
        (2.0, 0.5),
        (1.5, 0.0),
        (0.5, 0.25),
        (-3.0, 1.0),
        (300.0, 1.0),
        (2.5, 2.0),
    ):
        by, wide = Fraction(bias), [Fraction(int(v)) for v in x]
        want = [v + by if v < -limit else v - by if v > limit else 0 for v in wide]
        (got,) = outputs(model_of("Shrink", [x], opset=21, lambd=limit, bias=bias), x)
        wrapped = np.array([int(v) % (1 << 8 * x.itemsize) for v in want], np.uint64).astype(dtype)
        np.testing.assert_array_equal(got, wrapped, err_msg=f"{limit}, {bias}")
        assert got.dtype == x.dtype


def test_shrink_of_floats_keeps_its_type() -> None:
    x = np.linspace(-2, 2, 9).astype("f2")
    (got,) = outputs(model_of("Shrink", [x], opset=21, lambd=0.7, bias=0.3), x)
    half = np.float16(0.3)
    want = np.where(x < -0.7, x + half, np.where(x > 0.7, x - half, np.float16(0)))
    np.testing.assert_array_equal(got, want)
