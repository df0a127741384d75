"""The alternatives of the compiler, by name: what it may do with kernels, does where that takes less time, and can be
told to leave out (`Options(without=...)`, `--without NAME`, the pass option `without`).

Those that put other fusions in the place of some have a class that says which (`rewrites`, choose/rewrites.py): one
chooser compares the times of both. The others are part of the pass that considers them. A package outside the tree
names alternatives of its own in the `alternatives` of its `tilewright.Plugin`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from ..support.plugins import PluginWarning, listed
from ..support.sentences import suggestion
from .errors import PassError


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Something that the compiler may leave out.

    Attributes:
        name: What `--without` calls it.
        does: What is done, a clause.
        without: What is done where it is left out, a clause that begins with a verb.
        stages: The passes that consider it.
        modules: What names of modules begin with in which its faults arise.
        rewrites: `module:Class` of a `Rewrites` (choose/rewrites.py), where the chooser of graph-schedule applies it.
        former: The field of `tw.Options`, and in `--no-FORMER`, by which it was known before; empty for none.
    """

    name: str
    does: str
    without: str
    stages: tuple[str, ...]
    modules: tuple[str, ...] = ()
    rewrites: str = ""
    former: str = ""


FUSION = "fusion"
ATTENTION = "attention"
TRANSPOSED = "transposed"
PITCH = "pitch"
STRANDS = "strands"
UNCHAINED = "unchained"
PROLOGUE = "prologue"
CUBE_PROLOGUE = "cube-prologue"
POOLED = "pooled"
ROW_EPILOGUE = "row-epilogue"
COLUMN_EPILOGUE = "column-epilogue"
STREAM_K = "stream-k"
SPLIT_K = "split-k"
VECTOR_PRODUCTS = "vector-products"
BANDS = "bands"
PLACED = "placed"
RECOMPUTE = "recompute"
UNIT_FLAGS = "unit-flags"
BANKS = "banks"
JOIN = "join"
PREFETCH = "prefetch"

_CHOOSE = f"{__package__}.choose"

OURS = (
    Alternative(
        name=FUSION,
        does="kernels compute several ops, so that what is between these is not stored",
        without="make each op a kernel of its own",
        stages=("graph-fuse",),
        modules=("fuse", "groups", "long_rows", "held", "merged"),
        former="fuse",
    ),
    Alternative(
        name=ATTENTION,
        does="attention, its gradient, and other chained products are one kernel",
        without="leave the products and the softmax of attention, and other chained products, kernels of their own",
        stages=("graph-strips", "graph-fuse"),
        modules=("attention", "row_attention", "chain", "back_to_back", "flash_backward", "visible_keys"),
        former="attention",
    ),
    Alternative(
        name=TRANSPOSED,
        does="operands of products are stored with what is summed over side by side",
        without="leave the operands of products in memory as they are, whatever their loads cost",
        stages=("graph-schedule",),
        modules=("operand_layouts", "layout_choice", "weight_layouts"),
        former="turned",
    ),
    Alternative(
        name=PITCH,
        does="rows of operands of products begin where lines of memory do, with padding behind each",
        without="leave the rows of operands of products as long as they are, wherever they begin in memory",
        stages=("graph-schedule",),
        modules=("operand_layouts", "layout_choice", "weight_layouts"),
        former="widened",
    ),
    Alternative(
        name=STRANDS,
        does="what one kernel would do for many tensors on few cores becomes kernels side by side",
        without="leave what is done for many tensors on few cores one kernel",
        stages=("graph-schedule",),
        modules=("strands",),
        rewrites=f"{_CHOOSE}.strands:StrandsApart",
    ),
    Alternative(
        name=PROLOGUE,
        does="what is elementwise before an operand of a product of few rows is computed where it is loaded",
        without="store what is elementwise before an operand of a product",
        stages=("graph-schedule",),
        modules=("prologue", "spreading"),
        rewrites=f"{_CHOOSE}.prologue:PrologueOnVector",
    ),
    Alternative(
        name=CUBE_PROLOGUE,
        does="what is elementwise before an operand of a product is computed beside the cube, tile by tile",
        without="store what is elementwise before an operand of a product of many rows",
        stages=("graph-schedule",),
        modules=("prologue",),
        rewrites=f"{_CHOOSE}.prologue:PrologueOnCube",
    ),
    Alternative(
        name=UNCHAINED,
        does="attention, and products back to back, are taken apart again",
        without="leave attention, and products back to back, one kernel each",
        stages=("graph-schedule",),
        modules=("chain_apart", "row_attention_parts"),
        rewrites=f"{_CHOOSE}.chain_apart:ChainApart",
    ),
    Alternative(
        name=POOLED,
        does="a product and the windows that pool its result are one kernel",
        without="leave the windows that pool the result of a product a kernel of their own",
        stages=("graph-schedule",),
        modules=("pool",),
        rewrites=f"{_CHOOSE}.pooling_choice:PooledProduct",
        former="pooling",
    ),
    Alternative(
        name=ROW_EPILOGUE,
        does="what reduces rows of a product, as a norm behind it, is part of its kernel",
        without="leave what reduces rows of a product, as a norm behind it, a kernel of its own",
        stages=("graph-schedule",),
        modules=("row_epilogue", "epilogue_fusion"),
        rewrites=f"{_CHOOSE}.row_epilogue:RowEpilogue",
        former="tails",
    ),
    Alternative(
        name=COLUMN_EPILOGUE,
        does="what combines columns of a product, as a rotary embedding behind it, is part of its kernel",
        without="leave what combines columns of a product, as a rotary embedding behind it, a kernel of its own",
        stages=("graph-schedule",),
        modules=("column_epilogue",),
        rewrites=f"{_CHOOSE}.column_epilogue:ColumnEpilogue",
    ),
    Alternative(
        name=SPLIT_K,
        does="sums of products are cut into parts, which vector cores add up",
        without="leave the sums of products whole, unless cores are idle then",
        stages=("graph-schedule",),
        modules=("split",),
    ),
    Alternative(
        name=STREAM_K,
        does="sums of products are cut where whole ones leave cores idle: all, or those of the last tiles",
        without="leave the sums of products whole where the tiles of their results leave cores idle",
        stages=("graph-schedule",),
        modules=("stream", "product_ways"),
        former="stream_k",
    ),
    Alternative(
        name=VECTOR_PRODUCTS,
        does="products of few rows are on the vector cores",
        without="leave every product that the cube computes to the cube",
        stages=("graph-schedule",),
        modules=("vector_product", "spreading"),
    ),
    Alternative(
        name=BANDS,
        does="the rows of masked attention are cut into bands, each with the keys that it sees",
        without="leave the rows of attention one launch",
        stages=("graph-schedule",),
        modules=("attention_choice",),
    ),
    Alternative(
        name=PLACED,
        does="kernels store the parts of a concatenation where it has them",
        without="copy the parts of a concatenation to their places, whoever makes them",
        stages=("graph-schedule",),
        modules=("placed",),
        former="placed",
    ),
    Alternative(
        name=RECOMPUTE,
        does="kernels make small rows that they read themselves, as the norm of one row",
        without="let kernels wait for rows that each could make itself, as the norm of one row",
        stages=("graph-schedule",),
        modules=("recompute",),
        rewrites=f"{_CHOOSE}.recompute:Recompute",
        former="inline",
    ),
    Alternative(
        name=BANKS,
        does="buffers that follow each other in a vector core's memory begin in different groups of banks",
        without="let buffers that follow each other begin in whatever banks they do",
        stages=("npu-allocate",),
        modules=("banks",),
        former="banks",
    ),
    Alternative(
        name=UNIT_FLAGS,
        does="the drain of a product's sums follows it piece by piece",
        without="let a drain wait until all sums of its product are made",
        stages=("npu-synchronize",),
        modules=("unit_flags",),
        former="unit_flags",
    ),
    Alternative(
        name=JOIN,
        does="neighbouring launches run as stages of one, with barriers between them",
        without="start every kernel by a launch of its own, whatever it costs",
        stages=("graph-schedule", "npu-join-launches"),
        modules=("join_launches", "launch_groups", "pareto"),
        former="join",
    ),
    Alternative(
        name=PREFETCH,
        does="kernels load what none of them makes, as weights, before they wait at a barrier",
        without="let kernels wait at a barrier before they load anything, weights as well",
        stages=("graph-schedule", "npu-join-launches"),
        modules=("loads_ahead",),
        former="ahead",
    ),
)


@cache
def alternatives() -> tuple[Alternative, ...]:
    """All alternatives, ours first, in the order in which the chooser tries them. One of a plugin that is none, or has
    the name of another, is left out with a warning."""
    found = list(OURS)
    for plugin, given in listed("alternatives"):
        if not isinstance(given, Alternative):
            problem = f"{given!r} is not an Alternative"
        elif any(given.name == other.name for other in found):
            problem = f"there is an alternative {given.name} already"
        else:
            found.append(given)
            continue
        warnings.warn(f"{plugin}: an alternative is left out: {problem}", PluginWarning, stacklevel=2)
    return tuple(found)


FORMER: dict[str, str | None] = {each.former: each.name for each in OURS if each.former} | {"fractals": None}
"""The names of alternatives by those that they had before; None for one that is no more."""


def check_names(names: Iterable[str]) -> None:
    """Raises PassError for the first name that no alternative has."""
    known = [each.name for each in alternatives()]
    for name in names:
        if name not in known:
            hint = suggestion(name, known) or f"; there are {', '.join(known)}"
            if (now := FORMER.get(name)) is not None:
                hint = f"; did you mean {now}?"
            raise PassError(f"without: no alternative is called '{name}'{hint}")


def listing() -> str:
    """A line for each alternative: its name, the passes that consider it, and what is done."""
    found = alternatives()
    name, stages = (max(map(len, column)) for column in zip(*((a.name, ", ".join(a.stages)) for a in found)))
    return "\n".join(f"{a.name:{name}}  {', '.join(a.stages):{stages}}  {a.does}" for a in found)


def table() -> str:
    """Lines of Markdown: name, passes and what is done."""
    head = ["| alternative | passes | what is done |", "|---|---|---|"]
    return "\n".join([*head, *(f"| `{a.name}` | {', '.join(a.stages)} | {a.does} |" for a in OURS)])
