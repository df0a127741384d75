"""What model files are sealed with: a key of 32 bytes, or a passphrase, of which scrypt makes one."""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..support.files import FilePath, open_plain
from .archive import ModelFileError
from .manifest import JsonTable, ManifestError
from .signing import check_cryptography

KEY_BYTES = 32
"""Bytes of a key, and of all that is derived from one."""

MOST_SECRET = 1024
"""Bytes of a file with a key or a passphrase, at most."""

MOST_STRETCHING = 256 << 20
"""Bytes of memory that a file may have scrypt take, at most."""

MOST_PASSES = 4
"""Times that a file may have scrypt go through this memory, at most."""

GIVEN = "what was given"
"""What messages call a secret that no file has."""

DOMAIN = b"tilewright-sealed 1\0"
"""Stands before what is derived, so that a key is good for nothing else by it."""


@dataclass(frozen=True)
class Stretching:
    """What scrypt is asked for a passphrase (RFC 7914, section 2): a power of two of blocks of 128 `r` bytes, and how
    many times it goes through them."""

    n: int
    r: int
    p: int

    def to_json(self) -> Mapping[str, Any]:
        """As a manifest has it."""
        return {"kind": "scrypt", "n": self.n, "r": self.r, "p": self.p}

    @staticmethod
    def of_json(said: JsonTable) -> Stretching | None:
        """What a manifest asks; None where the secret is a key. Raises ManifestError, also for what would take more
        memory or time than a file may."""
        kind = said.of("kind", str)
        if kind == "key":
            return None
        if kind != "scrypt":
            raise ManifestError(f"its key is derived by {kind[:80]!r}, which this Tilewright does not know")
        found = Stretching(*(said.of(name, int) for name in ("n", "r", "p")))
        power = found.n > 1 and found.n & (found.n - 1) == 0
        if not (power and 1 <= found.p <= MOST_PASSES and 1 <= found.r <= MOST_STRETCHING // 128 // found.n):
            asked = ", ".join(f"{name}={str(value)[:20]}" for name, value in vars(found).items())
            raise ManifestError(f"its key is derived by scrypt with {asked}: n is a power of two, and no more than "
                                f"{MOST_STRETCHING >> 20} MiB and {MOST_PASSES} passes are taken")  # fmt: skip
        return found


STRETCHING = Stretching(1 << 17, 8, 1)
"""What a new file asks: 128 MiB, and more than half a second."""


@dataclass(frozen=True)
class Secret:
    """What a model file is sealed with. content: a key of 32 bytes, or a passphrase in UTF-8; name: what messages call
    it."""

    content: bytes = field(repr=False)
    name: str
    is_passphrase: bool = False

    @staticmethod
    def of_key(content: bytes, name: str = GIVEN) -> Secret:
        """A key: 32 bytes, or 64 hexadecimal digits. Raises ModelFileError."""
        if len(content) == KEY_BYTES:
            return Secret(content, name)
        try:
            found = bytes.fromhex(content.decode("ascii"))
        except ValueError:
            found = b""
        if len(found) != KEY_BYTES:
            raise ModelFileError(f"{name}: a key is {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal digits")
        return Secret(found, name)

    @staticmethod
    def of_key_file(path: FilePath) -> Secret:
        """The key in a file. Raises ModelFileError, and OSError."""
        return Secret.of_key(_read(path), str(path))

    @staticmethod
    def of_passphrase(text: str, name: str = GIVEN) -> Secret:
        """A passphrase: one line, the same however its letters are composed. Raises ModelFileError."""
        text = text.removesuffix("\n").removesuffix("\r")
        try:
            content = unicodedata.normalize("NFC", text).encode()
        except UnicodeEncodeError:
            raise ModelFileError(f"{name}: a passphrase is text in UTF-8") from None
        if not content or len(content) > MOST_SECRET or not text.isprintable():
            raise ModelFileError(f"{name}: a passphrase is one line of 1 to {MOST_SECRET} bytes, without tabs")
        return Secret(content, name, True)

    @staticmethod
    def of_passphrase_file(path: FilePath) -> Secret:
        """The passphrase in a file, which is all of it. Raises ModelFileError, and OSError."""
        try:
            return Secret.of_passphrase(_read(path).decode(), str(path))
        except UnicodeDecodeError:
            raise ModelFileError(f"{path}: a passphrase is text in UTF-8") from None

    @property
    def noun(self) -> str:
        """What it is."""
        return "passphrase" if self.is_passphrase else "key"

    def salt(self, manifest: bytes, stretching: Stretching | None) -> bytes:
        """The salt of a file, 32 bytes: the same for the same manifest and secret, and of no use to who has not the
        secret, not even to tell whether a file has a manifest that they know."""
        fixed = self.content if stretching is None else _stretched(self.content, DOMAIN, stretching)
        return hmac.digest(derived(fixed, DOMAIN, b"salt"), manifest, "sha256")

    def master(self, salt: bytes, stretching: Stretching | None) -> bytes:
        """What keys of a file are derived from, 32 bytes."""
        return self.content if stretching is None else _stretched(self.content, salt, stretching)


def check_secret(secret: Any, name: str) -> None:
    """Raises ModelFileError for a value of the argument `name` that is no secret, as the path of a key."""
    if secret is not None and not isinstance(secret, Secret):
        raise ModelFileError(f"{name}: give a tw.Secret, as tw.Secret.of_key_file(path), "
                             f"not a {type(secret).__name__}")  # fmt: skip


def derived(master: bytes, salt: bytes, purpose: bytes) -> bytes:
    """32 bytes for a purpose, by HKDF-SHA256 (RFC 5869). Raises ModelFileError where there is no cryptography."""
    check_cryptography()
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt, DOMAIN + purpose).derive(master)


@lru_cache(8)
def _stretched(passphrase: bytes, salt: bytes, stretching: Stretching) -> bytes:
    """What scrypt makes of a passphrase, 32 bytes; of one that is used again, at once."""
    check_cryptography()
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt, KEY_BYTES, stretching.n, stretching.r, stretching.p).derive(passphrase)


def _read(path: FilePath) -> bytes:
    """A small file; of a larger one more than there may be."""
    with open_plain(path) as stream:
        return stream.read(MOST_SECRET + 3)
