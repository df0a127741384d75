"""Where the time of `tilewright-opt` goes: the table of `--mlir-timing`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

_WIDTH = 80


class Timing:
    """Wall-clock seconds by name, in the order in which the names came."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time that passes inside."""
        started = perf_counter()
        try:
            yield
        finally:
            self.add(name, perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Adds seconds to those of a name."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def table(self) -> str:
        """The report, laid out as mlir-opt's. `Rest` is what no name has: loading dialects and passes, for the most."""
        total = perf_counter() - self._started
        rows = [*self.seconds.items(), ("Rest", total - sum(self.seconds.values())), ("Total", total)]
        line = f"===-{'-' * (_WIDTH - 8)}-==="
        lines = [
            line,
            "... Execution time report ...".center(_WIDTH).rstrip(),
            line,
            f"  Total Execution Time: {total:.4f} seconds",
            "",
            "  ----Wall Time----  ----Name----",
            *(f"  {t:8.4f} ({100 * t / total:5.1f}%)  {name}" for name, t in rows),
        ]
        return "\n".join(lines)
