"""Triton kernels: the vendor's adapter, in another Python, reads them, and the vendor's compiler makes HIVM of them.

triton-ascend takes the place of Triton, so it is never in our environment: `triton_script.py` runs in one that has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..backends.hivm.tools import ToolError, VendorTools
from ..frontends.errors import FrontendError
from ..frontends.hivm.launching import LaunchTerms, parse_launch
from ..machine import DEFAULT_TARGET, Machine
from ..passes.errors import CompileError
from .hivm import TARGETS

SCRIPT = Path(__file__).with_name("triton_script.py")
VERSIONS = "3.2."
"""The versions of triton-ascend that were tried."""

PYTHON = "TILEWRIGHT_TRITON_PYTHON"
"""The variable of the environment with the path of the other Python."""

SECONDS = 120.0
"""After how long the other Python counts as hanging; the longest kernel that was tried takes 2."""

POINTER = "*fp32"
"""The type of an argument of which nothing else is said."""

TYPES = {"f32": "fp32", "f16": "fp16"} | {t: t for t in ("fp32", "fp16", "bf16", "i1", "i8", "i16", "i32", "i64")}
"""What Triton calls an element type, by what may be written."""


@dataclass(frozen=True)
class TritonLaunch:
    """What a kernel is compiled for and launched with: its grid and numbers, and the types of its pointers."""

    terms: LaunchTerms
    pointers: dict[str, str] = field(default_factory=dict)


def parse_triton(text: str) -> TritonLaunch:
    """A launch from `grid=(64,), n=262144, x=*f16, B=1024`. Raises FrontendError."""
    pointers: dict[str, str] = {}

    def taken(found: re.Match[str]) -> str:
        kind = TYPES.get(found[2])
        if kind is None:
            raise FrontendError(f"*{found[2]} is no type of a pointer: write one of *{', *'.join(TYPES)}")
        pointers[found[1]] = f"*{kind}"
        return ""

    rest = re.sub(r"(\w+)\s*=\s*\*(\w+)\s*(?:,|$)", taken, text).strip().rstrip(",")
    terms = parse_launch(rest)
    unnamed = next((n for n in terms.numbers if n.isdigit()), None)
    if unnamed is not None:
        raise FrontendError(f"{terms.numbers[unnamed]} has no name: write n={terms.numbers[unnamed]}")
    return TritonLaunch(terms, pointers)


def hivm_of_kernel(
    file: Path, function: str, launch: str, target: str | None = None, python: str | None = None
) -> bytes:
    """The HIVM of a Triton kernel, with a line that says its launch. python: the Python that has triton-ascend, or the
    one that the environment names. Raises CompileError."""
    machine = Machine.load(target or DEFAULT_TARGET)
    chip = TARGETS.get(machine.name)
    if chip is None:
        raise CompileError(f"Triton kernels are compiled for {', '.join(TARGETS)}, not for {machine.name}")
    try:
        asked = parse_triton(launch)
        found = _adapted(file, function, asked, chip, python or os.environ.get(PYTHON))
        text = VendorTools.find().from_adapter(found["text"], chip)
    except (FrontendError, ToolError) as error:
        raise CompileError(str(error)) from None
    given = [str(asked.terms.numbers[n]) for n in found["arguments"] if n in asked.terms.numbers]
    grid = "".join(f"{n}," for n in asked.terms.grid)
    said = [*([f"grid=({grid})"] if grid else []), *given]
    return f"{text}\n// launch: {', '.join(said)}\n".encode()


def _adapted(file: Path, function: str, asked: TritonLaunch, chip: str, python: str | None) -> dict[str, Any]:
    """What the script answers. Raises ToolError."""
    if not python:
        raise ToolError(
            f"a Triton kernel is read by another Python, which has triton-ascend {VERSIONS}*: "
            f"say which by --triton-python or {PYTHON}"
        )
    numbers = asked.terms.numbers
    request = {
        "file": str(file),
        "function": function,
        "types": {n: "i32" if isinstance(v, int) else "fp32" for n, v in numbers.items()} | asked.pointers,
        "values": dict(numbers),
        "pointer": POINTER,
        "versions": VERSIONS,
        "target": chip,
    }
    try:
        done = subprocess.run(
            [python, str(SCRIPT)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{python} hangs: it was stopped after {SECONDS:g} seconds") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{python} cannot be run: {getattr(error, 'strerror', None) or error}") from None
    if done.returncode < 0:
        raise ToolError(f"{python} crashes with signal {-done.returncode} while it reads {file}")
    return _answer(python, done)


def _answer(python: str, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The answer that the script wrote. Raises ToolError."""
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    if done.returncode:
        raise ToolError(f"{python} fails with exit code {done.returncode}: {last[:300] or 'it says nothing'}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        raise ToolError(found["error"])
    if not isinstance(found, dict):
        raise ToolError(f"{python} gives no answer, but {done.stdout[:80]!r}")
    names, text = found.get("arguments"), found.get("text")
    if not isinstance(text, str) or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ToolError(f"{python} gives an answer without a text and names of arguments")
    return found
