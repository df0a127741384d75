"""A kernel of the vendor's compiler together with what it is launched with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launched:
    """The path of HIVM text, and the launch of its kernel: `Launched("add.hivm.mlir", "grid=(64,), n=262144")`. A
    source that `compile` takes; the launch counts in place of what the file says."""

    path: str | Path
    launch: str

    def text(self, content: bytes) -> bytes:
        """The content of the file with the launch behind it, so that lines keep their numbers."""
        return content + f"\n// launch: {self.launch}\n".encode()
