"""The second opinion, where OR-tools is installed; without it one sentence says what to install."""

from __future__ import annotations

import sys

import pytest

from packing.test_exact import NO_END, problem
from tilewright.packing import PackingError, solve
from tilewright.packing.cp_sat import second_opinion


def test_without_or_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("ortools")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(
        PackingError, match=r"needs OR-tools; install it with pip install 'tilewright\[ortools\]'"
    ):
        second_opinion(problem((0, 1, 1)), None, 1.0)


def test_both_find_the_same() -> None:
    pytest.importorskip("ortools")
    for p in (
        problem((0, 3, 2), (1, 5, 3), (2, 7, 2), (4, 8, 1)),
        problem((0, 2, 3, 4), (0, 2, 3, 4), (1, 4, 2)),
        problem((0, 4, 1), (0, 2, 1), (0, 3, 2), (2, 6, 1), (3, 8, 1), (4, 8, 2), (6, 8, 1)),
    ):
        found, other = solve(p, NO_END), second_opinion(p, None, 20.0)
        assert (other.status, other.height, other.bound) == ("optimal", found.height, found.height)
        assert second_opinion(p, found.height - 1, 20.0).status == "infeasible"
        assert other.offsets is not None
        p.check(other.offsets)
