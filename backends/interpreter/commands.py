"""The values of commands of the host program, but for launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dialects.host_text import text_at
from ...dialects.npu.streams import Command
from ...dialects.npu.structure import CopyOp, HostCallOp, ToDeviceOp, ToHostOp
from ...support.rules import Rules
from ..functions.host import run_text
from ..functions.scope import RunTimeSizes
from .state import given, held, seated, storage, unseated

CommandRule = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""What an op writes, in order, for the contents of what it reads and of its numbers at issue."""


def _copy(op: CopyOp, contents: Sequence[Any]) -> Sequence[Any]:
    return contents


def _to_host(op: ToHostOp, contents: Sequence[Any]) -> Sequence[Any]:
    return [given(contents[0], op.source)]


def _to_device(op: ToDeviceOp, contents: Sequence[Any]) -> Sequence[Any]:
    return [held(contents[0])]


def host_call(op: HostCallOp, contents: Sequence[Any], sizes: RunTimeSizes) -> Sequence[Any]:
    """The results of a host call where open sizes are numbers: XLA compiles its StableHLO for each. Operands and
    results with open dimensions are in arrays with room for the largest sizes."""
    inputs = [unseated(x, storage(v), sizes) for x, v in zip(contents, op.inputs, strict=True)]
    results = run_text(text_at(op.module, sizes.values), inputs, op)
    return [seated(x, storage(v)) for x, v in zip(results, op.outputs, strict=True)]


def _host_call(op: HostCallOp, contents: Sequence[Any]) -> Sequence[Any]:
    return host_call(op, contents, RunTimeSizes())


COMMANDS: Rules[CommandRule] = Rules(
    Command,
    "evaluate",
    {CopyOp: _copy, ToHostOp: _to_host, ToDeviceOp: _to_device, HostCallOp: _host_call},
)
"""Rules by class; an op without one is asked for its own (`Command.evaluate`)."""
