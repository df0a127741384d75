"""What is remembered of an instruction that ran: who wrote these bytes, and what was known when it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdsl.ir import Operation


class Mark:
    """An instruction that ran, or a command of the host program.

    block: the number of the run of a block of cores, 0 for the host program's own commands; core: its core, None for
    the host program's; queue, number: its pipe in that block, and its place there from 1 on; step: how many
    instructions of the session ran before it; env: the core's indices.
    """

    __slots__ = ("block", "core", "env", "number", "op", "queue", "step")

    def __init__(
        self, op: Operation, block: int, core: Any, queue: int, number: int, step: int, env: tuple[int, ...]
    ) -> None:
        self.op, self.block, self.core = op, block, core
        self.queue, self.number, self.step, self.env = queue, number, step, env
