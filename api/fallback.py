"""Lowers a program without what fails: a recogniser, a trial or a fusion that raises what no pass means to raise is
left out, with a warning that names the fault. It never loses the program.

What may be left out are the options that are on unless a user says otherwise. The one whose name stands in the
traceback is tried first, then each of the others alone, then all of them together, and last all fusion.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from ..dialects.module import set_left_out
from ..passes.errors import FusionWarning, NoKernel, PassError, fault_of
from ..support.plugins import PluginError

if TYPE_CHECKING:
    from .options import Options

MECHANISMS = (
    "attention",
    "fractals",
    "widened",
    "turned",
    "pooling",
    "tails",
    "stream_k",
    "placed",
    "inline",
    "ahead",
    "unit_flags",
    "join",
    "banks",
)
"""The options that may be left out, each alone."""

FUSION = "fuse"
"""The option that is left out last, with all others: each op is then a kernel of its own."""

EXPECTED = (PassError, PluginError, MemoryError)
"""What passes raise for a program that cannot be compiled, whatever is left out."""


def lowered_without_faults(
    options: Options,
    module: ModuleOp,
    again: Callable[[], ModuleOp],
    lower: Callable[[ModuleOp, Options], ModuleOp],
) -> ModuleOp:
    """What `lower` makes of a module for some options, or, where it fails by a fault of the compiler, for options
    without what failed. The module says then what was left out. Raises the first fault where nothing helps.

    again: the module as it was, asked for only after a fault, since a function of JAX is traced for it."""
    try:
        return lower(module, options)
    except NoKernel as error:
        fault = error
    except EXPECTED:
        raise
    except Exception as error:
        fault = error
    for left_out in _tried(options, fault):
        try:
            module = lower(again(), replace(options, **dict.fromkeys(left_out, False)))
        except Exception:  # the first fault is the one to tell
            continue
        why = f"{_named(left_out)} failed ({fault_of(fault)}) and is left out: the program may be slower"
        set_left_out(module, why)
        warnings.warn(f"{why}; please report it", FusionWarning, stacklevel=5)
        return module
    raise fault


def _tried(options: Options, fault: Exception) -> Iterator[Sequence[str]]:
    """The options to leave out, in order."""
    on = [name for name in MECHANISMS if getattr(options, name)]
    passed = " ".join(Path(frame.filename).stem for frame in traceback.extract_tb(fault.__traceback__))
    yield from ([name] for name in sorted(on, key=lambda name: name not in passed))
    yield on
    if options.fuse:
        yield [*on, FUSION]


def _named(left_out: Sequence[str]) -> str:
    if len(left_out) == 1:
        return f"the option {left_out[0]!r}"
    return "fusion" if FUSION in left_out else "every optional fusion"
