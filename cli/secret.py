"""Keys and passphrases of model files on the command line: in files, in the environment, or asked for."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ..api.files.names import named_file
from .common import CliError

if TYPE_CHECKING:
    from ..modelfile.keys import Secret

ASK = "ask"
"""What asks for a passphrase on the terminal."""

VARIABLE = "env:"
"""What stands before the name of an environment variable with a passphrase."""

READ = ("key", "passphrase", "encrypt_key", "encrypt_passphrase")
"""Arguments that name files with secrets."""


def add_secret(group: argparse._ActionsContainer) -> None:
    """Adds what a sealed model file is opened with."""
    group.add_argument("--key", metavar="FILE", help="what a .twm file is sealed with: 32 bytes, or hexadecimal")
    group.add_argument(
        "--passphrase", metavar="FILE", help="or the passphrase that it is sealed with: a file, env:VARIABLE, or ask"
    )


def add_trust(group: argparse._ActionsContainer) -> None:
    """Adds who has to have signed a model file that is a source."""
    group.add_argument(
        "--require-signature", action="append", metavar="KEYS.pem", help="public keys, one of which has signed the .twm"
    )
    group.add_argument("--least-sequence", type=int, metavar="N", help="the earliest release of a .twm that is taken")


def opened_as_said(args: argparse.Namespace) -> AbstractContextManager[Any]:
    """Inside, model files are opened with the secret of a command line, and where who it trusts has signed them. Raises
    CliError, ModelFileError and OSError."""
    said = {name: getattr(args, name, None) for name in ("key", "passphrase", "require_signature", "least_sequence")}
    file = getattr(args, "file", None) or getattr(args, "first", None)  # of a command for model files alone
    if file is not None:
        said |= {"require_signature": None, "least_sequence": None}
    option = next((name for name, each in said.items() if each is not None), None)
    if option is None:
        return nullcontext()
    if file is None and named_file(args.source) is None:
        raise CliError(f"{args.source}: --{option.replace('_', '-')} is for model files")
    from ..api.files.opening import opened_with

    key, passphrase = said["key"], said["passphrase"]
    sealed = key is not None or passphrase is not None
    secret = _secret(key, passphrase, "--", f"passphrase of {file or args.source}: ") if sealed else None
    return opened_with(secret, said["require_signature"] or (), said["least_sequence"] or 0)


def encrypting(args: argparse.Namespace) -> Secret | None:
    """What the model file that a command writes is sealed with. Raises CliError, ModelFileError and OSError."""
    key, passphrase = args.encrypt_key, args.encrypt_passphrase
    if key is None and passphrase is None:
        return None
    return _secret(key, passphrase, "--encrypt-", f"new passphrase of {args.output}: ", "the same again: ")


def _secret(key: str | None, passphrase: str | None, option: str, *prompts: str) -> Secret:
    """A key, or a passphrase, which is asked for with each of these prompts. option: what names of options begin
    with."""
    from ..modelfile.keys import Secret

    if passphrase is None:
        assert key is not None
        return Secret.of_key_file(key)
    if key is not None:
        raise CliError(f"give either {option}key or {option}passphrase")
    if passphrase == ASK:
        if not sys.stdin.isatty():
            raise CliError(f"{option}passphrase {ASK}: there is no terminal to ask on")
        first, *others = map(getpass.getpass, prompts)
        if any(other != first for other in others):
            raise CliError(f"{option}passphrase {ASK}: the two passphrases differ")
        return Secret.of_passphrase(first)
    if not passphrase.startswith(VARIABLE):
        return Secret.of_passphrase_file(passphrase)
    value = os.environ.get(passphrase.removeprefix(VARIABLE))
    if value is None:
        raise CliError(f"{option}passphrase {passphrase}: there is no such environment variable")
    return Secret.of_passphrase(value, passphrase)
