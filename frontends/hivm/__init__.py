"""Kernels of the vendor's compiler (HIVM text with addresses and flags) to the npu level.

A kernel is walked once for each block with numbers in place of values: what is left is what its core does,
instruction by instruction, each flag and barrier among them. Cores that do the same become the grid of a kernel of
ours.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from ...dialects import make_context
from ...dialects.text import parse_module
from ...machine import Machine
from .groups import grouped
from .kernels import cores_of, given_sizes, kernel_of, launched
from .launching import LINE, LaunchTerms, launch_of, parse_launch
from .module import Writer
from .tensors import ranges_of, tensors_of


def import_hivm(module: ModuleOp, where: str, machine: Machine, launch: LaunchTerms | None = None) -> ModuleOp:
    """The module of the npu level for a module with a kernel; where: what messages call it. Raises FrontendError for
    what cannot be imported."""
    return parse_module(make_context(), npu_text(module, where, machine, launch), where)


def npu_text(module: ModuleOp, where: str, machine: Machine, launch: LaunchTerms | None = None) -> str:
    """The text of that module."""
    kernel = kernel_of(module)
    found = launched(kernel, launch)
    cores, scratch = cores_of(module, kernel, found, machine)
    tensors = tensors_of(kernel, cores, given_sizes(kernel, found))
    ranges = ranges_of(cores, tensors)
    return Writer(kernel, machine, scratch, tensors, ranges, found.scattered).module(grouped(cores))


__all__ = ["LINE", "LaunchTerms", "import_hivm", "launch_of", "npu_text", "parse_launch"]
