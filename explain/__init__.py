"""`tilewright explain`: one HTML page that shows a program at all levels, where its time goes, and what binds it.

`data.py` gathers the page's data as plain JSON from the program's own IR, its locations and its simulation;
`page.py` puts it into the template with the drawing library inlined. Nothing here is a model of its own.
"""

from .data import SCHEMA, compile_with_levels, page_data
from .errors import ExplainError
from .page import check_installed, page_of, render

__all__ = [
    "SCHEMA",
    "ExplainError",
    "check_installed",
    "compile_with_levels",
    "page_data",
    "page_of",
    "render",
]
