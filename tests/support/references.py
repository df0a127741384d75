"""What JAX computes, kept by the program and its arguments: the second run of a test, and the same program for another
chip or with other options, need no XLA."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

KEPT = Path(__file__).resolve().parents[2] / "build" / "references"
MOST_BYTES = 1 << 20
"""Results that are larger are computed anew."""

REFERENCE: dict[str, bool | int | str] = {
    "xla_allow_excess_precision": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
}
"""How JAX's own code is compiled: each f16 and bf16 value is rounded where the program says so, no library takes over
reductions, and LLVM makes no effort: the code runs once. It takes a fifth of XLA's usual time."""


def reference(fn: Callable[..., Any], *args: Any) -> list[Any]:
    """The flat results of `fn` as JAX computes them."""
    lowered = jax.jit(fn).lower(*args)
    path = KEPT / _key(lowered.as_text(), jax.tree.leaves(args))
    known = _read(path)
    if known is None:
        known = jax.tree.leaves(lowered.compile(compiler_options=REFERENCE)(*args))
        _keep(path, [np.asarray(x) for x in known])
    return known


def _key(program: str, arguments: Sequence[Any]) -> str:
    """A name for a program on arguments, with what computes it."""
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{jax.__version__} {REFERENCE} {os.environ.get('XLA_FLAGS')}\n{program}".encode())
    for x in map(_plain, arguments):
        found.update(f"{x.dtype} {x.shape}".encode())
        found.update(np.ascontiguousarray(x).tobytes())
    return found.hexdigest()


def _plain(x: Any) -> np.ndarray:
    """An argument as an array; keys of random numbers as the integers that they are."""
    is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)


def _read(path: Path) -> list[np.ndarray] | None:
    if not path.exists():
        return None
    head, _, data = path.read_bytes().partition(b"\n")
    arrays, at = list[np.ndarray](), 0
    for name, shape in json.loads(head):
        dtype = jnp.dtype(name)
        taken = math.prod(shape) * dtype.itemsize
        arrays.append(np.ndarray(shape, dtype, data[at : at + taken]))
        at += taken
    return arrays


def _keep(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Written whole or not at all: other workers read it."""
    if sum(x.nbytes for x in arrays) > MOST_BYTES:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps([[x.dtype.name, x.shape] for x in arrays]).encode()
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(head + b"\n" + b"".join(np.ascontiguousarray(x).tobytes() for x in arrays))
    Path(file.name).rename(path)
