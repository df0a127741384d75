"""`tw.update`: a model file with other values of weights, in time that goes by these and not by all others."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from ...dialects.dtypes import numpy_dtype
from ...dialects.graph.stored import PREFIX
from ...modelfile.archive import ALIGNMENT, PAGE, Member, write_archive
from ...modelfile.crc import changed_crc
from ...modelfile.manifest import MANIFEST, EntryFacts, MemberFacts, digest_of
from ...modelfile.signing import SIGNATURE, signed_manifest
from ...modelfile.weights import CHUNK, LEAF, StoredTensor, leaf_of, root_of
from ...support.files import FilePath
from ...support.sentences import suggestion
from ..arguments.signature import CompileError
from .loading import opened
from .reading import ModelFile
from .signatures import Weight, array_in, values_in
from .writing import check_release, tensor_of, weight_members

_STORED = re.compile(rf'"{PREFIX}([0-9a-f]{{64}})"'.encode())
"""What stands in a text for a weight."""

Change = tuple[int, memoryview]
"""The place of the first byte that is another one, and the bytes from there on."""


def update(
    path: FilePath,
    output: FilePath,
    weights: Mapping[str, Any],
    *,
    sign: FilePath | None = None,
    trusted: FilePath | Sequence[FilePath] = (),
    sequence: int | None = None,
) -> None:
    """Writes a file again with other values of arguments that have values there. What stays is copied, and neither
    hashed nor checked: who reads a weight checks it, as always.

    Args:
        path: The file as it is.
        output: The file to be written, in one step; it may be the same one.
        weights: New values, of the same shapes and dtypes, by their paths in arguments, such as `params['w']`.
        sign: The PEM file of a private key that signs the new file.
        trusted: PEM files of public keys, one of which has to have signed the file as it is; none: it need not be.
        sequence: The number of the new release; None: one more than that of the file.

    Raises:
        ModelFileError: The file is none of ours, is damaged or not signed by who is trusted.
        CompileError: It is sealed, has no such weight, or one of another shape or dtype.
        OSError: A file cannot be read or written.
    """
    file = opened(path, trusted=trusted)
    if file.seal is not None:
        raise CompileError(f"update: {path} is sealed, so that all of it changes: save its programs anew")
    values = [file.values(entry) for entry in file.manifest.entries.values()]
    found = _new_tensors(str(path), values, weights)
    keys, tensors = {label: key for label, (key, _) in found.items()}, dict(found.values())
    entries = {name: _with_keys(entry, keys) for name, entry in file.manifest.entries.items()}
    places = dict(file.manifest.weights)
    patches: dict[str, list[Change]] = {}
    used = _constants(file) | {key for entry in entries.values() for _, _, key in values_in(entry.signature).values()}
    for label, (_, _, old) in (each for own in values for each in own.items()):
        new = keys.get(label)
        if new is not None and new not in places and old in places and old not in used:
            places[new] = member, begin, _ = places.pop(old)
            patches.setdefault(member, []).extend([(begin, tensors[new].data), _renamed(file, member, old, new)])
    members = dict(file.manifest.members)
    written = {name: _copied(file, name) for name in file.archive.places if name not in (MANIFEST, SIGNATURE)}
    for name, changes in patches.items():
        changes.sort(key=lambda change: change[0])
        leaves = _patched_leaves(file, name, changes)
        written[name], written[f"{name}.tree"] = _patched(file, name, changes), Member.of(f"{name}.tree", leaves)
        members[name] = replace(members[name], root=root_of(leaves))
        members[f"{name}.tree"] = MemberFacts(len(leaves), digest_of(leaves))
    number = sum(1 for facts in members.values() if facts.root)
    more, added = weight_members({key: tensor for key, tensor in tensors.items() if key not in places}, number)
    written |= {member.name: member for member, _ in more}
    members |= {member.name: facts for member, facts in more}
    places |= added
    release = file.manifest.sequence + 1 if sequence is None else sequence
    check_release(release, "update")
    made = replace(file.manifest, members=members, entries=entries, weights=places, sequence=release)
    content = made.to_bytes()
    write_archive(output, [*signed_manifest(content, sign), *written.values()])


def _constants(file: ModelFile) -> set[str]:
    """The keys of weights that are constants in texts of the file."""
    texts = (name for name in file.manifest.members if not name.startswith("weights/"))
    return {key.decode() for name in texts for key in _STORED.findall(file.content(name))}


def _new_tensors(
    path: str, values: Sequence[Mapping[str, Weight]], weights: Mapping[str, Any]
) -> dict[str, tuple[str, StoredTensor]]:
    """New values by the paths of weights, with their keys. path: of the file; values: what it has, of each function.
    Raises CompileError."""
    known = {label: [own[label] for own in values if label in own] for each in values for label in each}
    found: dict[str, tuple[str, StoredTensor]] = {}
    for label, value in weights.items():
        if label not in known:
            said = suggestion(label, known) or f"; it has {', '.join([*known][:8]) or 'none'}"
            raise CompileError(f"update: {path} has no weight {label!r}{said}")
        given_array = array_in(value, f"update: {label}")
        for dtype, shape, _ in known[label]:
            want, array = numpy_dtype(dtype), given_array
            if array.dtype == np.dtype(f"V{want.itemsize}"):  # how .npz files hold bf16 and f8
                array = array.view(want)
            if array.shape != shape or array.dtype != want:
                wanted, given = (f"{kind}[{','.join(map(str, dims))}]" for kind, dims in (
                    (dtype, shape), (array.dtype, array.shape)))  # fmt: skip
                raise CompileError(f"update: {label} is {wanted}, and the new value {given}")
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            found[label] = sha256(data).hexdigest(), tensor_of(dtype, shape, data)
    return found


def _with_keys(entry: EntryFacts, keys: Mapping[str, str]) -> EntryFacts:
    """A function with other keys for the arrays with these paths."""
    defaults, values = entry.signature["defaults"], values_in(entry.signature)
    leaves = iter([[list(shape), dtype, keys.get(label, old)] for label, (dtype, shape, old) in values.items()])
    changed = {name: {**said, "leaves": [next(leaves) for _ in said["leaves"]]} for name, said in defaults.items()}
    return replace(entry, signature={**entry.signature, "defaults": changed})


def _copied(file: ModelFile, name: str) -> Member:
    """A member as it is."""
    place, facts = file.archive.places[name], file.manifest.members[name]
    return Member(name, place.size, (file.archive.view(name),), PAGE if facts.root else ALIGNMENT, place.crc)


def _renamed(file: ModelFile, member: str, old: str, new: str) -> Change:
    """The change of a tensor's name in the head of its member. Raises ModelFileError where it is not there once."""
    view = file.archive.view(member)
    (size,) = struct.unpack("<Q", view[:8])
    head = bytes(view[8 : 8 + min(size, len(view))])
    name = f'"{old}"'.encode()
    if head.count(name) != 1:
        raise file.archive.error(f"{member} is damaged: it does not name its tensors")
    return 8 + head.index(name) + 1, memoryview(new.encode())


def _patched(file: ModelFile, name: str, changes: Sequence[Change]) -> Member:
    """A member of weights with changes, in order."""
    view, place, parts, at = file.archive.view(name), file.archive.places[name], list[memoryview](), 0
    for begin, data in changes:
        parts += [view[at:begin], data]
        at = begin + len(data)
    crc = changed_crc(place.crc, place.size, [(b, view[b : b + len(data)], data) for b, data in changes])
    return Member(name, place.size, (*parts, view[at:]), PAGE, crc)


def _patched_leaves(file: ModelFile, name: str, changes: Sequence[Change]) -> bytes:
    """The hashes of the chunks of a member with changes, of which those that have one are computed."""
    view, leaves = file.archive.view(name), bytearray(file.leaves_of(name))
    touched = {n for begin, data in changes for n in range(begin // CHUNK, -(-(begin + len(data)) // CHUNK))}
    for number in touched:
        first = number * CHUNK
        chunk = bytearray(view[first : first + CHUNK])
        for begin, data in changes:
            low, high = max(begin, first), min(begin + len(data), first + len(chunk))
            if low < high:
                chunk[low - first : high - first] = data[low - begin : high - begin]
        leaves[number * LEAF : (number + 1) * LEAF] = leaf_of(bytes(chunk))
    return bytes(leaves)
