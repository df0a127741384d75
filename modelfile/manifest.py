"""What a model file says of itself: canonical JSON, which comes first in the file and can be read without all else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

FORMAT = "tilewright-model"
"""What the manifest of each model file says it is."""

VERSION = 2
"""Of the format that is written."""

READABLE = (1, 2)
"""Versions of the format that are read."""

MANIFEST = "manifest.json"
"""The name of the manifest's member."""

MOST_MANIFEST = 64 << 20
"""Bytes of a manifest, at most."""

MOST_SEQUENCE = (1 << 63) - 1
"""The number of the last release that there may be."""


class ManifestError(ValueError):
    """A manifest says what none may; the message is the rest of a sentence."""


def canonical(value: Any) -> bytes:
    """JSON that is the same bytes for the same value: keys in order, no spaces, ASCII alone. Raises ValueError for
    numbers that JSON has not."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest_of(content: bytes | memoryview) -> str:
    """64 hexadecimal digits of SHA-256."""
    return sha256(content).hexdigest()


@dataclass(frozen=True)
class MemberFacts:
    """What a member has to be: how many bytes, and their SHA-256. root: for weights, whose bytes are checked in chunks
    when they are used, the root of the tree over these instead."""

    size: int
    sha256: str = ""
    root: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {"size": self.size, **({"root": self.root} if self.root else {"sha256": self.sha256})}


@dataclass(frozen=True)
class EntryFacts:
    """A function of the file. signature: what it takes and gives (api/files/signatures.py); target: the chip that it
    was made for; graph: the member with its graph level, empty where there is none; npu: the member with its npu
    level, for each chip; reports: the same for what `Program.report` says; options: what it is compiled with; open: of
    a function with open sizes, these and its versions (api/files/writing.py), and then npu has no chips; stablehlo: the
    member with what it was before as an artifact of StableHLO, empty where there is none."""

    signature: Mapping[str, Any]
    target: str
    graph: str
    npu: Mapping[str, str]
    reports: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    open: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stablehlo: str = ""

    @property
    def portable(self) -> bool:
        """Whether any chip can be compiled for."""
        return bool(self.graph or self.open.get("codes"))

    @property
    def inputs(self) -> Sequence[tuple[Sequence[int | str], str]]:
        """The shapes and element types of its inputs; sizes that are open are texts."""
        return self.signature["inputs"]

    @property
    def chips(self) -> list[str]:
        """Those that it is compiled for."""
        return sorted(self.open["versions"] if self.open else self.npu)

    @property
    def named(self) -> list[str]:
        """The members that it is in."""
        found = [self.graph, self.stablehlo, *self.npu.values(), *self.reports.values()]
        found += [row["graph"] for row in self.open.get("codes", ())]
        for table in ("versions", "alone"):
            for rows in self.open.get(table, {}).values():
                found += [row.get(kind) or "" for row in rows for kind in ("npu", "report")]
        return [name for name in found if name]

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "signature": dict(self.signature),
            "target": self.target,
            "graph": self.graph,
            "npu": dict(self.npu),
            "reports": dict(self.reports),
            "options": dict(self.options),
            **({"open": dict(self.open)} if self.open else {}),
            **({"stablehlo": self.stablehlo} if self.stablehlo else {}),
        }


@dataclass(frozen=True)
class Manifest:
    """members: all but the manifest; entries: the functions, by name; weights: of each tensor that is stored, by the
    SHA-256 of its bytes, the member it is in and its place there; plans: the member with what is known of kernels, for
    each chip that has such (since version 2); made_by: versions of what wrote the file; licence,
    metadata: what its author says; sequence: a number that grows with each release, so that an older one is told from
    a newer one; version: of the format."""

    members: Mapping[str, MemberFacts]
    entries: Mapping[str, EntryFacts]
    weights: Mapping[str, tuple[str, int, int]] = field(default_factory=dict[str, tuple[str, int, int]])
    plans: Mapping[str, str] = field(default_factory=dict[str, str])
    made_by: Mapping[str, str] = field(default_factory=dict[str, str])
    licence: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    sequence: int = 0
    version: int = VERSION

    def to_bytes(self) -> bytes:
        """The member that it is."""
        return canonical(
            {
                "format": FORMAT,
                "version": self.version,
                "members": {name: facts.to_json() for name, facts in self.members.items()},
                "entries": {name: entry.to_json() for name, entry in self.entries.items()},
                "weights": {key: list(place) for key, place in self.weights.items()},
                **({} if self.version < 2 else {"plans": dict(self.plans)}),
                "made_by": dict(self.made_by),
                "licence": self.licence,
                "metadata": dict(self.metadata),
                "sequence": self.sequence,
            }
        )

    @staticmethod
    def of_bytes(content: bytes) -> Manifest:
        """The manifest of a file. Raises ManifestError."""
        found = JsonTable.of_bytes("its manifest", content)
        if found.of("format", str) != FORMAT:
            raise ManifestError("it is no model file of Tilewright")
        version = found.of("version", int)
        if version not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise ManifestError(f"its format is version {version}, and this Tilewright reads version {known}")
        members = {
            name: MemberFacts(facts.of("size", int), facts.of("sha256", str, ""), facts.of("root", str, ""))
            for name, facts in found.each("members")
        }
        entries = {
            name: EntryFacts(
                _signature(entry),
                entry.of("target", str),
                entry.of("graph", str),
                entry.texts("npu"),
                entry.texts("reports"),
                entry.of("options", dict),
                _open(entry),
                entry.of("stablehlo", str, ""),
            )
            for name, entry in found.each("entries")
        }
        weights: dict[str, tuple[str, int, int]] = {}
        for key, place in found.of("weights", dict).items():
            if not (isinstance(place, list) and [type(part) for part in place] == [str, int, int]):
                raise ManifestError(f"its manifest has no place for the weight {key[:80]!r}")
            weights[key] = place[0], place[1], place[2]
        made = Manifest(
            members,
            entries,
            weights,
            {} if version < 2 else found.texts("plans"),
            found.texts("made_by"),
            found.of("licence", str),
            found.texts("metadata"),
            found.of("sequence", int),
            version,
        )
        made.check()
        return made

    def check(self) -> None:
        """Raises ManifestError for what names what is not there, or places it outside of a member."""
        for name, facts in self.members.items():
            if facts.size < 0 or len(facts.sha256 or facts.root) != 64 or (facts.sha256 and facts.root):
                raise ManifestError(f"its manifest does not say what {name[:80]!r} is")
        placed = dict[str, int]()
        for key, (member, begin, size) in self.weights.items():
            if member not in self.members or not 0 <= begin <= begin + size <= self.members[member].size:
                raise ManifestError(f"its manifest has no place for the weight {key[:80]!r}")
            placed[member] = placed.get(member, 0) + size
        for member, size in placed.items():
            if size > self.members[member].size:
                raise ManifestError(f"its manifest has more weights in {member[:80]!r} than there is room for")
        for name, entry in self.entries.items():
            if entry.target not in entry.chips:
                raise ManifestError(f"its entry {name[:80]!r} has no npu level for its own chip")
            missing = [member for member in entry.named if member not in self.members]
            if missing:
                raise ManifestError(f"its entry {name[:80]!r} is in {missing[0][:80]!r}, which it has not")
        for member in self.plans.values():
            if member not in self.members:
                raise ManifestError(f"its plans are in {member[:80]!r}, which it has not")
        check_sequence(self.sequence)


def check_sequence(sequence: int) -> None:
    """Raises ManifestError for what is no number of a release."""
    if not 0 <= sequence <= MOST_SEQUENCE:
        raise ManifestError("its sequence is not from 0 to 2**63 - 1")


def _signature(entry: JsonTable) -> dict[str, Any]:
    """What an entry says that it takes and gives. Raises ManifestError where inputs have no shapes and types."""
    found: dict[str, Any] = entry.of("signature", dict)
    for row in JsonTable(f"the signature of {entry.what}", found).of("inputs", list):
        fits = isinstance(row, list) and len(row) == 2 and isinstance(row[0], list) and isinstance(row[1], str)
        if not fits or not all(type(n) in (int, str) for n in row[0]):
            raise ManifestError(f"{entry.what} has an input without shape and type")
    return found


def _open(entry: JsonTable) -> dict[str, Any]:
    """What an entry says of open sizes. Raises ManifestError where members of versions are not named as they are."""
    found = entry.of("open", dict, {})
    for name in ("symbols", "constraints") if found else ():
        JsonTable(entry.what, found).of(name, list)
    for row in JsonTable(entry.what, found).of("codes", list) if found else ():
        JsonTable(f"a row of codes of {entry.what}", row).of("graph", str)
    for table in ("versions", "alone") if found else ():
        for _, rows in JsonTable(entry.what, found).lists(table):
            for row in rows:
                own = JsonTable(f"a row of {table} of {entry.what}", row)
                for name in ("npu", "report"):
                    if own.said.get(name) is not None:
                        own.of(name, str)
    return found


class JsonTable:
    """Fields of JSON, each of the type that it has to be."""

    def __init__(self, what: str, said: Any) -> None:
        if not isinstance(said, dict):
            raise ManifestError(f"{what} is no table")
        self.what, self.said = what, said

    @staticmethod
    def of_bytes(what: str, content: bytes) -> JsonTable:
        """The table in a text. Raises ManifestError, also for one in another form than the canonical one."""
        try:
            said = json.loads(content)
            same = canonical(said) == content
        except (ValueError, RecursionError):
            raise ManifestError(f"{what} is no JSON") from None
        if not same:
            raise ManifestError(f"{what} is no canonical JSON")
        return JsonTable(what, said)

    def of(self, name: str, kind: type, otherwise: Any = None) -> Any:
        """A field. Raises ManifestError where it is of another type, or not there unless there is a value for that."""
        value = self.said.get(name, otherwise)
        if type(value) is not kind:
            raise ManifestError(f"{self.what} has no {name}")
        return value

    def each(self, name: str) -> list[tuple[str, JsonTable]]:
        """The tables in a table, by name."""
        return [(key, JsonTable(f"{self.what}'s {key[:80]!r}", value)) for key, value in self.of(name, dict).items()]

    def lists(self, name: str) -> list[tuple[str, list[Any]]]:
        """A table of lists."""
        found = self.of(name, dict)
        if not all(isinstance(value, list) for value in found.values()):
            raise ManifestError(f"{self.what} has no lists as its {name}")
        return [*found.items()]

    def texts(self, name: str) -> dict[str, str]:
        """A table of texts."""
        found: dict[str, Any] = self.of(name, dict)
        if not all(isinstance(value, str) for value in found.values()):
            raise ManifestError(f"{self.what} has no texts as its {name}")
        return found
