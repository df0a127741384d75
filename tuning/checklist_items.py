"""The items of the checklist: what a tuning guide asks of a program, each with a function that answers from reports.

An item that advises something has tried it (trials.py): it names what the program takes with it and without. What was
tried and saves nothing is ticked, with the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..api.options import CHECKER
from ..api.program import CompileError, Program
from ..backends.counts import Counts
from ..backends.report import COLD, HostOpReport, KernelReport, Report
from ..dialects.npu.streams import COMPUTE
from ..dialects.source_places import without_folder
from ..passes.alternatives import FUSION, JOIN
from ..support.precisions import ORIGIN
from ..support.sentences import counted
from .trials import Made, Trial, Trials, us

PREPARATION, PRECISION, FUSING, MEMORY, STREAMS, MONITORING = HEADINGS = (
    "preparation",
    "precision",
    "fusion",
    "memory",
    "streams",
    "monitoring",
)
"""The headings, in the order of a guide."""

NARROW = "mixed_float16"
"""The precision that is tried for what computes in f32."""

INTEGERS = "w8a8-dynamic"
"""The mode of quantization that is tried: it needs no example data."""

FULL = 0.5
"""The share of the chip's memory from which on a plan of device memory is large."""

IDLE = 0.15
"""The share of the time from which on it is said that the busiest stream waits."""

SMALLER_STRIPS = "8MiB"
"""The most bytes of a tensor of a strip that are tried where L2 has not what kernels read."""

SHOWN = 3
"""Reasons that are printed of each kind."""


@dataclass(frozen=True)
class ItemVerdict:
    """What an item comes to. done: nothing is left to do; text: why, or what to do and what that gave; details:
    sentences behind it; trials: what was tried; switch: what is advised, if anything, for the command line; changes:
    the same as fields of `tw.Options`, where it may be tried with all else that is advised."""

    done: bool
    text: str
    details: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    switch: str = ""


@dataclass(frozen=True)
class Item:
    """One line of the checklist. judge: gives the verdict of a program and what is tried of it."""

    heading: str
    title: str
    judge: Callable[[Trials], ItemVerdict]


def _best(made: Sequence[Made], behind: str = "") -> ItemVerdict:
    """What saves most time of what was tried, as advice, or all of it ticked."""
    trials = tuple(m.trial for m in made)
    saving = [m for m in made if m.trial.saves_time]
    if saving:
        return replace(advised(min(saving, key=lambda m: m.trial.microseconds or 0.0), behind), trials=trials)
    behind = f"; {behind}" if behind and any(m.program is not None for m in made) else ""
    return ItemVerdict(True, f"tried: {', '.join(trial.time for trial in trials)}{behind}", trials=trials)


def advised(made: Made, behind: str = "") -> ItemVerdict:
    """What was tried, as advice where it saves time, and else ticked. behind: what else is to be said of it."""
    return _verdict(made, made.trial.saves_time, made.trial.time, behind)


def _verdict(made: Made, saves: bool, said: str, behind: str = "") -> ItemVerdict:
    trial = made.trial
    behind = f"; {behind}" if behind and made.program is not None else ""
    if saves:
        return ItemVerdict(False, f"{said}{behind}", trials=(trial,), changes=made.changes, switch=trial.switch)
    return ItemVerdict(True, f"tried: {said}{behind}", trials=(trial,))


# -- preparation ---------------------------------------------------------------------------------------------


def nothing_on_the_host(t: Trials) -> ItemVerdict:
    report = t.report
    if not report.host_ops:
        return ItemVerdict(True, "no host calls")
    taken = sum(op.microseconds for op in report.host_ops)
    ordered = sorted(report.host_ops, key=lambda op: -op.microseconds)
    said = (
        f"{counted(report.counts.host_calls, 'host call takes', 'host calls take')} {us(taken)} us with the link, the "
        f"program {us(report.microseconds)}; no option moves such work to the NPU, docs/limits.md says what runs where"
    )
    return ItemVerdict(False, said, tuple(_host_op(op) for op in ordered))


def _host_op(op: HostOpReport) -> str:
    place = "" if op.source is None else f" ({without_folder(op.source)})"
    said = f"{op.name}{place}: {counted(op.calls, 'call', 'calls')}, {us(op.microseconds)} us"
    return f"{said}, of which the link {us(op.transfer_microseconds)} and computing {us(op.compute_microseconds)}"


def sizes_are_known(t: Trials) -> ItemVerdict:
    if t.sizes is None:
        bounded = len(t.program.extents)
        said = "all sizes are known"
        if bounded:
            said = f"{counted(bounded, 'size follows', 'sizes follow')} from data, kernels compute the bound of each"
        return ItemVerdict(True, said)
    sizes = ",".join(f"{name}={n}" for name, n in t.sizes.items())
    if t.program.alone() is t.program:
        return ItemVerdict(True, f"the version for {sizes} is compiled for these sizes alone")
    made = t.compared(f"compiling for {sizes} alone", t.program.alone)
    return advised(made, "the version that is compared with is for a range of sizes")


def weights_are_packed(t: Trials) -> ItemVerdict:
    report, asked = t.report, t.options.weights
    if asked is not None:
        once = report.packing_microseconds
        said = "asked for" if once is None else f"asked for, packing takes {us(once)} us once"
        return _kept(t.tried(weights=None), said)
    products, patterns = t.weights
    if not products:
        return ItemVerdict(True, "no product has weights")
    made = _packed(t, patterns)
    once = None if made.report is None else made.report.packing_microseconds
    return advised(made, f"packing takes {us(once)} us once" if once else "")


def _packed(t: Trials, patterns: Sequence[str]) -> Made:
    """The program with its weights packed: arguments of these patterns, or constants alone."""
    return t.tried(weights=tuple(patterns))


def _kept(made: Made, said: str) -> ItemVerdict:
    """Something that was asked for, and the program without it."""
    trial = made.trial
    if trial.saves_time:
        return _verdict(made, True, trial.time, said)
    return ItemVerdict(True, f"{said}; tried: {trial.time}", trials=(trial,))


def known_plans_are_used(t: Trials) -> ItemVerdict:
    from .tune import tune

    if t.report.known_plans:
        many = counted(t.report.known_plans, "fusion is", "fusions are")
        return ItemVerdict(True, f"{many} cut as the knowledge base says")
    t.say("trying tilewright tune")

    def tuned() -> Program:
        how: dict[str, Any] = {"budget": t.budget, "evaluations": t.evaluations, "verify": VERIFIED}
        with TemporaryDirectory() as folder:
            store = Path(folder) / PLANS
            tune(t.source, *t.args, target=t.target, options=t.options, at=t.sizes, store=store, **how, **t.kwargs)
            program = t.compiled(replace(t.options, plans=store))
            program.report()  # made of what the store says, too, which is there no longer then
        return program

    trial = t.compared(f"what tune finds in {t.evaluations:,} evaluations a search", tuned).trial
    if not trial.saves_time:
        return ItemVerdict(True, f"tried: {trial.time}", trials=(trial,))
    how = f"--budget {t.budget} --evaluations {t.evaluations} --verify {VERIFIED} --plans {PLANS}"
    line = f"tilewright tune {t.command} {how}"
    return ItemVerdict(False, f"{trial.time}; then give --plans {PLANS}", (line,), (trial,), {}, line)


PLANS = "plans.sqlite"
"""What texts call the file of plans."""

VERIFIED = 2
"""Plans of a kernel that are simulated where tuning is tried."""


# -- precision -----------------------------------------------------------------------------------------------


def products_are_narrow(t: Trials) -> ItemVerdict:
    if t.options.precision != ORIGIN:
        return _kept(t.tried(precision=ORIGIN), f"{t.options.precision} is asked for")
    if not any(_in_f32(kernel) for kernel in t.report.kernels):
        return ItemVerdict(True, "nothing computes in f32")
    made = [t.tried(precision=NARROW)]
    record = None if made[0].report is None else made[0].report.precision
    if record is not None and not record.products:
        return ItemVerdict(True, "no product is of f32", trials=(made[0].trial,))
    products, patterns = t.weights
    if products and t.options.weights is None and made[0].program is not None:
        made.append(t.tried(_packed(t, patterns), precision=NARROW, weights=tuple(patterns)))
    found = _best(made)
    line = f"tilewright verify {t.command} --precision {NARROW}"
    text = f"{found.text}; verify says what it does to values"
    return found if found.done else replace(found, text=text, details=(line,))


def _in_f32(kernel: KernelReport) -> bool:
    return any(types.startswith("f32") for types in (*kernel.macs_by_precision, *kernel.lanes_by_precision))


def products_are_quantized(t: Trials) -> ItemVerdict:
    if t.options.quantization is not None:
        return _kept(t.tried(quantization=None), "products are quantized as is asked for")
    products, patterns = t.weights
    if not products:
        return ItemVerdict(True, "no product has weights")
    asked = t.options.weights
    weights = tuple(patterns) if asked is None else asked
    made = t.tried(_packed(t, patterns) if asked is None else None, quantization=INTEGERS, weights=weights)
    found = advised(made, f"{_compared(t, made)}for time alone: `tilewright quantize` measures the accuracy")
    return replace(found, changes={})


def _compared(t: Trials, made: Made) -> str:
    """What a trial is compared with, where that is not the program as it was asked for."""
    packed = made.trial.microseconds_before < t.report.microseconds
    return "compared with packed weights, and " if packed else ""


# -- fusion --------------------------------------------------------------------------------------------------


def ops_share_kernels(t: Trials) -> ItemVerdict:
    counts = t.report.counts
    said = _counted(counts)
    if not t.options.may(FUSION):
        return _without(t, [FUSION])
    reasons = t.reasons("not fused")
    if counts.launched_kernels < 2:
        return ItemVerdict(True, f"{said}: nothing is left to fuse")
    made = t.tried(without=(*t.options.without, FUSION))
    why = f"; {counted(len(reasons), 'reason', 'reasons')} why values pass between kernels" if reasons else ""
    return ItemVerdict(True, f"{said}; tried: {made.trial.time}{why}", _first(reasons), (made.trial,))


def _counted(counts: Counts) -> str:
    """`2 kernels in 1 launch`."""
    kernels = counted(counts.launched_kernels, "kernel", "kernels")
    return f"{kernels} in {counted(counts.launches, 'launch', 'launches')}"


def _first(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first reasons, and how many more there are."""
    more = len(reasons) - SHOWN
    return (*reasons[:SHOWN], *([f"{more} more: `tilewright explain` has all"] if more > 0 else []))


def nothing_is_left_out(t: Trials) -> ItemVerdict:
    names = t.options.without
    return _without(t, names) if names else ItemVerdict(True, "all alternatives of the compiler are considered")


def _without(t: Trials, names: Iterable[str]) -> ItemVerdict:
    """Alternatives that were left out, each tried again."""
    return _best([t.tried(without=tuple(n for n in t.options.without if n != name)) for name in names])


# -- memory --------------------------------------------------------------------------------------------------


def memory_is_enough(t: Trials) -> ItemVerdict:
    memory = t.report.memory
    share = memory.arena_bytes / memory.capacity_bytes if memory.capacity_bytes else 0.0
    said = f"{memory.arena_bytes:,} of {memory.capacity_bytes:,} bytes of device memory, {share:.1%}"
    largest = tuple(
        f"{c.name}: {c.bytes:,} bytes{'' if c.source is None else f' ({without_folder(c.source)})'}"
        for c in memory.consumers[:SHOWN]
    )
    if share < FULL:
        return ItemVerdict(True, said)
    if memory.limit_bytes is not None:
        return ItemVerdict(True, f"{said}, within the limit of {memory.limit_bytes:,}: {memory.less}", largest)
    limit = int(memory.arena_bytes * FULL)
    made = [
        t.tried(strips=SMALLER_STRIPS),
        t.tried(memory_limit=limit),
    ]
    trials = tuple(m.trial for m in made)
    tried = "; ".join(f"{x.memory}{_instead(x)}" for x in trials)
    better = [m for m in made if m.trial.saves_bytes and not m.trial.costs_time]
    if not better:
        return ItemVerdict(True, f"{said}; tried: {tried}", largest, trials)
    best = min(better, key=lambda m: m.trial.bytes or 0)
    return ItemVerdict(False, f"{said}; {tried}", largest, trials, best.changes, best.trial.switch)


def _instead(trial: Trial) -> str:
    """`, and 24.21 us instead of 30.59`, where the time is another one."""
    if trial.microseconds is None or us(trial.microseconds) == us(trial.microseconds_before):
        return ""
    return f", and {us(trial.microseconds)} us instead of {us(trial.microseconds_before)}"


def arguments_are_donated(t: Trials) -> ItemVerdict:
    asked = t.options.donate
    already = (asked,) if isinstance(asked, int | str) else tuple(asked)
    which = t.donatable
    if not which:
        given = f"{t.report.memory.donated_bytes:,} bytes are donated, and " if t.report.memory.donated_bytes else ""
        return ItemVerdict(True, f"{given}no other argument has the type of a result")
    made = _fewest(t, already, which)
    trial = made.trial
    behind = "arrays of JAX that are passed there are gone after the call"
    if trial.saves_bytes:
        return _verdict(made, True, f"{trial.memory}{_instead(trial)}", behind)
    return _verdict(made, trial.saves_time, trial.time, behind * trial.saves_time)


def _costs(report: Report) -> tuple[int, float]:
    """What donating saves: bytes first, then time."""
    return report.memory.arena_bytes, report.microseconds


def _fewest(t: Trials, already: Sequence[int | str], which: Sequence[int | str]) -> Made:
    """The program with these arguments donated, but for those without which it saves as much."""
    made, kept = t.tried(donate=(*already, *which)), [*which]
    for each in reversed(which[-MOST_APART:]):
        fewer = [name for name in kept if name != each]
        if not fewer or made.report is None:
            break
        tried = t.tried(donate=(*already, *fewer))
        if tried.report is not None and _costs(tried.report) <= _costs(made.report):
            made, kept = tried, fewer
    return made


MOST_APART = 6
"""Arguments that are tried without, one by one."""


def l2_has_what_is_read(t: Trials) -> ItemVerdict:
    report = t.report
    hbm, l2 = (sum(kernel.bytes[level] for kernel in report.kernels) for level in ("hbm", "l2"))
    if not hbm + l2:
        return ItemVerdict(True, "kernels move no bytes of device memory")
    cold, share = report.cold_microseconds, report.cold_microseconds / max(report.microseconds, 1e-9)
    said = (
        f"of {(hbm + l2) / 1e6:,.2f} MB that kernels move L2 has {l2 / (hbm + l2):.0%}, what it has not costs "
        f"{us(cold)} us, {share:.1%} of the time"
    )
    if share < COLD or t.options.strips == SMALLER_STRIPS:
        return ItemVerdict(True, said)
    found = advised(t.tried(strips=SMALLER_STRIPS))
    return ItemVerdict(found.done, f"{said}; {found.text}", (), found.trials, found.changes, found.switch)


# -- streams -------------------------------------------------------------------------------------------------


def launches_are_one(t: Trials) -> ItemVerdict:
    counts = t.report.counts
    if not t.options.may(JOIN):
        return _without(t, [JOIN])
    starting = sum(kernel.launch_microseconds for kernel in t.report.kernels)
    said = f"{_counted(counts)}, {us(starting)} us of starts and barriers"
    reasons = t.reasons("not joined")
    if not counts.joined:
        return ItemVerdict(True, said, _first(reasons))
    made = t.tried(without=(*t.options.without, JOIN))
    return ItemVerdict(True, f"{said}; tried: {made.trial.time}", _first(reasons), (made.trial,))


def nothing_waits(t: Trials) -> ItemVerdict:
    report = t.report
    if len(report.queues) < 2:
        return ItemVerdict(True, "one stream, which nothing holds up")
    busy = ", ".join(f"{name} {us(time)}" for name, time in report.queues.items())
    idle = max(0.0, report.microseconds - report.queues.get(COMPUTE, 0.0))
    beside = max(0.0, sum(report.queues.values()) - report.microseconds)
    said = f"the {COMPUTE} stream waits {us(idle)} of {us(report.microseconds)} us for the host, copies and numbers"
    said += f"; busy, us: {busy}, of which {us(beside)} side by side"
    if idle < IDLE * report.microseconds:
        return ItemVerdict(True, said)
    return ItemVerdict(False, f"{said}; no option takes a call or a copy away that the program asks for")


# -- monitoring ----------------------------------------------------------------------------------------------


def hazards_are_excluded(t: Trials) -> ItemVerdict:
    if t.options.check:
        return ItemVerdict(True, f"{CHECKER} proved the program free of hazards")
    made = t.tried(check=True)
    if made.program is None:
        return ItemVerdict(False, f"tried: {made.trial.time}", trials=(made.trial,))
    said = f"{CHECKER} was left out: {made.trial.time}, and proves the program free of hazards"
    return ItemVerdict(False, said, (), (made.trial,), made.changes, made.trial.switch)


def nothing_failed(t: Trials) -> ItemVerdict:
    if t.report.left_out is None:
        return ItemVerdict(True, "no pass of the compiler failed")
    return ItemVerdict(False, f"please report it: {t.report.left_out}")


def nothing_is_assumed(t: Trials) -> ItemVerdict:
    assumed = [
        *(f"{loop} is counted once, its trip count is not known" for loop in t.report.assumed_trips),
        *(f"of {branch} the longest is counted" for branch in t.report.assumed_branches),
    ]
    if not assumed:
        return ItemVerdict(True, "trip counts and branches are known")
    return ItemVerdict(
        False,
        f"{counted(len(assumed), 'loop or branch is', 'loops and branches are')} not known before a run: figures here "
        "are of the course that is assumed",
        tuple(assumed),
    )


def commands_are_known(t: Trials) -> ItemVerdict:
    kernels = [kernel for kernel in t.report.kernels if kernel.kind != "copy"]
    if not kernels:
        return ItemVerdict(True, f"no kernel runs: tilewright verify {t.command}")
    slowest = max(kernels, key=lambda kernel: kernel.microseconds)
    share = slowest.microseconds / t.report.microseconds
    said = f"the slowest kernel, {slowest.name}, takes {us(slowest.microseconds)} us, {share:.1%} of the time, and is "
    said += f"bound by {slowest.bound}"
    commands = ("verify", "trace", "explain")
    return ItemVerdict(True, said, tuple(f"tilewright {command} {t.command}" for command in commands))


ITEMS: tuple[Item, ...] = (
    Item(PREPARATION, "nothing runs on the host", nothing_on_the_host),
    Item(PREPARATION, "sizes are known or bounded", sizes_are_known),
    Item(PREPARATION, "weights are apart, and packed once", weights_are_packed),
    Item(PREPARATION, "known plans are used", known_plans_are_used),
    Item(PRECISION, "products are no wider than they need be", products_are_narrow),
    Item(PRECISION, "products are quantized", products_are_quantized),
    Item(FUSING, "what can be one kernel is one", ops_share_kernels),
    Item(FUSING, "no alternative is left out", nothing_is_left_out),
    Item(MEMORY, "device memory is enough", memory_is_enough),
    Item(MEMORY, "arguments are donated", arguments_are_donated),
    Item(MEMORY, "L2 has what kernels read", l2_has_what_is_read),
    Item(STREAMS, "launches are joined", launches_are_one),
    Item(STREAMS, "no stream waits", nothing_waits),
    Item(MONITORING, "hazards are excluded", hazards_are_excluded),
    Item(MONITORING, "nothing failed", nothing_failed),
    Item(MONITORING, "figures assume nothing", nothing_is_assumed),
    Item(MONITORING, "values and times can be looked at", commands_are_known),
)
"""All items, those of a heading together."""


def judged(item: Item, trials: Trials) -> ItemVerdict:
    """The verdict of an item. Raises CompileError, which names the item."""
    try:
        return item.judge(trials)
    except CompileError as error:
        raise CompileError(f"checklist: {item.title}: {error}") from None
