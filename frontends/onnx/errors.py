"""What is wrong with an ONNX model, or with what it is called with."""

from __future__ import annotations

from ..errors import FrontendError


class OnnxError(FrontendError):
    """A model that cannot be read or converted; one sentence that names the file and the node."""


class ValueNeeded(OnnxError):
    """What decides shapes is an input whose value is not known.

    inputs: the names of the graph's inputs that decide.
    """

    def __init__(self, message: str, inputs: frozenset[str]):
        super().__init__(message)
        self.inputs = inputs


class Unsupported(Exception):
    """Raised by a rule for what it does not take: a clause that follows the name of the node."""
