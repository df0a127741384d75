"""The place of each op that a model becomes is its node, by name: in the graph, in sentences, in what is kept."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import tilewright as tw
from tilewright.debugger import DebugError
from tilewright.dialects.base import source_of
from tilewright.dialects.graph import GraphOp
from tilewright.frontends.jax import lower_function
from tilewright.frontends.onnx import OnnxFunction, read_model

X = jax.ShapeDtypeStruct((4,), "float32")


def model(nodes: str, functions: str = "", opset: int = 21) -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "my" : 1]>'
    return parser.parse_model(f"{head}\ng (float[4] x) => (float[4] y) {{ {nodes} }}{functions}")


def named(proto: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    for node, name in zip(proto.graph.node, names, strict=True):
        node.name = name
    return proto


def places(proto: onnx.ModelProto) -> dict[str, list[str | None]]:
    """The places of the graph ops of a model, by the names of the ops."""
    made = lower_function(OnnxFunction(read_model(proto)), [X])
    found: dict[str, list[str | None]] = {}
    for op in made.module.walk():
        if isinstance(op, GraphOp):
            found.setdefault(op.name, []).append(source_of(op))
    return found


def test_each_op_has_the_name_of_its_node() -> None:
    found = places(named(model("h = Exp(x)  i = Tanh(h)  y = Sin(i)"), "/a/Exp", "", "n: 3"))
    assert (found["graph.exp"], found["graph.tanh"], found["graph.sin"]) == (
        ["g:/a/Exp"],
        ["g:Tanh 'i'"],
        ["g:n: 3"],
    )


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", "caf\u00e9", "[red]x[/red]", 'a"b\\', "\x00", " "])
def test_any_name(name: str) -> None:
    """What cannot be printed is spelt; the rest stands as it is, through a compilation and what is kept of it."""
    (place,) = places(named(model("y = Exp(x)"), name))["graph.exp"]
    assert place is not None and place.isprintable()
    assert place == f"g:{''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in name)}"
    report = tw.compile(named(model("y = Exp(x)"), name)).report()
    assert [str(p) for k in report.kernels for p in k.sources] == [place]
    assert place.removeprefix("g:").strip() in report.table(width=400)


def test_a_node_within_a_node_says_both() -> None:
    nodes = """c = Constant<value = bool {1}>()
        y = If(c) <then_branch = t () => (float[4] a) { a = my.twice(x) },
                   else_branch = e () => (float[4] b) { b = Neg(x) }>"""
    twice = '<domain: "my", opset_import: ["" : 21]> twice (u) => (v) { w = Exp(u)  v = Tanh(w) }'
    found = places(named(model(nodes, twice), "", "choose"))
    assert found["graph.exp"] == ["g:choose/twice 'a'/Exp 'w'"]
    assert found["graph.tanh"] == ["g:choose/twice 'a'/Tanh 'v'"]


def test_what_onnx_defines_an_op_by_is_that_op() -> None:
    """Celu is a function of ONNX's own: its nodes are none of the model's."""
    found = places(named(model("h = Exp(x)  y = Celu(h)"), "first", "second"))
    assert found["graph.exp"] == ["g:first", "g:second"]
    assert found["graph.min"] == found["graph.broadcast"][:2] == ["g:second"] * 2


def test_lines_that_an_exporter_noted() -> None:
    """PyTorch's own line wins; one that is no line of Python is passed over."""
    proto = named(model("h = Exp(x)  y = Tanh(h)"), "a", "b")
    for node, line in zip(proto.graph.node, ("12", "9" * 30), strict=True):
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.stack_trace", f'File "/my/net.py", line {line}, in forward'
    found = places(proto)
    assert (found["graph.exp"], found["graph.tanh"]) == (["/my/net.py:12"], ["g:b"])


def test_names_survive_an_export() -> None:
    """StableHLO that JAX writes of a model has them, too."""
    fn = OnnxFunction(read_model(named(model("y = Exp(x)"), "/a/Exp")))
    text = jax.jit(fn).lower(X).as_text(debug_info=True)
    report = tw.compile(text).report()
    assert [k.source for k in report.kernels] == ["g:/a/Exp"]


def test_a_kernel_lists_all_its_nodes(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])
    nodes = [helper.make_node(op, [a], [b], name=op) for op, a, b in [("Exp", "x", "h"), ("Tanh", "h", "y")]]
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "two", [x], [y]), ir_version=10), path)
    report = tw.compile(path).report()
    (kernel,) = report.kernels
    assert [place.node for place in kernel.sources] == ["Exp", "Tanh"]
    assert "two.onnx:Exp, Tanh" in report.table(width=300)
    assert "two.onnx:Exp, Tanh" in report._repr_html_()


def test_a_breakpoint_at_a_node() -> None:
    proto = named(model("h = Exp(x)  y = Tanh(h)"), "/a/Exp", "")
    debugger = tw.debug(proto, np.ones(4, np.float32))
    for where in ("g:/a/Exp", "g:Tanh 'y'", "g:2"):
        debugger.break_at(where)
    with pytest.raises(DebugError, match=re.escape("comes from g:b; those of g come from /a/Exp, Tanh 'y'")):
        debugger.break_at("g:b")
