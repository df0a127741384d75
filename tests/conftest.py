"""Settings of every test: JAX on the CPU, and hypothesis with the same examples on every run.

`HYPOTHESIS_PROFILE=search pytest ...` looks for new examples instead.
"""

from __future__ import annotations

import os

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
