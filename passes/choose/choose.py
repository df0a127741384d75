"""graph-schedule: each fusion gets a schedule, which an oracle finds best among those that are worth judging.

Before:  %r = graph.fusion %x, %w {domain = [256, 512], kind = "cube"} ...
After:   %r = graph.fusion %x, %w {domain = [256, 512], kind = "cube",
             schedule = #graph.cube_schedule<axes = [[0], [1], [2]], step = [64, 128, 128], ...>} ...

Equal fusions are judged once. How a kernel is cut depends on its neighbours, as most launches run as stages of one
(pareto.py), unless `join` is left out. Operands of products get another layout first where that takes less time
(layout_choice.py). Then come the alternatives that put other fusions in the place of some (rewrites.py). What is
pinned, by the option `schedule` or by a schedule that a fusion has already, is obeyed or refused. A fusion whose values
do not fit on chip together is split in two (oversized.py). Last, kernels store parts of concatenations where these have
them, as far as their schedules allow it (placed.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf, isfinite, isinf

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import describe, integer, text
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import (
    AttentionSchedule,
    CubeSchedule,
    FusionOp,
    GraphOp,
    RowAttentionSchedule,
    VectorSchedule,
    WhileOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.schedules import Schedule, all_complete, schedule_attr, to_schedules
from ...dialects.module import set_known_plans
from ...dialects.open_sizes import choosing, example
from ...machine import Machine
from ..alternatives import JOIN, PLACED, PREFETCH
from ..base import ChoosingPass
from ..errors import PassError, TooLarge, attempted
from ..instantiation import at_example, has_open_sizes
from ..known_plans import KnownPlan, source_of
from ..launch_groups import LaunchPoint
from ..lower.cube.draining import pack_for_drain
from ..lower.scheduled import ScheduledKernel, cannot_obey
from ..oracle import BOUND, Oracle, judged, oracle_of
from ..order.independent_order import order_independent
from ..order.launch_order import FREE
from ..pins import Pins, parse_pins, pinned_for
from ..pins import Schedule as Pin
from ..program.partition import blocks_of
from .attention_ways import AttentionWays
from .launches import LaunchPlan, launches_of
from .layout_choice import LayoutChooser, LayoutJudge
from .names import KernelNames, Memo
from .operand_layouts import LAYOUTS, LayoutKinds, LayoutName
from .oversized import split_in_two
from .pareto import Chosen, ParetoFront, Runs, apart, fixed, pareto_points, together
from .placed import place_parts
from .product_ways import Kinds, ProductWays, say_cut
from .rewrites import Rewrites, replaced, rewrites_of
from .taken_plans import TakenPlans


@dataclass(frozen=True)
class GraphSchedulePass(ChoosingPass):
    """Chooses how the kernels of fusions are cut, for a target."""

    name = "graph-schedule"
    schedule: str = ""
    """Pinned choices, as `parse_pins` of pins.py reads them."""
    oracle: str = BOUND
    """The name of who judges schedules, as oracle.py knows it."""
    plans: str = ""
    """The name of who knows plans, as known_plans.py knows it; none where it is empty."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        scheduler = Scheduler(machine, oracle_of(self.oracle), parse_pins(self.schedule), without=self.without)
        source = source_of(self.plans)
        scheduler.plans = None if source is None else TakenPlans(source, machine)
        scheduler.choose_layouts(module, LayoutKinds.without(self.without))
        scheduler.module(module)
        set_known_plans(module, {} if scheduler.plans is None else scheduler.plans.taken)
        if self.may(PLACED):
            place_parts(module, machine)


class Scheduler:
    """Gives each fusion a schedule."""

    def __init__(
        self,
        machine: Machine,
        oracle: Oracle,
        pins: Pins = None,
        no_further_cuts: bool = False,
        without: Collection[str] = (),
    ):
        self.machine, self.oracle, self.pins, self.without = machine, oracle, pins, frozenset(without)
        self.join = self.may(JOIN)
        self.no_further_cuts = no_further_cuts
        """Whether a fusion that is too large is an error, and no sum is split."""
        self.static_shapes = True
        """Whether all sizes are known, so that a product may be on vector cores: a schedule for other sizes, too, is
        one for the cube."""
        self.plans: TakenPlans | None = None
        """Plans that are known of kernels."""
        self.layouts: Mapping[SSAValue, LayoutName] = {}
        """Tensors that have been given another layout."""
        self.names: KernelNames[Chosen] = KernelNames()
        self.unasked: Memo[Chosen] = Memo()
        """The best schedules of kernels of vector cores of which nothing is asked, as `price` asks for them."""
        self.runs = Runs(machine, self.may(PREFETCH))
        self.finish: list[Callable[[], None]] = []
        """What gives fusions their schedules once those are known."""

    def may(self, name: str) -> bool:
        """Whether the alternative of this name is considered."""
        return name not in self.without

    def module(self, module: ModuleOp) -> None:
        """Schedules all fusions of a module. Raises PassError."""
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                self.block(func.body.block)
        self.check_names()
        if self.join:
            self.runs.choose()
        for finish in self.finish:
            finish()
        for rewrites in (each for each in self.rewrites if each.LATE):
            for func in module.ops:
                if isinstance(func, FuncOp) and func.body.blocks:
                    for block in blocks_of(func.body.block):
                        rewrites.finish(block)

    def choose_layouts(self, module: ModuleOp, kinds: LayoutKinds) -> None:
        """Gives operands of products other layouts, of these kinds, where that takes less time with the schedules that
        the compiler would choose: so a choice that is pinned of a program's kernels meets these kernels."""
        if not any(kinds):
            return
        unpinned = Scheduler(self.machine, self.oracle, without=self.without) if self.pins is not None else self
        chooser = LayoutChooser(LayoutJudge(self.machine, unpinned.estimate), kinds, self.plans)
        self.layouts = chooser.given
        for func in module.ops:
            if isinstance(func, FuncOp) and func.body.blocks:
                chooser.block(func.body.block)

    def estimate(self, fusion: FusionOp) -> float:
        """Microseconds of a fusion alone, which gets no schedule; infinity where it is none for one kernel, or several
        products in one, or judging it fails."""
        return attempted(f"judging {describe(fusion)}", partial(self._estimate, fusion), inf)

    def _estimate(self, fusion: FusionOp) -> float:
        if not self.products.may_split(fusion):
            pack_for_drain(fusion, self.machine)
        if any(plan.choices not in (CubeSchedule, VectorSchedule) for plan in launches_of(fusion, self.machine)):
            return inf
        try:
            return sum(chosen.microseconds for chosen in self.alone(fusion))
        except PassError:
            return inf

    def price(
        self, fusions: Sequence[FusionOp], free: Set[int] = frozenset(), warm: bool = True, cut: bool = False
    ) -> float:
        """Microseconds of fusions one behind the other, which get no schedules and no names; infinity where one of them
        has no schedule. free: the numbers of those with no barrier before them; warm: whether L2 has for kernels of
        vector cores what those before them made; cut: whether one that is too large may be two."""
        found: list[Chosen] = []
        without_barrier: set[int] = set()
        try:
            for number, fusion in enumerate(fusions):
                if number in free:
                    without_barrier.add(sum(len(chosen.fronts) for chosen in found))
                found += self.alone(fusion, fusions[:number] if warm else (), cut)
        except PassError:
            return inf
        return self.microseconds(found, without_barrier)

    def alone(self, fusion: FusionOp, before: Sequence[Operation] = (), cut: bool = False) -> list[Chosen]:
        """The best schedules of each launch of a fusion behind those of others, of which nothing is asked but what is
        pinned of all kernels. cut: whether one that is too large may be two. Raises TooLarge, and PassError."""
        judged, kinds = fusion, self.products.kinds
        if has_open_sizes(fusion):
            judged, kinds = at_example(fusion), (CubeSchedule,)
        try:
            return [self._unasked(judged, plan, before, kinds) for plan in launches_of(judged, self.machine)]
        except TooLarge:
            parts: list[FusionOp] = []
            if cut and not self.no_further_cuts:
                Block([copy := fusion.clone()])
                parts = split_in_two(copy)
            if not parts:
                raise
            return [chosen for part in parts for chosen in self.alone(part, before, cut)]

    def _unasked(self, fusion: FusionOp, plan: LaunchPlan, before: Sequence[Operation], kinds: Kinds) -> Chosen:
        name = plan.stem
        if plan.choices is CubeSchedule:
            pins = self.pins if isinstance(self.pins, Pin) else None
            asked = pinned_for(pins, name, CubeSchedule, plan.obeys_all, product=True)
            if asked.chosen() and asked.parts is None:
                return self.whole(plan.kernel(name, asked), name, asked)
            return self.products.free_best(fusion, plan, name, kinds)
        if plan.choices is RowAttentionSchedule:
            return self.attention.of_rows(fusion, plan, name, None)
        if plan.choices is AttentionSchedule:
            return self.attention.in_bands(fusion, plan, name, None)
        key = plan.key, tuple(v.owner in before for v in fusion.inputs)
        return self.unasked.known(key, plan.details, lambda: self.best_behind(fusion, plan, name, before))

    def block(self, block: Block, times: int = 1) -> None:
        """Finds schedules for the fusions of a block and of the control flow in it, which runs so many times."""
        position: dict[Operation, float] = {op: i for i, op in enumerate(block.ops)}
        for op in list(block.ops):
            if isinstance(op, FusionOp) and not op.on_host and op.parent is not None:
                self.rewritten(op, position, early=True)
        if self.join and (self.plans is None or self.plans.side_by_side(block)):
            order_independent(block)
        position = {op: i for i, op in enumerate(block.ops)}
        self.runs.begin(times)
        for op in list(block.ops):
            if isinstance(op, FusionOp) and not op.on_host:
                if op.parent is None:
                    continue
                for fusion in self.rewritten(op, position):
                    self.fusion(fusion)
                continue
            if isinstance(op, GraphOp) and op.KERNEL and not isinstance(op, FusionOp):
                raise PassError(f"{describe(op)} is not in a fusion: run graph-fuse before graph-schedule")
            if isinstance(op, FREE):
                continue
            trips = example(integer(op.trip_count)) if isinstance(op, WhileOp) and op.trip_count else 1
            for region in () if isinstance(op, FusionOp) else op.regions:
                for inner in region.blocks:
                    self.block(inner, times * max(trips, 1))
            self.runs.begin(times)

    def rewritten(
        self, fusion: FusionOp, position: dict[Operation, float], early: bool = False
    ) -> Sequence[FusionOp]:
        """The fusions that stand in the place of one, and of some behind it, where alternatives take less time: those
        that come before the order of launches, or those behind. What they are replaced by may take in others, and be
        replaced in turn."""
        left = [each for each in self.rewrites if early == each.EARLY and not each.LATE]
        while (rewrite := replaced(left, fusion, position)) is not None:
            number, found = rewrite
            place = position[fusion]
            position.update((piece, place + i / len(found)) for i, piece in enumerate(found))
            if len(found) != 1:
                # a piece may have been taken in by one before it
                pieces = (self.rewritten(piece, position, early) for piece in found if piece.parent is not None)
                return [piece for each in pieces for piece in each]
            (fusion,) = found
            left = left[number:]
        return [fusion]

    def check_names(self) -> None:
        """Every kernel that a pin names exists. Raises PassError."""
        if self.pins is None or isinstance(self.pins, Pin):
            return
        known = self.names.given
        for name in self.pins:
            if name not in known:
                raise PassError(f"schedule: there is no kernel {name!r}; there are {', '.join(known)}")

    def fusion(self, fusion: FusionOp) -> list[Chosen]:
        """Finds schedules for a fusion, or for the two parts of it; `finish` gives it one. A fusion with open
        dimensions is judged at the example of the compilation."""
        judged, self.static_shapes = fusion, not has_open_sizes(fusion)
        if not self.static_shapes:
            if not all_complete(to_schedules(fusion.schedule)):
                pack_for_drain(fusion, self.machine)
            judged = at_example(fusion)
        try:
            found = self.judge(judged)
        except TooLarge:
            parts = [] if self.no_further_cuts else split_in_two(fusion)
            if not parts:
                raise
            return [chosen for part in parts for chosen in self.fusion(part)]
        except PassError as error:
            raise self._with_layouts(error, fusion) from None
        finally:
            self.static_shapes = True
        self.runs.add(found, fusion)
        self.finish.append(partial(self.give, fusion, found))
        return found

    def _with_layouts(self, error: PassError, fusion: FusionOp) -> PassError:
        """The error of a fusion that may be about a pin, with what leaves its tensors as they are in memory."""
        kinds: set[LayoutName] = {
            self.layouts[v] for v in (*fusion.inputs, *fusion.results) if v in self.layouts
        }
        if self.pins is None or not kinds:
            return error
        names = sorted({LAYOUTS[kind] for kind in kinds})
        what = " and ".join(sorted(kinds))
        return PassError(f"{error}; tensors of it are {what} in memory, which --without {','.join(names)} leaves out")

    def judge(self, fusion: FusionOp) -> list[Chosen]:
        """The schedules of each launch of a fusion. Raises TooLarge, and PassError."""
        asked = to_schedules(fusion.schedule)
        if not all_complete(asked) and not self.products.may_split(fusion):
            pack_for_drain(fusion, self.machine)
        launches = launches_of(fusion, self.machine)
        if all_complete(asked):  # it is for graph-to-tile to obey
            given = Chosen(tuple(fixed(s, text(fusion.kind), self.machine) for s in asked), 0.0)
            return [self.launch(fusion, plan, None, given) for plan in launches]
        if asked and len(asked) != len(launches):
            raise PassError(
                f"{describe(fusion)} takes {len(launches)} launch{'es' * (len(launches) != 1)}, and has {len(asked)} "
                "schedules"
            )
        return [self.launch(fusion, plan, asked[i] if asked else None) for i, plan in enumerate(launches)]

    def give(self, fusion: FusionOp, found: Sequence[Chosen]) -> None:
        """Gives a fusion its schedules, unless it has them; with open dimensions the ones that it has for the example
        of the compilation, or its own where those are for no other sizes."""
        if all_complete(to_schedules(fusion.schedule)):
            return
        taken = [self.runs.taken.get(chosen, chosen) for chosen in found]
        for chosen, instead in zip(found, taken, strict=True):
            say_cut(fusion, chosen.judged, instead)
        schedules = [s for chosen in taken for s in chosen.schedules]
        if self.plans is not None:
            self.plans.chosen(fusion, schedules)
        if has_open_sizes(fusion):
            launches = launches_of(fusion, self.machine)
            if len(launches) == len(schedules):
                schedules = [self.for_all(fusion, i, launches[i], s) for i, s in enumerate(schedules)]
        fusion.schedule = schedule_attr(schedules)

    @choosing()
    def for_all(self, fusion: FusionOp, number: int, plan: LaunchPlan, schedule: Schedule) -> Schedule:
        """A schedule that a launch with open dimensions obeys: the one for the example, if nothing is pinned or it can
        be obeyed; else one that walks the axes as is right for all sizes."""
        name = plan.stem
        with suppress(PassError):
            plan.kernel(name, schedule).check(name, schedule)
            return schedule
        if self.pins is not None:
            return schedule  # graph-to-tile says why it is not obeyed
        free = plan.kernel(name, None)
        walked = free.walked()
        if walked is None:
            return self.whole(free, name, plan.choices()).schedules[0]
        assert issubclass(plan.choices, VectorSchedule | CubeSchedule)
        asked = plan.choices(axes=tuple(map(tuple, walked)))
        kernel = launches_of(at_example(fusion), self.machine)[number].kernel(name, asked)
        return self.whole(kernel, name, asked).schedules[0]

    def launch(
        self, fusion: FusionOp, plan: LaunchPlan, asked: Schedule | None, given: Chosen | None = None
    ) -> Chosen:
        """The schedules of a launch: those `given`, or of an equal launch where there is one, or the best."""
        key = plan.key, self.static_shapes
        known = self.names.find(key, plan.details)
        if known is None:
            name = self.names.next(plan.stem)
            if asked or given:
                self.check_unpinned(name, plan)
            known = given or self.best(fusion, plan, name, asked)
            self.names.give(name, key, plan.details, known)
        return known

    def check_unpinned(self, name: str, plan: LaunchPlan) -> None:
        """Raises PassError where choices are pinned of a kernel whose fusion has a schedule already."""
        product = issubclass(plan.choices, CubeSchedule)
        if pinned_for(self.pins, name, plan.choices, plan.obeys_all, product).chosen():
            raise cannot_obey(name, "its fusion has a schedule already; take that or the pin away")

    def best(self, fusion: FusionOp, plan: LaunchPlan, name: str, asked: Schedule | None) -> Chosen:
        """The best schedules of a launch, in parts or on other cores where that is better."""
        if issubclass(plan.choices, CubeSchedule):
            return self.products.best(fusion, plan, name, asked)
        if issubclass(plan.choices, RowAttentionSchedule):
            return self.attention.of_rows(fusion, plan, name, asked)
        if issubclass(plan.choices, AttentionSchedule):
            return self.attention.in_bands(fusion, plan, name, asked)
        asked = asked or pinned_for(self.pins, name, plan.choices, plan.obeys_all)
        written = (
            [v.owner for v in fusion.inputs if isinstance(v.owner, FusionOp)] if self.no_further_cuts else []
        )
        return self.best_behind(fusion, plan, name, written, asked)

    @cached_property
    def products(self) -> ProductWays:
        """Schedules products and convolutions."""
        return ProductWays(self)

    @cached_property
    def attention(self) -> AttentionWays:
        """Schedules attention."""
        return AttentionWays(self)

    @cached_property
    def rewrites(self) -> list[Rewrites]:
        """The alternatives that put other fusions in the place of some."""
        return rewrites_of(self, self.without)

    def kernel(
        self, fusion: FusionOp, plan: LaunchPlan, name: str, asked: Schedule, before: Sequence[Operation]
    ) -> ScheduledKernel:
        """The kernel of a launch that follows those of the fusions `before`, whose results L2 has if they fit."""
        kernel = plan.kernel(name, asked)
        fresh = {i: v for i, v in enumerate(fusion.inputs) if v.owner in before}
        if sum(size(shape_of(v)) * itemsize(element_of(v)) for v in fresh.values()) <= self.machine.l2_bytes:
            kernel.warm = frozenset(fresh)
        return kernel

    @cached_property
    def inner(self) -> Scheduler:
        """Schedules the fusions that split sums become."""
        inner = Scheduler(self.machine, self.oracle, no_further_cuts=True, without=self.without)
        inner.plans = self.plans
        return inner

    def best_behind(
        self,
        fusion: FusionOp,
        plan: LaunchPlan,
        name: str,
        before: Sequence[Operation],
        asked: Schedule | None = None,
    ) -> Chosen:
        """The best schedule of a launch behind others, of the vector cores unless one is asked for. Raises as `whole`
        does."""
        asked = asked or VectorSchedule()
        return self.whole(self.kernel(fusion, plan, name, asked, before), name, asked)

    def whole(self, kernel: ScheduledKernel, name: str, asked: Schedule) -> Chosen:
        """The best schedule of a kernel as it is. Raises TooLarge, and PassError for one that cannot be obeyed."""
        if asked.complete:
            kernel.check(name, asked)
            return self.front(kernel, [asked], [self.oracle.microseconds(kernel, asked)], asked, None)
        known: Sequence[KnownPlan] = ()
        if self.plans is not None and not asked.chosen():
            known = self.plans.of(kernel, name, type(asked))
        binding = self.plans is not None and self.plans.binding and bool(known)
        tried = [] if binding else list(kernel.candidates(name))
        us = [*judged(self.oracle, kernel, tried)]
        tried, us = [*tried, *(plan.schedule for plan in known)], [*us, *(plan.microseconds for plan in known)]
        best = tried[min(range(len(tried)), key=us.__getitem__)]

        def complete(schedule: Schedule) -> Schedule:
            schedule = kernel.completed(name, schedule)
            if asked.chosen():
                kernel.check(name, schedule)
            return schedule

        return self.front(kernel, tried, us, complete(best), complete)

    def front(
        self,
        kernel: ScheduledKernel,
        tried: Sequence[Schedule],
        microseconds: Sequence[float],
        best: Schedule,
        complete: Callable[[Schedule], Schedule] | None,
    ) -> Chosen:
        """What is known of the schedules of a kernel."""
        points: list[LaunchPoint] = []
        able: list[Schedule] = []
        for schedule, us in zip(tried, microseconds, strict=True):
            if isfinite(us):
                occupancy = kernel.occupancy(schedule)
                points.append(LaunchPoint(occupancy, us - occupancy.launch_microseconds(self.machine)))
                able.append(schedule)
        if not able:
            return Chosen((ParetoFront((LaunchPoint(kernel.occupancy(best)),), [best], best),), inf)
        # where sizes are open, another schedule might hold for the example alone
        late = kernel if self.static_shapes else None
        return Chosen((ParetoFront(*pareto_points(points, able), best, complete, late),), min(microseconds))

    def microseconds(self, found: Sequence[Chosen], free: Set[int] = frozenset()) -> float:
        """What launches take one after the other, some of them with no barrier before them; infinity where one of them
        cannot run."""
        if any(isinf(chosen.microseconds) for chosen in found):
            return inf
        fronts = [front for chosen in found for front in chosen.fronts]
        return together(fronts, self.machine, free) if self.join else apart(fronts, self.machine)
