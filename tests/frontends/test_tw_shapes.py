"""Shapes of the .tw language against numpy's: products and einsums of any rank, batch dimensions that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import graph_reference
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.frontends.text.frontend import lower_tw

SIZES = st.integers(0, 3)


def run(expression: str, expected: np.ndarray, *args: np.ndarray) -> None:
    """`expression` over x and y gives `expected`."""
    parameters = ", ".join(f"{n}: i32{list(a.shape)}" for n, a in zip("xy", args, strict=True))
    text = f"fn f({parameters}) -> i32{list(expected.shape)} {{\n    return {expression}\n}}\n"
    module = lower_tw("t.tw", text).module
    module.verify()
    (found,) = graph_reference.run(module, args)
    np.testing.assert_array_equal(found, expected)


def counted(shape: Sequence[int], start: int) -> np.ndarray:
    return np.arange(start, start + int(np.prod(shape)), dtype=np.int32).reshape(shape)


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_products_as_numpy(left: int, right: int, data: st.DataObject) -> None:
    inner, batch = data.draw(SIZES), [data.draw(SIZES) for _ in range(2)]

    def leading(rank: int) -> list[int]:
        return [n if data.draw(st.booleans()) else 1 for n in batch[2 - max(rank - 2, 0) :]]

    a = [*leading(left), *([data.draw(SIZES)] if left > 1 else []), inner]
    b = [*leading(right), inner, *([data.draw(SIZES)] if right > 1 else [])]
    x, y = counted(a, -3), counted(b, -5)
    run("x @ y", np.asarray(x @ y), x, y)


@given(st.permutations("abcd"), st.permutations("abcd"), st.data())
def test_einsums_as_numpy(left: list[str], right: list[str], data: st.DataObject) -> None:
    sizes = {letter: data.draw(st.integers(1, 3)) for letter in "abcd"}
    a, b = (part[: data.draw(st.integers(0, 4))] for part in (left, right))
    out = data.draw(st.permutations(sorted({*a, *b})))[: data.draw(st.integers(0, 4))]
    x, y = (counted([sizes[c] for c in part], -3) for part in (a, b))
    spec = f"{''.join(a)},{''.join(b)}->{''.join(out)}"
    run(f'einsum("{spec}", x, y)', np.asarray(np.einsum(spec, x, y)), x, y)
