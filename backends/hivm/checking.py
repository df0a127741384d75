"""Runs the vendor's compiler on a kernel's text, and compares what arrives at its last step, and what flags its own
solvers would take, with ours."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .kernels import HivmKernel
from .library import missing_functions
from .products import CUBE_PAIRS
from .tools import SPEC, ToolError, VendorTools
from .traces import differences, read_module, traces_of

SOLVERS = ("hivm-graph-sync-solver", "hivm-inject-sync")
"""The vendor's passes that place flags and barriers: the one for Triton's kernels, and the older one."""

MACRO = tuple(f"{source} -> {target}" for source, target in CUBE_PAIRS)


@dataclass(frozen=True)
class Disagreement:
    """Where solvers of the vendor have other numbers of flags or barriers than we, counted in the text.

    what: `flags V -> MTE3` or `barriers of V`; theirs: by solver; verdict: who is right, as far as that can be said.
    """

    what: str
    ours: int
    theirs: dict[str, int]
    verdict: str

    def __str__(self) -> str:
        others = ", ".join(f"{n} of {solver}" for solver, n in self.theirs.items())
        return f"{self.what}: {self.ours} of ours, {others}: {self.verdict}"


@dataclass
class KernelCheck:
    """What the vendor's tools say of a kernel.

    verified: its verifier takes the text; reached: it comes to the last step; problem: why not, a sentence; changed:
    what of flags, barriers and addresses does not arrive there as it was, or is not lowered; flags, barriers: ours, of
    all functions; disagreements: with the vendor's solvers.
    """

    kernel: str
    verified: bool = False
    reached: bool = False
    problem: str = ""
    changed: list[str] = field(default_factory=list)
    flags: int = 0
    barriers: int = 0
    disagreements: list[Disagreement] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.reached and not self.changed


def check_kernel(
    kernel: HivmKernel, slotted: HivmKernel, tools: VendorTools, minimal: bool = True
) -> KernelCheck:
    """What the vendor's tools say of a kernel. slotted: the same with slots as several addresses, which the solvers
    understand; minimal: whether npu-check finds none of our flags that could go. Raises ToolError where the tools
    cannot be run at all."""
    found = KernelCheck(kernel.name)
    ours = read_module(kernel.text)
    for traces in traces_of(ours).values():
        found.flags += traces[0].flags
        found.barriers += traces[0].barriers
    try:
        tools.passes("builtin.module()", kernel.text)
        found.verified = True
        lowered = tools.tail(kernel.text, kernel.target)
        with tempfile.TemporaryDirectory() as folder:
            handed = tools.hand_over(lowered, kernel.target, Path(folder))
        found.reached = True
        found.changed = [*_left_over(handed), *differences(ours, read_module(handed))]
        cores = ["AIC", "AIV"] if kernel.kind == "MIX" else [kernel.kind]
        missing = missing_functions(handed, cores, tools.folder.parent / "lib")
        found.changed += [f"calls {name}, which the vendor's library does not have" for name in missing]
        found.disagreements = list(_second_opinions(slotted, tools, minimal))
    except ToolError as error:
        found.problem = str(error)
    return found


def _left_over(handed: str) -> Iterator[str]:
    """Ops that should be calls of the library by now, and memory that nobody has planned."""
    for op in dict.fromkeys(re.findall(r"hivm\.hir\.(v\w+|load|store|copy|nd2nz|mmadL1|fixpipe)\b", handed)):
        yield f"hivm.hir.{op} is not lowered"
    if "memref.alloc" in handed:
        yield "the vendor's compiler allocates memory of its own, which nobody has planned"


def _second_opinions(slotted: HivmKernel, tools: VendorTools, minimal: bool) -> Iterator[Disagreement]:
    """What the solvers would place in a text without our flags, where that differs from ours."""
    bare, ours = stripped(slotted.text), _counts(slotted.text)
    theirs: dict[str, Counter[str]] = {}
    for solver in SOLVERS:
        pipeline = f"builtin.module({SPEC.format(target=slotted.target)},func.func({solver}))"
        theirs[solver.removeprefix("hivm-")] = _counts(tools.passes(pipeline, bare))
    for what in sorted(set().union(ours, *theirs.values())):
        others = {solver: found[what] for solver, found in theirs.items()}
        if any(n != ours[what] for n in others.values()):
            yield Disagreement(what, ours[what], others, _verdict(what, ours[what], others, minimal))


def stripped(text: str) -> str:
    """A kernel's text without its flags and barriers, and without the events of products."""
    text = re.sub(r"(?m)^.*hivm\.hir\.(set_flag|wait_flag|pipe_barrier)\[.*\n", "", text)
    return re.sub(r" sync_related_args\([^)]*\)", "", text)


def _counts(text: str) -> Counter[str]:
    """Flags that are set, by their pipes, and barriers, as often as the text has them."""
    found: Counter[str] = Counter()
    for source, target in re.findall(r"hivm\.hir\.set_flag\[<PIPE_(\w+)>, <PIPE_(\w+)>", text):
        found[f"flags {source} -> {target}"] += 1
    found.update(
        f"barriers of {pipe}" for pipe in re.findall(r"hivm\.hir\.pipe_barrier\[<PIPE_(\w+)>\]", text)
    )
    return found


def _verdict(what: str, ours: int, theirs: Mapping[str, int], minimal: bool) -> str:
    if what.removeprefix("flags ") in MACRO:
        return "the macro of the product has its own"
    if max(theirs.values()) > ours:
        return (
            "ours suffice, as npu-check proves: it knows how often loops run, and which boxes of tensors meet"
        )
    if what.startswith("barriers"):
        return "ours order what npu-check takes for dependent, and theirs not"
    if minimal:
        return "none of ours can go alone, as npu-check proves: theirs stand elsewhere"
    return "npu-check finds some of ours that can go"
