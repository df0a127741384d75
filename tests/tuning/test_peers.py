"""The benchmark that holds the search of plans beside peers, without the peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.benchmarks.peer_searches import Watch, versions
from tilewright.benchmarks.tuning_peers import BEGIN, END, PRODUCTS, main, tilewright


def test_rows_of_one_product() -> None:
    """The proof takes fewer evaluations than there are plans, and the simulator judges graph-schedule's plan first."""
    price, simulator = tilewright((48, 40, 56), 60.0, "ascend-910b1", judged=4)
    assert price.proven and price.plans is not None and price.evaluations < price.plans / 10
    assert 1 <= price.until_best <= price.evaluations and price.first_worse is not None and price.first_worse >= 0
    assert not simulator.proven and simulator.evaluations == simulator.plans
    assert simulator.evaluations in (4, 5)  # graph-schedule's may be one of the four
    assert 1 <= simulator.until_best <= 5 and simulator.first_worse is not None and simulator.first_worse >= 0
    assert price.seconds > 0 and 0 < simulator.seconds < 60


def test_evaluations_are_counted() -> None:
    watch = Watch(4.0, used=iter((2.0, 5.0, 5.0, 6.0)).__next__)
    for cost in (6.0, 3.0, 4.0, 3.0):
        watch.add(cost)
    row = watch.row("search", (1, 2, 3), None, False)
    assert (row.evaluations, row.until_best, row.first_worse, row.seconds) == (4, 2, 1.0, 3.0)
    assert not watch.over and watch.over
    assert Watch(60.0).row("none", (1, 2, 3), None, False).first_worse is None


@pytest.mark.skipif(any(versions().values()), reason="a peer is installed")
def test_peers_may_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{BEGIN}\nthose of last week\n{END}\nbehind\n")
    assert main(["--products", "1", "--seconds", "0", "--page", str(page)]) == 0
    said = capsys.readouterr().err
    assert "zigzag-dse is not installed" in said and "apache-tvm is not installed" in said and "pip install" in said
    m, k, n = PRODUCTS[0]
    assert page.read_text().count(f"| {m} x {k} x {n} | Tilewright, ") == 2
    assert "last week" not in page.read_text() and page.read_text().endswith(f"{END}\nbehind\n")


@pytest.mark.parametrize(("python", "said"), [("/no/such/python", "cannot be run"), ("/bin/true", "no Python")])
def test_an_interpreter_that_is_none_is_one_sentence(
    python: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--python", python]) == 1
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 1
