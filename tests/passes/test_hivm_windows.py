"""Convolutions for the vendor's IR: places of windows are loaded one by one, and all that is loaded can be written."""

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

NHWC = ("NHWC", "HWIO", "NHWC")
RANDOM = np.random.default_rng(5)


def conv(strides: tuple[int, ...] = (1, 1), pad: Any = "SAME", **more: Any) -> Callable[..., Any]:
    layouts = more.pop("dimension_numbers", NHWC)
    return lambda x, w: jax.lax.conv_general_dilated(x, w, strides, pad, dimension_numbers=layouts, **more)


def gradients(of: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda x, w: (of(x, w) ** 2).sum(), (0, 1))


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], str]] = {
    "odd sizes": (conv(), (2, 7, 9, 16), (3, 3, 16, 24), "f2"),
    "two steps, no padding": (conv((2, 1), "VALID"), (2, 9, 9, 16), (3, 3, 16, 24), "f2"),
    "three channels": (conv((2, 2)), (1, 17, 19, 3), (7, 7, 3, 8), "f4"),
    "one channel": (conv(), (3, 8, 8, 1), (3, 3, 1, 5), "f4"),
    "dilated": (conv(rhs_dilation=(2, 3)), (1, 11, 13, 8), (3, 3, 8, 16), "f2"),
    "more on one side": (conv(pad=((3, 0), (0, 2))), (1, 7, 9, 17), (3, 3, 17, 13), "f2"),
    "many rows": (conv(), (1, 70, 11, 16), (5, 1, 16, 16), "f2"),
    "in groups": (conv(feature_group_count=2), (1, 7, 9, 16), (3, 3, 8, 24), "f2"),
    "eight bits": (conv(preferred_element_type=jnp.int32), (1, 7, 9, 32), (3, 3, 32, 16), "i1"),
    "one dimension": (conv((1,), dimension_numbers=("NWC", "WIO", "NWC")), (2, 37, 16), (5, 16, 24), "f2"),
    "gradients": (gradients(conv((2, 2))), (2, 8, 9, 16), (3, 3, 16, 8), "f4"),
    "1 x 1": (conv((2, 2)), (2, 7, 9, 16), (1, 1, 16, 24), "f2"),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_export(name: str) -> None:
    function, image, filters, dtype = CASES[name]
    x, w = ((4 * RANDOM.standard_normal(shape)).astype(dtype) for shape in (image, filters))
    program = tw.compile(function, x, w, options=tw.Options(hivm=True, memory="step"))
    for found, want in zip(
        jax.tree.leaves(program(x, w)), jax.tree.leaves(jax.jit(function)(x, w)), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=2e-3, atol=2e-3 * np.max(np.abs(want)))
    assert export_module(program.module()).refused == {}


@pytest.mark.parametrize("name", ["odd sizes", "one channel", "eight bits", "many rows"])
def test_text_has_the_same_values(name: str) -> None:
    """Out, then in: the loads of rows, what is made 0 before, and the product are what the text says."""
    function, image, filters, dtype = CASES[name]
    x, w = ((4 * RANDOM.standard_normal(shape)).astype(dtype) for shape in (image, filters))
    program = tw.compile(function, x, w, options=tw.Options(hivm=True, memory="step"))
    (kernel,) = program.to_hivm().values()
    back = tw.compile(kernel.text, options=tw.Options(memory="step"))
    np.testing.assert_array_equal(back(x, w), np.asarray(program(x, w)))


@pytest.mark.parametrize("name", ["odd sizes", "two steps, no padding", "eight bits"])
def test_vendor_takes_them(name: str) -> None:
    pytest.importorskip("ascendnpuir")
    function, image, filters, dtype = CASES[name]
    args = [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape in (image, filters)]
    program = tw.compile(function, *args, options=tw.Options(hivm=True))
    (check,) = check_module(program.module(), export_module(program.module()), VendorTools.find())
    assert (check.reached, check.problem, check.changed) == (True, "", [])


def test_row_of_zeros_is_made_before() -> None:
    """What a load leaves out before and between rows counts: the tile is made 0 on the same pipe."""
    function, image, filters, _ = CASES["odd sizes"]
    args = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in (image, filters)]
    program = tw.compile(function, *args, options=tw.Options(hivm=True))
    (kernel,) = program.to_hivm().values()
    *_, fill, behind = re.split(r"(hivm\.hir\.vbrc .*cbuf.*)\n", kernel.text)
    steps = re.findall(r"pipe_barrier\[<PIPE_MTE2>\]|scf\.for|nd2nz", behind)
    assert "xbf16" in fill
    assert steps[:4] == ["pipe_barrier[<PIPE_MTE2>]", "scf.for", "scf.for", "nd2nz"]  # images, rows
