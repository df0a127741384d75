"""The bar: where it is shown, when, and that it goes again."""

from __future__ import annotations

import io
import sys
import time

import pytest

from tilewright.support.progress import showing, silent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, after: float, seconds: float) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with showing("working", after) as say:
        say("working on it", 1, 3)
        time.sleep(seconds)
    return stream.getvalue()


def test_a_terminal_sees_the_step_and_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = said(monkeypatch, Terminal(), 0.05, 0.5)
    assert "working on it" in shown and "1/3" in shown


def test_nothing_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, Terminal(), 30, 0.05) == ""


def test_nothing_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, io.StringIO(), 0, 0.2) == ""


def test_the_bar_goes_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(ValueError, match="inside"), showing("working"):
        raise ValueError("inside")
    length = len(stream.getvalue())
    time.sleep(0.3)
    assert len(stream.getvalue()) == length


def test_a_script_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("tilewright.support.progress.can_show", lambda: False)
    monkeypatch.setattr("tilewright.support.progress.time.monotonic", lambda: now[0])
    with showing("verifying") as say:
        for second in range(50):
            now[0] = 100.0 + second
            say(f"step {second}", second, 50)
        now[0] += 30
        say("the last")
    assert capsys.readouterr().err.splitlines() == [
        *(f"step {second} ({second} of 50)" for second in range(5, 50, 5)),
        "the last",
    ]


def test_a_step_that_lasts_gets_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tilewright.support.progress.can_show", lambda: False)
    monkeypatch.setattr("tilewright.support.progress.LINE_SECONDS", 0.05)
    with showing("verifying") as say:
        say("the source", 0, 2)
        time.sleep(0.4)
    time.sleep(0.15)
    assert capsys.readouterr().err.splitlines() == ["the source (0 of 2)"]


def test_nothing_is_said_where_silence_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tilewright.support.progress.LINE_SECONDS", 0.0)
    with silent(), showing("verifying") as say:
        say("the source")
    with silent(False), showing("verifying") as say:
        say("the passes")
    assert capsys.readouterr().err.splitlines() == ["the passes"]
