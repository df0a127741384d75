"""docs/language.md: its generated parts are what the code says, its programs compile and are in canonical form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.frontends.text.format import format_text
from tilewright.frontends.text.frontend import lower_tw
from tilewright.frontends.text.reference import filled

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "language.md"
PROGRAMS = re.findall(r"^```tw\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
SIZES = {"N": 4, "M": 3, "S": 2, "E": 5}


def test_generated_parts() -> None:
    fix = "run python -m tilewright.frontends.text.reference docs/language.md"
    assert filled(PAGE.read_text()) == PAGE.read_text(), fix


@pytest.mark.parametrize("text", PROGRAMS)
def test_programs(text: str) -> None:
    assert format_text("page.tw", text) == text
    path = ROOT / "examples" / "tw" / "page.tw"
    parameters = text[text.rindex("fn ") :].split("->")[0]
    dimensions = {k: v for k, v in SIZES.items() if re.search(rf"\b{k}\b", parameters)}
    lower_tw(str(path), text, None, None, dimensions).module.verify()


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 3
