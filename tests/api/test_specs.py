"""`tw.jit(dynamic=...)`: which dimensions are open, in the words of `jax.export.symbolic_args_specs`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.api.arguments.specs import symbolic_shapes
from tilewright.dialects.affine import Symbol
from tilewright.dialects.sizes import parse_size


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def product(x: Any, w: Any) -> Any:
    return x @ w


def test_one_program_for_all_sizes() -> None:
    f = tw.jit(product, dynamic=("b, 4", None), dynamic_constraints=("b <= 64",))
    for b in (1, 7, 2):
        np.testing.assert_array_equal(f(ones(b, 4), ones(4, 5)), 4 * ones(b, 5))
    (program,) = f.programs
    assert program.input_types == ("f32[b, 4]", "f32[4, 5]")
    assert isinstance(program, tw.DynamicProgram)
    assert list(program.versions) == [(1,), (7,), (2,)]
    f(ones(2, 4), ones(4, 6))  # a dimension that is not open
    f(ones(2, 4), ones(4, 5, dtype=np.float16))
    assert len(f.programs) == 3


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((65, 4), "product: b is 65 (dimension 0 of argument x), and must be at most 64"),
        ((6, 5), "product: dimension 1 of argument x is 5, and must be 4"),
        ((6, 4, 1), "dynamic: 'b, 4' has not as many dimensions as argument x of product, which has 3"),
    ],
)
def test_sizes_that_do_not_fit_are_one_sentence(shape: tuple[int, ...], said: str) -> None:
    f = tw.jit(product, dynamic=("b, 4", None), dynamic_constraints="b <= 64")
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}$"):
        f(ones(*shape), ones(4, 5))


def test_specs_by_name_in_trees_and_of_keywords() -> None:
    def f(d: Mapping[str, Any], *, s: Any) -> Any:
        return d["a"] * s["q"] + d["n"]

    g = tw.jit(f, dynamic={"d": {"a": "b, _", "n": None}, "s": "b, ..."})
    for b in (3, 2):
        np.testing.assert_array_equal(g({"a": ones(b, 4), "n": 1.0}, s={"q": ones(b, 4)}), 2 * ones(b, 4))
    (program,) = g.programs
    assert program.input_types == ("f32[b, 4]", "f32[]", "f32[b, 4]")
    g({"a": ones(3, 5), "n": 1.0}, s={"q": ones(3, 5)})  # _ and ... are as the arrays have them
    assert len(g.programs) == 2


def test_one_spec_for_all_arguments() -> None:
    f = tw.jit(lambda x, y: x + y, dynamic="n, ...")
    for n in (2, 5):
        np.testing.assert_array_equal(f(ones(n, 3), ones(n, 3)), 2 * ones(n, 3))
    assert len(f.programs) == 1
    said = (
        "<lambda>: dimension 0 of argument y is 3, and must be n = 2 (n = 2 from dimension 0 of argument x)"
    )
    with pytest.raises(tw.CompileError, match=re.escape(said)):
        f(ones(2, 3), ones(3, 3))


def test_static_and_donated_arguments_beside_open_ones() -> None:
    @tw.jit(static_argnums=1, donate_argnums=2, dynamic=("b", None, "b"))
    def f(x: Any, n: int, y: Any) -> Any:
        return x * n + y

    y = jnp.ones(3)
    np.testing.assert_array_equal(f(ones(3), 2, y), 3 * ones(3))
    assert y.is_deleted()
    np.testing.assert_array_equal(f(ones(4), 2, jnp.ones(4)), 3 * ones(4))
    np.testing.assert_array_equal(f(ones(4), 3, jnp.ones(4)), 4 * ones(4))
    assert [len(p.versions) for p in f.programs if isinstance(p, tw.DynamicProgram)] == [2, 1]


def test_methods_and_keys() -> None:
    class Model:
        @tw.jit(dynamic=(None, None, "b"))
        def noisy(self, key: Any, x: Any) -> Any:
            return x + jax.random.uniform(key)

    key = jax.random.key(0)
    np.testing.assert_allclose(Model().noisy(key, ones(3)), ones(3) + jax.random.uniform(key), rtol=1e-6)


def test_specs_without_symbols_leave_all_as_it_is() -> None:
    f = tw.jit(product, dynamic=("_, 4", "..."))
    f(ones(3, 4), ones(4, 5))
    assert not isinstance(f.programs[0], tw.DynamicProgram)


@pytest.mark.parametrize(
    ("dynamic", "constraints", "said"),
    [
        ({"z": "b"}, (), "dynamic: product has no argument 'z'; it has x, w"),
        (3, (), "dynamic is a text such as 'b, 128', or one for each argument, not 3"),
        (("b", None, None), (), "dynamic has 3 specs, and product has 2 arguments by position"),
        (("b+, 4", None), (), "dynamic: 'b+, 4' lists no dimensions: write it as in 'b, 8*s, _, ...'"),
        (("b / 2, 4", None), (), "dynamic: 'b / 2' is no size: write it as in 8*s + 1 or floordiv(b, 2): write it as"),
        (("b, 4", None), ("c <= 3",), "dynamic_constraints of product: there is no symbol c, which 'c' has"),
        (("b, 4", None), ("b <= 3", "b >= 4"), "dynamic_constraints of product: the symbol b has no value from 4 to 3"),
        (({"a": "b, 4"}, None), (), "dynamic: {'a': 'b, 4'} is not built as argument x of product is"),
        ((3, None), (), "dynamic: the spec of argument x of product is a text such as 'b, 128', not 3"),
        ((None, "4, ..., n"), (), "dynamic: '4, ..., n' has not as many dimensions as argument w of product, which"),
        (None, ("b <= 3",), "tw.jit of product: dynamic_constraints are about sizes that dynamic= opens"),
    ],
)  # fmt: skip
def test_specs_that_make_no_sense_are_one_sentence(dynamic: Any, constraints: Any, said: str) -> None:
    with pytest.raises(tw.CompileError, match=f"^{re.escape(said)}") as error:
        tw.jit(product, dynamic=dynamic, dynamic_constraints=constraints)(ones(3, 4), ones(4, 5))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["ceildiv(n, 4)", "2*ceildiv(n + 1, 4)*m", "(n + 1)*(m + 2)", "n*n - 3*n*m + 5", "max(n, ceildiv(m, 3)) - n"],
)
def test_jax_and_tilewright_read_each_other(text: str) -> None:
    symbols = {name: Symbol(name, 1) for name in "nm"}
    ((dim,),) = symbolic_shapes([(text,)], [f"n >= {text}"], "dynamic")
    assert parse_size(str(dim), symbols) == parse_size(text, symbols)
