"""What programs call that are ONNX models: the function of a model's text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def onnx_of(text: str) -> Callable[..., Any]:
    """The function of an ONNX model as text."""
    import onnx.parser

    import tilewright as tw

    return tw.onnx_function(onnx.parser.parse_model(text))
