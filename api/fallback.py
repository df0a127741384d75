"""Lowers a program without what fails: a recogniser, a trial or a fusion that raises what no pass means to raise is
left out, with a warning that names the fault. It never loses the program.

What may be left out are the alternatives (passes/alternatives.py). Those of whose modules one stands in the traceback
are tried first, then each of the others alone, then all of them together, and last all fusion.
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
from ..passes.alternatives import FUSION, Alternative, alternatives
from ..passes.errors import FusionWarning, NoKernel, PassError, fault_of
from ..support.plugins import PluginError

if TYPE_CHECKING:
    from .options import Options

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
            module = lower(again(), replace(options, without={*options.without, *left_out}))
        except Exception:  # the first fault is the one to tell
            continue
        why = f"{_named(left_out)} failed ({fault_of(fault)}) and is left out: the program may be slower"
        set_left_out(module, why)
        warnings.warn(f"{why}; please report it", FusionWarning, stacklevel=5)
        return module
    raise fault


def _tried(options: Options, fault: Exception) -> Iterator[Sequence[str]]:
    """The alternatives to leave out, in order: fusion last, with all others, so that each op is a kernel of its own."""
    considered = [each for each in alternatives() if options.may(each.name) and each.name != FUSION]
    passed = [Path(frame.filename).stem for frame in traceback.extract_tb(fault.__traceback__)]

    def blamed(alternative: Alternative) -> bool:
        return any(stem.startswith(alternative.modules) for stem in passed)

    yield from ([each.name] for each in sorted(considered, key=blamed, reverse=True))
    names = [each.name for each in considered]
    yield names
    if options.may(FUSION):
        yield [*names, FUSION]


def _named(left_out: Sequence[str]) -> str:
    if len(left_out) == 1:
        return f"the alternative {left_out[0]!r}"
    return "fusion" if FUSION in left_out else "every alternative"
