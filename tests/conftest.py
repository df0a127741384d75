"""Settings of every test: JAX on the CPU, and hypothesis with the same examples on every run.

`HYPOTHESIS_PROFILE=search pytest ...` looks for new examples instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

_HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "fixed", max_examples=6, derandomize=True, deadline=None, database=None, suppress_health_check=_HEALTH
)
settings.register_profile(
    "search", max_examples=300, deadline=None, database=None, suppress_health_check=_HEALTH
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def own_precision() -> Iterator[None]:
    """Each test starts with JAX's usual types: the golden model of the conformance suite turns 64 bits on."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
