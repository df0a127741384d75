"""Random ONNX models that compute with the sizes of their inputs, compared at many sizes with ONNX's evaluator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw

SIZES = (0, 1, 2, 5, 7, 16)
"""The sizes at which models are compared."""


@dataclass
class SizeModel:
    """A model of an input x f32[n, k, 3] and y f32[m, 3] that is made node by node. draw: the choices."""

    draw: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    count: int = 0

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output, and the output's name."""
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{self.count}", **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        self.count += 1
        name = f"c{self.count}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    # -- sizes: i64 numbers of rank 0 ----------------------------------------------------------------------

    def dim(self) -> str:
        """One of the sizes of x and y, as exporters read it."""
        which, rank = self.draw.choice([("x", 3), ("y", 2)])
        i = self.draw.randrange(rank)
        match self.draw.randrange(4):
            case 0:
                return self.add("Gather", self.add("Shape", which), self.constant(i))
            case 1:
                return self.add("Squeeze", self.add("Shape", which, start=i, end=i + 1), self.constant([0]))
            case 2:
                return self.add("Gather", self.add("Shape", which), self.constant(i - rank))
            case _:
                index = [self.constant([i]), self.constant([i + 1]), self.constant([0])]
                return self.add(
                    "Reshape",
                    self.add("Slice", self.add("Shape", which), *index),
                    self.constant([], np.int64),
                )

    def size(self, depth: int) -> str:
        """An expression of sizes."""
        if depth <= 0:
            return (
                self.dim()
                if self.draw.random() < 0.7
                else self.constant(self.draw.choice([0, 1, 2, 3, 5, 8]))
            )
        a = self.size(depth - 1)
        match self.draw.randrange(13):
            case 0 | 1:
                return self.add(self.draw.choice(["Add", "Sub"]), a, self.size(depth - 1))
            case 2:
                return self.add("Mul", a, self.constant(self.draw.choice([1, 2, 3])))
            case 3:
                return self.add("Div", a, self.constant(self.draw.choice([1, 2, 3, 8])))
            case 4:
                return self.add(
                    "Mod", a, self.constant(self.draw.choice([2, 3, 8])), fmod=self.draw.randrange(2)
                )
            case 5 | 6:
                return self.add(self.draw.choice(["Min", "Max"]), a, self.size(depth - 1))
            case 7:
                return self.add("Where", self.truth(depth - 1), a, self.size(depth - 1))
            case 8:
                scaled = self.add(
                    "Mul", self.add("Cast", a, to=TensorProto.FLOAT), self.constant(0.5, np.float32)
                )
                rounded = self.add(self.draw.choice(["Ceil", "Floor"]), scaled)
                return self.add("Cast", rounded, to=TensorProto.INT64)
            case 9:
                narrow = self.add("Cast", a, to=TensorProto.INT32)
                made = self.add("Add", narrow, self.constant(1, np.int32))
                return self.add("Cast", made, to=TensorProto.INT64)
            case 10:
                return self.add("Cast", self.truth(depth - 1), to=TensorProto.INT64)
            case 11:
                parts = [self.add("Unsqueeze", n, self.constant([0])) for n in (a, self.size(depth - 1))]
                op = self.draw.choice(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
                return self.add(op, self.add("Concat", *parts, axis=0), keepdims=0)
            case _:
                return self.add(self.draw.choice(["Abs", "Neg", "Identity"]), a)

    def truth(self, depth: int) -> str:
        """A comparison of sizes."""
        if depth > 0 and self.draw.random() < 0.3:
            if self.draw.random() < 0.3:
                return self.add("Not", self.truth(depth - 1))
            return self.add(
                self.draw.choice(["And", "Or", "Xor"]), self.truth(depth - 1), self.truth(depth - 1)
            )
        op = self.draw.choice(["Equal", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
        return self.add(op, self.size(depth - 1), self.size(depth - 1))

    # -- what is made of them ------------------------------------------------------------------------------

    def bounded(self, depth: int, least: int = 0, most: int = 40) -> str:
        """A size that is not negative, and small."""
        low = self.add("Max", self.size(depth), self.constant(least))
        return self.add("Min", low, self.constant(most))

    def row(self, size: str) -> str:
        return self.add("Unsqueeze", size, self.constant([0]))

    def result(self, depth: int) -> str:
        """A result of the model, for which sizes are data, shapes, bounds, counts or conditions."""
        match self.draw.randrange(14):
            case 0:
                return self.add("Mul", "x", self.add("Cast", self.size(depth), to=TensorProto.FLOAT))
            case 1:
                return self.add("Where", self.truth(depth), "x", self.add("Neg", "x"))
            case 2:
                return self.add("ConstantOfShape", self.row(self.bounded(depth)))
            case 3:
                step = self.draw.choice([1, 2, 3, -1, -2, -3])
                ends = [self.size(depth), self.size(depth)]
                ends = [
                    self.add("Max", self.add("Min", n, self.constant(50)), self.constant(-50)) for n in ends
                ]
                return self.add("Range", *ends, self.constant(step))
            case 4:
                ends = [self.row(self.size(depth)), self.row(self.size(depth))]
                step = self.constant([self.draw.choice([1, 1, 2, -1])])
                return self.add("Slice", "x", *ends, self.constant([self.draw.randrange(2)]), step)
            case 5:
                most = self.add("Gather", self.add("Shape", "x"), self.constant(1))
                rows = self.add("TopK", "x", self.row(self.add("Min", self.bounded(depth), most)), axis=1)
                self.nodes[-1].output.append(f"{rows}_i")
                return rows
            case 6:
                return self.branch(self.truth(depth), "x", "x")
            case 7:
                return self.loop(self.bounded(depth, 0, 9), self.draw.random() < 0.5)
            case 8:
                shape = self.add("Concat", self.row(self.bounded(depth)), self.constant([1, 3]), axis=0)
                return self.add("Expand", self.constant(np.arange(3), np.float32), shape)
            case 9:
                pads = self.add(
                    "Concat",
                    self.constant([0, 0, 0]),
                    self.row(self.bounded(depth)),
                    self.constant([0, 0]),
                    axis=0,
                )
                return self.add("Pad", "x", pads)
            case 10:
                return self.add("Reshape", "x", self.flat())
            case 11:
                return self.add(
                    "Tile",
                    "y",
                    self.add("Concat", self.row(self.bounded(depth, 0, 4)), self.constant([1]), axis=0),
                )
            case 12:
                kind = self.draw.choice(
                    [TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL]
                )
                return self.add("Cast", self.size(depth), to=kind)
            case _:
                return self.branch(self.truth(depth), "x", "y")

    def flat(self) -> str:
        """A shape for the elements of x: n and the rest, as exporters write it."""
        first, second = (
            self.row(self.add("Gather", self.add("Shape", "x"), self.constant(i))) for i in (0, 1)
        )
        return self.add("Concat", first, self.add("Mul", second, self.constant([3])), axis=0)

    def branch(self, condition: str, one: str, other: str) -> str:
        """An If of one thing and the negative of another."""
        made: list[onnx.GraphProto] = []
        for op, x in (("Abs", one), ("Neg", other)):
            name = f"b{self.count}{op}"
            type_ = helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * (3 if x == "x" else 2))
            made.append(helper.make_graph([helper.make_node(op, [x], [name])], op, [], [type_]))
        return self.add("If", condition, then_branch=made[0], else_branch=made[1])

    def loop(self, trips: str, stops: bool) -> str:
        """A Loop that adds one to x as often as a size says, and stops early where a number of trips is."""
        limit = self.constant(self.draw.choice([1, 2, 4]))
        goes_on = ("Less", ["next_", limit]) if stops else ("Identity", ["c"])
        body = helper.make_graph(
            [
                helper.make_node("Add", ["i", "one_"], ["next_"]),
                helper.make_node(*goes_on, ["go_"]),
                helper.make_node("Cast", ["next_"], ["f_"], to=TensorProto.FLOAT),
                helper.make_node("Add", ["a", "f_"], ["b"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                helper.make_tensor_value_info("a", TensorProto.FLOAT, [None] * 3),
            ],
            [
                helper.make_tensor_value_info("go_", TensorProto.BOOL, []),
                helper.make_tensor_value_info("b", TensorProto.FLOAT, [None] * 3),
            ],
            [numpy_helper.from_array(np.array(1), "one_")],
        )
        return self.add("Loop", trips, self.constant(True, bool), "x", body=body)

    def build(self, results: Sequence[str]) -> onnx.ModelProto:
        """The model with these results."""
        inputs = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k", 3]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 3]),
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph(self.nodes, "sizes", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        model = onnx.shape_inference.infer_shapes(model)
        for one in model.graph.output:
            if one.type.WhichOneof("value") is None:
                one.type.tensor_type.elem_type = TensorProto.FLOAT
        return model


def random_model(seed: int, depth: int = 2) -> onnx.ModelProto:
    """A model of one result."""
    made = SizeModel(random.Random(seed))
    return made.build([made.result(depth)])


def arrays_at(n: int, k: int, m: int) -> dict[str, np.ndarray]:
    """Inputs of a random model."""
    rng = np.random.default_rng(n + 31 * k + 1000 * m)
    return {
        "x": rng.permutation(n * k * 3).reshape(n, k, 3).astype("f4") - 4,
        "y": rng.permutation(m * 3).reshape(m, 3).astype("f4") - 2,
    }


def differences(model: onnx.ModelProto, triples: Sequence[tuple[int, int, int]]) -> list[str]:
    """Where a model, compiled once, does not give what ONNX's evaluator gives at sizes: a line for each."""
    found: list[str] = []
    evaluator = ReferenceEvaluator(model)
    program = tw.compile(model)
    for triple in triples:
        arrays = arrays_at(*triple)
        try:
            with np.errstate(all="ignore"):
                want = np.asarray(evaluator.run(None, arrays)[0])  # pyright: ignore
        except Exception:  # numpy's, of many classes: the model does not take these sizes
            continue
        try:
            got = np.asarray(program(**arrays))
        except tw.CompileError as error:
            found.append(f"{triple}: refused: {error}")
            continue
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            found.append(f"{triple}: {got.dtype}{got.shape} for {want.dtype}{want.shape}")
        elif not np.array_equal(got, want):
            found.append(f"{triple}: values differ: {got.ravel()[:6]} for {want.ravel()[:6]}")
    return found
