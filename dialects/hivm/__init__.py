"""HIVM: the IR in which the vendor's compiler has kernels with addresses, flags and barriers.

The `hivm` dialect with its syntax, the attributes of `hacc`, `hfusion` and `dlti` that go with it, and the ops of other
dialects that such text has. Follows Ascend/AscendNPU-IR as of the wheel `ascendnpu-ir` 1.2.
"""

from __future__ import annotations

from xdsl.dialects.cf import Cf
from xdsl.dialects.llvm import LLVM
from xdsl.dialects.math import Math
from xdsl.ir import Dialect

from .attributes import DLTI_ATTRIBUTES, HACC_ATTRIBUTES, HFUSION_ATTRIBUTES, HIVM_ATTRIBUTES
from .cube import CUBE
from .structure import STRUCTURE
from .synchronization import SYNCHRONIZATION
from .transfers import TRANSFERS
from .upstream import Affine, Annotation, Memref, MemrefExt, Vector
from .vector import VECTOR

Hivm = Dialect("hivm", [*STRUCTURE, *SYNCHRONIZATION, *TRANSFERS, *CUBE, *VECTOR], HIVM_ATTRIBUTES)
Hacc = Dialect("hacc", [], HACC_ATTRIBUTES)
Hfusion = Dialect("hfusion", [], HFUSION_ATTRIBUTES)
Dlti = Dialect("dlti", [], DLTI_ATTRIBUTES)

DIALECTS = [Hivm, Hacc, Hfusion, Dlti, Annotation, MemrefExt, Memref, Affine, Vector, Math, Cf, LLVM]
"""What text of the vendor's compiler has besides builtin, func, arith and scf."""

__all__ = ["DIALECTS", "Hivm"]
