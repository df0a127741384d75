"""Cube kernels: matrix products and convolutions, with their vector epilogue.

    for each tile of (batch, m, n) of this core:
      for each piece of k that one load brings to l1:      load a, load b           MTE2
        for each mma step inside it:                       move a, move b           MTE1
                                                           acc += a x b             M
      store acc, or hand it to the vector cores for the epilogue                    FIX

A convolution is the same loop nest: its m axes are the output positions, its k axes the window positions and the
input features, and the input index of a dimension is `stride * output + dilation * window - padding`, which the
l1 -> l0a move unrolls (image to column).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from xdsl.dialects.builtin import Float32Type, i32
from xdsl.ir import Attribute, BlockArgument, SSAValue

from ...dialects.base import Expr, describe, integer, ints, pack, to_ints
from ...dialects.dtypes import dtype_name, is_float, itemsize, size
from ...dialects.graph import ContractOp, ConvOp, FusionOp
from ...dialects.graph.ops import element_of, shape_of
from ...dialects.npu.interface import gm_traffic
from ...dialects.npu.types import GmType, padded_bytes, row_strides
from ...dialects.tile import TileType, ops
from ...machine import Machine
from ..access import Index, resolve
from ..errors import PassError
from ..pins import CUBE_FIELDS, FREE, Pins, Schedule, schedule_for
from .builder import KernelBuilder, dense, divide_grid, gm_of, hand_back, integer_attr
from .cube_cost import CubeProblem
from .cube_schedule import CubeSchedule, choose_cube, refusal
from .schedule import UB_FRACTION, merge_axes
from .vector import Emitter, Ref, Step, VectorKernel


@dataclass
class Dim:
    """One dimension of an operand's view: extent, stride (elements), the axes it is indexed by, a constant."""

    extent: int
    stride: int
    terms: dict[int, int]
    constant: int = 0


@dataclass
class Operand:
    """How lhs or rhs is read: view dimensions in load order, and whether the matrix is transposed after l1."""

    source: int
    dims: list[Dim]
    offset: int
    element: Attribute
    transpose: bool = False

    def l1_sizes(self, tile: dict[int, int]) -> list[int]:
        out = []
        for d in self.dims:
            if len(d.terms) == 1:
                out.append(tile[next(iter(d.terms))])
            else:
                out.append(sum((tile[a] - 1) * c for a, c in d.terms.items()) + 1)
        return out

    def view(self, extents: dict[int, int]) -> GmType:
        """All of it, with what lies outside the tensor that windows reach."""
        reach = zip(self.dims, self.l1_sizes(extents), strict=True)
        return GmType.of([max(d.extent, n) for d, n in reach], self.element, [d.stride for d in self.dims])

    def l1_steps(self) -> list[int]:
        return [next(iter(d.terms.values())) if len(d.terms) == 1 else 1 for d in self.dims]


class ContractKernel(VectorKernel):
    """Lowers one cube or mix fusion. Axes: the output's dimensions first (a grouped convolution splits its
    feature dimension into group and feature), then the contracted ones."""

    def __init__(self, fusion: FusionOp, machine: Machine, pins: Schedule = FREE):
        anchor = next(op for op in fusion.body.block.ops if isinstance(op, ContractOp | ConvOp))
        self.anchor = anchor
        self.acc_type: Attribute = Float32Type() if is_float(element_of(anchor.lhs)) else i32
        if isinstance(anchor, ContractOp):
            self._contract_axes(anchor)
        else:
            self._conv_axes(anchor)
        super().__init__(fusion, machine, pins)

    # -- the two anchors ---------------------------------------------------------------------------------------

    def _contract_axes(self, op: ContractOp) -> None:
        lhs, rhs = shape_of(op.lhs), shape_of(op.rhs)
        m_dims, n_dims = op.free_dims()
        lhs_batch, rhs_batch = to_ints(op.lhs_batch), to_ints(op.rhs_batch)
        lhs_k, rhs_k = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
        batch = range(len(lhs_batch))
        m = range(len(batch), len(batch) + len(m_dims))
        n = range(m.stop, m.stop + len(n_dims))
        k = range(n.stop, n.stop + len(lhs_k))
        self.roles = {**dict.fromkeys(batch, "b"), **dict.fromkeys(m, "m"), **dict.fromkeys(n, "n")}
        self.roles |= dict.fromkeys(k, "k")
        self.all_extents = [*shape_of(op.result), *(lhs[d] for d in lhs_k)]
        at_lhs = dict(zip([*lhs_batch, *m_dims, *lhs_k], [*batch, *m, *k], strict=True))
        at_rhs = dict(zip([*rhs_batch, *n_dims, *rhs_k], [*batch, *n, *k], strict=True))
        self.lhs_index = [Index.axis(at_lhs[d]) for d in range(len(lhs))]
        self.rhs_index = [Index.axis(at_rhs[d]) for d in range(len(rhs))]
        self.out_axes: list[dict[int, int]] = [{d: 1} for d in range(len(shape_of(op.result)))]

    def _conv_axes(self, op: ConvOp) -> None:
        rhs, out = shape_of(op.rhs), shape_of(op.result)
        ll, rl, ol = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)
        groups, spatial = integer(op.groups), len(ll) - 2
        rank = len(out)
        group_axis = rank
        k = list(range(rank + (groups > 1), rank + (groups > 1) + spatial + 1))
        features = rhs[rl[1]] // groups
        self.roles = {ol[0]: "m", ol[1]: "n", **{ol[2 + i]: "m" for i in range(spatial)}}
        self.all_extents = list(out)
        self.all_extents[ol[1]] = features
        if groups > 1:
            self.roles[group_axis] = "b"
            self.all_extents.append(groups)
        self.roles |= dict.fromkeys(k, "k")
        self.all_extents += [*(rhs[rl[2 + i]] for i in range(spatial)), rhs[rl[0]]]
        group = {group_axis: 1} if groups > 1 else {}
        lhs_index = [Index()] * rank
        lhs_index[ll[0]] = Index.axis(ol[0])
        lhs_index[ll[1]] = Index.of({k[-1]: 1, **dict.fromkeys(group, rhs[rl[0]])})
        rhs_index = [Index()] * rank
        rhs_index[rl[0]] = Index.axis(k[-1])
        rhs_index[rl[1]] = Index.of({ol[1]: 1, **dict.fromkeys(group, features)})
        strides, dilation, low = to_ints(op.strides), to_ints(op.rhs_dilation), to_ints(op.low)
        for i in range(spatial):
            terms = {ol[2 + i]: strides[i], k[i]: dilation[i]}
            lhs_index[ll[2 + i]] = Index.of(
                {a: c for a, c in terms.items() if self.all_extents[a] != 1}, -low[i]
            )
            rhs_index[rl[2 + i]] = Index.axis(k[i])
        self.lhs_index, self.rhs_index = lhs_index, rhs_index
        self.out_axes = [{d: 1} for d in range(rank)]
        if groups > 1:
            self.out_axes[ol[1]] = {ol[1]: 1, group_axis: features}

    def _operand(self, value: SSAValue, indices: Sequence[Index]) -> Operand:
        """The view of lhs or rhs: a dimension per axis where that is enough, per tensor dimension where windows
        or padding make the index reach outside."""
        shape = shape_of(value)
        extents = dict(enumerate(self.all_extents))
        inside = all(
            i.constant + sum(min(c, 0) * (extents[a] - 1) for a, c in i.terms) >= 0
            and i.constant + sum(max(c, 0) * (extents[a] - 1) for a, c in i.terms) < n
            for i, n in zip(indices, shape, strict=True)
        )
        windowed = any(
            sum(self.roles[a] == "k" for a, _ in i.terms) and any(self.roles[a] == "m" for a, _ in i.terms)
            for i in indices
        )
        if inside and not windowed and isinstance(self.anchor, ConvOp | ContractOp):
            load = resolve(value, indices, extents, self._is_base)
            dims = [
                Dim(n, s, dict(i.terms), i.constant)
                for n, s, i in zip(load.shape, load.strides, load.indices, strict=True)
                if i.terms or i.constant
            ]
            known = {a for d in dims for a in d.terms}
            repeated = sorted({a for i in indices for a, _ in i.terms if extents[a] != 1} - known)
            dims += [Dim(extents[a], 0, {a: 1}) for a in repeated]
        else:
            plain = [Index.axis(-1 - d) for d in range(len(shape))]
            load = resolve(value, plain, {-1 - d: n for d, n in enumerate(shape)}, self._is_base)
            at = {i.terms[0][0]: s for i, s in zip(load.indices, load.strides, strict=True)}
            dims = [
                Dim(shape[d], at.get(-1 - d, 0), dict(i.terms), i.constant)
                for d, i in enumerate(indices)
                if shape[d] != 1 or i.terms or i.constant
            ]
        assert isinstance(load.base, BlockArgument)
        return Operand(
            list(self.fusion.body.block.args).index(load.base), dims, load.offset, element_of(value)
        )

    # -- axes --------------------------------------------------------------------------------------------------

    def _merge(self) -> None:
        self.members = [op for op in self.members if op is not self.anchor]
        self.operands: list[Operand] = [
            self._operand(self.anchor.lhs, self.lhs_index),
            self._operand(self.anchor.rhs, self.rhs_index),
        ]
        strides, presence, fixed = self._constraints()
        for operand, roles in zip(self.operands, ("bmk", "bkn"), strict=True):
            step: dict[int, int] = {}
            for d in operand.dims:
                for a, c in d.terms.items():
                    step[a] = d.stride * c
                if len(d.terms) != 1 or d.constant or next(iter(d.terms.values())) != 1 or self._partial(d):
                    fixed |= set(d.terms)
            strides.append(step)
            presence.append(frozenset(a for a, r in self.roles.items() if r in roles))
        presence.append(frozenset(a for a, r in self.roles.items() if r in "bmn"))
        presence.append(frozenset(a for a, r in self.roles.items() if r == "b"))
        if any(len(t) > 1 for t in self.out_axes):
            fixed |= {a for t in self.out_axes if len(t) > 1 for a in t}
        self.merged = merge_axes(self.all_extents, strides, presence, fixed)
        if self.machine.fused:  # A drain fills vector tiles in the accumulator's order.
            self.merged.sort(key=lambda group: "bmnk".index(self.roles[group[0]]))
        self.new_axis = {a: i for i, group in enumerate(self.merged) for a in group}
        self.extents = [size([self.all_extents[a] for a in group]) for group in self.merged]
        self.role = [self.roles[g[0]] for g in self.merged]
        for operand in self.operands:
            self._renumber(operand)

    def _partial(self, dim: Dim) -> bool:
        return dim.extent != self.all_extents[next(iter(dim.terms))]

    def _renumber(self, operand: Operand) -> None:
        kept: dict[int, Dim] = {}
        others: list[Dim] = []
        for d in operand.dims:
            terms = {self.new_axis[a]: c for a, c in d.terms.items() if a in self.new_axis}
            merged = len(terms) == 1 and len(self.merged[next(iter(terms))]) > 1
            if merged:
                axis = next(iter(terms))
                last = self.merged[axis][-1]
                if last in d.terms:
                    kept[axis] = Dim(self.extents[axis], d.stride, {axis: 1})
            elif terms or d.constant:
                others.append(Dim(d.extent, d.stride, terms, d.constant))
        operand.dims = [*others, *kept.values()]

    def _full_extent(self, axis: int) -> int:
        return self.all_extents[axis]

    def _out_strides(self, value: SSAValue) -> dict[int, int]:
        by_dim = super()._out_strides(value)
        out: dict[int, int] = {}
        for d, terms in enumerate(self.out_axes):
            for a, c in terms.items():
                if d in by_dim:
                    out[a] = by_dim[d] * c
        return out

    # -- epilogue ------------------------------------------------------------------------------------------------

    def _accumulator(self, element: Attribute) -> Ref:
        """The step that brings the accumulator to the vector core: a load of the workspace, or a drain of l0c."""
        axes = frozenset(a for a, r in enumerate(self.role) if r != "k")
        dims = sorted(axes)

        def emit(e: Emitter, _: list[SSAValue]) -> Sequence[SSAValue]:
            if self.machine.fused:
                return [self._drain(e, element)]
            source = e.builder.workspace(0)
            offsets = [e.at(a) for a in dims] or [Expr()]
            sizes = [e.tile[a] for a in dims] or [1]
            return [e.builder.load(source, offsets, sizes, e.type(axes, element))]

        return self._step(Step([element], axes, (), emit, "load", axes))

    def _drain(self, e: Emitter, element: Attribute) -> SSAValue:
        """The vector tile's part of the accumulator: whole columns, the rows from the chunk's first on."""
        rows = size([e.tile[a] for a in self.m_axes])
        cols = size([e.tile[a] for a in self.n_axes])
        first = Expr()
        inner = 1
        for a in reversed(self.m_axes):
            first = first + self.chunk_position.get(a, Expr()) * inner
            inner *= self.plan.l0[a]
        indices, offsets = pack(
            [first, self.chunk_position.get(self.n_axes[-1], Expr()) if self.n_axes else Expr()]
        )
        axes = frozenset(a for a, r in enumerate(self.role) if r != "k")
        return e.builder.add(
            ops.DrainOp,
            [self.acc, *indices],
            [e.type(axes, element)],
            offsets=offsets,
            sizes=ints([rows, cols]),
        ).results[0]

    # -- build -----------------------------------------------------------------------------------------------------

    def build(self, name: str) -> ops.KernelOp:
        self.slots = self.pins.ub or 2
        by_role = {r: [a for a, x in enumerate(self.role) if x == r] for r in "bmnk"}
        self.m_axes, self.n_axes = by_role["m"], by_role["n"]
        self.k_axes, self.b_axes = by_role["k"], by_role["b"]
        self._orient()
        lhs = self.operands[0]
        slid = [d for d in lhs.dims if any(self.role[a] == "m" for a in d.terms) and len(d.terms) > 1]
        windows = frozenset(a for d in slid for a in d.terms if self.role[a] == "k")
        self.views = [o.view(dict(enumerate(self.extents))) for o in self.operands]
        each, head = self._epilogue_cycles()
        problem = CubeProblem(
            self.extents,
            self.b_axes,
            self.m_axes,
            self.n_axes,
            self.k_axes,
            itemsize(lhs.element),
            wide_m=not lhs.transpose,
            windows=windows,
            dtype=dtype_name(lhs.element),
            stored=itemsize(element_of(self.anchor.result)),
            epilogue=each,
            epilogue_head=head,
        )
        plan = choose_cube(problem, self.machine, self._l1_bytes, self._loads, self.pins)
        reason = refusal(plan, problem, self.machine, self._l1_bytes, self.pins) if plan else None
        if reason is not None and self.pins != FREE:
            raise PassError(f"@{name} cannot obey its pinned schedule: {reason}")
        if plan is None:
            tile = {a: n if a in windows else 1 for a, n in enumerate(self.extents)}
            raise PassError(
                f"{describe(self.anchor)}: a load of both operands (twice buffered, "
                f"{2 * self._l1_bytes(tile, tile)} bytes for one output and whole windows) does not fit l1 of "
                f"{self.machine.name}"
            )
        self.plan = plan
        element = element_of(self.anchor.result)
        self.made[self.anchor.result] = self._accumulator(element)
        self.build_steps()
        self.plain = len(self.steps) == 2 and not self.machine.fused
        return self._emit_kernel(name, plan, element)

    def _orient(self) -> None:
        """Orders each operand's dimensions: batch, then rows, then columns, the one nearest in memory last.

        A gather of windows puts the positions in a window before the rest of the summed axes, in the order of
        the image's dimensions; the filter follows that order."""
        lhs, rhs = self.operands
        self._order(lhs, self.m_axes, self.k_axes, windowed=True)
        summed = [a for d in lhs.dims for a in d.terms if a in self.k_axes]
        summed += [a for a in self.k_axes if a not in summed]
        self._order(rhs, self.n_axes, summed, windowed=False)

    def _order(self, operand: Operand, free: list[int], k: list[int], windowed: bool) -> None:
        def find(axes: Sequence[int]) -> list[Dim]:
            found: list[Dim] = []
            for a in axes:
                for d in operand.dims:
                    if a in d.terms and d not in found:
                        found.append(d)
            return found

        free_dims = find(free)
        k_dims = [d for d in find(k) if d not in free_dims]
        batch = [d for d in operand.dims if d not in free_dims and d not in k_dims]
        has_window = any(len(d.terms) > 1 for d in free_dims)

        def nearest(dims: list[Dim]) -> int:
            return abs(dims[-1].stride) if dims and dims[-1].stride else 1 << 60

        if windowed:
            operand.transpose = not has_window and bool(free_dims) and nearest(free_dims) < nearest(k_dims)
            first, last = (k_dims, free_dims) if operand.transpose else (free_dims, k_dims)
        else:
            operand.transpose = bool(k_dims) and nearest(k_dims) < nearest(free_dims) and len(k_dims) <= 1
            first, last = (free_dims, k_dims) if operand.transpose else (k_dims, free_dims)
        if not last:
            last = [Dim(1, 1, {})]
        operand.dims = [*batch, *first, *last]

    def _l1_bytes(self, lhs: dict[int, int], rhs: dict[int, int]) -> int:
        tiles = zip(self.operands, (lhs, rhs), strict=True)
        return sum(padded_bytes(o.l1_sizes(tile), o.element) for o, tile in tiles)

    def _loads(self, box: dict[int, int]) -> tuple[float, float]:
        """(MTE2 cycles where all is in L2, bytes) to load both operands for a box of the axes."""
        move, cycles, total = self.machine.moves["gm", "l1"], 0.0, 0
        for o, view in zip(self.operands, self.views, strict=True):
            sizes, steps = o.l1_sizes(box), o.l1_steps()
            moved = gm_traffic(view, [0] * len(sizes), sizes, steps, self.machine, self.machine.gm_align)
            cycles += max(move.run_cycles * moved.runs, moved.bus / move.bytes_per_cycle)
            total += moved.bus
        return cycles, total

    def _epilogue_cycles(self) -> tuple[float, float]:
        """Cycles of a vector core for each element of the result, and for each tile on top: an estimate from what it
        copies and computes."""
        if not self.members and not self.machine.fused:
            return 0.0, 0.0
        moves, unit = self.machine.moves, self.machine.vector
        load, store, width = moves["gm", "ub"], moves["ub", "gm"], itemsize(self.acc_type)
        stored = sum(itemsize(element_of(v)) for v in self.yielded) / store.bytes_per_cycle
        loaded = 0.0 if self.machine.fused else width / load.bytes_per_cycle
        head = load.fixed_cycles + store.fixed_cycles + len(self.members) * unit.streamed_cycles
        return loaded + stored + len(self.members) * width / unit.repeat_bytes, head

    def _split(self, name: str, axes: Sequence[int], counts: dict[int, int]) -> dict[int, tuple[int, int]]:
        """(cores along it, tiles per core) for each output axis. Raises PassError for a split that leaves cores
        without work."""
        pins, available = self.pins, self.machine.cube_cores
        if pins.deal:
            working = min(available, size([counts[a] for a in axes]))
            if pins.cores is not None and pins.cores < working:
                raise PassError(
                    f"@{name} cannot obey its pinned schedule: deal=1 gives tiles to {working} cores, not to "
                    f"{pins.cores}"
                )
            return {a: (counts[a], 1) for a in axes}
        cores = min(available, pins.cores or self.plan.cores)
        pinned = {}
        for field, own, wanted in (
            ("split_m", self.m_axes, pins.split_m),
            ("split_n", self.n_axes, pins.split_n),
        ):
            if wanted is None:
                continue
            axis = max(own, key=lambda a: counts[a], default=None)
            tiles = counts[axis] if axis is not None else 1
            per_core = -(-tiles // wanted)
            if -(-tiles // per_core) != wanted:
                raise PassError(
                    f"@{name} cannot obey its pinned schedule: {field}={wanted} leaves cores without work, as the "
                    f"axis has {tiles} tiles"
                )
            if axis is not None:
                pinned[axis] = (wanted, per_core)
            cores //= wanted
        if cores < 1:
            raise PassError(
                f"@{name} cannot obey its pinned schedule: split_m={pins.split_m or 1} x split_n="
                f"{pins.split_n or 1} needs more than the {min(available, pins.cores or available)} cores there are"
            )
        free = [a for a in axes if a not in pinned]
        return {**pinned, **dict(zip(free, divide_grid([counts[a] for a in free], cores), strict=True))}

    def _emit_kernel(self, name: str, plan: CubeSchedule, element: Attribute) -> ops.KernelOp:
        inner_n = self.pins.inner == "n"
        outer = [*self.b_axes, *(self.m_axes if inner_n else self.n_axes)]
        outer += self.n_axes if inner_n else self.m_axes
        order = [*self.b_axes, *self.m_axes, *self.n_axes]
        counts = {a: -(-self.extents[a] // plan.l0[a]) for a in outer}
        split = self._split(name, order, counts)
        on_grid = [a for a in order if split[a][0] > 1]
        workspaces: list[GmType] = []
        if not self.plain and not self.machine.fused:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            workspaces.append(dense([self.extents[a] for a in kept] or [1], element))
        builder = KernelBuilder(
            self.machine,
            "cube" if self.plain else "mix",
            [split[a][0] for a in on_grid],
            [gm_of(a) for a in self.block.args],
            [gm_of(v) for v in self.yielded],
            workspaces,
            plan.slots,
        )
        builder.location = self.fusion.location
        start = {
            a: (Expr.of(builder.coordinates[on_grid.index(a)]) if a in on_grid else Expr())
            * (split[a][1] * plan.l0[a])
            for a in outer
        }
        loops = [(a, split[a][1]) for a in outer if split[a][1] > 1]
        with builder.section("fused" if self.machine.fused else "cube"), ExitStack() as stack:
            position = dict(start)
            whole = [all(load[a] >= self.extents[a] for a in self.k_axes) for load in (plan.lhs, plan.rhs)]
            loaded: list[SSAValue | None] = [None, None]
            for i, (axis, trips) in enumerate(loops):
                rest = {a for a, _ in loops[i:]}
                if whole[1] and loaded == [None, None] and rest <= set(self.m_axes):
                    loaded[1] = self._load_l1(builder, plan.rhs, position, self.operands[1])
                elif whole[0] and loaded == [None, None] and rest <= set(self.n_axes):
                    loaded[0] = self._load_l1(builder, plan.lhs, position, self.operands[0])
                index = stack.enter_context(builder.loop(trips))
                position[axis] = position[axis] + index * plan.l0[axis]
            self.acc = self._accumulate(builder, plan, position, loaded)
            if self.machine.fused:
                self._emit_epilogue(builder, plan, position, [], None)
            else:
                self._store_acc(builder, plan, position, element)
        if not self.plain and not self.machine.fused:
            per_cube = self.machine.vector_cores // self.machine.cube_cores
            axis = next((a for a in (*self.m_axes, *self.n_axes) if plan.l0[a] % per_cube == 0), None)
            units = per_cube if axis is not None else 1
            with builder.section("vector", units) as unit:
                part = (axis, unit, units) if axis is not None else None
                self._emit_epilogue(builder, plan, start, loops, part)
        return builder.finish(name)

    def _accumulate(
        self,
        b: KernelBuilder,
        plan: CubeSchedule,
        position: dict[int, Expr],
        loaded: Sequence[SSAValue | None],
    ) -> SSAValue:
        """The accumulator of one tile; `loaded` are lhs and rhs in l1 where they were loaded for several tiles.

        Where a load of one operand covers more steps than the other's, the shorter one has a loop inside it."""
        rows, cols = (size([plan.l0[a] for a in axes]) for axes in (self.m_axes, self.n_axes))
        acc = TileType.of([rows, cols], self.acc_type, "l0c")
        carried: list[SSAValue] = [b.add(ops.ZeroOp, [], [acc]).results[0]]
        position = dict(position)
        step = Expr()
        with ExitStack() as stack:
            stacks: list[tuple[list[SSAValue], list[SSAValue]]] = []

            def open_loop(trips: int) -> Expr:
                nonlocal carried, step
                if trips == 1:
                    return Expr()
                outside, carried = carried, list(carried)
                stacks.append((outside, carried))
                stack.callback(hand_back, outside, carried)
                index = stack.enter_context(b.loop(trips, carried))
                step = step + index
                return index

            long, short = plan.l1, plan.short
            extents = (plan.lhs, plan.rhs)
            for a in self.k_axes:
                index = open_loop(-(-self.extents[a] // long[a]))
                position[a] = index * long[a]
            tiles = list(loaded)
            inner: list[dict[int, Expr]] = [{}, {}]
            for now in (long, short):
                if now is short and short != long:
                    for a in self.k_axes:
                        index = open_loop(-(-long[a] // short[a]))
                        position[a] = position[a] + index * short[a]
                        for own, offsets in zip(extents, inner, strict=True):
                            offsets[a] = index * short[a] if own != short else Expr()
                for i, own in enumerate(extents):
                    if tiles[i] is None and own == now:
                        tiles[i] = self._load_l1(b, own, position, self.operands[i])
            for a in self.k_axes:
                index = open_loop(-(-short[a] // plan.l0[a]))
                for offsets in inner:
                    offsets[a] = offsets.get(a, Expr()) + index * plan.l0[a]
            k = size([plan.l0[a] for a in self.k_axes])
            a_tile, b_tile = tiles
            assert a_tile is not None and b_tile is not None
            lhs = self._move(b, plan, inner[0], self.operands[0], a_tile, "l0a", [rows, k])
            rhs = self._move(b, plan, inner[1], self.operands[1], b_tile, "l0b", [k, cols])
            indices, offsets = pack([step])
            carried[0] = b.add(ops.MmaOp, [lhs, rhs, carried[0], *indices], [acc], offsets=offsets).results[0]
            first = stacks[0][0] if stacks else carried
        return first[0]

    def _load_l1(
        self, b: KernelBuilder, extents: dict[int, int], position: dict[int, Expr], o: Operand
    ) -> SSAValue:
        view = b.view(b.gm(o.source), [d.extent for d in o.dims], [d.stride for d in o.dims], o.offset)
        offsets = []
        for d in o.dims:
            at = Expr(d.constant)
            for a, c in d.terms.items():
                at = at + position.get(a, Expr()) * c
            offsets.append(at)
        sizes = o.l1_sizes(extents)
        return b.load(view, offsets, sizes, TileType.of(sizes, o.element, "l1"), o.l1_steps())

    def _move(
        self,
        b: KernelBuilder,
        plan: CubeSchedule,
        inner: dict[int, Expr],
        o: Operand,
        tile: SSAValue,
        space: str,
        shape: list[int],
    ) -> SSAValue:
        offsets, sizes, steps, window, window_steps = [], [], [], [], []
        for d in o.dims:
            at, count, step, repeat, repeat_step = Expr(), 1, 1, 1, 1
            for a, c in d.terms.items():
                if len(d.terms) == 1:
                    at, count = inner.get(a, Expr()), plan.l0[a]
                elif self.role[a] == "b":
                    continue  # the load is at its place
                elif self.role[a] == "k" and o.transpose:  # beside a batch axis only: no window
                    at, count, step = inner.get(a, Expr()) * c, plan.l0[a], c
                elif self.role[a] == "k":
                    at, repeat, repeat_step = at + inner.get(a, Expr()) * c, plan.l0[a], c
                else:
                    count, step = plan.l0[a], c
            offsets.append(at)
            sizes.append(count)
            steps.append(step)
            window.append(repeat)
            window_steps.append(repeat_step)
        indices, rows = pack(offsets)
        windowed = any(w != 1 for w in window)
        return b.add(
            ops.MoveOp,
            [tile, *indices],
            [TileType.of(shape, o.element, space)],
            offsets=rows,
            sizes=ints(sizes),
            steps=ints(steps) if any(s != 1 for s in steps) else None,
            window=ints(window) if windowed else None,
            window_steps=ints(window_steps) if windowed else None,
            transpose=integer_attr(1) if o.transpose else None,
        ).results[0]

    def _store_acc(
        self, b: KernelBuilder, plan: CubeSchedule, position: dict[int, Expr], element: Attribute
    ) -> None:
        if self.plain:
            strides = self._out_strides(self.yielded[0])
            by_axis = {self.new_axis[a]: s for a, s in sorted(strides.items()) if a in self.new_axis}
            target = b.output(0)
        else:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            by_axis = dict(zip(kept, row_strides([self.extents[a] for a in kept]), strict=True))
            target = b.workspace(0)
        dims = [*self.b_axes, *self.m_axes, *self.n_axes]
        view = b.view(target, [self.extents[a] for a in dims] or [1], [by_axis[a] for a in dims] or [1])
        offsets = [position[a] for a in dims] or [Expr()]
        b.store(self.acc, view, offsets, [plan.l0[a] for a in dims] or [1])

    def _emit_epilogue(
        self,
        b: KernelBuilder,
        plan: CubeSchedule,
        position: dict[int, Expr],
        tile_loops: list[tuple[int, int]],
        unit: tuple[int, SSAValue, int] | None,
    ) -> None:
        """The vector steps over the tiles of `tile_loops` (axis, trips) and, inside each, the chunks that fit ub;
        `unit` = (axis that is split over the vector cores of a block, number of this one, how many)."""
        extent = {a: plan.l0[a] for a in range(len(self.extents)) if self.role[a] != "k"}
        position = {a: position.get(a, Expr()) for a in extent}
        self.chunk_position: dict[int, Expr] = {}
        if unit is not None:
            axis, number_of, units = unit
            extent[axis] //= units
            position[axis] = position[axis] + Expr.of(number_of) * extent[axis]
        capacity = int(self.machine.spaces["ub"].bytes * UB_FRACTION)

        def tile_of(chunk: dict[int, int]) -> list[int]:
            return [chunk.get(a, 1) for a in range(len(self.extents) - len(self.k_axes))]

        chunk = dict(extent)
        shrinkable = (
            [*self.m_axes, *self.n_axes] if not self.machine.fused else [*self.m_axes[:1], *self.n_axes]
        )
        for a in shrinkable:
            while self.ub_bytes(tile_of(chunk)) > capacity and chunk[a] > 1:
                chunk[a] = _smaller_divisor(extent[a], chunk[a])
        if self.ub_bytes(tile_of(chunk)) > capacity:
            raise PassError(
                f"{describe(self.fusion)}: one row of its epilogue does not fit ub of {self.machine.name}"
            )
        emitter = Emitter(b, tile_of(chunk), position)
        loops = [(a, trips, plan.l0[a], False) for a, trips in tile_loops]
        loops += [(a, extent[a] // chunk[a], chunk[a], True) for a in extent if extent[a] != chunk[a]]
        depth = {a: i + 1 for i, (a, *_) in enumerate(loops)}
        level = self._levels(depth)
        done: dict[Ref, SSAValue] = {}
        with ExitStack() as stack:
            for d in range(len(loops) + 1):
                if d:
                    axis, trips, stride, inside = loops[d - 1]
                    index = stack.enter_context(b.loop(trips))
                    if inside:
                        self.chunk_position[axis] = index * stride
                    emitter.position[axis] = emitter.position[axis] + index * stride
                self._emit_level(emitter, level, d, done)


def _smaller_divisor(extent: int, current: int) -> int:
    return next(d for d in range(current - 1, 0, -1) if extent % d == 0)


OBEYED = CUBE_FIELDS | {"ub", "inner", "cores"}


def lower_contract(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """The kernel of a cube or mix fusion. Raises PassError where it cannot fit, or cannot obey its pins."""
    return ContractKernel(fusion, machine, schedule_for(pins, name, OBEYED)).build(name)
