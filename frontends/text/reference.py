"""The generated parts of docs/language.md: the grammar and the functions.

`python -m tilewright.frontends.text.reference docs/language.md` writes them between their marks.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .functions import LibraryFunction, functions, graph_functions
from .terminals import grammar_text


def grammar() -> str:
    """The rules and tokens of the grammar file; rules whose names start with _ leave no node of their own."""
    lines = [line for line in grammar_text().splitlines() if not line.startswith(("//", "%"))]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return f"```text\n{text}\n```"


def table(rows: list[LibraryFunction]) -> str:
    """Functions with what they take and do."""
    lines = ["| function | does |", "|---|---|"]
    for f in rows:
        lower = f.doc[:2].istitle() and not f.doc.startswith("Einstein")
        doc = (f.doc[:1].lower() + f.doc[1:] if lower else f.doc).rstrip(".")
        lines.append(f"| `{f.usage}` | {doc.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def wrapped(words: list[str]) -> str:
    """A list as lines of a page."""
    lines = [""]
    for i, word in enumerate(words):
        end = "." if i == len(words) - 1 else ","
        if len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}{end}".strip()
    return "\n".join(lines)


def sections() -> dict[str, str]:
    """The generated parts by the name of their mark."""
    plain = [f for f in functions().values() if not f.doc.startswith("graph.")]
    scalar = [f"`{f.usage}`" for f in functions().values() if f.doc.startswith("graph.")]
    return {
        "grammar": grammar(),
        "functions": table(plain),
        "scalar": wrapped(scalar),
        "graph": wrapped([f"`{n}`" for n in graph_functions()]),
    }


def filled(page: str) -> str:
    """A page with its generated parts as they should be."""
    for name, text in sections().items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = mark.sub(lambda m, text=text: f"{m[1]}{text}\n{m[2]}", page)
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text()))
