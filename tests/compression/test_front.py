"""Pareto fronts, what is chosen, tables and plots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

import tilewright as tw
from tilewright.compression.front import Cost, ParetoPoint, SearchResult, cheapest
from tilewright.compression.measures import accuracy, metric_name
from tilewright.compression.walk import SensitivityRow


@dataclass(frozen=True)
class Named(ParetoPoint):
    """A point with a name."""

    name: str = "?"

    @property
    def said(self) -> str:
        return self.name


def result(points: list[Named], max_drop: float | None = None) -> SearchResult[Named]:
    rows = (SensitivityRow("conv1", "8/16", 97.5, 1.5, 1200),)
    return SearchResult(rows, tuple(points), cheapest(points, max_drop), "accuracy", 99.0)


WHOLE = Named(99.0, 0.0, 30.0, 4000, 2e-3, "whole")
WORSE = Named(98.0, 1.0, 31.0, 3000, 2e-3, "worse and slower")
HALF = Named(98.5, 0.5, 20.0, 2000, 1e-3, "half")
SMALL = Named(60.0, 39.0, 20.0, 1000, 1e-3, "no faster")


def test_a_front_by_hand() -> None:
    found = result([WHOLE, WORSE, HALF, SMALL], max_drop=1.0)
    assert found.front == (WHOLE, HALF) and found.best is HALF
    assert found.front_by("weight_bytes") == (WHOLE, HALF, SMALL)
    assert str(found).splitlines() == [
        "   #  accuracy  drop  us    weights kB  mJ  changed",
        "+  1  99        0     30.0  4.0         2   whole",
        "   2  98        1     31.0  3.0         2   worse and slower",
        "*  3  98.5      0.5   20.0  2.0         1   half",
        "   4  60        39    20.0  1.0         1   no faster",
        "original: 99; + on the front, * chosen",
    ]
    assert found.sensitivity_table().splitlines() == [
        "part   changed to  accuracy  drop  weights kB",
        "conv1  8/16        97.5      1.5   1.2",
    ]


def test_what_is_chosen() -> None:
    assert result([WHOLE, WORSE, HALF, SMALL]).best is SMALL
    assert result([WHOLE, HALF], max_drop=0.1).best is WHOLE
    assert result([HALF], max_drop=0.1).best is None


few = st.integers(0, 4).map(float)


@given(
    st.lists(st.tuples(few, few, few), min_size=1, max_size=8),
    st.sampled_from(["microseconds", "weight_bytes"]),
)
@examples(60)
def test_a_front_beats_all_others(numbers: list[tuple[float, float, float]], cost: Cost) -> None:
    points = [Named(m, -m, us, int(size), 0.0) for m, us, size in numbers]
    front = result(points).front_by(cost)
    for p in points:
        at = getattr(p, cost)
        if p in front:
            assert not any(
                q.metric >= p.metric and getattr(q, cost) <= at and q != p
                for q in front
                if (q.metric, getattr(q, cost)) != (p.metric, at)
            )
        else:
            assert any(q.metric >= p.metric and getattr(q, cost) <= at for q in front)


def test_a_plot(tmp_path: Path) -> None:
    found = result([WHOLE, WORSE, HALF, SMALL], max_drop=1.0)
    found.plot(tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes()[:4] == b"\x89PNG"
    found.plot(tmp_path / "front.svg")
    drawn = (tmp_path / "front.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("modelled microseconds", "accuracy", "3: half (chosen)"))
    with pytest.raises(tw.CompileError, match="nowhere"):
        found.plot(tmp_path / "nowhere" / "front.png")


def test_what_a_metric_is_called() -> None:
    assert metric_name("cosine") == "cosine" and metric_name(accuracy) == "accuracy"
