"""Which program a seed stands for: a family, which of its extents is 1, and whether sizes are open."""

from __future__ import annotations

from collections.abc import Callable

from ..generate import Program
from . import attention, onnx_models, products, windows
from .writer import OpenWriter, Writer

Family = Callable[[Writer], list[str]]

FAMILIES: tuple[tuple[str, Family], ...] = (
    ("attention", attention.attention),
    ("products", products.layouts),
    ("one_query", attention.one_query),
    ("pooled", windows.pooled),
    ("gradient", attention.attention),
    ("attention", attention.attention),
    ("perceptron", products.perceptron),
    ("chained", attention.chained),
    ("reductions", windows.reductions),
    ("dot_product_attention", attention.dot_product_attention),
    ("row epilogues", products.row_epilogues),
    ("onnx_attention", onnx_models.onnx_attention),
    ("winograd", windows.winograd),
    ("attention", attention.attention),
    ("concatenated", products.concatenated),
    ("gathered", products.gathered),
    ("strips", products.strips),
    ("onnx_perceptron", onnx_models.onnx_perceptron),
    ("quantized", products.quantized),
    ("layer_gradient", products.perceptron),
    ("onnx_windows", onnx_models.onnx_windows),
)
"""What seeds go through in turn."""

GRADIENTS = ("gradient", "layer_gradient")
CLOSED = ("onnx_attention", "onnx_perceptron", "onnx_windows", "winograd")
"""Families without open sizes."""

VALUES_EVERY = 11
"""One program in so many is small, and runs."""

OPEN_EVERY = 5
"""One program in so many has open sizes, if its family can."""


def is_small(seed: int) -> bool:
    return seed % VALUES_EVERY == 0


def spelled_program_of(seed: int, only: str = "") -> Program:
    """The program of a seed. only: names of families, separated by commas."""
    names = [n for n in only.split(",") if n]
    families = [row for row in FAMILIES if not names or row[0] in names]
    round_, place = divmod(seed, len(families))
    name, family = families[place]
    is_open = seed % OPEN_EVERY == 3 and name not in CLOSED
    writer = (OpenWriter if is_open else Writer)(seed, round_, is_small(seed))
    results = family(writer)
    return writer.finished(results, gradient=name in GRADIENTS)
