"""Launches name kernels that exist, and give them what they take: launches are symbol users in xDSL's terms."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Operation
from xdsl.irdl import prop_def, traits_def
from xdsl.traits import SymbolUserOpInterface

from .base import FormattedOp
from .npu.legality import Kernel


class _UsesAKernel(SymbolUserOpInterface):
    def verify(self, op: Operation) -> None:
        """Raises VerifyException for a kernel that is not there or takes something else.

        A host program without any kernel is a fragment, as tests of host passes have it: npu-check refuses it.
        """
        assert isinstance(op, KernelUser)
        module = op.parent_op()
        while module is not None and not isinstance(module, ModuleOp):
            module = module.parent_op()
        if module is None:
            return
        name, kernel, fragment = op.callee.root_reference.data, None, True
        for found in module.ops:
            if isinstance(found, Kernel):
                fragment = False
                symbol = found.properties.get("sym_name")
                if isinstance(symbol, StringAttr) and symbol.data == name:
                    kernel = found
                    break
        if kernel is None:
            if fragment:
                return
            raise op.error(f"launches @{name}, which does not exist")
        if kernel.level != op.level:
            raise op.error(f"launches @{name}, which is a kernel of the {kernel.level} level")
        if len(kernel.body.blocks) != 1:
            return  # which its own verifier says
        problem = op.misfit(kernel)
        if problem is not None:
            raise op.error(problem)


class KernelUser(FormattedOp, ABC):
    """An op that runs a kernel of its own level."""

    callee = prop_def(SymbolRefAttr)
    traits = traits_def(_UsesAKernel())

    @abstractmethod
    def misfit(self, kernel: Kernel) -> str | None:
        """What is wrong with running this kernel, in words, as far as the kernel is well-formed itself."""
