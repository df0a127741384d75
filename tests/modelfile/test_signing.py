"""Signed model files: who is trusted, and that nothing of a file can be changed behind a signature."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tiering import ALL

import tilewright as tw
from tilewright.api.files.reading import ModelFile
from tilewright.cli.main import main
from tilewright.modelfile.archive import Archive, Member, ModelFileError, write_archive
from tilewright.modelfile.manifest import MANIFEST, canonical
from tilewright.modelfile.signing import SIGNATURE, ManifestSignature
from tilewright.modelfile.weights import CHUNK

PEM = serialization.Encoding.PEM


def pair(folder: Path, name: str, private: Any) -> tuple[Path, Path]:
    """The files of a private key and of its public one."""
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub"
    how = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(private.private_bytes(PEM, *how))
    public.write_bytes(private.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return secret, public


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("keys")
    made = {
        "ed": ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))),
        "ec": ec.derive_private_key(12345, ec.SECP256R1()),
        "other": ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)),
        "p384": ec.derive_private_key(12345, ec.SECP384R1()),
        "rsa": rsa.generate_private_key(65537, 2048),
    }
    return {name: pair(folder, name, key) for name, key in made.items()}


@pytest.fixture(scope="module")
def programs() -> list[tw.Program]:
    tables = [np.linspace(-n, n, 64, dtype=np.float32) for n in (1, 2)]
    return [tw.compile(lambda x, t=t: jnp.tanh(x) * t, tables[0]) for t in tables]


def test_who_is_trusted(keys: dict[str, tuple[Path, Path]], programs: list[tw.Program], tmp_path: Path) -> None:
    path = tmp_path / "m.twm"
    for name in ("ed", "ec"):
        programs[0].save(path, sign=keys[name][0], sequence=4)
        first = path.read_bytes()
        programs[0].save(path, sign=keys[name][0], sequence=4)
        assert path.read_bytes() == first  # also by ECDSA
        both = tmp_path / "both.pub"
        both.write_bytes(keys["ed"][1].read_bytes() + keys["ec"][1].read_bytes())
        for trusted in (keys[name][1], [keys["other"][1], keys[name][1]], both):
            tw.load(path, trusted=trusted, least_sequence=4)
        with pytest.raises(ModelFileError, match=r"m\.twm: it is signed by the key .{16}, which is not trusted"):
            tw.load(path, trusted=keys["other"][1])
        with pytest.raises(ModelFileError, match=r"its release is 4, and none before 5 is taken"):
            tw.load(path, least_sequence=5)
        tw.load(path)  # nobody asks
    programs[0].save(path)
    with pytest.raises(ModelFileError, match="it is not signed"):
        tw.load(path, trusted=keys["ed"][1])


def test_keys_that_are_none(keys: dict[str, tuple[Path, Path]], programs: list[tw.Program], tmp_path: Path) -> None:
    path = tmp_path / "m.twm"
    for name in ("rsa", "p384"):
        with pytest.raises(ModelFileError, match="keys are Ed25519, or ECDSA over P-256"):
            programs[0].save(path, sign=keys[name][0])
    with pytest.raises(ModelFileError, match="it is no private key in PEM without a passphrase"):
        programs[0].save(path, sign=keys["ed"][1])
    with pytest.raises(OSError, match="No such file"):
        programs[0].save(path, sign=tmp_path / "none.pem")
    assert not path.exists()
    programs[0].save(path, sign=keys["ed"][0])
    for name, said in (("rsa", "keys are Ed25519, or ECDSA over P-256"), ("p384", "keys are Ed25519")):
        with pytest.raises(ModelFileError, match=said):
            tw.load(path, trusted=keys[name][1])
    with pytest.raises(ModelFileError, match="it has no public key in PEM"):
        tw.load(path, trusted=keys["ed"][0])
    (tmp_path / "bad.pub").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    with pytest.raises(ModelFileError, match="a public key in it cannot be read"):
        tw.load(path, trusted=tmp_path / "bad.pub")


def test_every_byte(keys: dict[str, tuple[Path, Path]], programs: list[tw.Program], tmp_path: Path) -> None:
    """A byte flipped anywhere, in turn: the file is refused, but where it is padding."""
    path, random_ = tmp_path / "m.twm", random.Random(0)
    programs[0].save(path, sign=keys["ed"][0])
    good = path.read_bytes()
    places = Archive(path).places.values()
    inside = {at for place in places for at in range(place.begin, place.end)}
    refused = harmless = 0
    for at in range(len(good)) if ALL else sorted(random_.sample(range(len(good)), 1500)):
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << random_.randrange(8))]) + good[at + 1 :])
        try:
            file = ModelFile(path)
            file.trusted_by([keys["ed"][1]])
            file.check_whole()
            assert at not in inside
            harmless += 1
        except ModelFileError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017  # the sentence matters, not that there is one
    assert refused > 500 and harmless > 100


def test_a_large_file(keys: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Flips and cuts of a file of many chunks, each taken back: refused, or a flip of what is padding. The chunk that
    was changed, and all texts, are looked at; what takes memory is that chunk."""
    path, random_ = tmp_path / "m.twm", random.Random(1)
    weights = {f"w{i}": np.random.default_rng(i).standard_normal((1024, 1100), np.float32) for i in range(10)}
    program = tw.compile(lambda params, x: x @ params["w3"], weights, np.ones((1, 1024), np.float32))
    tw.save(program, path, weights={"params": weights}, sign=keys["ed"][0])
    size, places = path.stat().st_size, Archive(path).places
    inside = sorted((place.begin, place.end, name) for name, place in places.items())
    assert size > 40 * CHUNK

    def refused(at: int) -> bool:
        member = next((name for begin, end, name in inside if begin <= at < end), None)
        try:
            file = ModelFile(path)
            file.trusted_by([keys["ed"][1]])
            for name, facts in file.manifest.members.items():
                if not facts.root:
                    file.content(name)
                elif name == member:
                    chunk = (at - places[name].begin) // CHUNK * CHUNK
                    file.weights(name, chunk, min(CHUNK, facts.size - chunk))
        except ModelFileError as error:
            assert "\n" not in str(error)  # noqa: PT017  # the sentence matters, not that there is one
            return True
        assert member is None
        return False

    def cut(length: int) -> bool:
        with path.open("r+b") as stream:
            stream.seek(length)
            tail = stream.read()
            stream.truncate(length)
            gone = refused(length - 1)
            stream.seek(length)
            stream.write(tail)
        return gone

    heads = [at for begin, end, name in inside if not name.startswith("weights") for at in range(begin - 60, end)]
    for turn in range(20_000 if ALL else 300):
        at = random_.choice(heads) if turn % 3 == 0 else random_.randrange(size)
        with path.open("r+b") as stream:
            stream.seek(at)
            (old,) = stream.read(1)
            stream.seek(at)
            stream.write(bytes([old ^ (1 << random_.randrange(8))]))
            stream.flush()
            refused(at)
            stream.seek(at)
            stream.write(bytes([old]))
        if turn % 50 == 0:
            assert cut(random_.randrange(size))
    assert not refused(-1)


def members_of(path: Path) -> dict[str, bytes]:
    archive = Archive(path)
    return {name: archive.read(name, 1 << 30) for name in archive.places}


def test_members_of_others(keys: dict[str, tuple[Path, Path]], programs: list[tw.Program], tmp_path: Path) -> None:
    """Any member of one signed file in the place of the same one of another one."""
    for number, program in enumerate(programs):
        program.save(tmp_path / f"{number}.twm", sign=keys["ed"][0])
    one, two = (members_of(tmp_path / f"{number}.twm") for number in (0, 1))
    differing = [name for name in one if one[name] != two[name]]
    assert len(differing) >= 4
    for name in differing:
        write_archive(tmp_path / "m.twm", [Member.of(n, two[n] if n == name else c) for n, c in one.items()])
        with pytest.raises(ModelFileError):  # noqa: PT012  # one of three says so
            file = ModelFile(tmp_path / "m.twm")
            file.trusted_by([keys["ed"][1]])
            file.check_whole()


def test_manifests_that_are_made_up(programs: list[tw.Program], tmp_path: Path) -> None:
    """Fields of a manifest changed at random: one sentence, or a program."""
    programs[0].save(tmp_path / "m.twm")
    members, random_ = members_of(tmp_path / "m.twm"), random.Random(1)
    values: list[Any] = [None, -1, 2**70, 0.5, "", "x" * 300, [], {}, [[]], True, "\ud800", "ascend-310", ["f32"]]

    def changed(said: Any) -> Any:
        if isinstance(said, dict) and said and random_.random() < 0.8:
            key = random_.choice(sorted(said))
            return {**said, key: changed(said[key])}
        if isinstance(said, list) and said and random_.random() < 0.8:
            at = random_.randrange(len(said))
            return [*said[:at], changed(said[at]), *said[at + 1 :]]
        return random_.choice(values)

    manifest = json.loads(members[MANIFEST])
    made = 0
    for _ in range(1000 if ALL else 150):
        content = {**members, MANIFEST: canonical(changed(manifest))}
        write_archive(tmp_path / "n.twm", [Member.of(name, c) for name, c in content.items()])
        try:
            tw.load(tmp_path / "n.twm").module()
            made += 1
        except (ModelFileError, tw.CompileError, tw.MachineError) as error:
            assert "\n" not in str(error)  # noqa: PT017  # the sentence matters, not that there is one
    assert made < 100


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"algorithm":1,"key":"a","signature":"aaaa"}', b"\xff"])
def test_signatures_that_are_none(content: bytes) -> None:
    with pytest.raises(ModelFileError, match="its signature cannot be read"):
        ManifestSignature.of_bytes(content)


def test_the_command_line(
    keys: dict[str, tuple[Path, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    secret, public = map(str, keys["ed"])
    (tmp_path / "f.tw").write_text("fn f(x: f32[8, 64]) -> f32[8, 64] {\n    return exp(x) + 1.0\n}\n")
    assert main(["compile", "f.tw", "-o", "m.twm", "--sign", secret]) == 0
    assert main(["verify-file", "m.twm", "--require-signature", public]) == 0
    assert "which is trusted" in capsys.readouterr().out
    assert main(["inspect", "m.twm"]) == 0
    assert "main      f32[8,64]  ascend-910b1  graph" in capsys.readouterr().out
    assert main(["inspect", "m.twm", "--json"]) == main(["verify-file", "m.twm", "--json"]) == 0
    capsys.readouterr()
    for line, said in (
        (["verify-file", "m.twm", "--require-signature", str(keys["other"][1])], "which is not trusted"),
        (["verify-file", "m.twm", "--least-sequence", "1"], "its release is 0, and none before 1 is taken"),
        (["inspect", "f.tw"], "it is no model file"),
        (["compile", "f.tw", "--sign", secret], "--sign is for model files"),
    ):
        assert main(line) == 1
        assert said in capsys.readouterr().err
    assert SIGNATURE in Archive("m.twm").places
