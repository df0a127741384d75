"""Recovery: what makes up for the loss of quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api.signature import CompileError
from ..passes.graph.recipes import QuantConfig
from .traced import TracedSource

STEPS: dict[str, Any] = {}


def recovered(
    traced: TracedSource,
    config: QuantConfig,
    batches: Sequence[Sequence[Any]],
    statistics: Mapping[str, Any],
    method: str,
    steps: Sequence[str],
    progress: bool,
) -> QuantConfig:
    """The configuration with what some steps add to it. Raises CompileError for a step that there is not."""
    for step in steps:
        if step not in STEPS:
            raise CompileError(f"there is no recovery {step!r}; there are {', '.join(STEPS)}")
        config = STEPS[step](traced, config, batches, statistics, method, progress)
    return config
