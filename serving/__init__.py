"""Serving: sessions, in which programs are called, and what a service with a queue would do on the modelled chip.

session.py   `tw.Session`: the programs of a file on one set of weights, streams, events, bound buffers
streams.py   what runs the calls of a session
stats.py     what a session has done
"""

from .session import Session, SessionEntry
from .stats import EntryStats, Seconds, SessionStats
from .streams import SessionError

__all__ = ["EntryStats", "Seconds", "Session", "SessionEntry", "SessionError", "SessionStats"]
