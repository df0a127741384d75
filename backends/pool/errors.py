"""What a pool refuses."""

from __future__ import annotations


class PoolError(Exception):
    """A call that makes no sense to a pool, or a request that it cannot meet; the message is one sentence."""


class RequestTooLargeError(PoolError):
    """A request that would not fit into the empty pool."""


class PoolFullError(PoolError):
    """A request that does not fit now, whatever may be moved or spilled."""
