"""Kernels of the vendor's compiler as subjects of faults: those of the tree, and those that are stored beside it."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from shared import SHARED
from subject_types import ROOT, Subject

import tilewright as tw

TEXTS = ROOT / "tests" / "frontends" / "hivm" / "texts"
STORED = SHARED / "hivm" / "kernels"

sys.path.append(str(ROOT / "tests" / "frontends" / "hivm"))


@functools.cache
def texts() -> list[Path]:
    """The texts with a launch, those of the tree first. Where data sends the stores of two cores to one place, which
    these kernels say it never does, what they give depends on the order of cores: they are no subjects."""
    from stored_kernels import REFERENCES

    stored = [STORED / f"{name}.hivm.mlir" for name, r in REFERENCES.items() if "scattered" not in r.launch]
    own = [path for path in sorted(TEXTS.glob("*.hivm.mlir")) if ", scattered" not in path.read_text()]
    return [*own, *(path for path in stored if path.exists())]


def imported_subject(number: int, target: str) -> Subject:
    """A text by its number."""
    from stored_kernels import REFERENCES

    path = texts()[number]
    name = path.name.removesuffix(".hivm.mlir")
    content = path.read_text()
    if "hivm.vector_function" in content:
        target = "ascend-950pr"
    if path.parent == STORED:
        content += f"\n// launch: {REFERENCES[name].launch}\n"
    return Subject(f"{name} for {target}", tw.compile(content, target=target).module(), target)
