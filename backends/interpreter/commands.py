"""The values of commands of the host program, but for launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dialects.base import text
from ...dialects.npu.streams import Command
from ...dialects.npu.structure import CopyOp, HostCallOp, ToDeviceOp, ToHostOp
from ...support.rules import Rules
from .host import run_text
from .state import given, held

CommandRule = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""What an op writes, in order, for the contents of what it reads and of its numbers at issue."""


def _copy(op: CopyOp, contents: Sequence[Any]) -> Sequence[Any]:
    return contents


def _to_host(op: ToHostOp, contents: Sequence[Any]) -> Sequence[Any]:
    return [given(contents[0], op.source)]


def _to_device(op: ToDeviceOp, contents: Sequence[Any]) -> Sequence[Any]:
    return [held(contents[0])]


def _host_call(op: HostCallOp, contents: Sequence[Any]) -> Sequence[Any]:
    return run_text(text(op.module), contents)


COMMANDS: Rules[CommandRule] = Rules(
    Command,
    "evaluate",
    {CopyOp: _copy, ToHostOp: _to_host, ToDeviceOp: _to_device, HostCallOp: _host_call},
)
"""Rules by class; an op without one is asked for its own (`Command.evaluate`)."""
