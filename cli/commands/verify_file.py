"""`tilewright verify model.twm --against SOURCE`: whether a model file computes what its source does."""

from __future__ import annotations

import argparse
import re
from typing import Any

from ...api.files.names import named_file
from ...api.options import Options
from ..build import options_of, user_of
from ..common import CliError, NothingJudged, finite, print_json, tell, working
from ..inputs import check_takes, example_inputs, random_inputs
from ..output import print_verification, verification_dict
from ..source import SourceSpec, find_function, find_source, user_code

_OF_THE_COMPILER = ("bisect", "flags", "stages", "at")
"""Switches that are about what is compiled here."""


def verify_against(args: argparse.Namespace) -> int:
    """Compares each level of a file with its source, on the same inputs."""
    from ...api.files.against import verify_file

    named = named_file(args.source)
    assert named is not None
    given = next((name for name in _OF_THE_COMPILER if getattr(args, name)), None)
    if given is not None or options_of(args) != Options():
        what = "options of the compiler" if given is None else f"--{given}"
        raise CliError(f"{args.source}: --against compares a model file as it is: take {what} away")
    source = _source(args.against)
    inputs = _inputs(args, source)
    if inputs:
        check_takes(source, inputs)
    with working(f"verifying {args.source}") as say, user_code(*user_of(source)):
        found = verify_file(
            named[0],
            source.compiled,
            *inputs,
            target=args.target,
            entry=named[1],
            min_sqnr=args.min_sqnr,
            draw=lambda specs: random_inputs(specs, args.scale),
            progress=lambda what, done, steps: say(f"verifying {args.source}: {what}", done, steps),
        )
    made = found.verification
    if args.json:
        said = {"source": args.source, "target": made.target, **verification_dict(made)}
        print_json({**said, "sqnr": finite(found.sqnr), "first_difference": found.first or None})
    else:
        print_verification(made)
        if found.sqnr is not None:
            tell(f"SQNR of the file against {made.reference}: {found.sqnr:.1f} dB")
        if found.first:
            tell(found.first)
    if not found.ok:
        return CliError.code
    return 0 if made.judged or args.min_sqnr is not None else NothingJudged.code


def _source(text: str) -> SourceSpec:
    """What a file is compared with: a function of Python, or another file. Raises CliError."""
    if re.search(r"\.py(:|$)", text) or re.fullmatch(r"[A-Za-z_][\w.]*:\w+", text):
        return find_function(text)
    return find_source(text)


def _inputs(args: argparse.Namespace, source: SourceSpec) -> list[Any]:
    """Arguments of the source: those that the command line says for the file, or the source's own; none for those that
    follow from the file."""
    if args.shapes is not None or args.inputs is not None:
        file = find_source(args.source)
        return example_inputs(file, args.shapes, args.inputs, True, args.where, args.scale) or []
    if hasattr(source.module, f"{source.name}_inputs"):
        return example_inputs(source, None, None, True, None, args.scale) or []
    return []
