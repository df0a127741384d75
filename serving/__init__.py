"""Serving: sessions, in which programs are called, and what a service with a queue would do on the modelled chip.

session.py     `tw.Session`: the programs of a file on one set of weights, streams, events, bound buffers
streams.py     what runs the calls of a session
stats.py       what a session has done
simulation.py  `simulate`: figures of a service under several policies
arrivals.py    when requests arrive
policies.py    how they are put into batches, and what a batch takes
replay.py      the queue, event by event
plot.py        its length over time, and the distribution of latency
"""

from .arrivals import Arrivals, ServingError
from .policies import BatchCost, BatchPolicy
from .session import Session, SessionEntry
from .simulation import Latency, LatencyGoal, PolicyRow, ServiceReport, simulate
from .stats import EntryStats, Seconds, SessionStats
from .streams import SessionError

__all__ = [
    "Arrivals",
    "BatchCost",
    "BatchPolicy",
    "EntryStats",
    "Latency",
    "LatencyGoal",
    "PolicyRow",
    "Seconds",
    "ServiceReport",
    "ServingError",
    "Session",
    "SessionEntry",
    "SessionError",
    "SessionStats",
    "simulate",
]
