"""Tables for notebooks: plain HTML that takes the colours of the page it is shown on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_CELL = "padding:2px 10px;border-bottom:1px solid #8883;white-space:nowrap;font-variant-numeric:tabular-nums"
_BAR = "display:inline-block;width:60px;height:8px;border-radius:4px;background:#8882;margin-right:6px"


def table_html(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str | float]], note: str = ""
) -> str:
    """A table, and a note below, whose lines stay lines. Numbers stand on the right; a float between 0 and 1 is drawn
    as a bar with its percentage."""
    head = "".join(f'<th style="{_CELL};text-align:left;opacity:.65">{escape(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    below = f'<div style="opacity:.65;white-space:pre-line">{escape(note)}</div>' if note else ""
    return (
        f'<div style="font:13px sans-serif"><div style="font-weight:600;margin:4px 0">{escape(title)}</div>'
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{below}</div>"
    )


def folded_html(title: str, text: str) -> str:
    """Text that a click unfolds."""
    return (
        f'<details style="font:13px sans-serif"><summary>{escape(title)}</summary>'
        f'<pre style="max-height:420px;overflow:auto;font-size:12px">{escape(text)}</pre></details>'
    )


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        number = value.replace(",", "").replace(".", "").isdigit()
        return f'<td style="{_CELL}{";text-align:right" if number else ""}">{escape(value)}</td>'
    inner = f'<i style="display:block;height:8px;border-radius:4px;background:#4e79d8;width:{100 * value:.0f}%"></i>'
    return f'<td style="{_CELL}"><span style="{_BAR}">{inner}</span>{100 * value:.1f}%</td>'
