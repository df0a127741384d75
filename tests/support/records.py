"""A record of a measured kernel, as files of measurements hold them."""

from __future__ import annotations

from typing import Any

ADD: dict[str, Any] = {
    "id": "add",
    "chip": "950PR",
    "engine": "vector",
    "cores": {"aic": 0, "aiv": 64},
    "workload": {"op": "add", "shape": [4096, 64], "dtype": "f16", "inputs": 2},
    "schedule": {"impl": "Ascend C", "tile_elems": 4096, "double_buffer": True},
    "measured_us": {"task": 5.0, "vec": 0.5},
}
