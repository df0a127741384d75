"""Models as a whole: names, weights, types, sizes, files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_out import of_function, ops_of, refusals, written
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp
from xdsl.irdl import irdl_op_definition, operand_def, result_def

import tilewright as tw
from tilewright.backends.onnx import elementwise, module
from tilewright.backends.onnx.saving import save
from tilewright.backends.onnx.values import TYPES
from tilewright.dialects import make_context
from tilewright.dialects.dtypes import element_type, names, numpy_dtype, tensor
from tilewright.dialects.elementwise import FUNCTIONS, PARTS
from tilewright.dialects.graph import CaseOp, ElementwiseOp, FusionOp, Graph, GraphOp, WhileOp, YieldOp
from tilewright.dialects.text import parse_module

RNG = np.random.default_rng(0)
PARAMS = {"b": RNG.normal(size=7).astype("f4"), "w": RNG.normal(size=(5, 7)).astype("f4")}
X = RNG.normal(size=(3, 5)).astype("f4")


def layer(params: dict[str, Any], x: Any) -> dict[str, Any]:
    return {"y": jax.nn.relu(x @ params["w"] + params["b"]), "rows": (x.sum(1), x)}


def parsed(text: str) -> ModuleOp:
    return parse_module(make_context(), text, "test.mlir")


def test_every_op_has_a_form_or_a_reason() -> None:
    control = {WhileOp, CaseOp, FusionOp, YieldOp}
    for op in Graph.operations:
        assert issubclass(op, GraphOp | YieldOp)
        told = [module.RULES.of(op) is not None, any(issubclass(op, cls) for cls in module.WITHOUT), op in control]
        assert sum(told) == 1, f"{op.name} needs a rule in backends/onnx/module.py, or a reason in WITHOUT"


def test_every_function_has_a_form() -> None:
    tables: list[Any] = [elementwise.NODES, elementwise.COMPARISONS, elementwise.RULES]
    for name in FUNCTIONS:
        assert sum(name in table for table in tables) == 1, f"{name} needs one form in backends/onnx/elementwise.py"
    assert not {*PARTS} & {name for table in tables for name in table}


def test_names_are_those_of_arguments_and_results() -> None:
    program = tw.compile(layer, PARAMS, X)
    model = program.to_onnx()
    assert tuple(v.name for v in model.graph.input) == program.input_names == ("params['b']", "params['w']", "x")
    assert [v.name for v in model.graph.output] == ["['rows'][0]", "['rows'][1]", "['y']"]
    assert model.graph.name == program.source.name
    assert {node.doc_string for node in model.graph.node} >= {f"test_model.py:{layer.__code__.co_firstlineno + 1}"}
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


def test_results_that_are_inputs_and_equal_ones() -> None:
    model = of_function(lambda x: (x, x, x + 1, 2.0), X)
    got = ReferenceEvaluator(model).run(None, {"x0": X})
    for a, b in zip(got, (X, X, X + 1, np.float32(2)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_become_initializers(tmp_path: Path) -> None:
    program = tw.compile(layer, PARAMS, X)
    model = program.to_onnx(weights={"params": PARAMS})
    assert [v.name for v in model.graph.input] == ["x"]
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    np.testing.assert_array_equal(stored["params['w']"], PARAMS["w"])
    np.testing.assert_allclose(tw.compile(model)(X)[2], layer(PARAMS, X)["y"], rtol=1e-5)
    program_file = tmp_path / "layer.twm"
    tw.save(program, program_file, weights={"params": PARAMS})
    assert tw.load(program_file).to_onnx().graph.SerializeToString() == _named(model, "main")


def _named(model: onnx.ModelProto, name: str) -> bytes:
    model.graph.name = name
    return model.graph.SerializeToString()


def test_weights_that_do_not_fit() -> None:
    program = tw.compile(layer, PARAMS, X)
    for weights, said in (
        ({"p": 1}, "has no argument 'p'"),
        ({"params": {"w": PARAMS["w"]}}, "argument params of layer was compiled for"),
        ({"params": PARAMS | {"b": X}}, r"argument params\['b'\] of layer must be f32\[7\], got \(3, 5\)"),
    ):
        with pytest.raises(tw.CompileError, match=said):
            program.to_onnx(weights=weights)


def test_a_model_is_written_again_byte_for_byte() -> None:
    first, second = (tw.compile(layer, PARAMS, X).to_onnx(weights={"params": PARAMS}) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_types(dtype: str) -> None:
    """Elements of each type are moved, also where ONNX only has the op in a wider one; numbers are compared."""
    kind = f"tensor<3x5x{element_type(dtype)}>"
    moved = f"tensor<2x5x{element_type(dtype)}>"
    text = f"""
    func.func @main(%x: {kind}) -> {moved} {{
      %a = graph.slice %x {{starts = [1, 0], limits = [3, 5], strides = [1, 1]}} : ({kind}) -> {moved}
      %b = graph.reverse %a {{dims = [1]}} : {moved}
      func.return %b : {moved}
    }}"""
    model = written(parsed(text))
    x = RNG.integers(0, 2, (3, 5)).astype(numpy_dtype(dtype))
    (got,) = ReferenceEvaluator(model).run(None, {"x0": x})
    assert np.asarray(got).dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(got).astype("f8"), x[1:, ::-1].astype("f8"))


def test_types_that_onnx_does_not_have() -> None:
    left = {name for name in names() if name not in TYPES}
    assert left == {"c64", "c128", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ", "f6E2M3FN", "f6E3M2FN"}
    with pytest.raises(tw.CompileError, match=r"an input has elements of c64, which ONNX does not compute with$"):
        tw.compile(lambda x: x * 2, np.ones(3, np.complex64)).to_onnx()


@pytest.mark.parametrize("opset", range(21, 29))
def test_opsets(opset: int) -> None:
    model = of_function(lambda x: jax.nn.softmax(jnp.cumsum(x, 0) * (x > 0)), X, opset=opset)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]
    (got,) = ReferenceEvaluator(model).run(None, {"x0": X})
    np.testing.assert_allclose(got, jax.nn.softmax(np.cumsum(X, 0) * (X > 0)), rtol=1e-5)


def test_what_an_opset_does_not_have() -> None:
    program = tw.compile(lambda x: jax.lax.bitcast_convert_type(x, jnp.int32), X)
    assert ops_of(program.to_onnx()) == ["BitCast"]
    with pytest.raises(tw.CompileError, match=r"1 x 'graph.bitcast' needs BitCast, which opset 25 does not have"):
        program.to_onnx(opset=25)
    for opset in (20, 99):
        with pytest.raises(tw.CompileError, match=rf"ONNX is written in opsets from 21 to \d+, not {opset}$"):
            program.to_onnx(opset=opset)


def test_one_sentence_says_all_that_onnx_does_not_have() -> None:
    def fn(x: Any) -> Any:
        y = jnp.fft.fft(x).real + jnp.fft.fft(x + 1).real
        return y + jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(tw.CompileError) as caught:
        tw.compile(fn, X).to_onnx()
    said = str(caught.value)
    assert "\n" not in said and f"(first at {__file__}:{fn.__code__.co_firstlineno + 1})" in said
    assert refusals(said)["graph.real"] == 2
    assert any(op.startswith("stablehlo.fft") for op in refusals(said))


def test_a_program_that_begins_below_the_graph_level() -> None:
    with pytest.raises(tw.CompileError, match="starts at the npu level; ONNX says the graph level"):
        tw.compile(tw.compile(lambda x: x + 1, X).ir()).to_onnx()


def test_open_sizes_are_written_for_given_ones() -> None:
    program = tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 5"), "float32"))
    with pytest.raises(tw.CompileError, match="open sizes"):
        program.to_onnx()
    model = program.at(b=3).to_onnx()
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [3, 5]


def test_results_whose_sizes_depend_on_data() -> None:
    program = tw.compile(lambda x: tw.nonzero(x)[0] * 2, np.ones(11, np.int32))
    model = program.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param
    for share in (0, 0.5, 1):
        x = (RNG.random(11) < share).astype(np.int32)
        (got,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_array_equal(got, np.nonzero(x)[0] * 2)


QUANTIZED = """
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xi8>) -> tensor<4x6xf32> {
  %q = graph.quantize %x : (tensor<4x8xf32>) -> tensor<4x8x!graph.quantized<i8:f32, 0.05:3>>
  %k = graph.storage %w : (tensor<8x6xi8>) -> tensor<8x6x!graph.quantized<i8:f32:1, {0.5, 0.25, 1.0, 0.1, 0.2, 0.3}>>
  %p = graph.contract %q, %k {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : (tensor<4x8x!graph.quantized<i8:f32, 0.05:3>>, tensor<8x6x!graph.quantized<i8:f32:1, {0.5, 0.25, 1.0, 0.1, 0.2, 0.3}>>) -> tensor<4x6x!graph.quantized<i8<-127:127>:f32, 0.5>>
  %r = graph.requantize %p : (tensor<4x6x!graph.quantized<i8<-127:127>:f32, 0.5>>) -> tensor<4x6x!graph.quantized<ui8:f32, 2.0:128>>
  %y = graph.dequantize %r : (tensor<4x6x!graph.quantized<ui8:f32, 2.0:128>>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}"""  # noqa: E501


def test_quantized_numbers() -> None:
    """Values may be a step apart: ONNX divides by scales that we multiply by the reciprocals of."""
    from tilewright.backends.interpreter import run_graph

    source = parsed(QUANTIZED)
    model = written(source)
    x, w = RNG.normal(size=(4, 8)).astype("f4"), RNG.integers(-99, 99, (8, 6)).astype(np.int8)
    (got,) = ReferenceEvaluator(model).run(None, {"x0": x, "x1": w})
    (want,) = run_graph(source, x, w)
    assert np.abs(got - np.asarray(want)).max() <= 2.0
    assert {"QuantizeLinear", "DequantizeLinear", "MatMul"} <= {*ops_of(model)}


@pytest.mark.parametrize("blocks", ["{0:4}", "{0:2, 1:3}", "{0:8, 1:1}"])
def test_blocks_of_scales(blocks: str) -> None:
    from tilewright.backends.interpreter import run_graph

    grid = {"{0:4}": "2", "{0:2, 1:3}": "4x2", "{0:8, 1:1}": "1x6"}[blocks]
    kind = f"tensor<8x6x!graph.quantized<i4:f32:{blocks}, ?>>"
    text = f"""
    func.func @main(%x: tensor<8x6xf32>, %s: tensor<{grid}xf32>) -> tensor<8x6xf32> {{
      %q = graph.quantize %x, %s : (tensor<8x6xf32>, tensor<{grid}xf32>) -> {kind}
      %y = graph.dequantize %q, %s : ({kind}, tensor<{grid}xf32>) -> tensor<8x6xf32>
      func.return %y : tensor<8x6xf32>
    }}"""
    source = parsed(text)
    x, s = RNG.normal(size=(8, 6)).astype("f4"), 2.0 ** RNG.integers(-3, 1, [int(n) for n in grid.split("x")])
    (got,) = ReferenceEvaluator(written(source)).run(None, {"x0": x, "x1": s.astype("f4")})
    np.testing.assert_array_equal(got, np.asarray(run_graph(source, x, s.astype("f4"))[0]))


def test_an_op_of_a_plugin_says_what_it_is() -> None:
    @irdl_op_definition
    class Relu(GraphOp):
        name = "other.relu"
        KERNEL: ClassVar[bool] = True
        x = operand_def()
        result = result_def()

        def infer(self) -> list[Any]:
            return [self.x.type]

        def onnx_nodes(self, writer: Any) -> Any:
            return writer.full(self.x).apply("Relu")

    source = parsed("func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> { func.return %x : tensor<3xf32> }")
    main = next(iter(source.ops))
    block = main.regions[0].block
    op = Relu.create(operands=[block.args[0]], result_types=[tensor([3], element_type("f32"))])
    assert block.last_op is not None
    block.insert_op_before(op, block.last_op)
    block.last_op.operands[0] = op.result
    assert ops_of(written(source)) == ["Relu"]
    assert not isinstance(op, ElementwiseOp | CallOp)


def test_large_tensors_in_a_file_beside(tmp_path: Path) -> None:
    w = RNG.normal(size=(64, 33)).astype("f4")
    program = tw.compile(lambda x: (x @ w + jnp.asarray(w[0])) @ w.T, np.ones((2, 64), np.float32))
    for name in ("a.onnx", "b.onnx"):
        assert save(program.to_onnx(), tmp_path / name, external=True)
    assert (tmp_path / "a.onnx.data").read_bytes() == (tmp_path / "b.onnx.data").read_bytes()
    assert (tmp_path / "a.onnx").stat().st_size < 8192 < (tmp_path / "a.onnx.data").stat().st_size
    onnx.checker.check_model(str(tmp_path / "a.onnx"), full_check=True)
    x = RNG.normal(size=(2, 64)).astype("f4")
    (got,) = ReferenceEvaluator(str(tmp_path / "a.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(got, program(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tw.compile(tmp_path / "a.onnx")(x), program(x), rtol=1e-4, atol=1e-4)


def test_what_no_file_holds_goes_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.backends.onnx.saving.MOST_BYTES", 1 << 12)
    w = RNG.normal(size=(64, 33)).astype("f4")
    program = tw.compile(lambda x: x @ w, np.ones((2, 64), np.float32))
    assert save(program.to_onnx(), tmp_path / "m.onnx")
    assert not save(tw.compile(lambda x: x + 1, X).to_onnx(), tmp_path / "n.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data", "n.onnx"]
