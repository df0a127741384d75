"""Pins: modes by patterns of products, or of the kernels that these are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..api.arguments.signature import CompileError
from ..api.compiling import compile
from ..api.options import Options
from ..passes.quantized.recipes import QuantConfig, fits

Kernels = Mapping[str, Sequence[str]]
"""The products that are in each kernel, by its name."""


def kernels_of(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None) -> Kernels:
    """The kernels of a program that is not quantized, as its report names them, with the products in them."""
    options = Options(quantization=QuantConfig())
    report = compile(source, *args, target=target, options=options, **kwargs).report()
    return {kernel.name: list(kernel.modes) for kernel in report.kernels if kernel.modes}


def resolved_pins(
    pins: Mapping[str, str], names: Sequence[str], kernels: Callable[[], Kernels]
) -> dict[str, str]:
    """Pins by patterns of products alone: a pattern that fits none of their `names` is one of kernels, and becomes the
    names of the products in those. Raises CompileError for one that fits neither."""
    found: dict[str, str] = {}
    known: Kernels | None = None
    for pattern, mode in pins.items():
        if any(fits(name, pattern) for name in names):
            found.setdefault(pattern, mode)
            continue
        known = kernels() if known is None else known
        inside = [n for kernel, members in known.items() if fnmatchcase(kernel, pattern) for n in members]
        if not inside:
            raise CompileError(
                f"no product and no kernel fits the pin {pattern!r}; the products are {', '.join(names) or 'none'}, "
                f"in the kernels {', '.join(known) or 'none'}"
            )
        for name in inside:
            found.setdefault(name, mode)
    return found
