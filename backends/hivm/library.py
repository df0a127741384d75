"""The functions of the vendor's library, as the bitcode beside its compiler has them."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

CORES = {"AIC": ("meta_op.aic.bc", "meta_op.aic.c220.bc"), "AIV": ("meta_op.aiv.bc", "meta_op.aiv.c220.bc")}
"""Files of the 910B family, by the core that runs their functions."""


@lru_cache(8)
def _names(folder: Path, core: str) -> bytes:
    """The string tables of the files of a core."""
    return b"".join((folder / name).read_bytes() for name in CORES[core] if (folder / name).is_file())


def missing_functions(lowered: str, cores: list[str], folder: Path) -> list[str]:
    """The functions that a lowered kernel declares and the library of none of its cores has."""
    found = []
    for name in dict.fromkeys(re.findall(r"func\.func private @(\w+)", lowered)):
        symbol = f"_mlir_ciface_{name}".encode()
        if not any(symbol in _names(folder, core) for core in cores):
            found.append(name)
    return found
