"""Device memory at run time, for programs whose shapes are known only then: a pool, its statistics, traces and bounds.

docs/memory-pool.md says what for, and what the numbers mean.
"""

from .bounds import RobsonBound, best_fit_bound, peak_of_live, robson_bound
from .errors import PoolError, PoolFullError, RequestTooLargeError
from .events import PoolEvent
from .pool import POLICIES, Allocation, Pool, PoolCopy
from .statistics import PoolStatistics
from .trace import Replay, replay

__all__ = [
    "Allocation",
    "POLICIES",
    "Pool",
    "PoolCopy",
    "PoolError",
    "PoolEvent",
    "PoolFullError",
    "PoolStatistics",
    "Replay",
    "RequestTooLargeError",
    "RobsonBound",
    "best_fit_bound",
    "peak_of_live",
    "replay",
    "robson_bound",
]
