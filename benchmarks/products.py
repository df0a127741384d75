"""Products beside the fastest published kernels of the same shapes, in modelled microseconds.

python benchmarks/products.py RECORDS.json [RECORDS.json ...] [--page docs/products.md]

The files hold measured kernels, as ../shared/calibration/measurements_dev.json and fused_kernels.json do. A row is a
product of one shape and pair of types on one chip, and the fastest kernel that is published for it, whoever wrote it.
Ours is compiled without a pin for the layouts of that kernel, on no more cores than it had, and its time is of the same
kind: of a task with its launch, or of the cores. Rows of which something else than the kernel sets the time are listed,
not judged.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.calibration.compare import PIPES, WHOLE, program_of, times_on
from tilewright.calibration.express import express
from tilewright.calibration.expressed import Expressed, Inexpressible, cores_of
from tilewright.calibration.records import Record
from tilewright.machine import Machine
from tilewright.support.files import write_part

BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"

PRODUCT = re.compile(r"(batch_|grouped (quant|mx) |quant )?mat(mul|vec)\b|gemm only")
"""How the names of operations begin whose kernel is a product."""

CONTRADICTED = 1.3
"""How many times as fast another kernel of the same product must be on the same cores to contradict a row."""

SIBLINGS = ("ascend-910b1", "ascend-910b3")
"""Chips with the same cores, of which one has fewer."""

HOST = (47.0, 77.0)
"""Microseconds within which the host bounds products of torch_npu, as the collection of the records says."""

STARTS = 2.0
"""A library bounds a kernel where ours takes less than so many times what its start alone takes."""

HEADER = (
    "| product | m x k x n | types | chip | ours us | published us | ratio | ours is bound by | fastest kernel |",
    "|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Published:
    """A published kernel: its record, our program for the same work, and the name of the time that is published; None
    where only those of pipes are."""

    record: Record
    ours: Expressed
    quantity: str | None

    @property
    def us(self) -> float:
        """The published time; of the longest pipe, if there is no other."""
        measured = self.record.measured
        if self.quantity is not None:
            return measured[self.quantity]
        return max((us for name, us in measured.items() if name in PIPES), default=float("inf"))

    @property
    def cores(self) -> int:
        """Cube cores that it ran on."""
        most = Machine.load(self.ours.machine).cube_cores
        return min(cores_of(self.record, "aic") or most, most)

    @property
    def product(self) -> tuple[object, ...]:
        """What it computes."""
        work = self.record.part("workload")
        sides = ("op", "groups", "batch", "m", "m_total", "k", "n", "dtype_in", "dtype_out")
        return tuple(work.get(name) for name in sides)


@dataclass(frozen=True)
class Row:
    """A row of the table; reason: why it is not judged, None where it is."""

    published: Published
    ours: float
    bound: str
    reason: str | None

    @property
    def ratio(self) -> float:
        """Our time over the published one."""
        return self.ours / self.published.us

    def line(self) -> str:
        """The row in Markdown."""
        work = self.published.record.part("workload")
        lead = work.get("groups") or work.get("batch")
        rows = work["m_total"] // work["groups"] if "m_total" in work else work["m"]
        shape = f"{rows} x {work['k']} x {work.get('n', 1)}"
        cells = (
            str(work["op"]),
            f"{lead} x ({shape})" if lead else shape,
            f"{work['dtype_in']}, {work.get('dtype_out') or work['dtype_in']}",
            self.published.ours.machine.removeprefix("ascend-"),
            f"{self.ours:,.1f}",
            f"{self.published.us:,.1f}",
            f"{self.ratio:.2f}",
            self.bound,
            self.published.record.id,
        )
        return f"| {' | '.join(cells)} |" + (f" {self.reason} |" if self.reason else "")


def records_of(files: Iterable[str]) -> list[Record]:
    """The products among the records of all files."""
    found = [_record(entry) for file in files for entry in json.loads(Path(file).read_text())]
    return [r for r in found if r is not None and PRODUCT.match(r.text("workload", "op"))]


def _record(entry: Mapping[str, Any]) -> Record | None:
    """A record in the form of measured kernels; those of fused kernels say the same in other words."""
    if "workload" in entry:
        return Record(str(entry["id"]), str(entry["chip"]), entry)
    shape = entry.get("shape") or {}
    if not {"M", "N", "K"} <= set(shape) or not PRODUCT.match(entry["op"]):
        return None
    kind = entry["dtype"]
    work = {"op": "matmul", **{x.lower(): shape[x] for x in "MKN"}, "dtype_in": kind, "dtype_out": kind}
    data = {
        **entry,
        "workload": work,
        "schedule": {"impl": entry["impl"]},
        "measured_us": {"task": entry["measured"]["value"]},
    }
    return Record(str(entry["id"]), re.sub(r"^\d+x ", "", str(entry["chip"])), data)


def published(record: Record, like: Record | None = None) -> Published:
    """A record with our program for the same work; `like`: one whose layouts that has. Raises Inexpressible."""
    work = {**record.part("workload"), **(_layouts(like) if like else {})}
    bare = Record(record.id, record.chip, {"workload": work, "cores": record.part("cores")})
    found = dataclasses.replace(express(bare), schedule=tw.Schedule())
    quantity = next((name for name in WHOLE if name in record.measured), None)
    known = Published(record, found, quantity)
    if known.cores == Machine.load(found.machine).cube_cores:
        return known
    return dataclasses.replace(known, ours=dataclasses.replace(found, schedule=tw.Schedule(cores=known.cores)))


def row_of(best: Published, others: Sequence[Published]) -> Row:
    """The row of the fastest kernel of a product on a chip; `others`: all kernels that are published."""
    machine = Machine.load(best.ours.machine)
    assert best.quantity is not None
    program = program_of(best.ours, ours=True)
    ours = times_on(best.ours, program, machine)[best.quantity]
    slowest = max(program.report().kernels, key=lambda kernel: kernel.microseconds)
    return Row(best, ours, slowest.bound, _not_judged(best, others, ours))


def _not_judged(best: Published, others: Sequence[Published], ours: float) -> str | None:
    """Why a row says nothing of the kernel, None where it does."""
    impl = best.record.text("schedule", "impl").lower()
    if "torch_npu" in impl and HOST[0] <= best.us <= HOST[1]:
        return "bound by the host"
    if ours < STARTS * express(best.record).start_us:
        return "bound by the start of a library"
    for other in others:
        siblings = {best.ours.machine, other.ours.machine} <= {*SIBLINGS, best.ours.machine}
        least = other.us * other.cores / best.cores
        if other.product == best.product and siblings and least * CONTRADICTED < best.us:
            return f"{other.record.id} has {other.us:,.1f}"
    return None


def table(files: Iterable[str]) -> tuple[list[Row], dict[str, int]]:
    """The rows, and how many records have none for each reason."""
    known: list[Published] = []
    left_out: dict[str, int] = {}
    for record in records_of(files):
        try:
            known.append(published(record))
        except Inexpressible as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
    best: dict[tuple[object, ...], Published] = {}
    for each in (p for p in known if p.quantity is not None):
        key = each.ours.machine, each.product
        if key not in best or each.us < best[key].us:
            best[key] = each
    return [row_of(_with_layouts(each, known), known) for each in best.values()], left_out


def _with_layouts(best: Published, others: Sequence[Published]) -> Published:
    """A kernel whose record names no layouts with those of another one of the same product in the same repository."""
    if _layouts(best.record):
        return best
    for other in others:
        same = _repository(other) == _repository(best)
        if same and other.product == best.product and _layouts(other.record):
            found = published(best.record, other.record)
            if found.ours.machine == best.ours.machine:
                return found
    return best


def _layouts(record: Record) -> dict[str, Any]:
    """What a record says of layouts."""
    return {key: value for key, value in record.part("workload").items() if "layout" in key or "transposed" in key}


def _repository(kernel: Published) -> str:
    """Where it was published, without the owner."""
    return str(kernel.record.part("source").get("repo")).rsplit("/", 1)[-1]


def said(rows: Sequence[Row]) -> str:
    """How the judged rows are, in a sentence."""
    judged = [row.ratio for row in rows if row.reason is None]
    least = sum(ratio <= 1 for ratio in judged)
    return (
        f"{least} of {len(judged)} rows ({100 * least / len(judged):.0f} %) take no longer than the fastest "
        f"published kernel;\nthe median ratio is {statistics.median(judged):.2f}, the largest {max(judged):.2f}."
    )


def page(rows: Sequence[Row], left_out: Mapping[str, int]) -> str:
    """The tables of judged and of other rows, the slowest first, and what has none."""
    rows = sorted(rows, key=lambda row: -row.ratio)
    judged = [row.line() for row in rows if row.reason is None]
    others = [row.line() for row in rows if row.reason is not None]
    lines = [*HEADER, *judged, "", said(rows), "", "Not judged:", ""]
    lines += [f"{HEADER[0]} why not |", f"{HEADER[1]}---|", *others, "", "Records without a row:", ""]
    lines += [f"* {count}: {reason}" for reason, count in sorted(left_out.items())]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="+")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    args = parser.parse_args(argv)
    found = page(*table(args.records))
    print(found)
    if args.page:
        write_part(args.page, BEGIN, END, found)


if __name__ == "__main__":
    main()
