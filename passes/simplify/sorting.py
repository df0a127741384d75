"""Rewrites sorts for the kernels: along the last dimension, with rows that fit the unified buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import StringAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, ints
from ...dialects.dtypes import dtype_name, is_float, itemsize, numpy_dtype, tensor
from ...dialects.graph import ConcatOp, HostOp, SortOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.host_text import host_text, number_in_text, type_in_text
from ...dialects.open_sizes import is_open, most_of
from ...dialects.shapes import Keys
from ...machine import Machine
from ..forms.tensor_builder import RewriteBuilder
from ..lower.indexed.sort import fitting_slots
from ..patterns import GraphPattern


class SortLastDimension(GraphPattern):
    """A sort along another dimension than the last is one along the last, between transposes."""

    name = "sort-last-dimension"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SortOp, rewriter: PatternRewriter, /) -> None:
        dim, rank = integer(op.dim), len(shape_of(op.xs[0]))
        if dim == rank - 1:
            return
        perm = [*range(dim), *range(dim + 1, rank), dim]
        back = [*range(dim), rank - 1, *range(dim, rank - 1)]
        build = RewriteBuilder(rewriter)
        made = _sorted(build, op, [build.transpose(x, perm) for x in op.xs], op.kept())
        rewriter.replace(op, (), [build.transpose(v, back) for v in made])


class SortOpenRows(GraphPattern):
    """A sort of rows of open length is one of the longest that there are; what is behind them comes last.

    Where those have to be sorted by the host, it sorts the rows as they are.
    """

    name = "sort-open-rows"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SortOp, rewriter: PatternRewriter, /) -> None:
        *outer, n = shape_of(op.xs[0])
        longest = most_of(n)
        if not is_open(n) or longest is None:
            return
        keep = op.kept()
        whole = is_open(keep)
        length = _sorted_at_once(op, longest, longest if whole else keep, self.machine)
        if length < longest and (whole or 2 * keep > length):
            rewriter.replace(op, _on_host(op))
            return
        build, order = RewriteBuilder(rewriter), op.order()
        none = [0] * (len(outer) + 1)
        behind = [*none[1:], longest - n]

        def padded(x: SSAValue, value: float) -> SSAValue:
            return build.pad(x, value, none, behind, none)

        fills = {
            k: _comes_last(element_of(op.xs[k]), bool(down))
            for k, down in zip(order.operands, order.descending, strict=True)
        }
        xs = [padded(x, fills.get(i, 0)) for i, x in enumerate(op.xs)]
        keys = [*order.operands], [*order.descending], [*order.total]
        apart = any(order.total)  # no number is behind all others: the NaNs have an order
        if apart:
            inside = build.constant(0, shape_of(op.xs[0]), i32)
            xs.append(padded(inside, 1))
            keys = [len(xs) - 1, *keys[0]], [0, *keys[1]], [0, *keys[2]]
        made = _sorted(build, op, xs, longest if whole else keep, Keys(*keys))[: len(op.xs)]
        if whole:
            ones = [1] * len(none)
            made = [build.slice(x, none, [*outer, keep], ones) for x in made]
        rewriter.replace(op, (), made)


def _comes_last(element: Attribute, descending: bool) -> float:
    """A number that no other of an element type is sorted behind, where all NaNs are one."""
    name = dtype_name(element)
    if is_float(element):
        return -math.inf if descending else math.nan
    if name == "i1":
        return not descending
    info = np.iinfo(numpy_dtype(element))
    return int(info.min if descending else info.max)


class SortInParts(GraphPattern):
    """A sort of rows that do not fit on chip takes the first of each part, and then of those.

    Where more than few are kept, the host sorts.
    """

    name = "sort-in-parts"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SortOp, rewriter: PatternRewriter, /) -> None:
        *outer, n = shape_of(op.xs[0])
        keep = op.kept()
        length = _sorted_at_once(op, n, keep, self.machine)
        if length == n:
            return
        if 2 * keep > length:
            rewriter.replace(op, _on_host(op))
            return
        build = RewriteBuilder(rewriter)
        parts, rest = n // length, n % length
        zeros, ones = [0] * len(outer), [1] * (len(outer) + 1)
        whole = [build.slice(x, [*zeros, 0], [*outer, parts * length], ones) for x in op.xs]
        first = _sorted(build, op, [build.reshape(x, [*outer, parts, length]) for x in whole], keep)
        candidates = [build.reshape(x, [*outer, parts * keep]) for x in first]
        if rest:
            tail = [build.slice(x, [*zeros, parts * length], [*outer, n], ones) for x in op.xs]
            kept = min(keep, rest)
            last = _sorted(build, op, tail, kept)
            shape, dim = [*outer, parts * keep + kept], integer_attr(len(outer))
            candidates = [
                build.add(ConcatOp, [a, b], tensor(shape, element_of(a)), dim=dim)
                for a, b in zip(candidates, last, strict=True)
            ]
        rewriter.replace(op, (), _sorted(build, op, candidates, keep))


def _sorted_at_once(op: SortOp, n: int, keep: int, machine: Machine) -> int:
    """How many elements of rows of n, the first `keep` of which are wanted, fit on chip: n, or that halved."""
    elements = [element_of(x) for x in op.xs]
    length = n
    while length > 1 and not fitting_slots(1, length, min(keep, length), elements, machine):
        length //= 2
    return length


def _sorted(
    build: RewriteBuilder, op: SortOp, xs: Sequence[SSAValue], keep: int, keys: Keys | None = None
) -> Sequence[SSAValue]:
    """xs ordered along their last dimension as `op` orders, or by other keys, the first `keep`."""
    order = op.order() if keys is None else keys
    *outer, _ = shape_of(xs[0])
    new = SortOp.create(
        operands=xs,
        result_types=[tensor([*outer, keep], element_of(x)) for x in xs],
        properties={
            **op.properties,
            "keys": ints(order.operands),
            "descending": ints(order.descending),
            "total": ints(order.total),
            "dim": integer_attr(len(outer)),
            "keep": integer_attr(keep),
        },
    )
    return build.insert(new).results


def _on_host(op: SortOp) -> HostOp:
    return HostOp.create(
        operands=op.xs,
        result_types=op.result_types,
        properties={"op": StringAttr("stablehlo.sort"), "module": host_text(stablehlo_of(op))},
    )


def stablehlo_of(op: SortOp) -> str:
    """The open text of a StableHLO module that computes `op`."""
    shape, keep, dim = shape_of(op.xs[0]), op.kept(), integer(op.dim)
    kept = [keep if d == dim else n for d, n in enumerate(shape)]
    names = [dtype_name(element_of(x)) for x in op.xs]
    ins, outs = ([type_in_text(s, n) for n in names] for s in (shape, kept))
    scalars = [type_in_text((), n) for n in names]
    formal = ", ".join(f"%a{i}: {t}, %b{i}: {t}" for i, t in enumerate(scalars))
    lines = _comparator(op.order(), [element_of(x) for x in op.xs])
    results = [f"%r#{i}" if len(names) > 1 else "%r" for i in range(len(names))]
    several = f":{len(names)}" if len(names) > 1 else ""
    text = [
        f'%r{several} = "stablehlo.sort"({", ".join(f"%x{i}" for i in range(len(names)))}) '
        f"<{{dimension = {dim} : i64, is_stable = true}}> ({{",
        f"^bb0({formal}):",
        *lines,
        f"}}) : ({', '.join(ins)}) -> ({', '.join(ins)})",
    ]
    if kept != list(shape):
        box = ", ".join(f"0:{number_in_text(n)}" for n in kept)
        text += [
            f"%y{i} = stablehlo.slice {r} [{box}] : ({a}) -> {b}"
            for i, (r, a, b) in enumerate(zip(results, ins, outs, strict=True))
        ]
        results = [f"%y{i}" for i in range(len(names))]
    arguments = ", ".join(f"%x{i}: {t}" for i, t in enumerate(ins))
    head = f"func.func public @main({arguments}) -> ({', '.join(outs)}) {{"
    body = "\n".join([head, *text, f"return {', '.join(results)} : {', '.join(outs)}", "}"])
    return f"module {{\n{body}\n}}\n"


def _comparator(keys: Keys, elements: Sequence[Attribute]) -> list[str]:
    """Lines that yield whether the elements %a... come before the elements %b..."""
    lines: list[str] = []
    before = ""
    for at in reversed(range(len(keys.operands))):
        k, element = keys.operands[at], elements[keys.operands[at]]
        kind, how = type_in_text((), dtype_name(element)), ""
        sides = [f"%a{k}", f"%b{k}"]
        if is_float(element):
            how = ", TOTALORDER"
            if not keys.total[at]:
                sides = [_as_number(lines, side, f"{side}_{at}", element) for side in sides]
        else:
            signed = dtype_name(element)[0] == "i" and dtype_name(element) != "i1"
            how = ", SIGNED" if signed else ", UNSIGNED"
        signature = f"({kind}, {kind}) -> tensor<i1>"
        way = "GT" if keys.descending[at] else "LT"
        lines.append(f"%less{at} = stablehlo.compare {way}, {sides[0]}, {sides[1]}{how} : {signature}")
        if not before:
            before = f"%less{at}"
            continue
        lines += [
            f"%same{at} = stablehlo.compare EQ, {sides[0]}, {sides[1]}{how} : {signature}",
            f"%both{at} = stablehlo.and %same{at}, {before} : tensor<i1>",
            f"%before{at} = stablehlo.or %less{at}, %both{at} : tensor<i1>",
        ]
        before = f"%before{at}"
    return [*lines, f"stablehlo.return {before} : tensor<i1>"]


def _as_number(lines: list[str], side: str, name: str, element: Attribute) -> str:
    """Lines that make zeros and NaNs of either sign one; the value's name."""
    kind, width = type_in_text((), dtype_name(element)), itemsize(element)
    nan = int(numpy_dtype(element).type("nan").view(f"u{width}")) & (2 ** (8 * width - 1) - 1)
    lines += [
        f"{name}z = stablehlo.constant dense<0.0> : {kind}",
        f"{name}n = stablehlo.constant dense<0x{nan:0{2 * width}X}> : {kind}",
        f"{name}e = stablehlo.compare EQ, {side}, {name}z, FLOAT : ({kind}, {kind}) -> tensor<i1>",
        f"{name}s = stablehlo.select {name}e, {name}z, {side} : tensor<i1>, {kind}",
        f"{name}u = stablehlo.compare NE, {side}, {side}, FLOAT : ({kind}, {kind}) -> tensor<i1>",
        f"{name}v = stablehlo.select {name}u, {name}n, {name}s : tensor<i1>, {kind}",
    ]
    return f"{name}v"
