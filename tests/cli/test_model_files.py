"""`tilewright compile -o model.twm`, `update`, and who has to have signed a source."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tilewright as tw
from tilewright.api.files.reading import ModelFile
from tilewright.cli.main import main

MODEL = """
import jax.numpy as jnp, numpy as np
def prefill(x): return jnp.tanh(x)
def prefill_inputs(): return [np.ones((16, 64), "float32")]
def decode(x): return jnp.tanh(x)
def decode_inputs(): return [np.ones((1, 64), "float32")]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    for name in ("key", "other"):
        key = Ed25519PrivateKey.generate()
        Path(f"{name}.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        Path(f"{name}_public.pem").write_bytes(public)
    return tmp_path


def test_several_functions_and_chips(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["compile", "model.py", "-o", "m.twm", "--target", "ascend-910b1,ascend-310p3", "--licence", "MIT"]
    line += ["--entry", "prefill=prefill,decode=model.py:decode", "--metadata", "by=me", "--sign", "key.pem"]
    assert main([*line, "--sequence", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["entries"] == ["prefill", "decode"] and said["target"] == "ascend-910b1,ascend-310p3"
    manifest = ModelFile("m.twm").manifest
    assert sorted(manifest.entries) == ["decode", "prefill"]
    assert all(entry.chips == ["ascend-310p3", "ascend-910b1"] for entry in manifest.entries.values())
    assert (manifest.licence, manifest.metadata, manifest.sequence) == ("MIT", {"by": "me"}, 4)
    for chip in ("ascend-910b1", "ascend-310p3"):
        assert tw.load("m.twm", chip, "decode")(np.ones((1, 64), np.float32)).shape == (1, 64)
    trusting = ["report", "m.twm:decode", "--require-signature", "key_public.pem"]
    assert main([*trusting, "--least-sequence", "4"]) == 0
    capsys.readouterr()
    for more, wanted in (
        ([*trusting, "--least-sequence", "5"], "its release is 4, and none before 5 is taken"),
        (["run", "m.twm:decode", "--require-signature", "other_public.pem"], "which is not trusted"),
        (["run", "model.py:decode", "--require-signature", "key_public.pem"], "--require-signature is for model files"),
        (["run", "model.py:decode", "--least-sequence", "1"], "--least-sequence is for model files"),
    ):
        assert main(more) == 1
        assert wanted in capsys.readouterr().err


def test_versions_of_open_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["compile", "model.py:decode", "--shapes", "f32[b,64]", "-o", "m.twm"]
    assert main([*line, "--versions", "b=1", "--versions", "b=100"]) == 0
    entry = ModelFile("m.twm").manifest.entries["main"]
    assert [row["ranges"] for row in entry.open["versions"]["ascend-910b1"]] == [[[97, 128]]]
    assert [row["sizes"] for row in entry.open["alone"]["ascend-910b1"]] == [[1]]
    assert main(["report", "m.twm", "--at", "b=7"]) == 0
    assert main(["inspect", "m.twm"]) == 0
    out = capsys.readouterr().out
    assert "f32[b,64]" in out and "ascend-910b1  stablehlo" in out


def test_update(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w = np.ones((64, 8), np.float32)
    tw.save(tw.compile(lambda w, x: x @ w, w, np.ones((2, 64), np.float32)), "m.twm", weights={"w": w}, sign="key.pem")
    np.savez("new.npz", w=2 * w)
    line = ["update", "m.twm", "-o", "n.twm", "--values", "new.npz", "--sign", "key.pem"]
    assert main([*line, "--require-signature", "key_public.pem"]) == 0
    assert main(["verify-file", "n.twm", "--require-signature", "key_public.pem"]) == 0
    found = tw.load("n.twm", least_sequence=1)(x=np.ones((2, 64), np.float32))
    np.testing.assert_array_equal(found, np.full((2, 8), 128))
    np.savez("wrong.npz", v=w)
    for more, wanted in (
        (["update", "m.twm", "-o", "o.twm", "--values", "wrong.npz"], "has no weight 'v'"),
        (["update", "m.twm", "-o", "o.twm", "--values", "model.py"], "not an .npz file of arrays"),
        ([*line[:3], "o.twm", *line[4:], "--require-signature", "other_public.pem"], "which is not trusted"),
    ):
        capsys.readouterr()
        assert main(more) == 1
        assert wanted in capsys.readouterr().err and not Path("o.twm").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--entry", "prefill"], "--entry prefill: write NAME=SOURCE"),
        (["--entry", "a=prefill,a=decode"], "there are two functions a"),
        (["--entry", "a b=prefill"], "write NAME=SOURCE"),
        (["--entry", "a=nothing"], "has no function nothing"),
        (["--entry", "a=prefill", "--shapes", "f32[2,2]"], "leave --shapes and --inputs out"),
        (["--entry", "a=prefill", "--metadata", "x"], "--metadata x: write NAME=TEXT"),
        (["--entry", "a=prefill", "--versions", "b=1"], "has no open sizes, which --versions is for"),
        (["--entry", "a=prefill", "--target", "ascend-910b1,ascend-1"], "ascend-1"),
    ],
)
def test_what_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str) -> None:
    assert main(["compile", "model.py", "-o", "m.twm", *more]) == 1
    assert said in capsys.readouterr().err and not Path("m.twm").exists()


def test_options_of_model_files_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--entry", "a=decode"], ["--versions", "b=1"], ["--licence", "MIT"], ["--metadata", "a=b"]):
        assert main(["compile", "model.py:decode", *option]) == 1
        assert f"{option[0]} is for model files" in capsys.readouterr().err
    assert main(["compile", "model.py:decode", "--target", "ascend-910b1,ascend-310"]) == 1
    assert "several chips are for report" in capsys.readouterr().err
