"""StableHLO text, bytecode and portable artifacts to the graph level."""

from __future__ import annotations

import re
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from .errors import FrontendError

_BYTECODE = b"ML\xefR"
_OPERATION = re.compile(
    r"""//[^\n]*
      | (?P<location>\bloc\()?"(?P<generic>[^"\\\n]*)(?:\\.[^"\\\n]*)*"(?P<operands>\s*\()?
      | (?<![\w.$#!@%^-])(?P<custom>(?:stablehlo|chlo|mhlo|vhlo)\.[a-z]\w*)(?!\w|\s*[=,}])
    """,
    re.VERBOSE,
)
"""What may name an operation: a comment or a string, which does not, unless the string is the name of a generic
operation, before its operands and not of a location; or a name on its own, anywhere on a line, that is no attribute's."""

_NAME = re.compile(r"(?:stablehlo|chlo|mhlo|vhlo)\.[a-z]\w*")


def is_stablehlo(source: str | bytes) -> bool:
    """Whether `source` is MLIR bytecode, or text that uses an operation of StableHLO, CHLO or MHLO."""
    if isinstance(source, bytes):
        if source.startswith(_BYTECODE):
            return True
        source = source.decode("utf-8", errors="replace")
    return any(
        found["custom"]
        or (found["operands"] and not found["location"] and _NAME.fullmatch(found["generic"]))
        for found in _OPERATION.finditer(source)
    )


def lower_stablehlo(source: str | bytes, filename: str | None = None) -> ModuleOp:
    """Convert StableHLO text, MLIR bytecode or a portable artifact; `filename` is for error messages.

    Raises FrontendError if it is not valid MLIR, has no function @main, or uses dynamic shapes.
    """
    from .bindings import parse

    return _convert(parse(source, filename), filename)


def convert_module(module: Any) -> ModuleOp:
    """Convert a module of jaxlib's MLIR bindings (`jaxlib.mlir.ir.Module`), which stays as it is.

    Raises FrontendError if it has no function @main or uses dynamic shapes.
    """
    return _convert(module, None)


def _convert(module: Any, filename: str | None) -> ModuleOp:
    from .bindings import fold_shapes, lower_quantized
    from .rules import ON_COMPLEX, RULES, STRUCTURAL
    from .walk import DynamicShape, QuantizedType, Walk

    def converted(module: Any) -> ModuleOp:
        return Walk(module, filename, RULES, STRUCTURAL, ON_COMPLEX).main()

    try:
        return converted(module)
    except DynamicShape:
        # Exported programs have shapes that only look dynamic: they follow from those of the inputs.
        static = fold_shapes(module)
        if static is None:
            raise
        return converted(static)
    except QuantizedType:
        plain = lower_quantized(module)
        if isinstance(plain, str):
            named = plain.replace("(-:", f"({filename}:") if filename else plain
            raise FrontendError(f"{named} has no definition for quantized tensors") from None
        return converted(plain)
