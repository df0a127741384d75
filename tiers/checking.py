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
from ..verification.results import Check as Row

Check = Literal["quick", "full", "off"]
"""How much is checked: the program in both memories, and each pass, too, or nothing."""

CHECKS: tuple[Check, ...] = ("quick", "full", "off")


class WrongTier(CompileError):
    """A tier computes something else than it should."""


UNCHECKED = "not checked: "
"""Begins why a program was compared with nothing."""


def check_program(source: Any, arguments: Arguments, program: Program, full: bool, say: Say) -> str:
    """One clause on what `tw.verify` says of a program: its verdict, and the largest error at the npu level beside the
    tolerance that is stated for it; or why it is not checked, such as its size. full: after each pass, too. Raises
    WrongTier where values differ."""
    args, kwargs = arguments
    try:
        found = verify(source, *args, program=program, quick=not full, progress=say, **kwargs)
    except CompileError as error:
        return f"{UNCHECKED}{error}"
    if not found.ok:
        bad = next((row for row in found.checks if not row.ok), None)
        what = "both memory modes have other bits" if bad is None else f"{bad.name}: {bad.word}, {_error(bad)}"
        agreement = [] if found.quantization is None else found.quantization.sentences()
        raise WrongTier("; ".join([f"it computes other values than its source: {what}", *agreement]))
    own = found.quantization
    said = _error(found.checks[-1]) if own is None else f"SQNR {own.sqnr:.1f} dB of {own.bound:.1f}"
    return f"{found.verdict}: {said}"


def _error(row: Row) -> str:
    return f"error {row.error:.2g} of {row.tolerance:.2g}"


def check_file(path: FilePath, given: Arguments, program: Program, arguments: Arguments) -> None:
    """Raises WrongTier where a file gives other bits for what it is given than its program for its arguments."""
    import jax

    (args, kwargs), (own, named) = arguments, given
    wanted, found = jax.tree.leaves(program(*args, **kwargs)), jax.tree.leaves(load(path)(*own, **named))
    for one, two in zip(wanted, found, strict=True):
        if np.asarray(one).tobytes() != np.asarray(two).tobytes():
            raise WrongTier(f"{path}: the file gives other bits than the program that was saved in it")
