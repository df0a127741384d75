"""Runs xDSL rewrite patterns over ops to a fixpoint, faster than xDSL's own walker and with locations.

Patterns are xDSL's `RewritePattern`s. The driver keeps a worklist of ops, asks for each only the patterns whose
`match_and_rewrite` names its class, and puts back what a rewrite made or touched. It does two things that xDSL leaves
to patterns: an op that a pattern makes gets the location of the op it matched, and a pattern that does not end is one
error that names it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import UnionType
from typing import Union, get_args, get_origin

from xdsl.builder import InsertOpInvT
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import (
    PatternRewriter,
    PatternRewriterListener,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.rewriter import InsertPoint
from xdsl.rewriter import Rewriter as XdslRewriter
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from ..dialects.base import describe
from .errors import PassError

MOST_STEPS = 100
"""Rewrites of one op, and of what it became, after which the pattern that was last is called endless."""


def inline_for(op: Operation, block: Block, given: Sequence[SSAValue]) -> None:
    """Moves the ops of a block, whose arguments are `given`, before an op, in the place of whose results is then what
    the block yields. Nobody uses the op any more."""
    last = block.last_op
    assert last is not None
    for argument, value in zip(block.args, given, strict=True):
        argument.replace_all_uses_with(value)
    for old, new in zip(op.results, last.operands, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    last.detach()
    last.erase()
    XdslRewriter.inline_block(block, InsertPoint.before(op))


class Rewriter(PatternRewriter):
    """xDSL's rewriter for the op `matched`, which remembers the ops that a rewrite made and those it touched."""

    def __init__(self, matched: Operation):
        PatternRewriterListener.__init__(self)
        self._name_hint = None
        self.start(matched)

    def start(self, matched: Operation) -> None:
        """Forgets the last rewrite; from here on, ops are inserted before `matched`."""
        self._current_operation = self.matched = matched
        self._point: InsertPoint | None = None
        self.has_done_action = False
        self.made: list[Operation] = []
        self.touched: list[Operation] = []

    @property
    def insertion_point(self) -> InsertPoint:  # pyright: ignore[reportIncompatibleVariableOverride]  # made when asked
        return InsertPoint.before(self.matched) if self._point is None else self._point

    @insertion_point.setter
    def insertion_point(self, value: InsertPoint) -> None:
        self._point = value

    def insert(self, op: InsertOpInvT, insertion_point: InsertPoint | None = None) -> InsertOpInvT:
        self.has_done_action = True
        ops: Sequence[Operation] = (op,) if isinstance(op, Operation) else op
        point = self._point if insertion_point is None else insertion_point
        if point is not None:
            XdslRewriter.insert_op(ops, point)
        else:
            block = self.matched.parent
            assert block is not None
            for new in ops:
                block.insert_op_before(new, self.matched)
        for new in ops:
            for inner in new.walk() if new.regions else (new,):
                if type(inner.location) is UnknownLoc:
                    inner.location = self.matched.location
        self.made += ops
        return op

    def replace(
        self,
        op: Operation,
        new_ops: Operation | Sequence[Operation],
        new_results: Sequence[SSAValue | None] | None = None,
        safe_erase: bool = True,
    ) -> None:
        made = (new_ops,) if isinstance(new_ops, Operation) else new_ops
        if made:
            self.insert(made, InsertPoint.before(op))
        if new_results is None:
            new_results = made[-1].results if made else ()
        if len(op.results) != len(new_results):
            raise ValueError(f"expected {len(op.results)} new results, but got {len(new_results)}")
        for old, new in zip(op.results, new_results, strict=True):
            self.replace_all_uses_with(old, new, safe_erase)
        self.erase(op, safe_erase)

    def erase(self, op: Operation, safe_erase: bool = True) -> None:
        self.has_done_action = True
        used = [v for inner in (op.walk() if op.regions else (op,)) for v in inner.operands]
        XdslRewriter.erase_op(op, safe_erase)
        for value in used:
            if isinstance(value, OpResult):
                self.touched.append(value.op)
                if (last := value.get_user_of_unique_use()) is not None:
                    self.touched.append(last)

    def handle_operation_modification(self, op: Operation) -> None:
        self.touched.append(op)


Rule = Callable[[RewritePattern, Operation, PatternRewriter], None]

_ASKS_FOR_CLASS = op_type_rewrite_pattern.__code__.co_consts
"""Among these is the code of what xDSL's decorator makes: it asks for the op's class, and then calls the rule."""


@cache
def rule_of(pattern: type[RewritePattern]) -> Rule:
    """A pattern's `match_and_rewrite` without a decorator: for ops of `matched_classes` alone."""
    function = inspect.unwrap(pattern.match_and_rewrite)
    if function.__code__ in _ASKS_FOR_CLASS:
        function = inspect.getclosurevars(function).nonlocals["func"]
    return function


@cache
def matched_classes(pattern: type[RewritePattern]) -> tuple[type[Operation], ...]:
    """The op classes that a pattern's `match_and_rewrite` takes, as its annotation says."""
    _, op, *_ = inspect.signature(rule_of(pattern), eval_str=True).parameters.values()
    kind = op.annotation
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(k for k in kinds if isinstance(k, type) and issubclass(k, Operation)) or (Operation,)


def name_of(pattern: RewritePattern | type[RewritePattern]) -> str:
    """What a pattern is called: its `name`, or that of its class."""
    kind = pattern if isinstance(pattern, type) else type(pattern)
    return getattr(kind, "name", kind.__name__)


class Driver:
    """Runs `patterns` to a fixpoint; of several that match an op, the first one is applied. Ops that nobody uses and
    that have no effect go."""

    def __init__(self, patterns: Sequence[RewritePattern]):
        self.patterns = patterns
        self.applied: Counter[str] = Counter()
        """How often each pattern was."""
        self._by_class: dict[type[Operation], list[tuple[RewritePattern, Rule]]] = {}
        self._steps: dict[Operation, int] = {}

    def patterns_for(self, kind: type[Operation]) -> list[tuple[RewritePattern, Rule]]:
        """The patterns that take ops of a class, each with its rule."""
        found = self._by_class.get(kind)
        if found is None:
            taking = [p for p in self.patterns if issubclass(kind, matched_classes(type(p)))]
            found = [(p, rule_of(type(p))) for p in taking]
            self._by_class[kind] = found
        return found

    def run(self, ops: Iterable[Operation]) -> None:
        """Rewrites `ops`, in this order, and all that comes of them. Raises PassError for an endless pattern."""
        stack = list(ops)
        stack.reverse()
        if not stack:
            return
        pending = set(stack)
        rewriter = Rewriter(stack[-1])
        while stack:
            op = stack.pop()
            pending.discard(op)
            if op.parent is None:
                continue
            if _unused(op) and is_trivially_dead(op):
                rewriter.start(op)
                rewriter.erase(op)
            elif not self._rewrite(op, rewriter):
                continue
            # what was made comes next, in program order, and then what was touched and is not waiting anyway
            for again in (*reversed(rewriter.touched), *reversed(rewriter.made)):
                if again.parent is not None and again not in pending:
                    pending.add(again)
                    stack.append(again)

    def _rewrite(self, op: Operation, rewriter: Rewriter) -> bool:
        """Applies the first pattern that matches `op`; False where none does."""
        chosen = self._by_class.get(type(op))
        if chosen is None:
            chosen = self.patterns_for(type(op))
        if not chosen:
            return False
        rewriter.start(op)
        for pattern, rule in chosen:
            rule(pattern, op, rewriter)
            if rewriter.has_done_action:
                self._count(pattern, op, rewriter)
                return True
        return False

    def _count(self, pattern: RewritePattern, op: Operation, rewriter: Rewriter) -> None:
        name = name_of(pattern)
        self.applied[name] += 1
        steps = self._steps.pop(op, 0) + 1
        if steps > MOST_STEPS:
            raise PassError(
                f"pattern {name} does not end: {describe(op)} is what {steps - 1} rewrites in a row made, and it "
                f"still matches; its condition must not hold for what it makes"
            )
        if op.parent is not None:
            self._steps[op] = steps
            rewriter.touched.append(op)
        for made in rewriter.made:
            self._steps[made] = steps


def _unused(op: Operation) -> bool:
    for result in op.results:  # noqa: SIM110  # asked of every op: a generator takes twice as long
        if result.first_use is not None:
            return False
    return True


def walk_ops(op: Operation, enters: Callable[[Operation], bool]) -> Iterable[Operation]:
    """The ops of an op's regions in program order, those of an inner region before the op around it. The regions of
    ops that `enters` refuses are left out."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                if inner.regions and enters(inner):
                    yield from walk_ops(inner, enters)
                yield inner


def erase_dead(block: Block) -> None:
    """Erases the ops of a block whose results nothing uses."""
    for op in reversed(list(block.ops)):
        if is_trivially_dead(op):
            op.detach()
            op.erase()
