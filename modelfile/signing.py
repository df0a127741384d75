"""Signatures of model files: over the manifest, which has the hashes of all else, so that they are checked without
reading weights. Keys are PEM files, Ed25519 or ECDSA over P-256."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from ..support.files import FilePath, read_plain
from .archive import Archive, Member, ModelFileError
from .manifest import MANIFEST, canonical

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
    PublicKey = Ed25519PublicKey | EllipticCurvePublicKey

SIGNATURE = "signature.json"
"""The name of the signature's member, which is right behind the manifest."""

MOST_SIGNATURE = 1 << 14
"""Bytes of that member, at most."""

DOMAIN = b"tilewright-model manifest 1\0"
"""Stands before what is signed, so that a signature is good for nothing else."""

ED25519, ECDSA = "Ed25519", "ECDSA-P256-SHA256"

MISSING = "signatures and sealed files need cryptography: pip install 'tilewright[sign]'"


def check_cryptography() -> None:
    """Raises ModelFileError where there is no cryptography."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ModelFileError(MISSING) from None


@dataclass(frozen=True)
class ManifestSignature:
    """algorithm: Ed25519 or ECDSA-P256-SHA256; key: the SHA-256 of the public key as DER; signature: its bytes."""

    algorithm: str
    key: str
    signature: bytes

    def to_bytes(self) -> bytes:
        """The member that it is."""
        said = {"algorithm": self.algorithm, "key": self.key}
        return canonical(said | {"signature": base64.b64encode(self.signature).decode()})

    @staticmethod
    def of_bytes(content: bytes) -> ManifestSignature:
        """The signature of a file. Raises ModelFileError."""
        try:
            said = json.loads(content)
            signed = base64.b64decode(said["signature"], validate=True)
            found = ManifestSignature(said["algorithm"], said["key"], signed)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ModelFileError("its signature cannot be read") from None
        if not (isinstance(found.algorithm, str) and isinstance(found.key, str) and found.to_bytes() == content):
            raise ModelFileError("its signature cannot be read")
        return found


def sign(manifest: bytes, key: FilePath) -> ManifestSignature:
    """The signature of a manifest by the private key in a PEM file, the same one each time. Raises ModelFileError for
    what is no such key, and OSError."""
    check_cryptography()
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    try:
        private = serialization.load_pem_private_key(read_plain(key), None)
    except (ValueError, TypeError):
        raise ModelFileError(f"{key}: it is no private key in PEM without a passphrase") from None
    message = _message(manifest)
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return ManifestSignature(ED25519, key_digest(private.public_key()), private.sign(message))
    if isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1):
        how = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        return ManifestSignature(ECDSA, key_digest(private.public_key()), private.sign(message, how))
    raise ModelFileError(f"{key}: keys are Ed25519, or ECDSA over P-256")


def signed_manifest(manifest: bytes, key: FilePath | None) -> list[Member]:
    """The members of a manifest, and of its signature where a private key is given. Raises what `sign` raises."""
    made = [Member.of(MANIFEST, manifest)]
    return made if key is None else [*made, Member.of(SIGNATURE, sign(manifest, key).to_bytes())]


def signature_in(archive: Archive) -> ManifestSignature | None:
    """The signature of a file, if it has one. Raises ModelFileError."""
    if SIGNATURE not in archive.places:
        return None
    return ManifestSignature.of_bytes(archive.read(SIGNATURE, MOST_SIGNATURE))


def public_keys(paths: Sequence[FilePath]) -> dict[str, PublicKey]:
    """The public keys in PEM files, of which each may have several, by their digests. Raises ModelFileError for a file
    without one, and OSError."""
    check_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    found: dict[str, PublicKey] = {}
    for path in paths:
        blocks = read_plain(path).split(b"-----END PUBLIC KEY-----")[:-1]
        if not blocks:
            raise ModelFileError(f"{path}: it has no public key in PEM")
        for block in blocks:
            try:
                key = serialization.load_pem_public_key(block.strip() + b"\n-----END PUBLIC KEY-----\n")
            except (ValueError, TypeError):
                raise ModelFileError(f"{path}: a public key in it cannot be read") from None
            if isinstance(key, ed25519.Ed25519PublicKey) or (
                isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
            ):
                found[key_digest(key)] = key
            else:
                raise ModelFileError(f"{path}: keys are Ed25519, or ECDSA over P-256")
    return found


def key_digest(key: PublicKey) -> str:
    """The SHA-256 of a public key as DER, 64 hexadecimal digits."""
    from cryptography.hazmat.primitives import serialization

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def check_signed(manifest: bytes, signature: ManifestSignature | None, trusted: Sequence[FilePath]) -> str:
    """The digest of the trusted key that has signed a manifest. Raises ModelFileError where none has, and OSError."""
    keys = public_keys(trusted)
    if signature is None:
        raise ModelFileError("it is not signed")
    if signature.key not in keys:
        raise ModelFileError(f"it is signed by the key {signature.key[:16]}, which is not trusted")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    key = keys[signature.key]
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature.signature, _message(manifest))
        else:
            key.verify(signature.signature, _message(manifest), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise ModelFileError("its signature is not that of its manifest") from None
    expected = ED25519 if isinstance(key, ed25519.Ed25519PublicKey) else ECDSA
    if signature.algorithm != expected:
        raise ModelFileError("its signature is not that of its manifest")
    return signature.key


def _message(manifest: bytes) -> bytes:
    return DOMAIN + sha256(manifest).digest()
