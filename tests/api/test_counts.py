"""Kernels, launches and copies are counted alike by a program, its report and the report's JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tilewright as tw

X = np.ones((37, 53), np.float32)


def updated(cache: Any, x: Any, i: Any) -> Any:
    return lax.dynamic_update_slice(cache, x, (i, 0)), cache @ x[0]


def branches(x: Any, n: Any) -> Any:
    return lax.cond(n > 2, lambda x: jnp.tanh(x @ x.T).sum(), lambda x: x.sum() * 2, x)


def repeated(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ x.T) @ x, x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, int, int]]] = {
    "a copy is no kernel": (updated, (X, X[:1], 3), (3, 3, 1)),
    "a branch that is not counted has kernels, too": (branches, (X, 3), (3, 2, 1)),
    "many launches of one kernel": (repeated, (X,), (2, 10, 1)),
    "a program without any": (lambda x: x, (X,), (0, 0, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_agree(case: str) -> None:
    fn, args, counts = CASES[case]
    program = tw.compile(fn, *args)
    report = program.report()
    found = json.loads(report.to_json())
    (shown,) = re.findall(r": (\d+) kernels?", repr(program))
    (said,) = re.findall(r"(\d+) launch(?:es)? of (\d+) kernels?(?: \(.*?\))?(?:, (\d+) cop(?:y|ies))?", str(report))
    assert int(said[1]) == report.counts.launched_kernels
    assert int(shown) == report.counts.kernels == program.ir("npu").count("npu.kernel @")
    assert (report.counts.launches, report.counts.copies) == (int(said[0]), int(said[2] or 0))
    assert tuple(found["counts"][k] for k in ("kernels", "launches", "copies")) == counts
    by_kind = {
        copy: sum(k["launches"] - k["joined"] for k in found["kernels"] if (k["kind"] == "copy") is copy)
        for copy in (False, True)
    }
    assert (by_kind[False], by_kind[True]) == counts[1:]
