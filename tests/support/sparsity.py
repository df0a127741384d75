"""2:4 sparse right sides: in numpy, and as the text of a program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def dense_of(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What values i8 [..., n / 2] at the positions of index i8 [..., n / 8] stand for, i8 [..., n], one by one."""
    *rest, kept = values.shape
    dense = np.zeros((*rest, 2 * kept), np.int8)
    for at in np.ndindex(*rest):
        for group in range(kept // 2):
            places = [int(index[at][(2 * group + i) // 4]) >> 2 * ((2 * group + i) % 4) & 3 for i in range(2)]
            for i in (1, 0):  # of two at one place the first one counts
                dense[at][4 * group + places[i]] = values[at][2 * group + i]
    return dense


def product_text(batch: Sequence[int], m: int, k: int, n: int, columns: bool = True) -> str:
    """A product x [*batch, m, k] i8 times a sparse right side [*batch, k, n]. columns: whether each column's values lie
    together, [*batch, n, k / 2], or each row's, [*batch, k / 2, n]."""
    rank, dims = len(batch), list(range(len(batch)))

    def kind(*shape: int, element: str = "i8") -> str:
        return f"tensor<{'x'.join(map(str, (*batch, *shape)))}x{element}>"

    def stored(each: int) -> str:
        return kind(n, k // each) if columns else kind(k // each, n)

    dense = kind(n, k) if columns else kind(k, n)
    lines = [
        f"func.func @main(%x: {kind(m, k)}, %v: {stored(2)}, %i: {stored(8)}) -> {kind(m, n, element='i32')} {{",
        f"  %d = graph.expand %v, %i {{dim = {rank + columns}}} : ({stored(2)}, {stored(8)}) -> {dense}",
    ]
    right = "%d"
    if columns:
        perm = [*dims, rank + 1, rank]
        lines.append(f"  %w = graph.transpose %d {{perm = {perm}}} : ({dense}) -> {kind(k, n)}")
        right = "%w"
    lines += [
        f"  %y = graph.contract %x, {right} {{lhs_batch = {dims}, lhs_contract = [{rank + 1}], rhs_batch = {dims}, "
        f"rhs_contract = [{rank}]}} : ({kind(m, k)}, {kind(k, n)}) -> {kind(m, n, element='i32')}",
        f"  func.return %y : {kind(m, n, element='i32')}",
        "}",
    ]
    return "\n".join(lines) + "\n"
