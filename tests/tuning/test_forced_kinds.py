"""Tuning of kernels of several fusions: their plans are proven, and compute what JAX does."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from forced_kinds import KINDS, TARGETS, forced

import tilewright as tw


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KINDS)
def test_values_and_proofs(name: str, target: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    with forced():
        tuned = tw.tune(kind.fn, *kind.args, target=target, budget="1h", store=tmp_path / "plans.sqlite")
    report = tuned.report
    assert len(report.kernels) == 1 and report.kernels[0].certified
    assert tuned.program.report().microseconds == report.after <= report.before
    arrays = kind.arrays()
    want = np.asarray(kind.fn(*map(jnp.asarray, arrays)), np.float64)
    got = tuned.program(*arrays)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, atol=4e-3 * np.abs(want).max())
    assert np.asarray(tuned.program(*arrays, mode="bytes")).tobytes() == np.asarray(got).tobytes()
