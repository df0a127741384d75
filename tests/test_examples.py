"""The example models: printed form at every level, values in both memory modes, and nothing on the host."""

from __future__ import annotations

from typing import Any

import pytest
from loading import load
from tiering import later, sampled
from xdsl.parser import Parser

import tilewright as tw
from tilewright.dialects import make_context

MODELS = (
    "gpt2:forward",
    pytest.param("gpt2:forward_f16", marks=sampled(2)),
    pytest.param("resnet50:forward", marks=later()),
    pytest.param("resnet50:forward_f16", marks=sampled(2)),
    "lstm:forward",
    "digits_cnn:forward",
)
SMALL = (
    "gpt2:tiny",
    pytest.param("resnet50:tiny", marks=later()),
    "lstm:forward",
    "lstm:forward_f16",
    "digits_cnn:forward",
)


@sampled(4)
@pytest.mark.parametrize("model", MODELS)
def test_every_level_reads_back_and_everything_runs_on_the_npu(model: str) -> None:
    """Each level prints and parses to a fixed point; the report has no host op."""
    fn, args = load(model)
    program = tw.compile(fn, *args)
    for level in ("graph", "tile", "npu"):
        printed = program.ir(level)
        again = Parser(make_context(), printed).parse_module()
        again.verify()
        assert str(again) == printed, level
    report = program.report()
    assert report.npu_flops_fraction == 1.0
    assert not report.host_ops
    assert report.microseconds > 0


def smaller(model: str, args: Any) -> Any:
    """Example inputs cut to a few steps and images: every level runs them many times over."""
    if model.startswith("lstm:"):
        params, xs = args
        return params, xs[:5]
    if model.startswith("digits_cnn:"):
        params, images = args
        return params, images[:24]
    return args


@sampled(4)
@pytest.mark.parametrize("model", SMALL)
def test_values_of_every_level(model: str) -> None:
    fn, args = load(model)
    result = tw.verify(fn, *smaller(model, args))
    assert result.ok, result


def test_scan_stays_a_loop() -> None:
    fn, args = load("lstm:forward")
    program = tw.compile(fn, *args)
    loops = [op for op in program.module().walk() if op.name == "npu.loop"]
    assert len(loops) == 1
    assert loops[0].properties["trip_count"].value.data == 32
