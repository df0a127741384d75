"""Attention in one kernel beside the fastest published kernels of the same shapes, in modelled microseconds.

python benchmarks/attention.py RECORDS.json [RECORDS.json ...] [--target T] [--page docs/attention.md]

The files hold measured kernels, as ../shared/calibration/measurements_dev.json and fused_kernels.json do. Of each shape
the fastest row counts, whoever wrote the kernel. Columns: attention in one kernel and in parts, its ratio to the
published time, and the time by other judges than the frozen one: a machine from before mixed launches, signals between
cores and banks cost anything, and barriers of half and of twice the cost.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ablation import Judges

import tilewright as tw
from tilewright.machine import Machine
from tilewright.support.files import write_part

BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"

CHIPS = ("910B2", "A3", "A2/A3", "910B1")
"""Chips whose cores are those of an ascend-910b1."""

HEADER = (
    "| queries | keys | ours us | in parts us | best published us | ratio | cores | kernel | judge before "
    "| barrier 0.5x, 2x |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True, order=True)
class Shape:
    """Of one head."""

    rows: int
    keys: int
    size: int


def published(files: Iterable[str]) -> dict[Shape, float]:
    """The fastest row of each shape, in microseconds."""
    best: dict[Shape, float] = {}
    for file in files:
        for record in json.loads(Path(file).read_text()):
            found = _measured(record)
            if found is not None:
                shape, us = found
                best[shape] = min(best.get(shape, us), us)
    return best


def _measured(record: Mapping[str, Any]) -> tuple[Shape, float] | None:
    """The shape and the time of a row about attention, forward and not causal, on a chip that is modelled."""
    if not any(str(record["chip"]).removeprefix("Ascend ") == chip for chip in CHIPS):
        return None
    work = record.get("workload")
    if work is None:
        about = record.get("shape", {})
        if record["op"] != "flash_attention_fwd" or about.get("causal") or "S0" not in about:
            return None
        return Shape(about["S0"], about["S1"], about["D"]), float(record["measured"]["value"])
    if work["op"] != "flash_attention" or work.get("causal"):
        return None
    return Shape(work["seq_q"], work["seq_kv"], work["head_size"]), float(record["measured_us"]["task"])


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Of q (heads, rows, size), k and v (heads, keys, size): the scores and the softmax in f32."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores * (1 / math.sqrt(q.shape[-1])), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", weights.astype(q.dtype), v)


def row(shape: Shape, best: float, target: str) -> tuple[str, float]:
    """A line of the table, and the ratio of ours to the published time."""
    args = [jax.ShapeDtypeStruct((1, n, shape.size), "float16") for n in (shape.rows, shape.keys, shape.keys)]
    program = tw.compile(attention, *args, target=target)
    apart = tw.compile(attention, *args, target=target, options=tw.Options(without={"attention"})).report()
    us, before, half, twice = Judges.of(Machine.load(target)).microseconds(program)
    (kernel,) = program.report().kernels
    ratio = us / best
    return (
        f"| {shape.rows:,} | {shape.keys:,} | {us:,.1f} | {apart.microseconds:,.1f} "
        f"| {best:,.1f} | {ratio:.2f} | {kernel.cores} | {kernel.bound} | {before:,.1f} "
        f"| {half:,.1f}, {twice:,.1f} |"
    ), ratio


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="+")
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--most", type=int, default=32768, help="the longest side that is compiled")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    args = parser.parse_args(argv)
    lines, ratios = list(HEADER), []
    for shape, best in sorted(published(args.records).items()):
        if max(shape.rows, shape.keys) <= args.most:
            line, ratio = row(shape, best, args.target)
            print(line, flush=True)
            lines.append(line)
            ratios.append(ratio)
    least = sum(r <= 1 for r in ratios)
    said = (
        f"{least} of {len(ratios)} shapes take no longer than the fastest published kernel; "
        f"the median ratio is {statistics.median(ratios):.2f}, the largest {max(ratios):.2f}."
    )
    print(said)
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join([*lines, "", said]))


if __name__ == "__main__":
    main()
