"""What the tolerance leaves open is counted and said; what is not run again is judged as if it were."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import MODELS, data
from tiering import ALL, later
from train_steps import train_step, train_step_inputs

import tilewright as tw
from tilewright.cli.output import print_verification, verification_dict
from tilewright.verification.compare import CHUNK, compare


def chaotic(x: jax.Array) -> jax.Array:
    """Each round of the logistic map doubles what rounding lost."""
    return jax.lax.fori_loop(0, 120, lambda _, y: 3.99 * y * (1 - y), jax.nn.sigmoid(x))


def test_a_chaotic_program_is_not_plainly_ok(capsys: pytest.CaptureFixture[str]) -> None:
    found = tw.verify(chaotic, data(8, 24))
    assert found.ok and found.verdict == "OPEN"
    assert found.open_share > 0.9
    assert all(c.numbers == 8 * 24 and c.open > 0.9 * c.numbers for c in found.checks)
    assert "OPEN" in repr(found) and "of the numbers open" in repr(found)
    assert "OPEN" in found._repr_html_() and "judged alone" in found._repr_html_()
    print_verification(found)
    printed = capsys.readouterr().out
    assert "judged alone, op by op" in printed
    assert not [line for line in printed.splitlines() if line.startswith("  ") and line.endswith(" ok")]
    said = json.loads(json.dumps(verification_dict(found)))
    assert said["verdict"] == "OPEN" and said["open_share"] == found.open_share
    assert [p["open"] for p in said["passes"]] == [c.open for c in found.checks]


def test_a_stable_program_leaves_nothing_open() -> None:
    fn, args = MODELS["mlp"]
    found = tw.verify(fn, *args)
    assert found.verdict == "ok" and found.open_share == 0 and found.openness() == ""
    assert "open" not in repr(found)
    rows = [c for c in found.checks if c.stage in ("graph-to-tile", "tile-to-npu")]
    assert all(c.numbers_alone > 0 and c.open_alone == 0 for c in rows)


def test_quick_says_that_no_pass_was_judged() -> None:
    found = tw.verify(chaotic, data(8, 24), quick=True)
    assert "nothing was judged" in found.openness()


def test_open_elements() -> None:
    want, got = np.float32([1, 2, 3, 4]), np.float32([1, 5, 3.5, 9])
    found = compare(got, want, np.float32([np.inf, np.inf, 1, 5]))
    assert (found.open, found.ratio, found.element) == (2, 1.0, (3,))
    assert compare(want, want.copy(), np.full(4, np.inf, np.float32)).open == 0


def test_comparing_in_pieces_finds_the_worst_of_all() -> None:
    want = np.ones((3, CHUNK), np.float32)
    got = want.copy()
    got[0, 5], got[1, 7], got[2, CHUNK - 1] = 1.5, -3, 2
    found = compare(got, want, np.full_like(want, 0.25))
    assert (found.element, found.ratio, found.count, found.got) == ((1, 7), 16, 3, -3)
    exact = compare(got, want)
    assert (exact.element, exact.count) == ((1, 7), 3)


@later()
def test_a_training_step() -> None:
    """Dropout, a scan and its gradient: each pass is judged, and the results are not open. In the first tier the
    layers have no attention."""
    found = tw.verify(train_step, *train_step_inputs(attention=ALL))
    assert found.ok and found.verdict == "ok", found
    assert next(c for c in found.checks if c.stage == "graph-to-tile").numbers_alone > 100_000


def test_progress_is_told_of_each_step_or_silent(capsys: pytest.CaptureFixture[str]) -> None:
    fn, args = MODELS["moves"]
    steps: list[tuple[str, int, int]] = []
    tw.verify(fn, *args, progress=lambda *step: steps.append(step))
    assert [n for _, n, _ in steps] == list(range(len(steps)))
    assert {n for *_, n in steps} == {len(steps)}
    tw.verify(fn, *args, progress=False)
    tw.verify(fn, *args)
    assert capsys.readouterr().err == ""


def test_what_a_pass_left_as_it_was_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the source's own run the graph passes that change nothing evaluate no op."""
    from tilewright.verification.walk import GraphWalk

    ran: list[str] = []
    compiled = GraphWalk._compiled

    def counted(self, op, *rest):
        ran.append("judged" if self.settings.golden is not None else "own")
        return compiled(self, op, *rest)

    monkeypatch.setattr(GraphWalk, "_compiled", counted)
    assert tw.verify(lambda x: jnp.tanh(x) * 2 - x, data(8, 16)).ok
    assert ran and set(ran) == {"own"}


def test_a_launch_that_was_right_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three passes have bytes memory, and none but the first changes a kernel or what it reads. The kernel has no
    scratch memory in the arena, where others leave something."""
    from tilewright.verification.hostwalk import HostWalk

    ran: list[str] = []
    execute = HostWalk._execute

    def counted(self, op, bound):
        ran.append(self.memory)
        execute(self, op, bound)

    monkeypatch.setattr(HostWalk, "_execute", counted)
    fn, args = MODELS["apart"]
    found = tw.verify(fn, *args)
    assert found.ok
    launches = tw.compile(fn, *args).ir("npu").count("npu.launch @")
    assert (ran.count("typed"), ran.count("bytes")) == (launches, launches)
