"""Programs of the graph level as ONNX models; `onnx` is an optional extra, which is imported when one is written."""

from .errors import NotInOnnx
from .module import model_of
from .writer import LEAST_OPSET, OPSET

__all__ = ["LEAST_OPSET", "OPSET", "NotInOnnx", "model_of"]
