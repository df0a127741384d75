"""What host calls run: a module of StableHLO that takes and gives what the call does."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ....dialects.dtypes import shape_in
from ....dialects.host_modules import HostType, host_signature, said_types
from ....dialects.npu.structure import HostCallOp
from .finding import Finding, plain


def check_host_calls(module: ModuleOp) -> list[Finding]:
    """Host calls whose text is no module, or one of other types. A text with open sizes is made from one that is
    traced, and read when its sizes are known."""
    return [
        Finding("bad-call", f"{{first}}: {problem}", op)
        for op in module.walk()
        if isinstance(op, HostCallOp) and isinstance(op.module, StringAttr) and (problem := _problem(op))
    ]


def _problem(op: HostCallOp) -> str:
    assert isinstance(op.module, StringAttr)
    try:
        takes, gives = host_signature(op.module.data)
    except VerifyException as error:
        return plain(str(error))
    for verb, theirs, ours in (("takes", takes, op.inputs), ("gives", gives, op.outputs)):
        if theirs != _types(ours):
            found, wanted = said_types(theirs), said_types(_types(ours))
            return plain(f"the module of a host op {verb} {found}, where the call has {wanted}")
    return ""


def _types(values: Sequence[SSAValue]) -> tuple[HostType, ...]:
    types = [v.type for v in values]
    return tuple((shape_in(t), str(t.element_type)) for t in types if isinstance(t, TensorType))
