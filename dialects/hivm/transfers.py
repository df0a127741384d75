"""Ops that move data between memories."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerAttr, UnitAttr, i1
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    var_operand_def,
    var_result_def,
)

from .attributes import (
    AtomicKind,
    CoreType,
    DmaMode,
    DualDstMode,
    EvictionPolicy,
    PadMode,
    PreQuant,
    PreRelu,
    UnitFlag,
)
from .forms import GROUPS, INS, OUTS, PLAIN, RESULT, group, key, typed_key
from .rules import Shaped, check_elements, element_of, error, shape_of, shapes_fit, space_of

Spaces = frozenset[tuple[str, str]]

MOVED = "f8E4M3FN f8E5M2 i1 i8 ui8 i16 ui16 f16 bf16 i32 ui32 f32 ui64 i64"
"""Elements that copies take."""


class MoveOp(IRDLOperation):
    """Moves `src` to `dst`, memrefs of one rank and element type."""

    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    result = var_result_def()

    SPACES: ClassVar[Spaces | None] = None
    """The pairs of memory spaces that the op connects; None if it depends on the chip."""

    def verify_(self) -> None:
        check_elements(self, [self.src], MOVED)
        if element_of(self.src) != element_of(self.dst):
            raise error(self, f"moves {element_of(self.src)} to {element_of(self.dst)}")
        spaces = (space_of(self.src), space_of(self.dst))
        if self.SPACES is not None and None not in spaces and spaces not in self.SPACES:
            raise error(self, f"cannot move from {spaces[0]} to {spaces[1]}")
        self.verify_shapes()

    def verify_shapes(self) -> None:
        """Refuses shapes that do not belong together."""
        if not shapes_fit(shape_of(self.src) or (), shape_of(self.dst) or ()):
            raise error(self, f"moves {_text(self.src.type)} to {_text(self.dst.type)}")


def _text(found: Attribute) -> str:
    assert isinstance(found, Shaped)
    return "x".join("?" if size < 0 else str(size) for size in found.get_shape()) or "one element"


@irdl_op_definition
class LoadOp(MoveOp):
    """Device memory to a buffer, with a value around it where `dst` is wider."""

    name = "hivm.hir.load"
    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    SPACES: ClassVar[Spaces | None] = frozenset(("gm", to) for to in ("ub", "cbuf", "ca", "cb", "cc"))
    pad_mode = opt_prop_def(PadMode)
    pad_value = opt_operand_def()
    left_padding_num = opt_operand_def(IndexType)
    init_out_buffer = opt_prop_def(IntegerAttr.constr(type=i1))
    right_padding_num = opt_operand_def()
    init_condition = opt_operand_def()
    may_implicit_transpose_with_last_axis = opt_prop_def(IntegerAttr.constr(type=i1))
    eviction_policy = opt_prop_def(EvictionPolicy)
    tcoretype = opt_prop_def(CoreType)

    irdl_options = GROUPS
    assembly_format = (
        f"{INS} {OUTS} attr-dict {key('pad_mode')} {typed_key('pad_value')} {typed_key('left_padding_num')} "
        f"{key('init_out_buffer')} {typed_key('right_padding_num')} {typed_key('init_condition')} "
        f"{key('may_implicit_transpose_with_last_axis')} {key('eviction_policy')} "
        f"(`core_type` `=` $tcoretype^)? {RESULT}"
    )

    def verify_shapes(self) -> None:
        mode = self.pad_mode.data if self.pad_mode is not None else "PadNull"
        if (mode == "PadValue") != (self.pad_value is not None):
            raise error(self, f"with pad_mode {mode} {'needs' if mode == 'PadValue' else 'has no'} pad_value")
        if self.pad_value is not None and self.pad_value.type != element_of(self.dst):
            raise error(self, f"pads {element_of(self.dst)} with {self.pad_value.type}")
        if mode == "PadNull":
            super().verify_shapes()
            return
        source, dest = shape_of(self.src) or (1,), shape_of(self.dst) or (1,)
        if not shapes_fit(source[:-1], dest[:-1]) or 0 <= dest[-1] < source[-1]:
            raise error(
                self, f"pads the last dimension only: not {_text(self.src.type)} to {_text(self.dst.type)}"
            )


@irdl_op_definition
class StoreOp(MoveOp):
    """A buffer to device memory, added to what is there with `atomic = <add>`."""

    name = "hivm.hir.store"
    SPACES: ClassVar[Spaces | None] = frozenset({("ub", "gm")})
    atomic_kind = opt_prop_def(AtomicKind)
    may_implicit_transpose_with_last_axis = opt_prop_def(IntegerAttr.constr(type=i1))
    irdl_options = PLAIN
    assembly_format = f"{INS} {OUTS} attr-dict (`atomic` `=` $atomic_kind^)? {RESULT}"


@irdl_op_definition
class CopyOp(MoveOp):
    """A buffer to a buffer, whose layouts may differ."""

    name = "hivm.hir.copy"
    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    SPACES: ClassVar[Spaces | None] = frozenset(
        {("ub", "ub"), ("gm", "cbuf"), ("gm", "ub"), ("ub", "gm"), ("ub", "cbuf")}
    )
    pad_mode = opt_prop_def(PadMode)
    pad_value = opt_operand_def()
    collapse_reassociation = opt_prop_def(ArrayAttr)
    irdl_options = PLAIN
    assembly_format = (
        f"{INS} {OUTS} attr-dict {key('pad_mode')} {typed_key('pad_value')} "
        f"{key('collapse_reassociation')} {RESULT}"
    )

    def verify_shapes(self) -> None:
        if self.pad_mode is None:
            super().verify_shapes()
        elif self.pad_mode.data == "PadValue" and self.pad_value is None:
            raise error(self, "with pad_mode PadValue needs pad_value")


class LayoutOp(IRDLOperation):
    """Moves data to another layout on the way."""

    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    result = var_result_def()
    irdl_options = PLAIN
    assembly_format = f"attr-dict {INS} {OUTS} {RESULT}"


@irdl_op_definition
class Nd2nzOp(LayoutOp):
    """Device memory, in rows, to l1 in fractals."""

    name = "hivm.hir.nd2nz"
    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    dst_continuous = opt_prop_def(UnitAttr)
    init_out_buffer = opt_prop_def(IntegerAttr.constr(type=i1))
    pad_value = opt_operand_def()
    init_condition = opt_operand_def()
    irdl_options = GROUPS
    assembly_format = (
        f"attr-dict {INS} {OUTS} {key('init_out_buffer')} {typed_key('pad_value')} "
        f"{typed_key('init_condition')} {RESULT}"
    )


@irdl_op_definition
class Nz2ndOp(LayoutOp):
    """l1 in fractals to device memory in rows."""

    name = "hivm.hir.nz2nd"


@irdl_op_definition
class L12ubOp(LayoutOp):
    """l1 in fractals to ub in rows."""

    name = "hivm.hir.l12ub"


@irdl_op_definition
class FixpipeOp(LayoutOp):
    """A result of the cube, l0c, to another memory: cast, scaled, clamped on the way."""

    name = "hivm.hir.fixpipe"
    src = operand_def(Shaped)
    dst = operand_def(Shaped)
    unit_flag_cond = var_operand_def(i1)
    quant_scale = opt_operand_def()
    dma_mode = opt_prop_def(DmaMode)
    dual_dst_mode = opt_prop_def(DualDstMode)
    pre_quant = opt_prop_def(PreQuant)
    pre_relu = opt_prop_def(PreRelu)
    channel_split = opt_prop_def(IntegerAttr.constr(type=i1))
    unit_flag_mode = opt_prop_def(ArrayAttr[UnitFlag])
    irdl_options = GROUPS
    assembly_format = (
        f"attr-dict {INS} {OUTS} {typed_key('quant_scale')} {key('dual_dst_mode')} "
        "(`unit_flag_mode` `(` $unit_flag_mode^ `)`)? (`unit_flag_cond` `(` $unit_flag_cond^ `)`)? "
        f"{RESULT}"
    )


class AtomicOp(IRDLOperation):
    """Changes device memory as one step, and gives what was there."""

    dst = operand_def(Shaped)
    result = var_result_def()
    irdl_options = PLAIN


@irdl_op_definition
class AtomicCasOp(AtomicOp):
    """Puts the second source where the first one is found."""

    name = "hivm.hir.atomic_cas"
    src = var_operand_def(Shaped)
    dst = operand_def(Shaped)
    assembly_format = f"attr-dict {INS} {OUTS} {RESULT}"


@irdl_op_definition
class AtomicXchgOp(AtomicOp):
    """Puts the source there."""

    name = "hivm.hir.atomic_xchg"
    src = operand_def()
    dst = operand_def(Shaped)
    mask = opt_operand_def(Shaped)
    assembly_format = f"attr-dict {INS} {OUTS} {group('mask')} {RESULT}"


@irdl_op_definition
class AtomicRmwOp(AtomicOp):
    """Combines the source with what is there."""

    name = "hivm.hir.atomic_rmw"
    src = operand_def()
    dst = operand_def(Shaped)
    atomic_kind = opt_prop_def(AtomicKind)
    assembly_format = f"attr-dict {INS} {OUTS} {key('atomic_kind')} {RESULT}"


TRANSFERS = [
    LoadOp,
    StoreOp,
    CopyOp,
    Nd2nzOp,
    Nz2ndOp,
    L12ubOp,
    FixpipeOp,
    AtomicCasOp,
    AtomicXchgOp,
    AtomicRmwOp,
]
