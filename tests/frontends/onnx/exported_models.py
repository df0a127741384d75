"""Models that PyTorch exported, which `exported/make.py` writes without their weights, and the rule that makes these.

A weight is random numbers that follow from its name and shape. A tensor of a file that has no data says in its
doc_string what it is made of:

    NAME              the numbers of the name, in the tensor's own shape
    NAME T            those of the transposed shape, transposed
    NAME * BN EPS     convolution weights, with the batch norm of the name BN folded into them
    ... int8 AXIS     what is before it, as symmetric int8 numbers with a scale for each index of the axis
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

FOLDER = Path(__file__).resolve().parent / "exported"


def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The f32 numbers of a parameter: batch-norm variances are positive, scales near 1, and the others keep activations
    near 1."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var"):
        return (0.5 + rng.random(shape)).astype(np.float32)
    normal = rng.standard_normal(shape).astype(np.float32)
    if len(shape) <= 1:
        return normal * np.float32(0.1) + np.float32(name.endswith("weight"))
    gain = 1.4 if len(shape) == 4 else 1.0
    return normal * np.float32(gain / math.sqrt(math.prod(shape[1:])))


def fold(weights: np.ndarray, norm: str, eps: float) -> np.ndarray:
    """Convolution weights times what a batch norm scales their output channels by."""
    gamma, variance = (numbers(f"{norm}.{part}", weights.shape[:1]) for part in ("weight", "running_var"))
    scale = gamma / np.sqrt(variance + np.float32(eps))
    return weights * scale.reshape(-1, *[1] * (weights.ndim - 1))


def int8(weights: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights as symmetric int8 numbers, and the scale of each index of an axis."""
    others = tuple(i for i in range(weights.ndim) if i != axis % weights.ndim)
    scale = np.abs(weights).max(axis=others, keepdims=True) / np.float32(127)
    return np.clip(np.rint(weights / scale), -127, 127).astype(np.int8), scale.reshape(-1)


def made_of(recipe: str, shape: tuple[int, ...]) -> np.ndarray:
    """What a recipe makes of a tensor of this shape."""
    words = recipe.split()
    if words[-2:-1] == ["int8"]:
        return int8(made_of(" ".join(words[:-2]), shape), int(words[-1]))[0]
    if words[1:] == ["T"]:
        return np.ascontiguousarray(numbers(words[0], shape[::-1]).T)
    found = numbers(words[0], shape)
    return fold(found, words[2], float(words[3])) if len(words) > 1 else found


def filled(path: str | Path) -> onnx.ModelProto:
    """A model with its weights."""
    proto = onnx.load_model(path)
    for tensor in proto.graph.initializer:
        if tensor.doc_string:
            array = made_of(tensor.doc_string, tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return proto


@dataclass(frozen=True)
class Case:
    """Inputs of a model, in its order, and what PyTorch or ONNX's own evaluator gives for them."""

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


def cases(name: str) -> list[Case]:
    """The cases of a model: two where it has open dimensions, one otherwise."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    found: list[Case] = []
    while f"{len(found)}_out0" in arrays:
        i = len(found)
        rows = [[arrays[k] for j in range(99) if (k := f"{i}_{kind}{j}") in arrays] for kind in ("in", "out")]
        found.append(Case(*rows))
    return found
