"""`tilewright quantize`: calibrates a program, measures what it loses, and writes its configuration."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...api.sources import as_compile_error
from ...compression.front import SearchResult
from ...passes.errors import PassError
from ...passes.quantized.quantize import read_config
from ...passes.quantized.recipes import SUFFIX, recipe_of
from ...support.files import read_arrays
from ..build import inputs_of
from ..common import CliError, NothingJudged, print_json, tell, working
from ..outputs import all_or_none
from ..source import find_function, source_of, user_code

DEFAULT_MODE = "w8a8"
LABELS = "labels"
"""The array of a data file that is not an input."""


def quantize(args: argparse.Namespace) -> int:
    """Prints the table of products, or of the front of a search, and writes the configuration."""
    from ...quantization.quantize import quantize as run
    from ...quantization.search import MODES, search

    searches = _searches(args)
    _check_arguments(args, searches)
    source = source_of(args)
    inputs = inputs_of(args, source)
    if inputs is None:
        raise CliError(
            f"{args.source}: quantization looks at weights: give them with --inputs, or in {source.name}_inputs"
        )
    data, labels = data_of(args.data) if args.data is not None else (None, None)
    pins = parse_mode_pins(args.pin)
    metric = metric_of(args.metric)
    weights = None if args.weights is None else [w for w in args.weights.split(",") if w]
    common: dict[str, Any] = {"data": data, "labels": labels, "metric": metric, "method": args.method}
    common |= {"weights": weights, "target": args.target}
    drawn: SearchResult[Any] | None = None
    who = (None, None) if source.fn is None else (source.path, source.fn)
    with working(f"quantizing {source.name}") as say, user_code(*who):
        common["progress"] = say
        if searches:
            modes = _words(args.search) or MODES
            found = search(source.compiled, *inputs, modes=modes, max_drop=args.max_drop, pins=pins, **common)
            if found.best is None:
                raise CliError(
                    f"no configuration keeps {found.metric} within {args.max_drop} of {found.original:.4g}"
                )
            config, text = found.best.config, str(found)
            shown: dict[str, Any] = {"points": [_point(p) for p in found.points]}
            shown["sensitivity"] = [_sensitivity(row) for row in found.sensitivity]
            packed, drawn = found.best.packed, found
        else:
            with as_compile_error():
                wanted = read_config(args.quant_config or args.mode or DEFAULT_MODE)
            wanted = replace(wanted, pins={**pins, **wanted.pins})
            made = run(source.compiled, *inputs, config=wanted, recover=_words(args.recover), **common)
            if math.isnan(made.table.sqnr):
                raise NothingJudged(
                    f"{source.name}: its results have numbers that are infinite or NaN, so no error can be "
                    "measured and nothing is written: give smaller inputs, as with --scale 0.1"
                )
            drop = made.table.before - made.table.after
            if args.max_drop is not None and drop > args.max_drop:
                raise CliError(
                    f"{made.table.metric} drops by {drop:.4g}, more than {args.max_drop:g}: {made.table.summary}"
                )
            config, report = made.config, made.program.report()
            packed = made.packed
            text = f"{made.table}\n{report}"
            if report.packing_microseconds is not None:
                text += f"\npacking the weights, once: {report.packing_microseconds:,.1f} us"
            shown = {"table": asdict(made.table), "report": report.to_dict()}
    with all_or_none():
        if args.plot and drawn is not None:
            drawn.plot(args.plot)
        config.save(args.output)
    if args.json:
        shown["use"] = _use(args, packed)
        print_json({"source": args.source, "output": args.output, **shown})
    else:
        print(text)
        tell(f"wrote {args.output}: use it with {_use(args, packed)}")
    return 0


def _use(args: argparse.Namespace, packed: Sequence[str] | None) -> str:
    """The options by which other commands compile the program that was measured. packed: its packed weights."""
    said = ["--quant-config", args.output]
    if packed is not None:  # of none, constants are packed all the same
        said += ["--weights", ",".join(packed)]
    if args.weights_as_arguments:
        said.append("--weights-as-arguments")
    return shlex.join(said)


def _searches(args: argparse.Namespace) -> bool:
    """Whether modes are searched for: `--search` has some, or a drop or a plot asks for it and no mode is given."""
    wanted = args.max_drop is not None or args.plot is not None
    return bool(args.search) or (wanted and not (args.mode or args.quant_config))


def _check_arguments(args: argparse.Namespace, searches: bool) -> None:
    """Raises CliError for arguments that do not fit each other, or a search, before anything is computed."""
    if Path(args.output).suffix != SUFFIX:
        raise CliError(f"-o {args.output}: a configuration is a {SUFFIX} file")
    if args.max_drop is not None and args.max_drop != args.max_drop:
        raise CliError("--max-drop nan: give a number")
    if args.plot and not searches:
        raise CliError("--plot draws the front of a search: give --search or --max-drop, and no --mode")
    if args.max_drop is not None and not searches and args.metric == "sqnr":
        raise CliError(
            "--max-drop: the SQNR of the original is infinite: give --metric accuracy or cosine, or --search"
        )
    if searches and (args.recover or args.quant_config):
        given = "--recover" if args.recover else "--quant-config"
        raise CliError(f"{given} is not for a search, which chooses the configuration: leave out one of them")


def _words(text: str) -> list[str]:
    return [w for w in text.split(",") if w]


def _point(point: Any) -> dict[str, Any]:
    return {
        "metric": point.metric,
        "drop": point.drop,
        "microseconds": point.microseconds,
        "weight_bytes": point.weight_bytes,
        "energy_joules": point.energy_joules,
        "products": point.counts,
    }


def _sensitivity(row: Any) -> dict[str, Any]:
    return {
        "product": row.part,
        "mode": row.change,
        "metric": row.metric,
        "drop": row.drop,
        "weight_bytes": row.weight_bytes,
    }


def parse_mode_pins(texts: Sequence[str]) -> dict[str, str]:
    """Modes by patterns of products or kernels: `vision.*=i8,text.*=f16`. Raises CliError."""
    pins: dict[str, str] = {}
    for part in (p.strip() for text in texts for p in text.split(",") if p.strip()):
        pattern, equals, mode = part.rpartition("=")
        mode = mode.strip()
        if not equals or not pattern:
            raise CliError(f"--pin {part}: write PATTERN=MODE, as in \"params['head']*=f16\"")
        try:
            recipe_of(mode)
        except PassError as error:
            raise CliError(f"--pin {part}: {error}") from None
        pins[pattern.strip()] = mode
    return pins


def metric_of(text: str, switch: str = "--metric") -> Any:
    """A metric by its name, or a function FILE.py:FN of results and labels. switch: what says it."""
    if ":" not in text and not text.endswith(".py"):
        return text
    found = find_function(text, switch).fn
    assert found is not None
    return found


def data_of(text: str, switch: str = "--data") -> tuple[list[Any], list[Any] | None]:
    """Batches and their labels: from an .npz file whose arrays are the inputs, each with the batches along a first
    dimension, and `labels`; or from a function FILE.py:FN or MODULE:FN without arguments that gives batches, or
    (batches, labels). switch: what says it. Raises CliError."""
    if text.endswith(".py") or (":" in text and not text.endswith(".npz")):
        spec = find_function(text, switch)
        assert spec.fn is not None
        with user_code(spec.path, spec.fn):
            made = spec.fn()
            pair = isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], list)
            batches, labels = made if pair else (made, None)
            for what, found in (("batches", batches), ("labels", labels if pair else [])):
                if not isinstance(found, Iterable):
                    raise CliError(
                        f"{text}: gives no list of {what}, but a value of type {type(found).__name__}"
                    )
            return list(batches), None if labels is None else list(labels)
    try:
        arrays: Mapping[str, np.ndarray] = read_arrays(text)
    except OSError as error:
        raise CliError(f"{text or repr(text)}: {error.strerror or error}") from None
    except ValueError as error:
        raise CliError(f"{text}: {error}") from None
    inputs = [a for name, a in arrays.items() if name != LABELS]
    if not inputs or any(a.ndim == 0 for a in inputs):
        raise CliError(f"{text}: has no arrays with batches along a first dimension")
    counts = {len(a) for a in arrays.values()}
    if len(counts) != 1:
        raise CliError(
            f"{text}: its arrays have {', '.join(map(str, sorted(counts)))} batches: they must be as many"
        )
    batches = list(_rows(inputs))
    return batches, list(arrays[LABELS]) if LABELS in arrays else None


def _rows(arrays: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, ...]]:
    for i in range(len(arrays[0])):
        yield tuple(a[i] for a in arrays)
