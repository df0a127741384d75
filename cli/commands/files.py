"""`tilewright inspect` and `tilewright verify-file`: what model files say of themselves, and whether that is so."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ..common import OneLineParser, print_json, table, tell, working
from ..help import texts

if TYPE_CHECKING:
    from ...modelfile.manifest import EntryFacts


def inspect(args: argparse.Namespace) -> int:
    """Prints what is in a model file, by its manifest alone."""
    from ...api.files.reading import ModelFile
    from ...modelfile.signing import MOST_SIGNATURE, SIGNATURE, Signature

    file = ModelFile(args.file)
    manifest, places = file.manifest, file.archive.places
    signed = SIGNATURE in places
    signature = Signature.of_bytes(file.archive.read(SIGNATURE, MOST_SIGNATURE)) if signed else None
    if args.json:
        said = json.loads(manifest.to_bytes())
        key = None if signature is None else signature.key
        about = {"schema": "tilewright.inspect/1", "file": args.file, "bytes": file.archive.bytes, "key": key}
        print_json({**about, **said})
        return 0
    weights = sum(facts.size for facts in manifest.members.values() if facts.root)
    by = "not signed" if signature is None else f"signed by {signature.key[:16]} ({signature.algorithm})"
    made = ", ".join(f"{name} {version}" for name, version in sorted(manifest.made_by.items()))
    head = f"{args.file}: {file.archive.bytes:,} bytes, {weights:,} of them weights; {by}; release {manifest.sequence}"
    rows = [_row(name, entry) for name, entry in sorted(manifest.entries.items())]
    table(head, ["function", "takes", "chips", "graph level"], rows)
    tell(f"made by {made}")
    for name, value in (("licence", manifest.licence), *sorted(manifest.metadata.items())):
        if value:
            tell(f"{name}: {value}")
    return 0


def _row(name: str, entry: EntryFacts) -> list[str]:
    inputs: list[Any] = list(entry.signature.get("inputs", ()))
    takes = [f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in inputs[:MOST_INPUTS]]
    more = [f"and {len(inputs) - MOST_INPUTS} more"] if len(inputs) > MOST_INPUTS else []
    return [name, " ".join([*takes, *more]), ", ".join(sorted(entry.npu)), "yes" if entry.graph else "no"]


MOST_INPUTS = 4
"""Inputs of a function that are shown."""


def verify_file(args: argparse.Namespace) -> int:
    """Reads all of a model file, and checks who has signed it where that is asked."""
    from ...api.files.reading import ModelFile

    file = ModelFile(args.file)
    key = file.trusted_by(args.require_signature) if args.require_signature else None
    file.no_older_than(args.least_sequence)
    with working(f"reading {args.file}"):
        file.check_whole()
    if args.json:
        print_json({"schema": "tilewright.verify_file/1", "file": args.file, "bytes": file.archive.bytes, "key": key})
        return 0
    by = "" if key is None else f", signed by {key[:16]}, which is trusted"
    tell(f"{args.file}: {file.archive.bytes:,} bytes are those of the manifest{by}")
    return 0


def add_files(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """Adds these commands to the grammar."""

    def command(name: str, help: str) -> OneLineParser:
        made = commands.add_parser(name, help=help, description=help, **texts(name))
        made.add_argument("file", metavar="FILE.twm")
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
