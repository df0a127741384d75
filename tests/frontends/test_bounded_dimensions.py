"""StableHLO whose dimensions have bounds: sizes that are computed, and what the graph level makes of them."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.dialects.graph.extents import extents_of
from tilewright.dialects.module import find_main, is_bounded
from tilewright.frontends import lower_stablehlo

TYPE = "tensor<?x3xf32, #stablehlo.bounds<16, ?>>"
MARKED = """
func.func @main(%x: tensor<16x3xf32>, %n: tensor<i32>, %s: tensor<f32>) -> (TYPE, tensor<i32>) {
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<16x3xf32>, tensor<i32>) -> TYPE
  %size = stablehlo.get_dimension_size %0, dim = 0 : (TYPE) -> tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<1xi32>
  %first = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %first, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %s, %shape, dims = [] : (tensor<f32>, tensor<2xi32>) -> TYPE
  %1 = stablehlo.add %0, %b : TYPE
  return %1, %size : TYPE, tensor<i32>
}
""".replace("TYPE", TYPE)


@pytest.mark.parametrize("n", [0, 5, 16, 40])
def test_set_dimension_size(n: int) -> None:
    x = np.arange(48, dtype=np.float32).reshape(16, 3)
    program = marked()
    assert program.output_types == ("f32[<=16, 3]", "i32[]")
    found, size = program(x, np.int32(n), np.float32(2))
    np.testing.assert_array_equal(found, x[:n] + 2)
    assert size == min(n, 16)


@cache
def marked() -> tw.Program:
    return tw.compile(MARKED)


def test_a_bounded_argument_may_be_marked() -> None:
    text = f"""
    func.func @main(%x: {TYPE}, %n: tensor<i32>) -> {TYPE} {{
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : ({TYPE}, tensor<i32>) -> {TYPE}
      %1 = stablehlo.negate %0 : {TYPE}
      return %1 : {TYPE}
    }}"""
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(tw.compile(text)(x, np.int32(2)), -x[:2])


@pytest.mark.parametrize("to", [(1, 1, 4), (1, 1, 2, 2), (1, 1, 1, 4)])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("n", [0, 1])
def test_of_several_dimensions_of_one_each_keeps_its_place(to: tuple[int, ...], dim: int, n: int) -> None:
    def cut(x: jax.Array, n: jax.Array) -> jax.Array:
        return tw.bounded(x, n, dim).reshape(to)

    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    found = tw.compile(lambda x, n: cut(x, n) + 1, x, np.int32(0))(x, np.int32(n))
    np.testing.assert_array_equal(found, x.reshape(to).take(range(n), axis=dim) + 1)


def test_what_runs_on_the_host_takes_no_bounded_types() -> None:
    text = f"""
    func.func @main(%x: tensor<16x3xf32>, %n: tensor<i32>) -> {TYPE} {{
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<16x3xf32>, tensor<i32>) -> {TYPE}
      %1 = stablehlo.convert %0 : ({TYPE}) -> {TYPE.replace("f32", "f64")}
      %2 = stablehlo.sine %1 : {TYPE.replace("f32", "f64")}
      %3 = stablehlo.convert %2 : ({TYPE.replace("f32", "f64")}) -> {TYPE}
      return %3 : {TYPE}
    }}"""
    with pytest.raises(
        tw.CompileError, match=r"^'stablehlo.convert' \(-:4\) runs on the host, which takes whole tensors"
    ):
        tw.compile(text)


def lowered(text: str) -> ModuleOp:
    module = lower_stablehlo(text)
    module.verify()
    return module


def body(*lines: str, result: str) -> str:
    """A program that marks %x, f32[16, 3], as %0, and goes on with these lines; it gives %r, of type `result`."""
    set_ = f"%0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<16x3xf32>, tensor<i32>) -> {TYPE}"
    inside = "\n".join([set_, *lines, f"return %r : {result}"])
    return f"func.func @main(%x: tensor<16x3xf32>, %n: tensor<i32>) -> {result} {{\n{inside}\n}}"


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk()]


def test_only_what_needs_it_is_padded() -> None:
    kept = lowered(body(f"%r = stablehlo.tanh %0 : {TYPE}", result=TYPE))
    assert "graph.select" not in names(kept)
    columns = "%c = stablehlo.constant dense<0.0> : tensor<f32>"
    reduce = "%r = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions"
    along = lowered(
        body(columns, f"{reduce} = [0] : ({TYPE}, tensor<f32>) -> tensor<3xf32>", result="tensor<3xf32>")
    )
    assert names(along).count("graph.select") == 1
    rows = "tensor<?xf32, #stablehlo.bounds<16>>"
    across = lowered(body(columns, f"{reduce} = [1] : ({TYPE}, tensor<f32>) -> {rows}", result=rows))
    assert "graph.select" not in names(across)
    for module, count in ((kept, 1), (along, 0), (across, 1)):
        main = find_main(module)
        assert main is not None
        assert is_bounded(module) and len(extents_of(main)) == count


def test_a_size_that_is_known_bounds_nothing_where_it_is_all() -> None:
    full = body(f"%r = stablehlo.tanh %0 : {TYPE}", result=TYPE).replace("%n, dim", "%c, dim")
    full = full.replace("{\n", "{\n%c = stablehlo.constant dense<16> : tensor<i32>\n", 1)
    module = lowered(full)
    assert not is_bounded(module)


def test_dimensions_without_a_bound_are_refused() -> None:
    text = body(f"%r = stablehlo.tanh %0 : {TYPE}", result=TYPE).replace(", #stablehlo.bounds<16, ?>", "")
    with pytest.raises(
        tw.CompileError, match=r"has the dynamic shape tensor<\?x3xf32>; shapes must be static"
    ):
        tw.compile(text)


def test_a_dimension_that_there_is_not() -> None:
    text = body(f"%r = stablehlo.tanh %0 : {TYPE}", result=TYPE).replace("dim = 0", "dim = 2")
    with pytest.raises(tw.CompileError, match="not valid StableHLO"):
        tw.compile(text)
