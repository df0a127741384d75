"""The StableHLO modules of host ops as MLIR's bindings read them. JAX is imported where one is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xdsl.utils.exceptions import VerifyException

HostType = tuple[tuple[int, ...], str]
"""Shape and element type of a tensor, as MLIR writes it."""


def read_host_module(text: str) -> tuple[Any, tuple[HostType, ...], tuple[HostType, ...]]:
    """A module in the context that is entered, and what its @main takes and gives. Raises VerifyException for a text
    that is no module with a public function @main of tensors."""
    from jaxlib.mlir import ir

    try:
        module = ir.Module.parse(text)
        main = ir.SymbolTable(module.operation)["main"]
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        takes, gives = (
            tuple((tuple(t.shape), str(t.element_type)) for t in map(ir.RankedTensorType, kinds))
            for kinds in (kind.inputs, kind.results)
        )
    except (ir.MLIRError, KeyError, ValueError) as error:
        said = " ".join(str(error).split())
        raise VerifyException(f"the module of a host op is no StableHLO with a @main: {said[:200]}") from None
    return module, takes, gives


@lru_cache(1024)
def host_signature(text: str) -> tuple[tuple[HostType, ...], tuple[HostType, ...]]:
    """What the @main of a module takes and gives. Raises VerifyException as `read_host_module` does."""
    from jax._src.interpreters import mlir

    with mlir.make_ir_context():
        _, takes, gives = read_host_module(text)
        return takes, gives


def said_types(types: Sequence[HostType]) -> str:
    """Types for a sentence: `f32[8,8], i32[]`."""
    return ", ".join(f"{kind}[{','.join(map(str, shape))}]" for shape, kind in types) or "nothing"
