"""Entries of knowledge bases."""

from __future__ import annotations

from tilewright.knowledge.base import Entry

ENTRY = Entry(
    kernel="0" * 64,
    price="1",
    goal="latency",
    joined=False,
    plan="#graph.vector_schedule<axes = [[0]], tile = [8], grid = [1], ub = 2>",
    microseconds=2.0,
    joules=0.5,
    before=3.0,
    scaled=2.5,
    bound=1.5,
    priced=2.0,
    certified=False,
    withdrawn=False,
    judge="simulator",
    how="by hand",
    name="add",
    machine="ascend-910b1",
    family="f" * 16,
    sizes=(8, 16),
    seconds=1.0,
)
