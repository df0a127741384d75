"""The container of model files: the same bytes for the same members, aligned places, and nothing hostile is read."""

from __future__ import annotations

import io
import mmap
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.modelfile.archive import (
    ALIGNMENT,
    MOST_BYTES,
    MOST_LIST,
    MOST_NAME,
    PAGE,
    Archive,
    Member,
    ModelFileError,
    write_archive,
    write_members,
)

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


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../b", ".hidden", "a b", "", "a\\b", "ä", "a" * 70_000])
def test_names_that_leave_the_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match="cannot be the name of a member"):
        write_archive(tmp_path / "m.twm", [Member.of(name, b"")])
    assert not [*tmp_path.iterdir()]
    if 0 < len(name) <= MOST_NAME:
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


class Sparse(io.FileIO):
    """A file in which long runs of zeros are holes."""

    def write(self, data: object) -> int:
        size = len(memoryview(data))  # pyright: ignore[reportArgumentType]
        if size <= CHUNK:
            return super().write(data)  # pyright: ignore[reportArgumentType]
        self.seek(size, io.SEEK_CUR)
        return size


CHUNK = 1 << 20


def large(path: Path, count: int) -> Path:
    """A file with so many members of 1 GiB of zeros, and one behind them."""
    zeros = memoryview(mmap.mmap(-1, 1 << 30))
    with Sparse(path, "w") as stream:
        members = [Member(f"weights/{i}", len(zeros), (zeros,), PAGE, crc=0) for i in range(count)]
        write_members(stream, [*members, Member.of("z", b"last")])  # pyright: ignore[reportArgumentType]
    return path


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_files_of_many_gibibytes(tmp_path: Path, count: int) -> None:
    """Behind 2 GiB zipfile writes an end of 64 bits, behind 4 GiB places of members, too."""
    archive = Archive(large(tmp_path / "m.twm", count))
    assert archive.bytes > count << 30 and len(archive.places) == count + 1
    assert archive.read("z", 4) == b"last" and bytes(archive.view("weights/0", 5, 7)) == b"\0\0"


def test_ends_of_64_bits_that_lie(tmp_path: Path) -> None:
    path = large(tmp_path / "m.twm", 2)
    size = path.stat().st_size
    with path.open("r+b") as stream:
        for at in range(size - 22 - 20 - 56, size):
            stream.seek(at)
            (old,) = stream.read(1)
            for new in (old ^ 1, old ^ 0x80):
                stream.seek(at)
                stream.write(bytes([new]))
                stream.flush()
                if size - 98 + 12 <= at < size - 98 + 16:  # versions of zip
                    Archive(path)
                    continue
                with pytest.raises(ModelFileError):
                    Archive(path)
            stream.seek(at)
            stream.write(bytes([old]))
    assert Archive(path).read("z", 4) == b"last"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [0x79E0_0000, 0x79E8_0000, 0x7FFF_FFFF, 1 << 31, 5 << 30])
def test_members_of_many_gibibytes(tmp_path: Path, size: int, known: bool) -> None:
    """In front of large members there are sizes of 64 bits: they are aligned all the same, and so is what follows."""
    if size > 1 << 31 and not known:
        size = (1 << 31) + 1  # its CRC is computed
    zeros = memoryview(mmap.mmap(-1, size))
    with Sparse(tmp_path / "m.twm", "w") as stream:
        members = [Member("a", size, (zeros,), PAGE, crc=0 if known else None), Member.of("b", b"1")]
        write_members(stream, members)  # pyright: ignore[reportArgumentType]
    archive = Archive(tmp_path / "m.twm")
    assert archive.places["a"].size == size and archive.read("b", 1) == b"1"
    assert archive.places["a"].begin % PAGE == 0 and archive.places["b"].begin % ALIGNMENT == 0


def test_members_that_are_too_large(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="and a member has 1099511627776 at most"):
        write_archive(tmp_path / "n.twm", [Member("a", MOST_BYTES + 1, ())])


def test_long_lists(tmp_path: Path) -> None:
    """A list that takes gibibytes of a file with holes is not read."""
    size = MOST_LIST + 1
    with (tmp_path / "m.twm").open("wb") as stream:
        stream.seek(size)
        stream.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0, 0, size, 0, 0))
    with pytest.raises(ModelFileError, match="its list of members is damaged"):
        Archive(tmp_path / "m.twm")
