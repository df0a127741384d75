"""Ordering, cumulation and index tensors of .tw, on the npu level against JAX; several values in one assignment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_equal import same
from jax import lax
from tiering import sampled

import tilewright as tw
from tilewright.frontends.text import TwError
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.printer import print_tw

RNG = np.random.default_rng(3)
X, Y, Z = (RNG.standard_normal(s).astype(np.float32) for s in [(5, 7), (3, 7), (2, 5, 7)])
ROWS, COLUMNS, PAIRS, FAR = (
    np.array(a, np.int32) for a in ([0, -1, 3], [2, 6, -7], [[0, 1], [1, -1]], [0, 99, -99])
)
HALF = RNG.standard_normal((3, 5)).astype(np.float16)
KINDS = {"float32": "f32", "float16": "f16", "int32": "i32"}

Case = tuple[str, tuple[np.ndarray, ...], Callable[..., Any]]

CASES: dict[str, Case] = {
    "sort": ("sort(x)", (X,), jnp.sort),
    "sort downwards": (
        "sort(x, axis=0, descending=true)",
        (X,),
        lambda x: jnp.sort(x, axis=0, descending=True),
    ),
    "argsort": ("argsort(x)", (np.array([[3, 1, 3, 2, 1]], np.int32),), jnp.argsort),
    "top_k": ("top_k(x, k=3)", (X,), lambda x: lax.top_k(x, 3)),
    "top_k of rows": ("top_k(x, k=2, axis=0)[0]", (HALF,), lambda x: lax.top_k(x.T, 2)[0].T),
    "cumsum": ("cumsum(x)", (X,), lambda x: jnp.cumsum(x, -1)),
    "cummax": ("cummax(x, axis=0, reverse=true)", (X,), lambda x: lax.cummax(x, 0, reverse=True)),
    "cummin and cumprod": (
        "cummin(x) + cumprod(x)",
        (X,),
        lambda x: lax.cummin(x, 1) + jnp.cumprod(x, 1),
    ),
    "slice": ("slice(x, y[0], size=3)", (X, COLUMNS), lambda x, y: lax.dynamic_slice_in_dim(x, y[0], 3)),
    "slice of columns": (
        "slice(x, y[0] - 4, size=3, axis=-1)",
        (X, COLUMNS),
        lambda x, y: lax.dynamic_slice_in_dim(x, y[0] - 4, 3, 1),
    ),
    "points": ("x[y, z]", (X, ROWS, COLUMNS), lambda x, y, z: x[y, z]),
    "a grid of points": ("x[y[:, new], z]", (X, ROWS, COLUMNS), lambda x, y, z: x[y[:, None], z]),
    "points of pages": ("x[:, y, z]", (Z, ROWS, COLUMNS), lambda x, y, z: x[:, y, z]),
    "points around a slice": ("x[y, :, z]", (Z, PAIRS[0], COLUMNS[:2]), lambda x, y, z: x[y, :, z]),
    "a point and points": ("x[1, y, 2:]", (Z, ROWS), lambda x, y: x[1, y, 2:]),
    "points, a slice and a point": ("x[y, 1:, -1]", (Z, PAIRS), lambda x, y: x[y, 1:, -1]),
    "points outside": ("x[y, y]", (X, FAR), lambda x, y: x[y, y]),
    "a list": ("x[:, [0, 2]]", (X,), lambda x: x[:, jnp.array([0, 2])]),
    "scatter_add": ("scatter_add(x, y, 1.5)", (X, PAIRS), lambda x, y: x.at[y].add(1.5)),
    "a histogram": (
        "scatter_add(zeros(shape=[7], type=i32), x, 1)",
        (np.array([0, 3, 3, 3, -1, 99], np.int32),),
        lambda x: jnp.zeros(7, jnp.int32).at[x].add(1),
    ),
}

WRITES: dict[str, Case] = {
    "rows": ("x[y] = 2", (X, ROWS), lambda x, y: x.at[y].set(2)),
    "rows of their own": ("x[y] = z", (X, ROWS, Y), lambda x, y, z: x.at[y].set(z)),
    "rows outside": ("x[y] = 2", (X, FAR), lambda x, y: x.at[y].set(2)),
    "columns": ("x[:, y] = z[:, :3]", (X, COLUMNS, X), lambda x, y, z: x.at[:, y].set(z[:, :3])),
    "points": ("x[y, z] = [1, 2, 3]", (X, ROWS, COLUMNS), lambda x, y, z: x.at[y, z].set(jnp.array([1.0, 2, 3]))),
    "rows of a page": ("x[1, y, :] = z", (Z, ROWS, Y), lambda x, y, z: x.at[1, y, :].set(z)),
    "around a slice": ("x[y, :, -1] = 3", (Z, PAIRS[0]), lambda x, y: x.at[y, :, -1].set(3)),
    "pages twice": ("x[y] = 3", (Z, PAIRS), lambda x, y: x.at[y].set(3)),
}


def source(body: str, args: tuple[np.ndarray, ...], result: Any) -> str:
    names = ", ".join(f"{n}: {KINDS[str(a.dtype)]}{list(a.shape)}" for n, a in zip("xyz", args, strict=False))
    types = [f"{KINDS[str(r.dtype)]}{list(r.shape)}" for r in jax.tree.leaves(result)]
    results = types[0] if len(types) == 1 else f"({', '.join(types)})"
    return f"fn f({names}) -> {results} {{\n{body}\n}}\n"


@sampled(3)
@pytest.mark.parametrize("name", [*CASES, *(f"write {n}" for n in WRITES)])
def test_values(name: str, tmp_path: Path) -> None:
    if name in CASES:
        line, args, fn = CASES[name]
        body = f"a, b = {line[:-3]}\nreturn a" if line.endswith("[0]") and "top_k" in line else f"return {line}"
    else:
        line, args, fn = WRITES[name.removeprefix("write ")]
        body = f"{line}\nreturn x"
    expected = fn(*map(jnp.asarray, args))
    (tmp_path / "f.tw").write_text(source(body, args, expected))
    found = tw.compile(tmp_path / "f.tw", *args)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return x[0, :, y]", "slices stand between the indices"),
        ("x[y, 1:] = 0\nreturn x", "a slice of a part beside an index that is a tensor"),
        ("a, b = top_k(x, k=9)\nreturn a", "there are no 9 elements along axis 2, which has 7"),
        ("return slice(x, 0, size=3)", "there are no 3 elements along axis 0"),
        ("return slice(x, y, size=1)", r"`start` of `slice` must be i32\[\], got i32\[3\]"),
        ("return cumsum(x > 0)", "`cumsum` is for numbers, not i1"),
        ("return scatter_add(x, y, y)", r"writes i32\[3\] into f32\[2, 5, 7\]"),
        ("x[y] = zeros(shape=[2, 5, 7], type=f32)\nreturn x", r"into a part of shape \[3, 5, 7\]"),
        ("a, a = x, x\nreturn a", "`a` is assigned twice in one statement"),
        ("a, b = x\nreturn a", "2 names for 1 value"),
        ("a, b = x, x, x\nreturn a", "2 names for 3 values"),
        ("a, b = top_k(x, k=1), x\nreturn a", "one of several values here"),
    ],
)
def test_errors(body: str, message: str) -> None:
    with pytest.raises(TwError, match=message):
        lower_tw("t.tw", f"fn f(x: f32[2, 5, 7], y: i32[3]) -> f32[2, 5, 7] {{\n{body}\n}}\n")


def test_values_are_read_before_names_are_written(tmp_path: Path) -> None:
    text = (
        "fn f(x: f32[3], y: f32[3]) -> (f32[3], f32[3]) {\n    x, y = y, x\n"
        "    for i in 0..4 {\n        x, y = y, x + y\n    }\n    return x, y\n}\n"
    )
    (tmp_path / "f.tw").write_text(text)
    x, y = Y[:2, :3]
    found = tw.compile(tmp_path / "f.tw", x, y)(x, y)
    x, y = y, x
    for _ in range(4):
        x, y = y, x + y
    np.testing.assert_allclose(found, (x, y), rtol=1e-6)
    module = lower_tw("f.tw", text).module
    assert same(lower_tw("g.tw", print_tw(module)).module, module)
