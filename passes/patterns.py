"""The patterns of graph-simplify: their base class, and the table that lists them in order of preference.

    @register
    class DropDoubleNegation(GraphPattern):
        \"\"\"The negative of a negative is the value itself.\"\"\"

        name = "drop-double-negation"

        @op_type_rewrite_pattern
        def match_and_rewrite(self, op: NegOp, rewriter: PatternRewriter, /) -> None:
            ...

A package outside the tree names its own in the `patterns` of its `tilewright.Plugin`; they are read when patterns are
first asked for. A program registers one the same way as here.
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import ClassVar, TypeVar

from xdsl.pattern_rewriter import RewritePattern

from ..machine import Machine
from ..support.plugins import PluginWarning, listed
from ..support.sentences import suggestion
from .errors import PassError
from .pins import Pins


class GraphPattern(RewritePattern, ABC):
    """One named decision about a graph op, for a machine."""

    name: ClassVar[str]
    """What `only` and the listing call it."""

    LATE: ClassVar[bool] = False
    """Whether it looks at what the other patterns have made of ops around: it is tried where none of these matches."""

    def __init__(self, machine: Machine):
        self.machine = machine

    @classmethod
    def allowed(cls, pins: Pins) -> bool:
        """Whether it may be applied where these schedules are pinned: what a pin decides, no pattern does."""
        return True

    @classmethod
    def summary(cls) -> str:
        """What it does, in a line: the first sentence of its docstring."""
        first = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
        return " ".join(first.split())


PatternT = TypeVar("PatternT", bound=type[GraphPattern])

_OURS = (
    "simplify.empty:FoldEmptyResults",
    "simplify.empty:FoldEmptyReduce",
    "simplify.empty:FoldEmptyContract",
    "simplify.empty:FoldEmptyPad",
    "simplify.empty:FoldEmptyUpdate",
    "simplify.empty:FoldEmptyConcat",
    "simplify.neutral:DropNeutralOperand",
    "simplify.functions:TermsAsLogistic",
    "simplify.movement:SimplifyBroadcasts",
    "simplify.movement:DropIdentityBroadcast",
    "simplify.movement:BroadcastAsReshape",
    "simplify.movement:SimplifyReshapes",
    "simplify.movement:DropIdentityReshape",
    "simplify.movement:PadAsUpdate",
    "simplify.concatenations:InterleaveAsSelect",
    "quantized.integer_products:ProductOfStored",
    "forms.sparse_products:ExpandElsewhere",
    "simplify.products:ConvDilationAsPad",
    "simplify.products:SameInputTypes",
    "simplify.products:OrderContracted",
    "simplify.outer_products:ContractAsMultiply",
    "simplify.accumulators:ConvertAccumulators",
    "simplify.accumulators:RoundAccumulators",
    "simplify.vector_products:DepthwiseConvOnVector",
    "simplify.products:ConvAsContract",
    "simplify.vector_products:ConvOnVector",
    "simplify.vector_products:ContractOnVector",
    "simplify.vector_products:DotOnVector",
    "simplify.grouped_products:GroupProduct",
    "simplify.grouped_products:GroupSums",
    "simplify.products:SwapContractOperands",
    "simplify.reductions:SplitReduce",
    "simplify.reductions:SplitArgReduce",
    "simplify.picking:GatherAsSlice",
    "simplify.picking:GatherBeforeElementwise",
    "simplify.picking:SliceBeforeConvert",
    "simplify.concatenations:ConcatLast",
    "simplify.concatenations:ConcatOfEqualParts",
    "simplify.picking:ScatterAsSelect",
    "simplify.sorted_scatter:SortScatter",
    "simplify.reductions:SplitScatter",
    "simplify.windows:WindowAsCumulate",
    "simplify.windows:SplitWindow",
    "simplify.sort_order:SortBackwards",
    "simplify.sort_order:SortKeeps",
    "simplify.sorting:SortLastDimension",
    "simplify.sorting:SortOpenRows",
    "simplify.sorting:SortInParts",
)

_TABLE: list[str | type[GraphPattern]] = [f"{__package__}.{entry}" for entry in _OURS]


def register(pattern: PatternT) -> PatternT:
    """Adds a pattern behind all others; of several that match an op, the first one is applied. Raises ValueError where
    another has its name."""
    if any(pattern.name == other.name for other in patterns()):
        raise ValueError(f"there is a pattern {pattern.name} already")
    _TABLE.append(pattern)
    return pattern


def register_lazily(entry: str) -> None:
    """The same for `module:Class`, which is imported when patterns are first asked for."""
    _TABLE.append(entry)


def unregister(pattern: type[GraphPattern]) -> None:
    """Takes a pattern out again. Raises ValueError if it is not there."""
    _TABLE.remove(pattern)


@cache
def _add_plugins() -> None:
    """Takes in the patterns of plugins. One that is no pattern, or has the name of another, is left out with a
    warning."""
    names = {p.name for p in _read()}
    for found, pattern in listed("patterns"):
        if not (isinstance(pattern, type) and issubclass(pattern, GraphPattern)):
            problem = f"{pattern!r} is not a GraphPattern"
        elif pattern.name in names:
            problem = f"there is a pattern {pattern.name} already"
        else:
            names.add(pattern.name)
            _TABLE.append(pattern)
            continue
        warnings.warn(f"{found}: a pattern is left out: {problem}", PluginWarning, stacklevel=2)


def patterns() -> tuple[type[GraphPattern], ...]:
    """All patterns, in the order in which they are tried. Raises PassError for an entry that cannot be read."""
    _add_plugins()
    return _read()


def _read() -> tuple[type[GraphPattern], ...]:
    for i, entry in enumerate(_TABLE):
        if isinstance(entry, str):
            _TABLE[i] = _load(entry)
    return tuple(entry for entry in _TABLE if not isinstance(entry, str))


def _load(entry: str) -> type[GraphPattern]:
    module, _, name = entry.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PassError(f"graph-simplify: cannot read the pattern {entry}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, GraphPattern)):
        raise PassError(f"graph-simplify: {entry} is not a GraphPattern")
    return found


def selected(only: Iterable[str]) -> tuple[type[GraphPattern], ...]:
    """The patterns with these names, in the order in which they are tried; all where none is named. Raises PassError
    for a name that no pattern has."""
    known, wanted = {p.name: p for p in patterns()}, tuple(only)
    for name in wanted:
        if name not in known:
            hint = suggestion(name, known) or f"; there are {', '.join(known)}"
            raise PassError(f"graph-simplify: no pattern is called '{name}'{hint}")
    return tuple(p for name, p in known.items() if not wanted or name in wanted)


def listing() -> str:
    """A line for each pattern: its name and what it does."""
    found = patterns()
    width = max(len(p.name) for p in found)
    return "\n".join(f"{p.name:{width}}  {p.summary()}" for p in found)
