"""The graph level: whole tensors, value semantics, no machine."""

from xdsl.dialect_interfaces.constant_materialization import ConstantMaterializationInterface
from xdsl.ir import Attribute, Dialect, Operation

from ..dtypes import Int4PairType
from ..host_text import OpenTextAttr
from ..open_text import OpenIntegerAttr, OpenIntsAttr, OpenSizesAttr
from ..quantized import QuantizedType
from .attributes import DataAttr
from .contractions import ContractOp, ConvOp
from .control import CaseOp, FusionOp, HostOp, OffloadOp, RestoreOp, ToHostOp, WhileOp, YieldOp
from .cumulate import CumulateOp
from .elementwise import ELEMENTWISE, PART_OPS, ConstantOp, ElementwiseOp, IotaOp
from .indexing import DynamicSliceOp, DynamicUpdateSliceOp, GatherOp
from .interface import GraphOp
from .movement import (
    BroadcastOp,
    ConcatOp,
    PadOp,
    PlaceOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
    ViewOp,
    WidenOp,
)
from .pairs import UnpackOp
from .quantization import DequantizeOp, QuantizationOp, QuantizeOp, RequantizeOp, StorageOp
from .reductions import ArgReduceOp, ReduceOp, ReduceWindowOp
from .scatter import ScatterOp
from .schedules import (
    AttentionSchedule,
    AttentionScheduleAttr,
    CubeSchedule,
    CubeScheduleAttr,
    RowAttentionSchedule,
    RowAttentionScheduleAttr,
    VectorSchedule,
    VectorScheduleAttr,
)
from .selecting import SelectAndScatterOp
from .sorting import SortOp
from .sparsity import ExpandOp


class Constants(ConstantMaterializationInterface):
    """How a folded value becomes an op again."""

    def materialize_constant(self, value: Attribute, type: Attribute) -> Operation | None:
        if not isinstance(value, DataAttr):
            return None
        return ConstantOp.create(result_types=[type], properties={"value": value})


Graph = Dialect(
    "graph",
    [
        *ELEMENTWISE.values(),
        *PART_OPS.values(),
        ArgReduceOp,
        BroadcastOp,
        CaseOp,
        ConcatOp,
        ConstantOp,
        ContractOp,
        ConvOp,
        CumulateOp,
        DequantizeOp,
        DynamicSliceOp,
        DynamicUpdateSliceOp,
        ExpandOp,
        FusionOp,
        GatherOp,
        HostOp,
        IotaOp,
        PadOp,
        PlaceOp,
        QuantizeOp,
        ReduceOp,
        ReduceWindowOp,
        RequantizeOp,
        ReshapeOp,
        ReverseOp,
        ScatterOp,
        SelectAndScatterOp,
        SliceOp,
        SortOp,
        StorageOp,
        ToHostOp,
        OffloadOp,
        RestoreOp,
        TransposeOp,
        UnpackOp,
        ViewOp,
        WhileOp,
        WidenOp,
        YieldOp,
    ],
    [
        AttentionScheduleAttr,
        RowAttentionScheduleAttr,
        CubeScheduleAttr,
        DataAttr,
        Int4PairType,
        OpenIntegerAttr,
        OpenIntsAttr,
        OpenSizesAttr,
        OpenTextAttr,
        QuantizedType,
        VectorScheduleAttr,
    ],
    [Constants()],
)

__all__ = [
    "ELEMENTWISE",
    "PART_OPS",
    "ArgReduceOp",
    "BroadcastOp",
    "CaseOp",
    "ConcatOp",
    "ConstantOp",
    "ContractOp",
    "ConvOp",
    "CubeSchedule",
    "AttentionSchedule",
    "AttentionScheduleAttr",
    "RowAttentionSchedule",
    "RowAttentionScheduleAttr",
    "CubeScheduleAttr",
    "CumulateOp",
    "DataAttr",
    "DequantizeOp",
    "DynamicSliceOp",
    "DynamicUpdateSliceOp",
    "ElementwiseOp",
    "ExpandOp",
    "FusionOp",
    "GatherOp",
    "Graph",
    "GraphOp",
    "HostOp",
    "IotaOp",
    "OffloadOp",
    "PadOp",
    "PlaceOp",
    "QuantizationOp",
    "QuantizeOp",
    "QuantizedType",
    "ReduceOp",
    "ReduceWindowOp",
    "RequantizeOp",
    "ReshapeOp",
    "RestoreOp",
    "ReverseOp",
    "ScatterOp",
    "SelectAndScatterOp",
    "SliceOp",
    "SortOp",
    "StorageOp",
    "ToHostOp",
    "TransposeOp",
    "UnpackOp",
    "VectorSchedule",
    "VectorScheduleAttr",
    "ViewOp",
    "WhileOp",
    "WidenOp",
    "YieldOp",
]
