"""Why a kernel is not exported."""

from __future__ import annotations

from xdsl.ir import Operation

from ...dialects.base import describe, text
from ...dialects.npu.structure import KernelOp


class NotInHivm(Exception):
    """An op that HIVM cannot say as it is; the message is one sentence that names kernel, op and reason."""

    def __init__(self, op: Operation, reason: str):
        around: Operation | None = op
        while around is not None and not isinstance(around, KernelOp):
            around = around.parent_op()
        self.kernel = text(around.sym_name) if around is not None else ""
        place = f"kernel @{self.kernel}: " if self.kernel else ""
        super().__init__(f"{place}{describe(op)} {reason}")
