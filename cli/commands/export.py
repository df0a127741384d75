"""`tilewright export`: the kernels of a program as text of another compiler's IR."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common import CliError, os_message, print_json, table, working
from ..outputs import all_or_none, write_output

if TYPE_CHECKING:
    from ...api.hivm import HivmExport
    from ...backends.hivm.checking import KernelCheck

SUFFIX = ".hivm.mlir"


def add_parser(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """The command's grammar."""
    export = command("export", "write the kernels as HIVM, the IR of the vendor's compiler")
    export.add_argument(
        "--hivm",
        metavar="DIR",
        required=True,
        help="the folder to write to: a file for each kernel, host.c and README.md",
    )
    export.add_argument(
        "--check",
        action="store_true",
        help="run the vendor's compiler on the kernels as far as CANN; exit code 1 where it changes or refuses one",
    )
    export.add_argument(
        "--partial", action="store_true", help="write the kernels that HIVM can say, and list the others"
    )


def export(args: argparse.Namespace) -> int:
    """Writes the kernels of a program, all of them or none unless some may be left out."""
    from ...api.hivm import check_module, export_module
    from ...backends.hivm.stub import HOST, README, host_program, readme
    from ...backends.hivm.tools import ToolError, VendorTools
    from ..build import build

    args.hivm_forms = True
    try:
        tools = VendorTools.find() if args.check else None
    except ToolError as error:
        raise CliError(str(error)) from None
    source, program, _ = build(args)
    with working(f"exporting {source.name}"):
        found = export_module(program.module())
    if found.refused and not args.partial:
        why = next(iter(found.refused.values()))
        more = (
            f" (and {len(found.refused) - 1} kernels more: --partial leaves them out)"
            if len(found.refused) > 1
            else ""
        )
        raise CliError(f"{why}{more}")
    folder = Path(args.hivm)
    kernels = list(found.kernels.values())
    with _folder(folder), all_or_none():
        for kernel in kernels:
            write_output(folder / f"{kernel.name}{SUFFIX}", kernel.text)
        write_output(folder / HOST, host_program(kernels))
        write_output(folder / README, readme(kernels, source.name))
    checks: list[KernelCheck] = []
    if tools is not None:
        with working(f"checking {source.name}"):
            checks = list(check_module(program.module(), found, tools))
    if args.json:
        print_json(_to_dict(args, program.target, found, checks if tools is not None else None))
    else:
        _print(args, found, checks)
    return 0 if all(check.ok for check in checks) else CliError.code


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """A folder, made if it is not there, and gone again where what is written into it fails. Raises CliError."""
    made = not path.exists()
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise CliError(os_message(error)) from None
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


def _print(args: argparse.Namespace, found: HivmExport, checks: list[KernelCheck]) -> None:
    count = len(found.kernels)
    print(f"wrote {count} kernel{'s' if count != 1 else ''}, host.c and README.md to {args.hivm}")
    for kernel in found.kernels.values():
        for note in kernel.notes:
            print(f"@{kernel.name}: {note}")
    for why in found.refused.values():
        print(f"left out: {why}")
    if not checks:
        return
    rows = []
    for check in checks:
        state = "as we have it" if check.ok else "changed" if check.reached else "refused"
        rows.append(
            [check.kernel, state, str(check.flags), str(check.barriers), str(len(check.disagreements))]
        )
    table(
        "at the last step of the vendor's compiler",
        ["kernel", "", "flags", "barriers", "other opinions"],
        rows,
    )
    for check in checks:
        for line in [
            *([check.problem] if check.problem else []),
            *check.changed,
            *map(str, check.disagreements),
        ]:
            print(f"@{check.kernel}: {line}")


def _to_dict(
    args: argparse.Namespace, target: str, found: HivmExport, checks: list[KernelCheck] | None
) -> dict[str, Any]:
    from dataclasses import asdict

    kernels = [
        {
            "name": k.name,
            "kind": k.kind,
            "blocks": k.blocks,
            "file": str(Path(args.hivm) / f"{k.name}{SUFFIX}"),
            "notes": list(k.notes),
        }
        for k in found.kernels.values()
    ]
    result = {"source": args.source, "target": target, "kernels": kernels, "refused": found.refused}
    return result if checks is None else result | {"checks": [asdict(c) | {"ok": c.ok} for c in checks]}
