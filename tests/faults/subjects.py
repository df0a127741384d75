"""The programs that faults are injected into: the examples, and random functions."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [p for p in (str(ROOT / "tests" / "ops"),) if p not in sys.path]

EXAMPLES = (
    "gpt2:forward",
    "gpt2:forward_f16",
    "gpt2:tiny",
    "resnet50:forward",
    "resnet50:tiny",
    "lstm:forward",
    "lstm:forward_f16",
    "digits_cnn:forward",
)
TARGETS = ("ascend-910b1", "ascend-310")


@dataclass(frozen=True)
class Subject:
    """A compiled program."""

    name: str
    module: ModuleOp
    target: str


def example(model: str, target: str) -> Subject:
    """One of the example models."""
    file, name = model.split(":")
    spec = importlib.util.spec_from_file_location(f"example_{file}", ROOT / "examples" / f"{file}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args = getattr(module, f"{name}_inputs")()
    program = tw.compile(getattr(module, name), *args, target=target)
    return Subject(f"{model} for {target}", program.module(), target)


def random_subjects(count: int) -> Iterator[Subject]:
    """Random functions, in turn for each target."""
    from programs import programs

    found: list[Any] = []

    @seed(20)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program: Any) -> None:
        found.append(program)

    collect()
    for i, program in enumerate(found):
        target = TARGETS[i % 2]
        dtype = ("f32", "f16")[i // 2 % 2]
        args = [np.asarray(a) for a in program.arguments(dtype)]
        yield Subject(
            f"random {i} {dtype} for {target}", tw.compile(program, *args, target=target).module(), target
        )
