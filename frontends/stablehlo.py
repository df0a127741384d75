"""StableHLO text, bytecode and portable artifacts to the graph level."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from ..machine import Machine
from .errors import FrontendError
from .uniform import PREFIX

_BYTECODE = b"ML\xefR"
_BRACE = re.compile(rb"[{}]")

DEEPEST = 4000
"""Regions within each other that MLIR's parser takes; at 100,000 it overflows the stack."""
_OPERATION = re.compile(
    r"""//[^\n]*
      | (?P<location>\bloc\()?"(?P<generic>[^"\\\n]*)(?:\\.[^"\\\n]*)*"(?P<operands>\s*\()?
      | (?<![\w.$#!@%^-])(?P<custom>(?:stablehlo|chlo|mhlo|vhlo)\.[a-z]\w*)(?!\w|\s*[=,}])
    """,
    re.VERBOSE,
)
"""What may name an operation: a name on its own, anywhere on a line, that is no attribute's; or a string before its
operands, the generic form, which is not in a location. Comments and other strings are matched to be passed over."""

_NAME = re.compile(r"(?:stablehlo|chlo|mhlo|vhlo)\.[a-z]\w*")


def is_stablehlo(source: str | bytes) -> bool:
    """Whether `source` is MLIR bytecode, or text that uses an operation of StableHLO, CHLO or MHLO, or quantized types
    as StableHLO has them."""
    if isinstance(source, bytes):
        if source.startswith(_BYTECODE):
            return True
        source = source.decode("utf-8", errors="replace")
    return PREFIX in source or any(
        found["custom"] or (found["operands"] and not found["location"] and _NAME.fullmatch(found["generic"]))
        for found in _OPERATION.finditer(source)
    )


def lower_stablehlo(
    source: str | bytes, filename: str | None = None, machine: Machine | None = None
) -> ModuleOp:
    """Convert StableHLO text, MLIR bytecode or a portable artifact; `filename` is for error messages, `machine` the
    device, whose own element types run there too.

    Raises FrontendError if it is not valid MLIR, has no function @main, or uses dynamic shapes.
    """
    from ..dialects.base import describe
    from ..dialects.text import oversized
    from .bindings import parse

    _check_depth(source, filename)
    module = _convert(parse(source, filename), filename, machine)
    for op in module.walk():
        problem = oversized(op)
        if problem is not None:
            raise FrontendError(f"{describe(op)} {problem}")
    return module


def stablehlo_artifact(source: str | bytes, filename: str | None = None) -> bytes:
    """StableHLO in any form, as `lower_stablehlo` takes it, as a portable artifact. Raises FrontendError."""
    from .bindings import parse, portable

    _check_depth(source, filename)
    return portable(parse(source, filename))


def stablehlo_text(artifact: bytes) -> str:
    """A portable artifact as text of StableHLO. Raises FrontendError."""
    from .bindings import parse

    return str(parse(artifact, None))


def _check_depth(source: str | bytes, filename: str | None) -> None:
    """Raises FrontendError where regions are nested so deeply that MLIR's parser would run out of stack."""
    text = source if isinstance(source, bytes) else source.encode()
    if text.startswith(_BYTECODE) or text.count(b"{") <= DEEPEST:
        return
    depth = accumulate(1 if brace == b"{" else -1 for brace in _BRACE.findall(text))
    if max(depth) > DEEPEST:
        raise FrontendError(f"{filename or 'the program'}: regions are nested more than {DEEPEST} deep")


def convert_module(module: Any, machine: Machine | None = None) -> ModuleOp:
    """Convert a module of jaxlib's MLIR bindings (`jaxlib.mlir.ir.Module`), which stays as it is, for a machine.

    Raises FrontendError if it has no function @main or uses dynamic shapes.
    """
    return _convert(module, None, machine)


def _convert(module: Any, filename: str | None, machine: Machine | None) -> ModuleOp:
    from .bindings import fold_shapes
    from .refining import followed
    from .rules import ON_COMPLEX, ON_QUANTIZED, REWRITES, RULES, STRUCTURAL
    from .walk import DynamicShape, Walk

    def converted(module: Any, bounded: bool = False) -> ModuleOp:
        tables = (RULES, STRUCTURAL, ON_COMPLEX, ON_QUANTIZED)
        return Walk(module, filename, *tables, machine, REWRITES, bounded).main()

    try:
        return converted(module)
    except DynamicShape:
        # Exported programs have shapes that only look dynamic: they follow from those of the inputs.
        # Others have bounds, and data says how much of these there is.
        static = fold_shapes(module)
        static = module if static is None else static
        try:
            return converted(static, bounded=True)
        except DynamicShape:
            further = followed(static)
            if further is None:
                raise
            return converted(further, bounded=True)
