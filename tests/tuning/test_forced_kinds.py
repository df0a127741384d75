"""Tuning of kernels of several fusions: their plans are proven, and compute what JAX does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from forced_kinds import KINDS, TARGETS, forced, largest_kernel, scheduled

import tilewright as tw
from tilewright.dialects.graph import CubeSchedule
from tilewright.passes.errors import PassError


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KINDS)
def test_values_and_proofs(name: str, target: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    options, store = kind.options, tmp_path / "plans.sqlite"
    with forced():
        tuned = tw.tune(kind.fn, *kind.args, target=target, options=options, budget="1h", store=store)
    report = tuned.report
    assert len(report.kernels) == 1 and report.kernels[0].certified
    assert tuned.program.report().microseconds == report.after <= report.before
    arrays = kind.arrays()
    want = np.asarray(kind.fn(*map(jnp.asarray, arrays)), np.float64)
    got = tuned.program(*arrays)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, atol=4e-3 * np.abs(want).max())
    assert np.asarray(tuned.program(*arrays, mode="bytes")).tobytes() == np.asarray(got).tobytes()


def test_pieces_that_cannot_be_made_are_refused() -> None:
    """A knowledge base may say anything: a piece of odd sides has no equal parts for two vector cores."""
    kernel, _ = largest_kernel(scheduled(KINDS["prologue"], "ascend-910b1"), "ascend-910b1")
    first = next(iter(kernel.candidates("k")))
    assert isinstance(first, CubeSchedule)
    kernel.check("k", first)
    odd = (70, 65, 125)
    with pytest.raises(PassError, match="has no equal parts"):
        kernel.check("k", replace(first, step=odd, lhs=odd, rhs=odd, grid=(1, 1, 1)))


@pytest.mark.parametrize("name", [name for name in KINDS if "prologue" in name])
def test_bounds_leave_prices_alone(name: str) -> None:
    (kernel, _), (other, space) = (largest_kernel(scheduled(KINDS[name], target), target) for target in TARGETS[:1] * 2)
    assert space.bound(space.space.whole) > 0
    for schedule in kernel.candidates("k"):
        assert kernel.bound(schedule) == other.bound(schedule)
