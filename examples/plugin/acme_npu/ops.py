"""The ops of the prefix-xor unit at the three levels: a dialect of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from tilewright.dialects.dtypes import dtype_name, size
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.interface import GraphOp, Grouping, element_of, shape_of
from tilewright.dialects.npu import BufferType, Cost, NpuOp, Pipe, buffer
from tilewright.dialects.npu.interface import vector_elements
from tilewright.dialects.tile import TileOp, TileType, tile_type
from tilewright.machine import Machine

ELEMENTS = ("i32", "ui32")
"""Element types of the unit."""


@irdl_op_definition
class PrefixXorOp(GraphOp):
    """Each element xor all before it along the last dimension."""

    name = "acme.prefix_xor"
    GROUPING: ClassVar[Grouping] = "vector"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if not shape_of(self.x):
            raise ValueError("needs a dimension")
        if dtype_name(element_of(self.x)) not in ELEMENTS:
            raise ValueError(f"takes {' or '.join(ELEMENTS)}, not {element_of(self.x)}")
        return [self.x.type]

    def flops(self) -> int:
        return size(shape_of(self.x))

    def evaluate(self, *operands: Any) -> Any:
        from .functions import prefix_xor

        return prefix_xor(operands[0])

    def error_bound(self, xs: Sequence[Any], es: Sequence[Any], ys: Sequence[Any], mode: str) -> Sequence[Any]:
        """What one bit of an element is, all elements behind it depend on."""
        import jax.numpy as jnp

        if es[0] is None:
            return [None]
        unsure = jnp.cumsum(es[0] > 0, axis=-1) > 0
        return [jnp.where(unsure, jnp.inf, 0).astype(es[0].dtype)]

    def scheduled_kernel(self, fusion: FusionOp, machine: Machine, name: str, asked: Any) -> Any:
        from tilewright.passes.lower.scheduled import as_vector

        from .kernels import PrefixXorKernel

        return PrefixXorKernel(self, fusion, machine, as_vector(name, asked))


@irdl_op_definition
class CopyPxOp(NpuOp):
    """Copies a buffer of ub to one of px."""

    name = "acme.copy_px"
    PIPE: ClassVar[Pipe] = Pipe("PX")
    source = operand_def(BufferType)
    dest = operand_def(BufferType)

    def verify_(self) -> None:
        super().verify_()
        source, dest = buffer(self.source), buffer(self.dest)
        if (source.space, dest.space) != ("ub", "px"):
            raise self.error(f"copies ub to px, not {source.space} to {dest.space}")
        if (source.shape, source.element) != (dest.shape, dest.element):
            raise self.error(f"copies {source} to {dest}")

    def evaluate(self, scope: Any, sources: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
        return sources

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        return Cost(machine.moves["ub", "px"].cycles(buffer(self.source).slot_bytes))


@irdl_op_definition
class VPrefixXorOp(NpuOp):
    """`acme.prefix_xor` of each row of px, into ub."""

    name = "acme.vprefix_xor"
    PIPE: ClassVar[Pipe] = Pipe("PX")
    source = operand_def(BufferType)
    dest = operand_def(BufferType)

    def verify_(self) -> None:
        super().verify_()
        source, dest = buffer(self.source), buffer(self.dest)
        if (source.space, dest.space) != ("px", "ub"):
            raise self.error(f"reads px and writes ub, not {source.space} and {dest.space}")
        if (source.shape, source.element) != (dest.shape, dest.element):
            raise self.error(f"gives {source} as {dest}")

    def evaluate(self, scope: Any, sources: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
        from .functions import prefix_xor

        return [prefix_xor(sources[0])]

    def combines_along(self) -> Sequence[int]:
        return [len(buffer(self.source).shape) - 1]

    def cost(self, machine: Machine, indices: Sequence[int]) -> Cost:
        lanes, dtype = vector_elements(buffer(self.source)), dtype_name(buffer(self.source).element)
        return Cost(machine.vector.cycles("prefix_xor", dtype, lanes), elements=lanes)


@irdl_op_definition
class TileCopyPxOp(TileOp):
    """A tile of ub, in px."""

    name = "acme.tile_copy_px"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = CopyPxOp
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        self.check_space(self.source, space="ub")
        self.check_space(self.result, space="px")
        if tile_type(self.source).shape != tile_type(self.result).shape:
            raise self.error(f"copies {self.source.type} to {self.result.type}")


@irdl_op_definition
class TilePrefixXorOp(TileOp):
    """`acme.prefix_xor` of each row of a tile of px, in ub."""

    name = "acme.tile_prefix_xor"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = VPrefixXorOp
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        self.check_space(self.source, space="px")
        self.check_space(self.result, space="ub")
        if tile_type(self.source).shape != tile_type(self.result).shape:
            raise self.error(f"gives {self.source.type} as {self.result.type}")


Acme = Dialect("acme", [PrefixXorOp, TileCopyPxOp, TilePrefixXorOp, CopyPxOp, VPrefixXorOp])
