"""The container of model files: the same bytes for the same members, aligned places, and nothing hostile is read."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.modelfile.archive import ALIGNMENT, PAGE, Archive, Member, ModelFileError, write_archive

MEMBERS = {"a.json": b"{}", "folder/b.bin": bytes(range(256)) * 40, "empty": b""}


def written(path: Path) -> Path:
    write_archive(path, (Member(n, len(c), (c,), PAGE if "b" in n else ALIGNMENT) for n, c in MEMBERS.items()))
    return path


def test_members_come_back(tmp_path: Path) -> None:
    path = written(tmp_path / "m.twm")
    archive = Archive(path)
    assert {name: archive.read(name, 1 << 20) for name in archive.places} == MEMBERS
    assert all(place.begin % ALIGNMENT == 0 for place in archive.places.values())
    assert archive.places["folder/b.bin"].begin % PAGE == 0
    view = archive.view("folder/b.bin")
    with pytest.raises(ModelFileError, match=r"m\.twm: it has no other$"):
        archive.view("other")
    with pytest.raises(ModelFileError, match=r"folder/b\.bin has 10240 bytes, and no more than 100 are read"):
        archive.read("folder/b.bin", 100)
    del archive
    assert bytes(view[:4]) == b"\0\1\2\3"  # what is mapped stays
    assert zipfile.ZipFile(path).testzip() is None and zipfile.ZipFile(path).read("a.json") == b"{}"
    assert path.read_bytes() == written(tmp_path / "n.twm").read_bytes()


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../b", ".hidden", "a b", "", "a\\b", "ä"])
def test_names_that_leave_the_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match="cannot be the name of a member"):
        write_archive(tmp_path / "m.twm", [Member.of(name, b"")])
    assert not [*tmp_path.iterdir()]
    if name:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr(name, b"x")
        (tmp_path / "z.twm").write_bytes(stream.getvalue())
        with pytest.raises(ModelFileError):
            Archive(tmp_path / "z.twm")


def test_what_is_written_is_what_was_said(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="a is a member twice"):
        write_archive(tmp_path / "m.twm", [Member.of("a", b""), Member.of("a", b"")])
    with pytest.raises(ModelFileError, match="a has 3 bytes, and was said to have 4"):
        write_archive(tmp_path / "m.twm", [Member("a", 4, (b"abc",))])
    assert not [*tmp_path.iterdir()]


def compressed(archive: zipfile.ZipFile) -> None:
    archive.writestr(zipfile.ZipInfo("a"), b"0" * 1000, zipfile.ZIP_DEFLATED)


def twice(archive: zipfile.ZipFile) -> None:
    archive.writestr("a", b"1")
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("a", b"2")


def commented(archive: zipfile.ZipFile) -> None:
    archive.writestr("a", b"1")
    archive.comment = b"more"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (compressed, "a is compressed or encrypted"),
        (twice, "a is not right behind the member before it"),
        (commented, "it does not end as one does"),
    ],
)
def test_zips_of_others(tmp_path: Path, make: Callable[[zipfile.ZipFile], None], said: str) -> None:
    with zipfile.ZipFile(tmp_path / "m.twm", "w") as archive:
        make(archive)
    with pytest.raises(ModelFileError, match=said):
        Archive(tmp_path / "m.twm")


def test_no_file_of_ours(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"hello", b"PK\5\6" + b"\0" * 17, b"\x7fELF" * 100)):
        path = tmp_path / f"{number}.twm"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="it is no model file"):
            Archive(path)
    with pytest.raises(OSError, match="No such file"):
        Archive(tmp_path / "none.twm")


def test_damage(tmp_path: Path) -> None:
    """Every byte of the head and tail of a file flipped, cuts anywhere: what opens has the same places."""
    whole, random_ = written(tmp_path / "m.twm").read_bytes(), random.Random(0)
    places = dict(Archive(tmp_path / "m.twm").places)
    path = tmp_path / "d.twm"
    refused = 0
    for at in range(len(whole)):
        if 400 < at < len(whole) - 400 and random_.random() > 0.01:
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << random_.randrange(8))]) + whole[at + 1 :])
        try:
            found = Archive(path).places
            assert dict(found) == places or found.keys() != places.keys()
        except ModelFileError:
            refused += 1
    assert refused > 60
    for _ in range(200):
        path.write_bytes(whole[: random_.randrange(len(whole))])
        with pytest.raises(ModelFileError):
            Archive(path)
