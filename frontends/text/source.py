"""How `.tw` programs are named, `model.tw` or `model.tw:fn`, and what their files may hold."""

from __future__ import annotations

import re

_NAMED = re.compile(r"(.*\.tw)(?::(\w+))?", re.DOTALL)


def find_tw(source: str) -> tuple[str, str | None] | None:
    """Path and function of a source that names a .tw program; None where it is something else."""
    match = _NAMED.fullmatch(source) if "\n" not in source else None
    return (match[1], match[2]) if match else None


MOST_BYTES = 1 << 26
"""Of one file: a million lines. Weights stand in files of their own."""


def decoded(content: bytes) -> str:
    """The text of a file, without a byte order mark. Raises ValueError, which says why it has none."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES >> 20} MiB; weights belong in a .npz or .safetensors file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not a text file in UTF-8") from None
