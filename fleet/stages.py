"""Which devices have a release at which stage: decided by hashes, spread over regions and chips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple


class DevicePlace(NamedTuple):
    """A device, where it is and what it is."""

    name: str
    region: str
    chip: str


def stage_sizes(count: int, shares: Sequence[float]) -> list[int]:
    """How many of `count` devices may have a release at each stage: never more than its share, and at least one."""
    return [max(1, int(share * count + 1e-9)) for share in shares]


def stages_of(
    devices: Iterable[DevicePlace], shares: Sequence[float], key: str, silent: Collection[str] = ()
) -> dict[str, int]:
    """The stage of each device. Of the k-th of n devices of a region and chip, in the order of hashes, the place in
    line is (k + u) / n, where u is drawn by the hash of the two: this is systematic sampling, and however many come
    first have each region and chip by its share, give or take one. key: of the rollout; another one has other devices
    first; silent: devices that cannot be reached, and come last: a stage of such alone would not end."""
    strata: dict[tuple[bool, str, str], list[tuple[int, str]]] = defaultdict(list)
    for name, region, chip in devices:
        strata[name in silent, region, chip].append((_hash(key, name), name))
    line: list[tuple[float, int, str]] = []
    for (late, region, chip), members in strata.items():
        shift = _hash(key, region, chip) / (1 << 256)
        for number, (drawn, name) in enumerate(sorted(members)):
            line.append((late + (number + shift) / len(members), drawn, name))
    sizes = stage_sizes(len(line), shares)
    found, stage = dict[str, int](), 0
    for number, (_, _, name) in enumerate(sorted(line)):
        while stage < len(sizes) - 1 and number >= sizes[stage]:
            stage += 1
        found[name] = stage
    return found


def _hash(*words: str) -> int:
    return int.from_bytes(sha256("\0".join(words).encode()).digest())
