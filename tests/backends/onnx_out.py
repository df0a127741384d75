"""Programs written as ONNX, and what becomes of them: the checker, ONNX's own evaluator, and read back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import onnx
from fuzz.compare import Judge, Mismatch
from onnx.reference import ReferenceEvaluator
from xdsl.dialects.builtin import ModuleOp

from tilewright.backends.onnx import OPSET, model_of
from tilewright.dialects.module import find_main
from tilewright.frontends import lower_function
from tilewright.frontends.onnx import OnnxFunction, read_model


def written(module: ModuleOp, opset: int = OPSET) -> onnx.ModelProto:
    """A module as a model of inputs x0, x1... and outputs y0, y1..., which ONNX's checker takes with all shapes."""
    main = find_main(module)
    assert main is not None
    names = [[f"{side}{i}" for i in range(len(types))] for side, types in zip(
        "xy", (main.function_type.inputs, main.function_type.outputs), strict=True
    )]  # fmt: skip
    model = model_of(module, "f", *names, opset)
    onnx.checker.check_model(model, full_check=True)
    return model


def of_function(fn: Callable[..., Any], *args: Any, opset: int = OPSET) -> onnx.ModelProto:
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in map(jax.numpy.asarray, args)]
    return written(lower_function(fn, structs).module, opset)


MOST_CHOICES = 64
"""Along more elements ONNX's evaluator has no GatherElements: it takes numpy.choose, which has so many arrays, and for
matrices a loop that leaves the axis out (onnx/reference/ops/op_gather_elements.py)."""


def nodes_of(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph, and of those within nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def infos_of(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info)
    for node in nodes_of(graph):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from (*attribute.g.input, *attribute.g.value_info)


def is_mistaken(model: onnx.ModelProto) -> bool:
    """Whether ONNX's evaluator is wrong about a model: long GatherElements; and MaxPools of steps of one with a border,
    where it takes `pads` in another order than ONNX's text has it (onnx/reference/ops/_op_common_pool.py)."""
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in infos_of(model.graph)}
    shapes |= {t.name: list(t.dims) for t in model.graph.initializer}
    for node in nodes_of(model.graph):
        found = {a.name: list(a.ints) or a.i for a in node.attribute}
        if node.op_type == "GatherElements" and shapes[node.input[0]][found["axis"]] > MOST_CHOICES:
            return True
        if node.op_type == "MaxPool" and any(found["pads"]) and max(found["strides"]) == max(found["dilations"]) == 1:
            return True
    return False


def evaluated(model: onnx.ModelProto, args: Sequence[Any]) -> list[np.ndarray]:
    """What ONNX's evaluator gives; where it is known to be wrong, what the model gives that is read back."""
    if is_mistaken(model):
        return read_back(model, args)
    given = {v.name: np.asarray(a) for v, a in zip(model.graph.input, args, strict=True)}
    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in ReferenceEvaluator(model).run(None, given)]


def read_back(model: onnx.ModelProto, args: Sequence[Any]) -> list[np.ndarray]:
    """What the model gives as a JAX function."""
    with jax.enable_x64(True):
        return [np.asarray(x) for x in jax.tree.leaves(jax.jit(OnnxFunction(read_model(model)))(*args))]


def ops_of(model: onnx.ModelProto) -> list[str]:
    """The ops of the graph, in order."""
    return [node.op_type for node in model.graph.node]


class OnnxJudge(Judge):
    """Holds a function, written as ONNX, against JAX, by the bounds of the project. back: it is read back, too."""

    def __init__(self, program: Any, back: bool = False):
        super().__init__(program, "ascend-910b1", ())
        self.back = back
        self.model: onnx.ModelProto | None = None

    def _run(self) -> None:
        self._enter("reference")
        self.fn = self.program.function(self.path)
        self.args = jax.tree.map(jax.numpy.asarray, self.program.arguments())
        self.want = self._whole()
        self._enter("write")
        structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.args]
        module = lower_function(self.fn, structs).module
        self.source = module.clone()
        self.model = written(module)
        self._enter("evaluate")
        self._compare(evaluated(self.model, self.args))
        if self.back:
            self._enter("read back")
            self._compare(read_back(self.model, self.args))
        self._enter("")

    def _compare(self, got: Sequence[np.ndarray]) -> None:
        for x, y in zip(got, self.want, strict=True):
            if (x.shape, x.dtype) != (y.shape, y.dtype):
                raise Mismatch(f"{x.dtype}{x.shape} for {y.dtype}{y.shape}")
        self._against_jax(got)


class Function:
    """A function and its arguments as `OnnxJudge` takes programs."""

    x64 = False

    def __init__(self, fn: Callable[..., Any], *args: Any):
        self._fn, self._args = fn, args

    def function(self, path: str) -> Callable[..., Any]:
        return self._fn

    def arguments(self) -> list[Any]:
        return list(self._args)


def check(fn: Callable[..., Any], *args: Any, back: bool = True) -> onnx.ModelProto:
    """A function as a model, whose values are JAX's within the project's bounds, read back too."""
    judge = OnnxJudge(Function(fn, *args), back)
    verdict = judge.run()
    assert verdict.ok and not verdict.refused, f"{verdict.where}: {verdict.message}"
    assert judge.model is not None
    return judge.model


def refusals(said: str) -> dict[str, int]:
    """How many of each op a refusal names."""
    return {op: int(n) for n, op in re.findall(r"(\d+) x '([^']+)'", said)}
