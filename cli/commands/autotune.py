"""`tilewright autotune`: every configuration of a space, and the best one as a file that `--config` takes.

`--json` gives this object; keys stay, new ones may come:

    {"schema": "tilewright.autotune/1", "source": str, "output": str | null, "use": str | null,
     "metric": str, "batch": str | null, "accuracy_metric": str | null, "original_accuracy": float | null,
     "best": int | null,         the number of the best row
     "rows": [{"chosen": {axis: value}, "latency": float | null, "throughput": float | null, "energy": float | null,
               "memory": int | null, "watts": float | null, "accuracy": float | null, "front": bool,
               "problem": str, "note": str}]}
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...compression.measures import COMPARED
from ..build import options_of, parse_sizes, user_of
from ..common import CliError, print_json, table, tell, working
from ..inputs import example_inputs, random_inputs
from ..outputs import write_output
from ..source import source_of, user_code
from .quantize import data_of, metric_of

if TYPE_CHECKING:
    from ...tuning.autotune import Autotuned
    from ...tuning.rows import AutotunedRow


def autotune(args: argparse.Namespace) -> int:
    """Prints a line for each configuration, and writes the best one."""
    from ...tuning.autotune import autotune as run

    space = parse_space(args.space)
    if args.set:
        raise CliError(
            "--set: a configuration names its chip: write the figures to a .toml file that extends it, and give "
            "that as --target"
        )
    _check(args)
    source = source_of(args)
    # numbers are drawn where they count; those of a file are there anyway
    inputs = example_inputs(source, args.shapes, args.inputs, args.inputs is not None, args.where, args.scale)
    data, labels = data_of(args.data) if args.data is not None else (None, None)
    with working(f"autotuning {source.name}") as say, user_code(*user_of(source)):
        found = run(
            source.compiled,
            *(inputs or ()),
            space=space,
            metric=args.metric,
            target=args.target,
            options=options_of(args),
            at=None if args.at is None else parse_sizes(args.at),
            data=data,
            labels=labels,
            quality=metric_of(args.quality, "--quality"),
            method=args.method,
            max_drop=args.max_drop,
            power_limit=args.power_limit,
            draw=lambda specs: random_inputs(specs, args.scale),
            progress=say,
        )
    if found.best is not None:
        write_output(args.output, found.text(args.source))
    _print(args, source.name, found)
    if found.best is None:
        raise CliError(found.none_said)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises CliError for switches that do not fit each other."""
    if args.max_drop is not None and args.data is None:
        raise CliError("--max-drop is about accuracy, which is measured on --data: give some")
    if args.max_drop is not None and args.quality == "sqnr":
        raise CliError("--max-drop: the SQNR of the original is infinite: give --quality cosine or accuracy")
    if args.data is None and args.quality not in COMPARED:
        raise CliError(f"--quality {args.quality} is measured on --data: give some")
    if args.max_drop is not None and args.max_drop != args.max_drop:
        raise CliError("--max-drop nan: give a number")


def parse_space(texts: Sequence[str]) -> dict[str, list[str]]:
    """`batch=1,4,8` and so on: the values of each name. Raises CliError."""
    space: dict[str, list[str]] = {}
    for text in texts:
        match = re.fullmatch(r"\s*([^\W\d]\w*)\s*=(.*)", text, re.DOTALL)
        if match is None:
            raise CliError(f"cannot read --space {text}; write NAME=VALUE,VALUE as in batch=1,4,8 precision=f16,int8")
        values = [v.strip() for v in match[2].split(",")]
        if values == [""]:
            raise CliError(f"--space {text}: {match[1]} has no values")
        if "" in values:
            raise CliError(f"--space {text}: a value is empty")
        if match[1] in space:
            raise CliError(f"--space says {match[1]} twice: give all of its values at once")
        space[match[1]] = values
    return space


# -- output --------------------------------------------------------------------------------------------------


def _print(args: argparse.Namespace, name: str, found: Autotuned) -> None:
    use = None if found.best is None else _use(args)
    if args.json:
        head: dict[str, Any] = {"schema": "tilewright.autotune/1", "source": args.source}
        head["output"] = None if found.best is None else args.output
        print_json({**head, "use": use, **found.to_json()})
        return
    if args.output == "-":
        return
    axes = [*found.rows[0].chosen]
    header = ["", *axes, "us", "items/s", "uJ/item", "device bytes", "W"]
    header += [found.accuracy_metric] if found.accuracy_metric else []
    items = "one item" if found.batch is None else f"items along {found.batch}"
    title = f"{name}, {items} in a call; *: best {found.metric}, +: on the front"
    table(title, [*header, "remarks"], [_cells(row, found) for row in found.rows])
    if found.best is not None:
        best = found.best
        tell(f"best {found.metric}: {best.name}")
        tell(f"wrote {args.output}: use it with {use}")


def _cells(row: AutotunedRow, found: Autotuned) -> list[str]:
    mark = "*" if row is found.best else "+" if row.front else ""
    remarks = "; ".join(said for said in (row.problem, row.note) if said)
    measured = [] if not found.accuracy_metric else ["" if row.accuracy is None else f"{row.accuracy:.4g}"]
    if not row.figures:
        return [mark, *row.chosen.values(), *("-" for _ in range(5)), *measured, remarks]
    figures = row.figures
    shown = [
        f"{figures['latency']:,.1f}",
        f"{figures['throughput']:,.0f}",
        f"{figures['energy'] * 1e6:.4g}",
        f"{figures['memory']:,.0f}",
        f"{row.watts:.1f}",
    ]
    return [mark, *row.chosen.values(), *shown, *measured, remarks]


def _use(args: argparse.Namespace) -> str:
    """The switches by which other commands compile the best program."""
    said: list[str] = []
    for switch in ("shapes", "where", "inputs"):
        if (given := getattr(args, switch)) is not None:
            said += [f"--{switch}", given]
    if args.weights_as_arguments:
        said.append("--weights-as-arguments")
    return shlex.join([*said, "--config", args.output])
