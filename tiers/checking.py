"""Whether a tier computes what it should: the program against its source, and the file against the program."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..api.arguments.signature import CompileError
from ..api.compiling import verify
from ..api.files.loading import load
from ..api.program import Program
from ..support.files import FilePath
from ..support.progress import Say
from ..tuning.measured import Arguments

Check = Literal["quick", "full", "off"]
"""How much is checked: the program in both memories, and each pass, too, or nothing."""

CHECKS: tuple[Check, ...] = ("quick", "full", "off")


class WrongTier(CompileError):
    """A tier computes something else than it should."""


def check_program(source: Any, arguments: Arguments, program: Program, check: Check, say: Say) -> str:
    """One clause on what `tw.verify` says of a program: its verdict, the largest error at the npu level and the
    tolerance that is stated for it. Raises WrongTier where values differ, and CompileError where they cannot be
    compared."""
    args, kwargs = arguments
    found = verify(source, *args, program=program, quick=check == "quick", progress=say, **kwargs)
    if not found.ok:
        bad = next((row for row in found.checks if not row.ok), None)
        what = "both memory modes have other bits" if bad is None else f"{bad.name}: {bad.word}, {_error(bad)}"
        agreement = [] if found.quantization is None else found.quantization.sentences()
        raise WrongTier("; ".join([f"it computes other values than its source: {what}", *agreement]))
    last = found.checks[-1]
    said = f"SQNR {found.quantization.sqnr:.1f} dB" if found.quantization is not None else _error(last)
    return f"{found.verdict}: {said}"


def _error(row: Any) -> str:
    return f"error {row.error:.2g} of {row.tolerance:.2g}"


def check_file(path: FilePath, given: Arguments, program: Program, arguments: Arguments) -> None:
    """Raises WrongTier where a file gives other bits for what it is given than its program for its arguments."""
    import jax

    (args, kwargs), (own, named) = arguments, given
    wanted, found = jax.tree.leaves(program(*args, **kwargs)), jax.tree.leaves(load(path)(*own, **named))
    for one, two in zip(wanted, found, strict=True):
        if np.asarray(one).tobytes() != np.asarray(two).tobytes():
            raise WrongTier(f"{path}: the file gives other bits than the program that was saved in it")
