"""What a pool holds and has done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..terminal import Fitted

if TYPE_CHECKING:
    from rich.table import Table

    from ...machine import Machine

SCHEMA = "tilewright.pool/1"


@dataclass(frozen=True, repr=False)
class PoolStatistics:
    """A pool at one time. The names of the fields are those of the JSON object; docs/memory-pool.md explains them.

    Now: live (requested), reserved (taken by their blocks), free and host (spilled) bytes; largest_free: of one block.
    So far: peak (most live bytes at one time), watermark (end of the last byte that a block ever took), allocations
    that were made, failures (requests that were refused), compactions and the bytes they moved, spills and restores.
    """

    policy: str
    capacity_bytes: int
    alignment: int
    live_allocations: int
    live_bytes: int
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    host_bytes: int
    peak_bytes: int
    watermark_bytes: int
    allocations: int
    failures: int
    defragmentations: int
    moved_bytes: int
    spills: int
    spilled_bytes: int
    restores: int
    restored_bytes: int

    @property
    def internal_fragmentation(self) -> float:
        """The share of reserved bytes that nobody asked for: 0 to 1."""
        return 1 - self.live_bytes / self.reserved_bytes if self.reserved_bytes else 0.0

    @property
    def external_fragmentation(self) -> float:
        """The share of free bytes outside the largest free block: 0 to 1."""
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes else 0.0

    @property
    def link_bytes(self) -> int:
        """Bytes over the link to the host, both ways."""
        return self.spilled_bytes + self.restored_bytes

    def link_microseconds(self, machine: Machine) -> float:
        """What these bytes take over the link of a machine, as the simulator has it (docs/cost-model.md)."""
        return self.link_bytes / machine.host.pcie_bytes_per_us

    def to_dict(self) -> dict[str, Any]:
        """Plain data: all fields, and the properties above."""
        shares = {
            "internal_fragmentation": self.internal_fragmentation,
            "external_fragmentation": self.external_fragmentation,
            "link_bytes": self.link_bytes,
        }
        return {"schema": SCHEMA, **asdict(self), **shares}

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<PoolStatistics {self.summary()}>"

    def __rich__(self) -> Fitted:
        return Fitted(self.rich_table())

    def summary(self) -> str:
        """One line."""
        return (
            f"{self._title()}: {self.live_bytes:,} bytes in {self.live_allocations} allocations, "
            f"watermark {self.watermark_bytes:,}"
        )

    def _title(self) -> str:
        return f"{self.policy} pool of {self.capacity_bytes:,} bytes, aligned to {self.alignment}"

    def rich_table(self, borders: bool = True) -> Table:
        """A table for a rich console."""
        from rich import box
        from rich.table import Table

        table = Table(title=self._title(), title_justify="left", box=box.HEAVY_HEAD if borders else None)
        table.add_column("memory")
        for name in ("times", "bytes", "share"):
            table.add_column(name, justify="right")
        for name, times, count, share in self._rows():
            table.add_row(
                name,
                "" if times is None else f"{times:,}",
                "" if count is None else f"{count:,}",
                "" if share is None else f"{100 * share:.1f}%",
            )
        return table

    def _rows(self) -> list[tuple[str, int | None, int | None, float | None]]:
        """What a row is about, how often, how many bytes, and their share."""
        total = self.capacity_bytes
        return [
            ("live", self.live_allocations, self.live_bytes, self.live_bytes / total),
            ("reserved", None, self.reserved_bytes, self.reserved_bytes / total),
            ("free", None, self.free_bytes, self.free_bytes / total),
            ("largest free block", None, self.largest_free_bytes, self.largest_free_bytes / total),
            ("peak of live", None, self.peak_bytes, self.peak_bytes / total),
            ("watermark", None, self.watermark_bytes, self.watermark_bytes / total),
            (
                "internal fragmentation",
                None,
                self.reserved_bytes - self.live_bytes,
                self.internal_fragmentation,
            ),
            (
                "external fragmentation",
                None,
                self.free_bytes - self.largest_free_bytes,
                self.external_fragmentation,
            ),
            ("allocations", self.allocations, None, None),
            ("failures", self.failures, None, None),
            ("defragmentations", self.defragmentations, self.moved_bytes, None),
            ("spills to the host", self.spills, self.spilled_bytes, None),
            ("restores from the host", self.restores, self.restored_bytes, None),
            ("on the host", None, self.host_bytes, None),
        ]

    def table(self, width: int = 100, borders: bool = True) -> str:
        """The table as plain text of at most `width` columns; without `borders`, columns with spaces between."""
        from rich.console import Console

        console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(self.rich_table(borders))
        return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())
