"""StableHLO text, bytecode and portable artifacts through the frontend."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_reference import run, run_stablehlo
from jax import export
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp

import tilewright as tw
from tilewright.dialects.base import text as text_of
from tilewright.dialects.graph import ArgReduceOp, CaseOp, GatherOp, GraphOp, HostOp, ReduceOp
from tilewright.frontends import FrontendError, bindings, is_stablehlo, lower_stablehlo

ADD = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
RNG = np.random.default_rng(0)


def convert(text: str) -> ModuleOp:
    module = lower_stablehlo(text, "model.mlir")
    module.verify()
    return module


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if isinstance(op, GraphOp)]


def check(text: str, *inputs: Any) -> list[str]:
    """Compare with XLA; the names of the graph ops."""
    module = convert(text)
    for got, want in zip(run(module, inputs), run_stablehlo(text, inputs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    return names(module)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def reduce_text(body: str, init: str = "0.0") -> str:
    return f"""func.func @main(%a: tensor<4x5xf32>) -> tensor<5xf32> {{
      %init = stablehlo.constant dense<{init}> : tensor<f32>
      %0 = stablehlo.reduce(%a init: %init) across dimensions = [0]
          : (tensor<4x5xf32>, tensor<f32>) -> tensor<5xf32> reducer(%p: tensor<f32>, %q: tensor<f32>) {{
        {body}
        stablehlo.return %r : tensor<f32>
      }}
      return %0 : tensor<5xf32>
    }}"""


MAXIMUM = "%r = stablehlo.maximum %p, %q : tensor<f32>"


@pytest.mark.parametrize(
    ("body", "init", "expected"),
    [
        (MAXIMUM, "0xFF800000", ["graph.constant", "graph.reduce"]),
        (MAXIMUM, "0.5", ["graph.constant", "graph.reduce", "graph.broadcast", "graph.max"]),
        ("%r = stablehlo.add %q, %p : tensor<f32>", "-0.0", ["graph.constant", "graph.reduce"]),
        ("%r = stablehlo.multiply %p, %q : tensor<f32>", "1.0", ["graph.constant", "graph.reduce"]),
        # Not a scalar function of the graph level.
        (
            "%w = stablehlo.convert %q : (tensor<f32>) -> tensor<f64>\n"
            "%n = stablehlo.convert %w : (tensor<f64>) -> tensor<f32>\n"
            "%r = stablehlo.maximum %p, %n : tensor<f32>",
            "1.0",
            ["graph.constant", "graph.host"],
        ),
    ],
)
def test_reductions_are_recognised_by_their_bodies(body: str, init: str, expected: list[str]):
    text = reduce_text(body, init)
    assert names(convert(text)) == expected
    if "host" not in expected[-1]:
        check(text, floats(4, 5))


@pytest.mark.parametrize(
    ("element", "body", "given", "kinds"),
    [
        ("f32", "stablehlo.add %p, %q", "%r", ["sum"]),
        ("f32", "stablehlo.add %p, %p", "%r", []),
        ("f32", "stablehlo.add %p, %q", "%p", []),
        ("f32", "stablehlo.maximum %p, %q", "%r", ["max"]),
        ("i1", "stablehlo.add %p, %q", "%r", ["or"]),
    ],
)
def test_a_body_of_one_op_is_not_taken_for_another(element: str, body: str, given: str, kinds: list[str]) -> None:
    text = f"""func.func @main(%a: tensor<4x5xf32>, %b: tensor<4x5x{element}>, %j: tensor<{element}>)
        -> (tensor<5xf32>, tensor<5x{element}>) {{
      %i = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%a init: %i) across dimensions = [0]
          : (tensor<4x5xf32>, tensor<f32>) -> tensor<5xf32> reducer(%p: tensor<f32>, %q: tensor<f32>) {{
        %r = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %r : tensor<f32>
      }}
      %1 = stablehlo.reduce(%b init: %j) across dimensions = [0]
          : (tensor<4x5x{element}>, tensor<{element}>) -> tensor<5x{element}>
          reducer(%p: tensor<{element}>, %q: tensor<{element}>) {{
        %r = {body} : tensor<{element}>
        stablehlo.return {given} : tensor<{element}>
      }}
      return %0, %1 : tensor<5xf32>, tensor<5x{element}>
    }}"""
    found = [text_of(op.kind) for op in convert(text).walk() if isinstance(op, ReduceOp)]
    assert found == ["sum", *kinds]


ARGMAX = """func.func @main(%x: tensor<3x6xf32>) -> (tensor<3xf32>, tensor<3xi32>) {{
  %i = stablehlo.iota dim = {dim} : tensor<3x6xi32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1]
      : (tensor<3x6xf32>, tensor<3x6xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
      reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {{
    %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %1 = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.or %0, %1 : tensor<i1>
    %3 = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.compare {tie}, %j, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %5 = stablehlo.and %3, %4 : tensor<i1>
    %6 = stablehlo.or %2, %5 : tensor<i1>
    %7 = stablehlo.select %2, %a, %b : tensor<i1>, tensor<f32>
    %8 = stablehlo.select %6, %j, %k : tensor<i1>, tensor<i32>
    stablehlo.return %7, %8 : tensor<f32>, tensor<i32>
  }}
  return %r#0, %r#1 : tensor<3xf32>, tensor<3xi32>
}}"""


def test_argmax_is_matched_exactly():
    x = np.array([[1, 3, 3, 0, 2, -1], [1, np.nan, 5, np.nan, 0, 0], [-np.inf] * 6], np.float32)
    assert "graph.arg_reduce" in check(ARGMAX.format(dim=1, tie="LT"), x)


def test_a_reduction_of_nothing_is_where_it_starts():
    text = ARGMAX.format(dim=1, tie="LT").replace("3x6", "3x0")
    assert "graph.arg_reduce" not in check(text, np.zeros((3, 0), np.float32))


@pytest.mark.parametrize(("dim", "tie"), [(1, "GT"), (0, "LT")])
def test_what_only_looks_like_argmax_is_not(dim: int, tie: str):
    module = convert(ARGMAX.format(dim=dim, tie=tie))
    assert not [op for op in module.walk() if isinstance(op, ArgReduceOp)]
    assert not [op for op in module.walk() if isinstance(op, HostOp)]  # the body is written out


def test_several_reductions_in_one():
    text = """func.func @main(%a: tensor<4xf32>, %b: tensor<4xi32>) -> (tensor<f32>, tensor<i32>) {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.constant dense<3> : tensor<i32>
      %2:2 = stablehlo.reduce(%a init: %0), (%b init: %1) across dimensions = [0]
          : (tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
          reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<i32>, %s: tensor<i32>) {
        %3 = stablehlo.add %p, %q : tensor<f32>
        %4 = stablehlo.maximum %r, %s : tensor<i32>
        stablehlo.return %3, %4 : tensor<f32>, tensor<i32>
      }
      return %2#0, %2#1 : tensor<f32>, tensor<i32>
    }"""
    ops = check(text, floats(4), np.array([-4, 2, -9, 1], np.int32))
    assert ops.count("graph.reduce") == 2 and "graph.host" not in ops


def test_arithmetic_on_booleans_is_logic():
    text = """func.func @main(%a: tensor<4xi1>, %b: tensor<4xi1>) -> (tensor<4xi1>, tensor<4xi1>) {
      %0 = stablehlo.add %a, %b : tensor<4xi1>
      %1 = stablehlo.minimum %a, %b : tensor<4xi1>
      return %0, %1 : tensor<4xi1>, tensor<4xi1>
    }"""
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert check(text, a, b) == ["graph.or", "graph.and"]


def test_scalars_of_select_and_clamp_are_broadcast():
    text = """func.func @main(%p: tensor<i1>, %a: tensor<4xf32>, %l: tensor<f32>) -> tensor<4xf32> {
      %h = stablehlo.constant dense<0.5> : tensor<f32>
      %0 = stablehlo.clamp %l, %a, %h : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
      %1 = stablehlo.select %p, %0, %a : tensor<i1>, tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    for p in (True, False):
        ops = check(text, np.array(p), floats(4), np.float32(-0.25))
    assert ops.count("graph.broadcast") == 3 and ops[-1] == "graph.select"


def test_if_puts_the_true_branch_second():
    text = """func.func @main(%p: tensor<i1>, %a: tensor<f32>) -> tensor<f32> {
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.exponential %a : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }, {
        stablehlo.return %a : tensor<f32>
      }) : (tensor<i1>) -> tensor<f32>
      return %0 : tensor<f32>
    }"""
    for p in (True, False):
        check(text, np.array(p), np.float32(2))
    (case,) = [op for op in convert(text).walk() if isinstance(op, CaseOp)]
    assert [len(list(b.block.ops)) for b in case.branches] == [1, 2]


def test_calls_and_composites_are_inlined():
    text = """
    func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.add %x, %x : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = call @twice(%a) : (tensor<2xf32>) -> tensor<2xf32>
      %1 = call @twice(%0) : (tensor<2xf32>) -> tensor<2xf32>
      %2 = stablehlo.composite "my.op" %1 {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
      %3 = stablehlo.optimization_barrier %2 : tensor<2xf32>
      %4 = stablehlo.custom_call @Sharding(%3) : (tensor<2xf32>) -> tensor<2xf32>
      return %4 : tensor<2xf32>
    }"""
    module = convert(text)
    assert names(module) == ["graph.add"] * 3
    np.testing.assert_array_equal(run(module, [np.array([1, 2], np.float32)])[0], [8, 16])


def test_convolution_with_reversed_window():
    text = """func.func @main(%a: tensor<1x2x7xf32>, %w: tensor<4x2x3xf32>) -> tensor<1x4x4xf32> {
      %0 = stablehlo.convolution(%a, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
        window = {stride = [2], pad = [[2, 1]], rhs_dilate = [1], reverse = [true]}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x2x7xf32>, tensor<4x2x3xf32>) -> tensor<1x4x4xf32>
      return %0 : tensor<1x4x4xf32>
    }"""
    assert check(text, floats(1, 2, 7), floats(4, 2, 3)) == ["graph.reverse", "graph.conv"]


@pytest.mark.parametrize("index", ["i64", "ui32", "ui8", "i8", "i32"])
def test_wide_indices_are_saturated(index: str):
    text = f"""func.func @main(%a: tensor<5xf32>, %i: tensor<3x{index}>) -> tensor<3xf32> {{
      %0 = "stablehlo.gather"(%a, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}>
        : (tensor<5xf32>, tensor<3x{index}>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }}"""
    dtype = np.dtype({"u": "uint", "i": "int"}[index[0]] + index.lstrip("ui"))
    limit = np.iinfo(dtype).max
    check(text, floats(5), np.array([0, 3, limit], dtype))
    module = convert(text)
    (gather,) = [op for op in module.walk() if isinstance(op, GatherOp)]
    assert "i32" in str(gather.indices.type)


def test_host_modules_hold_captured_values_and_called_functions():
    text = """
    func.func private @before(%p: tensor<f32>, %q: tensor<f32>) -> tensor<i1> {
      %0 = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %0 : tensor<i1>
    }
    func.func @main(%a: tensor<6xf32>, %flip: tensor<f32>) -> tensor<6xf32> {
      %0 = "stablehlo.sort"(%a) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %1 = stablehlo.multiply %p, %flip : tensor<f32>
        %2 = stablehlo.add %q, %flip : tensor<f32>
        %3 = func.call @before(%1, %2) : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      }) : (tensor<6xf32>) -> tensor<6xf32>
      return %0 : tensor<6xf32>
    }"""
    (host,) = [op for op in convert(text).walk() if isinstance(op, HostOp)]
    assert host.op.data == "stablehlo.sort"
    assert [str(v.type) for v in host.inputs] == ["tensor<6xf32>", "tensor<f32>"]
    assert "@main(%arg0: tensor<6xf32>, %arg1: tensor<f32>) -> tensor<6xf32>" in host.module.data
    bindings.parse(host.module.data, None)  # raises where a value or @before is missing


def test_total_order_compares_bits_and_unknown_types_go_to_the_host():
    text = """func.func @main(
        %a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<2xf64>) -> (tensor<8xi1>, tensor<2xf64>) {
      %0 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
      %1 = stablehlo.add %c, %c : tensor<2xf64>
      return %0, %1 : tensor<8xi1>, tensor<2xf64>
    }"""
    a = np.array([-0.0, 0.0, -np.nan, np.nan, -1, -2, np.inf, 1e-40], np.float32)
    found = check(text, a, a[::-1].copy(), np.array([1.0, 2.0]))
    assert found.count("graph.host") == 1 and "graph.bitcast" in found


def test_shapes_that_follow_from_the_inputs_are_static():
    text = """func.func @main(%a: tensor<4x6xf32>) -> tensor<?x8xf32> {
      %s = stablehlo.constant dense<[3, 8]> : tensor<2xi32>
      %0 = stablehlo.dynamic_reshape %a, %s : (tensor<4x6xf32>, tensor<2xi32>) -> tensor<?x8xf32>
      %1 = stablehlo.tanh %0 : tensor<?x8xf32>
      return %1 : tensor<?x8xf32>
    }"""
    module, x = convert(text), floats(4, 6)
    assert names(module) == ["graph.reshape", "graph.tanh"]
    np.testing.assert_allclose(run(module, [x])[0], np.tanh(x.reshape(3, 8)), 1e-5)


FLOATS, INTEGERS = ["1.5", "-0.5", "2.0"], ["1", "0", "1"]
COMPLEX = ["(1.5, -0.5)", "(0.0, 1.0)", "(2.0, 2.0)"]


@pytest.mark.parametrize(
    ("element", "values"),
    [
        *((element, FLOATS) for element in ("bf16", "f8E4M3FN", "f8E5M2", "f64")),
        *((element, INTEGERS) for element in ("i4", "ui2", "i1", "ui64")),
        ("complex<f32>", COMPLEX),
    ],
)
def test_constants_of_every_element_type(element: str, values: list[str]):
    text = f"""func.func @main() -> (tensor<3x{element}>, tensor<2x2x{element}>) {{
      %0 = stablehlo.constant dense<[{", ".join(values)}]> : tensor<3x{element}>
      %1 = stablehlo.constant dense<{values[0]}> : tensor<2x2x{element}>
      return %0, %1 : tensor<3x{element}>, tensor<2x2x{element}>
    }}"""
    for got, want in zip(run(convert(text), []), run_stablehlo(text, []), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.complex128), want.astype(np.complex128))


def test_locations_are_lines_of_the_file():
    module = convert(ADD)
    (add,) = [op for op in module.walk() if isinstance(op, GraphOp)]
    location = add.location
    assert isinstance(location, FileLineColLoc)
    assert (location.filename.data, location.line.data) == ("model.mlir", 2)
    # An op with a region is appended after the region has been converted, and still has its own line.
    (*_, reduce) = [
        op for op in convert(reduce_text(MAXIMUM, "0xFF800000")).walk() if isinstance(op, GraphOp)
    ]
    assert isinstance(reduce.location, FileLineColLoc) and reduce.location.line.data == 3


def test_exported_programs():
    def fn(x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x, approximate=False) + jax.lax.erf(x)

    exported = export.export(jax.jit(fn))(jax.ShapeDtypeStruct((4, 8), jnp.float32))
    x = floats(4, 8)
    for source in (exported.mlir_module(), exported.mlir_module_serialized):
        assert is_stablehlo(source)
        module = lower_stablehlo(source)
        module.verify()
        np.testing.assert_allclose(run(module, [x])[0], fn(x), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_complement_of_erf_is_one_op_in_f32(dtype: str) -> None:
    x = jnp.asarray(np.linspace(-12, 12, 999), dtype)
    program = tw.compile(jax.lax.erfc, x)
    assert [op.name for op in program.module("npu").walk() if "erf" in op.name] == ["npu.verfc"]
    assert ("npu.vconvert" in program.ir("npu")) == (dtype != "float32")
    np.testing.assert_allclose(
        np.asarray(program(x), np.float64),
        np.asarray(jax.lax.erfc(x), np.float64),
        rtol=max(float(jnp.finfo(dtype).eps), 1e-5),
        atol=float(jnp.finfo(dtype).smallest_subnormal),
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hello world", r"^model\.mlir:1:1: not valid StableHLO: .*hello"),
        (ADD.replace("2xf32> {", "2xf32> {\n  oops"), r"^model\.mlir:2:3: not valid StableHLO"),
        (b"ML\xefR nonsense", r"^model\.mlir: not valid StableHLO"),
        (ADD.replace("@main", "@other"), r"^model\.mlir: the module has no function @main .*@other"),
        ("func.func private @main(tensor<2xf32>)", "declares @main, but does not define it"),
        (ADD.replace("<2x", "<?x"), r"\(model\.mlir:1\) has the dynamic shape tensor<\?xf32>"),
        (
            """func.func @main(%a: tensor<4xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
              %0 = stablehlo.dynamic_pad %a, %c, %n, %n, %n : (tensor<4xf32>)
            }""",
            r"^model\.mlir:2:\d+: not valid",
        ),
        (
            """func.func @main(%a: tensor<4xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
              %0 = stablehlo.dynamic_reshape %a, %n : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>
              return %0 : tensor<?xf32>
            }""",
            r"^'stablehlo\.dynamic_reshape' \(model\.mlir:2\) has the dynamic shape",
        ),
        (
            "func.func @main(%t: !stablehlo.token) -> !stablehlo.token { return %t : !stablehlo.token }",
            r"orders effects, as io_callback and ordered debug prints do",
        ),
    ],
)
def test_errors_are_one_sentence_with_the_place(source: str | bytes, message: str, capfd: Any):
    with pytest.raises(FrontendError, match=message) as caught:
        lower_stablehlo(source, "model.mlir")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ADD, True),
        (ADD.encode(), True),
        (b"ML\xefR\x00", True),
        ('%0 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>', True),
        ("%v, %i = chlo.top_k(%a, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)", True),
        ("%r:2 = stablehlo.reduce(%x init: %y)", True),
        ("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32>{ %0 = stablehlo.add %a, %a : tensor<4xf32>", True),
        ("func.func @main(%a: i1) -> i1{%0=stablehlo.not %a : i1 return %0 : i1}", True),
        ('func.func @main(%a: i1) { %0 = "stablehlo.not"(%a) : (i1) -> i1', True),
        ("^bb0(%a: i1): stablehlo.return %a : i1", True),
        ("%0 = call @f() : () -> i1 %1 = stablehlo.not %0 : i1", True),
        ('#loc = loc("http://x")\nfunc.func @f(%a: f32) { %0 = chlo.erf %a : f32', True),
        ('{name = "a \\" b"} %0 = mhlo.copy(%a)', True),
        ("module attributes {mhlo.num_partitions = 1 : i32} {}", False),
        ("func.func @main(%a: i1 {mhlo.unit}, %b: i1 {stablehlo.other, x}) {}", False),
        ("%0 = graph.abs %a {a = #stablehlo.precision<DEFAULT>} : !stablehlo.token", False),
        ('%0 = graph.abs %a : f32 loc("stablehlo.abs"(#loc1))', False),
        ('{name = "a \\" %0 = stablehlo.abs %a"}', False),
        ("// stablehlo.add %a, %a\nfunc.func @main() { return }", False),
        ("%0 = graph.add %a, %b : tensor<4xf32>", False),
        (
            '%0 = graph.host %a {module = "func.func @main() { stablehlo.add %a }", op = "stablehlo.sort"}',
            False,
        ),
        ("", False),
        (b"\xff\xfe binary", False),
    ],
)
def test_is_stablehlo(source: str | bytes, expected: bool):
    assert is_stablehlo(source) is expected
