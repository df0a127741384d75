"""Alternatives that put other fusions in the place of some of a block, where those take less time.

A subclass of `Rewrites` says which fusions might stand for which (`offer`). All else is the same for all of them: equal
offers are judged once, both sides are priced alike, what is taken or not is said where somebody asks for reasons, and a
fault in one of them leaves it out with a warning. Of several that offer for the same fusions and pay, the one with
which they take least is taken. `passes/alternatives.py` lists them by name, with those of plugins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf, isinf
from operator import is_
from typing import TYPE_CHECKING, ClassVar, TypeVar

from xdsl.ir import Block, Operation, OpResult

from ...dialects.base import describe
from ...dialects.graph import FusionOp
from ...support.plugins import FAILURES, resolve
from ..alternatives import Alternative, alternatives
from ..decisions import Option
from ..errors import PassError, attempted
from ..reasons import say_apart
from .names import Memo

if TYPE_CHECKING:
    from .choose import Scheduler

T = TypeVar("T")

TAKEN, LEFT = "taken", "left"
"""The options of an offer: what is offered, and what is there."""

KNOWN_BETTER = "the program is known to be faster otherwise"
"""Why a decision is not the one of the price."""


@dataclass(frozen=True)
class Proposal:
    """What may stand in the place of fusions.

    Attributes:
        fusions: In order; in no block of the program yet.
        replace: Puts them in place, and gives those that are there then.
        free: The numbers of those that need nothing of the one before them, so that no barrier parts them.
    """

    fusions: Sequence[FusionOp]
    replace: Callable[[], Sequence[FusionOp]]
    free: Set[int] = frozenset()


@dataclass(frozen=True)
class Offer:
    """Fusions of a block for which others might stand.

    Attributes:
        fusions: In order.
        key, details: Offers for which both are equal are judged once; only `key` is hashed.
        make: Gives what might stand in their place; it changes nothing.
        obstacle: Why nothing can, a clause; empty where something may.
    """

    fusions: Sequence[FusionOp]
    key: Hashable
    details: object
    make: Callable[[], Proposal]
    obstacle: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether a proposal is taken, and how long both sides take or why not, a clause. microseconds: of the proposal;
    infinity where that is not known, so that another one for the same fusions goes first if it is taken, too; before:
    of what is there; infinity where that is not known."""

    taken: bool
    said: str
    microseconds: float = inf
    before: float = inf


@dataclass(frozen=True)
class JudgedOffer:
    """The offer of an alternative, and what is known of it. proposal: what was judged; None where it was an equal one
    before."""

    by: Rewrites
    offer: Offer
    verdict: Verdict
    proposal: Proposal | None

    def take(self) -> Sequence[FusionOp]:
        """Puts what is offered in place, and gives the fusions that are there then."""
        placed = (self.proposal or self.offer.make()).replace()
        self.by.took(placed, self.verdict.said)
        return placed

    def leave(self) -> None:
        """Leaves what was there."""
        if self.proposal is not None:
            let_go(self.proposal.fusions)


class Rewrites(ABC):
    """One alternative of a scheduler."""

    EARLY: ClassVar[bool] = False
    """Whether it is for all fusions of a block before the launches of the block are ordered."""
    LATE: ClassVar[bool] = False
    """Whether it is for all fusions of a block once they have schedules, which those that it proposes keep."""
    OBEYS_PINS: ClassVar[bool] = False
    """Whether it is considered where choices are pinned, as pins are for kernels that there are."""
    ASKED_FOR: ClassVar[bool] = False
    """Whether a pin may ask for it, which counts where it is left out, too."""
    WARM: ClassVar[bool] = True
    """Whether L2 has for a vector kernel what the fusions before it made."""
    MARGIN: ClassVar[float] = 1.0
    """What is taken takes less than so many times what is there."""

    def __init__(self, scheduler: Scheduler, name: str, considered: bool = True) -> None:
        self.scheduler, self.machine, self.name, self.considered = scheduler, scheduler.machine, name, considered
        self.known: Memo[Verdict] = Memo()

    def finish(self, block: Block) -> None:
        """Tries all fusions of a block, where it is `LATE`."""
        for op in list(block.ops):
            if isinstance(op, FusionOp) and not op.on_host and op.parent is not None:
                replaced([self], op, {})

    @abstractmethod
    def offer(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        """What might stand in the place of a fusion, and of others of its block; None where nothing might, or where it
        has been taken. `position`: that of each op of the block."""

    def judge(self, offer: Offer, proposal: Proposal) -> Verdict:
        """Whether a proposal takes less time than what is there. Raises PassError where that is pinned and cannot
        be."""
        now = self.scheduler.price(offer.fusions, warm=self.WARM)
        made = self.scheduler.price(proposal.fusions, proposal.free, self.WARM)
        said = self.comparison(len(proposal.fusions), made, len(offer.fusions), now)
        return Verdict(self.pays(made, now), said, made, now)

    def pays(self, made: float, now: float) -> bool:
        """Whether fusions that take `made` microseconds stand for those that take `now`."""
        return made < self.MARGIN * now

    def comparison(self, many: int, made: float, before: int, now: float) -> str:
        """How long so many fusions take that might be taken, and those before."""
        return f"{_kernels(many)} {_takes(many, made)}, and {_kernels(before)} {_takes(before, now)}"

    def refused(self, offer: Offer, why: str) -> None:
        """Notes why fusions stay, where somebody asks."""
        if len(offer.fusions) > 1:
            say_apart(offer.fusions[0], offer.fusions[1], why)

    def took(self, fusions: Sequence[FusionOp], why: str) -> None:
        """Notes why these fusions are there now, where somebody asks: nothing, for most."""
        del fusions, why

    def offered(self, fusion: FusionOp, position: Mapping[Operation, float]) -> Offer | None:
        """What it offers for a fusion; None where it offers nothing, or must not."""
        if self.scheduler.pins is not None and not self.OBEYS_PINS:
            return None
        return self._attempted(fusion, partial(self.offer, fusion, position), None)

    def judged(self, fusion: FusionOp, offer: Offer) -> JudgedOffer | None:
        """What is known of its offer for a fusion; None where making what it offers fails."""
        if offer.obstacle:
            return JudgedOffer(self, offer, Verdict(False, offer.obstacle), None)
        verdict, proposal = self.known.find(offer.key, offer.details), None
        if verdict is None:
            proposal = self._attempted(fusion, offer.make, None)
            if proposal is None:
                return None
            failed = Verdict(False, "judging it failed")
            found = self._attempted(fusion, partial(self.judge, offer, proposal), failed)
            verdict = self.known.keep(offer.key, offer.details, found)
        return JudgedOffer(self, offer, self._decided(offer, verdict), proposal)

    def _decided(self, offer: Offer, verdict: Verdict) -> Verdict:
        """The verdict on an offer, or the other one where that is known to be better for a program."""
        plans = self.scheduler.plans
        if plans is None or isinf(verdict.microseconds) or isinf(verdict.before):
            return verdict
        options = Option(TAKEN, verdict.microseconds), Option(LEFT, verdict.before)
        default = TAKEN if verdict.taken else LEFT
        said = plans.decided(self.name, offer.fusions, lambda: options, default)
        if said not in (TAKEN, LEFT) or said == default:
            return verdict
        return Verdict(not verdict.taken, f"{verdict.said}, but {KNOWN_BETTER}", 0.0, verdict.before)

    def _attempted(self, fusion: FusionOp, attempt: Callable[[], T], otherwise: T) -> T:
        return attempted(f"the alternative {self.name!r} of {describe(fusion)}", attempt, otherwise)


def let_go(fusions: Sequence[FusionOp]) -> None:
    """Has fusions that are not taken use nothing of the program, so that they do not count as readers of it. What is
    known of their schedules may still refer to them."""
    made = set(fusions)
    for fusion in fusions:
        for i, value in enumerate(fusion.operands):
            if not (isinstance(value, OpResult) and value.op in made) and not _inside(fusion, value.owner):
                fusion.operands[i] = Block(arg_types=[value.type]).args[0]


def replaced(
    among: Sequence[Rewrites], fusion: FusionOp, position: Mapping[Operation, float]
) -> tuple[int, Sequence[FusionOp]] | None:
    """The fusions that stand in the place of one, and of some behind it, now, in order; None where it stays. They are
    those of the first alternative that pays, whose number comes first, or of another one for the same fusions."""
    offers = _Offers(among, fusion, position)
    for number, rewrites in enumerate(among):
        offer = offers.of(number)
        if offer is None:
            continue
        others = offers.instead(number, offer)  # they look at the program before anything is made of it
        judged = rewrites.judged(fusion, offer)
        if judged is None:
            continue
        if not judged.verdict.taken:
            judged.leave()
            rewrites.refused(offer, judged.verdict.said)
            continue
        found = [judged, *filter(None, (among[i].judged(fusion, other) for i, other in others))]
        best = min((each for each in found if each.verdict.taken), key=lambda each: each.verdict.microseconds)
        for each in found:
            if each is not best:
                each.leave()
        return number, best.take()
    return None


class _Offers:
    """What alternatives offer for a fusion, each asked once."""

    def __init__(self, among: Sequence[Rewrites], fusion: FusionOp, position: Mapping[Operation, float]) -> None:
        self.among, self.fusion, self.position = among, fusion, position
        self.known: dict[int, Offer | None] = {}

    def of(self, number: int) -> Offer | None:
        """The offer of one of them. Raises PassError where something is pinned that cannot be."""
        if number not in self.known:
            self.known[number] = self.among[number].offered(self.fusion, self.position)
        return self.known[number]

    def instead(self, number: int, offer: Offer) -> list[tuple[int, Offer]]:
        """The offers for the same fusions of those behind one, with their numbers."""
        found: list[tuple[int, Offer]] = []
        for i in range(number + 1, len(self.among)):
            with suppress(PassError):  # it is raised when its turn comes
                other = self.of(i)
                if other is not None and _same(other.fusions, offer.fusions):
                    found.append((i, other))
        return found


def _same(some: Sequence[FusionOp], others: Sequence[FusionOp]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _inside(fusion: FusionOp, owner: Operation | Block) -> bool:
    """Whether a value's owner is in the block of a fusion."""
    block = fusion.parent
    return block is not None and (owner is block or (isinstance(owner, Operation) and owner.parent is block))


def _kernels(number: int) -> str:
    return "one kernel" if number == 1 else f"{number} kernels"


def _takes(number: int, microseconds: float) -> str:
    verb = "takes" if number == 1 else "take"
    return "cannot be scheduled" if isinf(microseconds) else f"{verb} {microseconds:.1f} us"


def rewrites_of(scheduler: Scheduler, without: Set[str]) -> list[Rewrites]:
    """The alternatives of a scheduler, without some unless they are asked for, in the order in which it tries them.
    Raises PassError for one that cannot be loaded."""
    found = [(each.name, _load(each)) for each in alternatives() if each.rewrites]
    return [cls(scheduler, name, name not in without) for name, cls in found if name not in without or cls.ASKED_FOR]


def _load(alternative: Alternative) -> type[Rewrites]:
    try:
        found = resolve(alternative.rewrites)
    except FAILURES as error:
        said = f"{type(error).__name__}: {error}"
        raise PassError(f"the alternative {alternative.name}: cannot load {alternative.rewrites}: {said}") from None
    if not (isinstance(found, type) and issubclass(found, Rewrites)):
        raise PassError(f"the alternative {alternative.name}: {alternative.rewrites} is not a Rewrites")
    return found
