"""A program's results at the npu level, in the memories that the tier asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from tiering import Memory, next_memories


class Runs(Protocol):
    """What has executables: a program, or a version of one with open dimensions."""

    def executable(self, memory: Memory) -> Any: ...


def outputs(program: Runs, flat: Sequence[Any], memories: Sequence[Memory] | None = None) -> list[np.ndarray]:
    """The results for flat inputs, in each of these memories (None: those of the tier). All must give the same bits."""
    runs = [[np.asarray(y) for y in program.executable(m)(*flat)] for m in memories or next_memories()]
    for other in runs[1:]:
        for i, (a, b) in enumerate(zip(runs[0], other, strict=True)):
            assert a.tobytes() == b.tobytes(), f"result {i}: the memories differ"
    return runs[0]
