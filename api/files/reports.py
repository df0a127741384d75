"""What programs cost, as a file has it: so that it is known without simulating them again."""

from __future__ import annotations

import json
import re
from typing import Any

from ...backends.report import Report
from ...backends.simulator import judge
from ...dialects.source_places import without_folder
from ...machine import Machine
from ...modelfile.manifest import canonical
from ...support.typed_json import plain, typed

_FOLDER = re.compile(r"\([^()]*/(?=[^/()]*:\d+\))")
"""The folder in `(path/to/model.py:12)`, as descriptions of ops have it."""


def report_bytes(report: Report) -> bytes:
    """A report as a member of a file, without the folders of its sources."""
    return canonical(_file_names(plain(report)))


def report_in(content: str, machine: Machine) -> Report | None:
    """The report in a member; None for one whose times follow from other rules or numbers of the chip than those of
    this process. Raises ValueError for what is none."""
    try:
        found: Report = typed(Report, json.loads(content, parse_int=_number))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found if found.judge == judge(machine) and found.target == machine.name else None


def _number(text: str) -> int:
    """A whole number in a report. Raises ValueError for one that takes more than 64 bits, which nothing costs."""
    found = int(text)
    if found.bit_length() > 63:
        raise ValueError(f"{text[:40]} is too large")
    return found


def without_folders(text: str) -> str:
    """A description without the folders of the sources in it."""
    return _FOLDER.sub("(", text)


def _file_names(value: Any) -> Any:
    """Sources as the text of a program in a file has them."""
    if isinstance(value, list):
        return [_file_names(each) for each in value]
    if isinstance(value, str):
        return without_folders(value)
    if not isinstance(value, dict):
        return value
    found = {key: _file_names(each) for key, each in value.items()}
    if isinstance(found.get("source"), str):
        found["source"] = without_folder(found["source"])
    if "sources" in found:
        places = {(file.rpartition("/")[2], line, node) for file, line, node in found["sources"]}
        found["sources"] = sorted(map(list, places))
    return found
