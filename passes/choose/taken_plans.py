"""Plans that are known of kernels, as schedules that are judged beside those that graph-schedule tries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from xdsl.ir import Block

from ...dialects.base import source_of
from ...dialects.graph import FusionOp
from ...dialects.graph.schedules import Schedule, parts_of_sums, stream_of
from ...machine import Machine
from ...support.sentences import listed
from ..alternatives import JOIN
from ..decisions import Decision, Option
from ..errors import PassError
from ..forms.fingerprint import decision_key, fingerprint
from ..instantiation import at_example, has_open_sizes
from ..known_plans import KnownPlan, PlanSource
from ..lower.chains.attention_parts import is_chained
from ..lower.scheduled import ScheduledKernel
from .launches import launches_of
from .stream import cut_fusion

CREDIBLE = 0.75
"""What is known of a plan counts no less than this share of its price: the price is that far from the simulator's times
in benchmarks/price.py, and what stands in a file may be anything."""


SIDE_BY_SIDE, AS_WRITTEN = "side by side", "as written"
"""The options of the order of a block's fusions."""


class TakenPlans:
    """What a source knows of kernels, and what of it a program takes."""

    def __init__(self, source: PlanSource, machine: Machine) -> None:
        self.source, self.machine = source, machine
        self.binding = source.binding
        """Whether what is known of a kernel is taken, and nothing else judged."""
        self.known: set[Schedule] = set()
        self.taken: dict[str, int] = {}
        """How many fusions get a schedule that is known, by the fingerprints of their kernels; 0 for the keys of
        decisions."""
        self.asked, self.explores = source.decides(machine), source.explores
        """Whether the source is asked for decisions, and about options that are not looked at otherwise."""
        self.decisions: dict[str, str] = {}
        """What was decided so far, by the keys of decisions."""

    def of(self, kernel: ScheduledKernel, name: str, kind: type[Schedule]) -> Sequence[KnownPlan]:
        """The plans of a kind that are known of a kernel, and can be obeyed; where there are none, those of kernels of
        other sizes, made to fit. Of a kernel with open sizes, whatever they are, nothing is known."""
        if has_open_sizes(kernel.fusion):
            return ()
        given = self.source.find(kernel.fusion, self.machine)
        if given is None:
            return () if self.binding else self._scaled(kernel, name, kind)
        found: list[KnownPlan] = []
        for known in given:
            if not isinstance(known.schedule, kind):
                continue
            try:
                kernel.check(name, known.schedule)
                least = 0.0 if self.binding else CREDIBLE * kernel.bound(known.schedule)
                found.append(known._replace(microseconds=max(known.microseconds, least)))
                self.known.add(kernel.completed(name, known.schedule))
            except PassError as error:
                self.source.refuse(kernel.fusion, str(error))
        return found

    def _scaled(self, kernel: ScheduledKernel, name: str, kind: type[Schedule]) -> Sequence[KnownPlan]:
        """Plans that are known of kernels of other sizes, made to fit a kernel: they count what the price says."""
        schedules = [s for s in self.source.near(kernel.fusion, self.machine) if isinstance(s, kind)]
        if not schedules:
            return ()
        space, found = kernel.space(name), list[KnownPlan]()
        for numbers in dict.fromkeys(space.near(s) for s in schedules):
            schedule = None if numbers is None else space.schedule(numbers)
            if schedule is not None:
                found.append(KnownPlan(schedule, kernel.bound(schedule)))
                self.known.add(schedule)
        return found

    def decided(
        self,
        kind: str,
        fusions: Sequence[FusionOp],
        options: Callable[[], Sequence[Option]],
        default: str,
        of: str = "",
    ) -> str:
        """The name of the option to take of those about fusions: the default where nothing is known. of: what the
        decision is about besides."""
        if not self.asked:
            return default
        key = decision_key(kind, fusions, self.machine, of)
        if key not in self.decisions:
            about = listed([source_of(fusion) or fusion.name for fusion in fusions])
            self.decisions[key] = self.source.decided(Decision(kind, key, about, tuple(options()), default))
            if self.decisions[key] != default:
                self.taken[key] = 0
        return self.decisions[key]

    def side_by_side(self, block: Block) -> bool:
        """Whether fusions of a block that need nothing of each other are brought side by side: unless the program is
        known to be better in its own order."""
        if not self.asked:
            return True
        fusions = [op for op in block.ops if isinstance(op, FusionOp) and not op.on_host]
        options = Option(SIDE_BY_SIDE, 0.0), Option(AS_WRITTEN, 0.0)
        return self.decided(JOIN, fusions, lambda: options, SIDE_BY_SIDE, "order") != AS_WRITTEN

    def chosen(self, fusion: FusionOp, schedules: Sequence[Schedule]) -> None:
        """Takes notice of the schedules that a fusion gets, one for each launch: where sizes are open at the example of
        the compilation."""
        known = any(schedule.whole() in self.known for schedule in schedules)
        if not (known or self.source.records):
            return
        for piece, own in _pieces(at_example(fusion), schedules, self.machine):
            if self.source.records:
                self.source.chosen(piece, own, self.machine)
            if any(schedule.whole() in self.known for schedule in own):
                key = fingerprint(piece, self.machine)
                self.taken[key] = self.taken.get(key, 0) + 1


def _pieces(
    fusion: FusionOp, schedules: Sequence[Schedule], machine: Machine
) -> Iterator[tuple[FusionOp, Sequence[Schedule]]]:
    """The fusions that one becomes, with their schedules: several where its sums are cut into parts."""
    parts = parts_of_sums(schedules)
    if parts is None or is_chained(fusion):
        yield fusion, schedules
        return
    block = cut_fusion(fusion, launches_of(fusion, machine)[0].stem, parts, stream_of(schedules), machine)
    left = [schedule.whole() for schedule in schedules]
    for piece in (op for op in block.ops if isinstance(op, FusionOp)):
        many = len(launches_of(piece, machine))
        yield piece, left[:many]
        left = left[many:]
