"""Products of matrices: of tiles in l1, and whole ones in device memory."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerAttr, UnitAttr, i1, i64
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    var_operand_def,
    var_result_def,
)

from .attributes import DescaleMode, UnitFlag
from .forms import GROUPS, RESULT, key, typed_key
from .rules import Shaped, error

SYNC_ARGUMENTS = 7
"""Of a product of tiles: events of both operands before and after, parity, two own events; -1 where there is none."""


class TileProductOp(IRDLOperation):
    """`c += a x b` for tiles in l1 in fractals, after clearing c where `init_condition` says so."""

    a = operand_def(Shaped)
    b = operand_def(Shaped)
    init_condition = operand_def(i1)
    real_m = operand_def(IndexType)
    real_k = operand_def(IndexType)
    real_n = operand_def(IndexType)
    c = operand_def(Shaped)
    sync_related_args = var_operand_def(i64)
    unit_flag_cond = var_operand_def(i1)
    per_channel_bias = opt_operand_def(Shaped)
    a_transpose = opt_prop_def(UnitAttr)
    b_transpose = opt_prop_def(UnitAttr)
    enable_HF32 = opt_prop_def(UnitAttr)
    enable_I4 = opt_prop_def(UnitAttr)
    unit_flag_mode = opt_prop_def(ArrayAttr[UnitFlag])
    unit_flag_group_id = opt_prop_def(IntegerAttr)
    result = var_result_def()

    irdl_options = GROUPS
    assembly_format = (
        "attr-dict `ins` `(` $a `,` $b `,` $init_condition `,` $real_m `,` $real_k `,` $real_n "
        "(`,` $per_channel_bias^)? `:` type($a) `,` type($b) `,` type($init_condition) `,` type($real_m) `,` "
        "type($real_k) `,` type($real_n) (`,` type($per_channel_bias)^)? `)` `outs` `(` $c `:` type($c) `)` "
        "(`sync_related_args` `(` $sync_related_args^ `:` type($sync_related_args) `)`)? "
        "(`unit_flag_mode` `(` $unit_flag_mode^ `)`)? (`unit_flag_cond` `(` $unit_flag_cond^ `)`)? "
        f"{RESULT}"
    )

    def verify_(self) -> None:
        if self.sync_related_args and len(self.sync_related_args) != SYNC_ARGUMENTS:
            raise error(
                self, f"has {len(self.sync_related_args)} sync_related_args, not {SYNC_ARGUMENTS} or none"
            )


@irdl_op_definition
class MmadL1Op(TileProductOp):
    """A product of tiles in l1, cut for l0 by the vendor's library."""

    name = "hivm.hir.mmadL1"


@irdl_op_definition
class BatchMmadL1Op(TileProductOp):
    """Products of tiles in l1, one for each index of the first dimension."""

    name = "hivm.hir.batchMmadL1"


_TILING = (
    f"{typed_key('tilingParams').replace('`tilingParams`', '`tiling_params`')} {typed_key('bias')} "
    f"{typed_key('descale')} (`a_transpose` $aTranspose^)? (`b_transpose` $bTranspose^)? "
    f"{key('descaleMode').replace('`descaleMode`', '`descale_mode`')} "
    "(`block_sizes` `(` $blockSizes^ `:` type($blockSizes) `)`)? "
    "(`process_sizes` `(` $processSizes^ `:` type($processSizes) `)`)? "
    f"{typed_key('swizzleOffset').replace('`swizzleOffset`', '`swizzle_offset`')} "
    f"{typed_key('swizzleDirection').replace('`swizzleDirection`', '`swizzle_direction`')} "
    f"{typed_key('epiloguePTiles').replace('`epiloguePTiles`', '`epilogue_p_tiles`')} {RESULT}"
)


@irdl_op_definition
class MatmulOp(IRDLOperation):
    """`c = a x b` for matrices in device memory, by a function of the vendor's library."""

    name = "hivm.hir.matmul"
    a = operand_def(Shaped)
    b = operand_def(Shaped)
    tilingParams = opt_operand_def(Shaped)
    bias = opt_operand_def(Shaped)
    descale = opt_operand_def(Shaped)
    blockSizes = var_operand_def(i64)
    processSizes = var_operand_def(i64)
    swizzleOffset = opt_operand_def(i64)
    swizzleDirection = opt_operand_def(i64)
    epiloguePTiles = opt_operand_def(i64)
    c = operand_def(Shaped)
    aTranspose = opt_prop_def(UnitAttr)
    bTranspose = opt_prop_def(UnitAttr)
    descaleMode = opt_prop_def(DescaleMode)
    result = var_result_def()

    irdl_options = GROUPS
    assembly_format = (
        "attr-dict `ins` `(` $a `,` $b `:` type($a) `,` type($b) `)` `outs` `(` $c `:` type($c) `)` "
        + _TILING
    )


@irdl_op_definition
class MixMatmulOp(IRDLOperation):
    """A product of matrices in device memory, with a function of a vector core behind each tile."""

    name = "hivm.hir.mix_matmul"
    a = operand_def(Shaped)
    b = operand_def(Shaped)
    postVecFuncIns = var_operand_def(Shaped)
    workspaceIns = var_operand_def(Shaped)
    tilingParams = opt_operand_def(Shaped)
    commParams = opt_operand_def(Shaped)
    bias = opt_operand_def(Shaped)
    descale = opt_operand_def(Shaped)
    blockSizes = var_operand_def(i64)
    processSizes = var_operand_def(i64)
    swizzleOffset = opt_operand_def(i64)
    swizzleDirection = opt_operand_def(i64)
    epiloguePTiles = opt_operand_def(i64)
    c = operand_def(Shaped)
    aTranspose = opt_prop_def(UnitAttr)
    bTranspose = opt_prop_def(UnitAttr)
    descaleMode = opt_prop_def(DescaleMode)
    result = var_result_def()

    irdl_options = GROUPS
    assembly_format = (
        "attr-dict `ins` `(` $a `,` $b `:` type($a) `,` type($b) `)` "
        "(`post_vector_func_ins` `(` $postVecFuncIns^ `:` type($postVecFuncIns) `)`)? "
        "(`workspace_ins` `(` $workspaceIns^ `:` type($workspaceIns) `)`)? "
        "`outs` `(` $c `:` type($c) `)` "
        + _TILING.replace("(`bias` ", "(`comm_params` `=` $commParams^ `:` type($commParams))? (`bias` ", 1)
    )


CUBE = [MmadL1Op, BatchMmadL1Op, MatmulOp, MixMatmulOp]
