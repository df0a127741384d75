"""The container of a model file: a zip whose members are stored as they are, each at an aligned place, so that they are
mapped and not copied. The same members make the same bytes, on any computer.

Everything that a reader is given may be hostile: what is out of place, said twice or larger than the file is refused
before anything is read of it, with one sentence.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO

from ..support.files import FilePath, drafted, open_plain

ALIGNMENT = 64
"""Bytes that members begin at multiples of, at least: a line of memory, so that arrays in them are aligned."""

PAGE = 4096
"""Bytes that members of weights begin at multiples of: what is mapped at once."""

PADDING = 0xD935
"""The extra field of a zip's member that is padding, as Android's zipalign writes it."""

DATE = (1980, 1, 1, 0, 0, 0)
"""Of all members: a zip has no earlier one."""

MOST_MEMBERS = 10_000
"""Members of a file, at most."""

MOST_BYTES = 1 << 40
"""Bytes of a member, at most."""

MOST_NAME = 1024
"""Characters of a member's name, at most."""

MOST_LIST = 64 << 20
"""Bytes of the list of members, at most: it is read as a whole."""

NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*(/[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*)*")
"""Names of members: folders of what begins with no dot."""

_LOCAL = struct.Struct("<4s5H3I2H")
_WIDE = 20
"""Bytes of the extra field with sizes of 64 bits, which is in front of members of about 2 GiB and more."""

_LOCAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x05\x06"
_END = struct.Struct("<4s4H2IH")
_LARGE_END, _LARGE_END_MAGIC = struct.Struct("<4sQ2H2I4Q"), b"PK\x06\x06"
_LOCATOR, _LOCATOR_MAGIC = struct.Struct("<4sIQI"), b"PK\x06\x07"
"""What a file of more than 2 GiB has before its end: numbers of 64 bits, and where these are."""


class ModelFileError(Exception):
    """A model file cannot be written or read as asked; the message is one sentence."""


@dataclass(frozen=True)
class Member:
    """What is to be written: a name, how many bytes, and these in parts. alignment: what the place of the first one is
    a multiple of; crc: the CRC-32 of the bytes, where it is known without reading them."""

    name: str
    size: int
    parts: Iterable[bytes | memoryview]
    alignment: int = ALIGNMENT
    crc: int | None = None

    @staticmethod
    def of(name: str, content: bytes | str) -> Member:
        """A member that is there as a whole."""
        data = content.encode() if isinstance(content, str) else content
        return Member(name, len(data), (data,))


def write_archive(path: FilePath, members: Iterable[Member]) -> None:
    """Writes a file of members, in their order, in one step: a reader sees the old one or the new one. Raises OSError,
    and ModelFileError for what no file may have."""
    with drafted(path) as stream:
        if not stream.seekable():
            raise ModelFileError(f"{os.fspath(path)}: a model file is written to a file, not to a pipe")
        write_members(stream, members)


def write_members(stream: IO[bytes], members: Iterable[Member]) -> None:
    """Writes members to a stream that is at its beginning. Raises ModelFileError."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for member in members:
            _check_writable(archive, member)
            info = zipfile.ZipInfo(member.name, DATE)
            info.create_system, info.external_attr, info.file_size = 3, 0o644 << 16, member.size
            wide = member.size * 1.05 > zipfile.ZIP64_LIMIT  # as zipfile asks itself
            begin = stream.tell() + _LOCAL.size + len(member.name) + 4 + _WIDE * wide
            padding = -begin % member.alignment
            info.extra = struct.pack("<HH", PADDING, padding) + bytes(padding)
            if member.crc is None:
                with archive.open(info, "w", force_zip64=wide) as out:
                    written = sum(map(out.write, member.parts))
            else:
                written = _write_known(archive, stream, info, member, wide)
            if written != member.size:
                raise ModelFileError(f"{member.name} has {written} bytes, and was said to have {member.size}")


def _write_known(
    archive: zipfile.ZipFile, stream: IO[bytes], info: zipfile.ZipInfo, member: Member, wide: bool
) -> int:
    """Writes a member whose CRC is known, as zipfile does without computing it; how many bytes it has. wide: whether
    its sizes are of 64 bits."""
    info.header_offset, info.CRC, info.compress_size = stream.tell(), member.crc or 0, member.size
    stream.write(info.FileHeader(zip64=wide))
    written = sum(map(stream.write, member.parts))
    archive.filelist.append(info)
    archive.NameToInfo[info.filename] = info
    archive.start_dir = stream.tell()
    return written


def _check_writable(archive: zipfile.ZipFile, member: Member) -> None:
    """Raises ModelFileError for a member that no file may have."""
    if not _can_be_name(member.name):
        raise ModelFileError(f"{member.name[:80]!r} cannot be the name of a member")
    if member.name in archive.NameToInfo:
        raise ModelFileError(f"{member.name} is a member twice")
    if member.size > MOST_BYTES:
        raise ModelFileError(f"{member.name} has {member.size} bytes, and a member has {MOST_BYTES} at most")
    if len(archive.NameToInfo) >= MOST_MEMBERS:
        raise ModelFileError(f"a file has {MOST_MEMBERS} members at most")


def _can_be_name(name: str) -> bool:
    """Whether a member may have a name."""
    return len(name) <= MOST_NAME and NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class MemberPlace:
    """Where a member is in a file, in bytes, and their CRC-32 as the file says it; 0 where it is sealed."""

    begin: int
    size: int
    crc: int = field(default=0, compare=False)

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.begin + self.size


class Archive:
    """A file of members, which is mapped as long as something of it is used. Nothing but the list of members is read
    before it is asked for."""

    def __init__(self, path: FilePath) -> None:
        """Raises ModelFileError for a file that is none of ours, and OSError for one that cannot be opened."""
        self.path = Path(path)
        with open_plain(path) as stream:
            self.bytes = os.fstat(stream.fileno()).st_size
            self.places: Mapping[str, MemberPlace] = dict(self._members(stream))
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def error(self, what: str) -> ModelFileError:
        """What is wrong with the file, with its name."""
        return ModelFileError(f"{self.path}: {what}")

    def view(self, name: str, begin: int = 0, end: int | None = None) -> memoryview:
        """The bytes of a member, or those from one place in it to another, as they are mapped: they are read where
        somebody looks at them. Raises ModelFileError."""
        place = self.places.get(name)
        if place is None:
            raise self.error(f"it has no {name}")
        return memoryview(self._map)[place.begin : place.end][begin:end]

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a member that has no more than so many. Raises ModelFileError."""
        view = self.view(name)
        if len(view) > most:
            raise self.error(f"{name} has {len(view)} bytes, and no more than {most} are read")
        return bytes(view)

    def _members(self, stream: BufferedReader) -> Iterator[tuple[str, MemberPlace]]:
        """The members by name, after all that can be out of place."""
        count, begin = self._end(stream)
        try:
            listed = zipfile.ZipFile(stream).infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, OSError, UnicodeDecodeError):
            raise self.error("it is no model file: its list of members cannot be read") from None
        if len(listed) != count:
            raise self.error("its list of members is damaged")
        seen: set[str] = set()
        end = 0
        for info in listed:
            if not _can_be_name(info.orig_filename):
                raise self.error(f"{info.orig_filename[:80]!r} cannot be the name of a member")
            if info.orig_filename in seen:
                raise self.error(f"{info.orig_filename} is a member twice")
            seen.add(info.orig_filename)
            place = self._place(stream, info)
            if info.header_offset != end or place.begin % ALIGNMENT:
                raise self.error(f"{info.orig_filename} is not right behind the member before it")
            end = place.end
            yield info.orig_filename, place
        if end != begin:
            raise self.error("something is behind its members")

    def _end(self, stream: BufferedReader) -> tuple[int, int]:
        """How many members the end of the file says there are, and where their list begins."""
        last = self.bytes - _END.size
        if last < 0:
            raise self.error("it is no model file: it is too short")
        stream.seek(last)
        magic, disk, first, here, count, size, begin, comment = _END.unpack(stream.read(_END.size))
        if magic != _END_MAGIC or disk or first or here != count or comment:
            raise self.error("it is no model file, or was cut off: it does not end as one does")
        large = last - _LOCATOR.size - _LARGE_END.size
        if large >= 0:
            stream.seek(large)
            numbers, locator = stream.read(_LARGE_END.size), stream.read(_LOCATOR.size)
            if locator[:4] == _LOCATOR_MAGIC:
                said = _LARGE_END.unpack(numbers)
                wanted = _LARGE_END_MAGIC, _LARGE_END.size - 12, 0, 0, count, count, size
                if locator != _LOCATOR.pack(_LOCATOR_MAGIC, 0, large, 1) or (*said[:2], *said[4:9]) != wanted:
                    raise self.error("its list of members is damaged")
                if begin != min(said[9], 0xFFFF_FFFF):
                    raise self.error("its list of members is damaged")
                last, begin = large, said[9]
        if count > MOST_MEMBERS or size > MOST_LIST or begin + size != last:
            raise self.error("its list of members is damaged")
        return count, begin

    def _place(self, stream: BufferedReader, info: zipfile.ZipInfo) -> MemberPlace:
        """Where a member is. Raises ModelFileError where that is not as we write it."""
        name = info.orig_filename
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits or info.file_size != info.compress_size:
            raise self.error(f"{name} is compressed or encrypted, which members of a model file are not")
        stream.seek(info.header_offset)
        head = stream.read(_LOCAL.size)
        if len(head) < _LOCAL.size:
            raise self.error(f"{name} is cut off")
        magic, *_, named, extra = _LOCAL.unpack(head)
        if magic != _LOCAL_MAGIC or stream.read(named) != name.encode():
            raise self.error(f"{name} is not where the list of members says it is")
        place = MemberPlace(info.header_offset + _LOCAL.size + named + extra, info.file_size, info.CRC)
        if place.end > self.bytes - _END.size:
            raise self.error(f"{name} is cut off")
        return place
