"""What the fleet tells devices to do, signed by the fleet's key, and requests signed by those of devices.

An order is canonical JSON. It names who is to obey, which release to take in the place of which, the SHA-256 of the
file, until when it is good, and a number that grows with each order: a device obeys none that is not above the last
one, so that nothing is replayed.
"""

from __future__ import annotations

import hmac
import json
import os
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..modelfile.manifest import canonical
from ..modelfile.signing import MISSING
from ..support.files import read_plain
from .policy import DeviceGroups, FleetError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

INSTALL, ROLLBACK = "install", "rollback"
"""Kinds of orders: to a release above all that the device had, and back to one below."""

ORDER, ANSWER, REQUEST = (f"tilewright-fleet {what} 1\0".encode() for what in ("order", "answer", "request"))
"""Stand before what is signed, so that a signature is good for nothing else."""

MOST_BODY = 1 << 16
"""Bytes of a request or an answer, at most."""

VALID = 600.0
"""Seconds that an order is good for."""

SKEW = 60.0
"""Seconds that the clocks of a device and of the server may differ by."""


@dataclass(frozen=True)
class Canary:
    """Inputs with known results. sha256, size: of the .npz file, in bytes; digest: what the outputs have to be, by
    chip; most_error: the largest error against `expected` of the file, over the largest of these, where it has them."""

    sha256: str
    size: int
    digest: dict[str, str]
    most_error: float = 0.01


@dataclass(frozen=True)
class FleetOrder:
    """kind: install or rollback; number: grows with each order; device: who is to obey, empty for all of the groups;
    source, target: the sequence of the release that is left, 0 for any that is below, and of the one that is taken, 0
    for none; sha256, size: of its file, in bytes; canary, entry: what is tried; force: take it though it was left
    before; valid: until when, in seconds since 1970."""

    kind: str
    number: int
    device: str
    groups: DeviceGroups
    source: int
    target: int
    sha256: str
    size: int
    canary: Canary | None
    entry: str | None
    force: bool
    valid: float

    def to_bytes(self) -> bytes:
        """What is signed."""
        return canonical(asdict(self))

    @staticmethod
    def of_bytes(body: bytes) -> FleetOrder:
        """The order that a signed text is. Raises FleetError."""
        try:
            said = json.loads(body)
            groups = DeviceGroups(**{name: tuple(names) for name, names in said["groups"].items()})
            canary = None if said["canary"] is None else Canary(**said["canary"])
            order = replace(FleetOrder(**said), groups=groups, canary=canary)
            if order.kind not in (INSTALL, ROLLBACK) or order.to_bytes() != body or not isfinite(order.valid):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise FleetError("the order is none that this Tilewright knows") from None
        return order


class Key:
    """An Ed25519 key pair in a file."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw().hex()
        """The public key, 64 hexadecimal digits."""

    @staticmethod
    def made() -> Key:
        """A new one. Raises FleetError where cryptography is missing."""
        return Key(_ed25519().Ed25519PrivateKey.generate())

    @staticmethod
    def of_seed(seed: bytes) -> Key:
        """The key of 32 bytes, for simulations."""
        return Key(_ed25519().Ed25519PrivateKey.from_private_bytes(seed))

    @staticmethod
    def read(path: Path) -> Key:
        """The private key in a PEM file. Raises FleetError, and OSError."""
        _ed25519()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            found = load_pem_private_key(read_plain(path), None)
        except (ValueError, TypeError):
            found = None
        if not isinstance(found, Ed25519PrivateKey):
            raise FleetError(f"{path}: it is no private Ed25519 key in PEM without a passphrase")
        return Key(found)

    def write(self, path: Path) -> None:
        """Writes it to a new file that nobody else may read. Raises OSError."""
        from cryptography.hazmat.primitives import serialization as forms

        pem = self._private.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(number, "wb") as stream:
            stream.write(pem)
            stream.flush()
            os.fsync(number)

    def sign(self, domain: bytes, message: bytes) -> str:
        """The signature, 128 hexadecimal digits."""
        return self._private.sign(domain + message).hex()


def is_signed(public: str, signature: str, domain: bytes, message: bytes) -> bool:
    """Whether the key that `public` spells has signed."""
    keys = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        key = keys.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), domain + message)
    except (ValueError, InvalidSignature):
        return False
    return True


def request_text(device: str, method: str, path: str, stamp: int, body: bytes) -> bytes:
    """What a device signs of a request. stamp: nanoseconds since 1970, above that of any request before."""
    return canonical([device, method, path, stamp, sha256(body).hexdigest()])


def answer_text(device: str, stamp: int, body: bytes) -> bytes:
    """What the server signs of an answer: to whom and to which request it is one."""
    return canonical([device, stamp, sha256(body).hexdigest()])


def proof(token: str, *said: str) -> str:
    """What who has the token of an enrolment says with it, without saying it."""
    return hmac.new(token.encode(), canonical(list(said)), sha256).hexdigest()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise FleetError(MISSING) from None
    return ed25519
