"""The loop nest of a matrix product or convolution: its axes, and where each of them reads the operands.

A convolution is the same loop nest as a product: its m axes are the output positions, its k axes the window positions
and the input features, and the input index of a dimension is `stride * output + dilation * window - padding`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.base import Expr, integer, to_ints
from ...dialects.graph import ContractOp, ConvOp
from ...dialects.graph.interface import shape_of

Product = ContractOp | ConvOp
"""An op that the cube computes."""


@dataclass(frozen=True)
class ProductNest:
    """The loops of a matrix product or convolution. Axes: the output's dimensions first (a grouped convolution splits
    its feature dimension into group and feature), then the contracted ones.

    roles: "b" (batch), "m" (rows), "n" (columns) or "k" (summed over) for each axis. extents: of each axis. lhs, rhs:
    where each dimension of an operand is read. out: how each dimension of the result is made of axes.
    """

    roles: dict[int, str]
    extents: list[int]
    lhs: list[Expr[int]]
    rhs: list[Expr[int]]
    out: list[dict[int, int]]


def nest_of_contract(op: ContractOp) -> ProductNest:
    """Batch, lhs free, rhs free and contracted dimensions."""
    lhs, rhs = shape_of(op.lhs), shape_of(op.rhs)
    m_dims, n_dims = op.free_dims()
    lhs_batch, rhs_batch = to_ints(op.lhs_batch), to_ints(op.rhs_batch)
    lhs_k, rhs_k = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
    batch = range(len(lhs_batch))
    m = range(len(batch), len(batch) + len(m_dims))
    n = range(m.stop, m.stop + len(n_dims))
    k = range(n.stop, n.stop + len(lhs_k))
    roles = {**dict.fromkeys(batch, "b"), **dict.fromkeys(m, "m"), **dict.fromkeys(n, "n")}
    roles |= dict.fromkeys(k, "k")
    extents = [*shape_of(op.result), *(lhs[d] for d in lhs_k)]
    at_lhs = dict(zip([*lhs_batch, *m_dims, *lhs_k], [*batch, *m, *k], strict=True))
    at_rhs = dict(zip([*rhs_batch, *n_dims, *rhs_k], [*batch, *n, *k], strict=True))
    return ProductNest(
        roles,
        extents,
        [Expr.of(at_lhs[d]) for d in range(len(lhs))],
        [Expr.of(at_rhs[d]) for d in range(len(rhs))],
        [{d: 1} for d in range(len(shape_of(op.result)))],
    )


def nest_of_conv(op: ConvOp) -> ProductNest:
    """Output positions are rows; window positions and input features are summed over."""
    rhs, out = shape_of(op.rhs), shape_of(op.result)
    ll, rl, ol = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)
    groups, spatial = integer(op.groups), len(ll) - 2
    rank = len(out)
    group_axis = rank
    k = list(range(rank + (groups > 1), rank + (groups > 1) + spatial + 1))
    features = rhs[rl[1]] // groups
    roles = {ol[0]: "m", ol[1]: "n", **{ol[2 + i]: "m" for i in range(spatial)}}
    extents = list(out)
    extents[ol[1]] = features
    if groups > 1:
        roles[group_axis] = "b"
        extents.append(groups)
    roles |= dict.fromkeys(k, "k")
    extents += [*(rhs[rl[2 + i]] for i in range(spatial)), rhs[rl[0]]]
    group = {group_axis: 1} if groups > 1 else {}
    lhs_index: list[Expr[int]] = [Expr()] * rank
    lhs_index[ll[0]] = Expr.of(ol[0])
    lhs_index[ll[1]] = Expr(0, {k[-1]: 1, **dict.fromkeys(group, rhs[rl[0]])})
    rhs_index: list[Expr[int]] = [Expr()] * rank
    rhs_index[rl[0]] = Expr.of(k[-1])
    rhs_index[rl[1]] = Expr(0, {ol[1]: 1, **dict.fromkeys(group, features)})
    strides, dilation, low = to_ints(op.strides), to_ints(op.rhs_dilation), to_ints(op.low)
    for i in range(spatial):
        terms = {ol[2 + i]: strides[i], k[i]: dilation[i]}
        lhs_index[ll[2 + i]] = Expr(-low[i], {a: c for a, c in terms.items() if extents[a] != 1})
        rhs_index[rl[2 + i]] = Expr.of(k[i])
    out_axes = [{d: 1} for d in range(rank)]
    if groups > 1:
        out_axes[ol[1]] = {ol[1]: 1, group_axis: features}
    return ProductNest(roles, extents, lhs_index, rhs_index, out_axes)


def nest_of(op: Product) -> ProductNest:
    """The loops of a product."""
    return nest_of_contract(op) if isinstance(op, ContractOp) else nest_of_conv(op)
