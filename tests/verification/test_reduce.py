"""The delta-reducer: each check, each level, and that the result is the same every time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from models import MODELS, data
from tiering import later
from wrong_passes import CASES, corrupted
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module, verify
from tilewright.frontends import lower_function
from tilewright.passes.errors import PassError
from tilewright.passes.pipeline import Stage
from tilewright.verification.bisect import count_ops
from tilewright.verification.checks import CommandFails, Costs, Fails, parse_check
from tilewright.verification.edits import OutputsVanish, tidy
from tilewright.verification.reduce import Reducer, Reduction

TARGET = "ascend-910b1"


def stages_of(name: str) -> Sequence[Stage]:
    found = next(c for c in CASES if c.name == name)
    return corrupted(found.stage, found.mistake)


def module_of(model: str) -> tuple[ModuleOp, tuple[Any, ...]]:
    fn, args = MODELS[model]
    return lower_function(fn, args).module, args


def reduced(module: ModuleOp, inputs: Sequence[Any], check: Any) -> Reduction:
    found = Reducer(module, inputs, check).run()
    found.module.verify()
    assert check(found.module.clone(), found.inputs)
    return found


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk()]


def test_a_wrong_value_at_the_graph_level() -> None:
    module, args = module_of("softmax")
    found = reduced(module, args, Fails(("wrong value",), TARGET, stages_of("tile-swaps-sub")))
    assert names(found.module) == ["builtin.module", "func.func", "graph.sub", "func.return"]
    assert [x.shape for x in found.inputs] == [(1, 1), (1, 1)]
    # the values are those that the program had there
    x = np.asarray(args[0])
    assert found.inputs[0].item() == x[0, 0]
    assert found.inputs[1].item() == x[0].max()


@later()
def test_a_wrong_value_that_takes_several_kernels() -> None:
    module, args = module_of("chain")
    found = reduced(module, args, Fails(("wrong value",), TARGET, stages_of("plan-overlaps-argument")))
    assert 1 < count_ops(found.module) < count_ops(module)


def test_a_wrong_value_at_the_tile_level() -> None:
    fn, args = MODELS["wide"]
    module = parse_module(make_context(), tw.compile(fn, *args).ir("tile"), "wide.mlir")
    found = reduced(module, args, Fails(("wrong value",), TARGET, stages_of("npu-keeps-accumulator")))
    (kernel,) = [op for op in found.module.ops if op.name == "tile.kernel"]
    assert list(kernel.properties["grid"].get_values()) == [1, 1]


def test_a_hazard_at_the_npu_level() -> None:
    fn, args = MODELS["chain"]
    text = tw.compile(fn, *args).ir()
    text = "\n".join(line for line in text.splitlines() if "set_flag" not in line)
    module = parse_module(make_context(), text, "chain.mlir")
    found = reduced(module, args, Fails(("hazard",), TARGET))
    assert count_ops(found.module) <= 5
    assert "npu.wait_flag" in names(found.module) or "npu.wait_cross" in names(found.module)


def test_a_crash_keeps_its_words() -> None:
    def fails(module: ModuleOp) -> None:
        kinds = {op.name for op in module.walk()}
        if "tile.exp" in kinds:
            raise PassError(f"no exp in {len(kinds)} kinds")
        if "tile.sub" in kinds:
            raise PassError("no subtraction either")

    module, args = module_of("softmax")
    found = reduced(module, args, Fails(("crash",), TARGET, corrupted("graph-to-tile", fails)))
    assert names(found.module)[2:-1] == ["graph.exp"]


def test_a_cost_above_a_bound() -> None:
    module, args = module_of("chain")
    whole = tw.compile(MODELS["chain"][0], *args).report().microseconds
    found = reduced(module, args, Costs(whole / 2, TARGET))
    assert count_ops(found.module) < count_ops(module)


def test_a_command() -> None:
    module, args = module_of("softmax")
    script = "import sys; sys.exit('graph.exp' not in open(sys.argv[1]).read())"
    check = CommandFails(f'{sys.executable} -c "{script}" {{}}')
    found = reduced(module, args, check)
    assert names(found.module)[2:-1] == ["graph.exp"]


def test_the_same_every_time() -> None:
    texts = set()
    for _ in range(2):
        module, args = module_of("norm")
        found = Reducer(module, args, lambda m, _: "graph.rsqrt" in names(m)).run()
        texts.add((str(found.module), found.tests))
    assert len(texts) == 1


def test_a_limit_of_candidates() -> None:
    module, args = module_of("norm")
    found = Reducer(module, args, lambda m, _: "graph.rsqrt" in names(m), limit=3).run()
    assert found.tests == 3
    found.module.verify()


def test_a_program_that_shows_nothing() -> None:
    module, args = module_of("mlp")
    with pytest.raises(ValueError, match="the check does not hold for the program itself"):
        Reducer(module, args, lambda m, _: False).run()


@pytest.mark.parametrize("model", ["softmax", "update", "chain"])
@pytest.mark.parametrize("level", ["graph", "tile", "npu"])
def test_edits_leave_the_original_alone_and_terminate(model: str, level: str) -> None:
    """With a check that accepts everything nearly nothing is left."""
    fn, args = MODELS[model]
    text = tw.compile(fn, *args).ir(level)
    module = parse_module(make_context(), text, "program.mlir")
    found = Reducer(module, args, lambda m, _: True).run()
    assert str(module) == text
    found.module.verify()
    assert count_ops(found.module) <= 2
    assert len(found.inputs) == len(
        next(op for op in found.module.ops if op.name == "func.func").body.block.args
    )


@pytest.mark.parametrize(
    ("check", "command", "said"),
    [
        (None, None, "give either"),
        ("wrong", "x {}", "give either"),
        ("slow", None, "must be wrong, crash, hazard or cost>MICROSECONDS, not 'slow'"),
        ("cost>fast", None, "not 'cost>fast'"),
        (None, "grep x", "needs {}"),
    ],
)
def test_wrong_checks(check: str | None, command: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_check(check, command, TARGET)


def test_checks() -> None:
    assert isinstance(parse_check("wrong", None, TARGET), Fails)
    costs = parse_check("cost>12.5", None, TARGET)
    assert isinstance(costs, Costs)
    assert costs.microseconds == 12.5
    assert isinstance(parse_check(None, "grep -q x {}", TARGET), CommandFails)


def test_inputs_follow_shapes() -> None:
    def fn(x: Any) -> Any:
        return x[2:6] * 2

    x = data(8, 3)
    module = lower_function(fn, (x,)).module
    found = Reducer(module, (x,), lambda m, _: "graph.mul" in names(m)).run()
    assert all(v.ndim == 2 for v in found.inputs)


def test_a_program_with_a_bounded_result_gets_smaller() -> None:
    """A result may go without its extent, and the extent without its result."""
    module = lower_function(lambda x, n: (tw.bounded(x * 2, n), x + 1), (np.ones(8, np.float32), np.int32(3))).module
    for kept in ([0], [1], [2], [1, 2]):
        smaller, edit = module.clone(), OutputsVanish()
        assert edit.apply(smaller, [site for site in edit.sites(smaller) if site[1] not in kept])
        tidy(smaller)
        verify(smaller)
