"""Models without weights, compiled from shapes alone, and a token of GPT-2: the compilation, the time against the
floor, and the kernels that take longest with theirs.

python benchmarks/from_shapes.py                          # all, half a minute
python benchmarks/from_shapes.py --page docs/models.md    # and put the tables between the marks of the page
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks")]

from run import load  # noqa: E402  # found on the path above

MODELS = ("gpt2:token", "llama_7b:token", "llama_7b:prefill", "moe:mixtral", "moe:qwen3")
MOST = 5
"""Kernels of each model that are listed."""

BEGIN, END = "<!-- from shapes: begin -->", "<!-- from shapes: end -->"


def rows(model: str) -> list[str]:
    """The row of a model and those of its kernels, as Markdown, in a process that has compiled nothing yet."""
    import jax

    import tilewright as tw

    file, name = model.split(":")
    fn, args = load(f"{file}.py:{name}")
    args = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()  # other processes do not count
    program = tw.compile(fn, *args)
    seconds = time.process_time() - start
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    report = program.report()
    found = [
        f"| `{model}` | {seconds:.1f} | {more:,.0f} | {report.counts.launches:,} | {report.microseconds:,.0f} | "
        f"{report.floor_microseconds:,.0f} | {100 * (report.efficiency or 0):.0f} % |"
    ]
    for kernel in sorted(report.kernels, key=lambda k: -k.microseconds)[:MOST]:
        source = (kernel.source or "").rpartition("/")[2]
        found.append(
            f"| `{model}` | `{kernel.name}` (`{source}`) | {kernel.launches} | {kernel.microseconds:,.0f} | "
            f"{kernel.floor_microseconds:,.0f} | {100 * (kernel.efficiency or 0):.0f} % | {kernel.bound} |"
        )
    return found


def tables(models: list[str]) -> str:
    """Both tables, each model compiled in a process of its own."""
    programs: list[str] = []
    kernels: list[str] = []
    for model in models:
        done = subprocess.run(
            [sys.executable, __file__, "--alone", model], capture_output=True, text=True, check=True
        )
        first, *rest = done.stdout.splitlines()
        programs.append(first)
        kernels += rest
    head = "| model | compile, processor s | more memory, MB | launches | us (modelled) | floor, us | efficiency |"
    other = f"| model | the {MOST} kernels that take longest | runs | us | floor, us | efficiency | bound |"
    return "\n".join(
        [
            *(head, "|---|---:|---:|---:|---:|---:|---:|", *programs, ""),
            *(other, "|---|---|---:|---:|---:|---:|---|", *kernels),
        ]
    )


def main() -> None:
    """Prints the tables, and puts them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--alone", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print("\n".join(rows(args.alone)))
        return
    found = tables(args.models)
    print(found)
    if args.page is not None:
        from tilewright.support.files import write_part

        write_part(args.page, BEGIN, END, found)


if __name__ == "__main__":
    main()
