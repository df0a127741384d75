"""npu-hivm: brings kernels into forms that the vendor's IR, HIVM, has (only with `Options(hivm=True)`).

Before:  npu.vtanh %x, %y : (!npu.buffer<8x64xf32, ub>, !npu.buffer<8x64xf32, ub>)
After:   npu.vmin, npu.vmax, npu.vmul, ... : a formula of functions that HIVM has, in buffers of their own

Functions that HIVM lacks become those that it has, conversions chains of its casts, and scalars that are no constants
whole tiles; reductions and repetitions along several dimensions take several steps; a tile that a load fills in part is
filled before. `npu.alloc {scratch}` reserves what the vendor's library works in. What has no such form stays as it is:
the export refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr

from ....dialects.dtypes import element_type
from ....dialects.module import FOR_HIVM, NO_HIVM
from ....dialects.npu import AllocOp, BufferType, VectorOp
from ....dialects.npu.scratch import scratch_bytes
from ....dialects.npu.structure import KernelOp, SectionOp
from ....machine import Machine
from ...base import TargetPass
from ...errors import PassError
from ..allocate import allocate_section
from .functions import expand_functions
from .lanes import SectionBuffers
from .loads import fill_before_loads
from .shapes import split_shapes
from .tiles import retile_products
from .truths import convert_truths

LONGEST_REASON = 200
"""Characters of the reason why a kernel keeps its form."""


@dataclass(frozen=True)
class NpuHivmPass(TargetPass):
    """Rewrites the vector sections of kernels."""

    name = "npu-hivm"
    hivm: bool = False
    """Whether the module is made for the vendor's IR, which it says from then on; where it does not, the pass does
    nothing."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        if self.hivm:
            module.attributes[FOR_HIVM] = UnitAttr()
        if FOR_HIVM not in module.attributes:
            return
        for kernel in list(module.ops):
            if not isinstance(kernel, KernelOp):
                continue
            bring_into_forms(kernel, machine)


def bring_into_forms(kernel: KernelOp, machine: Machine) -> None:
    """Rewrites a kernel, where it then has room for what it needs; else it stays as it is, and says why."""
    parent = kernel.parent
    assert parent is not None
    why = ""
    for retiled in (True, False):
        tried = kernel.clone()
        parent.insert_op_before(tried, kernel)
        was_retiled = _rewrite(tried, machine, retiled)
        try:
            trial = tried.clone()
            for section in trial.sections():
                assert isinstance(section, SectionOp)
                allocate_section(section, trial, machine)
        except PassError as error:
            why = why or str(error)
            tried.detach()
            tried.erase()
            if not was_retiled:
                break
            continue
        kernel.detach()
        kernel.erase()
        return
    kernel.attributes[NO_HIVM] = StringAttr(why[:LONGEST_REASON])


def _rewrite(kernel: KernelOp, machine: Machine, retiled: bool) -> bool:
    """Rewrites a kernel. retiled: also the parts of its products. Gives whether there were any to rewrite."""
    found = False
    for section in kernel.sections():
        assert isinstance(section, SectionOp)
        buffers = SectionBuffers(section)
        if retiled:
            found |= retile_products(section, machine)
        fill_before_loads(kernel, section)
        convert_truths(section, buffers)
        expand_functions(section, buffers)
        split_shapes(section, buffers)
        reserve_scratch(section)
    return found


def reserve_scratch(section: SectionOp) -> None:
    """Reserves as much as the instruction works in that takes most."""
    needed = max((scratch_bytes(op) for op in section.body.walk() if isinstance(op, VectorOp)), default=0)
    first = section.body.block.first_op
    if needed and first is not None:
        kind = BufferType.of([needed], element_type("i8"), "ub")
        made = AllocOp.create(
            result_types=[kind], properties={"scratch": UnitAttr()}, location=section.location
        )
        section.body.block.insert_op_before(made, first)
