"""`tilewright compile -o model.twm` and `tilewright update`: model files that are written."""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...api.files.names import ENTRY, SUFFIX
from ..common import CliError, print_json, tell, working
from ..secret import encrypting

if TYPE_CHECKING:
    from ...api.program import Program

OPTIONS = ("sign", "sequence", "encrypt_key", "encrypt_passphrase", "entry", "versions", "licence", "metadata",
           "stablehlo", "portable")  # fmt: skip
"""Options of `compile` that are for model files alone."""


def add_options(emit: argparse.ArgumentParser) -> None:
    """Adds these options to the grammar of `compile`."""
    emit.add_argument(
        "--entry",
        action="append",
        metavar="NAME=SOURCE,...",
        help="of a model file: functions by name, in the place of SOURCE: sources, or functions of that file",
    )
    emit.add_argument(
        "--versions", action="append", metavar="b=8,s=64", help="of a model file: open sizes that it has programs for"
    )
    emit.add_argument(
        "--stablehlo",
        action=argparse.BooleanOptionalAction,
        help="of a model file: whether it has functions as artifacts of StableHLO, too (default: those with at most "
        "64 KiB of constants)",
    )
    emit.add_argument(
        "--no-portable",
        dest="portable",
        action="store_const",
        const=False,
        help="of a model file: that it is for its chips alone, and has nothing that others are compiled from",
    )
    emit.add_argument("--licence", metavar="TEXT", help="what a model file says of its licence")
    emit.add_argument("--metadata", action="append", metavar="NAME=TEXT", help="what else a model file says of itself")
    emit.add_argument("--sign", metavar="KEY.pem", help="the private key that signs a model file")
    emit.add_argument("--sequence", type=int, metavar="N", help="the number of a model file's release")
    emit.add_argument("--encrypt-key", metavar="FILE", help="the key that seals a model file: 32 bytes, or hexadecimal")
    emit.add_argument(
        "--encrypt-passphrase", metavar="FILE", help="or a passphrase that does: a file, env:VARIABLE, or ask"
    )


def save(args: argparse.Namespace) -> int:
    """Writes programs to a model file. Raises CliError."""
    from ... import save as save_programs

    if args.emit != "npu":
        raise CliError(f"--emit {args.emit}: a {SUFFIX} file has the levels that it needs: leave --emit out")
    secret = encrypting(args)
    chips: list[str] = [name.strip() for name in args.target.split(",")] if args.target else []
    chip, others = (chips[0] if chips else None), chips[1:]
    programs = {name: _program(args, source, chip) for name, source in _entries(args)}
    with working(f"writing {args.output}"):
        save_programs(
            programs,
            args.output,
            targets=others,
            licence=args.licence or "",
            metadata=_metadata(args),
            sequence=args.sequence or 0,
            sign=args.sign,
            encrypt=secret,
            stablehlo=args.stablehlo,
            portable=args.portable is None,
        )
    if args.json:
        targets = [*dict.fromkeys([next(iter(programs.values())).target, *others])]
        said = {"source": args.source, "target": ",".join(targets), "level": args.emit, "output": args.output}
        print_json({**said, "entries": [*programs]})
    return 0


def _program(args: argparse.Namespace, source: str, chip: str | None) -> Program:
    """The program of a function, with the versions that it is to have."""
    from ...api.sizes.dynamic import DynamicProgram
    from ..build import compiled, parse_sizes
    from ..source import source_of

    own = copy.copy(args)
    own.source, own.target = source, chip
    program, _ = compiled(own, source_of(own))
    if not isinstance(program, DynamicProgram):
        if args.versions or args.at:
            raise CliError(f"{source} has no open sizes, which --{'versions' if args.versions else 'at'} is for")
        return program
    if args.at is not None:
        return program.at(parse_sizes(args.at))
    for sizes in args.versions or ():
        program.at(parse_sizes(sizes))
    return program


def _entries(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The functions of the file: their names, and their sources. Raises CliError."""
    if args.entry is None:
        yield ENTRY, args.source
        return
    if args.shapes is not None or args.inputs is not None:
        raise CliError("--entry: functions take the inputs that their sources say: leave --shapes and --inputs out")
    seen: set[str] = set()
    for part in (part for text in args.entry for part in text.split(",")):
        name, equals, source = (word.strip() for word in part.partition("="))
        if not equals or not source or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*", name):
            raise CliError(f"--entry {part}: write NAME=SOURCE, as in prefill=model.py:prefill")
        if name in seen:
            raise CliError(f"--entry: there are two functions {name}")
        seen.add(name)
        file = args.source.rpartition(":")[0] or args.source
        yield name, f"{file}:{source}" if source.isidentifier() else source


def _metadata(args: argparse.Namespace) -> dict[str, str]:
    """What the file says of itself. Raises CliError."""
    found: dict[str, str] = {}
    for text in args.metadata or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CliError(f"--metadata {text}: write NAME=TEXT")
        found[name] = value
    return found


def add_update(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """The grammar of `update`."""
    update = command("update", "write a model file again with other values of weights")
    update.add_argument("-o", "--output", required=True, metavar="FILE.twm", help="the file to write")
    update.add_argument(
        "--values", required=True, metavar="FILE.npz", help="new values, by the paths of arguments: params['w']"
    )
    update.add_argument("--sign", metavar="KEY.pem", help="the private key that signs the new file")
    update.add_argument(
        "--require-signature", action="append", metavar="KEYS.pem", help="public keys, one of which signed the old file"
    )
    update.add_argument("--sequence", type=int, metavar="N", help="the number of its release (default one more)")


def update_file(args: argparse.Namespace) -> int:
    """Writes a model file again with other values of weights."""
    from ... import update
    from ..inputs import read_arrays

    values = read_arrays(args.values)
    with working(f"writing {args.output}"):
        update(
            args.file,
            args.output,
            values,
            sign=args.sign,
            trusted=args.require_signature or (),
            sequence=args.sequence,
        )
    if args.json:
        print_json({"schema": "tilewright.update/1", "file": args.file, "output": args.output, "values": [*values]})
    else:
        tell(f"wrote {args.output}")
    return 0
