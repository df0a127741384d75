"""Models that are invalid, or made to take much: refused in one sentence, or converted without memory and time."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx_models import outputs

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

HEAD = '<ir_version: 10, opset_import: ["" : 21, "d" : 1]>\n'
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = np.ones((1, 4, 8, 8), np.float32)


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def types_of(made: onnx.ModelProto, *inputs: Any) -> Any:
    """What JAX finds the function to give, without any value."""
    with jax.enable_x64(True):
        return jax.eval_shape(OnnxFunction(read_model(made)), *inputs)


def one(op: str, inputs: str = "float[2,3] x", output: str = "float[] y", given: Any = X) -> None:
    types_of(model(f"g ({inputs}) => ({output}) {{ y = {op} }}"), given)


INVALID = {
    "Tile by a negative number": (
        "g (float[2,3] x) => (float[] y) { s = Constant <value_ints = [-5,1]> () y = Tile (x, s) }",
        "its result would be of shape [-10, 3]",
    ),
    "Tile by too few": (
        "g (float[2,3] x) => (float[] y) { s = Constant <value_ints = [2]> () y = Tile (x, s) }",
        "1 repeats have no place in 2 dimensions",
    ),
    "Expand to 2^62": (
        "g (float[2,3] x) => (float[] y) "
        "{ s = Constant <value_ints = [4611686018427387904,2,3]> () y = Expand (x, s) }",
        f"no memory holds {6 * 2**62} elements",
    ),
    "ConstantOfShape of a negative size": (
        "g (float[2,3] x) => (float[] y) { s = Constant <value_ints = [-2]> () y = ConstantOfShape (s) }",
        "its result would be of shape [-2]",
    ),
    "Range without an end": (
        "g (float[2,3] x) => (float[] y) { a = Constant <value_float = 0.0> () "
        "b = Constant <value_float = 1.0> () y = Range (a, b, a) }",
        "its delta is 0",
    ),
    "OneHot of 2^62": (
        "g (float[2,3] x) => (float[] y) { i = Constant <value_ints = [1]> () "
        "d = Constant <value_int = 4611686018427387904> () "
        "v = Constant <value_floats = [0.0,1.0]> () y = OneHot (i, d, v) }",
        "no memory holds 4611686018427387904 elements",
    ),
    "Gather outside": (
        "g (float[2,3] x) => (float[] y) { i = Constant <value_ints = [0,7]> () y = Gather (x, i) }",
        "the index 7 is outside of a dimension of size 2",
    ),
    "GatherElements outside": (
        "g (float[2,3] x) => (float[] y) "
        "{ i = Constant <value = int64[1,1] {-4}> () y = GatherElements <axis = 1> (x, i) }",
        "the index -4 is outside of a dimension of size 3",
    ),
    "GatherND outside": (
        "g (float[2,3] x) => (float[] y) { i = Constant <value = int64[1,2] {0,3}> () y = GatherND (x, i) }",
        "the index 3 is outside of a dimension of size 3",
    ),
    "ScatterND outside": (
        "g (float[2,3] x) => (float[] y) { i = Constant <value = int64[1,2] {2,0}> () "
        "u = Constant <value_floats = [1.0]> () y = ScatterND (x, i, u) }",
        "the index 2 is outside of a dimension of size 2",
    ),
    "Split of more": (
        "g (float[2,3] x) => (float[] y, float[] z) "
        "{ s = Constant <value_ints = [2,2]> () y, z = Split <axis = 1> (x, s) }",
        "its parts are 4 elements of 3 in dimension 1",
    ),
    "Slice by steps of 0": (
        "g (float[2,3] x) => (float[] y) { a = Constant <value_ints = [0]> () "
        "b = Constant <value_ints = [2]> () y = Slice (x, a, b, a, a) }",
        "the step of dimension 0 is 0",
    ),
    "TopK of more": (
        "g (float[2,3] x) => (float[] y, int64[] z) { k = Constant <value_ints = [9]> () y, z = TopK (x, k) }",
        "it takes 9 of 3 elements",
    ),
    "an output of another type": (
        "g (float[2,3] x) => (int64[2,3] y) { y = Neg (x) }",
        "the output 'y' is float32, and int64 in the model",
    ),
    "an output of another rank": (
        "g (float[2,3] x) => (float[2,3,1] y) { y = Neg (x) }",
        "the output 'y' has 2 dimensions, and 3 in the model",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_models(name: str) -> None:
    text, said = INVALID[name]
    with pytest.raises(OnnxError) as caught:
        types_of(model(text), X)
    assert said in str(caught.value)


AXES = (
    "Softmax <axis = {}> (x)",
    "Concat <axis = {}> (x, x)",
    "Flatten <axis = {}> (x)",
    "ArgMax <axis = {}> (x)",
    "LayerNormalization <axis = {}> (x, x)",
    "Split <axis = {}, num_outputs = 1> (x)",
)


@pytest.mark.parametrize("axis", [2**40, 3, -3, -(2**40)])
@pytest.mark.parametrize("op", AXES)
def test_axes_that_there_are_not(op: str, axis: int) -> None:
    output = "int64[] y" if "ArgMax" in op else "float[] y"
    with pytest.raises(OnnxError, match=f"axis {axis} has no place in 2 dimensions"):
        one(op.format(axis), output=output)


@pytest.mark.parametrize("axes", [[2**40], [2], [-3]])
@pytest.mark.parametrize("op", ["ReduceSum", "Squeeze"])
def test_lists_of_axes_that_there_are_not(op: str, axes: list[int]) -> None:
    text = f"g (float[2,3] x) => (float[] y) {{ a = Constant <value_ints = {axes}> () y = {op} (x, a) }}"
    with pytest.raises(OnnxError, match=f"axis {axes[0]} has no place in 2 dimensions"):
        types_of(model(text), X)


WINDOWS = {
    "strides = [0, 1]": "strides is [0, 1]: it takes 2 numbers of 1 or more",
    "strides = [1]": "strides is [1]: it takes 2 numbers of 1 or more",
    "dilations = [1, -1]": "dilations is [1, -1]",
    "pads = [1, 1]": "pads is [1, 1]: it takes 4 numbers",
    "strides = [1, 1099511627776]": "strides is [1, 1099511627776]",
    'auto_pad = "WAT"': "auto_pad is 'WAT': it is one of NOTSET, VALID, SAME_UPPER, SAME_LOWER",
    "kernel_shape = [5, 3]": "kernel_shape is [5, 3], and its weights are for [3, 3]",
    "group = 0": "0 groups with weights for 2 channels each do not go with 4 channels",
    "group = 3": "3 groups with weights for 2 channels each do not go with 4 channels",
}


@pytest.mark.parametrize("attributes", WINDOWS)
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool"])
def test_windows_that_there_are_not(attributes: str, op: str) -> None:
    said = WINDOWS[attributes]
    given = attributes if "group" in attributes else f"group = 2, {attributes}"
    if op == "MaxPool":
        if "kernel" in attributes or "group" in attributes:
            return
        given = f"kernel_shape = [3, 3], {attributes}"
    if op == "ConvTranspose" and "group" in attributes:
        said = f"weights for 4 channels in {attributes[-1]} groups do not go with 4"
    w = {"Conv": ", w", "ConvTranspose": ", v", "MaxPool": ""}[op]
    text = (
        "g (float[1,4,8,8] x, float[6,2,3,3] w, float[4,3,3,3] v) => (float[] y) "
        f"{{ y = {op} <{given}> (x{w}) }}"
    )
    with pytest.raises(OnnxError) as caught:
        types_of(model(text), IMAGE, np.ones((6, 2, 3, 3), "f"), np.ones((4, 3, 3, 3), "f"))
    assert said in str(caught.value)


# -- memory and time -----------------------------------------------------------------------------------------

LARGE = {
    "ConstantOfShape": "s = Constant <value_ints = [1073741824]> () z = ConstantOfShape (s)",
    "Range": "a = Constant <value_float = 0.0> () b = Constant <value_float = 1e9> () "
    "d = Constant <value_float = 1.0> () z = Range (a, b, d)",
    "Expand": "a = Constant <value_floats = [1.0]> () s = Constant <value_ints = [1000000000]> () z = Expand (a, s)",
    "Tile": "a = Constant <value_floats = [1.0]> () s = Constant <value_ints = [1000000000]> () z = Tile (a, s)",
    "OneHot": "i = Constant <value_ints = [1]> () d = Constant <value_int = 1000000000> () "
    "v = Constant <value_floats = [0.0,1.0]> () z = OneHot (i, d, v)",
    "Pad": "a = Constant <value_floats = [1.0]> () p = Constant <value_ints = [0,1000000000]> () z = Pad (a, p)",
    "an outer sum": "s = Constant <value_ints = [100000,1]> () t = Constant <value_ints = [1,100000]> () "
    "a = ConstantOfShape (s) b = ConstantOfShape (t) z = Add (a, b)",
    "Gather": "s = Constant <value_ints = [4,100000]> () a = ConstantOfShape (s) "
    "t = Constant <value_ints = [20000]> () i = ConstantOfShape <value = int64[1] {1}> (t) z = Gather (a, i)",
    "doubled 30 times": "s0 = Constant <value_floats = [1.0]> () "
    + " ".join(f"s{i + 1} = Concat <axis = 0> (s{i}, s{i})" for i in range(30))
    + " z = Identity (s30)",
}


@pytest.mark.parametrize("name", LARGE)
def test_large_values_are_made_where_the_program_runs(name: str) -> None:
    made = model(
        f"g (float[2,3] x) => (float[2,3] y) {{ {LARGE[name]} "
        "r = ReduceMax <keepdims = 0> (z) y = Add (x, r) }"
    )
    tracemalloc.start()
    try:
        found = types_of(made, X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (2, 3)
    assert peak < 100e6


def test_an_output_of_no_type_that_there_is() -> None:
    made = model("g (float[2,3] x) => (float[2,3] y) { y = Neg (x) }")
    made.graph.output[0].type.tensor_type.elem_type = 99
    with pytest.raises(OnnxError, match="the type of the output 'y'"):
        types_of(made, X)


def test_small_values_stay_known() -> None:
    """A size that is computed with them decides a shape."""
    made = model(
        "g (float[2,1] x) => (float[m,n] y) { s = Constant <value_ints = [3]> () "
        "a = ConstantOfShape <value = int64[1] {2}> (s) t = Constant <value_ints = [2]> () "
        "r = Tile (a, t) n = ReduceSum <keepdims = 1> (r) y = Expand (x, n) }"
    )
    assert types_of(made, X[:, :1]).shape == (2, 12)


def nested(depth: int, trips: int) -> str:
    """Loops within each other that double a number."""
    inner = "vo = Add (v, v)"
    for k in reversed(range(depth)):
        inner = (
            f"vo = Loop (m, t, v) <body = b{k} (int64 i{k}, bool c{k}, int64 v) => (bool d{k}, int64 vo) "
            f"{{ d{k} = Identity (c{k}) {inner} }}>"
        )
    return (
        f"g (float[2,3] x) => (float[2,3] y) {{ m = Constant <value_int = {trips}> () "
        f"t = Constant <value = bool {{1}}> () v = Constant <value_int = 1> () {inner} "
        "f = Cast <to = 1> (vo) y = Add (x, f) }"
    )


def test_nested_loops_of_known_numbers() -> None:
    began = time.process_time()
    types_of(model(nested(3, 200)), X)
    assert time.process_time() - began < 10
    (got,) = outputs(model(nested(2, 3)), X)
    np.testing.assert_array_equal(got, X + 2**9)


def test_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loop looks at its body more than once before it runs it."""
    monkeypatch.setattr("tilewright.frontends.onnx.walk.MOST_REPEATED", 400)
    with pytest.raises(OnnxError, match=r"more than \d+ nodes are run, each step of a loop on its own"):
        types_of(model(nested(16, 200)), X)


def functions(count: int, calls: int = 2, first: str = "Neg") -> str:
    """Functions of which each calls the one before so often."""
    text = f"g (float[2,3] x) => (float[2,3] y) {{ y = d.f{count - 1} (x) }}\n"
    for k in range(count):
        op = f"d.f{k - 1}" if k else first
        names = ["a", *(f"b{i}" for i in range(calls - 1)), "c"]
        nodes = " ".join(f"{names[i + 1]} = {op} ({names[i]})" for i in range(calls))
        text += f'<domain: "d", opset_import: ["" : 21, "d" : 1]>\nf{k} (a) => (c) {{ {nodes} }}\n'
    return text


def test_functions_that_stand_for_many_nodes() -> None:
    with pytest.raises(
        OnnxError, match="with its functions in the places of their calls it has 1,048,576 nodes"
    ):
        read_model(model(functions(20)))
    with pytest.raises(OnnxError, match="Cycle detected in model-local function references"):
        read_model(model(functions(4, calls=1, first="d.f3")))
    (got,) = outputs(model(functions(4)), X)
    np.testing.assert_array_equal(got, X)


# -- external data -------------------------------------------------------------------------------------------


def external(name: str, folder: Path, array: np.ndarray) -> onnx.TensorProto:
    """A tensor whose data is in a file."""
    (folder / "data.bin").write_bytes(array.tobytes())
    made = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=array.shape)
    made.data_location = made.EXTERNAL
    for key, value in (("location", "data.bin"), ("offset", "0"), ("length", str(array.nbytes))):
        made.external_data.add(key=key, value=value)
    return made


@pytest.mark.parametrize("where", ["initializer", "attribute", "function"])
def test_external_data_and_an_output_without_a_shape(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of tensors inside functions, from another working directory."""
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    tensor = external("w", folder, 10 * X)
    x, y = (
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [2, 3]), ("y", None))
    )
    constant, add = (
        helper.make_node("Constant", [], ["w"], value=tensor),
        helper.make_node("Add", ["x", "w"], ["y"]),
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
    if where == "initializer":
        graph = helper.make_graph([add], "g", [x], [y], [tensor])
    elif where == "attribute":
        graph = helper.make_graph([constant, add], "g", [x], [y])
    else:
        graph = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="d")], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    if where == "function":
        made.functions.append(helper.make_function("d", "f", ["x"], ["y"], [constant, add], opsets))
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    fn = OnnxFunction(read_model(folder / "m.onnx"))
    np.testing.assert_array_equal(jax.jit(fn)(X), 11 * X)
    (folder / "data.bin").unlink()
    with pytest.raises(OnnxError, match=r"the data of 'w' is in 'data\.bin', and there is no such file"):
        read_model(folder / "m.onnx")
