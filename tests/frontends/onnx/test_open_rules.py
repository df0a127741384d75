"""Reductions, products and norms of symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_cases import check_open
from onnx_models import model_of
from tiering import sampled

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 6, 5, 3)).astype("f4")
REDUCTIONS = (
    "ReduceSum ReduceProd ReduceMax ReduceMin ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
).split()


ONE_OPERAND: list[tuple[str, dict[str, Any], int]] = [
    *((op, {}, 18) for op in REDUCTIONS),
    ("ReduceMean", {"axes": [0]}, 13),
    ("ArgMax", {"axis": 0, "select_last_index": 1}, 13),
    ("Softmax", {"axis": 1}, 11),
    ("LogSoftmax", {}, 13),
    ("Hardmax", {"axis": 1}, 11),
    ("LRN", {"size": 3}, 13),
    ("LpNormalization", {"axis": 0}, 22),
    ("MeanVarianceNormalization", {}, 13),
    ("Dropout", {}, 13),
]


@sampled(2)
@pytest.mark.parametrize(("op", "attributes", "opset"), ONE_OPERAND)
def test_open_sizes(op: str, attributes: dict[str, Any], opset: int) -> None:
    x = np.abs(IMAGE) + 1
    check_open(model_of(op, [x], opset=opset, **attributes), [x], ["n, c, h, 3"])


def test_open_sizes_of_several_operands() -> None:
    a, b, m, p = np.ones((3, 4), "u1"), np.ones((4, 5), "i1"), IMAGE[0, 0], np.ones(6, "f4")
    zeros = [np.array(3, "u1"), np.array(2, "i1")]
    check_open(
        model_of("MatMulInteger", [a, b, *zeros], opset=10, constants=[2, 3]), [a, b], ["n, k", "k, 5"]
    )
    check_open(model_of("Gemm", [m, m], transB=1), [m, m], ["n, k", "5, k"])
    check_open(model_of("Einsum", [m, m], equation="ij,kj->ik"), [m, m], ["n, k", "5, k"])
    layer = model_of("LayerNormalization", [IMAGE, IMAGE[0, 0, 0]], opset=17)
    check_open(layer, [IMAGE, IMAGE[0, 0, 0]], ["n, 6, k, 3", "3"])
    group = model_of("GroupNormalization", [IMAGE, p, p], num_groups=2)
    check_open(group, [IMAGE, p, p], ["n, 6, k, 3", "6", "6"])
    batch = model_of("BatchNormalization", [IMAGE, p, p, p, p])
    check_open(batch, [IMAGE, p, p, p, p], ["n, 6, k, 3", *["6"] * 4])
