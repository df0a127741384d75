"""Mutants of npu programs as text: npu-check refuses them in one sentence, or they run, alike in all modes.

`python -m fuzz.npu_text [--count 300] [--seed 0]` changes numbers, names and lines of programs of several kinds, and
says what became of the mutants. One that npu-check lets pass and that raises when it is run, or gives other results in
typed memory, in an arena of bytes and step by step, has escaped. Sums of products may come in another order by steps.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilewright as tw

from .files import TooLong

SECONDS = 60
"""The longest that one mutant may take, in time of the processor."""

MODES = ("typed", "bytes", "step")


def _scan(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda s, _: (jnp.tanh(s @ w), s.sum()), x, None, length=3)


def _search(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: jnp.sum(v) < 100, lambda v: v * 2 + 1, x)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]], str]] = {
    "product": (lambda x, w: jax.nn.relu(x @ w), ((24, 40), (40, 33)), "f2"),
    "softmax": (lambda x: jax.nn.softmax(x), ((7, 50),), "f4"),
    "split": (lambda x, w: (x @ w).sum(0), ((16, 600), (600, 16)), "f4"),
    "placed": (lambda x, y: jnp.concatenate([jnp.exp(x), x @ y]), ((8, 16), (16, 16)), "f4"),
    "scan": (_scan, ((8, 16), (16, 16)), "f4"),
    "search": (_search, ((6, 5),), "f4"),
    "host": (lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(8)), ((8, 12),), "f4"),
    "moves": (lambda x: x.T[::-1, 1:], ((9, 20),), "f4"),
    "picked": (lambda x, y: x[jnp.argsort(y[:, 0])], ((12, 16), (12, 3)), "f4"),
    "attention": (_attention, ((32, 16), (48, 16), (48, 16)), "f2"),
}
"""Functions, the shapes of their arguments, and the type of these."""

TARGETS = ("ascend-910b1", "ascend-310")


@cache
def seed_program(name: str, target: str) -> tuple[str, tuple[np.ndarray, ...]]:
    """The npu text of a program, and arguments."""
    fn, shapes, dtype = PROGRAMS[name]
    rng = np.random.default_rng(0)
    args = tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return tw.compile(fn, *args, target=target).ir("npu"), args


# -- mutations -----------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w.%@])-?\d+(?![\w.])")
_VALUE = re.compile(r"%\d+")


def _number(lines: list[str], rng: random.Random) -> None:
    """Another number in the place of one that an op has: near it, or a large one."""
    at = _line_with(lines, _NUMBER, rng)
    places = list(_NUMBER.finditer(lines[at]))
    place = rng.choice(places)
    old = int(place[0])
    near = [old + 1, old - 1, 2 * old, old // 2, old + 7, old + 32, old + 4096]
    new = rng.choice([*near, 0, 1, -1, 2**31, 2**40])
    lines[at] = f"{lines[at][: place.start()]}{new}{lines[at][place.end() :]}"


def _dimension(lines: list[str], rng: random.Random) -> None:
    """Another dimension in a type."""
    kind = re.compile(r"<(\d+)(x[\dx]*(?:f16|f32|i32|i1|bf16|i8|ui32))")
    at = _line_with(lines, kind, rng)
    place = rng.choice(list(kind.finditer(lines[at])))
    new = max(0, int(place[1]) + rng.choice([-1, 1, int(place[1]), 16]))
    lines[at] = f"{lines[at][: place.start(1)]}{new}{lines[at][place.end(1) :]}"


def _operand(lines: list[str], rng: random.Random) -> None:
    """Another value in the place of one that an op uses."""
    at = _line_with(lines, _VALUE, rng)
    places = list(_VALUE.finditer(lines[at]))
    place = rng.choice(places)
    others = [m[0] for line in lines[max(0, at - 25) : at] for m in _VALUE.finditer(line)]
    if others:
        lines[at] = f"{lines[at][: place.start()]}{rng.choice(others)}{lines[at][place.end() :]}"


def _without(lines: list[str], rng: random.Random) -> None:
    """No line that holds an op alone."""
    at = _line_with(lines, re.compile(r"^\s+(?:%.* = )?npu\.[^{]*$|^\s+npu\.\w+ .*[^{]$"), rng)
    del lines[at]


def _twice(lines: list[str], rng: random.Random) -> None:
    """A line without results twice."""
    at = _line_with(lines, re.compile(r"^\s+npu\.\w+ .*[^{]$"), rng)
    lines.insert(at, lines[at])


def _swapped(lines: list[str], rng: random.Random) -> None:
    """Two neighbours the other way round."""
    at = rng.randrange(1, len(lines))
    lines[at - 1], lines[at] = lines[at], lines[at - 1]


def _word(lines: list[str], rng: random.Random) -> None:
    """Another word of the same kind: a pipe, a space, a kind of core or an element type."""
    families = (
        ("MTE1", "MTE2", "MTE3", "FIX", '"V"', '"M"', '"S"'),
        ("l1", "l0a", "l0b", "l0c", "ub"),
        ('"cube"', '"vector"', '"mix"'),
        ("f16", "f32", "i32"),
        ("vadd", "vmul", "vmax", "vexp", "vrelu"),
        ("load_nd2nz", "load_nd", "load_l0", "fixpipe", "store_nd"),
    )
    family = rng.choice(families)
    word = re.compile("|".join(rf"(?<!\w){w}(?!\w)" for w in family))
    at = _line_with(lines, word, rng)
    place = rng.choice(list(word.finditer(lines[at])) or [None])
    if place is not None:
        lines[at] = f"{lines[at][: place.start()]}{rng.choice(family)}{lines[at][place.end() :]}"


def _line_with(lines: Sequence[str], wanted: re.Pattern[str], rng: random.Random) -> int:
    found = [i for i, line in enumerate(lines) if wanted.search(line)]
    return rng.choice(found or [0])


MUTATIONS = (_number, _number, _number, _dimension, _operand, _without, _twice, _swapped, _word)


def mutated(text: str, rng: random.Random) -> str:
    """A program with one or two changes."""
    lines = text.splitlines()
    for _ in range(rng.choice([1, 1, 2])):
        try:
            rng.choice(MUTATIONS)(lines, rng)
        except IndexError:  # nothing of the kind in the program
            _swapped(lines, rng)
    return "\n".join(lines) + "\n"


# -- running -------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of mutants: how many of each word, what escaped or failed, and what the worst one took."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    faults: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


def judged(text: str, args: Sequence[np.ndarray], target: str, folder: Path) -> tuple[str, str]:
    """A word for what becomes of a program, and what is said."""
    path = folder / "mutant.mlir"
    path.write_text(text)
    try:
        program = tw.compile(path, target=target)
    except (tw.CompileError, tw.MachineError, tw.SimulationError) as error:
        said = str(error)
        return ("refused", said) if "\n" not in said else ("several lines", said)
    except Exception as error:
        return "internal error", f"{type(error).__name__}: {error}"
    results: dict[str, list[np.ndarray]] = {}
    for mode in MODES:
        try:
            with np.errstate(all="ignore"):
                results[mode] = [np.asarray(leaf) for leaf in jax.tree.leaves(program(*args, mode=mode))]
        except tw.CompileError as error:
            if "argument" in str(error) or "takes" in str(error):  # other inputs than it had
                return "other inputs", str(error)
            return "escaped", f"{mode}: {error}"
        except Exception as error:
            return "escaped", f"{mode}: {type(error).__name__}: {error}"
    loose = "npu.mmad" in text
    apart = [
        mode
        for mode in MODES
        if not all(map(_alike, results[mode], results["typed"], [loose and mode == "step"] * len(results[mode])))
    ]
    return ("escaped", f"other results in {', '.join(apart)}") if apart else ("runs", "")


def _alike(a: np.ndarray, b: np.ndarray, loose: bool) -> bool:
    """Whether two results have the same bytes, or are near each other."""
    if not loose or a.dtype.kind != "f":
        return a.tobytes() == b.tobytes()
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(np.where(np.isfinite(b), b, 0)), initial=1.0)
        return bool(np.allclose(a.astype("f8"), b.astype("f8"), rtol=2e-2, atol=1e-2 * scale, equal_nan=True))


def run(seeds: range, folder: Path, names: Sequence[str] = tuple(PROGRAMS)) -> Outcome:
    """What becomes of the mutants that have these numbers."""
    outcome = Outcome()

    def stop(*_: object) -> None:
        raise TooLong

    old = signal.signal(signal.SIGPROF, stop)
    try:
        for seed in seeds:
            rng = random.Random(f"npu {seed}")
            name, target = rng.choice(names), rng.choice(TARGETS)
            text, args = seed_program(name, target)
            mutant = mutated(text, rng)
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                word, said = judged(mutant, args, target, folder)
            except TooLong:
                word, said = "hang", f"more than {SECONDS} s"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            outcome.seconds = max(outcome.seconds, time.process_time() - began)
            outcome.counts[word] = outcome.counts.get(word, 0) + 1
            if word not in ("refused", "runs", "other inputs"):
                outcome.faults.append(f"{seed} ({name}, {target}) {word}: {' '.join(said.split())[:300]}")
    finally:
        signal.signal(signal.SIGPROF, old)
    return outcome


def main() -> int:
    """Runs the campaign; 1 where a mutant escaped, failed or took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs, separated by commas")
    args = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        found = run(range(args.seed, args.seed + args.count), Path(folder), args.only.split(","))
    counts = ", ".join(f"{n} {word}" for word, n in sorted(found.counts.items()))
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"npu: {counts}; the worst took {found.seconds:.1f} s, all {taken:.0f} MB")
    for fault in found.faults:
        print(f"  {fault}")
    return int(bool(found.faults))


if __name__ == "__main__":
    sys.exit(main())
