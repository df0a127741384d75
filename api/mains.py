"""What @main of a module takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp

from ..dialects.dtypes import dtype_name, name_of_numpy, numpy_dtype, shape_in
from ..dialects.module import find_main
from ..dialects.npu import GmType
from ..passes.errors import CompileError

Types = tuple[tuple[tuple[int, ...], str], ...]
"""Shapes and element types."""


def main_inputs(module: ModuleOp, where: str = "the program") -> Types:
    """Shape and element type of each argument of a module's @main."""
    return _types_of_main(module, where, lambda main: main.function_type.inputs)


def main_results(module: ModuleOp) -> Types:
    """Shape and element type of each result of a module's @main."""
    return _types_of_main(module, "the program", lambda main: main.function_type.outputs)


def _types_of_main(module: ModuleOp, where: str, pick: Callable[[FuncOp], Iterable[Any]]) -> Types:
    main = find_main(module)
    if main is None:
        raise CompileError(f"{where}: there is no function @main")
    if len(main.body.blocks) != 1:
        has = "no body" if not main.body.blocks else f"{len(main.body.blocks)} blocks"
        raise CompileError(f"{where}: @main has {has}, and needs one block")
    out = []
    for t in pick(main):
        if isinstance(t, TensorType):
            out.append((shape_in(t), name_of_numpy(numpy_dtype(t.element_type))))
        elif isinstance(t, GmType):
            out.append((t.shape, dtype_name(t.element)))
        else:
            raise CompileError(f"{where}: @main takes {t}; it must take tensors")
    return tuple(out)
