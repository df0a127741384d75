"""Kernels, their sections and phases, and the launches that run them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, UnitAttr
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, traits_def, var_operand_def, var_result_def
from xdsl.traits import EffectInstance, IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface

from .. import npu
from ..base import text, to_ints
from ..effects import ORDERS
from ..npu.interface import NpuOp
from ..npu.legality import CORES, MIXED, Kernel, Section
from ..symbols import KernelUser
from .interface import TileOp

SPACE_ORDER = ("l1", "l0a", "l0b", "l0c", "ub")
"""Order of the `slots` property of a kernel."""


@irdl_op_definition
class KernelOp(Kernel):
    """One fusion: a grid over cores, then the device tensors read, written (`outputs`) and, between the sections
    of a mix kernel, used as `workspaces`. `slots` = buffers in flight in [l1, l0a, l0b, l0c, ub]."""

    name = "tile.kernel"
    slots = prop_def(DenseArrayBase)
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface())

    def verify_(self) -> None:
        super().verify_()
        if len(to_ints(self.slots)) != len(SPACE_ORDER) or any(s < 1 for s in to_ints(self.slots)):
            raise self.error(f"@{text(self.sym_name)} needs five slot counts of at least 1")


@irdl_op_definition
class SectionOp(Section):
    """What one kind of core runs; its block argument numbers the core within the block (0 .. units-1).

    A `mixed` section is what a cube core and its vector cores do to one another's results, in an order in which all of
    it could be done: each op runs where its tiles lie, and what goes from one kind of core to the other goes through a
    workspace. The block argument numbers the vector core.
    """

    name = "tile.section"
    CORES: ClassVar[tuple[str, ...]] = (*CORES, MIXED)
    traits = traits_def(NoTerminator())


@irdl_op_definition
class LaunchOp(KernelUser):
    """Runs a kernel on tensors. `inits[i]` is the operand that output i starts as, or -1: such an output is an
    update in place. The kernel's inputs are the other operands.

    `again`: it makes what an equal launch before it made, so that this need not stay in memory (tile-fit)."""

    name = "tile.launch"
    SYMBOL: ClassVar[str | None] = "callee"
    inits = prop_def(DenseArrayBase)
    again = opt_prop_def(UnitAttr)
    arguments = var_operand_def()
    outputs = var_result_def()
    traits = traits_def(Pure())

    def verify_(self) -> None:
        inits = to_ints(self.inits)
        if len(inits) != len(self.outputs):
            raise self.error(f"needs {len(self.outputs)} inits, has {len(inits)}")
        for i, r in zip(inits, self.outputs, strict=True):
            if i >= len(self.arguments) or (i >= 0 and self.arguments[i].type != r.type):
                raise self.error(f"output {r.type} cannot start as operand {i}")

    def input_numbers(self) -> list[int]:
        """The numbers of the operands that are inputs of the kernel, in order: no output starts as one."""
        started = set(to_ints(self.inits))
        return [i for i in range(len(self.arguments)) if i not in started]

    def misfit(self, kernel: Kernel) -> str | None:
        return None  # what it gives and takes tile-to-npu compares, with the line of the kernel


@irdl_op_definition
class BarrierOp(TileOp):
    """Separates two phases of a section: what was stored before is complete, buffers may be reused."""

    name = "tile.barrier"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.BarrierOp

    def effects(self) -> AbstractSet[EffectInstance]:
        return ORDERS
