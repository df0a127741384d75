"""What a frontend gives for a program with open dimensions: the graph level for all sizes at once."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, SSAValue

from ..dialects.dtypes import dtype_name, tensor
from ..dialects.size_numbers import SizeNumber
from .errors import FrontendError


class NotOpen(FrontendError):
    """What cannot be lowered for all sizes at once; it can for each."""


@dataclass(frozen=True)
class OpenModule:
    """A graph-level module with open dimensions. extras: the numbers that its @main takes behind its inputs, as scalars
    of these element types."""

    module: ModuleOp
    extras: tuple[tuple[SizeNumber, str], ...]


class Extras:
    """Open sizes that a program uses as data, such as the count that a mean divides by: inputs of @main behind the
    others, which the caller computes for each call. main: the block of @main, once there is one."""

    def __init__(self) -> None:
        self.main: Block | None = None
        self._values: dict[tuple[SizeNumber, str], SSAValue] = {}

    def value(self, number: SizeNumber, element: Attribute) -> SSAValue:
        """The input of @main that is a number as a scalar of an element type."""
        key = number, dtype_name(element)
        if key not in self._values:
            assert self.main is not None
            self._values[key] = self.main.insert_arg(tensor([], element), len(self.main.args))
        return self._values[key]

    def number(self, value: SSAValue) -> SizeNumber | None:
        """The number that a value is; None where it is none of these inputs."""
        return next((number for (number, _), extra in self._values.items() if extra is value), None)

    @property
    def listed(self) -> tuple[tuple[SizeNumber, str], ...]:
        """The numbers and their element types, in the order of the inputs."""
        return tuple(self._values)
