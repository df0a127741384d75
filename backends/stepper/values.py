"""What plans of both levels know of a kernel's values: which index, which tensor, and which number each one is."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from ...dialects import npu, tile
from ...dialects.affine import Expr
from ...dialects.base import FormattedOp
from ...dialects.npu import NpuOp
from ...dialects.tile import TileOp
from .places import Row
from .rules import TABLE, Compute, Prepare, by_itself


class PlannedKernel:
    """A kernel's values as numbers. grid: the extents of its grid."""

    def __init__(self, grid: Sequence[int], arguments: Sequence[SSAValue]) -> None:
        """arguments: of the kernel, those of its grid first. Of a kernel whose sizes are known; others give `number`
        another meaning."""
        self.grid = tuple(map(self.number, grid))
        self.known: dict[SSAValue, int] = {}
        """Indices that are the same for all cores and iterations."""
        self.indices: dict[SSAValue, int] = {v: i for i, v in enumerate(arguments[: len(grid)])}
        """The numbers of those that are not, in a core's list of them."""
        self.arguments = arguments[len(grid) :]
        self.tensors: dict[SSAValue, int] = {v: i for i, v in enumerate(self.arguments)}
        """Which of its device tensors an argument or a view is of."""

    def number(self, n: int) -> int:
        """The value of an int or an open size."""
        return n

    def index(self, value: SSAValue) -> int:
        """The number of an index in a core's list, which is given where it has none."""
        return self.indices.setdefault(value, len(self.indices))

    def row(self, expr: Expr) -> Row:
        """An expression of indices."""
        constant, terms = self.number(expr.constant), []
        for value, coefficient in expr.terms:
            if value in self.known:
                constant += self.known[value] * self.number(coefficient)
            else:
                terms.append((self.indices[value], self.number(coefficient)))
        return constant, tuple(terms)

    def rows(self, op: FormattedOp) -> tuple[Row, ...]:
        """The expressions of an op's `at [...]`."""
        return tuple(map(self.row, op.linear())) if "offsets" in op.properties else ()

    def names(self, op: Operation) -> bool:
        """Whether an op only names a number or a part of a tensor, which is then known."""
        if isinstance(op, arith.ConstantOp):
            assert isinstance(op.value, IntegerAttr)
            self.known[op.result] = op.value.value.data
        elif isinstance(op, npu.ViewOp | tile.ViewOp):
            self.tensors[op.result] = self.tensors[op.source]
        else:
            return False
        return True

    def computing(self, op: NpuOp | TileOp, rule: Prepare) -> tuple[Compute, tuple[Row, ...], bool]:
        """How an op computes what it makes of on-chip memory: by its rule, of expressions; and whether denormal numbers
        may be among that though none are among what it takes."""
        if rule in TABLE.values():
            compute, rows = rule(op, self.number), self.rows(op)
        else:
            compute, rows = by_itself(op), tuple(self.row(Expr.of(v)) for v in op.index_operands())
        if isinstance(op, npu.ElementwiseVectorOp | tile.ElementwiseTileOp):
            return compute, rows, op.FUNCTION.name == "bitcast"
        fills = isinstance(op, npu.VFillOp | npu.FillL1Op | npu.SetNumberOp | tile.FillOp)
        return compute, rows, fills or rule not in TABLE.values()
