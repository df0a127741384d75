"""Programs for the fault campaign whose kernels hand on tensors in longer rows."""

from __future__ import annotations

import numpy as np

PLAIN = "lhs_batch = [], lhs_contract = [1], rhs_batch = [], rhs_contract = [0]"
AXES = "attributes {axes = array<i64: 0, 1>}"
FUSED = '{tilewright.states = ["stored", "real", "partitioned", "fused"]}'


def wide_rows(number: int) -> str:
    """A module of the graph level, in fusions: what a product gives, or the vector cores where the number is odd, has
    rows that are padded in memory, and a product reads it."""
    rng = np.random.default_rng(number)
    rows, summed, columns = (int(n) for n in rng.integers(17, 50, 3))
    row = 16 * (columns // 16 + 2)
    kind = "f32" if number % 4 == 2 else "f16"
    x, w, v, y, wide = (
        f"tensor<{a}x{b}x{kind}>"
        for a, b in ((rows, summed), (summed, columns), (columns, summed), (rows, columns), (rows, row))
    )
    if number % 2:
        domain = f'{{domain = [{rows}, {columns}], kind = "vector"}}'
        first = f"""
  %h = graph.fusion %y {domain} : ({y}) -> {wide} {{
  ^bb0(%a: {y}):
    %s = graph.exp %a {AXES} : {y}"""
    else:
        domain = f'{{domain = [{rows}, {columns}], kind = "cube"}}'
        first = f"""
  %h = graph.fusion %x, %w {domain} : ({x}, {w}) -> {wide} {{
  ^bb0(%a: {x}, %b: {w}):
    %s = graph.contract %a, %b {{{PLAIN}}} {AXES} : ({x}, {w}) -> {y}"""
    slices = f"starts = [0, 0], limits = [{rows}, {columns}], strides = [1, 1]"
    domain = f'{{domain = [{rows}, {summed}], kind = "cube"}}'
    return f"""
builtin.module attributes {FUSED} {{
func.func @main(%x: {x}, %y: {y}, %w: {w}, %v: {v}) -> {x} {{{first}
    %t = graph.widen %s {{row = {row}}} : ({y}) -> {wide}
    graph.yield %t : ({wide})
  }}
  %r = graph.fusion %h, %v {domain} : ({wide}, {v}) -> {x} {{
  ^bb0(%a: {wide}, %b: {v}):
    %s = graph.slice %a {{{slices}}} : ({wide}) -> {y}
    %p = graph.contract %s, %b {{{PLAIN}}} {AXES} : ({y}, {v}) -> {x}
    graph.yield %p : ({x})
  }}
  func.return %r : {x}
}}
}}"""
