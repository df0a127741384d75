"""A model file before it is opened: what can be said of it without its key, and who has that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from ...modelfile.archive import Archive, ModelFileError
from ...modelfile.keys import Secret, check_secret
from ...modelfile.manifest import MANIFEST, MOST_MANIFEST
from ...modelfile.sealing import Unsealed, check_sealed, seal_of
from ...modelfile.signing import check_signed, signature_in
from ...support.collecting import collecting
from ...support.files import FilePath


@dataclass(frozen=True)
class Terms:
    """On which terms files are opened. secret: what sealed ones are sealed with; trusted: PEM files of public keys, one
    of which has to have signed them, where there are any; least_sequence: the earliest release that is taken."""

    secret: Secret | None = None
    trusted: tuple[FilePath, ...] = ()
    least_sequence: int = 0


_TERMS: ContextVar[Terms | None] = ContextVar("terms", default=None)


def opened_with(
    secret: Secret | None, trusted: Sequence[FilePath] = (), least_sequence: int = 0
) -> AbstractContextManager[Terms]:
    """Model files that are named inside are opened on these terms; the secret counts for those that are given no key of
    their own."""
    return collecting(_TERMS, Terms(secret, tuple(trusted), least_sequence))


def terms() -> Terms:
    """Those of `opened_with`."""
    return _TERMS.get() or Terms()


class OuterFile:
    """A file from outside. outer: its members as they lie there; seal: what it says without its key, None for a plain
    file."""

    def __init__(self, path: FilePath) -> None:
        """Raises ModelFileError, and OSError."""
        self.outer = Archive(path)
        self.seal = seal_of(self.outer)

    @property
    def closed(self) -> bool:
        """Whether it is sealed, and inside of nobody's `opened_with`."""
        return self.seal is not None and terms().secret is None

    @property
    def sequence(self) -> int:
        """The number of its release."""
        return 0 if self.seal is None else self.seal.sequence

    def opened(self, key: Secret | None = None) -> Archive | Unsealed:
        """Its members. key: what it is sealed with; None for that of `opened_with`. Raises ModelFileError."""
        check_secret(key, "key")
        secret = key or terms().secret
        if self.seal is None and secret is None:
            return self.outer
        if self.seal is None:
            raise self.outer.error("it is not sealed: leave the key or passphrase out")
        if secret is None:
            noun = self.seal.noun
            raise self.outer.error(f"it is sealed with a {noun}: give that, as --{noun} FILE or tw.load(key=...)")
        return Unsealed(self.outer, self.seal, secret)

    def trusted_by(self, keys: Sequence[FilePath]) -> str:
        """The digest of the key that has signed the file, which is in one of these PEM files. Raises ModelFileError
        where none of them has, and OSError."""
        try:
            return check_signed(self.outer.read(MANIFEST, MOST_MANIFEST), signature_in(self.outer), keys)
        except ModelFileError as error:
            raise self.outer.error(str(error)) from None

    def no_older_than(self, sequence: int) -> None:
        """Raises ModelFileError for a file of a release before one that is trusted."""
        if self.sequence < sequence:
            raise self.outer.error(f"its release is {self.sequence}, and none before {sequence} is taken")

    def check_whole(self) -> None:
        """Reads all of a sealed file as it lies there. Raises ModelFileError where something is damaged."""
        if self.seal is not None:
            check_sealed(self.outer, self.seal)
