"""Ops that say where a block runs and where memory is."""

from __future__ import annotations

from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, MemRefType, StringAttr, i1, i64
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from .attributes import AddressSpace, CoreType
from .forms import GROUPS, PLAIN
from .rules import error


class IndexOp(IRDLOperation):
    """A number that the core knows of itself."""

    result = result_def(i64)
    traits = traits_def(Pure())
    irdl_options = PLAIN
    assembly_format = "attr-dict `->` type($result)"


@irdl_op_definition
class GetBlockIdxOp(IndexOp):
    """The number of this block."""

    name = "hivm.hir.get_block_idx"


@irdl_op_definition
class GetBlockNumOp(IndexOp):
    """The number of blocks."""

    name = "hivm.hir.get_block_num"


@irdl_op_definition
class GetSubBlockIdxOp(IndexOp):
    """The number of this vector core within its block."""

    name = "hivm.hir.get_sub_block_idx"


@irdl_op_definition
class GetSubBlockNumOp(IndexOp):
    """The number of vector cores of a block."""

    name = "hivm.hir.get_sub_block_num"


@irdl_op_definition
class GetSysCntOp(IndexOp):
    """The cycle counter."""

    name = "hivm.hir.get_sys_cnt"


@irdl_op_definition
class PointerCastOp(IRDLOperation):
    """On-chip memory at an address in bytes, or at one of several in turn, iteration by iteration."""

    name = "hivm.hir.pointer_cast"
    addrs = var_operand_def(i64)
    dynamicSizes = var_operand_def(IndexType)
    result = result_def(MemRefType)
    irdl_options = GROUPS
    assembly_format = "`(` $addrs `)` (`[` $dynamicSizes^ `]`)? attr-dict `:` type($result)"

    def verify_(self) -> None:
        if not self.addrs:
            raise error(self, "needs an address")
        shape = self.result.type.get_shape()
        if (dynamic := shape.count(DYNAMIC_INDEX)) != len(self.dynamicSizes):
            raise error(self, f"has {dynamic} open dimensions and {len(self.dynamicSizes)} sizes for them")


@irdl_op_definition
class BitcastOp(IRDLOperation):
    """The bits of a value as elements of another type."""

    name = "hivm.hir.bitcast"
    src = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    irdl_options = PLAIN
    assembly_format = "$src `:` type($src) `->` type($result) attr-dict"


@irdl_op_definition
class LoadScalarOp(IRDLOperation):
    """A number read from device memory."""

    name = "hivm.hir.load_scalar"
    addr = operand_def()
    result = result_def()
    irdl_options = PLAIN
    assembly_format = "attr-dict $addr `:` type($addr) `->` type($result)"


@irdl_op_definition
class DebugOp(IRDLOperation):
    """Prints a value on the device."""

    name = "hivm.hir.debug"
    debugtype = prop_def(StringAttr)
    prefix = prop_def(StringAttr)
    hex = prop_def(IntegerAttr.constr(type=i1))
    tcoretype = opt_prop_def(CoreType)
    memscope = opt_prop_def(AddressSpace)
    arg = operand_def(Attribute)
    irdl_options = PLAIN
    assembly_format = "attr-dict $arg `:` type($arg)"


STRUCTURE = [
    GetBlockIdxOp,
    GetBlockNumOp,
    GetSubBlockIdxOp,
    GetSubBlockNumOp,
    GetSysCntOp,
    PointerCastOp,
    BitcastOp,
    LoadScalarOp,
    DebugOp,
]
