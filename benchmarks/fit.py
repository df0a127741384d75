"""How the calibration depends on each fitted parameter.

    python benchmarks/fit.py RECORDS.json [--step 0.1]

Each parameter is scaled down and up while the others stay, and the error of the fitted and of the held-out records
of the 910B family is printed for both: the mean of |log(modelled / measured)| over all times, each cut at 0.5 so that
a record the model cannot explain does not pull. A parameter stands well where its own value has the least error, in
the fitted records and in the held-out ones. Nothing is written: values are changed by hand in machine/*.toml.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.calibration import load_records
from tilewright.calibration.compare import program_of, times_on
from tilewright.calibration.express import express
from tilewright.calibration.expressed import Expressed, Inexpressible
from tilewright.machine import Machine
from tilewright.program import CompileError, Program

CUT = 0.5
SKIPPED = ("scalar",)
"""Pipes left out: what one number for each instruction cannot explain."""

Change = Callable[[Machine, float], Machine]
Case = tuple[bool, dict[str, float], Expressed, Program]
"""Fitted or held out, measured times, and the program."""


def of_move(path: tuple[str, str], field: str) -> Change:
    """Scales a field of a data path."""

    def change(machine: Machine, scale: float) -> Machine:
        move = machine.moves[path]
        return replace(
            machine, moves={**machine.moves, path: replace(move, **{field: getattr(move, field) * scale})}
        )

    return change


def of_machine(*fields: str) -> Change:
    """Scales numbers of the machine itself."""

    def change(machine: Machine, scale: float) -> Machine:
        return replace(
            machine, **{field: type(v)(v * scale) for field in fields for v in [getattr(machine, field)]}
        )

    return change


PARAMETERS: dict[str, Change] = {
    "moves.gm.l1.run_cycles": of_move(("gm", "l1"), "run_cycles"),
    "moves.gm.l1.miss_bytes_per_cycle": of_move(("gm", "l1"), "miss_bytes_per_cycle"),
    "moves.gm.l1.shared_bytes_per_cycle": of_move(("gm", "l1"), "shared_bytes_per_cycle"),
    "moves.gm.ub.run_cycles": of_move(("gm", "ub"), "run_cycles"),
    "moves.gm.ub.miss_bytes_per_cycle": of_move(("gm", "ub"), "miss_bytes_per_cycle"),
    "moves.l1.l0b.overlap_factor": of_move(("l1", "l0b"), "overlap_factor"),
    "moves.ub.gm.bytes_per_cycle": of_move(("ub", "gm"), "bytes_per_cycle"),
    "cube.head_cycles": of_machine("cube_head_cycles"),
    "memory.hbm_tb_per_s": of_machine("hbm_bytes_per_cycle"),
    "memory.l2_tb_per_s": of_machine("l2_bytes_per_cycle"),
    "launch": of_machine("launch_us", "launch_us_all"),
    "scalar.library_start_us": of_machine("library_start_us"),
}


def cases(path: str) -> list[Case]:
    """The records of the family that can be expressed, compiled once."""
    found: list[Case] = []
    for record in load_records(path):
        if record.family and record.by_hand:
            try:
                expressed = express(record)
                found.append((record.fitted, record.measured, expressed, program_of(expressed)))
            except (Inexpressible, CompileError):
                continue
    return found


def errors(found: Sequence[Case], change: Change, scale: float) -> tuple[float, float]:
    """(fitted, held out) mean error with one parameter scaled."""
    sums = {True: [0.0, 0], False: [0.0, 0]}
    for fitted, measured, expressed, program in found:
        machine = change(Machine.load(expressed.machine), scale)
        start = expressed.start_us and machine.library_start_us
        modelled = times_on(replace(expressed, start_us=start), program, machine)
        for quantity, time in measured.items():
            if quantity.removeprefix("aiv_") not in SKIPPED and modelled.get(quantity):
                sums[fitted][0] += min(CUT, abs(math.log(modelled[quantity] / time)))
                sums[fitted][1] += 1
    return tuple(total / max(count, 1) for total, count in (sums[True], sums[False]))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("records")
    parser.add_argument("--step", type=float, default=0.1)
    args = parser.parse_args()
    found = cases(args.records)
    now = errors(found, of_machine(), 1.0)
    print(f"{len(found)} records; mean error now: fitted {now[0]:.4f}, held out {now[1]:.4f}")
    low, high = 1 / (1 + args.step), 1 + args.step
    heads = [f"{half} x{scale:.2f}" for half in ("fitted", "held out") for scale in (low, high)]
    print(f"{'parameter':36}" + "".join(f"{head:>16}" for head in heads))
    for name, change in PARAMETERS.items():
        less, more = errors(found, change, low), errors(found, change, high)
        differences = [less[0] - now[0], more[0] - now[0], less[1] - now[1], more[1] - now[1]]
        print(f"{name:36}" + "".join(f"{difference:>+16.4f}" for difference in differences))


if __name__ == "__main__":
    main()
