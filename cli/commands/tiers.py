"""`tilewright tiers`: from one source a model file for each tier, and a table of what each costs and keeps.

`--json` gives this object; keys stay, new ones may come:

    {"schema": "tilewright.tiers/1", "source": str, "spec": str, "folder": str, "accuracy_metric": str,
     "measured_on": str,
     "tiers": [{"name": str, "chosen": {choice: value}, "problem": str, "path": str | null, "target": str | null,
                "items": int | null, "accuracy": float | null, "change": float | null,
                "microseconds": float | null, "microseconds_per_sample": float | null,
                "joules": float | null, "joules_per_sample": float | null,
                "file_bytes": int | null, "weight_bytes": int | null, "device_bytes": int | null,
                "check": str, "note": str}]}
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..common import CliError, OneLineParser, complain, print_json, table, working
from ..help import texts

if TYPE_CHECKING:
    from ...tiers import Pruning, Tier, Tiers


def tiers(args: argparse.Namespace) -> int:
    """Writes a model file for each tier, and prints a line for each; 1 where one cannot be made."""
    from ...tiers import build, read_spec
    from ..build import user_of
    from ..inputs import example_inputs, random_inputs
    from ..source import find_source, user_code
    from .quantize import data_of, metric_of

    spec = read_spec(args.spec)
    source = find_source(args.source, args.weights_as_arguments)
    inputs = example_inputs(source, args.shapes, args.inputs, True, args.where, args.scale)
    data, labels, calibration = None, None, None
    if "batches" in spec.data:
        data, labels = data_of(spec.data["batches"], "data.batches")
    if "calibration" in spec.data:
        calibration, _ = data_of(spec.data["calibration"], "data.calibration")
    accuracy = metric_of(spec.data["accuracy"], "data.accuracy") if "accuracy" in spec.data else None
    pruning = _pruning(spec.pruning) if spec.pruning else None
    with working(f"building tiers of {source.name}") as say, user_code(*user_of(source)):
        found = build(
            source.compiled,
            *(inputs or ()),
            tiers=spec.tiers,
            folder=args.output,
            data=data,
            labels=labels,
            calibration=calibration,
            accuracy=accuracy,
            method=spec.data.get("method", "auto"),
            pruning=pruning,
            check=args.check,
            draw=lambda specs: random_inputs(specs, args.scale),
            progress=say,
        )
    _print(args, source.name, found)
    for tier in found.tiers:
        if not tier.made:
            complain("tilewright", f"tier {tier.name}: {tier.problem}")
    return 0 if found.ok else CliError.code


def _pruning(said: Mapping[str, Any]) -> Pruning:
    """What may be removed, as the functions that a file names say. Raises CliError."""
    from ...pruning import Units
    from ...tiers import Pruning

    if "units" not in said:
        raise CliError("pruning.units is missing: name a function that gives what may be removed, FILE.py:FN")
    units = _called(said["units"], "pruning.units")()
    if not isinstance(units, Mapping) or not all(isinstance(kind, Units) for kind in units.values()):
        raise CliError(f"{said['units']}: pruning.units gives a dict of tw.pruning's Coupled or Blocks by names")
    retrain = _called(said["retrain"], "pruning.retrain") if "retrain" in said else None
    return Pruning(units, retrain, said.get("multiple", Pruning.multiple))


def _called(text: str, what: str) -> Callable[..., Any]:
    """A function of the user's, whose exceptions name its lines."""
    from ..source import find_function, user_code

    spec = find_function(text, what)
    assert spec.fn is not None
    fn = spec.fn

    def run(*args: Any) -> Any:
        with user_code(spec.path, fn):
            return fn(*args)

    return run


# -- output --------------------------------------------------------------------------------------------------


def _print(args: argparse.Namespace, name: str, found: Tiers) -> None:
    if args.json:
        head = {"schema": "tilewright.tiers/1", "source": args.source, "spec": args.spec, "folder": args.output}
        print_json({**head, **found.to_json()})
        return
    table(f"{name}, {found.accuracy_metric} on {found.where}", *table_of(found))


def table_of(found: Tiers) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of the table of tiers."""
    axes = list(dict.fromkeys(axis for tier in found.tiers for axis in tier.chosen))
    head = ["tier", *axes, found.accuracy_metric, "change", "us", "us/sample", "file bytes", "weight bytes"]
    head += ["device bytes", "uJ", "uJ/sample", "verify", "remarks"]
    return head, [_cells(tier, axes) for tier in found.tiers]


def _cells(tier: Tier, axes: list[str]) -> list[str]:
    said = [tier.name, *(tier.chosen.get(axis, "") for axis in axes)]
    if not tier.made:
        return [*said, *("-" for _ in range(10)), "not made"]
    each = tier.to_json()
    figures = [
        "" if tier.accuracy is None else f"{tier.accuracy:.4g}",
        "" if tier.change is None else f"{tier.change:+.3g}",
        f"{tier.microseconds:,.1f}",
        f"{each['microseconds_per_sample']:,.3g}",
        f"{tier.file_bytes:,}",
        f"{tier.weight_bytes:,}",
        f"{tier.device_bytes:,}",
        f"{each['joules'] * 1e6:.4g}",
        f"{each['joules_per_sample'] * 1e6:.4g}",
    ]
    return [*said, *figures, tier.check, tier.note]


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """Adds the command to the grammar."""
    help = "write a model file of a source for each tier, from the data centre to the device, and what each costs"
    made = commands.add_parser("tiers", help=help, description=help, **texts("tiers"))
    made.add_argument("source", metavar="SOURCE", help="as for other commands, with the batch open")
    made.add_argument("--spec", required=True, metavar="TIERS.toml", help="what tiers there are (docs/tiers.md)")
    made.add_argument("-o", "--output", default="tiers", metavar="FOLDER", help="where files go (default tiers)")
    made.add_argument(
        "--check",
        choices=("quick", "full", "off"),
        default="quick",
        help="compare each program with its source, and its file with it (default), after each pass, too, or nothing",
    )
    made.add_argument("--shapes", metavar="S", help="inputs of these types: f32[b,128],f32[128,64]")
    made.add_argument("--where", metavar="C", help="what holds of the symbols in --shapes")
    made.add_argument("--inputs", metavar="NPZ", help="inputs from an .npz file, in its order")
    made.add_argument("--scale", type=float, default=1.0, metavar="X", help="what random floats are multiplied by")
    made.add_argument(
        "--weights-as-arguments", action="store_true", help="take the initializers of an .onnx model as an argument"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--quiet", action="store_true", help="do not say on stderr what takes its time")
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
