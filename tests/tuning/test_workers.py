"""Tasks on several processes and on a cluster: the outcomes of one process, and none lost where a process ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import plan_tasks
import pytest
from plan_tasks import ends, ends_once, fails, square
from tiering import sampled

import tilewright as tw
from tilewright.tuning.workers import done


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_told_apart(workers: int) -> None:
    assert dict(done(square, [3, 5, 7], workers)) == {0: 9, 1: 25, 2: 49}
    assert dict(done(square, [], workers)) == {}
    with pytest.raises(ValueError, match="is wrong"):
        dict(done(fails, [1, 2], workers))


def test_a_process_that_ends_loses_nothing(tmp_path: Path) -> None:
    assert dict(done(ends_once, [(str(tmp_path), n) for n in range(3)], 2)) == {0: 0, 1: 1, 2: 2}
    with pytest.raises(RuntimeError, match="ended 3 times"):
        dict(done(ends, [1, 2], 2))


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.exp(jax.nn.softmax(x @ w, -1) @ w.T)


ARGS = [jax.ShapeDtypeStruct(s, "float16") for s in ((64, 48), (48, 80))]


def tuned(workers: int | str) -> tw.Tuned:
    return tw.tune(layer, *ARGS, budget="1h", evaluations=3000, verify=2, workers=workers)


def same(one: tw.Tuned, other: tw.Tuned) -> None:
    assert replace(one.report, seconds=0.0) == replace(other.report, seconds=0.0)
    assert one.program.ir("npu") == other.program.ir("npu")


@sampled(1)
def test_two_processes_find_what_one_does() -> None:
    same(tuned(1), tuned(2))


@pytest.fixture
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    own = {"PYTHONPATH": str(Path(plan_tasks.__file__).parent)}
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, env=own) as made:
        yield made.scheduler_address


@sampled(1)
def test_a_cluster_finds_what_one_process_does(cluster: str) -> None:
    same(tuned(1), tuned(cluster))


@sampled(1)
def test_a_cluster_goes_on_without_a_worker(cluster: str, tmp_path: Path) -> None:
    assert dict(done(ends_once, [(str(tmp_path), n) for n in range(3)], cluster)) == {0: 0, 1: 1, 2: 2}
