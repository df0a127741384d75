"""What ONNX cannot say of a program."""

from __future__ import annotations

from ...support.sentences import SentenceError


class NotInOnnx(SentenceError):
    """A program that is not written as ONNX; one sentence that names the ops, how many of each there are, and where the
    first one comes from."""


class Unsayable(Exception):
    """Raised by a rule for an op that ONNX has no form for: a clause that follows the name of the op."""
