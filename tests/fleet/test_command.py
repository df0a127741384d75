"""`tilewright fleet` on the command line: what it says, and mistakes as one sentence that leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import CHIP, canary_file, model_file, signing_keys

from tilewright.cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    signing_keys(tmp_path, "release", 1)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    found = main(["fleet", *args])
    streams = capsys.readouterr()
    assert found == code, streams.err
    if code:
        assert streams.err.count("\n") == 1 and "internal error" not in streams.err
    return streams.err if code else streams.out


def asked(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    return json.loads(said(capsys, *args, "--json"))


def test_from_the_first_to_the_last(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = ("--db", ":memory:")  # a file like any other
    said(capsys, "init", *db, "--trusted", "release.pub")
    assert (folder / ":memory:.key.pem").stat().st_mode & 0o77 == 0
    (folder / "devices.csv").write_text(f"name,region,chip\na,eu,{CHIP}\nb,us,{CHIP}\n")
    added = asked(capsys, "add", *db, "--csv", "devices.csv")["devices"]
    assert [d["name"] for d in added] == ["a", "b"] and len({d["token"] for d in added}) == 2
    assert "token" in said(capsys, "add", *db, "c", "--region", "eu", "--chip", CHIP)
    model, canary = model_file(folder, 3, folder / "release.pem"), canary_file(folder)
    begun = asked(capsys, "rollout", *db, str(model), "--canary", str(canary), "--groups", "region=eu",
                  "--stages", "50%,100%")  # fmt: skip
    assert (begun["rollout"], begun["release"]) == (1, 3)
    (rollout,) = asked(capsys, "status", *db)["rollouts"]
    assert (rollout["state"], rollout["most"], rollout["devices"]) == ("running", 1, {"offered": 1, "waiting": 1})
    assert "running  1 of 2, 1 devices at most" in said(capsys, "status", *db)
    assert asked(capsys, "rollback", *db)["rollouts"] == [1]
    assert "was rolled back: --force offers it again" in said(capsys, "rollout", *db, str(model), code=1)
    rows = asked(capsys, "audit", *db)["rows"]
    assert [row["what"] for row in rows] == ["made", "added", "added", "rollout", "stage", "stopped"]
    said(capsys, "audit", *db, "--head", rows[2]["sha256"])
    assert "rows were taken away" in said(capsys, "audit", *db, "--head", "0" * 64, code=1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "line 1: the columns are name,region,chip"),
        (b"name,chip,region\n", "line 1: the columns are name,region,chip"),
        (b"name,region,chip\na,eu\n", "line 2: it has 2 columns, not 3"),
        (b"name,region,chip\na,eu,ascend-310\nb,eu,unknown-9\n", "line 3: unknown target 'unknown-9'"),
        (b"name,region,chip\na,eu,ascend-310\na,us,ascend-310\n", "there is a device a already"),
        (b"name,region,chip\n../a,eu,ascend-310\n", "'../a' cannot be the name"),
        (b'name,region,chip\n"a,eu,ascend-310\n', "it is no CSV in UTF-8"),
        (b"name,region,chip\n\xff,eu,ascend-310\n", "it is no CSV in UTF-8"),
    ],
)
def test_tables_that_are_not_added(
    folder: Path, capsys: pytest.CaptureFixture[str], content: bytes, why: str
) -> None:
    said(capsys, "init", "--db", "f.sqlite", "--trusted", "release.pub")
    (folder / "d.csv").write_bytes(content)
    assert why in said(capsys, "add", "--db", "f.sqlite", "--csv", "d.csv", code=1)
    assert asked(capsys, "status", "--db", "f.sqlite")["devices"] == []


def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "f.sqlite.key.pem").write_text("taken")
    who = ("--name", "a", "--folder", "d", "--trusted", "release.pub")
    for args, why in (
        (("init", "--db", "f.sqlite", "--trusted", "release.pub"), "f.sqlite.key.pem: File exists"),
        (("init", "--db", "g.sqlite", "--trusted", "release.pem"), "it has no public key in PEM"),
        (("init", "--db", "g.sqlite", "--trusted", "none.pub"), "none.pub: No such file"),
        (("status", "--db", "none.sqlite"), "none.sqlite: No such file"),
        (("status", "--db", "release.pub"), "release.pub: it is no database of a fleet"),
        (("agent", "--server", "ftp://x", *who), "say http://HOST:PORT"),
        (("agent", "--server", "http://x:99999", *who), "no such port"),
        (("agent", "--server", "http://[::1", *who), "say http://HOST:PORT"),
        (("agent", "--server", f"http://{'x' * 64}.y", *who), "say http://HOST:PORT"),
        (("serve", "--db", "none.sqlite", "--port", "65536"), "--port 65536: a port is 0 to 65535"),
        (("simulate", "--poll", "0s"), "--poll 0s: say 0.01 s to 20 s"),
        (("serve", "--db", "none.sqlite", "--poll", "30s"), "a device that says nothing for 30 s is silent"),
        (("agent", "--server", "http://127.0.0.1:1", *who, "--token", "t"), "http://127.0.0.1:1 does not answer"),
        (("agent", "--server", "http://127.0.0.1:1", *who[:-1], "release.pem"), "it has no public key in PEM"),
        (("simulate", "--devices", "0"), "say 1 to"),
        (("simulate", "--stages", "5%,1%,100%"), "the shares of stages have to grow"),
        (("simulate", "--soak", "soon"), "--soak: 'soon' is no time"),
        (("simulate", "--loss", "2"), "--loss 2: '2' is not a share"),
        ((), "the following arguments are required: ACTION"),
    ):  # fmt: skip
        assert why in said(capsys, *args, code=1)
    assert sorted(p.name for p in folder.iterdir()) == ["d", "f.sqlite.key.pem", "release.pem", "release.pub"]
    (folder / "f.sqlite.key.pem").unlink()
    said(capsys, "init", "--db", "f.sqlite", "--trusted", "release.pub")
    assert "File exists" in said(capsys, "init", "--db", "f.sqlite", "--trusted", "release.pub", code=1)
    for args, why in (
        (("add", "--db", "f.sqlite", "a"), "say NAME --region R --chip C, or --csv FILE.csv"),
        (("add", "--db", "f.sqlite", "a", "--region", "eu", "--chip", "x"), "a: unknown target 'x'"),
        (("rollback", "--db", "f.sqlite"), "there is no rollout to take back"),
        (("rollback", "--db", "f.sqlite", "--to", str(1 << 64)), "this release is none of this fleet"),
        (("rollout", "--db", "f.sqlite", "none.twm"), "none.twm: No such file"),
        (("rollout", "--db", "f.sqlite", "release.pub"), "it is no model file"),
        (("rollout", "--db", "f.sqlite", "none.twm", "--groups", "mars"), "say region=NAME or chip=NAME"),
    ):
        assert why in said(capsys, *args, code=1)
    said(capsys, "add", "--db", "f.sqlite", "a", "--region", "eu", "--chip", CHIP)
    whole, large = (str(model_file(folder, number, folder / "release.pem")) for number in (1, 1 << 54))
    canary = str(canary_file(folder))
    arrays = np.load(canary)
    np.savez(folder / "text.npz", expected=np.array(["a"]), **arrays)
    np.savez(folder / "values.npz", expected=np.zeros(1), **arrays)
    for args, why in (
        ((large,), f"its release is {1 << 54}, and a fleet has none above {1 << 53}"),
        ((whole, "--entry", "none"), "it has no function 'none'"),
        ((whole, "--canary", "text.npz"), "expected is an array of str32, not of numbers"),
        ((whole, "--canary", "values.npz", "--digest", "0" * 64), "values.npz has expected outputs"),
        ((whole, "--canary", canary, "--digest", "0"), "a SHA-256 has 64 hexadecimal digits"),
    ):
        assert why in said(capsys, "rollout", "--db", "f.sqlite", *args, code=1)
    other, _ = signing_keys(folder, "other", 2)
    foreign = str(model_file(folder, 1, other))
    assert "which is not trusted" in said(capsys, "rollout", "--db", "f.sqlite", foreign, code=1)
    (folder / "f.sqlite.key.pem").write_text("no key")
    assert "it is no private Ed25519 key" in said(capsys, "rollback", "--db", "f.sqlite", code=1)
    assert asked(capsys, "status", "--db", "f.sqlite") == {
        "schema": "tilewright.fleet/1", "action": "status", "releases": [], "rollouts": [],
        "devices": [{"running": 0, "wanted": 0, "count": 1, "seen": None}]}  # fmt: skip


def test_a_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "simulate", "--devices", "30", "--fault", "crash", "--runs", "2", "--seed", "5")
    assert found["runs"] == found["stopped"] == 2 and len(found["courses"]) == 2
    text = said(capsys, "simulate", "--devices", "30", "--fault", "crash", "--runs", "2", "--seed", "5")
    assert "first bad report to last device back, s" in text and "2 stopped; 0 devices" in text
