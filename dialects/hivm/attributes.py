"""Attributes of the `hivm` and `hacc` dialects: enumerations written `<X>`, and the few with other parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer


class Enumeration(Data[str]):
    """An attribute with one of some names, `#hivm.pipe<PIPE_V>`; within the syntax of an op also `<PIPE_V>`."""

    CASES: ClassVar[tuple[str, ...]]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        place = parser.pos
        whole = parser.parse_optional_attribute()
        if whole is not None:
            if not isinstance(whole, cls):
                parser.raise_error(f"{whole} is no {cls.name}", place)
            return whole.data
        with parser.in_angle_brackets():
            place = parser.pos
            found = parser.parse_identifier()
            if found not in cls.CASES:
                expected = ", ".join(cls.CASES)
                parser.raise_error(f"'{found}' is not a {cls.name}: {expected}", place)
            return found

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


def _enumeration(name: str, cases: str) -> type[Any]:
    title = "".join(part.capitalize() for part in name.split(".")[1].split("_"))
    body = {"name": name, "CASES": tuple(cases.split()), "__doc__": f"One of {cases}."}
    return irdl_attr_definition(type(f"{title}Attr", (Enumeration,), {**body, "__module__": __name__}))


AddressSpace = _enumeration("hivm.address_space", "zero gm cbuf ca cb cc ub ssbuf")
Pipe = _enumeration(
    "hivm.pipe",
    "PIPE_S PIPE_V PIPE_M PIPE_MTE1 PIPE_MTE2 PIPE_MTE3 PIPE_ALL PIPE_MTE4 PIPE_MTE5 PIPE_V2 PIPE_FIX "
    "VIRTUAL_PIPE_MTE2_L1A VIRTUAL_PIPE_MTE2_L1B PIPE_NUM PIPE_UNASSIGNED",
)
Event = _enumeration("hivm.event", " ".join(f"EVENT_ID{i}" for i in range(8)))
CoreType = _enumeration("hivm.tcore_type", "CUBE VECTOR CUBE_OR_VECTOR CUBE_AND_VECTOR")
PadMode = _enumeration("hivm.padmode", "PadNull PadFirstElem PadValue")
RoundMode = _enumeration("hivm.round_mode", "rint round floor ceil trunc odd truncwithoverflow")
CastMode = _enumeration("hivm.cast", "cast_signed cast_unsigned bitcast")
CompareMode = _enumeration("hivm.compare_mode", "eq ne lt gt ge le")
ReduceKind = _enumeration(
    "hivm.reduce_op",
    "sum prod max min max_with_index_left max_with_index_right min_with_index_left min_with_index_right "
    "max_with_index min_with_index any all xori ori andi none",
)
AtomicKind = _enumeration("hivm.atomic_kind", "none add max min and or xor umax umin")
EvictionPolicy = _enumeration("hivm.eviction_policy", "EvictNormal EvictFirst EvictLast")
DeinterleaveMode = _enumeration("hivm.deinterleave_mode", "CHANNEL_0 CHANNEL_1 ALL_CHANNELS")
SyncBlockMode = _enumeration(
    "hivm.sync_block_mode", "ALL_CUBE ALL_VECTOR ALL_SUB_VECTOR BARRIER_CUBE BARRIER_VECTOR ALL"
)
SyncInstrMode = _enumeration(
    "hivm.sync_block_instr_mode",
    "INTER_BLOCK_SYNCHRONIZATION INTER_SUBBLOCK_SYNCHRONIZATION INTRA_BLOCK_SYNCHRONIZATION",
)
DmaMode = _enumeration("hivm.dma_mode", "nz2nd nz2dn normal")
DualDstMode = _enumeration("hivm.fixpipe_dual_dst_mode", "NO_DUAL ROW_SPLIT COLUMN_SPLIT")
PreQuant = _enumeration("hivm.fixpipe_pre_quant_mode", "NO_QUANT S322I8 F322F16 QF322F32_PRE F322BF16")
PreRelu = _enumeration("hivm.fixpipe_pre_relu_mode", "NO_RELU NORMAL_RELU LEAKY_RELU P_RELU")
UnitFlag = _enumeration("hivm.unit_flag", "DISABLED RESERVED ENABLED_WITHOUT_UPDATE ENABLED_WITH_UPDATE")
DescaleMode = _enumeration("hivm.descale_mode", "DescaleNull DescalePerChannel DescalePerTensor")
CacheMode = _enumeration("hivm.DCCIMode", "single_cache_line all_cache_lines")
CacheKind = _enumeration("hivm.DataCacheKind", "all ub out atomic")

ENUMERATIONS = [
    AddressSpace,
    Pipe,
    Event,
    CoreType,
    PadMode,
    RoundMode,
    CastMode,
    CompareMode,
    ReduceKind,
    AtomicKind,
    EvictionPolicy,
    DeinterleaveMode,
    SyncBlockMode,
    SyncInstrMode,
    DmaMode,
    DualDstMode,
    PreQuant,
    PreRelu,
    UnitFlag,
    DescaleMode,
    CacheMode,
    CacheKind,
    _enumeration("hivm.fixpipe_sub_block", "sub_block_0 sub_block_1"),
    _enumeration("hivm.func_core_type", "AIC AIV MIX AIC_OR_AIV"),
    _enumeration("hivm.module_core_type", "AIC AIV MIX"),
    _enumeration("hivm.tcore_type_marker", "CUBE VECTOR CUBE_OR_VECTOR CUBE_AND_VECTOR"),
    _enumeration("hivm.vf_mode", "SIMD SIMT MIX"),
    _enumeration("hivm.inline_mode", "always_inline no_inline"),
    _enumeration("hivm.align_kind", "align unaligned unknown"),
    _enumeration("hivm.axis_kind", "first middle last"),
    _enumeration("hivm.unsigned_mode", "si2si si2ui ui2si ui2ui"),
    _enumeration("hivm.padding_option", "zero nan"),
    _enumeration("hivm.cache_modifier", "none ca cg wb cs wt cv"),
    _enumeration("hivm.memory_effect", "read write read_write"),
    _enumeration("hivm.simt_mem_scope_hint", "zero gm cbuf ca cb cc ub ssbuf"),
    _enumeration(
        "hivm.iterator_type",
        "parallel broadcast transpose reduction interleave deinterleave inverse pad concat gather "
        "cumulative opaque",
    ),
]
HACC_ENUMERATIONS = [
    _enumeration("hacc.function_kind", "HOST DEVICE"),
    _enumeration(
        "hacc.arg_type",
        "ffts_base_address input output input_and_output workspace sync_block_lock tiling_key tiling_data "
        "tiling_struct mesh_arg sanitizer_addr gm_addr sub_workspace",
    ),
    _enumeration(
        "hacc.host_func_type",
        "host_entry tiling_function infer_output_shape_function infer_workspace_shape_function "
        "infer_sync_block_lock_num_function infer_sync_block_lock_init_function "
        "get_tiling_struct_size_function infer_task_type_function infer_vf_mode_function",
    ),
]
HFUSION_ENUMERATIONS = [
    _enumeration("hfusion.unsigned_mode", "si2si si2ui ui2si ui2ui"),
    _enumeration("hfusion.round_mode", "rint round floor ceil trunc odd truncwithoverflow"),
    _enumeration(
        "hfusion.fusion_kind",
        "PURE_ELEMWISE ANY_PB LAST_AXIS_PBR ANY_PBR SINGLE_CUBE SHALLOW_CV SHALLOW_VV MIX_CV MIX_C2 UNKNOWN",
    ),
]


class ParameterList(ParametrizedAttribute):
    """Attributes between angle brackets, separated by commas."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return cls.parse_between(parser)

    @classmethod
    def parse_between(cls, parser: AttrParser) -> Sequence[Attribute]:
        """What stands between the brackets."""
        return [parser.parse_attribute()]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_list(self.parameters, printer.print_attribute)


class TextParameter(ParameterList):
    """`#hacc.target<"Ascend910B3">`."""

    value: StringAttr


class SymbolParameter(ParameterList):
    """`#hacc.tiling_function<@name>`."""

    value: SymbolRefAttr


class NumberParameter(ParameterList):
    """`#hacc.output_idx<0>`."""

    value: IntAttr

    @classmethod
    def parse_between(cls, parser: AttrParser) -> Sequence[Attribute]:
        return [IntAttr(parser.parse_integer())]

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.value.data}>")


def _named(name: str, base: type[ParameterList]) -> type[Any]:
    title = "".join(part.capitalize() for part in name.split(".")[1].split("_"))
    body = {"name": name, "__module__": __name__, "__doc__": base.__doc__}
    return irdl_attr_definition(type(f"{title}Attr", (base,), body))


@irdl_attr_definition
class DataLayoutEntry(ParameterList):
    """`#dlti.dl_entry<"UB_SIZE", 1572864 : i32>`."""

    name = "dlti.dl_entry"
    key: Attribute
    value: Attribute

    @classmethod
    def parse_between(cls, parser: AttrParser) -> Sequence[Attribute]:
        key = parser.parse_attribute()
        parser.parse_punctuation(",")
        return [key, parser.parse_attribute()]


@irdl_attr_definition
class TargetDeviceSpec(ParametrizedAttribute):
    """`#hacc.target_device_spec<entry, ...>`: what the vendor's compiler knows of a chip."""

    name = "hacc.target_device_spec"
    entries: ArrayAttr[DataLayoutEntry]

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        brackets = parser.Delimiter.ANGLE
        return [ArrayAttr(parser.parse_comma_separated_list(brackets, parser.parse_attribute))]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_list(self.entries, printer.print_attribute)


@irdl_attr_definition
class TargetSystemSpec(ParametrizedAttribute):
    """`#dlti.target_system_spec<"NPU" : spec>`, the form of LLVM 19."""

    name = "dlti.target_system_spec"
    device: StringAttr
    spec: Attribute

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            device = StringAttr(parser.parse_str_literal())
            parser.parse_punctuation(":")
            return [device, parser.parse_attribute()]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.device)
            printer.print_string(" : ")
            printer.print_attribute(self.spec)


class Marker(ParametrizedAttribute):
    """An attribute without parameters."""


def _marker(name: str) -> type[Any]:
    title = "".join(part.capitalize() for part in name.split(".")[1].replace("-", "_").split("_"))
    body = {"name": name, "__module__": __name__, "__doc__": "A mark without a value."}
    return irdl_attr_definition(type(f"{title}Attr", (Marker,), body))


MARKERS = (
    "part_of_mix multi_buffer parallel_loop vector_function skip_stride_align_for_vload storage_aligned "
    "stride_align_dims stride_align_value_in_byte alloc_align_dims alloc_align_value_in_byte unlikely_condition "
    "enable_saving_ub has_alias_scopes mem_unique shared_memory"
)
HIVM_ATTRIBUTES = [
    *ENUMERATIONS,
    *(_named(f"hivm.{n}", NumberParameter) for n in ("tightly_coupled_buffer", "remain_in_l0c")),
    *(_named(f"hivm.{n}_bitcode", TextParameter) for n in ("aic", "aiv", "mix_aic", "mix_aiv", "host")),
    *(_marker(f"hivm.{n}") for n in MARKERS.split()),
]
HACC_ATTRIBUTES = [
    *HACC_ENUMERATIONS,
    TargetDeviceSpec,
    *(_named(f"hacc.{n}", TextParameter) for n in ("target", "hivmc_version")),
    *(_named(f"hacc.{n}", NumberParameter) for n in ("input_idx", "output_idx")),
    *(
        _named(f"hacc.{n}", SymbolParameter)
        for n in (
            "tiling_function",
            "infer_output_shape_function",
            "infer_workspace_shape_function",
            "infer_sync_block_lock_num_function",
            "infer_sync_block_lock_init_function",
            "get_tiling_struct_size_function",
            "infer_task_type_function",
            "infer_vf_mode_function",
            "rename_func",
        )
    ),
]
DLTI_ATTRIBUTES = [DataLayoutEntry, TargetSystemSpec]
HFUSION_ATTRIBUTES = HFUSION_ENUMERATIONS
