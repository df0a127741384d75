"""Text of the vendor's compiler is parsed, verified and printed, and what is printed is parsed to the same."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.shared import SHARED, needs
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from tilewright.dialects import make_context
from tilewright.dialects.text import parse_module

STORED = SHARED / "hivm"
TEXTS = sorted([*(STORED / "kernels").glob("*.hivm.mlir"), *(STORED / "exports").glob("*.mlir")])


def printed(module: ModuleOp, generic: bool) -> str:
    out = io.StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name.removesuffix(".hivm.mlir"))
def test_a_stored_text_is_read_and_printed(path: Path) -> None:
    module = parse_module(make_context(), path.read_text(), path.name)
    module.verify()
    for generic in (False, True):
        again = parse_module(make_context(), printed(module, generic), path.name)
        again.verify()
        assert printed(again, generic=True) == printed(module, generic=True)


@needs(STORED)
def test_the_texts_are_there() -> None:
    assert len(TEXTS) == 59
