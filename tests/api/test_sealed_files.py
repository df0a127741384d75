"""Sealed programs: nothing of them is seen without their key, and with it they are what they were."""

from __future__ import annotations

import getpass
import inspect
import json
import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from tiering import ALL

import tilewright as tw
from tilewright.api.files.opening import opened_with
from tilewright.api.files.reading import ModelFile
from tilewright.cli.main import main
from tilewright.modelfile import sealing
from tilewright.modelfile.archive import Archive, Member, write_archive
from tilewright.modelfile.keys import Stretching

KEY = tw.Secret.of_key(bytes(range(32)))
TABLE = np.random.default_rng(0).standard_normal((300, 1200)).astype(np.float32)
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "schemas" / "cli.json").read_text())


def scaled_attention_block(parameters_of_layer: dict[str, Any], hidden_states: jax.Array) -> jax.Array:
    return jnp.tanh(hidden_states @ parameters_of_layer["projection"]) @ TABLE


def arguments() -> tuple[dict[str, Any], np.ndarray]:
    draw = np.random.default_rng(1)
    return {"projection": draw.standard_normal((80, 300)).astype("f")}, draw.standard_normal((24, 80)).astype("f")


@pytest.fixture(scope="module")
def program() -> tw.Program:
    return tw.compile(scaled_attention_block, *arguments())


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passphrases are stretched less."""
    monkeypatch.setattr(sealing, "STRETCHING", Stretching(1 << 10, 8, 1))


@pytest.fixture
def signing(tmp_path: Path) -> tuple[str, str]:
    """The files of a private key and of its public one."""
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    secret, public = tmp_path / "key.pem", tmp_path / "trusted.pem"
    secret.write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    public.write_bytes(private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return str(secret), str(public)


def test_there_and_back(program: tw.Program, tmp_path: Path) -> None:
    params, x = arguments()
    wanted, path = np.asarray(program(params, x)), tmp_path / "m.twm"
    for secret in (KEY, tw.Secret.of_passphrase("correct horse")):
        program.save(path, weights={"parameters_of_layer": params}, targets=["ascend-310p3"], encrypt=secret)
        for mode in ("typed", "bytes"):
            again = tw.load(path, key=secret)
            np.testing.assert_array_equal(again(params, x, mode=mode), wanted)
            np.testing.assert_array_equal(again(hidden_states=x, mode=mode), wanted)  # its own weights
        assert again.report().microseconds == program.report().microseconds
        assert tw.load(path, "ascend-310p3", key=secret).target == "ascend-310p3"
        ModelFile(path, secret).check_whole()
        with opened_with(secret):
            assert tw.verify(str(path), params, x).ok
        with pytest.raises(tw.ModelFileError, match=r"it is sealed with a (key|passphrase): give that, as --\1 FILE"):
            tw.load(path)
        with pytest.raises(tw.CompileError, match=r"or tw\.load\(key=\.\.\.\)"):
            tw.compile(path)
    program.save(path)
    with pytest.raises(tw.ModelFileError, match=r"m\.twm: it is not sealed: leave the key or passphrase out"):
        tw.load(path, key=KEY)


def test_nothing_is_seen(program: tw.Program, tmp_path: Path) -> None:
    """Neither 16 bytes of a weight, nor a name or a line of the source, nor what is compiled of it."""
    params, _ = arguments()
    told: dict[str, Any] = {"licence": "for nobody else", "metadata": {"written_by": "somebody"}, "sequence": 77}
    made = {"decoder_layer": program}
    path = tmp_path / "m.twm"
    weights = {"parameters_of_layer": params}
    tw.save(made, tmp_path / "plain.twm", weights=weights, **told)
    tw.save(made, path, weights=weights, encrypt=KEY, **told)

    def windows(content: bytes) -> set[bytes]:
        return {content[at : at + 16] for at in range(len(content) - 15)}

    plain = Archive(tmp_path / "plain.twm")
    members = {name: plain.read(name, 1 << 30) for name in plain.places}
    texts = [content for name, content in members.items() if "weights/" not in name]
    assert len(texts) == 4 and sum(map(len, members.values())) > TABLE.nbytes
    archive = Archive(path)
    *numbers, manifest = archive.places
    shown = windows(b"".join(archive.read(name, 1 << 30) for name in numbers))
    assert not any(windows(content) & shown for content in members.values())
    said = json.loads(archive.read(manifest, 1 << 20))
    assert not {*said} - {"format", "version", "cipher", "derivation", "salt", "check", "members", "sequence"}
    assert all(facts.keys() == {"size", "sha256"} for facts in said["members"])
    found = path.read_bytes()
    words = [*told["metadata"], *told["metadata"].values(), told["licence"], scaled_attention_block.__name__,
             "parameters_of_layer", "hidden_states", "projection", "decoder_layer", "ascend", "mlir", "safetensors",
             Path(__file__).name, *map(str.strip, inspect.getsource(scaled_attention_block).splitlines())]  # fmt: skip
    assert sum(word.encode() in b"".join(texts) for word in words) > 8
    assert not [word for word in words if word.encode() in found]
    assert b'"sequence":77' in found  # that is said


def test_the_same_bytes(tmp_path: Path) -> None:
    """Of a program that is compiled again, as a plain file has them (test_files.py)."""
    for secret in (KEY, tw.Secret.of_passphrase("correct horse")):
        found = set[bytes]()
        for name in ("a.twm", "b.twm"):
            again = tw.compile(scaled_attention_block, *arguments())
            again.save(tmp_path / name, encrypt=secret)
            found.add((tmp_path / name).read_bytes())
        assert len(found) == 1


def test_every_byte(tmp_path: Path, signing: tuple[str, str]) -> None:
    """A byte flipped anywhere in a sealed and signed file: it is refused with the key and without, but where it is
    padding."""
    table = np.linspace(-1, 1, 64, dtype=np.float32)
    path, draw = tmp_path / "m.twm", random.Random(0)
    tw.compile(lambda x: jnp.tanh(x) * table, table).save(path, sign=signing[0], encrypt=KEY)
    good = path.read_bytes()
    inside = {at for place in Archive(path).places.values() for at in range(place.begin, place.end)}
    refused = harmless = 0
    with opened_with(KEY):
        for at in range(len(good)) if ALL else sorted(draw.sample(range(len(good)), 500)):
            path.write_bytes(good[:at] + bytes([good[at] ^ (1 << draw.randrange(8))]) + good[at + 1 :])
            try:
                file = ModelFile(path)
                file.trusted_by([signing[1]])
                file.check_whole()
                assert at not in inside
                harmless += 1
            except tw.ModelFileError as error:
                refused += 1
                assert "\n" not in str(error)  # noqa: PT017  # the sentence matters, not that there is one
    assert refused > 200 and harmless > 20


def test_another_program_behind_a_signature(program: tw.Program, tmp_path: Path, signing: tuple[str, str]) -> None:
    """Members of two files of one key and one signer, mixed, and manifests without their signatures."""
    other = tw.compile(lambda x: jnp.tanh(x) @ TABLE, np.ones((24, 300), np.float32))
    for name, each in (("a.twm", program), ("b.twm", other)):
        each.save(tmp_path / name, sign=signing[0], encrypt=KEY)
    one, two = (
        {name: archive.read(name, 1 << 30) for name in archive.places}
        for archive in (Archive(tmp_path / "a.twm"), Archive(tmp_path / "b.twm"))
    )
    assert one.keys() == two.keys() and len(one) == 8
    for name in one:
        write_archive(tmp_path / "m.twm", [Member.of(n, two[n] if n == name else c) for n, c in one.items()])
        with pytest.raises(tw.ModelFileError):  # noqa: PT012  # one of three says so
            file = ModelFile(tmp_path / "m.twm", KEY)
            file.trusted_by([signing[1]])
            file.check_whole()
    with pytest.raises(tw.ModelFileError, match="its release is 0, and none before 1 is taken"):
        tw.load(tmp_path / "a.twm", key=KEY, trusted=signing[1], least_sequence=1)
    assert tw.load(tmp_path / "a.twm", key=KEY, trusted=signing[1]).target == program.target


def private_bytes() -> int:
    """Bytes of memory of this process that no file has."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) << 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for memory")
def test_what_is_not_used_is_not_decrypted(tmp_path: Path) -> None:
    """A function with 64 MB of weights is loaded and priced without them; each is decrypted where it is used."""
    rows, path = 4, tmp_path / "m.twm"
    shapes = [jax.ShapeDtypeStruct((4096, 4096), "float32"), jax.ShapeDtypeStruct((rows, 4096), "float32")]
    made = tw.compile(lambda w, x: x + w[:rows], *shapes)
    wide = np.zeros((4096, 4096), np.float32)
    wide[:rows] = np.arange(4096)
    made.save(path, weights={"w": wide}, encrypt=KEY)
    del wide
    small = tmp_path / "small.twm"
    made.save(small, encrypt=KEY)
    tw.load(small, key=KEY).report()  # what is loaded once
    before = private_bytes()
    tracemalloc.start()
    try:
        program = tw.load(path, key=KEY)
        assert program.report().microseconds > 0
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 64 << 20
    assert private_bytes() - before < 32 << 20
    ModelFile(path, KEY).check_whole()  # a chunk at a time
    assert private_bytes() - before < 32 << 20
    np.testing.assert_array_equal(program(x=np.ones((rows, 4096), "f")), np.tile(np.arange(1, 4097, dtype="f"), (4, 1)))


def test_the_command_line(
    tmp_path: Path,
    signing: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.tw").write_text("fn f(x: f32[8, 64]) -> f32[8, 64] {\n    return exp(x) + 1.0\n}\n")
    (tmp_path / "m.key").write_text(bytes(range(32)).hex() + "\n")
    (tmp_path / "other.key").write_bytes(bytes(32))
    (tmp_path / "words").write_text("correct horse\n")
    monkeypatch.setenv("WORDS", "correct horse")

    def said(*line: str) -> str:
        assert main(line) == 0
        return capsys.readouterr().out

    def seen(command: str, *line: str) -> dict[str, Any]:
        found = json.loads(said(command, *line, "--json"))
        jsonschema.validate(found, {"$ref": f"#/$defs/{command}", "$defs": SCHEMA["$defs"]})
        return found

    said("compile", "f.tw", "-o", "k.twm", "--encrypt-key", "m.key", "--sign", signing[0], "--sequence", "5")
    said("compile", "f.tw", "-o", "p.twm", "--encrypt-passphrase", "words")
    said("compile", "f.tw", "-o", "e.twm", "--encrypt-passphrase", "env:WORDS")
    said("compile", "f.tw", "-o", "plain.twm")
    assert Path("p.twm").read_bytes() == Path("e.twm").read_bytes()

    trusted = ("--require-signature", signing[1], "--least-sequence", "5")
    assert "which is trusted; what is sealed in it was not looked at" in said("verify-file", "k.twm", *trusted)
    assert said("verify-file", "k.twm", "--key", "m.key", *trusted).endswith("which is trusted\n")
    assert [seen("verify-file", "k.twm", *key)["inside"] for key in ((), ("--key", "m.key"))] == [False, True]
    closed = said("inspect", "k.twm")
    assert "sealed with a key (AES-256-GCM-SIV); release 5" in closed and "f32" not in closed
    assert "signed by" in closed and [line.split()[0] for line in closed.splitlines()[2:]] == ["0", "1", "2", "3"]
    assert "f32[8,64]  ascend-910b1" in said("inspect", "k.twm", "--key", "m.key")
    assert "sealed with a passphrase" in said("inspect", "p.twm", "--passphrase", "words")
    assert seen("inspect", "k.twm").keys() == {"schema", "file", "bytes", "key", "sealed"}
    assert seen("inspect", "k.twm", "--key", "m.key")["entries"].keys() == {"main"}
    assert seen("inspect", "plain.twm")["sealed"] is None

    for source, *key in (("k.twm", "--key", "m.key"), ("p.twm:main", "--passphrase", "env:WORDS")):
        assert "microseconds" in seen("report", source, *key)
        for command in ("run", "verify", "compile"):
            said(command, source, *key)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers = iter(["correct horse", "new one", "new one", "new one", "another"])
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(answers))
    said("compile", "p.twm", "--passphrase", "ask", "-o", "n.twm", "--encrypt-passphrase", "ask")
    tw.load("n.twm", key=tw.Secret.of_passphrase("new one"))

    before = sorted(tmp_path.iterdir())
    for line, wrong in (
        (["report", "k.twm"], "k.twm: it is sealed with a key: give that, as --key FILE"),
        (["report", "k.twm", "--key", "other.key"], "k.twm: other.key is not the key of the file"),
        (["report", "k.twm", "--passphrase", "words"], "it is sealed with a key, not with a passphrase"),
        (["report", "p.twm", "--passphrase", "f.tw"], "f.tw: a passphrase is one line"),
        (["report", "p.twm", "--passphrase", "env:NONE"], "--passphrase env:NONE: there is no such environment var"),
        (["report", "plain.twm", "--key", "m.key"], "plain.twm: it is not sealed: leave the key or passphrase out"),
        (["report", "k.twm", "--key", "m.key", "--passphrase", "words"], "give either --key or --passphrase"),
        (["report", "k.twm", "--key", "none"], "none: No such file or directory"),
        (["report", "f.tw", "--key", "m.key"], "f.tw: --key is for model files"),
        (["inspect", "plain.twm", "--key", "m.key"], "it is not sealed"),
        (["verify-file", "k.twm", "--key", "other.key"], "other.key is not the key of the file"),
        (["verify-file", "k.twm", "--least-sequence", "6"], "its release is 5, and none before 6 is taken"),
        (["verify-file", "p.twm", "--require-signature", signing[1]], "p.twm: it is not signed"),
        (["compile", "f.tw", "--encrypt-key", "m.key"], "--encrypt-key is for model files"),
        (["compile", "f.tw", "-o", "n2.twm", "--encrypt-key", "f.tw"], "f.tw: a key is 32 bytes"),
        (["compile", "f.tw", "-o", "m.key", "--encrypt-key", "m.key"], "m.key: the command reads this file"),
        (["compile", "f.tw", "-o", "n2.twm", "--encrypt-passphrase", "ask"], "the two passphrases differ"),
    ):
        assert main(line) == 1, line
        assert wrong in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert main(["report", "p.twm", "--passphrase", "ask"]) == 1
    assert "--passphrase ask: there is no terminal to ask on" in capsys.readouterr().err


@pytest.mark.parametrize("sealing_fails", [KeyboardInterrupt, OSError])
def test_nothing_half_written(
    program: tw.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealing_fails: Callable[[], BaseException]
) -> None:
    def fail(*_: Any) -> bytes:
        raise sealing_fails()

    monkeypatch.setattr(sealing._Chunks, "sealed", fail)
    with pytest.raises((KeyboardInterrupt, OSError)):
        program.save(tmp_path / "m.twm", encrypt=KEY)
    assert not [*tmp_path.iterdir()]
