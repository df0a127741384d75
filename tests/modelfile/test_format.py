"""What docs/model-file-format.md says: a file is read by that alone, with nothing of ours."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import tilewright as tw

FROZEN = Path(__file__).parent / "frozen"


def members(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The members in their order, each with where its bytes begin; after all that the page says of the zip."""
    end = struct.unpack("<4s4H2IH", data[-22:])
    assert end[0] == b"PK\5\6" and end[1:3] == (0, 0) and end[3] == end[4] and end[7] == 0
    count, size, begin = end[4:7]
    assert begin + size == len(data) - 22
    at, listed = 0, begin
    for _ in range(count):
        head = struct.unpack("<4s5H3I2H", data[at : at + 30])
        assert head[:6] == (b"PK\3\4", 20, 0, 0, 0, 0x21) and head[7] == head[8]
        name = data[at + 30 : at + 30 + head[9]]
        extra = data[at + 30 + head[9] :][: head[10]]
        assert extra[:4] == struct.pack("<HH", 0xD935, len(extra) - 4) and not any(extra[4:])
        place = at + 30 + head[9] + head[10]
        content = data[place : place + head[7]]
        assert zlib.crc32(content) == head[6]
        row = struct.unpack("<4s6H3I5H2I", data[listed : listed + 46])
        assert row == (b"PK\1\2", 0x314, *head[1:9], *head[9:], 0, 0, 0, 0o644 << 16, at)
        assert data[listed + 46 : listed + 46 + len(name) + len(extra)] == name + extra
        listed += 46 + len(name) + len(extra)
        at = place + len(content)
        yield name.decode("ascii"), place, content
    assert at == begin and listed == begin + size


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def root(leaves: bytes) -> str:
    level = [leaves[i : i + 32] for i in range(0, len(leaves), 32)]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [hashlib.sha256(b"\1" + p[0] + p[1]).digest() if len(p) == 2 else p[0] for p in pairs]
    return level[0].hex()


def check(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest, and the other members; after all that the page says of these."""
    found = list(members(data))
    assert found[0][0] == "manifest.json"
    contents = {name: content for name, _, content in found}
    manifest = json.loads(contents.pop("manifest.json"))
    assert canonical(manifest) == found[0][2]
    assert (manifest["format"], manifest["version"]) == ("tilewright-model", 2)
    rest = [name for name, _, _ in found[1:]]
    if "signature.json" in contents:
        assert rest.pop(0) == "signature.json"
    assert rest[: len(rest) - len([n for n in rest if n.startswith("weights/")])] == sorted(
        name for name in rest if not name.startswith("weights/")
    )
    for name, place, content in found:
        weights = name.endswith(".safetensors")
        assert place % (4096 if weights else 64) == 0
        if name in ("manifest.json", "signature.json"):
            continue
        facts = manifest["members"][name]
        assert facts["size"] == len(content)
        if weights:
            chunks = [content[i : i + (1 << 20)] for i in range(0, len(content), 1 << 20)]
            leaves = b"".join(hashlib.sha256(b"\0" + chunk).digest() for chunk in chunks)
            assert contents[f"{name}.tree"] == leaves and facts["root"] == root(leaves)
        else:
            assert facts["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["members"].keys() == contents.keys() - {"signature.json"}
    for key, (member, begin, size) in manifest["weights"].items():
        content = contents[member]
        assert hashlib.sha256(content[begin : begin + size]).hexdigest() == key
        (length,) = struct.unpack("<Q", content[:8])
        said = json.loads(content[8 : 8 + length])[key]
        assert said["data_offsets"] == [begin - 8 - length, begin - 8 - length + size] and begin % 64 == 0
    return manifest, contents


@pytest.mark.parametrize("path", ["frozen", "made"])
def test_a_file_is_what_the_page_says(path: str, tmp_path: Path) -> None:
    file = FROZEN / "version2.twm"
    if path == "made":
        file = tmp_path / "m.twm"
        table = np.arange(700_000, dtype=np.float32).reshape(700, 1000)
        program = tw.compile(lambda x: jnp.tanh(x @ table), np.ones((3, 700), np.float32))
        tw.save({"f": program, "g": program}, file, metadata={"name": "ä"})
    manifest, contents = check(file.read_bytes())
    for name, entry in manifest["entries"].items():
        named = [entry["graph"], *entry["npu"].values(), *entry["reports"].values(), entry.get("stablehlo", "")]
        for row in entry.get("open", {}).get("codes", ()):
            assert row["kind"] in ("stablehlo", "tw") and len(row["ranges"]) == len(entry["open"]["symbols"])
            named.append(row["graph"])
        assert all(member in contents for member in named if member), name
        for value in entry["signature"]["defaults"].values():
            for shape, dtype, key in value["leaves"]:
                assert dtype == "f32" and manifest["weights"][key][2] == 4 * int(np.prod(shape))


def test_the_signature_is_what_the_page_says() -> None:
    manifest = next(c for n, _, c in members((FROZEN / "version2.twm").read_bytes()) if n == "manifest.json")
    said = next(c for n, _, c in members((FROZEN / "version2.twm").read_bytes()) if n == "signature.json")
    signature = json.loads(said)
    assert canonical(signature) == said and signature["algorithm"] == "ECDSA-P256-SHA256"
    pems = (FROZEN / "trusted.pem").read_text().split("-----BEGIN")[1:]
    keys = [serialization.load_pem_public_key(f"-----BEGIN{pem}".encode()) for pem in pems]
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    (key,) = (k for k in keys if hashlib.sha256(k.public_bytes(*form)).hexdigest() == signature["key"])
    assert isinstance(key, ec.EllipticCurvePublicKey)
    signed = b"tilewright-model manifest 1\0" + hashlib.sha256(manifest).digest()
    key.verify(base64.b64decode(signature["signature"]), signed, ec.ECDSA(hashes.SHA256()))
