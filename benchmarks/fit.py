"""How the calibration depends on each fitted parameter, and how well it holds on records that it was not fitted on.

    python benchmarks/fit.py RECORDS.json

Each parameter is scaled by 0.5 to 2 while the others stay. The error of a record is the mean of |log(modelled /
measured)| over its times, each cut at 0.5 so that what the model cannot explain does not pull. Printed are

* for each parameter: the change of the mean error of the fitted and of the held-out half when it is a tenth less and
  more, how many records of how many sources move by it, and the scales that the records of all sources, and of all
  but one in turn, would choose;
* leave one source out: each source's records under the parameters that all other sources choose. That is what the
  model would be on a source that nobody has looked at, as far as the numbers go; its mechanisms were still found with
  all records in sight.

Nothing is written: values are changed by hand in machine/*.toml.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.api.program import CompileError, Program
from tilewright.calibration import Record, load_records
from tilewright.calibration.compare import WHOLE, program_of, times_on
from tilewright.calibration.express import express
from tilewright.calibration.expressed import Expressed, Inexpressible
from tilewright.calibration.summary import percentile
from tilewright.machine import Machine

CUT = 0.5
SCALES = (0.5, 0.8, 1 / 1.1, 1.0, 1.1, 1.25, 2.0)
MOVES = 0.005
"""A change of a record's error that counts as depending on a parameter, where that is scaled by 1.25 or 0.8."""
KEPT = 0.001
"""A scale other than 1 must be better by this much of the mean error, as a person would ask before a change."""

Change = Callable[[Machine, float], Machine]


@dataclass(frozen=True)
class Case:
    """A record that can be expressed, compiled once."""

    record: Record
    source: str
    expressed: Expressed
    program: Program


def of_move(path: tuple[str, str], field: str) -> Change:
    """Scales a field of a data path."""

    def change(machine: Machine, scale: float) -> Machine:
        move = machine.moves[path]
        value = getattr(move, field)
        changed = 1 + (value - 1) * scale if field == "overlap_factor" else value * scale
        return replace(machine, moves={**machine.moves, path: replace(move, **{field: changed})})

    return change


def of_machine(*fields: str) -> Change:
    """Scales numbers of the machine itself; whole ones stay whole."""

    def change(machine: Machine, scale: float) -> Machine:
        old = {field: getattr(machine, field) for field in fields}
        return replace(
            machine, **{f: round(v * scale) if isinstance(v, int) else v * scale for f, v in old.items()}
        )

    return change


def waits(machine: Machine, scale: float) -> Machine:
    """Scales what a wait for a flag costs."""
    return replace(machine, wait_cycles={p: round(n * scale) for p, n in machine.wait_cycles.items()})


def streamed(machine: Machine, scale: float) -> Machine:
    """Scales the cycles of a vector instruction besides its repeats."""
    cycles = round(machine.vector.streamed_cycles * scale)
    return replace(machine, vector=replace(machine.vector, streamed_cycles=cycles))


PARAMETERS: dict[str, Change] = {
    "moves.gm.l1 run_cycles": of_move(("gm", "l1"), "run_cycles"),
    "moves.gm.l1 miss_bytes_per_cycle": of_move(("gm", "l1"), "miss_bytes_per_cycle"),
    "moves.gm.l1 shared_bytes_per_cycle": of_move(("gm", "l1"), "shared_bytes_per_cycle"),
    "moves.gm.ub run_cycles": of_move(("gm", "ub"), "run_cycles"),
    "moves.gm.ub fixed_cycles": of_move(("gm", "ub"), "fixed_cycles"),
    "moves.gm.ub miss_bytes_per_cycle": of_move(("gm", "ub"), "miss_bytes_per_cycle"),
    "moves.l1.l0a overlap_factor": of_move(("l1", "l0a"), "overlap_factor"),
    "moves.l1.l0b overlap_factor": of_move(("l1", "l0b"), "overlap_factor"),
    "moves.ub.gm bytes_per_cycle": of_move(("ub", "gm"), "bytes_per_cycle"),
    "moves.l0c.gm bytes_per_cycle": of_move(("l0c", "gm"), "bytes_per_cycle"),
    "cube.head_cycles": of_machine("cube_head_cycles"),
    "vector.streamed_cycles": streamed,
    "memory.hbm_tb_per_s": of_machine("hbm_bytes_per_cycle"),
    "memory.l2_tb_per_s": of_machine("l2_bytes_per_cycle"),
    "memory.hbm_turn_share": of_machine("hbm_turn_share"),
    "memory.atomic_us": of_machine("atomic_us"),
    "launch": of_machine("launch_us", "launch_us_all"),
    "waits": waits,
    "scalar.issue_cycles": of_machine("issue_cycles"),
    "scalar.vector_issue_cycles": of_machine("vector_issue_cycles"),
    "scalar.vector_slot_cycles": of_machine("vector_slot_cycles"),
    "scalar.start_us": of_machine("scalar_start_us"),
    "scalar.library_issue_factor": of_machine("library_issue_factor"),
    "scalar.library_constant_factor": of_machine("library_constant_factor"),
    "scalar.library_start_us": of_machine("library_start_us"),
}


def cases(path: str) -> list[Case]:
    """The records of the family that can be expressed."""
    found: list[Case] = []
    for record in load_records(path):
        if record.family and record.by_hand:
            try:
                expressed = express(record)
                source = record.text("source", "path") or record.id.rpartition("_")[0]
                found.append(Case(record, source, expressed, program_of(expressed)))
            except (Inexpressible, CompileError):
                continue
    return found


def times_of(case: Case, scales: Mapping[str, float]) -> dict[str, float]:
    """The modelled times of a record with parameters scaled."""
    base = case.expressed.chip
    machine = base
    for name, scale in scales.items():
        machine = PARAMETERS[name](machine, scale)
    factor = case.expressed.issue_factor
    for field in ("library_issue_factor", "library_constant_factor"):
        if factor == getattr(base, field):
            factor = getattr(machine, field)
    start = case.expressed.start_us and machine.library_start_us
    return times_on(replace(case.expressed, start_us=start, issue_factor=factor), case.program, machine)


def error(case: Case, scales: Mapping[str, float]) -> float:
    """The mean error of a record's times with parameters scaled."""
    modelled = times_of(case, scales)
    found = [
        min(CUT, abs(math.log(modelled[quantity] / time)))
        for quantity, time in case.record.measured.items()
        if modelled.get(quantity)
    ]
    return statistics.fmean(found) if found else 0.0


Table = Mapping[str, Mapping[float, Sequence[float]]]
"""Errors of all cases by parameter and scale."""


def choice(table: Table, name: str, kept: Sequence[int]) -> float:
    """The scale of a parameter that some cases choose."""
    means = {scale: statistics.fmean(errors[i] for i in kept) for scale, errors in table[name].items()}
    best = min(means, key=lambda scale: means[scale])
    return best if means[best] < means[1.0] - KEPT else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("records")
    found = cases(parser.parse_args().records)
    everyone = range(len(found))
    now = [error(case, {}) for case in found]
    halves = {half: [i for i in everyone if found[i].record.fitted is half] for half in (True, False)}
    means = {half: statistics.fmean(now[i] for i in members) for half, members in halves.items()}
    sources = sorted({case.source for case in found})
    print(f"{len(found)} records of {len(sources)} sources")
    print(f"mean error: fitted {means[True]:.4f}, held out {means[False]:.4f}")
    table = {
        name: {s: now if s == 1.0 else [error(case, {name: s}) for case in found] for s in SCALES}
        for name in PARAMETERS
    }
    without = {source: [i for i in everyone if found[i].source != source] for source in sources}
    heads = (
        "fitted -10%",
        "+10%",
        "held out -10%",
        "+10%",
        "records",
        "sources",
        "all choose",
        "without one",
    )
    print(f"{'parameter':36}" + "".join(f"{head:>14}" for head in heads))
    for name, by_scale in table.items():
        moved = [i for i in everyone if max(abs(by_scale[s][i] - now[i]) for s in (0.8, 1.25)) > MOVES]
        changes = [
            statistics.fmean(by_scale[scale][i] - now[i] for i in halves[half])
            for half in (True, False)
            for scale in (1 / 1.1, 1.1)
        ]
        chosen = sorted({choice(table, name, kept) for kept in without.values()})
        print(
            f"{name:36}"
            + "".join(f"{change:>+14.4f}" for change in changes)
            + f"{len(moved):>14}{len({found[i].source for i in moved}):>14}{choice(table, name, everyone):>14.2g}"
            + f"{' '.join(f'{c:.2g}' for c in chosen):>14}",
            flush=True,
        )
    blind: dict[str, list[float]] = {"as it is": [], "one source left out": []}
    for source in sources:
        scales = {name: choice(table, name, without[source]) for name in PARAMETERS}
        scales = {name: scale for name, scale in scales.items() if scale != 1.0}
        for i in everyone:
            if found[i].source == source:
                for label, chosen in (("as it is", {}), ("one source left out", scales)):
                    times = times_of(found[i], chosen)
                    whole = next((q for q in WHOLE if q in found[i].record.measured and times.get(q)), None)
                    if whole is not None:
                        blind[label].append(abs(times[whole] / found[i].record.measured[whole] - 1))
    for label, errors in blind.items():
        print(
            f"task, {label}: median {statistics.median(errors):.1%}, 90th percentile {percentile(errors, 0.9):.1%}"
        )


if __name__ == "__main__":
    main()
