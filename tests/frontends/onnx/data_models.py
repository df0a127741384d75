"""Random ONNX models whose sizes data decides, compared with ONNX's evaluator on inputs that decide them otherwise.

A model is made node by node, and each node is run on all data at once by ONNX's evaluator: what it does not take is
drawn again, so that models are valid, as those of exporters are.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw

Column = list[np.ndarray | None]
"""A value by data set; None where a node before it does not take the data."""

FLOAT, INT, BOOL = np.float32, np.int64, np.bool_
MOST_NODES, TRIES, LARGEST = 14, 60, 400


@cache
def data_sets() -> tuple[dict[str, np.ndarray], ...]:
    """Inputs, by which none, one, some or all elements are chosen."""
    made = []
    for seed, share in enumerate((0.0, 0.1, 0.4, 0.7, 1.0)):
        rng = np.random.default_rng(seed)
        x = rng.integers(1, 5, (4, 3)) * np.where(rng.random((4, 3)) < share, 1, -1)
        corner = rng.integers(0, 6, (1, 5, 2))
        scores = np.where(rng.random((1, 2, 5)) < share, rng.permutation(10).reshape(1, 2, 5) / 10 + 0.5, 0.1)
        made.append(
            {
                "x": x.astype(FLOAT),
                "k": rng.integers(0, 4, 6),
                "m": rng.random(4) < share,
                "boxes": np.concatenate([corner, corner + rng.integers(1, 4, (1, 5, 2))], -1).astype(FLOAT),
                "scores": scores.astype(FLOAT),
            }
        )
    return tuple(made)


class Unfit(Exception):
    """A node does not take what was drawn for it."""


@dataclass
class DataModel:
    """A model of x f32[4, 3], k i64[6], m bool[4], boxes f32[1, 5, 4] and scores f32[1, 2, 5]. draw: the choices."""

    draw: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    values: dict[str, Column] = field(default_factory=dict[str, Column])
    found: set[str] = field(default_factory=set[str])
    """Values that depend on sizes that data decides."""
    count: int = 0

    def __post_init__(self) -> None:
        for name in data_sets()[0]:
            self.values[name] = [s[name] for s in data_sets()]

    # -- making --------------------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: Any = INT) -> str:
        self.count += 1
        name, array = f"c{self.count}", np.asarray(value, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        self.values[name] = [array] * len(data_sets())
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node, and the name of its first output. Raises Unfit."""
        self.count += 1
        names = [f"v{self.count}" + "bcd"[i - 1 : i] * (i > 0) for i in range(outputs)]
        node = helper.make_node(op, inputs, names, name=f"n{self.count}", **attributes)
        columns: list[Column] = [[] for _ in names]
        for i in range(len(data_sets())):
            made = self._run(node, i)
            for column, value in zip(columns, made or [None] * outputs, strict=True):
                column.append(value)
        if sum(v is not None for v in columns[0]) < 3:
            raise Unfit
        self.nodes.append(node)
        self.values.update(zip(names, columns, strict=True))
        if any(n in self.found for n in inputs) or any(map(self.varies, names)):
            self.found.update(names)
        return names[0]

    def _run(self, node: onnx.NodeProto, i: int) -> list[np.ndarray] | None:
        """What ONNX's evaluator gives for data set i; None where it refuses it."""
        needed = {n for n in node.input if n} | {n for n in _captured(node) if n in self.values}
        given = {n: self.values[n][i] for n in needed}
        if any(v is None for v in given.values()) or not _is_valid(node, given):
            return None
        infos = [
            helper.make_tensor_value_info(n, _type(v), v.shape) for n, v in given.items() if v is not None
        ]
        outs = [onnx.ValueInfoProto(name=n) for n in node.output]
        model = _model(helper.make_graph([node], "one", infos, outs))
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made: Any = ReferenceEvaluator(model).run(None, given)
        except Exception:  # numpy's, of many classes
            return None
        arrays = [np.asarray(v) for v in made]
        return arrays if all(a.size <= LARGEST for a in arrays) else None

    # -- choosing ------------------------------------------------------------------------------------------

    def varies(self, name: str) -> bool:
        """Whether the shape of a value depends on data."""
        return len({v.shape for v in self.values[name] if v is not None}) > 1

    def sample(self, name: str) -> np.ndarray:
        """A value for data that has most elements."""
        return max((v for v in self.values[name] if v is not None), key=lambda v: v.size)

    def pick(self, rank: Sequence[int] = (), kind: str = "", varying: float = 0.85) -> str:
        """A value of one of these ranks, and of a kind of types: late ones, and those whose size varies, rather than
        others. Raises Unfit."""
        fits = [
            n
            for n in self.values
            if not n.startswith("c")
            and (not rank or self.sample(n).ndim in rank)
            and (not kind or self.sample(n).dtype.kind in kind)
        ]
        if self.draw.random() < varying:
            fits = [n for n in fits if self.varies(n)]
        if not fits:
            raise Unfit
        return fits[max(self.draw.randrange(len(fits)), self.draw.randrange(len(fits)))]

    def axis(self, name: str) -> int:
        return self.draw.randrange(max(self.sample(name).ndim, 1))

    def size_of(self, name: str) -> str:
        """An i64 number: one of the sizes of a value."""
        if not self.sample(name).ndim or self.draw.random() < 0.2:
            return self.add("Size", name)
        return self.add("Gather", self.add("Shape", name), self.constant(self.axis(name)))

    def row(self, number: str) -> str:
        return self.add("Unsqueeze", number, self.constant([0]))

    # -- nodes ---------------------------------------------------------------------------------------------

    def source(self) -> str:
        """A value whose size data decides."""
        draw = self.draw
        match draw.randrange(8):
            case 0:
                return self.add("NonZero", self.mask())
            case 1:
                return self.add("Transpose", self.add("NonZero", self.mask()), perm=[1, 0])
            case 2:  # a boolean mask, as PyTorch exports it
                places = self.add("Transpose", self.add("NonZero", self.mask()), perm=[1, 0])
                return self.add("GatherND", "x", places)
            case 3:
                flat = self.add("Reshape", "x", self.constant([-1]))
                return self.add("Compress", flat, self.add("Greater", flat, self.constant(0, FLOAT)), axis=0)
            case 4:
                return self.add("Compress", "x", "m", axis=0)
            case 5:
                if draw.random() < 0.3:  # ONNX's evaluator sorts where it gives no more than the elements
                    return self.add("Unique", "k", outputs=4, sorted=0)
                return self.add("Unique", draw.choice(["k", "x"]), outputs=draw.choice([1, 4]))
            case 6:
                most, overlap, least = (
                    draw.choice([1, 2, 5]),
                    draw.choice([0.3, 0.6]),
                    draw.choice([0.2, 0.7]),
                )
                limits = [
                    self.constant([most]),
                    self.constant([overlap], FLOAT),
                    self.constant([least], FLOAT),
                ]
                return self.add("NonMaxSuppression", "boxes", "scores", *limits)
            case _:
                counted = self.add("ReduceSum", self.add("Cast", "m", to=TensorProto.INT64), keepdims=0)
                if draw.random() < 0.5:
                    return self.add("Range", self.constant(0), counted, self.constant(1))
                return self.add("Slice", "x", self.constant([0]), self.row(counted), self.constant([0]))

    def mask(self) -> str:
        return self.add("Greater", "x", self.constant(self.draw.choice([0, 0, 2]), FLOAT))

    def unary(self) -> str:
        x = self.pick(kind="f")
        return self.add(self.draw.choice(["Neg", "Abs", "Relu", "Sigmoid", "Sqrt", "Exp", "Floor"]), x)

    def binary(self) -> str:
        a = self.pick(kind=self.draw.choice("fi"))
        same = [n for n in self.values if self.sample(n).dtype == self.sample(a).dtype]
        op = self.draw.choice(["Add", "Sub", "Mul", "Max", "Min", "Greater", "Equal", "Where"])
        b = self.draw.choice(same)
        if op != "Where":
            return self.add(op, a, b)
        return self.add("Where", self.add("Greater", a, b), a, b)

    def cast(self) -> str:
        to = self.draw.choice([TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL])
        return self.add("Cast", self.pick(), to=to)

    def reduction(self) -> str:
        x = self.pick(rank=(1, 2, 3), kind="fi")
        kinds = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"]
        op, kept = self.draw.choice(kinds), self.draw.randrange(2)
        if self.draw.random() < 0.3:
            return self.add(op, x, keepdims=kept)
        return self.add(op, x, self.constant([self.axis(x)]), keepdims=kept)

    def extreme(self) -> str:
        x = self.pick(rank=(1, 2, 3), kind="fi")
        op = self.draw.choice(["ArgMax", "ArgMin"])
        return self.add(op, x, axis=self.axis(x), keepdims=self.draw.randrange(2))

    def along(self) -> str:
        x = self.pick(rank=(1, 2, 3), kind="f")
        match self.draw.randrange(4):
            case 0:
                return self.add("CumSum", x, self.constant(self.axis(x)), reverse=self.draw.randrange(2))
            case 1:
                return self.add("LogSoftmax", x, axis=self.axis(x))
            case 2:
                return self.add("Hardmax", x, axis=self.axis(x))
            case _:
                return self.add("Softmax", x, axis=self.axis(x))

    def gather(self) -> str:
        match self.draw.randrange(4):
            case 0:
                x = self.pick(rank=(1, 2, 3))
                which = self.constant(self.draw.choice([0, -1, [0], [0, 0, -1]]))
                return self.add("Gather", x, which, axis=self.axis(x))
            case 1:
                x = self.draw.choice(["x", "k", "boxes", self.pick(rank=(1, 2, 3))])
                return self.add("Gather", x, self.pick(kind="i"), axis=self.axis(x))
            case 2:
                x = self.draw.choice(["x", self.pick(rank=(1, 2))])
                return self.add("GatherElements", x, self.pick(rank=(1, 2), kind="i"), axis=self.axis(x))
            case _:
                x = self.draw.choice(["x", "boxes", self.pick(rank=(2, 3))])
                return self.add("GatherND", x, self.pick(rank=(2,), kind="i"))

    def scatter(self) -> str:
        x = self.draw.choice(["x", self.pick(rank=(1, 2))])
        indices = self.pick(rank=(1, 2), kind="i")
        updates = self.draw.choice([n for n in self.values if self.sample(n).dtype == self.sample(x).dtype])
        if self.draw.random() < 0.5:
            made = self.add("GatherND", x, indices)
            return self.add("ScatterND", x, indices, self.add("Add", made, made), reduction="none")
        return self.add("ScatterElements", x, indices, updates, axis=self.axis(x))

    def concat(self) -> str:
        a = self.pick(rank=(1, 2, 3))
        fits = [
            n
            for n in self.values
            if (self.sample(n).dtype, self.sample(n).ndim) == (self.sample(a).dtype, self.sample(a).ndim)
        ]
        parts = [a, *(self.draw.choice(fits) for _ in range(self.draw.randrange(1, 3)))]
        self.draw.shuffle(parts)
        return self.add("Concat", *parts, axis=self.axis(a))

    def reshape(self) -> str:
        x = self.pick()
        match self.draw.randrange(7):
            case 0:
                return self.add("Reshape", x, self.constant([-1]))
            case 1:
                return self.add("Flatten", x, axis=self.draw.randrange(2))
            case 2:
                return self.add("Reshape", x, self.constant([0, -1]))
            case 3:
                return self.add(
                    "Reshape", x, self.constant(self.draw.choice([[-1, 3], [-1, 1], [1, -1], [-1, 2]]))
                )
            case 4:
                return self.add("Unsqueeze", x, self.constant([self.draw.choice([0, -1])]))
            case 5:
                parts = [self.row(self.size_of(x)), self.constant(self.draw.choice([[-1], [1], [3]]))]
                self.draw.shuffle(parts)
                return self.add("Reshape", x, self.add("Concat", *parts, axis=0), allowzero=1)
            case _:
                return self.add("Reshape", x, self.add("Shape", self.pick()), allowzero=1)

    def transpose(self) -> str:
        x = self.pick(rank=(2, 3))
        perm = self.draw.sample(range(self.sample(x).ndim), self.sample(x).ndim)
        return self.add("Transpose", x, perm=perm)

    def slice(self) -> str:
        x = self.pick(rank=(1, 2, 3))
        ends = [self.constant([self.draw.choice([0, 1, -1, -2, 3, 1000])]) for _ in range(2)]
        if self.draw.random() < 0.5:
            ends[self.draw.randrange(2)] = self.row(self.number())
        step = self.constant([self.draw.choice([1, 1, 1, 2, -1])])
        return self.add("Slice", x, *ends, self.constant([self.axis(x)]), step)

    def product(self) -> str:
        a = self.pick(rank=(2, 3), kind="f")
        n = self.sample(a).shape[-1]
        match self.draw.randrange(5):
            case 0:
                return self.add("MatMul", a, self.constant(np.arange(n * 2).reshape(n, 2) % 5 - 2, FLOAT))
            case 1:
                perm = [*range(self.sample(a).ndim)]
                perm[-2:] = perm[-1], perm[-2]
                return self.add("MatMul", self.add("Transpose", a, perm=perm), a)
            case 2:
                weights = [
                    self.constant(np.arange(n * 2).reshape(n, 2) % 5 - 2, FLOAT),
                    self.constant([1, 2], FLOAT),
                ]
                return self.add("Gemm", a, *weights)
            case 3:
                return self.add("Einsum", a, a, equation="ij,kj->ik")
            case _:
                return self.add("MatMul", a, self.pick(rank=(1, 2), kind="f"))

    def top(self) -> str:
        x = self.pick(rank=(1, 2), kind="fi")
        axis = self.axis(x)
        size = self.add("Gather", self.add("Shape", x), self.constant(axis))
        count = self.draw.choice([self.constant(1), self.add("Min", size, self.constant(2)), size])
        return self.add("TopK", x, self.row(count), axis=axis, largest=self.draw.randrange(2), outputs=2)

    def padded(self) -> str:
        x = self.pick(rank=(1, 2), kind="fi")
        widths = [[0] * self.sample(x).ndim, [0] * self.sample(x).ndim]
        at = self.axis(x)
        if self.draw.random() < 0.6:
            widths[0][at], widths[1][at] = self.draw.choice([(1, 2), (0, 1), (2, 0)])
            return self.add("Pad", x, self.constant([*widths[0], *widths[1]]))
        # to a number of rows, as a detector fills its result
        size = self.add("Gather", self.add("Shape", x), self.constant(at))
        rest = self.add(
            "Max", self.add("Sub", self.constant(self.draw.choice([8, 20])), size), self.constant(0)
        )
        parts = [self.constant([0] * (self.sample(x).ndim + at)), self.row(rest)]
        parts.append(self.constant([0] * (self.sample(x).ndim - 1 - at)))
        return self.add("Pad", x, self.add("Concat", *parts, axis=0))

    def made(self) -> str:
        """What is made in a shape that data decides."""
        shape = self.add("Shape", self.pick(rank=(0, 1, 2)))
        match self.draw.randrange(4):
            case 0:
                return self.add("ConstantOfShape", shape)
            case 1:
                return self.add("Expand", self.constant(2, FLOAT), shape)
            case 2:
                return self.add("Range", self.constant(0), self.number(), self.constant(1))
            case _:
                return self.add("Tile", self.pick(rank=(1,)), self.constant([2]))

    def number(self) -> str:
        """An i64 number that follows from sizes."""
        n = self.size_of(self.pick())
        match self.draw.randrange(6):
            case 0:
                return self.add("Add", n, self.constant(self.draw.choice([1, -1, 2])))
            case 1:
                return self.add("Mul", n, self.constant(self.draw.choice([2, 3])))
            case 2:
                return self.add(
                    self.draw.choice(["Min", "Max"]), n, self.constant(self.draw.choice([1, 2, 3]))
                )
            case 3:
                return self.add("Div", n, self.constant(2))
            case _:
                return n

    def chosen(self) -> str:
        """A choice of what was found: again a size that data decides."""
        x = self.pick(rank=(1, 2), kind="fi")
        match self.draw.randrange(4):
            case 0:
                zero = self.constant(self.draw.choice([0, 1]), self.sample(x).dtype)
                return self.add("NonZero", self.add("Greater", x, zero))
            case 1:
                one = self.pick(rank=(1,), kind="fi")
                mask = self.add("Greater", one, self.constant(0, self.sample(one).dtype))
                return self.add("Compress", x, mask, axis=self.axis(x))
            case 2:
                return self.add("Unique", x, outputs=self.draw.choice([1, 4]))
            case _:
                return self.add(
                    "Compress", x, self.add("Greater", self.add("Abs", x), self.constant(1, FLOAT))
                )

    def split(self) -> str:
        x = self.pick(rank=(1, 2, 3))
        axis = self.axis(x)
        n = self.sample(x).shape[axis]
        match self.draw.randrange(3):
            case 0:
                return self.add(
                    "Split",
                    x,
                    axis=axis,
                    outputs=n if n in (2, 3) else 2,
                    num_outputs=n if n in (2, 3) else 2,
                )
            case 1:
                size = self.add("Gather", self.add("Shape", x), self.constant(axis))
                parts = self.add(
                    "Concat", self.constant([1]), self.row(self.add("Sub", size, self.constant(1))), axis=0
                )
                return self.add("Split", x, parts, axis=axis, outputs=2)
            case _:
                return self.add(
                    "Squeeze",
                    self.add("Slice", x, self.constant([0]), self.constant([1]), self.constant([axis])),
                    self.constant([axis]),
                )

    def control(self) -> str:
        x = self.pick(rank=(0, 1, 2), kind="f")
        name, kind = f"b{self.count}", helper.make_tensor_value_info
        rank = [None] * self.sample(x).ndim
        match self.draw.randrange(4):
            case 0 | 1:
                other = x if self.draw.random() < 0.6 else self.pick(rank=(len(rank),), kind="f")
                made = [
                    helper.make_graph(
                        [helper.make_node(op, [y], [f"{name}{op}"])], op, [], [kind(f"{name}{op}", 1, rank)]
                    )
                    for op, y in (("Abs", x), ("Neg", other))
                ]
                condition = self.add(
                    "Greater", self.size_of(self.pick()), self.constant(self.draw.choice([0, 1, 2]))
                )
                return self.add("If", condition, then_branch=made[0], else_branch=made[1])
            case 2:
                body = helper.make_graph(
                    [
                        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
                        helper.make_node("Add", ["a", "f"], ["b"]),
                        helper.make_node("Identity", ["c"], ["go"]),
                    ],
                    "body",
                    [kind("i", INT_, []), kind("c", TensorProto.BOOL, []), kind("a", 1, rank)],
                    [kind("go", TensorProto.BOOL, []), kind("b", 1, rank)],
                )
                trips = self.draw.choice([self.number(), self.constant(3)])
                return self.add("Loop", trips, self.constant(True, bool), x, body=body)
            case _:
                y = self.pick(rank=(1, 2), kind="f")
                inner = [None] * (self.sample(y).ndim - 1)
                body = helper.make_graph(
                    [
                        helper.make_node("Add", ["s", "e"], ["t"]),
                        helper.make_node("Neg", ["t"], ["o"]),
                    ],
                    "body",
                    [kind("s", 1, inner), kind("e", 1, inner)],
                    [kind("t", 1, inner), kind("o", 1, inner)],
                )
                begin = self.constant(np.zeros(self.sample(y).shape[1:]), FLOAT)
                return self.add("Scan", begin, y, body=body, num_scan_inputs=1, outputs=2)

    def normalized(self) -> str:
        x = self.pick(rank=(2, 3), kind="f")
        n = self.sample(x).shape[-1]
        return self.add("LayerNormalization", x, self.constant(np.ones(n), FLOAT), axis=-1)

    def window(self) -> str:
        x = self.pick(rank=(1, 2), kind="f")
        rows = self.add("Reshape", x, self.constant([1, 1, -1]))
        if self.draw.random() < 0.5:
            return self.add(
                "MaxPool", rows, kernel_shape=[2], strides=[self.draw.choice([1, 2])], pads=[1, 0]
            )
        return self.add("Conv", rows, self.constant([[[1, 2, 1]]], FLOAT), kernel_shape=[3], pads=[1, 1])

    def other(self) -> str:
        x = self.pick(rank=(1, 2), kind="f")
        match self.draw.randrange(5):
            case 0:
                return self.add(
                    "OneHot", self.pick(rank=(1,), kind="i"), self.constant([4]), self.constant([0, 1], FLOAT)
                )
            case 1:
                return self.add("Trilu", self.pick(rank=(2, 3), kind="f"), upper=self.draw.randrange(2))
            case 2:
                return self.add("Clip", x, self.constant(-1, FLOAT), self.constant(2, FLOAT))
            case 3:
                return self.add("EyeLike", self.pick(rank=(2,), kind="f"))
            case _:
                return self.add("IsNaN", x)

    def build(self) -> onnx.ModelProto:
        """The model, whose results are the last values that depend on sizes that data decides."""
        made = [n for n in self.values if n in self.found and not n.startswith("c")]
        names = made[-1:] if len(made) < 2 or self.draw.random() < 0.6 else made[-2:]
        sets = data_sets()[0]
        inputs = [helper.make_tensor_value_info(n, _type(v), v.shape) for n, v in sets.items()]
        outputs = [
            helper.make_tensor_value_info(
                n, _type(self.sample(n)), [f"{n}_{i}" for i in range(self.sample(n).ndim)]
            )
            for n in names
        ]
        nodes = _needed(self.nodes, names)
        used = {n for node in nodes for n in (*node.input, *_captured(node))}
        inputs = [i for i in inputs if i.name in used]
        constants = [c for c in self.constants if c.name in used]
        return _model(helper.make_graph(nodes, "found", inputs, outputs, constants))

    def calls(self, model: onnx.ModelProto) -> list[tuple[dict[str, np.ndarray], list[np.ndarray]]]:
        """Inputs that a model takes, and its results."""
        made = []
        for i, given in enumerate(data_sets()):
            outs = [self.values[o.name][i] for o in model.graph.output]
            if not any(o is None for o in outs):
                made.append(({v.name: given[v.name] for v in model.graph.input}, outs))
        return made


INT_ = TensorProto.INT64

KINDS: dict[str, int] = {
    "source": 2,
    "unary": 2,
    "binary": 6,
    "cast": 2,
    "reduction": 3,
    "extreme": 1,
    "along": 2,
    "gather": 5,
    "scatter": 2,
    "concat": 3,
    "reshape": 4,
    "transpose": 1,
    "slice": 4,
    "product": 3,
    "top": 2,
    "padded": 2,
    "made": 2,
    "number": 1,
    "chosen": 3,
    "split": 2,
    "control": 2,
    "normalized": 1,
    "window": 1,
    "other": 2,
}
"""Kinds of nodes, and how often each is drawn."""


def random_model(seed: int) -> tuple[onnx.ModelProto, list[tuple[dict[str, np.ndarray], list[np.ndarray]]]]:
    """A model, inputs that it takes, and its results for them."""
    draw = random.Random(seed)
    made = DataModel(draw)
    while not made.found:
        _attempt(made, made.source)
    wanted = len(made.nodes) + draw.randrange(1, MOST_NODES)
    for _ in range(TRIES):
        if len(made.nodes) >= wanted:
            break
        (kind,) = draw.choices([*KINDS], [*KINDS.values()])
        _attempt(made, getattr(made, kind))
    model = made.build()
    return model, made.calls(model)


def _attempt(made: DataModel, kind: Callable[[], str]) -> None:
    """Adds nodes of a kind, all of them or none."""
    nodes, found, before = len(made.nodes), set(made.found), set(made.values)
    try:
        kind()
    except (Unfit, IndexError):  # nothing to draw from
        del made.nodes[nodes:]
        made.found = found
        for name in set(made.values) - before:
            if not name.startswith("c"):
                del made.values[name]


def _is_valid(node: onnx.NodeProto, given: dict[str, Any]) -> bool:
    """Whether a node takes what it is given: ONNX's evaluator does not look at indices of elements, at updates of
    other shapes than these, and at parts and numbers of elements that there are not."""
    values = [given.get(n) for n in node.input]
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    n = values[0].shape[axis] if values[0] is not None and axis < values[0].ndim else 0
    match node.op_type:
        case "GatherElements" | "ScatterElements":
            indices = values[1]
            fits = indices.dtype.kind == "i" and ((indices >= -n) & (indices < n)).all()
            return bool(fits) and (len(values) < 3 or values[2].shape == indices.shape)
        case "TopK":
            return bool((values[1] <= n).all())
        case "Split":
            return len(values) < 2 or (bool((values[1] >= 0).all()) and values[1].sum() == n)
    return True


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _type(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def _captured(node: onnx.NodeProto) -> list[str]:
    return [n for a in node.attribute if a.HasField("g") for inner in a.g.node for n in inner.input]


def _needed(nodes: Sequence[onnx.NodeProto], names: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that values depend on, in order."""
    wanted, kept = set(names), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= {*node.input, *_captured(node)}
    return kept[::-1]


@dataclass(frozen=True)
class Verdict:
    """What became of a model: `equal`, `refused` or `wrong`, and why; and how many inputs it was called with."""

    status: str
    why: str = ""
    calls: int = 0


def judge(seed: int, options: tw.Options | None = None) -> Verdict:
    """Compiles a model once and compares its results on all data."""
    model, calls = random_model(seed)
    try:
        program = tw.compile(model, options=options)
    except tw.CompileError as error:
        return Verdict("refused", " ".join(str(error).split())[:300])
    for arrays, wanted in calls:
        try:
            made = program(**arrays)
        except tw.CompileError as error:
            return Verdict("refused", f"in a call: {error}")
        for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            got = np.asarray(got)
            if (got.shape, got.dtype) != (want.shape, want.dtype):
                return Verdict("wrong", f"{got.dtype}{got.shape} for {want.dtype}{want.shape}")
            if want.size and not np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True):
                return Verdict("wrong", f"{got.ravel()[:8]} for {want.ravel()[:8]}")
    return Verdict("equal", calls=len(calls))
