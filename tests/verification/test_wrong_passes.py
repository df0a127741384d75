"""The self-test of bisection: passes that are wrong on purpose, each found and blamed."""

from __future__ import annotations

import pytest
from models import MODELS
from tiering import sampled
from wrong_control import MORE
from wrong_passes import CASES as FIRST
from wrong_passes import Case, corrupted

from tilewright.frontends import lower_function, lower_stablehlo
from tilewright.passes.pipeline import PIPELINE
from tilewright.verification.results import Verification
from tilewright.verification.run import verify_module
from tilewright.verification.structure import Cache

CASES = (*FIRST, *MORE)

CACHE = Cache()
"""Kernels of the models are compiled once for all cases."""


GRAPH = tuple(s.name for s in PIPELINE if s.level == "graph")


def bisected(case: Case) -> Verification:
    fn, args = MODELS[case.model]
    module = lower_stablehlo(fn, "models.mlir") if isinstance(fn, str) else lower_function(fn, args).module
    stages = corrupted(case.stage, case.mistake)
    return verify_module(module, args, None, "ascend-910b1", stages, bisect=True, cache=CACHE)


def test_there_are_thirty_wrong_passes_over_all_stages() -> None:
    assert len(CASES) >= 30
    assert len({c.name for c in CASES}) == len(CASES)
    assert len({c.stage for c in CASES}) == len(PIPELINE) - 2  # npu-join-launches and npu-check change no values


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@sampled(15)
def test_blame(case: Case) -> None:
    found = bisected(case)
    assert not found.ok
    culprit = found.culprit
    assert culprit is not None
    assert (culprit.stage, culprit.kind) == (case.stage, case.kind)
    assert culprit.op in case.ops, culprit
    inside = case.stage not in GRAPH and not {"func.return", "graph.host"} & {*case.ops}
    assert (culprit.kernel is not None) == inside
    if "func.return" not in case.ops and "graph.constant" not in case.ops:
        assert culprit.place is not None
        assert "models." in culprit.place
    if case.kind == "wrong value" and culprit.wrong:
        assert culprit.got != culprit.want
    # where another branch ran, there are no values to compare
    assert culprit.wrong or case.kind == "hazard" or case.name == "npu-swaps-branches"
    assert (culprit.reproducer is not None) == case.reproduced
    if culprit.reproducer is not None:
        assert culprit.reproducer.ops <= 20
