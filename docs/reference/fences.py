"""A hook of mkdocs: leaves the language alone of a fence's info string.

The words behind it say how a test checks the block (tests/docs/test_examples.py); to the site they are no fence.
"""

from __future__ import annotations

import re
from typing import Any

FENCE = re.compile(r"^(```\w+) [^\n`]+$", re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text, with fences that the site takes for such."""
    return FENCE.sub(r"\1", markdown)
