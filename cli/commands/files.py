"""`tilewright inspect` and `tilewright verify-file`: what model files say of themselves, and whether that is so."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ..common import OneLineParser, print_json, table, tell, working
from ..help import texts
from ..secret import add_secret
from .saved import add_update

if TYPE_CHECKING:
    from ...modelfile.manifest import EntryFacts


def inspect(args: argparse.Namespace) -> int:
    """Prints what is in a model file, by its manifest alone; of a sealed one without its key what it says outside."""
    from ...api.files.opening import OuterFile
    from ...api.files.reading import ModelFile
    from ...modelfile.sealing import CIPHER
    from ...modelfile.signing import signature_in

    outer = OuterFile(args.file)
    file = None if outer.closed else ModelFile(args.file)
    manifest, seal = None if file is None else file.manifest, outer.seal
    signature = signature_in(outer.outer)
    if args.json:
        about = {"schema": "tilewright.inspect/1", "file": args.file, "bytes": outer.outer.bytes}
        about["key"] = None if signature is None else signature.key
        about["sealed"] = None if seal is None else seal.to_json()
        print_json({**about, **({} if manifest is None else json.loads(manifest.to_bytes()))})
        return 0
    by = "not signed" if signature is None else f"signed by {signature.key[:16]} ({signature.algorithm})"
    rest = f"{by}{'' if seal is None else f'; sealed with a {seal.noun} ({CIPHER})'}"
    if manifest is None:
        assert seal is not None
        head = f"{args.file}: {outer.outer.bytes:,} bytes; {rest}; release {seal.sequence}"
        table(head, ["member", "bytes"], [[str(i), f"{facts.size:,}"] for i, facts in enumerate(seal.members)])
        return 0
    weights = sum(facts.size for facts in manifest.members.values() if facts.root)
    made = ", ".join(f"{name} {version}" for name, version in sorted(manifest.made_by.items()))
    head = f"{args.file}: {outer.outer.bytes:,} bytes, {weights:,} of them weights; {rest}; release {manifest.sequence}"
    rows = [_row(name, entry) for name, entry in sorted(manifest.entries.items())]
    table(head, ["function", "takes", "chips", "portable"], rows)
    tell(f"made by {made}")
    for name, value in (("licence", manifest.licence), *sorted(manifest.metadata.items())):
        if value:
            tell("".join(c if c.isprintable() else " " for c in f"{name}: {value}"))
    return 0


def _row(name: str, entry: EntryFacts) -> list[str]:
    inputs = entry.inputs
    takes = [f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in inputs[:MOST_INPUTS]]
    more = [f"and {len(inputs) - MOST_INPUTS} more"] if len(inputs) > MOST_INPUTS else []
    forms = {str(row.get("kind")) for row in entry.open.get("codes", ())}
    forms |= {form for form, member in (("graph", entry.graph), ("stablehlo", entry.stablehlo)) if member}
    return [name, " ".join([*takes, *more]), ", ".join(entry.chips), ", ".join(sorted(forms)) or "no"]


MOST_INPUTS = 4
"""Inputs of a function that are shown."""


def verify_file(args: argparse.Namespace) -> int:
    """Reads all of a model file, of a sealed one without its key as it lies there, and checks who has signed it where
    that is asked."""
    from ...api.files.opening import OuterFile
    from ...api.files.reading import ModelFile

    outer = OuterFile(args.file)
    file = outer if outer.closed else ModelFile(args.file)
    key = file.trusted_by(args.require_signature) if args.require_signature else None
    file.no_older_than(args.least_sequence)
    with working(f"reading {args.file}"):
        file.check_whole()
    if args.json:
        about = {"schema": "tilewright.verify_file/1", "file": args.file, "bytes": outer.outer.bytes}
        print_json({**about, "key": key, "inside": not outer.closed})
        return 0
    by = "" if key is None else f", signed by {key[:16]}, which is trusted"
    inside = "; what is sealed in it was not looked at: that needs its key" if outer.closed else ""
    tell(f"{args.file}: {outer.outer.bytes:,} bytes are those of the manifest{by}{inside}")
    return 0


def add_files(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """Adds these commands to the grammar."""

    def command(name: str, help: str) -> OneLineParser:
        made = commands.add_parser(name, help=help, description=help, **texts(name))
        made.add_argument("file", metavar="FILE.twm")
        add_secret(made)
        made.add_argument("--json", action="store_true", help="print one JSON object")
        made.add_argument("--debug", action="store_true", help="show the traceback of an error")
        return made

    command("inspect", "say what is in a model file")
    verify = command("verify-file", "read all of a model file, and check that nothing is damaged")
    verify.add_argument(
        "--require-signature", action="append", metavar="KEYS.pem", help="public keys, one of which has signed it"
    )
    verify.add_argument(
        "--least-sequence", type=int, default=0, metavar="N", help="the earliest release that is taken"
    )
    add_update(command)
