"""One name means one thing: no two public classes of the package share a name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from test_layers import ROOT, modules

SHARED: dict[str, str] = {}
"""Other names that two classes may share, each with the reason."""


def classes(path: Path) -> list[str]:
    """The public classes of a module: those that begin a line."""
    return re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE)


def homonyms(places: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Names of classes in several modules, but for the op of one name in several dialects."""
    found: dict[str, Sequence[str]] = {}
    for name, paths in places.items():
        dialects = [tuple(Path(path).parts[:2]) for path in paths]
        of_levels = name.endswith("Op") and all(d[0] == "dialects" for d in dialects)
        if len(paths) > 1 and not (of_levels and len(set(dialects)) == len(paths)):
            found[name] = paths
    return found


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for name in classes(path):
            places[name].append(path.relative_to(ROOT).as_posix())
    found = homonyms(places)
    assert {name: paths for name, paths in found.items() if name not in SHARED} == {}
    assert SHARED.keys() <= found.keys(), "names that no longer need an exception"


def test_a_shared_name_is_found() -> None:
    assert homonyms({"Walk": ["frontends/walk.py", "verification/walk.py"]})
    assert homonyms({"AddOp": ["dialects/tile/vector.py", "dialects/tile/cube.py"]})
    assert homonyms({"AddOp": ["dialects/tile/vector.py", "passes/choose/lower.py"]})
    assert not homonyms({"AddOp": ["dialects/tile/vector.py", "dialects/graph/elementwise.py"]})
    assert not homonyms({"Walk": ["frontends/walk.py"]})
