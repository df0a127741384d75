"""A kernel by itself is lowered as the whole pipeline does it, however many of its schedules were before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.schedules import schedule_attr
from tilewright.dialects.schedule_text import schedule_text
from tilewright.frontends import lower_function
from tilewright.machine import Machine
from tilewright.passes.choose.launches import launches_of
from tilewright.passes.pipeline import PIPELINE, run_stage
from tilewright.tuning.alone import UNNEEDED, LaunchQuestion, fusion_of, lowered, module_of

TARGET = "ascend-910b1"


def struct(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float16")


PROGRAMS: dict[str, tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]] = {
    "product": (lambda x, w: x @ w, [struct(130, 96), struct(96, 72)]),
    "epilogue": (lambda x, w, b: jax.nn.relu(x @ w + b), [struct(64, 48), struct(48, 80), struct(80)]),
    "rows": (lambda x: jax.nn.softmax(x, -1), [struct(37, 77)]),
    "attention": (lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v, [struct(2, 128, 64)] * 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_all_passes(name: str) -> None:
    fn, args = PROGRAMS[name]
    module = lower_function(fn, args).module
    for stage in PIPELINE:
        if stage.name == "graph-schedule":
            break
        if not stage.optional:
            run_stage(stage, module, TARGET)
    fusions = [op for op in module.walk() if isinstance(op, FusionOp)]
    fusion = max(fusions, key=FusionOp.flops)
    (plan,) = launches_of(fusion, Machine.load(TARGET))
    kernel = plan.kernel(plan.stem, None)
    schedules = [kernel.completed(plan.stem, s) for s in [*kernel.candidates(plan.stem)][:3]]
    text = str(module_of(fusion, TARGET))
    for schedule in [*schedules, schedules[0]]:
        whole = module_of(fusion, TARGET)
        fusion_of(whole).schedule = schedule_attr([schedule])
        begun = False
        for stage in PIPELINE:
            begun = begun or stage.name == "graph-schedule"
            if begun and not stage.optional and stage.name not in UNNEEDED:
                run_stage(stage, whole, TARGET)
        assert str(lowered(LaunchQuestion(text, schedule_text(schedule), TARGET))) == str(whole)
