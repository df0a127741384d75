"""Holds one call against `jax.jit`: structure, dtypes, weak types, shapes, values, both memory modes, compile time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import tilewright as tw
from tilewright.api.arguments.signature import physical
from tilewright.api.compiling import lower
from tilewright.verification.bounds import Bound
from tilewright.verification.compare import compare, same_bits
from tilewright.verification.structure import Cache
from tilewright.verification.tolerance import LIKELY
from tilewright.verification.walk import GraphWalk, Settings

from .arguments import SIZES, arguments
from .calls import Call

REFERENCE = {"xla_allow_excess_precision": False, "xla_cpu_experimental_ynn_fusion_type": ""}
"""JAX as the second reference where the first differs: f16 and bf16 rounded where the program says so, and no library
that loses NaN (docs/numerics.md)."""

CLOSE = 4.0
"""Units in the last place of a number that need no further bound."""

SLOW = (10.0, 5.0)
"""A compilation is too slow if it takes so many times XLA's time and so many seconds."""


@dataclass
class Case:
    """A call with an element type, a size of `SIZES`, and whether numbers are special."""

    call: Call
    dtype: str
    size: str = "usual"
    special: bool = False
    x64: bool = False
    bytes: bool = False

    def __str__(self) -> str:
        words = [self.call.text, self.dtype, self.size]
        words += ["special"] * self.special + ["x64"] * self.x64 + ["bytes"] * self.bytes
        return " ; ".join(words)


@dataclass
class Verdict:
    """kind: "" where all is well; `refused` by JAX itself; `crash`, `structure`, `type`, `weak`, `value`, `zero` (the
    sign of one), `bytes` or `slow`. how: what values are held by: `bits`, `close` (CLOSE), `careful` (CLOSE of the
    second reference, or zeros with the signs of JAX op by op), `bound` (the project's bounds) or `open` (they leave
    something open). message: what was found, or the largest error of each result relative to its largest number.
    host: ops on the host. seconds: to compile, XLA's, to run."""

    kind: str = ""
    message: str = ""
    how: str = "bits"
    host: int = 0
    seconds: tuple[float, ...] = ()


class _Found(Exception):
    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def judge(case: Case) -> Verdict:
    """Compiles and runs one case."""
    verdict = Verdict()
    with jax.enable_x64(case.x64), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = arguments(case.dtype, SIZES[case.size], case.special)
        args = [given[k] for k in case.call.letters]
        fn = case.call.function()
        try:
            start = time.perf_counter()
            compiled = jax.jit(fn).lower(*args).compile()
            theirs = time.perf_counter() - start
            want = compiled(*args)
        except Exception as error:  # JAX has the right to refuse
            return Verdict("refused", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
        try:
            _judge(case, verdict, fn, args, want, theirs)
        except _Found as found:
            verdict.kind, verdict.message = found.kind, str(found)
        except Exception as error:  # whatever it raises is a finding
            verdict.kind = "crash"
            verdict.message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return verdict


def _judge(case: Case, verdict: Verdict, fn: Any, args: Sequence[Any], want: Any, theirs: float) -> None:
    start = time.perf_counter()
    program = tw.compile(fn, *args)
    ours = time.perf_counter() - start
    verdict.host = sum(op.name == "npu.host_call" for op in program.module().walk())
    start = time.perf_counter()
    got = program(*args)
    run = time.perf_counter() - start
    verdict.seconds = (ours, theirs, run)
    _structure(got, want)
    flat, expected = ([physical(x) for x in jax.tree.leaves(tree)] for tree in (got, want))
    _values(verdict, fn, args, flat, expected)
    if case.bytes:
        again = program.executable("bytes")(*program.flatten(args))
        for i, (p, q) in enumerate(zip(again, flat, strict=True)):
            if not same_bits(np.asarray(p), np.asarray(q)):
                raise _Found("bytes", f"result {i} differs in bytes mode")
    program.report()
    if ours > SLOW[0] * theirs and ours > SLOW[1]:
        raise _Found("slow", f"{ours:.1f} s to compile, XLA {theirs:.1f} s")


def _structure(got: Any, want: Any) -> None:
    if jax.tree.structure(got) != jax.tree.structure(want):
        raise _Found("structure", f"{jax.tree.structure(got)} instead of {jax.tree.structure(want)}")
    for i, (x, y) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise _Found("type", f"result {i} is {x.dtype}{x.shape} instead of {y.dtype}{y.shape}")
        weak = [bool(getattr(z, "weak_type", False)) for z in (x, y)]
        if weak[0] != weak[1]:
            raise _Found("weak", f"result {i} has weak_type {weak[0]} instead of {weak[1]}")


def _values(verdict: Verdict, fn: Any, args: Sequence[Any], got: Sequence[Any], want: Sequence[Any]) -> None:
    got, want = [np.asarray(x) for x in got], [np.asarray(x) for x in want]
    if all(map(same_bits, got, want)):
        return
    verdict.how = "close"
    if all(map(_close, got, want)):
        _zeros(verdict, fn, args, got, want)
        return
    verdict.how = "careful"
    careful = jax.jit(fn).lower(*args).compile(compiler_options=REFERENCE)(*args)
    careful = [np.asarray(physical(x)) for x in jax.tree.leaves(careful)]
    if all(map(_close, got, careful)):
        return
    verdict.how = "bound"
    message = _beyond(verdict, fn, args, got, [want, careful])
    if message:
        raise _Found("value", message)


def _zeros(verdict: Verdict, fn: Any, args: Sequence[Any], got: Sequence[Any], want: Sequence[Any]) -> None:
    """Zeros have JAX's signs, or those of JAX op by op: XLA simplifies a whole program as if there were one zero."""
    other = [i for i, (x, y) in enumerate(zip(got, want, strict=True)) if not _same_signs(x, y)]
    if not other:
        return
    verdict.how = "careful"
    with jax.disable_jit():
        apart = [np.asarray(physical(x)) for x in jax.tree.leaves(fn(*args))]
    for i in other:
        if not _same_signs(got[i], apart[i]):
            raise _Found("zero", f"result {i} has zeros of the other sign")


def _same_signs(x: Any, y: Any) -> bool:
    return x.dtype.kind in "biu" or not (_signs(x) != _signs(y)).any()


def _signs(x: Any) -> Any:
    if x.dtype.kind == "c":
        return np.stack([_signs(x.real), _signs(x.imag)])
    z = x.astype(np.float64)
    return np.signbit(z) & (z == 0)


def _close(x: Any, y: Any) -> bool:
    """Equal, or within CLOSE units in the last place."""
    if x.dtype.kind in "biu" or x.size == 0:
        return bool((x == y).all())
    kind = np.complex128 if x.dtype.kind == "c" else np.float64
    p, q = x.astype(kind), y.astype(kind)
    with np.errstate(all="ignore"):
        same = (p == q) | (np.isnan(p) & np.isnan(q))
        room = CLOSE * float(jax.numpy.finfo(x.dtype).eps) * np.abs(q)
        tiny = float(jax.numpy.finfo(x.dtype).smallest_normal)
        return bool((same | (np.abs(p - q) <= room) | ((np.abs(p) <= tiny) & (np.abs(q) <= tiny))).all())


def _beyond(
    verdict: Verdict, fn: Any, args: Sequence[Any], got: Sequence[Any], wants: Sequence[Sequence[Any]]
) -> str:
    """What is beyond the project's own bounds (docs/numerics.md) of all references, or nothing."""
    module, flat = lower(fn, *args)
    bounds: list[Bound] = (
        GraphWalk(module, Cache(), Settings(likely=True, record=False)).run(flat).result_bounds
    )
    said = ""
    for want in wants:
        said, verdict.message = "", ""
        for i, (x, y, e) in enumerate(zip(got, want, bounds, strict=True)):
            allowed = None if e is None else 2 * LIKELY * np.asarray(e, np.float64)
            d = compare(x, y, allowed)
            if d.ratio > 1 and not said:
                room = "equal" if allowed is None else f"within {allowed[d.element]:.3g}"
                at = list(d.element)
                said = f"result {i} at {at} is {d.got}, must be {room} of {d.want} ({d.count} of {y.size})"
            if allowed is not None and not _close(x[np.isinf(allowed)], y[np.isinf(allowed)]):
                verdict.how = "open"
            verdict.message += f"{compare(x, y).error:.1e} "
        if not said:
            return ""
    return said
