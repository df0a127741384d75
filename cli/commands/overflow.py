"""`tilewright explain-overflow`: why a kernel does not fit on chip, and the smallest change after which it does."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ...machine import DEFAULT_TARGET, Machine
from ...support.files import read_plain
from ..common import STDIN, CliError, OneLineParser, print_json, read_stdin
from ..help import texts

COMMAND = "explain-overflow"


def add_parser(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    """The command's grammar."""
    text = "why a kernel in the text of Triton-Ascend's adapter overflows ub, l1 or l0c, and what would fit"
    overflow = commands.add_parser(COMMAND, help=text, description=text, **texts(COMMAND))
    overflow.add_argument(
        "table", metavar="FILE.mlir", help="tensors, linalg and copies, before there are addresses; - is stdin"
    )
    overflow.add_argument(
        "--target", default=DEFAULT_TARGET, metavar="CHIP", help=f"chip or file (default {DEFAULT_TARGET})"
    )
    overflow.add_argument("--json", action="store_true", help="print one JSON object")
    overflow.add_argument("--debug", action="store_true", help="show the traceback of an error")


def explain_overflow(args: argparse.Namespace) -> int:
    """Prints what each kernel of a file needs on chip; 1 where one does not fit."""
    from xdsl.utils.exceptions import ParseError

    from ...dialects.text import PlacedError, one_line
    from ...footprint import FootprintError, overflows, read

    if args.table != STDIN and not args.table.endswith(".mlir"):
        raise CliError(f"{args.table}: explain-overflow reads an .mlir text of Triton-Ascend's adapter, no program")
    name = "<stdin>" if args.table == STDIN else args.table
    data = read_stdin() if args.table == STDIN else read_plain(args.table)
    try:
        found = overflows(read(data.decode(), name), Machine.load(args.target))
    except UnicodeDecodeError:
        raise CliError(f"{name}: no MLIR: it is not UTF-8") from None
    except PlacedError as error:
        raise CliError(str(error)) from None
    except ParseError as error:
        raise CliError(f"{error.span.get_location()}: {one_line(error.msg)}") from None
    except FootprintError as error:
        raise CliError(f"{name}: {error}") from None
    if args.json:
        kernels = [{**asdict(each), "fits": each.fits} for each in found]
        print_json({"schema": f"tilewright.{COMMAND}/1", "file": args.table, "kernels": kernels})
    else:
        print("\n\n".join(map(str, found)))
    return 0 if all(each.fits for each in found) else 1
