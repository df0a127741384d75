"""Commands that show: `explain`, `machines` and `ops`; and the grammar of these and of `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...machine import Machine
from ...support.sentences import suggestion
from ..common import STDIN, CliError, print_json, table, tell, working
from ..help import texts
from ..outputs import write_output

if TYPE_CHECKING:
    from ...api.program import Program
    from ...explain.levels import LevelView
    from ..engines import OpRow

SHELLS = ("bash", "zsh", "fish")
_WIDEST = 64


def explain(args: argparse.Namespace) -> int:
    """Writes the page that explains a program."""
    from ...explain import ExplainError, check_installed, compile_with_levels, page_data, page_of
    from ..build import build

    levels: list[LevelView] = []

    def compiler(*inputs: Any, **how: Any) -> Program:
        nonlocal levels
        program, levels = compile_with_levels(*inputs, **how)  # of open sizes: filled when the version is compiled
        return program

    _, program, _ = build(args, compiler=compiler)
    try:
        check_installed()
        with working("drawing the page") as say:
            data = page_data(
                program, lambda what, done, steps: say(f"drawing the page: {what}", done, steps), levels
            )
            page = page_of(program, data)
    except ExplainError as error:
        raise CliError(str(error)) from None
    write_output(args.output, page)
    if args.json:
        result = {
            "source": args.source,
            "target": program.target,
            "output": args.output,
            "bytes": len(page.encode()),
            "apart": data["apart"],
            "kernels": {name: kernel["plan"] for name, kernel in data["kernels"].items()},
        }
        print_json(result)
    elif args.output != STDIN:
        tell(f"wrote {args.output}: open it in a browser")
    return 0


# -- machines ------------------------------------------------------------------------------------------------


def machines(args: argparse.Namespace) -> int:
    """Prints the chips, or all figures of one with their sources."""
    names = [args.name] if args.name is not None else Machine.names()
    found = [machine_dict(name, args.name is not None) for name in names]
    if args.json:
        print_json({"schema": "tilewright.machines/1", "machines": found})
        return 0
    rows = [
        [
            m["name"],
            f"{m['clock_mhz']:g}",
            f"{m['cube_cores']} + {m['vector_cores']}",
            "fused" if m["fused"] else "split",
            " ".join(f"{dtype} {t:.3g}" for dtype, t in m["cube_tera_per_s"].items()),
            " ".join(f"{name} {m['spaces'][name] // 1024}" for name in ("l1", "l0a", "l0c", "ub")),
            f"{m['l2_bytes'] / 2**20:g}",
            f"{m['hbm_tb_per_s']:.3g}",
            f"{m['spaces']['gm'] / 2**30:g}",
        ]
        for m in found
    ]
    header = [
        "chip",
        "MHz",
        "cube + vector",
        "cores",
        "Tera-ops/s",
        "KiB in a core",
        "L2 MiB",
        "HBM TB/s",
        "GiB",
    ]
    table("two operations for each multiply-accumulate", header, rows)
    for m in found:
        if "figures" in m:
            print()
            print(m["about"])
            print()
            figures = [[f["key"], _value(f["value"]), f["source"]] for f in m["figures"]]
            table("figures, as the machine file has them", ["key", "value", "source"], figures)
    return 0


def machine_dict(name: str, full: bool) -> dict[str, Any]:
    """A chip as plain data; with all figures and their sources where `full`. Raises MachineError."""
    from ...machine.sources import figures

    m = Machine.load(name)
    found: dict[str, Any] = {
        "name": m.name,
        "clock_mhz": m.clock_mhz,
        "fused": m.fused,
        "cube_cores": m.cube_cores,
        "vector_cores": m.vector_cores,
        "spaces": {name: space.bytes for name, space in m.spaces.items()},
        "l2_bytes": m.l2_bytes,
        "l2_tb_per_s": m.l2_bytes_per_cycle * m.clock_mhz / 1e6,
        "hbm_tb_per_s": m.hbm_bytes_per_cycle * m.clock_mhz / 1e6,
        "cube_tera_per_s": {
            dtype: 2e-6 * rate.macs * m.cube_cores * m.clock_mhz for dtype, rate in m.cube.items()
        },
    }
    if full:
        about, listed = figures(name)
        found |= {"about": about, "figures": [vars(figure) for figure in listed]}
    return found


def _value(value: Any) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{k} {_value(v)}" for k, v in value.items())
        return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- ops -----------------------------------------------------------------------------------------------------


def ops(args: argparse.Namespace) -> int:
    """Prints which op and element type runs on which engine."""
    from ..engines import DTYPES, known_ops, rows

    every = known_ops()
    bare = [name.removeprefix("stablehlo.") for name in args.names]
    names = [call if (call := f"custom_call @{name}") in every else name for name in bare] or None
    for name in names or ():
        if name not in every:
            longer = sorted(op for op in every if op.startswith(name.lower())) if len(name) > 2 else []
            near = f"; did you mean {' or '.join(longer[:2])}?" if longer else suggestion(name.lower(), every)
            raise CliError(f"StableHLO has no op {name}{near}")
    found: list[OpRow] = []
    with working("compiling a form of each op") as say:
        for row in rows(args.target, names):
            found.append(row)
            say(f"compiling a form of each op: {row.name}", len(found), len(names or every))
    if args.json:
        print_json({**_ops_dict(args.target, found), "dtypes": list(DTYPES)})
        return 0
    machine = Machine.load(args.target).name
    shown = [r for r in found if r.rule and r.support]
    lines = [[r.name, *(str(r.support[d]) if d in r.support else "-" for d in DTYPES)] for r in shown]
    if lines:
        short = [d.replace("complex<f32>", "c64") for d in DTYPES]
        table(
            f"where StableHLO runs on {machine} (dma: transfers only, folded: no instruction)",
            ["op", *short],
            lines,
        )
    if names:
        _details(shown)
    inside = [r.name for r in found if r.rule and not r.support]
    if inside:
        print(f"as what they contain: {', '.join(inside)}")
    hosted = [r.name for r in found if not r.rule]
    if hosted:
        print(f"on the host, whatever the element type: {', '.join(hosted)}")
    return 0


def _details(shown: list[OpRow]) -> None:
    """The instructions behind each cell of a few ops."""
    lines = [
        [
            row.name,
            dtype,
            str(s),
            s.problem or ", ".join(f"{n} {rate:g}" for n, rate in s.instructions.items()),
        ]
        for row in shown
        for dtype, s in row.support.items()
        if s.instructions or s.problem
    ]
    if lines:
        print()
        table(
            "instructions",
            [
                "op",
                "dtype",
                "engine",
                "npu ops, and elements or products per cycle of one core on this small form",
            ],
            lines,
        )


def _ops_dict(target: str, found: list[OpRow]) -> dict[str, Any]:
    return {
        "schema": "tilewright.ops/1",
        "target": target,
        "ops": [
            {
                "name": row.name,
                "rule": row.rule or None,
                "support": {
                    d: {
                        "engines": list(s.engines),
                        "instructions": s.instructions,
                        "problem": s.problem or None,
                    }
                    for d, s in row.support.items()
                },
            }
            for row in found
        ],
    }


def add_commands(commands: Any, command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Adds these commands to the grammar: `commands` are the subparsers, `command` makes one that takes a SOURCE."""
    page = command("explain", "write a page: levels side by side, timelines, memory maps, costs")
    page.add_argument("-o", "--output", default="report.html", metavar="FILE", help="default report.html")

    def plain(name: str, help: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help, **texts(name))
        made.add_argument("--json", action="store_true", help="print one JSON object")
        made.add_argument("--debug", action="store_true", help="show the traceback of an error")
        return made

    chips = plain("machines", "the chips and their figures")
    chips.add_argument(
        "name", nargs="?", metavar="NAME", help="one chip, or a .toml: all figures and their sources"
    )
    engines = plain("ops", "which op and element type runs on which engine")
    engines.add_argument(
        "names", nargs="*", metavar="OP", help="these ops only, with their instructions: add exponential"
    )
    engines.add_argument(
        "--target", default="ascend-910b1", metavar="T", help="chip, or a .toml (default ascend-910b1)"
    )
    kept = plain("cache", "what a directory keeps of compiled programs")
    kept.add_argument(
        "directory", nargs="?", metavar="DIR", help="that of --cache (default: that of TILEWRIGHT_CACHE)"
    )
    kept.add_argument("--clear", action="store_true", help="remove it")
    shell = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description="print a shell's completion script",
        **texts("completion"),
    )
    shell.add_argument("shell", choices=SHELLS)
    shell.add_argument("--debug", action="store_true", help="show the traceback of an error")
