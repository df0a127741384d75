"""What mutations share: a random choice of an op of a kernel, and its surroundings."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import ints, to_ints
from tilewright.dialects.npu import structure
from tilewright.machine import Machine

Random = random.Random
Mutation = Callable[[Any, Random, Machine], str | None]


def every(root: Operation, *kinds: type) -> list[Any]:
    return [op for op in root.walk() if isinstance(op, kinds)]


def pick(rng: Random, found: Sequence[Any]) -> Any:
    return rng.choice(found) if found else None


def section_of(op: Operation) -> Operation:
    while not isinstance(op, structure.SectionOp):
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def flags_like(root: Operation, one: ops.SyncOp) -> list[ops.SyncOp]:
    """All ops of the same flag in the same section."""
    keys = ("source", "target", "event", "slots")
    return [
        f
        for f in every(section_of(one), ops.SyncOp)
        if all(f.properties[k] == one.properties[k] for k in keys)
    ]


def described(op: Operation) -> str:
    return f"{op.name} {dict(sorted((k, str(v)) for k, v in op.properties.items()))}"


def recount(op: Any, rng: Random) -> str:
    old = to_ints(op.properties["offsets"])
    new = list(old)
    at = rng.randrange(len(new))
    new[at] += rng.choice((1, -1))
    op.properties["offsets"] = ints(new)
    return f"{op.name} counts {new} instead of {list(old)}"
