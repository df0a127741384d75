"""How low the buffers of tables are placed, and how long that takes.

python benchmarks/packing.py FOLDER --capacity 1M    # within a capacity
python benchmarks/packing.py FOLDER --seconds 30     # as low as the search finds in 30 s of processor time each
python benchmarks/packing.py FOLDER --capacity 1M --page docs/memory-packing.md

The tables are files that `tilewright pack` reads, such as the eleven of benchmarks/challenging in
https://github.com/google/minimalloc, whose capacity is 1 MiB. They are not part of this tree.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from tilewright.cli.common import parse_bytes
from tilewright.packing import Budget, PackingError, PackingPlan, PackingProblem, solve, within
from tilewright.packing.tables import parse_table
from tilewright.support.files import write_part

HEADER = (
    "| problem | buffers | sections | bound | greedy | found | found/bound | placements | seconds |",
    "|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class PackedTable:
    """A table and what became of it. plan: None where there is none within the capacity; problem: why none is known.
    seconds: of processor time."""

    name: str
    buffers: PackingProblem
    plan: PackingPlan | None
    problem: str
    seconds: float

    def row(self) -> str:
        """A line of the table of results."""
        sizes = (
            f"| {self.name} | {len(self.buffers.buffers)} | {self.buffers.sections} | {self.buffers.bound:,} "
        )
        if self.plan is None:
            return f"{sizes}| | {self.problem or 'none'} | | | {self.seconds:.2f} |"
        height = f"{self.plan.height:,}{' (lowest)' if self.plan.proved else ''}"
        greedy = f"{self.plan.greedy / max(self.plan.bound, 1):.4f}"
        ratio = f"{self.plan.ratio:.4f}"
        return f"{sizes}| {greedy} | {height} | {ratio} | {self.plan.nodes:,} | {self.seconds:.2f} |"


def packed(path: Path, capacity: int | None, seconds: float) -> PackedTable:
    """Places the buffers of a table and checks that none overlap."""
    problem = parse_table(path.read_text()).problem
    began = time.process_time()
    plan, said = None, ""
    try:
        budget = Budget(seconds=seconds)
        plan = solve(problem, budget) if capacity is None else within(problem, capacity, budget)
    except PackingError as error:
        said = str(error)
    took = time.process_time() - began
    if plan is not None:
        problem.check(plan.offsets)
        if capacity is not None and plan.height > capacity:
            raise AssertionError(f"{path}: {plan.height} bytes are more than {capacity}")
    return PackedTable(path.stem.split(".")[0], problem, plan, said, took)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--capacity", help="bytes: 4096, 512K, 64M, 2G")
    parser.add_argument("--seconds", type=float, default=30.0, help="of processor time for each table")
    parser.add_argument("--page", help="put the table between the marks of a page")
    args = parser.parse_args()
    capacity = parse_bytes(args.capacity)
    rows, total = list(HEADER), 0.0
    print("\n".join(rows))
    for path in sorted(args.folder.glob("*.csv")):
        found = packed(path, capacity, args.seconds)
        rows.append(found.row())
        print(rows[-1], flush=True)
        total += found.seconds
    rows.append(f"| all | | | | | | | | {total:.2f} |")
    print(rows[-1])
    if args.page is not None:
        mark = "lowest" if capacity is None else "capacity"
        write_part(args.page, f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->", "\n".join(rows))


if __name__ == "__main__":
    main()
