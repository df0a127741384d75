"""Weights in a model file: members in the form of safetensors, whose tensors are mapped, and checked in chunks when
they are used.

A tensor is called by the SHA-256 of its bytes, so that equal ones are one. The chunks of a member are the leaves of a
tree of hashes; these leaves are a member of their own, and the root is in the manifest: one chunk is checked without
the others, and where one weight is another the rest need not be hashed again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

CHUNK = 1 << 20
"""Bytes of a chunk."""

MOST_SHARD = 1 << 30
"""Bytes of weights in a member, at most, unless one alone has more."""

LINE = 64
"""Tensors begin at multiples of so many bytes."""

LEAF = 32
"""Bytes of a hash."""


def leaf_of(chunk: bytes | memoryview) -> bytes:
    """The hash of a chunk: another one than that of a node with the same bytes (RFC 6962, section 2.1)."""
    return sha256(b"\0" + bytes(chunk)).digest()


def root_of(leaves: bytes) -> str:
    """The root of the tree over hashes of chunks, as 64 hexadecimal digits: a node without a neighbour goes up as it
    is."""
    level = [leaves[i : i + LEAF] for i in range(0, len(leaves), LEAF)]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [sha256(b"\1" + b"".join(pair)).digest() if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0].hex() if level else sha256(b"").hexdigest()


def chunks_of(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Bytes that come in parts of any sizes, in chunks: all but the last one are whole."""
    chunk = bytearray()
    for part in parts:
        at = 0
        while at < len(part):
            taken = part[at : at + CHUNK - len(chunk)]
            chunk += taken
            at += len(taken)
            if len(chunk) == CHUNK:
                yield bytes(chunk)
                chunk.clear()
    if chunk:
        yield bytes(chunk)


class StoredTensor(NamedTuple):
    """A tensor that is to be stored: its element type as safetensors calls it, its shape and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@dataclass(frozen=True)
class Shard:
    """A member of weights: what stands before its tensors; the tensors, with how many bytes before each are padding;
    and the places of tensors in the member, by their names."""

    head: bytes
    tensors: Sequence[tuple[int, memoryview]]
    places: Mapping[str, tuple[int, int]]

    @property
    def size(self) -> int:
        """Bytes of the member."""
        return len(self.head) + sum(padding + len(data) for padding, data in self.tensors)

    def parts(self) -> Iterator[bytes | memoryview]:
        """The bytes of the member."""
        yield self.head
        for padding, data in self.tensors:
            yield bytes(padding)
            yield data

    def leaves(self) -> bytes:
        """The hashes of its chunks."""
        return b"".join(map(leaf_of, chunks_of(self.parts()))) or leaf_of(b"")


def shards_of(tensors: Mapping[str, StoredTensor]) -> list[Shard]:
    """The members that tensors are stored in, by their names in order."""
    found: list[list[str]] = []
    room = 0
    for name in sorted(tensors):
        size = len(tensors[name].data)
        if not found or size > room:
            found.append([])
            room = MOST_SHARD
        found[-1].append(name)
        room -= size
    return [_shard({name: tensors[name] for name in names}) for names in found]


def _shard(tensors: Mapping[str, StoredTensor]) -> Shard:
    """A member of tensors, each at a line of memory. Readers of safetensors want no gaps: what is between tensors is a
    tensor of bytes, too."""
    header: dict[str, object] = {}
    at, placed, begins = 0, list[tuple[int, memoryview]](), dict[str, int]()
    for name, tensor in tensors.items():
        padding = -at % LINE
        if padding:
            header[f"padding {at}"] = {"dtype": "U8", "shape": [padding], "data_offsets": [at, at + padding]}
        begin = at + padding
        at = begin + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, at]}
        placed.append((padding, tensor.data))
        begins[name] = begin
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % LINE)
    head = struct.pack("<Q", len(text)) + text
    places = {name: (len(head) + begin, len(tensors[name].data)) for name, begin in begins.items()}
    return Shard(head, placed, places)
