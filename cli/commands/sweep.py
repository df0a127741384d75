"""`tilewright report --sweep`: what a program with open dimensions costs for many values of one size.

`--json` gives this object; keys stay, new ones may come:

    {"schema": "tilewright.sweep/1", "source": str, "target": str, "symbol": str, "at": {symbol: int},
     "rows": [{"value": int, "microseconds": float, "arena_bytes": int, "energy_joules": float,
               "kernels": {name: how often it runs},
               "joined": int,       of these runs, those that are a stage of the launch before
               "changed": bool}],   other kernels, or other runs, than in the row before
     "pool": {...}}     with --pool: what a `ProgramPool` gives, after a call for each row in order
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ...backends.report import Report
from ...support.files import write_plot
from ..build import open_program, sizes_of, user_of
from ..common import CliError, os_message, print_json, table, tell, working
from ..configured import sizes_said
from ..source import user_code

SAMPLES = 16
"""Values of a range without a step."""

MOST = 4096
"""Values of a sweep: each is compiled."""

@dataclass(frozen=True)
class SweepRow:
    """What a program costs for a value of the size. joined: how often a kernel runs in the launch before; changed:
    whether its kernels, or how often they run, are others than in the row before."""

    value: int
    microseconds: float
    arena_bytes: int
    energy_joules: float
    kernels: dict[str, int]
    joined: int
    changed: bool


def sweep(args: argparse.Namespace) -> int:
    """Prints a line for each value of a size, and draws them."""
    symbol, values = parse_sweep(args.sweep)
    source, program = open_program(args, f"--sweep {args.sweep}")
    if symbol not in program.symbols:
        known = ", ".join(program.symbols)
        raise CliError(f"--sweep {args.sweep}: {source.name} has no size {symbol}; its sizes are {known}")
    at = sizes_of(args, program.open_source, symbol)
    if symbol in at:
        raise CliError(f"{symbol} is in {sizes_said(args).split()[0]} and in --sweep: give it once")
    rows: list[SweepRow] = []
    with working(f"compiling {source.name}") as say, user_code(*user_of(source)):
        for value, found in program.sweep(symbol, values, at):
            say(f"compiled {source.name} for {symbol} = {value}", len(rows) + 1, len(values))
            rows.append(_row(value, found, rows))
    if args.plot is not None:
        plot(args.plot, symbol, rows)
    pool = None if args.pool is None else program.replay({**at, symbol: r.value} for r in rows)
    if args.json:
        shown = {"schema": "tilewright.sweep/1", "source": args.source, "target": program.target}
        shown |= {"symbol": symbol, "at": at, "rows": [asdict(r) for r in rows]}
        print_json(shown if pool is None else {**shown, "pool": pool.to_dict()})
        return 0
    fixed = "".join(f", {name} = {n}" for name, n in at.items())
    cells = [
        [
            f"{r.value}",
            f"{r.microseconds:,.1f}",
            f"{r.arena_bytes:,}",
            f"{r.energy_joules:.3g}",
            f"{len(r.kernels)}",
            f"{sum(r.kernels.values()) - r.joined}",
            "*" if r.changed else "",
        ]
        for r in rows
    ]
    header = [symbol, "us", "device bytes", "joules", "kernels", "launches", ""]
    table(
        f"{source.name} for {program.target}{fixed}; *: other kernels than in the line above", header, cells
    )
    if pool is not None:
        print(pool.table(200, borders=sys.stdout.isatty()), end="")
    if args.plot is not None:
        tell(f"wrote {args.plot}")
    return 0


def _row(value: int, found: Report, rows: Sequence[SweepRow]) -> SweepRow:
    kernels: dict[str, int] = {}
    for k in found.kernels:
        kernels[k.name] = kernels.get(k.name, 0) + k.launches
    changed = bool(rows) and rows[-1].kernels != kernels
    joined = found.counts.joined
    return SweepRow(
        value, found.microseconds, found.memory.arena_bytes, found.energy_joules, kernels, joined, changed
    )


def parse_sweep(text: str) -> tuple[str, list[int]]:
    """`s=1,2,4`, `s=1..2048` or `s=64..2048:64`: the symbol and its values, ascending where they are a range. Raises
    CliError."""
    match = re.fullmatch(
        r"\s*([^\W\d]\w*)\s*=\s*(?:(\d+)\s*\.\.\s*(\d+)(?:\s*:\s*(\d+))?|([\d\s,]+))\s*", text
    )
    listed = [] if match is None else [n.strip() for n in (match[5] or "").split(",")]
    if match is None or (match[5] is not None and not all(re.fullmatch(r"\d+", n) for n in listed)):
        raise CliError(f"cannot read --sweep {text}; write s=1,2,4,8, s=1..2048 or s=64..2048:64")
    if match[5] is not None:
        values = list(dict.fromkeys(map(int, listed)))
        _check_count(text, len(values))
        return match[1], values
    low, high, step = int(match[2]), int(match[3]), match[4]
    if high < low:
        raise CliError(f"--sweep {text}: there is no size from {low} to {high}")
    if step is None:
        return match[1], spaced(low, high)
    if int(step) < 1:
        raise CliError(f"--sweep {text}: the step is at least 1")
    _check_count(text, len(range(low, high + 1, int(step))))
    return match[1], list(range(low, high + 1, int(step)))


def _check_count(text: str, count: int) -> None:
    if count > MOST:
        raise CliError(f"--sweep {text}: {count:,} values, of which each is compiled; the most is {MOST:,}")


def spaced(low: int, high: int) -> list[int]:
    """The numbers from `low` to `high`; of more than `SAMPLES` so many, each about as many times the one before, with
    both ends."""
    if high - low < SAMPLES:
        return list(range(low, high + 1))
    start = max(low, 1)
    ratio = (high / start) ** (1 / (SAMPLES - 1))
    return sorted({low, high, *(round(start * ratio**n) for n in range(SAMPLES - 1))})


def plot(path: str, symbol: str, rows: Sequence[SweepRow]) -> None:
    """Draws time, memory and energy against the size; a dashed line where kernels change. Raises CliError where the
    file cannot be written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(3, 1, sharex=True, figsize=(8, 7.5), layout="constrained")
    values = [r.value for r in rows]
    drawn = [
        ("microseconds", [r.microseconds for r in rows]),
        ("device MB", [r.arena_bytes / 1e6 for r in rows]),
        ("mJ", [r.energy_joules * 1e3 for r in rows]),
    ]
    wide = min(values) > 0 and max(values) > 64 * min(values)
    for axes, (label, ys) in zip(panels, drawn, strict=True):
        axes.plot(values, ys, "o-", color="#3f51b5", markersize=4)
        for r in rows:
            if r.changed:
                axes.axvline(r.value, color="#b0572c", linewidth=0.8, linestyle="--")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(color="#e3e7ee")
        axes.set_axisbelow(True)
    panels[-1].set_xlabel(f"{symbol} (dashed: other kernels than before)")
    if wide:
        panels[-1].set_xscale("log", base=2)
    try:
        write_plot(path, figure, dpi=120)
    except OSError as error:
        raise CliError(os_message(error)) from None
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None
    finally:
        pyplot.close(figure)
