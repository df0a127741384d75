"""Model files as releases: whether one may go out, and what its canary gives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.files import FilePath, open_plain, read_arrays
from .orders import Canary
from .policy import FleetError
from .reports import MOST

if TYPE_CHECKING:
    from ..api.files.reading import ModelFile
    from ..api.program import Program

EXPECTED = "expected"
"""Arrays of a canary whose names begin so are the expected outputs, in order of names; all others are inputs."""

MOST_CANARY = 64 << 20
"""Bytes of a file of canary inputs, at most."""


@dataclass(frozen=True)
class Release:
    """sequence: its number; sha256, size: of the file; manifest: the SHA-256 of its manifest; key: that of the key that
    signed it; chips: those that it was compiled for; portable: whether any chip can be compiled for."""

    sequence: int
    sha256: str
    manifest: str
    size: int
    path: str
    key: str
    chips: tuple[str, ...]
    portable: bool

    @staticmethod
    def read(path: FilePath, trusted: Sequence[FilePath]) -> Release:
        """A file that is whole and signed by who is trusted. Raises ModelFileError, FleetError and OSError."""
        file = open_release(path)
        key = file.trusted_by(trusted)
        file.check_whole()
        if not file.manifest.sequence:
            raise FleetError(f"{path}: its release has no number: compile it with --sequence N")
        if file.manifest.sequence > MOST:
            raise FleetError(f"{path}: its release is {file.manifest.sequence}, and a fleet has none above {MOST}")
        entries = file.manifest.entries.values()
        chips = set[str].intersection(*({*entry.chips} for entry in entries)) if entries else set[str]()
        digest, size = digest_of_file(path)
        manifest = sha256(file.manifest.to_bytes()).hexdigest()
        place = str(Path(path).resolve())
        portable = all(entry.portable for entry in entries)
        return Release(file.manifest.sequence, digest, manifest, size, place, key, tuple(sorted(chips)), portable)

    def check_chip(self, chip: str, device: str) -> None:
        """Raises FleetError where a device's chip cannot run it."""
        if chip not in self.chips and not self.portable:
            has = ", ".join(self.chips) or "no chip"
            why = f"{device} has {chip}, and the file is for {has} alone: it has no graph level"
            raise FleetError(f"{self.path}: {why}")


def open_release(path: FilePath) -> ModelFile:
    """A model file. Raises ModelFileError, and OSError."""
    from ..api.files.reading import ModelFile

    return ModelFile(path)


def digest_of_file(path: FilePath) -> tuple[str, int]:
    """The SHA-256 of a file, and how many bytes it has. Raises OSError."""
    digest, size = sha256(), 0
    with open_plain(path) as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


@dataclass(frozen=True)
class Values:
    """What a canary gave: the SHA-256 of the outputs, with their types and shapes; the largest error against expected
    ones over the largest of these, None without any; microseconds that a call takes by the model of the chip."""

    digest: str
    error: float | None
    latency: float

    def fault(self, canary: Canary, chip: str) -> str:
        """What is wrong with it, in a sentence; empty where nothing is."""
        if self.error is not None:
            if not self.error <= canary.most_error:
                return f"its values are off by {self.error:.3g} of the largest, and {canary.most_error:.3g} is allowed"
        elif chip in canary.digest and self.digest != canary.digest[chip]:
            return f"its values have the SHA-256 {self.digest[:16]}, and not {canary.digest[chip][:16]}"
        return ""


class CanaryRun:
    """A program of a file, with the inputs that it is tried on."""

    def __init__(self, path: FilePath, chip: str, entry: str | None, canary: FilePath | None, **trust: Any) -> None:
        """Loads it. trust: as `tw.load` takes `trusted` and `least_sequence`. Raises what `tw.load` does, and
        FleetError."""
        from ..api.files.loading import load

        self.program: Program = load(path, chip, entry, **trust)
        self.latency = self.program.report().microseconds
        self._arguments: list[Any] = []
        self._expected: list[Any] = []
        self.given = canary is not None
        if canary is not None:
            arrays = canary_arrays(canary)
            flat = [array for name, array in arrays.items() if not name.startswith(EXPECTED)]
            self._expected = [array for name, array in sorted(arrays.items()) if name.startswith(EXPECTED)]
            self._arguments = open_release(path).arguments(entry, flat)

    def call(self) -> Values:
        """Runs it. Raises CompileError for inputs that it does not take, and FleetError for expected outputs that it
        does not give."""
        import jax
        import numpy as np

        outputs = [np.asarray(leaf) for leaf in jax.tree.leaves(self.program(*self._arguments))]
        digest = sha256()
        for array in outputs:
            digest.update(f"{array.dtype} {array.shape}\0".encode() + array.tobytes())
        error = None
        if self._expected:
            if [a.shape for a in outputs] != [a.shape for a in self._expected]:
                raise FleetError("its outputs have other shapes than the expected ones of the canary")
            error = max(_error(a, b) for a, b in zip(outputs, self._expected, strict=True))
        return Values(digest.hexdigest(), error, self.latency)


def _error(given: Any, expected: Any) -> float:
    """The largest error over the largest expected value; infinity where it is no number."""
    import numpy as np

    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    a, b = given.astype(wide), expected.astype(wide)
    if not b.size:
        return 0.0
    largest = float(np.abs(b).max())
    error = float(np.abs(a - b).max()) / (largest or 1.0)
    return error if np.isfinite(error) else float("inf")


def canary_arrays(path: FilePath) -> dict[str, Any]:
    """The arrays of a canary. Raises FleetError, and OSError."""
    _, size = digest_of_file(path)
    if size > MOST_CANARY:
        raise FleetError(f"{path}: a canary has {MOST_CANARY} bytes at most, not {size}")
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise FleetError(f"{path}: {error}") from None
    for name, array in arrays.items():
        if name.startswith(EXPECTED) and array.dtype.kind in "USMm":
            raise FleetError(f"{path}: {name} is an array of {array.dtype.name}, not of numbers")
    return arrays


def check_runs(release: Release, entry: str | None, chips: Sequence[str]) -> None:
    """Loads a release for chips, as their devices do. Raises as `CanaryRun` does."""
    for chip in chips:
        CanaryRun(release.path, chip, entry, None)


def make_canary(
    release: Release, path: FilePath, entry: str | None, chips: Sequence[str], digest: str | None, most_error: float
) -> Canary:
    """The canary of a release. digest: what outputs have to be on all chips; without it, and without expected outputs
    in the file, what they are on each of these chips by its model. Raises as `CanaryRun` does."""
    sha, size = digest_of_file(path)
    expected = any(name.startswith(EXPECTED) for name in canary_arrays(path))
    if digest is not None and (expected or re.fullmatch("[0-9a-f]{64}", digest) is None):
        why = f"{path} has expected outputs" if expected else "a SHA-256 has 64 hexadecimal digits, 0-9 and a-f"
        raise FleetError(f"--digest {digest}: {why}")
    digests: dict[str, str] = {}
    for chip in chips:
        if digest is not None:
            digests[chip] = digest
            continue
        values = CanaryRun(release.path, chip, entry, path).call()
        made = Canary(sha, size, {} if expected else {chip: values.digest}, most_error)
        if why := values.fault(made, chip):
            raise FleetError(f"{path}: on {chip} {why}: the release would be stopped at its first device")
        digests |= made.digest
    return Canary(sha, size, digests, most_error)
