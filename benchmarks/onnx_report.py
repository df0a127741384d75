"""From the command line to the table: `tilewright report` of an ONNX ResNet-50, each run in a process of its own.

    python benchmarks/onnx_report.py              # five runs, for a batch of one
    python benchmarks/onnx_report.py --runs 9 --norms --arguments

The first run, which writes Python's bytecode, is not counted. The model is ResNet-50 v1.5 with random weights, as
exporters write it: batch norms folded into convolutions, or as nodes with `--norms`; a batch that is open.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels, blocks and stride of each stage: He et al., Deep residual learning (2015), table 1."""


class Net:
    """A graph while it is made."""

    def __init__(self, norms: bool) -> None:
        self.norms = norms
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        """An initialiser with random numbers."""
        name = f"w{len(self.weights)}"
        numbers = self.rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        self.weights.append(numpy_helper.from_array(np.abs(numbers) if len(shape) == 1 else numbers, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node; the name of its result."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def conv(self, x: str, inside: int, outside: int, kernel: int, stride: int) -> str:
        """A convolution with its batch norm."""
        about: dict[str, object] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [kernel // 2] * 4,
        }
        weights = self.weight(outside, inside, kernel, kernel)
        if not self.norms:
            return self.node("Conv", x, weights, self.weight(outside), **about)
        y = self.node("Conv", x, weights, **about)
        return self.node("BatchNormalization", y, *(self.weight(outside) for _ in range(4)))

    def block(self, x: str, inside: int, width: int, stride: int) -> str:
        """Convolutions 1x1, 3x3, 1x1 around which the input goes."""
        y = self.node("Relu", self.conv(x, inside, width, 1, 1))
        y = self.node("Relu", self.conv(y, width, width, 3, stride))
        y = self.conv(y, width, 4 * width, 1, 1)
        if inside != 4 * width:
            x = self.conv(x, inside, 4 * width, 1, stride)
        return self.node("Relu", self.node("Add", y, x))

    def model(self) -> onnx.ModelProto:
        """ResNet-50: images [n, 3, 224, 224] to logits [n, 1000]."""
        x = self.node("Relu", self.conv("images", 3, 64, 7, 2))
        x = self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        inside = 64
        for width, blocks, stride in STAGES:
            for i in range(blocks):
                x = self.block(x, inside, width, stride if i == 0 else 1)
                inside = 4 * width
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        self.nodes.append(
            helper.make_node(
                "Gemm", [x, self.weight(1000, inside), self.weight(1000)], ["logits"], "fc", transB=1
            )
        )
        images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 224, 224])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 1000])
        graph = helper.make_graph(self.nodes, "resnet50", [images], [logits], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def main() -> int:
    """Prints the seconds of each run and their median."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="how many processes, one after the other")
    parser.add_argument("--norms", action="store_true", help="batch norms are nodes")
    parser.add_argument("--arguments", action="store_true", help="weights are arguments of the program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        onnx.save(Net(args.norms).model(), str(path))
        command = [sys.executable, "-m", "tilewright", "report", str(path), "--at", "n=1"]
        command += ["--weights-as-arguments"] if args.arguments else []
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        seconds: list[float] = []
        for _ in range(args.runs + 1):
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, env=kept)
            seconds.append(time.perf_counter() - start)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 1
    print(done.stdout.strip().splitlines()[0])
    counted = seconds[1:]  # the first one writes bytecode
    print(f"seconds: {', '.join(f'{s:.2f}' for s in counted)}, median {statistics.median(counted):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
