"""A model file that is open: what it says of itself, and what its programs were before any pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from ...backends.report import Report
from ...dialects.affine import Symbol
from ...dialects.dtypes import numpy_dtype
from ...dialects.graph.stored import StoredBytes, given_by
from ...dialects.sizes import Sizes
from ...knowledge.file_plans import FilePlans
from ...machine import Machine
from ...modelfile.archive import ModelFileError
from ...modelfile.keys import Secret
from ...modelfile.manifest import MANIFEST, MOST_MANIFEST, EntryFacts, Manifest, ManifestError, digest_of
from ...modelfile.signing import SIGNATURE
from ...modelfile.weights import CHUNK, LEAF, leaf_of, root_of
from ...passes.pipeline import level_of
from ...support.files import FilePath
from ..arguments.signature import Signature
from ..mains import main_inputs, main_results
from ..source import Source
from ..texts import module_in
from .opening import OuterFile, terms
from .reports import report_in
from .signatures import Weight, check_keys, signature_of, values_in

MOST_TEXT = 1 << 30
"""Bytes of a program's text, at most."""


class ModelFile(OuterFile):
    """A file of programs that is open: what it has, and its programs. Weights are mapped: what nobody uses is not
    read, and what is used is checked then."""

    def __init__(self, path: FilePath, key: Secret | None = None) -> None:
        """key: what it is sealed with; None for that of `opened_with`. Raises ModelFileError, and OSError."""
        super().__init__(path)
        self.archive = self.opened(key)
        try:
            self.manifest = Manifest.of_bytes(self.archive.read(MANIFEST, MOST_MANIFEST))
        except ManifestError as error:
            raise self.archive.error(str(error)) from None
        if (said := terms()).trusted:
            self.trusted_by(said.trusted)
        self.no_older_than(said.least_sequence)
        self._check_members()
        self._leaves: dict[str, bytes] = {}
        self._checked: set[tuple[str, int]] = set()

    def _check_members(self) -> None:
        """Raises ModelFileError where the file has other members than its manifest says."""
        found = {name: place.size for name, place in self.archive.places.items() if name not in (MANIFEST, SIGNATURE)}
        said = {name: facts.size for name, facts in self.manifest.members.items()}
        for name in sorted(found.keys() ^ said.keys()):
            where = "its manifest" if name in found else "it"
            raise self.archive.error(f"{where} has no {name}")
        for name, size in said.items():
            if found[name] != size:
                raise self.archive.error(f"{name} has {found[name]} bytes, and {size} by the manifest")

    @property
    def sequence(self) -> int:
        """The number of its release."""
        return self.manifest.sequence

    def check_whole(self) -> None:
        """Reads all of it, a chunk of weights at a time. Raises ModelFileError where something is damaged."""
        super().check_whole()
        for name, facts in self.manifest.members.items():
            if facts.root:
                for begin in range(0, facts.size, CHUNK):
                    self.weights(name, begin, min(CHUNK, facts.size - begin))
            else:
                self._check(name, self.archive.view(name))
        for key in self.manifest.weights:
            self.check_weight(key)

    def check_weight(self, key: str) -> None:
        """Raises ModelFileError where a weight has other bytes than it is called by."""
        (member, begin, size), digest = self.manifest.weights[key], sha256()
        for at in range(begin, begin + size, CHUNK):
            digest.update(self.weights(member, at, min(CHUNK, begin + size - at)))
        if digest.hexdigest() != key:
            raise self.archive.error(f"the weight {key[:16]!r} is called by the SHA-256 of other bytes")

    @property
    def entries(self) -> list[str]:
        """The names of its functions."""
        return sorted(self.manifest.entries)

    def source(self, entry: str | None = None) -> tuple[Source, str]:
        """One of its programs before any pass, and the chip that it was made for. Raises ModelFileError where the file
        has it below the graph level alone."""
        name, facts = self.entry(entry)
        return self.portable(name, facts, "with other options"), facts.target

    def portable(self, name: str, facts: EntryFacts, how: str) -> Source:
        """A function before any pass. how: what else it would be compiled for. Raises ModelFileError where the file has
        no graph level of it."""
        if facts.open:
            raise self.archive.error(f"{name} has open sizes: say which")
        if not facts.graph:
            has = ", ".join(facts.chips)
            raise self.archive.error(f"{name} is for {has} alone: it has no graph level to compile {how}")
        signature = self.signature(facts)
        made = partial(self.program, facts.graph, signature, "graph")
        return Source(lambda: (made(), signature), name, stablehlo=self.stablehlo(facts))

    def stablehlo(self, facts: EntryFacts) -> Callable[[], bytes] | None:
        """Gives a function as an artifact of StableHLO; None where the file has none."""
        return partial(self.content, facts.stablehlo) if facts.stablehlo else None

    def entry(self, entry: str | None) -> tuple[str, EntryFacts]:
        """The name of a function, and what is known of it: of the only one where none is named. Raises
        ModelFileError."""
        names = ", ".join(self.entries)
        if entry is None and len(self.manifest.entries) == 1:
            entry = self.entries[0]
        if entry is None:
            raise self.archive.error(f"it has several functions, {names}: say which")
        if entry not in self.manifest.entries:
            raise self.archive.error(f"it has no function {entry!r}; it has {names}")
        return entry, self.manifest.entries[entry]

    def content(self, name: str) -> bytes:
        """A member that is no weights, checked. Raises ModelFileError."""
        content = self.archive.read(name, MOST_TEXT)
        self._check(name, content)
        return content

    def text(self, name: str) -> str:
        """A member that is text, checked. Raises ModelFileError."""
        try:
            return self.content(name).decode()
        except UnicodeDecodeError:
            raise self.archive.error(f"{name} is no text") from None

    def report(self, facts: EntryFacts, chip: str) -> Report | None:
        """What a function costs on a chip; None where the file does not say, or what it says follows from other rules
        than those of this process. Raises ModelFileError."""
        return self.report_of(facts.reports.get(chip), chip)

    def report_of(self, member: str | None, chip: str) -> Report | None:
        """The report in a member, for a chip; None as for `report`. Raises ModelFileError."""
        if member is None:
            return None
        with self.reading(member):
            return report_in(self.text(member), Machine.load(chip))

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """What cannot be read is a ModelFileError, that names it."""
        try:
            yield
        except ModelFileError:
            raise
        except Exception as error:  # of what anyone may have written
            raise self.archive.error(f"{what} cannot be read: {' '.join(str(error).split())[:200]}") from None

    def plans(self, chip: str) -> FilePlans | None:
        """The plans that the file has for a chip; None where it has none. Raises ModelFileError."""
        member = self.manifest.plans.get(chip)
        return None if member is None else FilePlans(self.text(member), str(self.archive.path))

    def _check(self, name: str, content: bytes | memoryview) -> None:
        """Raises ModelFileError where a member that is no weights has other bytes than its manifest says."""
        if digest_of(content) != self.manifest.members[name].sha256:
            raise self.archive.error(f"{name} is damaged: its bytes are not those of the manifest")

    def module(
        self, name: str, symbols: Mapping[str, Symbol] | None = None, example: Sizes | None = None
    ) -> ModuleOp:
        """The module of a member; symbols, example: where it has open sizes, these with their bounds, and those for
        which it is verified. Raises ModelFileError where it is none."""
        text = self.text(name)
        with self.reading(name), given_by(self.stored):
            return module_in(text, symbols or {}, example or {})

    def program(self, name: str, signature: Signature, level: str) -> ModuleOp:
        """The module of a member that is a program at a level, as a signature says how it is called. Raises
        ModelFileError where it is another one."""
        module = self.module(name)
        with self.reading(name):
            results, found = main_results(module), level_of(module)
            if found != level and (signature.inputs or results):  # what takes and gives nothing is of each level
                raise ValueError(f"it is of the {found} level, not of the {level} level")
            taken, said = ([(shape, numpy_dtype(dtype)) for shape, dtype in rows] for rows in (
                main_inputs(module), signature.inputs))  # fmt: skip
            if taken != said:
                raise ValueError("it takes other inputs than the manifest says")
            if len(results) < signature.least_results:
                raise ValueError(f"it gives {len(results)} results, and {signature.least_results} by the manifest")
            for i, generator in signature.keys:
                check_keys(results[i], generator)
        return module

    def stored(self, key: str) -> StoredBytes:
        """The bytes of a weight. Raises ValueError where there are none."""
        if key not in self.manifest.weights:
            raise ValueError(f"the file has no weight {key[:80]!r}")
        member, begin, size = self.manifest.weights[key]
        return StoredBytes(key, size, lambda: self.weights(member, begin, size))

    def weights(self, member: str, begin: int, size: int) -> memoryview:
        """Bytes of a member of weights, whose chunks are checked the first time. Raises ModelFileError."""
        first, behind = begin // CHUNK, -(-(begin + size) // CHUNK)
        view = self.archive.view(member, first * CHUNK, behind * CHUNK)
        for number in range(first, behind):
            if (member, number) not in self._checked:
                leaf = leaf_of(view[(number - first) * CHUNK :][:CHUNK])
                if leaf != self.leaves_of(member)[number * LEAF : (number + 1) * LEAF]:
                    raise self.archive.error(f"{member} is damaged: a weight is not what the manifest says")
                self._checked.add((member, number))
        return view[begin - first * CHUNK :][:size]

    @property
    def weight_bytes(self) -> int:
        """Bytes of its members of weights."""
        return sum(facts.size for facts in self.manifest.members.values() if facts.root)

    @property
    def touched_bytes(self) -> int:
        """Bytes of them that were read so far, in whole chunks."""
        sizes = self.manifest.members
        return sum(min(CHUNK, sizes[member].size - number * CHUNK) for member, number in [*self._checked])

    def leaves_of(self, member: str) -> bytes:
        """The hashes of the chunks of a member, checked."""
        if member not in self._leaves:
            chunks = max(1, -(-self.manifest.members[member].size // CHUNK))
            leaves = self.archive.read(f"{member}.tree", LEAF * chunks)
            if root_of(leaves) != self.manifest.members[member].root:
                raise self.archive.error(f"{member}.tree is damaged: its root is not that of the manifest")
            self._leaves[member] = leaves
        return self._leaves[member]

    def values(self, facts: EntryFacts) -> dict[str, Weight]:
        """The arrays of a function's arguments that the file has, by their paths in these. Raises ModelFileError, also
        where it does not have one of them."""
        with self.reading("what a function takes"):
            found = values_in(facts.signature)
            for _, _, key in found.values():
                self.stored(key)
            return found

    def arguments(self, entry: str | None, flat: Sequence[Any]) -> list[Any]:
        """Flat inputs of a function as its arguments by position; those that the file has values of have these. Raises
        ModelFileError where it takes some by keyword alone, or another number of inputs."""
        name, facts = self.entry(entry)
        signature = self.signature(facts)
        if len(flat) != len(signature.inputs):
            raise self.archive.error(f"{name} takes {len(signature.inputs)} inputs, not {len(flat)}")
        if signature.in_tree is None:
            return [*flat]
        import jax

        args, kwargs = jax.tree.unflatten(signature.in_tree, flat)
        own = signature.parameters
        missing = [key for key in kwargs if key not in own.defaults]
        if missing:
            raise self.archive.error(f"{name} takes {missing[0]} by keyword, which only Python gives")
        return [own.defaults.get(own.label(i), value) for i, value in enumerate(args)]

    def signature(self, facts: EntryFacts) -> Signature:
        """What a function takes and gives. Raises ModelFileError."""
        with self.reading("what a function takes"):
            return signature_of(facts.signature, self.stored)
