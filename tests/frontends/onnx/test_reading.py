"""Models that cannot be read, or are not what they should be: one sentence each, and bounded memory."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model_of, parsed
from tiering import ALL

import tilewright as tw

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def small() -> onnx.ModelProto:
    """A model with initializers, sizes that are computed, and an open dimension."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Add", ["x", "c"], ["h"], name="/fc/Add"),
        helper.make_node("Tanh", ["h"], ["t"], name="/act/Tanh"),
        helper.make_node("Shape", ["t"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["rows"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["rows", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["t", "shape"], ["y"], name="/flat/Reshape"),
    ]
    weights = [
        numpy_helper.from_array(rng.normal(size=(4, 5)).astype("f4"), "c"),
        numpy_helper.from_array(np.array([0]), "zero"),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 20])
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def refusal(source: object, *args: object) -> str:
    """The sentence that a source is refused with."""
    with pytest.raises(tw.CompileError) as caught:
        tw.compile(source, *args)  # pyright: ignore[reportArgumentType]
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 700
    return said


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_an_open_dimension_of_a_model_is_one_of_the_program() -> None:
    program = tw.compile(small())
    assert isinstance(program, tw.DynamicProgram)
    for n in (1, 7):
        x = np.full((n, 4, 5), 0.5, np.float32)
        weights = numpy_helper.to_array(small().graph.initializer[0])
        np.testing.assert_allclose(program(x), np.tanh(x + weights).reshape(n, 20), rtol=1e-5)


def test_a_path_a_proto_and_example_inputs(tmp_path: Path) -> None:
    x = np.ones((2, 4, 5), np.float32)
    want = np.asarray(tw.compile(small(), x)(x))
    np.testing.assert_array_equal(tw.compile(saved(small(), tmp_path), x)(x), want)
    np.testing.assert_array_equal(tw.compile(str(saved(small(), tmp_path)), x)(x), want)
    assert tw.verify(small(), x).ok


def test_weights_as_arguments() -> None:
    fn = tw.onnx_function(small(), weights_as_arguments=True)
    assert list(fn.weights) == ["c"]
    x = np.ones((2, 4, 5), np.float32)
    zero = {"c": np.zeros((4, 5), np.float32)}
    want = np.asarray(tw.compile(small(), x)(x))
    for program in (tw.compile(fn, x), tw.compile(fn)):
        np.testing.assert_allclose(program(x), want, rtol=1e-6)
        np.testing.assert_allclose(program(x, weights=zero), np.tanh(x).reshape(2, 20), rtol=1e-6)
    packed = tw.compile(fn, x, options=tw.Options(weights=("weights",)))
    np.testing.assert_allclose(packed(x, weights=packed.pack(weights=fn.weights)), want, rtol=1e-6)
    assert tw.verify(fn, x).ok


def test_inputs_that_decide_shapes_are_compiled_in() -> None:
    model = model_of("Reshape", [X, np.array([4, 3])])
    program = tw.compile(model, X, np.array([2, 6]))
    np.testing.assert_array_equal(program(X), X.reshape(2, 6))
    assert "decides shapes by the value of x1: give its value" in refusal(model)


def test_what_decides_an_inner_value_is_named() -> None:
    text = "g (int64[2] s, float[3,4] x) => (float[A,B] y) { t = Neg(s) u = Neg(t) y = Reshape(x, u) }"
    said = refusal(parsed(text))
    assert "by the value of u, which follows from s: give the value of s, as an example input" in said


def test_no_such_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.onnx").endswith("none.onnx: no such file")


def test_a_truncated_file(tmp_path: Path) -> None:
    content = small().SerializeToString()
    path = tmp_path / "cut.onnx"
    for n in range(0, len(content), 7):
        path.write_bytes(content[:n])
        assert "cut.onnx" in refusal(path)


@pytest.mark.parametrize("seed", range(1000 if ALL else 150))
def test_flipped_bits(seed: int, tmp_path: Path) -> None:
    """What a few flipped bits leave is read, or refused in one sentence; nothing else is raised."""
    rng = np.random.default_rng(seed)
    content = np.frombuffer(small().SerializeToString(), np.uint8).copy()
    places = rng.integers(0, content.size, rng.integers(1, 4))
    content[places] ^= np.uint8(1) << rng.integers(0, 8, places.size).astype(np.uint8)
    path = tmp_path / "model.onnx"
    path.write_bytes(content.tobytes())
    said = ""
    try:
        tw.compile(path, np.ones((2, 4, 5), np.float32))
    except tw.CompileError as error:
        said = str(error)
    assert "\n" not in said


def test_a_cycle(tmp_path: Path) -> None:
    model = small()
    model.graph.node[0].input[1] = "t"
    assert "not a valid ONNX model" in refusal(saved(model, tmp_path))


def test_an_op_that_is_none(tmp_path: Path) -> None:
    model = small()
    model.graph.node[1].op_type = "Tahn"
    said = refusal(saved(model, tmp_path))
    assert "Tahn" in said
    assert "model.onnx" in said
    model.graph.node[1].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    said = refusal(saved(model, tmp_path), np.ones((2, 4, 5), np.float32))
    assert "Tahn '/act/Tanh' (float32[2,4,5]) is not supported: com.example.Tahn has no rule" in said


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("LayerNormalization<stash_type = 0>(x, s)", "with stash_type = 0: 0 is no element type"),
        ("LayerNormalization<stash_type = 7>(x, s)", "stash_type 7 is no type of floats"),
        ("RMSNormalization<stash_type = 8>(x, s)", "stash_type 8 is no type of floats"),
        ("Cast<to = 99>(x)", "with to = 99: 99 is no element type"),
        ("EyeLike<dtype = 0>(x)", "with dtype = 0: 0 is no element type"),
        ("Softmax<axis = 9>(x)", "axis 9 has no place in 2 dimensions"),
        ("DepthToSpace<blocksize = 0>(x)", "with blocksize = 0: "),
    ],
)
def test_an_attribute_that_does_not_fit_is_named(node: str, says: str) -> None:
    model = parsed(f"g (float16[4, 2] x, float16[2] s) => (float16[4, 2] y) {{ y = {node} }}", 23)
    said = refusal(model)
    assert says in said
    assert said.startswith(f"g: {node.partition('<')[0]} 'y' (float16[4,2]")


@pytest.mark.parametrize("opset", [0, 29, 1000])
def test_another_opset(opset: int, tmp_path: Path) -> None:
    model = small()
    model.opset_import[0].version = opset
    assert "opset" in refusal(saved(model, tmp_path))


def _external(place: str, folder: Path) -> Path:
    """A model whose weights are in a file beside it."""
    model = small()
    tensor = model.graph.initializer[0]
    (folder / "weights.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", place
    return saved(model, folder)


def test_external_data(tmp_path: Path) -> None:
    x = np.ones((2, 4, 5), np.float32)
    path = _external("weights.bin", tmp_path)
    np.testing.assert_array_equal(tw.compile(path, x)(x), tw.compile(small(), x)(x))
    assert tw.verify(path, x, quick=True).ok
    (tmp_path / "weights.bin").unlink()
    assert "no such file" in refusal(path, x) or "not exist" in refusal(path, x)


@pytest.mark.parametrize("place", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", ""])
def test_external_data_outside_of_the_folder(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(80))
    said = refusal(_external(place, folder), np.ones((2, 4, 5), np.float32))
    assert "'c'" in said or "c" in said


def test_a_tensor_of_2_gib_takes_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for dims in ([1 << 29], [1 << 40], [-5], [1 << 20, 1 << 20, 1 << 20]):
        model = small()
        tensor = model.graph.initializer[0]
        del tensor.dims[:]
        tensor.dims.extend(dims)
        assert "model.onnx" in refusal(saved(model, tmp_path), np.ones((2, 4, 5), np.float32))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_inputs_that_do_not_fit() -> None:
    assert "input x of small must be f32[batch,4,5], got f32[2,4,6]" in refusal(
        small(), np.ones((2, 4, 6), np.float32)
    )
    assert "got f16[2,4,5]" in refusal(small(), np.ones((2, 4, 5), np.float16))
    assert "too many positional arguments" in refusal(small(), np.ones((2, 4, 5), np.float32), 1)


def test_a_model_without_shapes_wants_example_inputs() -> None:
    model = small()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    said = refusal(model)
    assert "'x'" in said or "shape" in said


def test_nodes_are_places() -> None:
    x = np.ones((2, 4, 5), np.float32)
    report = tw.compile(small(), x).report()
    assert {k.source for k in report.kernels} == {"small:/act/Tanh"}
