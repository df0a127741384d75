"""What each alternative saves: examples compiled with all of them and without each, in modelled microseconds, and by
other judges.

python benchmarks/ablation.py [MODEL ...] [--target T] [--page docs/ablation.md]

The judges: the machine as it is (frozen), as it was before mixed launches, signals between cores and banks cost
anything, and with barriers of half and of twice the cost. They time the program that the frozen one chose.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from run import load

import tilewright as tw
from tilewright.backends.simulator import simulate
from tilewright.machine import Machine
from tilewright.passes.alternatives import OURS
from tilewright.support.files import write_part

MODELS = (
    "gpt2.py:forward_f16",
    "bert.py:forward_f16",
    "vit.py:forward_f16",
    "resnet50.py:forward_f16",
    "llama.py:prefill",
    "llama.py:decode",
)
BEGIN, END = "<!-- ablation: begin -->", "<!-- ablation: end -->"

STEPS = {
    "all": tw.Options(),
    **{f"without {each.name}": tw.Options(without=each.name) for each in OURS},
    "none": tw.Options(without=[each.name for each in OURS]),
}
"""Which alternatives are considered."""

HEADER = (
    "| model | on | us | launches | MiB moved | judge before us | barrier 0.5x us | barrier 2x us |",
    "|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Judges:
    """The machine as it is, and as others would have it."""

    frozen: Machine
    before: Machine
    half: Machine
    twice: Machine

    @staticmethod
    def of(machine: Machine) -> Judges:
        free = replace(machine, mixed_us=0.0, mixed_us_all=0.0, cross_us=0.0)
        return Judges(
            machine,
            replace(free, vector=replace(machine.vector, banks=None)),
            replace(machine, barrier_share=machine.barrier_share / 2),
            replace(machine, barrier_share=machine.barrier_share * 2),
        )

    def microseconds(self, program: tw.Program) -> list[float]:
        """The time of a program by each of them."""
        module = program.module("npu")
        found = (self.frozen, self.before, self.half, self.twice)
        return [simulate(module, machine).microseconds for machine in found]


def rows(model: str, target: str) -> list[str]:
    """The lines of one model."""
    function, inputs = load(model)
    judges, found = Judges.of(Machine.load(target)), []
    for name, options in STEPS.items():
        program = tw.compile(function, *inputs, target=target, options=options)
        report = program.report()
        moved = sum(kernel.bytes["hbm"] + kernel.bytes["l2"] for kernel in report.kernels)
        us, before, half, twice = judges.microseconds(program)
        found.append(
            f"| `{model}` | {name} | {us:,.1f} | {report.counts.launches} | {moved / 2**20:,.1f} "
            f"| {before:,.1f} | {half:,.1f} | {twice:,.1f} |"
        )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--target", default="ascend-910b1")
    parser.add_argument("--page", help="a Markdown file whose part of results is written anew")
    args = parser.parse_args(argv)
    lines = list(HEADER)
    for model in args.models:
        found = rows(model, args.target)
        print(*found, sep="\n", flush=True)
        lines += found
    if args.page:
        write_part(args.page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
