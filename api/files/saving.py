"""`tw.save`: programs to model files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...modelfile.keys import Secret
from ...support.files import FilePath
from ..arguments.signature import CompileError
from ..program import Program
from .names import ENTRY
from .writing import write_programs


def save(
    programs: Program | Mapping[str, Program],
    path: FilePath,
    *,
    targets: Sequence[str] = (),
    weights: Mapping[str, Any] | None = None,
    licence: str = "",
    metadata: Mapping[str, str] | None = None,
    sequence: int = 0,
    sign: FilePath | None = None,
    encrypt: Secret | None = None,
    stablehlo: bool | None = None,
    portable: bool = True,
) -> None:
    """Writes programs to a file, each as a function of its own, in one step.

    Args:
        programs: A program, which is called `main` in the file, or several by their names.
        path: The file, `.twm`.
        targets: Chips that the programs are compiled for as well, so that nothing has to be when they are loaded.
        weights: Values of arguments by name: what is loaded takes these where a call leaves them out. An argument that
            several programs have is stored once. A program that packs its weights needs their values; the file has
            what packing gives in their place.
        licence, metadata: What the file is to say of itself.
        sequence: A number that grows with each release.
        sign: A PEM file with a private key, Ed25519 or ECDSA over P-256, that signs the file.
        encrypt: A key or a passphrase that seals the file, such as `tw.Secret.of_key_file(path)`.
        stablehlo: Whether the file has programs as portable artifacts of StableHLO, too, which other tools read. None:
            those that come from JAX or StableHLO, and have at most 64 KiB of constants, which are in there once more.
            True: all, or none is written.
        portable: Whether the file has what other chips are compiled from; False: it is for its chips alone, and smaller
            where products are quantized.

    Raises:
        CompileError: A program cannot be in a file: it calls functions of this process, or its arguments have types
            of other libraries; or a weight is not what its program takes.
        ModelFileError, OSError: The file cannot be written.
    """
    given = {ENTRY: programs} if isinstance(programs, Program) else programs
    if not isinstance(given, Mapping) or not all(isinstance(program, Program) for program in given.values()):
        raise CompileError("save: give a program, as tw.compile gives it, or several by their names")
    if not given:
        raise CompileError("save: there is no program to save")
    parts = {name: program.parts(targets, weights) for name, program in given.items()}
    write_programs(parts, path, weights or {}, licence, metadata, sequence, sign, encrypt, stablehlo, portable)
