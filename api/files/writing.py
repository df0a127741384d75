"""Programs as files that outlive the process (docs/model-file.md).

A file has each program as a function: its graph level, from which any chip can be compiled for; its npu level for the
chips that it was compiled for; and the weights of all of them once. What is read is text of our own, which is parsed
and verified; nothing of it is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, FileLineColLoc, LocationAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, ParametrizedAttribute

from ...dialects.affine import Symbol
from ...dialects.callbacks import KEY as CALLBACK
from ...dialects.dtypes import numpy_dtype, size
from ...dialects.graph import ConstantOp
from ...dialects.graph.stored import StoredBytes, kept_by
from ...dialects.precision import record_precision, recorded_precision
from ...dialects.source_places import without_folder
from ...frontends import FrontendError
from ...knowledge.base import Entry
from ...knowledge.file_plans import lines_of
from ...modelfile.archive import NAME, PAGE, Member, write_archive
from ...modelfile.keys import Secret, check_secret
from ...modelfile.manifest import MOST_MANIFEST, MOST_SEQUENCE, EntryFacts, Manifest, MemberFacts, digest_of
from ...modelfile.sealing import sealed_members
from ...modelfile.signing import signed_manifest
from ...modelfile.weights import StoredTensor, root_of, shards_of
from ...passes.pipeline import level_of
from ...passes.templates import NoTemplate
from ...support.files import FilePath
from ..arguments.signature import CompileError, Signature
from ..kept import version_facts
from ..source import Source
from ..texts import text_of
from .open_facts import inputs_facts, range_symbols, shapes_facts
from .options import has_further, options_facts
from .parts import ChipParts, OpenProgramParts, ProgramParts
from .reports import report_bytes, without_folders
from .signatures import fitting, signature_facts

if TYPE_CHECKING:
    from ..sizes.templates import Key, Version

SAFETENSORS = {
    "f64": "F64",
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "ui64": "U64",
    "ui32": "U32",
    "ui16": "U16",
    "ui8": "U8",
    "i1": "BOOL",
}
"""Element types as safetensors calls them; bytes of all others are U8."""

MOST_NAME = 255
"""Characters of the name of a function, at most."""

MOST_CONSTANTS = 64 << 10
"""Bytes of constants of a program of which a file has an artifact of StableHLO unless it is told to, at most."""

Places = dict[str, tuple[str, int, int]]
"""Of weights, by their keys: the member, the place of the first byte there, and how many bytes."""


def write_programs(
    programs: Mapping[str, ProgramParts | OpenProgramParts],
    path: FilePath,
    weights: Mapping[str, Any],
    licence: str = "",
    metadata: Mapping[str, str] | None = None,
    sequence: int = 0,
    key: FilePath | None = None,
    secret: Secret | None = None,
    stablehlo: bool | None = None,
    portable: bool = True,
) -> None:
    """Writes programs to a file, as `save` has it; key: the private key that signs it; secret: what it is sealed
    with."""
    metadata = {} if metadata is None else metadata
    _check_said([*programs], licence, metadata, sequence)
    check_secret(secret, "encrypt")
    writer = _Writer(stablehlo, portable)
    entries = {name: writer.entry(name, parts, weights) for name, parts in programs.items()}
    unknown = sorted({*weights} - writer.bound, key=str)
    if unknown and unknown[0] in writer.compiled_in:
        raise CompileError(f"save: weights: {unknown[0]} is compiled in: leave it out")
    if unknown:
        raise CompileError(f"save: weights: no program has an argument {str(unknown[0])[:80]!r}")
    plans = writer.known_plans()
    members, places = writer.members()
    facts = {member.name: fact for member, fact in members}
    manifest = Manifest(facts, entries, places, plans, _made_by(), licence, dict(metadata), sequence)
    content = manifest.to_bytes()
    if len(content) > MOST_MANIFEST:
        raise CompileError(f"save: what the file says of itself has {len(content)} bytes: {MOST_MANIFEST} at most")
    rest = [member for member, _ in members]
    whole = [*signed_manifest(content, key), *rest] if secret is None else sealed_members(
        content, rest, secret, sequence, key)  # fmt: skip
    write_archive(path, whole)


def check_release(sequence: Any, what: str) -> None:
    """Raises CompileError, which begins with `what`, for what is no number of a release."""
    if type(sequence) is not int or not 0 <= sequence <= MOST_SEQUENCE:
        given = "this one" if type(sequence) is int and abs(sequence) > MOST_SEQUENCE else repr(sequence)[:40]
        raise CompileError(f"{what}: the sequence of a release is a whole number from 0 to 2**63 - 1, not {given}")


def _check_said(names: Sequence[Any], licence: Any, metadata: Any, sequence: Any) -> None:
    """Raises CompileError for what no file can say of itself. names: of functions."""
    for name in names:
        if not isinstance(name, str) or len(name) > MOST_NAME or NAME.fullmatch(name) is None:
            raise CompileError(f"save: {str(name)[:80]!r} cannot be the name of a function: it has up to {MOST_NAME} "
                               "ASCII letters, digits and _ . @ + - /, and does not begin with a dot")  # fmt: skip
    if not isinstance(licence, str):
        raise CompileError(f"save: the licence is a text, not {str(licence)[:80]}")
    if not (isinstance(metadata, Mapping) and all(isinstance(each, str) for pair in metadata.items() for each in pair)):
        raise CompileError(f"save: metadata are texts by their names, not {str(metadata)[:80]}")
    check_release(sequence, "save")


class _Writer:
    """What is to be in a file: texts, and weights by the SHA-256 of their bytes."""

    def __init__(self, stablehlo: bool | None, portable: bool) -> None:
        self.portable = portable
        """Whether it has what other chips are compiled from."""
        self.stablehlo = stablehlo if portable else False
        """Whether it has programs as artifacts of StableHLO; None for those with few constants."""
        self.texts: dict[str, Member] = {}
        """Members that are texts, by the SHA-256 of these: equal ones are one."""
        self.names: set[str] = set()
        """What these members are called."""
        self.tensors: dict[str, StoredTensor] = {}
        self.plans: dict[str, list[Entry]] = {}
        """Plans by the chips that they are for."""
        self.bound: set[str] = set()
        """Arguments of programs that have values."""
        self.compiled_in: set[str] = set()
        """Arguments that calls of programs do not have."""

    def put(self, dtype: str, shape: tuple[int, ...], data: bytes | StoredBytes) -> str:
        """Keeps bytes of a constant; what they are called."""
        if isinstance(data, StoredBytes):
            key, view = data.key, data.view
        else:
            key, view = sha256(data).hexdigest(), memoryview(data)
        if key not in self.tensors:
            self.tensors[key] = tensor_of(dtype, shape, view)
        return key

    def entry(self, name: str, parts: ProgramParts | OpenProgramParts, weights: Mapping[str, Any]) -> EntryFacts:
        """A program as a function of the file. Raises CompileError."""
        if isinstance(parts, OpenProgramParts):
            return self._open_entry(name, parts, weights)
        before = parts.source.original or parts.source
        module, signature = before.lower()
        graph = artifact = ""
        if self.portable and level_of(module) == "graph" and not has_further(parts.options):
            graph = self._text(f"graph/{name}.mlir", module, name)
            artifact = self._artifact(before, module, name)
        npu, reports = dict[str, str](), dict[str, str]()
        for chip, own in sorted(parts.chips.items()):
            npu[chip], report = self._chip(chip, name, own, name)
            reports |= {} if report is None else {chip: report}
        self.bound |= parts.packed
        given = {label: value for label, value in weights.items() if label not in parts.packed}
        facts = self._signature(signature, given, name, closed=True)
        options = options_facts(parts.options, self.put)
        return EntryFacts(facts, parts.target, graph, npu, reports, options, stablehlo=artifact)

    def _artifact(self, source: Source, module: ModuleOp, name: str) -> str:
        """Keeps a program as an artifact of StableHLO, where it is to have one; the name of its member. module: its
        graph level. Raises CompileError where it has none and is to have one."""
        small = sum(len(op.value.data.data) for op in module.walk() if isinstance(op, ConstantOp)) <= MOST_CONSTANTS
        if not (small if self.stablehlo is None else self.stablehlo):
            return ""
        if source.stablehlo is None:
            if self.stablehlo:
                raise CompileError(f"save: {name} comes from no StableHLO: leave stablehlo out")
            return ""
        try:
            content = source.stablehlo()
        except FrontendError as error:
            if self.stablehlo:
                raise CompileError(f"save: {name}: {error}") from None
            return ""
        return self._member(f"graph/{name}.stablehlo", content)

    def _open_entry(self, name: str, parts: OpenProgramParts, weights: Mapping[str, Any]) -> EntryFacts:
        """A program with open sizes as a function of the file. Raises CompileError."""
        open_ = shapes_facts(parts.shapes)
        open_["codes"] = []
        closed = not self.portable or has_further(parts.options)
        for number, (ranges, code) in enumerate(() if closed else parts.codes):
            if (stored := code.stored()) is not None:
                facts, content = stored
                member = self._member(f"graph/{name}{f'_{number}' if number else ''}.{facts['kind']}", content)
                open_["codes"].append({"ranges": [list(ends) for ends in ranges.values()], "graph": member, **facts})
        open_["versions"] = {
            chip: [
                self._version(f"npu/{chip}/{name}", key, version, parts.shapes.symbols, name)
                for key, version in sorted(own.ranges.items())
            ]
            for chip, own in sorted(parts.chips.items())
        }
        open_["alone"] = {
            chip: [self._alone(chip, sizes, made, name) for sizes, made in sorted(own.alone.items())]
            for chip, own in sorted(parts.chips.items())
        }
        facts = self._signature(parts.signature, weights, name, closed=False) | {"inputs": inputs_facts(parts.shapes)}
        return EntryFacts(facts, parts.target, "", {}, {}, options_facts(parts.options, self.put), open_)

    def _version(
        self, folder: str, key: Key, version: Version | NoTemplate, symbols: Mapping[str, Symbol], name: str
    ) -> dict[str, Any]:
        """A version for a range of sizes, or why there is none."""
        said: dict[str, Any] = {"ranges": [list(ends) for ends in key]}
        if isinstance(version, NoTemplate):
            return said | {"reason": without_folders(str(version))}
        facts = version_facts(version.template, version.extras, range_symbols(symbols, key))
        if facts is None:
            return said | {"reason": "its text is read as another program"}
        sizes = "_".join(str(low) if low == high else f"{low}to{high}" for low, high in key)
        return said | facts | {"npu": self._text(f"{folder}_{sizes}.mlir", version.template.module, name)}

    def _alone(self, chip: str, sizes: tuple[int, ...], made: ChipParts, name: str) -> dict[str, Any]:
        """A program for sizes alone."""
        npu, report = self._chip(chip, f"{name}_{'_'.join(map(str, sizes))}", made, name)
        return {"sizes": list(sizes), "npu": npu, "report": report}

    def _chip(self, chip: str, member: str, own: ChipParts, name: str) -> tuple[str, str | None]:
        """Keeps what a program is on a chip; the names of the members of its npu level and of its report."""
        self.plans.setdefault(chip, []).extend(own.plans)
        npu = self._text(f"npu/{chip}/{member}.mlir", own.module, name)
        report = None if own.report is None else report_bytes(own.report)
        return npu, None if report is None else self._member(f"report/{chip}/{member}.json", report)

    def _signature(self, signature: Signature, weights: Mapping[str, Any], name: str, closed: bool) -> dict[str, Any]:
        """What a program takes and gives, with the weights that are arguments of it."""
        values = fitting(signature, weights, name, closed)
        self.bound |= values.keys()
        self.compiled_in |= {key for key in weights if signature.takes(key)} - values.keys()
        return signature_facts(signature, values, self.put, name)

    def _text(self, member: str, module: ModuleOp, name: str) -> str:
        """Keeps a module as text; the name of its member. Raises CompileError for one that calls functions of this
        process."""
        copy = module.clone()
        for op in copy.walk():
            _without_folders(op)
        record = recorded_precision(copy)
        if record is not None:
            kept = tuple(replace(ops, source=ops.source and without_folder(ops.source)) for ops in record.kept)
            record_precision(copy, replace(record, kept=kept))
        with kept_by(self.put):
            text = text_of(copy)
        if CALLBACK in text:
            raise CompileError(f"save: {name} calls a Python function of this process, which no file can hold")
        return self._member(member, text.encode())

    def _member(self, member: str, content: bytes) -> str:
        """Keeps a member; the name of the one with these bytes. One whose name another has gets a longer one."""
        digest = digest_of(content)
        if digest not in self.texts:
            while member in self.names:
                member += "+"
            self.names.add(member)
            self.texts[digest] = Member.of(member, content)
        return self.texts[digest].name

    def known_plans(self) -> dict[str, str]:
        """Keeps the plans of each chip that has some; the names of their members."""
        lines = {chip: lines_of(entries) for chip, entries in self.plans.items()}
        return {chip: self._member(f"plans/{chip}.jsonl", text.encode()) for chip, text in lines.items() if text}

    def members(self) -> tuple[list[tuple[Member, MemberFacts]], Places]:
        """The members, what the manifest says of them, and the places of weights."""
        texts = sorted(self.texts.items(), key=lambda text: text[1].name)
        weights, places = weight_members(self.tensors)
        return [*((member, MemberFacts(member.size, digest)) for digest, member in texts), *weights], places


def tensor_of(dtype: str, shape: tuple[int, ...], view: memoryview) -> StoredTensor:
    """Bytes of an array as a tensor: of bytes where safetensors does not have its type, or they are in another form."""
    kind = SAFETENSORS.get(dtype)
    whole = kind is not None and len(view) == numpy_dtype(dtype).itemsize * size(shape)
    return StoredTensor(kind, shape, view) if kind and whole else StoredTensor("U8", (len(view),), view)


def weight_members(
    tensors: Mapping[str, StoredTensor], first: int = 0
) -> tuple[list[tuple[Member, MemberFacts]], Places]:
    """Members of weights with their trees, what the manifest says of them, and the places of tensors, by their keys.
    first: the number of the first one."""
    found: list[tuple[Member, MemberFacts]] = []
    places: Places = {}
    for number, shard in enumerate(shards_of(tensors), first):
        name, leaves = f"weights/{number}.safetensors", shard.leaves()
        found.append((Member(name, shard.size, shard.parts(), PAGE), MemberFacts(shard.size, root=root_of(leaves))))
        found.append((Member.of(f"{name}.tree", leaves), MemberFacts(len(leaves), digest_of(leaves))))
        places |= {key: (name, begin, size) for key, (begin, size) in shard.places.items()}
    return found, places


def _made_by() -> dict[str, str]:
    """The versions of what writes a file."""
    found: dict[str, str] = {}
    for package in ("tilewright", "jax", "xdsl"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _without_folders(op: Operation) -> None:
    """Leaves the folders out of an op's location: a file is the same wherever its sources lie."""
    op.location = cast("LocationAttr", _file_names(op.location))
    for region in op.regions:
        for block in region.blocks:
            for arg in block.args:
                arg.location = cast("LocationAttr", _file_names(arg.location))


def _file_names(attribute: Attribute) -> Attribute:
    if isinstance(attribute, FileLineColLoc):
        name = StringAttr(without_folder(attribute.filename.data))
        return FileLineColLoc(name, attribute.line, attribute.column)
    if isinstance(attribute, ArrayAttr):
        return ArrayAttr([_file_names(each) for each in cast("ArrayAttr[Attribute]", attribute)])
    if isinstance(attribute, ParametrizedAttribute) and attribute.parameters:
        return type(attribute).new([_file_names(each) for each in attribute.parameters])
    return attribute
