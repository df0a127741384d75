"""Model files that are sealed: members of an archive that only who has the key can read, and that lie in an archive
of the same kind under numbers (docs/model-file.md).

Number 0 is the manifest of what is inside; the others are the members that it names, in the order of their names. The
plain manifest outside of them has their sizes and hashes, and no word of what they are.
"""

from __future__ import annotations

import hmac
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ..support.files import FilePath
from .archive import Archive, Member, MemberPlace, ModelFileError
from .keys import KEY_BYTES, STRETCHING, Secret, Stretching, derived
from .manifest import (
    MANIFEST,
    MOST_MANIFEST,
    JsonTable,
    Manifest,
    ManifestError,
    MemberFacts,
    canonical,
    check_sequence,
    digest_of,
)
from .signing import SIGNATURE, signed_manifest
from .weights import CHUNK, chunks_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

FORMAT = "tilewright-sealed"
"""What the plain manifest of a sealed file says it is."""

VERSION = 1
"""Of this format."""

CIPHER = "AES-256-GCM-SIV"
"""How chunks are encrypted (RFC 8452)."""

TAG = 16
"""Bytes that a chunk is longer by when it is encrypted."""

FIRST = "0"
"""The member that has the manifest of what is inside; no plain file has it."""

DOMAIN = b"tilewright-sealed chunk 1\0"
"""Stands before what a chunk is bound to."""


@dataclass(frozen=True)
class Seal:
    """The plain manifest of a sealed file. members: what those under numbers are, in their order; salt: 32 bytes that
    the keys of the file are derived with; check: 32 bytes by which its secret is told from others; stretching: how a
    passphrase is made a key, None where the secret is one; sequence: as that inside says."""

    members: Sequence[MemberFacts]
    salt: bytes
    check: bytes
    stretching: Stretching | None
    sequence: int

    @property
    def noun(self) -> str:
        """What the secret is."""
        return "key" if self.stretching is None else "passphrase"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "cipher": CIPHER,
            "derivation": {"kind": "key"} if self.stretching is None else self.stretching.to_json(),
            "salt": self.salt.hex(),
            "check": self.check.hex(),
            "members": [facts.to_json() for facts in self.members],
            "sequence": self.sequence,
        }

    @staticmethod
    def of_bytes(content: bytes) -> Seal:
        """The plain manifest of a file. Raises ManifestError."""
        found = JsonTable.of_bytes("its manifest", content)
        if found.of("format", str) != FORMAT:
            raise ManifestError("it is no sealed model file of Tilewright")
        for field, known in (("version", VERSION), ("cipher", CIPHER)):
            if found.of(field, type(known)) != known:
                raise ManifestError(f"its {field} is {str(found.said[field])[:80]}, and this Tilewright reads {known}")
        listed: list[Any] = found.of("members", list)
        tables = [JsonTable("a member of its manifest", each) for each in listed]
        members = [MemberFacts(table.of("size", int), table.of("sha256", str)) for table in tables]
        made = Seal(
            members,
            _bytes_of(found, "salt"),
            _bytes_of(found, "check"),
            Stretching.of_json(JsonTable("the derivation of its manifest", found.of("derivation", dict))),
            found.of("sequence", int),
        )
        check_sequence(made.sequence)
        return made


def _bytes_of(found: JsonTable, name: str) -> bytes:
    """A field of 64 hexadecimal digits as bytes. Raises ManifestError."""
    try:
        value = bytes.fromhex(found.of(name, str))
    except ValueError:
        value = b""
    if len(value) != KEY_BYTES:
        raise ManifestError(f"its {name} is not {KEY_BYTES} bytes")
    return value


def seal_of(archive: Archive) -> Seal | None:
    """What a sealed file says without its key; None for a plain one. Raises ModelFileError, also where it has other
    members than it says."""
    if FIRST not in archive.places:
        return None
    try:
        seal = Seal.of_bytes(archive.read(MANIFEST, MOST_MANIFEST))
    except ManifestError as error:
        raise archive.error(str(error)) from None
    said = {str(number): facts.size for number, facts in enumerate(seal.members)}
    found = {name: place.size for name, place in archive.places.items() if name not in (MANIFEST, SIGNATURE)}
    for name in sorted(said.keys() | found.keys()):
        if said.get(name) != found.get(name):
            raise archive.error(f"{name} has {found.get(name, 'no')} bytes, and {said.get(name, 'no')} by the manifest")
        if said[name] and said[name] % (CHUNK + TAG) in range(1, TAG + 1):
            raise archive.error(f"{name} is damaged: it ends within a chunk")
    return seal


def check_sealed(archive: Archive, seal: Seal) -> None:
    """Reads the members of a sealed file as they lie there. Raises ModelFileError where one is damaged."""
    for number, facts in enumerate(seal.members):
        if digest_of(archive.view(str(number))) != facts.sha256:
            raise archive.error(f"{number} is damaged: its bytes are not those of the manifest")


class _Chunks:
    """Encrypts and decrypts the chunks of the members of a file."""

    def __init__(self, key: bytes) -> None:
        """Raises ModelFileError where OpenSSL cannot."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

        try:
            self._cipher: AESGCMSIV = AESGCMSIV(key)
        except UnsupportedAlgorithm:
            raise ModelFileError(f"sealed files need {CIPHER}, which OpenSSL has from 3.2 on: install a later "
                                 "cryptography") from None  # fmt: skip

    def sealed(self, member: int, chunk: int, size: int, data: bytes) -> bytes:
        """A chunk, encrypted, with its tag behind it."""
        return self._cipher.encrypt(_nonce(member, chunk), data, _bound(member, chunk, size))

    def opened(self, member: int, chunk: int, size: int, data: memoryview) -> bytes:
        """A chunk, decrypted. Raises cryptography's InvalidTag where it is none of these."""
        return self._cipher.decrypt(_nonce(member, chunk), data, _bound(member, chunk, size))


def _nonce(member: int, chunk: int) -> bytes:
    """12 bytes, for each chunk of a file others."""
    return struct.pack(">IQ", member, chunk)


def _bound(member: int, chunk: int, size: int) -> bytes:
    """What a chunk is bound to: its place, and how many bytes its member has when it is decrypted."""
    return DOMAIN + struct.pack(">IQQ", member, chunk, size)


def sealed_members(
    manifest: bytes, members: Sequence[Member], secret: Secret, sequence: int, key: FilePath | None
) -> Iterator[Member]:
    """The members of a sealed file, to be written one after the other: the plain manifest, and its signature by the
    private key in a PEM file if there is one, are known behind all others. manifest: of what is inside. Raises
    ModelFileError."""
    stretching = STRETCHING if secret.is_passphrase else None
    salt = secret.salt(manifest, stretching)
    master = secret.master(salt, stretching)
    chunks = _Chunks(derived(master, salt, b"data"))
    facts: list[MemberFacts] = []
    inside = [Member.of(MANIFEST, manifest), *sorted(members, key=lambda member: member.name)]
    for number, member in enumerate(inside):
        digest = sha256()

        def parts(number: int = number, member: Member = member, digest: Any = digest) -> Iterator[bytes]:
            for chunk, data in enumerate(chunks_of(member.parts)):
                part = chunks.sealed(number, chunk, member.size, data)
                digest.update(part)
                yield part

        size = member.size + TAG * -(-member.size // CHUNK)
        yield Member(str(number), size, parts())
        facts.append(MemberFacts(size, digest.hexdigest()))
    seal = Seal(facts, salt, derived(master, salt, b"check"), stretching, sequence)
    yield from signed_manifest(canonical(seal.to_json()), key)


class _Opened(mmap.mmap):
    """Memory for the bytes of a member, of which the chunks in `done` are there: pages that nobody has written to take
    none."""

    done: set[int]


class Unsealed:
    """The members inside of a sealed file, as an `Archive` has those of a plain one. A chunk is decrypted when it is
    asked for, and is kept for as long as something of its member is used."""

    def __init__(self, archive: Archive, seal: Seal, secret: Secret) -> None:
        """Raises ModelFileError, also for another secret than that of the file."""
        self.path, self.bytes, self.error = archive.path, archive.bytes, archive.error
        self._archive = archive
        self._memory: WeakValueDictionary[str, _Opened] = WeakValueDictionary()
        if not seal.members or digest_of(archive.view(FIRST)) != seal.members[0].sha256:
            raise self.error(f"{FIRST} is damaged: its bytes are not those of the manifest")
        self._chunks = self._chunks_of(seal, secret)
        self._numbers = {MANIFEST: 0}
        self.places = {MANIFEST: self._place(0)}
        try:
            inside = Manifest.of_bytes(self.read(MANIFEST, MOST_MANIFEST))
        except ManifestError as error:
            raise self.error(str(error)) from None
        if len(inside.members) + 1 != len(seal.members) or inside.sequence != seal.sequence:
            raise self.error("its manifest is not that of what is sealed in it")
        self._numbers = {**{name: i for i, name in enumerate(sorted(inside.members), 1)}, MANIFEST: 0}
        self.places = {name: self._place(number) for name, number in self._numbers.items()}

    def _chunks_of(self, seal: Seal, secret: Secret) -> _Chunks:
        """Who decrypts the chunks of the file. Raises ModelFileError."""
        if secret.noun != seal.noun:
            raise self.error(f"it is sealed with a {seal.noun}, not with a {secret.noun}")
        master = secret.master(seal.salt, seal.stretching)
        if not hmac.compare_digest(derived(master, seal.salt, b"check"), seal.check):
            raise self.error(f"{secret.name} is not the {secret.noun} of the file")
        return _Chunks(derived(master, seal.salt, b"data"))

    def _place(self, number: int) -> MemberPlace:
        """Where a member lies in the file, and how many bytes it has when it is decrypted."""
        place = self._archive.places[str(number)]
        return MemberPlace(place.begin, place.size - TAG * -(-place.size // (CHUNK + TAG)))

    def view(self, name: str, begin: int = 0, end: int | None = None) -> memoryview:
        """As `Archive.view`. Raises ModelFileError, also for a chunk that is damaged."""
        from cryptography.exceptions import InvalidTag

        if name not in self._numbers:
            raise self.error(f"it has no {name}")
        number, size = self._numbers[name], self.places[name].size
        if not size:
            return memoryview(b"")
        memory = self._memory.get(name)
        if memory is None:
            memory = self._memory[name] = _Opened(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.done = set()
        whole = memoryview(memory).toreadonly()[begin:end]
        for chunk in range(begin // CHUNK, -(-(begin + len(whole)) // CHUNK)):
            if chunk in memory.done:
                continue
            at = chunk * (CHUNK + TAG)
            try:
                data = self._chunks.opened(number, chunk, size, self._archive.view(str(number), at, at + CHUNK + TAG))
            except InvalidTag:
                raise self.error(f"{name} is damaged: a chunk of it is not what was sealed") from None
            memory[chunk * CHUNK : chunk * CHUNK + len(data)] = data
            memory.done.add(chunk)
        return whole

    def read(self, name: str, most: int) -> bytes:
        """As `Archive.read`. Raises ModelFileError."""
        if name in self.places and self.places[name].size > most:
            raise self.error(f"{name} has {self.places[name].size} bytes, and no more than {most} are read")
        return bytes(self.view(name))
