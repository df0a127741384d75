"""npu kernels as text of HIVM, the vendor's IR, with our addresses, flags and barriers; and the vendor's tools on it.

`export_kernel` writes a kernel (kernels.py, with vector.py, moves.py, cube.py and flags.py for what it has in it); what
HIVM cannot say raises NotInHivm. `checking.py` runs the vendor's compiler on the text, `stub.py` has the host program.
"""

from __future__ import annotations

from .errors import NotInHivm
from .kernels import HivmKernel, export_kernel, kernels_of

__all__ = ["HivmKernel", "NotInHivm", "export_kernel", "kernels_of"]
