"""Functions of a model: their attributes, defaults and scopes, wherever they are called."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from onnx_models import outputs

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

X = np.array([-2, -1, 1, 2], np.float32)
HALF = np.array([-1, -0.5, 1, 2], np.float32)

LEAK = """
<domain: "my", opset_import: ["" : 21]>
leak <slope: float = 0.5> (x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }"""

OPTIONAL = """
<domain: "my", opset_import: ["" : 21, "my" : 1]>
optional <slope> (x) => (y) { y = my.leak<slope: float = @slope>(x) }"""

BRANCH = """
<domain: "my", opset_import: ["" : 21, "my" : 1]>
branch <slope: float = 0.5> (x) => (y) {
  c = Constant<value = bool {1}>()
  y = If(c) <then_branch = t () => (float[4] a) { a = my.leak<slope: float = @slope>(x) },
             else_branch = e () => (float[4] b) { b = LeakyRelu<alpha: float = @slope>(x) }> }"""


def model(nodes: str, functions: str) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "my" : 1]>\n'
        f"g (float[4] x) => (float[4] y) {{ {nodes} }}{functions}"
    )


CASES = {
    "left out": ("y = my.leak(x)", LEAK, HALF),
    "given": ("y = my.leak<slope = 0.25>(x)", LEAK, np.where(X < 0, X / 4, X)),
    "through a function that is not given it": ("y = my.optional(x)", OPTIONAL + LEAK, HALF),
    "through a function that is": (
        "y = my.optional<slope = 0.25>(x)",
        OPTIONAL + LEAK,
        np.where(X < 0, X / 4, X),
    ),
    "of an op, whose own default it is": (
        "y = my.bare(x)",
        '<domain: "my", opset_import: ["" : 21]> bare <a> (x) => (y) { y = LeakyRelu<alpha: float = @a>(x) }',
        np.where(X < 0, X * np.float32(0.01), X),
    ),
    "within a branch": ("y = my.branch(x)", BRANCH + LEAK, HALF),
    "called in a branch": (
        """c = Constant<value = bool {1}>()
        y = If(c) <then_branch = t () => (float[4] a) { a = my.leak(x) },
                   else_branch = e () => (float[4] b) { b = Neg(x) }>""",
        LEAK,
        HALF,
    ),
    "ints": (
        "y = my.whole(x)",
        """<domain: "my", opset_import: ["" : 21]>
        whole <shape: ints = [2, 2], axis: int = 0> (x) => (y) {
          s = Constant<value_ints: ints = @shape>() z = Reshape(x, s)
          i = Constant<value_int: int = @axis>() t = CumSum(z, i) n = Shape(x) y = Reshape(t, n) }""",
        X.reshape(2, 2).cumsum(0).reshape(4),
    ),
    "floats": (
        "y = my.add(x)",
        """<domain: "my", opset_import: ["" : 21]>
        add <by: floats = [1.0, 2.0, 3.0, 4.0]> (x) => (y) {
          c = Constant<value_floats: floats = @by>() y = Add(x, c) }""",
        X + np.array([1, 2, 3, 4], np.float32),
    ),
    "a string": (
        "y = my.shift(x)",
        """<domain: "my", opset_import: ["" : 21]>
        shift <how: string = "LEFT"> (x) => (y) {
          a = Abs(x) i = Cast<to = 12>(a) s = BitShift<direction: string = @how>(i, i) y = Cast<to = 1>(s) }""",
        np.array([8, 2, 2, 8], np.float32),
    ),
    "a name that is an op's": (
        "y = my.Relu(x)",
        '<domain: "my", opset_import: ["" : 21]> Relu (x) => (y) { y = Neg(x) }',
        -X,
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_attributes_of_functions(case: str) -> None:
    nodes, functions, want = CASES[case]
    proto = model(nodes, functions)
    (got,) = outputs(proto, X)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(OnnxFunction(read_model(proto)).reference(X), want)


def test_a_tensor_as_a_default() -> None:
    """The text form has no default tensors."""
    proto = model(
        "y = my.add(x)",
        """<domain: "my", opset_import: ["" : 21]>
        add <by> (x) => (y) { c = Constant<value: tensor = @by>() y = Add(x, c) }""",
    )
    (function,) = proto.functions
    del function.attribute[:]
    function.attribute_proto.append(
        helper.make_attribute("by", numpy_helper.from_array(np.float32([1, 2, 3, 4])))
    )
    (got,) = outputs(proto, X)
    np.testing.assert_array_equal(got, X + np.array([1, 2, 3, 4], np.float32))


def test_a_graph_as_an_attribute_sees_the_values_around_the_call() -> None:
    """A function gets a branch, which names values that are around its call."""
    proto = model(
        "h = Neg(x) y = my.choose(x)",
        """<domain: "my", opset_import: ["" : 21]>
        choose <then> (x) => (y) {
          h = Add(x, x) c = Constant<value = bool {1}>()
          y = If(c) <then_branch: graph = @then, else_branch = e () => (float[4] b) { b = Identity(h) }> }""",
    )
    branch = parser.parse_graph("t () => (float[4] a) { a = Identity(h) }")
    proto.graph.node[1].attribute.append(helper.make_attribute("then", branch))
    (got,) = outputs(proto, X)
    np.testing.assert_array_equal(got, -X)


def test_a_function_that_calls_itself_is_refused() -> None:
    proto = model(
        "y = my.again(x)", '<domain: "my", opset_import: ["my" : 1]> again (x) => (y) { y = my.again(x) }'
    )
    with pytest.raises(OnnxError, match="my::again -> my::again"):
        outputs(proto, X)
