"""How verifications are shown, as tables and as JSON, and where their reproducers go."""

from __future__ import annotations

import argparse
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.precisions import ORIGIN
from ..support.winograd import OFF
from .common import finite, table, tell
from .outputs import all_or_none, write_output
from .switches import left_out

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ..api.program import FlagCost
    from ..verification.results import Reproducer, Verification


def verification_dict(found: Verification) -> dict[str, Any]:
    """Plain values for JSON."""
    result: dict[str, Any] = {
        "ok": found.ok,
        "reference": found.reference,
        "tolerance": finite(found.tolerance),
        "bitwise": found.bitwise,
        "open_share": found.open_share,
        "verdict": found.verdict,
        "hazards": found.hazards,
        "rounded": found.rounded or None,
        "quantization": None if found.quantization is None else found.quantization.to_dict(),
        "levels": {level: finite(error) for level, error in found.levels.items()},
        "passes": [
            {
                "pass": c.stage,
                "level": c.level,
                "memory": c.memory,
                "ok": c.ok,
                "error": finite(c.error),
                "tolerance": finite(c.tolerance),
                "error_over_tolerance": finite(c.ratio),
                "isolated_over_tolerance": None if c.isolated is None else finite(c.isolated),
                "values": c.compared,
                "exact": c.exact,
                "numbers": c.numbers,
                "open": c.open,
                "numbers_alone": c.numbers_alone,
                "open_alone": c.open_alone,
                "problem": c.note,
            }
            for c in found.checks
        ],
    }
    if found.culprit is not None:
        result["culprit"] = found.culprit.to_dict()
    return result


def print_verification(found: Verification) -> None:
    """A row for each pass."""
    from ..verification.results import precise_percent

    rows = []
    for c in found.checks:
        isolated = (
            "" if c.isolated is None else ("exact" if c.exact and c.isolated == 0 else f"{c.isolated:.2g}")
        )
        rows.append(
            [
                c.stage,
                f"npu {c.memory}" if c.level == "npu" else c.level,
                f"{c.error:.3g}",
                f"{c.tolerance:.2g}",
                isolated,
                *([precise_percent(c.open_share)] if found.open_share else []),
                c.word,
            ]
        )
    title = (
        f"largest error against {found.reference}, relative to the largest output; "
        "alone: worst op on the inputs it had before, over its tolerance"
    )
    opened = ["open"] if found.open_share else []
    table(title, ["pass", "level", "error", "tolerance", "alone", *opened, ""], rows)
    if found.rounded:
        print(found.roundings())
    if found.open_share:
        print(found.openness())
    if found.quantization is not None:
        print("\n".join(found.quantization.sentences()))
    if {"npu typed", "npu bytes"} <= found.levels.keys():
        apart = "agree, but for the order in which products are added up"
        agree = apart if found.sums_apart else "agree bit for bit"
        print(f"both memory modes {agree if found.bitwise else 'DIFFER'}")


def print_culprit(found: Verification, files: dict[str, Any] | None) -> None:
    """What bisection found, one fact a line."""
    if found.culprit is None:
        return
    for line in found.culprit.sentences():
        print(line)
    if files is not None:
        count = f"{files['ops']} op{'s' if files['ops'] != 1 else ''}"
        tell(f"reproducer: {files['file']} ({count}), right before the pass: {files['before']}")
        tell(f"replay: {files['command']}")


def write_reproducer(args: argparse.Namespace, found: Reproducer, stage: str) -> dict[str, Any]:
    """Writes a reproducer's files, each in one step; gives their names and the command that replays it."""
    target = Path(args.output)
    inputs = target.with_suffix(".npz")
    before = target.with_suffix(f".before-{stage}.mlir")
    with all_or_none():
        write_output(inputs, _packed(found.inputs))
        write_output(before, found.before.rstrip() + "\n")
        write_output(target, found.source.rstrip() + "\n")
    command = ["tilewright", "verify", str(target)]
    if found.inputs:
        command += ["--inputs", str(inputs)]
    command += ["--target", args.target]
    if args.stages is not None:
        command += ["--stages", args.stages]
    if args.precision != ORIGIN:
        command += ["--precision", args.precision]
    if without := left_out(args):
        command += ["--without", ",".join(without)]
    if args.strips is not None:
        command += ["--strips", shlex.quote(args.strips)]
    if args.winograd != OFF:
        command += ["--winograd", shlex.quote(args.winograd)]
    if args.memory_limit is not None:
        command += ["--memory-limit", args.memory_limit]
    return {
        "file": str(target),
        "before": str(before),
        "inputs": str(inputs),
        "ops": found.ops,
        "command": " ".join(command),
    }


def write_program(args: argparse.Namespace, module: ModuleOp, inputs: Sequence[Any]) -> dict[str, Any]:
    """Writes a module and its inputs beside it."""
    from ..verification.bisect import count_ops
    from ..verification.tags import values_of

    for value in values_of(module):
        value.name_hint = None
    target = Path(args.output)
    arrays = target.with_suffix(".npz")
    with all_or_none():
        write_output(arrays, _packed(inputs))
        write_output(target, str(module).rstrip() + "\n")
    return {"file": str(target), "inputs": str(arrays), "ops": count_ops(module)}


def _packed(arrays: Sequence[Any]) -> bytes:
    """Arrays as the bytes of an .npz file."""
    import numpy as np

    packed = io.BytesIO()
    np.savez(packed, *arrays)
    return packed.getvalue()


def print_flags(flags: Sequence[FlagCost]) -> None:
    """The flags that a program does not need."""
    if not flags:
        print("every flag is needed")
        return
    rows = [[f.kernel, f.flag, str(f.cycles), f.source or ""] for f in flags]
    table("flags that are not needed, each alone", ["kernel", "flag", "cycles", "source"], rows)
