"""The vendor's operator benchmark (hicann/cann-bench) beside plain JAX functions of the same shapes, in modelled
microseconds.

python benchmarks/cann_bench.py RECORDS.json [--op NAME] [--chip 910B2] [--limit N] [--barriers]
                                [--tune SECONDS] [--page docs/cann-bench.md] [--json OUT]

The records, as ../shared/calibration/cann_bench_dev.json has them, say of each row the operator, shapes, dtypes and
attributes, the time of the vendor's kernel on silicon and the vendor's own floor for that work. `cann_operators.py` has
the functions. One process compiles all rows in their order, from shapes alone. HAP is (theirs - floor) / ((ours -
floor) + (theirs - floor)): 0.5 is as fast as the vendor, 1 is the floor. `--barriers` compiles each row once more, for
a chip whose pipes keep their order, which takes as long again. `--tune` tunes each row for so long, and says how many
kernels are proven.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

import tilewright as tw
from tilewright.benchmarks.cann_operators import OPERATORS, PICKING
from tilewright.benchmarks.cann_tables import Barriers, Row, page, short
from tilewright.dialects.npu import PipeBarrierOp
from tilewright.dialects.npu.structure import KernelOp
from tilewright.machine import Machine
from tilewright.support.files import write_part

BEGIN, END = "<!-- cann-bench: begin -->", "<!-- cann-bench: end -->"

CHIPS = {"910B2": "ascend-910b1", "950PR": "ascend-950pr"}
"""The chip of ours that has the cores of one of the benchmark's."""

IN_ORDER = 'extends = "{}"\norder = {{}}\n'
"""A machine file of a chip whose pipes end an instruction before they begin the next."""

CLEARED_EVERY = 20
"""JAX keeps what it traced; rows after which it forgets that."""


class Unclear(Exception):
    """Why a row's data does not say what is computed, in one sentence."""


@dataclass
class Tuned:
    """How long rows are tuned, and what became of their kernels."""

    budget: float
    kernels: int = 0
    proven: int = 0
    before: list[float] = dataclasses.field(default_factory=list[float])
    after: list[float] = dataclasses.field(default_factory=list[float])

    def compile(self, function: Callable[..., Any], *operands: Any, target: str) -> tw.Program:
        """The tuned program."""
        found = tw.tune(function, *operands, target=target, budget=self.budget, store="")
        self.kernels += len(found.report.kernels)
        self.proven += sum(k.certified for k in found.report.kernels)
        self.before.append(found.report.before)
        self.after.append(found.report.after)
        return found.program

    def __str__(self) -> str:
        least = statistics.geometric_mean(a / b for a, b in zip(self.after, self.before, strict=True))
        faster = sum(a < 0.99 * b for a, b in zip(self.after, self.before, strict=True))
        return (
            f"Tuned for {self.budget:g} s each: {self.proven} of {self.kernels} kernels proven, {faster} of "
            f"{len(self.after)} rows faster by 1 % or more, geometric mean of after over before {least:.3f}."
        )


@dataclass(frozen=True)
class Case:
    """A record of the benchmark, and the function and operands that it stands for."""

    id: str
    op: str
    chip: str
    function: Callable[..., Any]
    operands: tuple[Any, ...]
    theirs: float
    floor: float
    wide: bool

    def bytes(self) -> tuple[int, int]:
        """Of all operands, and of all results."""
        with self.types():
            results = jax.eval_shape(self.function, *self.operands)
        read, written = (
            sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(part)) for part in (self.operands, results)
        )
        return read, written

    def types(self) -> Any:
        """A context in which JAX has 64 bits, if the case needs them."""
        return jax.enable_x64(True) if self.wide else nullcontext()


# -- a case from a record ------------------------------------------------------------------------------------


def case_of(record: Mapping[str, Any]) -> Case:
    """The case of a record. Raises Unclear."""
    op, shapes, dtypes = record["op"], json.loads(record["shape"]), json.loads(record["dtype"])
    function = OPERATORS.get(op)
    if function is None:
        raise Unclear(f"cann_operators.py does not have {op}")
    if record["chip"] not in CHIPS:
        raise Unclear(f"no chip of ours stands for {record['chip']}")
    if len(dtypes) != len(shapes):
        # lists of tensors name the type of all of them once
        if len(dtypes) != 1:
            raise Unclear(f"{len(shapes)} shapes and {len(dtypes)} dtypes")
        dtypes = dtypes * len(shapes)
    operands = tuple(_operand(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    # an attribute that is null is an operand which is not there
    attributes = {_snake(key): _value(v) for key, v in json.loads(record["attrs"]).items() if v is not None}
    bound = functools.partial(function, **attributes)
    wide = any(x.dtype in ("int64", "float64") for x in jax.tree.leaves(operands))
    case = Case(
        record["id"], op, record["chip"], bound, operands, record["measured_us"], record["t_hw_us"], wide
    )
    try:
        with case.types():
            jax.eval_shape(bound, *operands)
    except (TypeError, ValueError, IndexError) as error:
        raise Unclear(f"the function of {op} does not take the row: {_sentence(error)}") from error
    return case


def _operand(shape: Any, dtype: str | None) -> Any:
    """What stands for an operand: a shape with a type, a list of those, or None. Raises Unclear."""
    if shape is None:
        return None
    if dtype is None:
        raise Unclear(f"an operand of shape {shape} has no dtype")
    if shape and isinstance(shape[0], list):
        return [_operand(one, dtype) for one in shape]
    with jax.enable_x64(True):
        return jax.ShapeDtypeStruct(shape, dtype)


def _value(value: Any) -> Any:
    """An attribute; numbers may be text, as "inf" is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# -- a row from a case ---------------------------------------------------------------------------------------


def row_of(case: Case, ordered: str | None = None, tuned: Tuned | None = None) -> Row:
    """The row of a case; `ordered`: the machine file of its chip without barriers, if they are counted; `tuned`: how
    long it is tuned, if it is."""
    target = CHIPS[case.chip]
    machine = Machine.load(target)
    read_us, moved_us = _least(case, machine)
    row = Row(case.id, case.op, case.chip, case.theirs, case.floor, read_us=read_us, moved_us=moved_us)
    start = time.process_time()
    try:
        with case.types():
            compiled = tw.compile if tuned is None else tuned.compile
            program = compiled(case.function, *case.operands, target=target)
            seconds = time.process_time() - start
            report = program.report()
            barriers = None if ordered is None else _barriers(program, case, ordered)
    except Exception as error:  # a crash is a row, too, and the others follow
        said = _sentence(error)
        crash = not isinstance(error, tw.CompileError)
        failure = f"{type(error).__name__}: {said}" if crash else said
        return dataclasses.replace(row, failure=failure, crash=crash)
    slowest = max(report.kernels, key=lambda kernel: kernel.microseconds, default=None)
    return dataclasses.replace(
        row,
        seconds=seconds,
        ours=report.microseconds,
        launches=report.counts.launches,
        bound="" if slowest is None else slowest.bound,
        slowest="" if slowest is None else slowest.name,
        trips_unknown=len(report.assumed_trips),
        barriers=barriers,
    )


def _least(case: Case, machine: Machine) -> tuple[float | None, float | None]:
    """Microseconds of HBM for what must cross it, and for all bytes if L2 cannot hold them; see Row."""
    if case.op in PICKING:
        return None, None
    read, written = case.bytes()
    rate = machine.hbm_bytes_per_cycle * machine.clock_mhz
    every = read + written
    crossing = read + max(0, written - machine.l2_bytes)
    return crossing / rate, every / rate if every > machine.l2_bytes else None


def _barriers(program: tw.Program, case: Case, ordered: str) -> Barriers:
    counts = [
        sum(isinstance(op, PipeBarrierOp) for op in kernel.walk())
        for kernel in program.module("npu").walk()
        if isinstance(kernel, KernelOp)
    ]
    without = tw.compile(case.function, *case.operands, target=ordered).report().microseconds
    return Barriers(len(counts), sum(map(bool, counts)), sum(counts), without)


@contextmanager
def ordered_chips() -> Iterator[dict[str, str]]:
    """Machine files of all chips without barriers, by the benchmark's names, as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        found = {chip: str(Path(folder) / f"{target}-ordered.toml") for chip, target in CHIPS.items()}
        for chip, path in found.items():
            Path(path).write_text(IN_ORDER.format(CHIPS[chip]))
        yield found


def rows_of(
    records: Iterable[Mapping[str, Any]], barriers: bool = False, tuned: Tuned | None = None
) -> Iterator[Row]:
    """The rows of all records, one after the other."""
    with ordered_chips() as ordered:
        for count, record in enumerate(records, start=1):
            try:
                case = case_of(record)
            except Unclear as error:
                chip, theirs, floor = record["chip"], record["measured_us"], record["t_hw_us"]
                yield Row(record["id"], record["op"], chip, theirs, floor, failure=str(error))
                continue
            yield row_of(case, ordered[case.chip] if barriers else None, tuned)
            if count % CLEARED_EVERY == 0:
                jax.clear_caches()
                gc.collect()


def records_of(
    files: Iterable[str], op: str | None, chip: str | None, limit: int | None
) -> list[Mapping[str, Any]]:
    """The records that are asked for, of each operator the first `limit`."""
    found: list[Mapping[str, Any]] = []
    counts: dict[str, int] = {}
    for record in (record for file in files for record in json.loads(Path(file).read_text())):
        if op not in (None, record["op"]) or chip not in (None, record["chip"]):
            continue
        counts[record["op"]] = counts.get(record["op"], 0) + 1
        if limit is None or counts[record["op"]] <= limit:
            found.append(record)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="+")
    parser.add_argument("--op", help="an operator of the benchmark")
    parser.add_argument("--chip", choices=sorted(CHIPS))
    parser.add_argument("--limit", type=int, metavar="N", help="the first N rows of each operator")
    parser.add_argument(
        "--barriers", action="store_true", help="count barriers, and time a chip that needs none"
    )
    parser.add_argument("--tune", type=float, metavar="SECONDS", help="tune each row for so long")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    parser.add_argument("--json", help="a file for all rows as they are")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    tuned = None if args.tune is None else Tuned(args.tune)
    for row in rows_of(records_of(args.records, args.op, args.chip, args.limit), args.barriers, tuned):
        rows.append(row)
        time_ = (
            row.failure if row.ours is None else f"{row.ours:,.1f} us, {row.ratio:.2f}, {row.seconds:.1f} s"
        )
        print(f"{short(row.id)}: {time_}", file=sys.stderr, flush=True)
    found = page(rows)
    print(found)
    if tuned is not None and tuned.after:
        print(tuned)
    if args.page:
        write_part(args.page, BEGIN, END, found)
    if args.json:
        Path(args.json).write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
