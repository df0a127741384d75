"""What `npu.size` and `tile.size` share: an op that gives an open dimension as an index."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import IndexType
from xdsl.irdl import prop_def, result_def, traits_def
from xdsl.traits import Pure

from .base import INDEX, FormattedOp
from .open_sizes import is_open
from .open_text import OpenSizesAttr


class OpenIndexOp(FormattedOp):
    """An index that is known only at run time: an open dimension, or what follows from some."""

    value = prop_def(OpenSizesAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())

    @classmethod
    def of(cls, number: int) -> Self:
        """The op for an `OpenSize`."""
        return cls.create(result_types=[INDEX], properties={"value": OpenSizesAttr((number,))})

    @property
    def number(self) -> int:
        """What it is: an `OpenSize`."""
        return self.value.data[0]

    def verify_(self) -> None:
        if len(self.value.data) != 1 or not is_open(self.number):
            raise self.error(f"gives one open size, not {self.value}")
