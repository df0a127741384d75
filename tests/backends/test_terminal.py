"""Tables in terminals of any width: nothing is cut off."""

from __future__ import annotations

from collections import Counter
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilewright.backends.terminal import Fitted

ROWS = [
    ("contract_0", "mix", "32", "MTE2 38.1 MTE1 26.6 M 9.4", "examples/lstm.py:19"),
    ("a_kernel_with_a_long_name_of_fifty_characters_or_so", "vector", "", "V 42.9", "model.py:21"),
    ("copy [0]", "", "1", "", "größe.py:3"),
]


def shown(width: int) -> str:
    header = ("kernel", "kind", "runs", "pipes, us", "source")
    table = Table(*header, title="399.2 us [modelled]", caption="side by side")
    for row in ROWS:
        table.add_row(*map(Text, row))
    console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(Fitted(table))
    return captured.get()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140, 200])
def test_nothing_is_cut(width: int) -> None:
    text = shown(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert ("┃" in text) == (width >= 140)
    if 60 <= width < 140:
        assert all(cell in text for row in ROWS for cell in row)
    letters = Counter("".join(map("".join, ROWS))) - Counter(text)
    assert not {c for c in letters if not c.isspace()}
