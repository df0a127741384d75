"""Writes the models and cases of this folder: `python tests/frontends/onnx/exported/make.py [NAME ...]`.

It needs `pip install 'tilewright[torch]'`; the tests do not.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxscript.optimizer
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nets
from exported_models import FOLDER, int8, made_of, numbers

LARGE = 256
"""Elements of a float initialiser above which its data is left out of a file."""
LARGEST_FILE = 400 * 1024


@dataclass(frozen=True)
class Net:
    """A module, its inputs for each size, and its open dimensions. plain: batch norms stay; `finish` adds to the
    exported graph, and `quantize` names the ops that become int8."""

    build: Callable[[], torch.nn.Module]
    cases: Sequence[Sequence[np.ndarray]]
    dims: Any = None
    plain: bool = False
    finish: Callable[[onnx.ModelProto], None] | None = None
    quantize: frozenset[str] = field(default_factory=frozenset)


def image(n: int, height: int, width: int) -> np.ndarray:
    """Random pixels."""
    rng = np.random.default_rng(n * 1000 + height + width)
    return rng.standard_normal((n, 3, height, width)).astype(np.float32)


def tokens(batch: int, seq: int, words: int) -> np.ndarray:
    """Random token numbers."""
    return np.random.default_rng(batch + 10 * seq).integers(0, words, (batch, seq))


def masked(batch: int, seq: int) -> np.ndarray:
    """A mask of sequences of several lengths."""
    lengths = np.maximum(1, seq - 2 * np.arange(batch))
    return (np.arange(seq) < lengths[:, None]).astype(np.int64)


def cache(batch: int, new: int, past: int) -> list[np.ndarray]:
    """The inputs of the decoder."""
    rng = np.random.default_rng(past)
    kept = [rng.standard_normal((batch, 4, past, 16)).astype(np.float32) for _ in range(4)]
    return [tokens(batch, new, 200), *kept]


def signal(batch: int, seq: int) -> np.ndarray:
    """Random sequences of vectors."""
    return np.random.default_rng(seq).standard_normal((batch, seq, 12)).astype(np.float32)


def add_nms(proto: onnx.ModelProto) -> None:
    """Adds what selects boxes: NonMaxSuppression [n, 3], and the boxes of these [n, 4]."""
    graph = proto.graph
    boxes, scores = (v.name for v in graph.output)
    values = {"most": np.array([10]), "iou": np.array([0.45], "f4"), "least": np.array([0.4], "f4")}
    values |= {"last": np.array(2), "row": np.array([0])}
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items())
    graph.node.extend(
        [
            helper.make_node("NonMaxSuppression", [boxes, scores, "most", "iou", "least"], ["selected"]),
            helper.make_node("Gather", ["selected", "last"], ["numbers"], axis=1),
            helper.make_node("Squeeze", [boxes, "row"], ["rows"]),
            helper.make_node("Gather", ["rows", "numbers"], ["detected"], axis=0),
        ]
    )
    graph.output.extend(
        [
            helper.make_tensor_value_info("selected", TensorProto.INT64, ["found", 3]),
            helper.make_tensor_value_info("detected", TensorProto.FLOAT, ["found", 4]),
        ]
    )


BATCH = {0: Dim("batch")}
TEXT = {0: Dim("batch"), 1: Dim("seq")}
SHORT = {0: Dim("batch"), 1: Dim("seq", max=64)}
PAST = {0: Dim("batch"), 2: Dim("past")}
PIXELS = {2: 8 * Dim("h", min=2, max=64), 3: 8 * Dim("w", min=2, max=64)}
TEXTS = [[tokens(b, s, 200), masked(b, s)] for b, s in ((2, 7), (3, 12))]
NETS = {
    "resnet18": Net(nets.ResNet, [[image(1, 64, 64)]], plain=True),
    "mobilenet": Net(nets.MobileNet, [[image(2, 48, 48)], [image(1, 48, 48)]], (BATCH,)),
    "bert": Net(nets.Bert, TEXTS, (SHORT, SHORT)),
    "gpt": Net(nets.Gpt, [cache(2, 3, 5), cache(1, 1, 9)], ({0: Dim("batch"), 1: Dim("new")}, *[PAST] * 4)),
    "unet": Net(nets.UNet, [[image(1, 40, 24)], [image(1, 32, 48)]], (PIXELS,)),
    "yolo": Net(nets.Yolo, [[image(1, 64, 64)]], finish=add_nms),
    "tagger": Net(nets.Tagger, [[tokens(2, 7, 100)], [tokens(3, 11, 100)]], (TEXT,)),
    "gru": Net(nets.Gru, [[signal(2, 7)], [signal(3, 4)]], (TEXT,)),
    "vit": Net(nets.Vit, [[image(2, 32, 32)], [image(3, 32, 32)]], (BATCH,)),
    "resnet18_int8": Net(
        lambda: nets.ResNet(16, 10, norm=False),
        [[image(1, 64, 64)]],
        quantize=frozenset(["Conv", "Gemm", "Add", "MaxPool", "ReduceMean"]),
    ),
    "bert_int8": Net(
        lambda: nets.Bert(32, 2), TEXTS, (SHORT, SHORT), quantize=frozenset(["MatMul", "Gemm", "Gather"])
    ),
}


def set_numbers(module: torch.nn.Module) -> None:
    """Gives each parameter and buffer the numbers of its name."""
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.from_numpy(numbers(name, tuple(value.shape))))


def exported(module: torch.nn.Module, net: Net) -> onnx.ModelProto:
    """What PyTorch exports."""
    inputs = tuple(map(torch.from_numpy, net.cases[0]))
    program = torch.onnx.export(
        module, inputs, dynamo=True, dynamic_shapes=net.dims, optimize=not net.plain, verbose=False
    )
    assert program is not None
    if net.plain:
        onnxscript.optimizer.fold_constants(program.model)
        onnxscript.optimizer.remove_unused_nodes(program.model)
    return program.model_proto


def cleared(proto: onnx.ModelProto) -> None:
    """Removes what PyTorch notes about its sources: it has paths of the machine."""

    def clear(message: Any) -> None:
        for one, value in message.ListFields():
            if one.name in ("metadata_props", "doc_string"):
                message.ClearField(one.name)
            elif one.message_type is not None:
                for inner in value if one.is_repeated else [value]:
                    clear(inner)

    clear(proto)


def recipes(name: str, shape: tuple[int, ...], module: torch.nn.Module) -> Iterator[str]:
    """What the exporter may have made an initialiser of."""
    state = {n: tuple(v.shape) for n, v in module.state_dict().items()}
    if state.get(name) == shape:
        yield name
        for norm, part in module.named_modules():
            if isinstance(part, torch.nn.BatchNorm2d) and part.num_features == shape[0]:
                yield f"{name} * {norm} {part.eps}"
    yield from (f"{n} T" for n, s in state.items() if len(s) == 2 and s[::-1] == shape)


def recipe_of(tensor: onnx.TensorProto, module: torch.nn.Module) -> str | None:
    """What makes an initialiser's data, where the rule does."""
    array, shape = numpy_helper.to_array(tensor), tuple(tensor.dims)
    for recipe in recipes(tensor.name, shape, module):
        if np.array_equal(made_of(recipe, shape), array):
            return recipe
    return None


def emptied(proto: onnx.ModelProto, module: torch.nn.Module, known: dict[str, str]) -> None:
    """Removes the data of large initialisers. known: the recipes of those that are int8."""
    for tensor in proto.graph.initializer:
        if np.prod(tensor.dims) <= LARGE or tensor.data_type not in (TensorProto.FLOAT, TensorProto.INT8):
            continue
        recipe = known.get(tensor.name) or recipe_of(tensor, module)
        if recipe is None:
            print(f"  {tensor.name} {list(tensor.dims)} keeps its data")
            continue
        assert np.array_equal(made_of(recipe, tuple(tensor.dims)), numpy_helper.to_array(tensor))
        tensor.ClearField("raw_data")
        tensor.doc_string = recipe


class Quantizer:
    """Makes a graph int8 as ONNX Runtime's static quantiser does: a pair of QuantizeLinear and DequantizeLinear at each
    input and output of the ops that it is told of. Activations have one scale and zero point, weights a scale for each
    output channel, biases are i32."""

    def __init__(self, proto: onnx.ModelProto, module: torch.nn.Module, net: Net):
        self.graph, self.module, self.ops = proto.graph, module, net.quantize
        self.weights = {t.name: t for t in self.graph.initializer}
        self.ranges = self.recorded(proto, net.cases)
        self.recipes: dict[str, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.pairs: dict[str, str] = {}
        self.scales: dict[str, np.ndarray] = {}

    def recorded(
        self, proto: onnx.ModelProto, rows: Sequence[Sequence[np.ndarray]]
    ) -> dict[str, tuple[float, float]]:
        """The least and largest value of each tensor in a run of all cases, 0 among them."""
        made = onnx.ModelProto()
        made.CopyFrom(proto)
        names = [n for node in proto.graph.node for n in node.output]
        del made.graph.output[:]
        made.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
        run = ReferenceEvaluator(made)
        inputs = [v.name for v in proto.graph.input]
        ranges: dict[str, tuple[float, float]] = {}
        for row in rows:
            given = dict(zip(inputs, row, strict=True))
            found = dict(zip(names, run.run(None, given), strict=True))  # pyright: ignore[reportArgumentType]
            for name, value in {**given, **found}.items():
                if np.asarray(value).dtype == np.float32:
                    low, high = ranges.get(name, (0.0, 0.0))
                    ranges[name] = min(low, float(np.min(value))), max(high, float(np.max(value)))
        return ranges

    def constant(self, name: str, value: np.ndarray) -> str:
        """Adds an initialiser."""
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, name: str, axis: int) -> str:
        """A weight as int8, dequantised."""
        if name in self.pairs:
            return self.pairs[name]
        array = numpy_helper.to_array(self.weights[name])
        values, self.scales[name] = int8(array, axis)
        recipe = recipe_of(self.weights[name], self.module)
        if recipe is not None:
            self.recipes[f"{name}_quantized"] = f"{recipe} int8 {axis}"
        inputs = [
            self.constant(f"{name}_quantized", values),
            self.constant(f"{name}_scale", self.scales[name]),
            self.constant(f"{name}_zero", np.zeros(self.scales[name].shape, np.int8)),
        ]
        return self.dequantized(name, inputs, axis)

    def bias(self, name: str, of: str, weights: str) -> str:
        """A bias as i32, with the scales of the products."""
        scale = self.scales[of] * self.scales[weights]
        values = np.rint(numpy_helper.to_array(self.weights[name]) / scale).astype(np.int32)
        inputs = [self.constant(f"{name}_quantized", values), self.constant(f"{name}_scale", scale)]
        return self.dequantized(name, inputs, 0)

    def dequantized(self, name: str, inputs: Sequence[str], axis: int | None = None) -> str:
        """The float numbers of quantised ones."""
        keywords = {} if axis is None else {"axis": axis}
        made = f"{name}_dequantized"
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [made], f"{name}_DQ", **keywords))
        self.pairs[name] = made
        return made

    def activation(self, name: str) -> str:
        """A tensor through int8 numbers, once."""
        if name in self.pairs:
            return self.pairs[name]
        low, high = self.ranges[name]
        scale = np.float32((high - low) / 255)
        zero = np.int8(np.clip(round(-128 - low / float(scale)), -128, 127))
        self.scales[name] = scale[None]
        parts = [
            self.constant(f"{name}_scale", np.array(scale)),
            self.constant(f"{name}_zero", np.array(zero)),
        ]
        self.nodes.append(
            helper.make_node("QuantizeLinear", [name, *parts], [f"{name}_quantized"], f"{name}_Q")
        )
        return self.dequantized(name, [f"{name}_quantized", *parts])

    def run(self) -> dict[str, str]:
        """Rewrites the graph; gives the recipes of its int8 weights."""
        users: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                users.setdefault(name, []).append(node)
        results = [v.name for v in self.graph.output]
        for node in list(self.graph.node):
            quantized = node.op_type in self.ops
            before = list(node.input)
            for i, name in enumerate(before):
                if name in self.weights:
                    if quantized and i == 1 and node.op_type in ("Conv", "Gemm", "MatMul"):
                        wide = node.op_type == "MatMul"
                        node.input[i] = self.weight(name, 1 if wide else 0)
                    elif quantized and i == 2:
                        node.input[i] = self.bias(name, before[0], before[1])
                    elif (
                        quantized
                        and i == 0
                        and node.op_type == "Gather"
                        and len(self.weights[name].dims) == 2
                    ):
                        if self.weights[name].data_type == TensorProto.FLOAT:
                            node.input[i] = self.weight(name, 1)
                elif quantized and name in self.ranges:
                    node.input[i] = self.activation(name)
                elif name in self.pairs:
                    node.input[i] = self.pairs[name]
            self.nodes.append(node)
            only_relu = quantized and [u.op_type for u in users.get(node.output[0], [])] == ["Relu"]
            relu = node.op_type == "Relu"
            if node.output[0] in self.ranges and ((quantized and not only_relu) or relu):
                self.activation(node.output[0])
        for i, name in enumerate(results):
            if name in self.pairs:
                self.graph.output[i].name = self.pairs[name]
        used = {n for node in self.nodes for n in node.input}
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        kept = [t for t in self.graph.initializer if t.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        del self.graph.value_info[:]
        return self.recipes


def outputs_of(proto: onnx.ModelProto, module: torch.nn.Module, net: Net) -> list[list[np.ndarray]]:
    """What PyTorch gives for each case; what it has no op for, and int8 nets, are ONNX's evaluator's."""
    names = [v.name for v in proto.graph.input]
    rows: list[list[np.ndarray]] = []
    for inputs in net.cases:
        want: list[np.ndarray] = []
        if net.quantize:
            given = dict(zip(names, inputs, strict=True))
            rows.append([np.asarray(v) for v in ReferenceEvaluator(proto).run(None, given)])  # pyright: ignore
            continue
        with torch.no_grad():
            made = module(*map(torch.from_numpy, inputs))
        want = [v.numpy() for v in (made if isinstance(made, tuple) else (made,))]
        if net.finish is not None:
            add_selected(proto, want)
        rows.append(want)
    return rows


def add_selected(proto: onnx.ModelProto, want: list[np.ndarray]) -> None:
    """Adds what the ops behind the exported graph make of PyTorch's boxes and scores."""
    at = next(i for i, n in enumerate(proto.graph.node) if n.op_type == "NonMaxSuppression")
    nodes = proto.graph.node[at:]
    inputs = [onnx.ValueInfoProto(name=v.name) for v in proto.graph.output[:2]]
    for value in inputs:
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    used = {n for node in nodes for n in node.input}
    weights = [t for t in proto.graph.initializer if t.name in used]
    graph = helper.make_graph(nodes, "behind", inputs, list(proto.graph.output[2:]), weights)
    part = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=10)
    given = {v.name: a for v, a in zip(inputs, want, strict=True)}
    want += [np.asarray(v) for v in ReferenceEvaluator(part).run(None, given)]  # pyright: ignore


def write(name: str, net: Net) -> None:
    """Writes the files of a net."""
    print(name)
    module = net.build().eval()
    set_numbers(module)
    proto = exported(module, net)
    cleared(proto)
    proto.graph.name = name
    if net.finish is not None:
        net.finish(proto)
    known = Quantizer(proto, module, net).run() if net.quantize else {}
    arrays: dict[str, np.ndarray] = {}
    for i, (inputs, outputs) in enumerate(zip(net.cases, outputs_of(proto, module, net), strict=True)):
        arrays |= {f"{i}_in{j}": a for j, a in enumerate(inputs)}
        arrays |= {f"{i}_out{j}": a for j, a in enumerate(outputs)}
        for a in outputs:
            print(f"  {a.dtype}{list(a.shape)}" + (f" rms {np.sqrt((a * a).mean()):.3g}" if a.size else ""))
    onnx.checker.check_model(proto, full_check=True)
    emptied(proto, module, known)
    path = FOLDER / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString(deterministic=True))
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)  # pyright: ignore[reportArgumentType]
    for file in (path, FOLDER / f"{name}.npz"):
        print(f"  {file.name}: {file.stat().st_size / 1024:.0f} KB")
        assert file.stat().st_size < LARGEST_FILE


def main() -> None:
    """Writes the nets that the command line names, or all."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or NETS:
        write(name, NETS[name])


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
