"""`--config FILE`: a configuration of `tilewright autotune`, in the place of switches for target, sizes and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..passes.alternatives import FORMER
from ..support.winograd import OFF, winograd_text
from .common import CliError

REFUSING = ("autotune", "quantize")
"""Commands that choose what a configuration says."""


def _joined(given: Any) -> str:
    return ",".join(map(str, [given] if isinstance(given, str | int) else given))


def _pins(given: Any) -> str:
    from ..passes.pins import pins_text

    return pins_text(given)


_SWITCHES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "schedule": ("schedule", _pins),
    "host": ("host", str),
    "donate": ("donate", _joined),
    "quantization": ("quant_config", lambda given: given),
    "weights": ("weights", _joined),
    "precision": ("precision", str),
    "without": ("without", list),
    "strips": ("strips", lambda given: OFF if given is None else str(given)),
    "winograd": ("winograd", winograd_text),
    "memory_limit": ("memory_limit", str),
    "hivm": ("hivm_forms", bool),
    "plans": ("plans", str),
}
"""For each option the switch that says it, by its name in the parsed arguments, and what it would say."""

_ALSO: Mapping[str, tuple[str, ...]] = {
    "target": ("set",),
    "without": tuple(f"no_{former}" for former in FORMER),
}
"""Other switches that say a part of what a switch says."""


def settle_config(args: argparse.Namespace) -> None:
    """Makes what the file of `--config` says what the command line says. Raises CliError where that says it already,
    and CompileError for a file that is no configuration."""
    path = getattr(args, "config", None)
    if path is None:
        return
    if args.command in REFUSING:
        raise CliError(f"--config {path}: {args.command} chooses a configuration: say what is fixed in switches")
    if Path(path).suffix == ".toml":
        raise CliError(f"--config {path}: a .toml file of `tilewright quantize` is for --quant-config")
    from ..tuning.configuration import Configuration, changed

    found = Configuration.load(path)
    says: dict[str, Any] = {"target": found.target}
    if found.sizes:
        says["at"] = ",".join(f"{name}={size}" for name, size in found.sizes.items())
    for option, (switch, text) in _SWITCHES.items():
        if changed(found.options, option) is not None:
            says[switch] = text(getattr(found.options, option))
    for switch, value in says.items():
        for other in (switch, *_ALSO.get(switch, ())):
            if _is_said(args, other):
                name = f"--{other.replace('_', '-')}"
                raise CliError(f"{name}: --config {path} says that, too: leave one of them out")
        setattr(args, switch, value)


def _is_said(args: argparse.Namespace, switch: str) -> bool:
    """Whether the command line has a switch."""
    given = getattr(args, switch, None)
    return switch in getattr(args, "said", ()) or given is True or (isinstance(given, list) and bool(given))  # pyright: ignore[reportUnknownArgumentType]


def has_sizes(args: argparse.Namespace) -> bool:
    """Whether the file of `--config` says the sizes of a command, which is then for these alone."""
    return getattr(args, "config", None) is not None and args.at is not None and not _is_said(args, "at")


def sizes_said(args: argparse.Namespace) -> str:
    """What says the sizes of a command, for messages."""
    return f"--config {args.config}" if has_sizes(args) else f"--at {args.at}"
