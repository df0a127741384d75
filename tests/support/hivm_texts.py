"""Stored kernels at the npu level, and their export."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from tilewright.api.hivm import export_module
from tilewright.dialects import make_context

STORED = Path(__file__).parents[1] / "backends" / "hivm"
NAMES = ("vector", "cube", "mix", "atomic")


def npu_module(name: str) -> ModuleOp:
    """A stored program of one kernel, of which `NAME.hivm.mlir` is the export."""
    return Parser(make_context(), (STORED / f"{name}.npu.mlir").read_text()).parse_module()


def exported(name: str) -> str:
    """Its kernel as HIVM."""
    (kernel,) = export_module(npu_module(name)).kernels.values()
    return kernel.text
