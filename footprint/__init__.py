"""What a kernel needs of the on-chip memories before it has addresses, and what would make it fit."""

from __future__ import annotations

from .errors import FootprintError
from .overflow import Change, Live, Overflow, Peak, overflows
from .text import read

__all__ = ["Change", "FootprintError", "Live", "Overflow", "Peak", "overflows", "read"]
