"""Sealed model files: what comes back, what nobody without the key can see or change, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import aead
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from hypothesis import given
from hypothesis import strategies as st
from tiering import ALL

from tilewright.modelfile import keys, sealing
from tilewright.modelfile.archive import Archive, Member, ModelFileError, write_archive
from tilewright.modelfile.keys import Secret
from tilewright.modelfile.manifest import MANIFEST, Manifest, MemberFacts, canonical, digest_of
from tilewright.modelfile.sealing import TAG, Seal, Unsealed, check_sealed, seal_of, sealed_members
from tilewright.modelfile.weights import CHUNK

KEY = Secret.of_key(bytes(range(32)))
OTHER = Secret.of_key(bytes(32))
PASSPHRASE = Secret.of_passphrase("correct horse")
STORED = CHUNK + TAG
"""Bytes of a whole chunk in a file."""


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{size} {seed}").randbytes(size)


def manifest_of(members: Mapping[str, bytes], sequence: int = 0) -> bytes:
    facts = {name: MemberFacts(len(content), digest_of(content)) for name, content in members.items()}
    return Manifest(facts, {}, sequence=sequence).to_bytes()


def sealed(path: Path, members: Mapping[str, bytes], secret: Secret = KEY, sequence: int = 0) -> Path:
    parts = [Member(name, len(c), (c[: len(c) // 3], memoryview(c)[len(c) // 3 :])) for name, c in members.items()]
    write_archive(path, sealed_members(manifest_of(members, sequence), parts, secret, sequence, None))
    return path


def opened(path: Path, secret: Secret = KEY) -> Unsealed:
    archive = Archive(path)
    seal = seal_of(archive)
    assert seal is not None
    return Unsealed(archive, seal, secret)


def all_of(file: Unsealed) -> dict[str, bytes]:
    """What is inside, where each member is what the manifest in it says."""
    manifest = Manifest.of_bytes(file.read(MANIFEST, 1 << 20))
    found = {name: file.read(name, 1 << 30) for name in file.places}
    for name, facts in manifest.members.items():
        if digest_of(found[name]) != facts.sha256:
            raise file.error(f"{name} is another one")
    return found


def outside(path: Path) -> dict[str, bytes]:
    archive = Archive(path)
    return {name: archive.read(name, 1 << 30) for name in archive.places}


def rewritten(path: Path, members: Mapping[str, bytes], /, **changed: Any) -> Path:
    """The file of these members with a manifest that fits them, as who has no key can make it: with these fields."""
    said = json.loads(members[MANIFEST])
    numbers = sorted((name for name in members if name.isdigit()), key=int)
    said["members"] = [{"size": len(members[n]), "sha256": digest_of(members[n])} for n in numbers]
    write_archive(path, [Member.of(n, c) for n, c in {**members, MANIFEST: canonical(said | changed)}.items()])
    return path


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passphrases are stretched less."""
    monkeypatch.setattr(sealing, "STRETCHING", keys.Stretching(16, 8, 1))


# -- there and back ------------------------------------------------------------------------------------------

SIZES = [0, 1, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5]


@given(st.lists(st.sampled_from(SIZES), max_size=4), st.randoms(use_true_random=False))
def test_members_come_back(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], draw: random.Random) -> None:
    path = tmp_path_factory.mktemp("sealed") / "m.twm"
    members = {f"{draw.randrange(10**9)}/{i}": noise(size, i) for i, size in enumerate(sizes)}
    file = opened(sealed(path, members))
    for name, content in members.items():
        begin, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        assert bytes(file.view(name, begin, end)) == content[begin:end]
        assert file.places[name].size == len(content)
    assert all_of(opened(path)) == {**members, MANIFEST: manifest_of(members)}
    whole = path.read_bytes()
    assert sealed(path, members).read_bytes() == whole
    assert not any(content in whole for content in members.values() if len(content) > 8)


def test_all_sizes(tmp_path: Path) -> None:
    members = {f"m{size}": noise(size) for size in SIZES}
    path = sealed(tmp_path / "m.twm", members, sequence=7)
    file = opened(path)
    assert all_of(file) == {**members, MANIFEST: manifest_of(members, 7)}
    with pytest.raises(ModelFileError, match=r"m\.twm: it has no other$"):
        file.view("other")
    with pytest.raises(ModelFileError, match=r"m17 has 17 bytes, and no more than 16 are read"):
        file.read("m17", 16)
    assert [*Archive(path).places] == [*map(str, range(len(SIZES) + 1)), MANIFEST]


def test_chunks_are_opened_when_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(5 * CHUNK)
    file = opened(sealed(tmp_path / "m.twm", {"a": content}))
    seen: list[tuple[int, int]] = []
    before = sealing._Chunks.opened

    def noted(self: Any, member: int, chunk: int, size: int, data: memoryview) -> bytes:
        seen.append((member, chunk))
        return before(self, member, chunk, size, data)

    monkeypatch.setattr(sealing._Chunks, "opened", noted)
    view = file.view("a", CHUNK + 5, 2 * CHUNK + 1)
    assert view == content[CHUNK + 5 : 2 * CHUNK + 1] and view.readonly
    assert seen == [(1, 1), (1, 2)]
    assert file.view("a", 2 * CHUNK, 3 * CHUNK + 1) == content[2 * CHUNK : 3 * CHUNK + 1]
    assert seen == [(1, 1), (1, 2), (1, 3)]  # what is in use is kept
    part = view[7:9]
    del view
    file.view("a", CHUNK, CHUNK + 1)
    assert len(seen) == 3 and part == content[CHUNK + 12 : CHUNK + 14]
    del part
    file.view("a", CHUNK, CHUNK + 1)
    assert seen[3:] == [(1, 1)]  # and what nobody uses is not


def test_the_format(tmp_path: Path) -> None:
    """A reader that was written from docs/model-file.md alone."""
    content = {"b": noise(CHUNK + 3), "a": noise(9)}
    for secret, kind in ((KEY, "key"), (PASSPHRASE, "scrypt")):
        zipped = ZipFile(sealed(tmp_path / "m.twm", content, secret, 3))
        said = json.loads(zipped.read("manifest.json"))
        assert (said["format"], said["version"], said["sequence"]) == ("tilewright-sealed", 1, 3)
        assert (said["cipher"], said["derivation"]["kind"]) == ("AES-256-GCM-SIV", kind)
        salt = bytes.fromhex(said["salt"])

        def hkdf(master: bytes, salt: bytes, purpose: bytes) -> bytes:
            extracted = hmac.digest(salt, master, "sha256")
            return hmac.digest(extracted, b"tilewright-sealed 1\0" + purpose + b"\1", "sha256")

        def stretched(salt: bytes, secret: Secret = secret, said: Any = said) -> bytes:
            if "n" not in said["derivation"]:
                return secret.content
            n, r, p = (said["derivation"][name] for name in "nrp")
            return hashlib.scrypt(secret.content, salt=salt, n=n, r=r, p=p, maxmem=1 << 28, dklen=32)

        manifest = manifest_of(content, 3)
        fixed = hkdf(stretched(b"tilewright-sealed 1\0"), b"tilewright-sealed 1\0", b"salt")
        assert salt == hmac.digest(fixed, manifest, "sha256")
        assert bytes.fromhex(said["check"]) == hkdf(stretched(salt), salt, b"check")
        cipher = AESGCMSIV(hkdf(stretched(salt), salt, b"data"))
        for number, plain in enumerate((manifest, content["a"], content["b"])):
            stored, found = zipped.read(str(number)), b""
            assert said["members"][number] == {"size": len(stored), "sha256": hashlib.sha256(stored).hexdigest()}
            for chunk in range(-(-len(stored) // (CHUNK + 16))):
                bound = b"tilewright-sealed chunk 1\0" + struct.pack(">IQQ", number, chunk, len(plain))
                part = stored[chunk * (CHUNK + 16) : (chunk + 1) * (CHUNK + 16)]
                found += cipher.decrypt(struct.pack(">IQ", number, chunk), part, bound)
            assert found == plain


def test_salts(tmp_path: Path, cheap: None) -> None:
    """Other programs and other secrets have other salts, checks and bytes; the same ones the same."""
    files = list[tuple[bytes, ...]]()
    for content in (b"one" * 50, b"two" * 50):
        for secret in (KEY, OTHER, PASSPHRASE, Secret.of_passphrase("correct horses")):
            found = outside(sealed(tmp_path / "m.twm", {"a": content}, secret))
            assert found == outside(sealed(tmp_path / "n.twm", {"a": content}, secret))
            said = json.loads(found[MANIFEST])
            files.append((found["0"], found["1"], said["salt"], said["check"]))
    for same in zip(*files, strict=True):
        assert len({*same}) == len(files)


# -- secrets -------------------------------------------------------------------------------------------------


def test_keys(tmp_path: Path) -> None:
    for number, content in enumerate((bytes(range(32)), bytes(range(32)).hex().encode(), b" ")):
        (tmp_path / str(number)).write_bytes(content if number < 2 else bytes(range(32)).hex().upper().encode() + b"\n")
        assert Secret.of_key_file(tmp_path / str(number)).content == KEY.content
    for content in (b"", bytes(31), bytes(33), b"0" * 63, b"g" * 64, b"0" * 66, b"\xff" * 64, bytes(5000)):
        (tmp_path / "k").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"k: a key is 32 bytes, or 64 hexadecimal digits"):
            Secret.of_key_file(tmp_path / "k")
    assert "0102" not in repr(KEY) and "horse" not in repr(PASSPHRASE)


def test_passphrases(tmp_path: Path) -> None:
    for content in (b"correct horse", b"correct horse\n", b"correct horse\r\n"):
        (tmp_path / "p").write_bytes(content)
        assert Secret.of_passphrase_file(tmp_path / "p").content == PASSPHRASE.content
    assert Secret.of_passphrase("pa\u0308ss").content == Secret.of_passphrase("p\u00e4ss").content
    for content in (b"", b"\n", b"a\nb", b"a\tb", b"a" * 1025, b"\0"):
        (tmp_path / "p").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"p: a passphrase is one line of 1 to 1024 bytes"):
            Secret.of_passphrase_file(tmp_path / "p")
    (tmp_path / "p").write_bytes(b"\xff")
    with pytest.raises(ModelFileError, match="p: a passphrase is text in UTF-8"):
        Secret.of_passphrase_file(tmp_path / "p")
    with pytest.raises(ModelFileError, match="a passphrase is"):
        Secret.of_passphrase("\ud800")


def test_other_secrets(tmp_path: Path, cheap: None) -> None:
    by_key = sealed(tmp_path / "k.twm", {"a": b"x"})
    by_passphrase = sealed(tmp_path / "p.twm", {"a": b"x"}, PASSPHRASE)
    for path, secret, said in (
        (by_key, OTHER, r"k\.twm: what was given is not the key of the file"),
        (by_passphrase, Secret.of_passphrase("other", "pw.txt"), r"pw\.txt is not the passphrase of the file"),
        (by_key, PASSPHRASE, "it is sealed with a key, not with a passphrase"),
        (by_passphrase, KEY, "it is sealed with a passphrase, not with a key"),
    ):
        with pytest.raises(ModelFileError, match=said):
            opened(path, secret)


def test_one_secret_opens_a_file(tmp_path: Path) -> None:
    """A file that says it is of another key is not decrypted to something else by that one."""
    members = outside(sealed(tmp_path / "m.twm", {"a": b"x" * 100}))
    salt = bytes.fromhex(json.loads(members[MANIFEST])["salt"])
    check = keys.derived(OTHER.master(salt, None), salt, b"check").hex()
    path = rewritten(tmp_path / "m.twm", members, check=check)
    with pytest.raises(ModelFileError, match="is not the key of the file"):
        opened(path, KEY)
    with pytest.raises(ModelFileError, match=r"manifest\.json is damaged: a chunk of it is not what was sealed"):
        opened(path, OTHER)


def test_without_cryptography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sealed(tmp_path / "m.twm", {"a": b"x"})

    def unsupported(key: bytes) -> AESGCMSIV:
        raise UnsupportedAlgorithm("AES-GCM-SIV is not supported")

    attempts: list[Callable[[], object]] = [lambda: opened(path), lambda: sealed(tmp_path / "n.twm", {"a": b"x"})]
    with monkeypatch.context() as patch:
        patch.setattr(aead, "AESGCMSIV", unsupported)
        for attempt in attempts:
            with pytest.raises(ModelFileError, match=r"AES-256-GCM-SIV, which OpenSSL has from 3\.2 on"):
                attempt()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for attempt in attempts:
        with pytest.raises(ModelFileError, match=r"sealed files need cryptography: pip install 'tilewright\[sign\]'"):
            attempt()
    assert [*tmp_path.iterdir()] == [path]


# -- changes -------------------------------------------------------------------------------------------------


def test_moved_chunks(tmp_path: Path) -> None:
    """Chunks and members moved, cut or taken from another file of the same key, with a manifest that fits."""
    content = {"a": noise(3 * CHUNK), "b": noise(3 * CHUNK, 1), "c": noise(20), "d": noise(20, 2)}
    good = outside(sealed(tmp_path / "m.twm", content))
    other = outside(sealed(tmp_path / "o.twm", {name: noise(len(c), 9) for name, c in content.items()}))
    first, second, third = (good["1"][i * STORED : (i + 1) * STORED] for i in range(3))
    changes: dict[str, dict[str, bytes]] = {
        "chunks swapped": {"1": second + first + third},
        "a chunk twice": {"1": first + first + third},
        "a chunk of another member": {"1": good["2"][:STORED] + second + third},
        "cut at a chunk": {"1": first + second},
        "a chunk more": {"1": first + second + third + third},
        "cut within a chunk": {"1": good["1"][:-1]},
        "empty": {"1": b""},
        "members swapped": {"1": good["2"], "2": good["1"]},
        "small members swapped": {"3": good["4"], "4": good["3"]},
        "a member of another file": {"3": other["3"]},
        "a chunk of another file": {"1": first + other["1"][STORED : 2 * STORED] + third},
        "the manifest of another file": {"0": other["0"]},
        "the manifest as a member": {"3": good["0"]},
    }
    assert all_of(opened(rewritten(tmp_path / "n.twm", good))).keys() == {*content, MANIFEST}
    for what, changed in changes.items():
        path = rewritten(tmp_path / "n.twm", good | changed)
        with pytest.raises(ModelFileError) as caught:
            all_of(opened(path))
        assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value), what
    fewer = {name: member for name, member in good.items() if name != "4"}
    with pytest.raises(ModelFileError, match="its manifest is not that of what is sealed in it"):
        opened(rewritten(tmp_path / "n.twm", fewer))
    with pytest.raises(ModelFileError, match="its manifest is not that of what is sealed in it"):
        opened(rewritten(tmp_path / "n.twm", good, sequence=9))  # another release than inside
    with pytest.raises(ModelFileError, match="1 is damaged: it ends within a chunk"):
        opened(rewritten(tmp_path / "n.twm", good | {"1": first + second + bytes(TAG)}))


def test_who_has_the_key_cannot_change_a_file_behind_its_manifest(tmp_path: Path) -> None:
    """What is signed is the plain manifest: it binds all that is inside, also for who can encrypt."""
    content = {"a": noise(50), "b": noise(60)}
    good = outside(sealed(tmp_path / "m.twm", content))
    salt = bytes.fromhex(json.loads(good[MANIFEST])["salt"])
    chunks = sealing._Chunks(keys.derived(KEY.content, salt, b"data"))
    manifest = manifest_of({**content, "a": bytes(50)})
    forged = {"0": chunks.sealed(0, 0, len(manifest), manifest), "1": chunks.sealed(1, 0, 50, bytes(50))}
    with pytest.raises(ModelFileError, match="a is another one"):
        all_of(opened(written(tmp_path / "n.twm", good | {"1": forged["1"]})))
    with pytest.raises(ModelFileError, match="0 is damaged: its bytes are not those of the manifest"):
        opened(written(tmp_path / "n.twm", good | forged))
    assert all_of(opened(rewritten(tmp_path / "n.twm", good | forged)))["a"] == bytes(50)  # but with another manifest


def written(path: Path, members: Mapping[str, bytes]) -> Path:
    write_archive(path, [Member.of(name, content) for name, content in members.items()])
    return path


def test_checked_without_the_key(tmp_path: Path) -> None:
    path = sealed(tmp_path / "m.twm", {"a": noise(2 * CHUNK), "b": b""})
    good, draw = path.read_bytes(), random.Random(0)
    inside = [at for place in Archive(path).places.values() for at in range(place.begin, place.end)]

    def check() -> None:
        archive = Archive(path)
        seal = seal_of(archive)
        assert seal is not None
        check_sealed(archive, seal)

    check()
    for at in draw.sample(inside, 60):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :])
        if Archive(path).places[MANIFEST].begin <= at:
            continue  # nothing says what the manifest is, but a signature
        with pytest.raises(ModelFileError, match="is damaged: its bytes are not those of the manifest"):
            check()


# -- hostile manifests ---------------------------------------------------------------------------------------


def test_hostile_stretching(tmp_path: Path, cheap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can have a reader take more memory or time than is said, nor ask scrypt for what it refuses."""
    good = outside(sealed(tmp_path / "m.twm", {"a": b"x"}, PASSPHRASE))
    monkeypatch.setattr(keys, "_stretched", lambda *_: pytest.fail("it is asked for"))
    for n, r, p in [(1 << 30, 8, 1), (1 << 18, 9, 1), (1 << 21, 2, 1), (2, 1 << 40, 1), (16, 8, 5), (16, 8, 1 << 40),
                    (0, 8, 1), (1, 8, 1), (-16, 8, 1), (17, 8, 1), (16, 0, 1), (16, 8, 0), (16, -8, 1),
                    (1 << 4000, 8, 1)]:  # fmt: skip
        path = rewritten(tmp_path / "n.twm", good, derivation={"kind": "scrypt", "n": n, "r": r, "p": p})
        with pytest.raises(ModelFileError, match="no more than 256 MiB and 4 passes are taken"):
            opened(path, PASSPHRASE)
    for n, r, p in [(1 << 18, 8, 4), (1 << 20, 2, 1)]:
        assert keys.Stretching(n, r, p) == Seal.of_bytes(
            canonical(json.loads(good[MANIFEST]) | {"derivation": {"kind": "scrypt", "n": n, "r": r, "p": p}})
        ).stretching


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "tilewright-model"}, "it is no sealed model file of Tilewright"),
        ({"version": 2}, "its version is 2, and this Tilewright reads 1"),
        ({"version": True}, "its manifest has no version"),
        ({"cipher": "none"}, "its cipher is none, and this Tilewright reads AES-256-GCM-SIV"),
        ({"salt": "00"}, "its salt is not 32 bytes"),
        ({"check": "zz" * 32}, "its check is not 32 bytes"),
        ({"derivation": {"kind": "md5"}}, "its key is derived by 'md5', which this Tilewright does not know"),
        ({"derivation": {}}, "the derivation of its manifest has no kind"),
        ({"members": {}}, "its manifest has no members"),
        ({"members": [1]}, "a member of its manifest is no table"),
        ({"members": []}, "0 has [0-9]+ bytes, and no by the manifest"),
        ({"sequence": -1}, "its sequence is not from 0 to"),
    ],
)
def test_manifests(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    good = outside(sealed(tmp_path / "m.twm", {"a": b"x"}))
    with pytest.raises(ModelFileError, match=said):
        opened(rewritten(tmp_path / "m.twm", good, **change))


def test_manifests_that_are_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields changed at random: one sentence, or what was sealed."""
    content = {"a": noise(30), "b": noise(CHUNK + 1)}
    good, draw = outside(sealed(tmp_path / "m.twm", content)), random.Random(2)
    values: list[Any] = [None, -1, 2**70, 0.5, "", "x" * 300, [], {}, [[]], True, "\ud800", "0" * 64, {"kind": "key"}]

    def changed(said: Any) -> Any:
        if isinstance(said, dict) and said and draw.random() < 0.8:
            key = draw.choice(sorted(said))
            return {**said, key: changed(said[key])}
        if isinstance(said, list) and said and draw.random() < 0.8:
            at = draw.randrange(len(said))
            return [*said[:at], changed(said[at]), *said[at + 1 :]]
        return draw.choice(values)

    made = 0
    for number in range(300):
        manifest = canonical(changed(json.loads(good[MANIFEST])))
        if number % 5 == 0:
            at = draw.randrange(len(manifest))
            manifest = manifest[:at] + draw.randbytes(draw.randrange(3)) + manifest[at + 1 :]
        path = written(tmp_path / "n.twm", good | {MANIFEST: manifest})
        try:
            assert all_of(opened(path, draw.choice([KEY, PASSPHRASE]))) == {**content, MANIFEST: manifest_of(content)}
            made += 1
        except ModelFileError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)  # noqa: PT017  # the sentence matters
    assert made < 60
    for manifest in (b"", b"[]", b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(ModelFileError, match="its manifest is no"):
            seal_of(Archive(written(tmp_path / "n.twm", good | {MANIFEST: manifest})))


def test_every_byte(tmp_path: Path) -> None:
    """A byte flipped anywhere: the file is refused, or has the same in it, where the byte is padding or a hash that
    only those without the key look at."""
    content = {"a": noise(100), "b": noise(40)}
    path, draw = sealed(tmp_path / "m.twm", content), random.Random(3)
    good, wanted = path.read_bytes(), {**content, MANIFEST: manifest_of(content)}
    places = Archive(path).places
    refused = 0
    for at in range(len(good)) if ALL else sorted(draw.sample(range(len(good)), 600)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :])
        try:
            assert all_of(opened(path)) == wanted
            assert not any(places[number].begin <= at < places[number].end for number in "012")
        except ModelFileError:
            refused += 1
    assert refused > 300
