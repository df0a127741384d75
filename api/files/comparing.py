"""What differs between two model files, from what is in them: nothing of them is executed, and weights are read in
chunks, so that memory does not grow with them (docs/model-file.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Literal, TypeVar

import numpy as np
from xdsl.dialects.builtin import StringAttr

from ...backends.simulator.errors import SimulationError
from ...dialects.base import text as name_in
from ...dialects.dtypes import numpy_dtype, size
from ...dialects.graph.stored import PREFIX, kept_by
from ...dialects.npu.structure import KernelOp
from ...machine import MachineError
from ...modelfile.manifest import EntryFacts, digest_of
from ...modelfile.signing import signature_in
from ...support.files import FilePath
from ..arguments.signature import Signature
from .loading import program_of
from .reading import ModelFile
from .signatures import Weight

State = Literal["same", "changed", "added", "removed"]

CHUNK = 1 << 22
"""Bytes of each of two weights that are compared at a time."""

_CONSTANT = re.compile(rf'#graph\.data<(\w+), \[([\d, ]*)\], "{PREFIX}([0-9a-f]{{64}})">')
"""A constant in a text whose bytes are kept beside it."""


@dataclass(frozen=True)
class Distance:
    """How far apart two weights of one type are: of how many elements how many have other bits; for numbers the largest
    absolute difference, infinite where one is no number; for floats the root of the sum of its squares, relative to the
    same of the first weight."""

    elements: int
    changed: int
    largest: float | None = None
    relative_l2: float | None = None

    def __str__(self) -> str:
        said = f"{self.changed:,} of {self.elements:,} elements"
        said += "" if self.largest is None else f", by {self.largest:.3g} at most"
        return said + ("" if self.relative_l2 is None else f", relative L2 {self.relative_l2:.3g}")


@dataclass(frozen=True)
class FileDifference:
    """A part of two files. part: what it is of them: `signature`, `weights`, `kernel`, `microseconds`...; name: which
    one; before, after: what the first and the second file say, None where one has none of it."""

    part: str
    name: str
    before: Any
    after: Any
    distance: Distance | None = None

    @property
    def state(self) -> State:
        """What became of it."""
        if self.before == self.after:
            return "same"
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class FileComparison:
    """What two files have, part by part. rows: all that differs, and what is the same where that is asked for; kernels:
    of each function and chip that both have, how many are in each state."""

    rows: tuple[FileDifference, ...]
    kernels: Mapping[str, Mapping[str, int]]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(row.state == "same" for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        rows = [{"state": row.state, **asdict(row)} for row in self.rows]
        return {"same": self.same, "kernels": {name: dict(found) for name, found in self.kernels.items()}, "rows": rows}


def compare_files(first: FilePath, second: FilePath, every: bool = False) -> FileComparison:
    """What differs between two model files. every: rows of what is the same, too.

    Raises:
        ModelFileError: One is no model file, or is damaged where it is read.
        OSError: One cannot be read.
    """
    made = _Comparison(ModelFile(first), ModelFile(second), every)
    rows = [row for row in made.rows() if row.state != "same" or (every and row.before is not None)]
    return FileComparison(tuple(rows), made.kernels)


def signature_rows(name: str, first: Signature, second: Signature) -> Iterator[FileDifference]:
    """The inputs of two functions by their names, with their types."""
    kinds = [
        {key: f"{dtype}{list(shape)}" for key, (shape, dtype) in zip(each.names, each.inputs, strict=True)}
        for each in (first, second)
    ]
    for key, before, after in _both(*kinds):
        yield FileDifference("input", f"{name}: {key}", before, after)


T = TypeVar("T")


def _both(first: Mapping[str, T], second: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """What two tables have under each name: those of the first one, then further ones."""
    for key in dict.fromkeys((*first, *second)):
        yield key, first.get(key), second.get(key)


class _Comparison:
    """Two files. every: whether what is the same is asked for."""

    def __init__(self, first: ModelFile, second: ModelFile, every: bool) -> None:
        self.files, self.every = (first, second), every
        self.kernels: dict[str, dict[str, int]] = {}
        self.checked: set[str] = set()
        """Keys of weights whose bytes were looked at."""

    def rows(self) -> Iterator[FileDifference]:
        """All parts in order: what the files say of themselves, then function by function."""
        one, two = (file.manifest for file in self.files)
        for name, before, after in _both(one.made_by, two.made_by):
            yield FileDifference("made by", name, before, after)
        yield FileDifference("licence", "", one.licence or None, two.licence or None)
        for name, before, after in _both(one.metadata, two.metadata):
            yield FileDifference("metadata", name, before, after)
        yield FileDifference("sequence", "", one.sequence, two.sequence)
        yield FileDifference("signed by", "", _signer(self.files[0]), _signer(self.files[1]))
        for chip, before, after in _both(*(_sums(each.manifest.plans, each) for each in self.files)):
            yield FileDifference("plans", chip, before, after)
        for name, before, after in _both(one.entries, two.entries):
            if before is None or after is None:
                yield FileDifference("function", name, *_chips(before, after))
            else:
                yield from self._function(name, (before, after))

    def _function(self, name: str, facts: tuple[EntryFacts, EntryFacts]) -> Iterator[FileDifference]:
        """A function that both have."""
        signatures = [file.signature(each) for file, each in zip(self.files, facts, strict=True)]
        yield from signature_rows(name, *signatures)
        for part, keys in _CALLED.items():
            yield FileDifference(part, name, _canonical(facts[0], *keys), _canonical(facts[1], *keys))
        yield FileDifference("chip by default", name, facts[0].target, facts[1].target)
        for option, before, after in _both(facts[0].options, facts[1].options):
            yield FileDifference("option", f"{name}: {option}", before, after)
        yield from self._open(name, facts)
        graphs = [self._codes(i, each.graph) if each.graph else {} for i, each in enumerate(facts)]
        yield from self._texts("graph level", name, *graphs)
        before, after = ("there" if each.stablehlo else None for each in facts)
        yield FileDifference("StableHLO", name, before, after)
        yield from self._weights(name, facts)
        for chip, before, after in _both(facts[0].npu, facts[1].npu):
            if before is None or after is None:
                yield FileDifference("chip", f"{name}: {chip}", before and chip, after and chip)
            else:
                yield from self._on_chip(name, chip, (before, after))

    def _open(self, name: str, facts: tuple[EntryFacts, EntryFacts]) -> Iterator[FileDifference]:
        """The open sizes of a function, what it is for them, and its versions, by the SHA-256 of their texts."""
        for what in ("symbols", "constraints"):
            before, after = (json.dumps(each.open[what]) if each.open else None for each in facts)
            yield FileDifference("open sizes", f"{name}: {what}", before, after)
        for chip in dict.fromkeys(chip for each in facts for chip in each.chips if each.open):
            tables = ({row["npu"]: row["npu"] for part in ("versions", "alone") for row in each.open[part].get(chip, ())
                       if row.get("npu")} if each.open else {} for each in facts)  # fmt: skip
            for key, before, after in _both(*map(_sums, tables, self.files)):
                yield FileDifference("version", f"{name} on {chip}: {key}", before, after)
        tables = ({row["graph"]: row["graph"] for row in each.open.get("codes", ())} for each in facts)
        for key, before, after in _both(*map(_sums, tables, self.files)):
            yield FileDifference("graph level", f"{name}: {key}", before, after)

    def _codes(self, which: int, member: str) -> dict[str, str]:
        """Digests of a text: of each kernel, without its name, of all else, which is called `MAIN`, and of the places
        in sources, `PLACES`. What bytes of constants are called is in none of them."""
        file, found = self.files[which], dict[str, str]()
        module = file.module(member)
        with kept_by(lambda dtype, shape, data: ""):
            for op in [op for op in module.ops if isinstance(op, KernelOp)]:
                key = name_in(op.sym_name)
                op.sym_name = StringAttr("kernel")
                found[key] = digest_of(str(op).encode())
                op.detach()
            found[MAIN] = digest_of(str(module).encode())
        found[PLACES] = digest_of("".join(_PLACE.findall(file.text(member))).encode())
        return found

    def _texts(
        self, part: str, name: str, first: Mapping[str, str], second: Mapping[str, str]
    ) -> Iterator[FileDifference]:
        """The code of a function without its kernels; its places, where nothing else is other."""
        yield FileDifference(part, name, first.get(MAIN), second.get(MAIN))
        own, other = ({key: code for key, code in each.items() if key != PLACES} for each in (first, second))
        if own == other:
            yield FileDifference("source lines", f"{name}, {part}", first.get(PLACES), second.get(PLACES))

    # -- weights ---------------------------------------------------------------------------------------------

    def _weights(self, name: str, facts: tuple[EntryFacts, EntryFacts]) -> Iterator[FileDifference]:
        """Values of arguments by their paths; constants of the program by their number among those of one type."""
        constants = _paired(*(_constants(file, each) for file, each in zip(self.files, facts, strict=True)))
        values = [file.values(each) for file, each in zip(self.files, facts, strict=True)]
        tables = [{**own, **further} for own, further in zip(values, constants, strict=True)]
        for key, before, after in _both(*tables):
            distance = None
            if before is not None and after is not None and before[2] == after[2]:
                self._check_equal(before[2])
            if before is not None and after is not None and before[2] != after[2] and before[:2] == after[:2]:
                views = [file.stored(each[2]).view for file, each in zip(self.files, (before, after), strict=True)]
                distance = distance_of(views[0], views[1], before[0], before[1])
            yield FileDifference("weights", f"{name}: {key}", _kind(before), _kind(after), distance)

    def _check_equal(self, key: str) -> None:
        """Raises ModelFileError where a weight that both files call the same, in members that are not, has other bytes
        in one of them."""
        roots = {file.manifest.members[file.manifest.weights[key][0]].root for file in self.files}
        if len(roots) > 1 and key not in self.checked:
            for file in self.files:
                file.check_weight(key)
            self.checked.add(key)

    # -- chips -----------------------------------------------------------------------------------------------

    def _on_chip(self, name: str, chip: str, members: tuple[str, str]) -> Iterator[FileDifference]:
        """A function on a chip that both have it for."""
        where = f"{name} on {chip}"
        texts = [file.text(member) for file, member in zip(self.files, members, strict=True)]
        if texts[0] == texts[1] and not self.every:
            return
        codes = [self._codes(i, member) for i, member in enumerate(members)]
        tables = [{key: code for key, code in each.items() if key not in (MAIN, PLACES)} for each in codes]
        pairs = _both(tables[0], _renamed(*tables))
        kernels = [FileDifference("kernel", f"{where}: {key}", before, after) for key, before, after in pairs]
        self.kernels[where] = {state: sum(row.state == state for row in kernels) for state in _STATES}
        yield from kernels
        yield from self._texts("host program", where, *codes)
        launches = [re.findall(r"npu\.launch @([^ ]+)", text) for text in texts]
        yield FileDifference("launches", where, len(launches[0]), len(launches[1]))
        costs = [self._costs(i, chip, name) for i in range(2)]
        for part, before, after in _both(*costs):
            yield FileDifference(part, where, before, after)

    def _costs(self, which: int, chip: str, name: str) -> dict[str, Any]:
        """What the model says of a function: microseconds and joules of a call, and bytes of device memory; why not, in
        the place of the first, where it says nothing."""
        try:
            report = program_of(self.files[which], chip, name).report()
        except (MachineError, SimulationError) as error:
            return {"microseconds": str(error)}
        memory = report.memory.arena_bytes
        return {"microseconds": report.microseconds, "joules": report.energy_joules, "device bytes": memory}


MAIN, PLACES = "@main", "loc"
"""No kernels have such names."""

_PLACE = re.compile(r'loc\([^\n]*')
"""Where an op of a text comes from, and what is behind that in its line."""

_STATES: tuple[State, ...] = ("same", "changed", "added", "removed")

def _renamed(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """The kernels of a second program; those with the code of one that the first has under another name have that."""
    gone = {code: name for name, code in first.items() if second.get(name) != code}
    found: dict[str, str] = {}
    for name, code in second.items():
        own = gone.pop(code, None) if first.get(name) != code else None
        found[own or name] = code
    return found


def _kind(weight: Weight | None) -> str | None:
    """The type of a weight, and its SHA-256."""
    return None if weight is None else f"{weight[0]}{list(weight[1])} {weight[2]}"


def _constants(file: ModelFile, facts: EntryFacts) -> list[Weight]:
    """The constants of a function: those of its graph level, or of its npu level where that is all there is."""
    member = facts.graph or facts.npu.get(facts.target)
    if member is None:
        return []
    with file.reading(member):
        listed = _CONSTANT.findall(file.text(member))
        found = [(dtype, tuple(map(int, filter(None, shape.split(", ")))), key) for dtype, shape, key in listed]
        for dtype, _, key in found:
            numpy_dtype(dtype)  # which there has to be, as the bytes
            file.stored(key)
    return found


def _paired(first: Sequence[Weight], second: Sequence[Weight]) -> tuple[dict[str, Weight], dict[str, Weight]]:
    """The constants of two functions, with one name for those that belong together: equal ones, then those of one type
    in their order."""
    names: dict[tuple[str, tuple[int, ...]], list[tuple[str, Weight]]] = {}
    for weight in first:
        kind = names.setdefault(weight[:2], [])
        kind.append((f"constant {len(kind) + 1} of {weight[0]}{list(weight[1])}", weight))
    one = {name: weight for kind in names.values() for name, weight in kind}
    two: dict[str, Weight] = {}
    left: list[Weight] = []
    for weight in second:
        equal = next((name for name, own in names.get(weight[:2], ()) if own == weight and name not in two), None)
        if equal is None:
            left.append(weight)
        else:
            two[equal] = weight
    for weight in left:
        what = f"{weight[0]}{list(weight[1])}"
        numbers = count(1)
        two[next(name for n in numbers if (name := f"constant {n} of {what}") not in two)] = weight
    return one, two


_CALLED = {"parameters": ("parameters",), "results": ("out_tree", "keys", "weak", "voids")}
"""Parts of a signature that are compared as a whole."""


def _chips(*facts: EntryFacts | None) -> tuple[str | None, str | None]:
    """The chips of a function in both files, of which one has it."""
    one, two = (None if each is None else ", ".join(each.chips) for each in facts)
    return one, two


def _canonical(facts: EntryFacts, *keys: str) -> str:
    """Parts of a signature as text."""
    return json.dumps({key: facts.signature.get(key) for key in keys}, sort_keys=True)


def _signer(file: ModelFile) -> str | None:
    """The digest of the key that a file says it is signed by; None without a signature. It is not checked."""
    signature = signature_in(file.outer)
    return None if signature is None else signature.key


def _sums(members: Mapping[str, str], file: ModelFile) -> dict[str, str]:
    """The SHA-256 of members, by what they are of."""
    return {key: file.manifest.members[member].sha256 for key, member in members.items()}


# -- numbers -------------------------------------------------------------------------------------------------


def distance_of(first: memoryview, second: memoryview, dtype: str, shape: Sequence[int]) -> Distance | None:
    """How far apart the bytes of two arrays of one type are; None where these are not as many as its elements have."""
    kind, elements = numpy_dtype(dtype), size(tuple(shape))
    if not len(first) == len(second) == kind.itemsize * elements:
        return None
    changed, largest, squares, whole = 0, 0.0, 0.0, 0.0
    wide = np.complex128 if kind.kind == "c" else np.float64
    for parts in zip(_chunks(first), _chunks(second), strict=True):
        bits = [np.frombuffer(part, np.uint8).reshape(-1, kind.itemsize) for part in parts]
        other = (bits[0] != bits[1]).any(axis=1)
        changed += int(other.sum())
        a, b = (np.frombuffer(part, kind).astype(wide) for part in parts)
        with np.errstate(invalid="ignore"):
            gap = np.nan_to_num(np.where(other, np.abs(b - a), 0.0), nan=np.inf, posinf=np.inf)
        largest = max(largest, float(gap.max(initial=0.0)))
        squares += float(np.square(gap).sum())
        whole += float(np.square(np.abs(a[np.isfinite(a)])).sum())
    if kind.kind in "biu" or "int" in kind.name:
        return Distance(elements, changed, largest)
    relative = np.sqrt(squares / whole) if whole else np.inf if squares else 0.0
    return Distance(elements, changed, largest, float(relative))


def _chunks(view: memoryview) -> Iterator[memoryview]:
    for begin in range(0, len(view), CHUNK):
        yield view[begin : begin + CHUNK]
