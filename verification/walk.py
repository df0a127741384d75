"""Runs a graph- or tile-level module op by op, and holds each value against a golden one on the way.

Values have tags (`tags.py`) that passes carry along. Where a module has a value under a tag that an earlier run
recorded, the two are compared and the golden one goes on: so each op is judged on golden inputs, and one wrong op
makes one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..backends.functions.host import run_text
from ..backends.functions.values import on_device
from ..backends.interpreter.graph import called, main_of
from ..dialects import tile
from ..dialects.base import describe, integer, text, to_ints
from ..dialects.dtypes import numpy_dtype, shape_in
from ..dialects.graph import control
from ..support.hints import parts_of_hint
from .bounds import EXACT, Bound, both, distance, host_errors, or_zeros
from .compare import SAME, Difference, compare, same_bits
from .functions import OpFunctions
from .kernels import run_tile_kernel
from .structure import Cache
from .tolerance import roundoff, smallest
from .trace import Key, Late, LaunchRun, Pair, Path, Trace, ValueOrigin, WrongValue

Env = dict[SSAValue, Pair]


@dataclass
class Settings:
    """How to walk. likely: compute the bounds of a whole program on the way; golden: the run to compare with;
    once: a kernel that gave the right values once is not run again, whatever the values; record: keep values for
    the next level; changes_numerics: values may be of narrower types than the golden ones, and are off by what that
    rounds; noise: what moves the result of each op at random by as much as its own rounding may."""

    likely: bool = False
    golden: Trace | None = None
    once: bool = False
    record: bool = True
    changes_numerics: bool = False
    noise: np.random.Generator | None = None


class GraphWalk:
    """One run of a module."""

    def __init__(self, module: ModuleOp, cache: Cache, settings: Settings):
        self.module, self.cache, self.settings = module, cache, settings
        self.functions = OpFunctions(cache)
        self.trace = Trace()
        self.kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, tile.KernelOp)}
        self.visible = {v.name_hint or "" for v in outside_fusions(module)}
        """Tags of the values that are compared."""
        self.visible |= {parts[0] for tag in self.visible if (parts := parts_of_hint(tag)) is not None}
        self.judged: set[Any] = set()
        """Kernels that gave the right values once."""
        self.golden_bounds: dict[tuple[Key, frozenset[str]], Late] = {}

    def run(self, inputs: Sequence[Any]) -> Trace:
        """Runs @main on flat arrays."""
        block = main_of(self.module).body.block
        with jax.enable_x64(True):
            env: Env = {a: (on_device(x), None) for a, x in zip(block.args, inputs, strict=True)}
            self._record_arguments(block, env, ())
            ends = self.block(block, env, ())
            self.trace.results = [x for x, _ in ends]
            self.trace.result_bounds = [None if e is None else e() for _, e in ends]
            golden, last = self.settings.golden, block.last_op
            if golden is not None and last is not None:
                # the values were judged where they were made: here only which ones are returned
                for i, ((x, e), want) in enumerate(zip(ends, golden.results, strict=False)):
                    self.trace.judge(WrongValue(last, i, (), self._compare(x, want, e, None)), x.size)
        return self.trace

    # -- blocks and ops ------------------------------------------------------------------------------------

    def block(self, block: Block, env: Env, path: Path) -> list[Pair]:
        for op in block.ops:
            if isinstance(op, (control.YieldOp, func.ReturnOp)):
                return [env[v] for v in op.operands]
            if self._proven(op, env, path):
                continue
            before = len(self.trace.launches)
            results = self.op(op, env, path)
            number = before if isinstance(op, tile.LaunchOp) else None
            operands = (
                []
                if op.regions and not isinstance(op, control.FusionOp)
                else [env[v][0] for v in op.operands]
            )
            for i, (value, pair) in enumerate(zip(op.results, results, strict=True)):
                env[value], replaced = self._settle(op, i, value, pair, path, number)
                self.trace.replaced |= replaced
                if self.settings.record:
                    self._record(op, i, value, env[value][0], operands, path, pair[0] if replaced else None)
            if number is not None:
                launch, own = self.trace.launches[number], [x for x, _ in results]
                launch.outputs, launch.own = [env[v][0] for v in op.results], lambda own=own: own
        return []

    def _record_arguments(self, block: Block, env: Env, path: Path) -> None:
        if self.settings.record:
            for arg in block.args:
                self.trace.values[path, arg.name_hint or ""] = env[arg][0]

    def _record(
        self,
        op: Operation,
        i: int,
        value: SSAValue,
        x: Array,
        operands: list[Array],
        path: Path,
        own: Array | None = None,
    ) -> None:
        key = (path, value.name_hint or "")
        self.trace.values[key] = x
        if not isinstance(op, (control.WhileOp, control.CaseOp, func.CallOp)):
            self.trace.made[key] = ValueOrigin(op, i, operands, [v.name_hint or "" for v in op.operands], own)

    def _settle(
        self, op: Operation, i: int, value: SSAValue, pair: Pair, path: Path, number: int | None
    ) -> tuple[Pair, bool]:
        """Compares a result with the golden one; gives what goes on, and whether it has other bits than the result."""
        golden, key = self.settings.golden, (path, value.name_hint or "")
        if golden is None:
            return pair, False
        between = frozenset[str]()
        if key not in golden.values and (parts := parts_of_hint(value.name_hint)) is not None:
            key = path, parts[0]
            between = golden.made_of(path, parts[1]) - {parts[0]}
        if key not in golden.values:
            return pair, False
        (x, e), want = pair, golden.values[key]
        if self.settings.changes_numerics and _is_narrower(x, want):
            return self._settle_narrow(op, i, pair, want, path), True
        if want.shape != x.shape or want.dtype != x.dtype:
            return pair, False
        # an op of several results may make one from another, which is its own and not yet the golden one
        unsettled = (
            frozenset(r.name_hint or "" for r in op.results) if len(op.results) > 1 else frozenset[str]()
        )
        same = same_bits(x, want)
        difference = SAME if same else self._compare(x, want, e, self._golden_bound(key, unsettled | between))
        self.trace.judge(WrongValue(op, i, path, difference, number), x.size)
        if number is not None and difference.ratio <= 1:
            assert isinstance(op, tile.LaunchOp)
            self.judged.add((op.callee, op.inits))
        return (want, None), not same

    def _settle_narrow(self, op: Operation, i: int, pair: Pair, want: Array, path: Path) -> Pair:
        """Compares a result with a golden one of a wider type; the golden one goes on, rounded, and off by that."""
        x, e = pair
        rounded = want.astype(x.dtype)
        off = Late(lambda: _apart(rounded.astype(want.dtype), want))
        theirs = self._golden_bound((path, op.results[i].name_hint or ""), frozenset())
        difference = self._compare(x.astype(want.dtype), want, e, theirs)
        self.trace.judge(WrongValue(op, i, path, difference), x.size)
        return rounded, off

    def _compare(self, x: Any, want: Any, mine: Late | None, golden: Late | None) -> Difference:
        """Both sides may be off, each by its own bound. A level without bounds rounds as the golden one; so does a
        side that rounds to a narrower type than the golden one, which no pass may do."""
        if same_bits(x, want):
            return SAME
        theirs = None if golden is None else golden()
        coarser = golden is not None and (mine is None or mine.coarsest > golden.coarsest)
        if coarser and not self.settings.changes_numerics:
            return compare(x, want, None if theirs is None else 2 * theirs)
        own = None if mine is None else mine()
        return compare(x, want, both(own, theirs, "worst"))

    def _golden_bound(self, key: Key, unsettled: frozenset[str]) -> Late:
        """The bound of a golden value, from where this module has golden values on; `unsettled` are not there yet."""
        known = self.golden_bounds.get((key, unsettled))
        if known is None:
            known = self.golden_bounds[key, unsettled] = self._new_golden_bound(key, unsettled)
        return known

    def _new_golden_bound(self, key: Key, unsettled: frozenset[str]) -> Late:
        golden = self.settings.golden
        assert golden is not None
        made = golden.made.get(key)
        if made is None or isinstance(made.op, (tile.LaunchOp, control.HostOp)):
            return Late(lambda: None)
        behind = []
        for tag in made.tags:
            inner = (key[0], tag)
            known = (tag in self.visible and tag not in unsettled) or inner not in golden.made
            behind.append(None if known else self._golden_bound(inner, unsettled))

        def make() -> Bound:
            es = [None if b is None else b() for b in behind]
            apart = None if made.own is None else distance(made.own, golden.values[key])
            return both(self.functions.bounds(made.op, made.operands, es, "worst")[made.index], apart, "worst")

        return Late(make, max([coarsest(made.op), *(b.coarsest for b in behind if b is not None)]))

    # -- what needs no run ---------------------------------------------------------------------------------

    def _proven(self, op: Operation, env: Env, path: Path) -> bool:
        """Whether the golden run had this op on these operands: then its results are the golden ones."""
        golden = self.settings.golden
        if golden is None or not op.results:
            return False
        if isinstance(op, (control.WhileOp, control.CaseOp, control.HostOp, func.CallOp)):
            return False
        keys = [(path, r.name_hint or "") for r in op.results]
        if any(k not in golden.values for k in keys):
            return False
        operands = [env[v] for v in op.operands]
        if any(e is not None for _, e in operands):
            return False
        xs = [x for x, _ in operands]
        if isinstance(op, tile.LaunchOp):
            known = self.settings.once and (op.callee, op.inits) in self.judged
            if not known or not self._same_operands(golden, keys[0], xs):
                return False
            self._note_launch(op, xs, path)
            self.trace.launches[-1].outputs = [golden.values[k] for k in keys]
        elif isinstance(op, control.FusionOp):
            if not (self._same_op(op, golden, keys, xs) or self._proven_body(op, golden, xs, path)):
                return False
        elif not self._same_op(op, golden, keys, xs):
            return False
        for i, (value, key) in enumerate(zip(op.results, keys, strict=True)):
            env[value] = (golden.values[key], None)
            if self.settings.record:
                made = golden.made.get(key)
                self._record(op, i, value, golden.values[key], xs, path, None if made is None else made.own)
        self.trace.proven += 1
        self.trace.numbers += sum(golden.values[k].size for k in keys)
        return True

    def _same_op(self, op: Operation, golden: Trace, keys: Sequence[Key], xs: Sequence[Array]) -> bool:
        for i, key in enumerate(keys):
            made = golden.made.get(key)
            if made is None or made.index != i or self.functions.structure(made.op) != self.functions.structure(op):
                return False
        return self._same_operands(golden, keys[0], xs)

    def _same_operands(self, golden: Trace, key: Key, xs: Sequence[Array]) -> bool:
        made = golden.made.get(key)
        return (
            made is not None
            and len(made.operands) == len(xs)
            and all(same_bits(a, b) for a, b in zip(made.operands, xs, strict=True))
        )

    def _proven_body(self, op: control.FusionOp, golden: Trace, xs: Sequence[Array], path: Path) -> bool:
        """Whether each op of a fusion is one of the golden run, on the same operands."""
        inner: dict[SSAValue, Array] = dict(zip(op.body.block.args, xs, strict=True))
        for body_op in op.body.block.ops:
            if isinstance(body_op, control.YieldOp):
                wanted = [golden.values[path, r.name_hint or ""] for r in op.results]
                return all(same_bits(inner[v], w) for v, w in zip(body_op.values, wanted, strict=True))
            keys = [(path, r.name_hint or "") for r in body_op.results]
            if any(k not in golden.values for k in keys):
                return False
            if any(golden.made[k].own is not None for k in keys if k in golden.made):
                return False  # the fusion gives another value than what went on
            if not self._same_op(body_op, golden, keys, [inner[v] for v in body_op.operands]):
                return False
            inner.update(zip(body_op.results, (golden.values[k] for k in keys), strict=True))
        return False

    # -- ops -----------------------------------------------------------------------------------------------

    def op(self, op: Operation, env: Env, path: Path) -> list[Pair]:
        if isinstance(op, control.WhileOp):
            return self._while(op, env, path)
        if isinstance(op, control.CaseOp):
            return self._case(op, env, path)
        if isinstance(op, func.CallOp):
            body, place = (
                called(op).body.block,
                (*path, (op.results[0].name_hint or "" if op.results else "", 0)),
            )
            inner: Env = dict(zip(body.args, (env[v] for v in op.operands), strict=True))
            self._record_arguments(body, inner, place)
            return self.block(body, inner, place)
        xs, es = [env[v][0] for v in op.operands], [env[v][1] for v in op.operands]
        if isinstance(op, control.HostOp):
            return self._host(op, xs, es)
        if isinstance(op, tile.LaunchOp):
            return [(x, None) for x in self._launch(op, xs, path)]
        return self._compiled(op, xs, es)

    def _compiled(self, op: Operation, xs: Sequence[Array], es: Sequence[Late | None]) -> list[Pair]:
        """A graph op as a compiled function; its bounds are computed where they are asked for, those of a whole program
        by the same function."""
        if self.settings.noise is not None and not isinstance(op, EXACT):
            return [(x, None) for x in self._moved(*self.functions.likely(op, xs, [None] * len(xs)))]
        if self.settings.likely:
            known = [None if e is None else e() for e in es]
            if not (isinstance(op, EXACT) and all(e is None for e in known)):
                ys, found = self.functions.likely(op, xs, known)
                return [(y, Late(lambda b=b: b)) for y, b in zip(ys, found, strict=True)]
        ys = self.functions.values(op, xs)
        if self.settings.likely:
            return [(y, None) for y in ys]
        if self.settings.golden is None:
            return [(y, None) for y in ys]
        grain = max([coarsest(op), *(e.coarsest for e in es if e is not None)])

        def bound(i: int) -> Bound:
            return self.functions.bounds(op, xs, [None if e is None else e() for e in es], "worst")[i]

        return [(y, Late(lambda i=i: bound(i), grain)) for i, y in enumerate(ys)]

    def _moved(self, ys: Sequence[Array], es: Sequence[Bound]) -> list[Array]:
        """Values, each moved by a random number of standard deviations `es`."""
        noise = self.settings.noise
        assert noise is not None
        return [
            y if e is None else on_device(moved(np.asarray(y), np.asarray(e), noise))
            for y, e in zip(ys, es, strict=True)
        ]

    def _note_launch(self, op: tile.LaunchOp, xs: Sequence[Array], path: Path) -> None:
        inits = to_ints(op.inits)
        inputs = [xs[i] for i in op.input_numbers()]
        starts = {o: xs[i] for o, i in enumerate(inits) if i >= 0}
        name = op.callee.root_reference.data
        self.trace.launches.append(
            LaunchRun(op, name, path, inputs, starts, [], lambda: self._run_kernel(op, xs))
        )

    def _run_kernel(self, op: tile.LaunchOp, xs: Sequence[Array]) -> list[Array]:
        kernel = self.kernels[op.callee.root_reference.data]
        shapes = [_shape(v) for v in op.results]
        made = run_tile_kernel(self.cache, self.functions.structure(kernel), kernel, xs, to_ints(op.inits), shapes)
        return [on_device(x, own=True) for x in made]

    def _launch(self, op: tile.LaunchOp, xs: Sequence[Array], path: Path) -> list[Array]:
        name = op.callee.root_reference.data
        if name not in self.kernels:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        self._note_launch(op, xs, path)
        return self._run_kernel(op, xs)

    def _tag(self, op: control.WhileOp) -> str:
        """What a loop is called in paths: a pass may drop some of its results, the name stays."""
        names = [v.name_hint or "" for v in op.results]
        loops = {} if self.settings.golden is None else self.settings.golden.loops
        tag = next((loops[n] for n in names if n in loops), names[0] if names else "")
        self.trace.loops.update(dict.fromkeys(names, tag))
        return tag

    def _while(self, op: control.WhileOp, env: Env, path: Path) -> list[Pair]:
        state = [env[v] for v in op.inits]
        known = None if op.trip_count is None else integer(op.trip_count)
        tag = self._tag(op)
        trip = 0
        while True:
            inside = (*path, (tag, trip))
            if known is None:
                inner = {**env, **dict(zip(op.condition.block.args, state, strict=True))}
                (answer, _), *_ = self.block(op.condition.block, inner, (*path, (f"{tag}?", trip)))
                go_on = bool(answer.reshape(()))
            else:
                go_on = trip < known
            if not go_on:
                return state
            inner = {**env, **dict(zip(op.body.block.args, state, strict=True))}
            self._record_arguments(op.body.block, inner, inside)
            state = self.block(op.body.block, inner, inside)
            trip += 1

    def _case(self, op: control.CaseOp, env: Env, path: Path) -> list[Pair]:
        index, last = int(env[op.index][0].reshape(())), len(op.branches) - 1
        number = index if 0 <= index <= last else last
        return self.block(op.branches[number].block, dict(env), path)

    def _host(self, op: control.HostOp, xs: Sequence[Array], es: Sequence[Late | None]) -> list[Pair]:
        ys = run_text(text(op.module), xs)
        if not self.settings.likely and self.settings.noise is None:
            return [(y, None) for y in ys]
        found = host_errors(text(op.op), xs, ys, lambda xs: run_text(text(op.module), xs))
        if self.settings.noise is not None:
            return [(x, None) for x in self._moved(ys, found)]
        known = [None if e is None else e() for e in es]
        if any(e is not None for e in known):
            moved = self._measured(op, xs, known, ys)
            found = [both(own, e, "likely") for own, e in zip(found, moved, strict=True)]
        return [(y, Late(lambda b=b: b)) for y, b in zip(ys, found, strict=True)]

    def _measured(
        self, op: control.HostOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array]
    ) -> list[Bound]:
        """Bounds of an op nothing is known about: twice the largest change when its inputs move by theirs."""
        moved = []
        for x, e in zip(xs, es, strict=True):
            step = jax.numpy.asarray(or_zeros(e, x))
            step = step.reshape(-1).at[::2].multiply(-1).reshape(step.shape)
            step = jax.numpy.where(jax.numpy.isfinite(step), step, 0)
            moved.append(x if x.dtype.kind in "biu" else (x + step).astype(x.dtype))
        found: list[Bound] = []
        for y, z in zip(ys, run_text(text(op.module), moved), strict=True):
            apart = distance(y, z)
            found.append(jax.numpy.full(y.shape, 2 * jax.numpy.max(apart, initial=0), apart.dtype))
        return found


def outside_fusions(module: ModuleOp) -> Iterator[SSAValue]:
    """Values of functions and of control flow in them, not those inside fusions and kernels."""
    pending: list[Operation] = [op for op in module.ops if isinstance(op, func.FuncOp)]
    while pending:
        op = pending.pop()
        yield from op.results
        if not isinstance(op, control.FusionOp):
            for region in op.regions:
                for block in region.blocks:
                    yield from block.args
                    pending += block.ops


def moved(y: np.ndarray, deviation: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    """y, of which each number is moved at random: floats by a normal number of standard deviations, whole numbers to
    either side where they may be. What is 0 for sure, and what is not finite, stays."""
    dtype = np.dtype(y.dtype)
    if dtype == np.bool_:
        return y
    kind = np.complex128 if dtype.kind == "c" else np.float64
    value, size = y.astype(kind), np.broadcast_to(deviation, y.shape).astype(np.float64)
    size = np.where(np.isfinite(size) & ~((value == 0) & (size <= smallest(dtype))), size, 0)
    step = size * noise.standard_normal(y.shape)
    if dtype.kind == "c":
        step = step + 1j * (size * noise.standard_normal(y.shape))
    with np.errstate(all="ignore"):
        return np.where((size == 0) | ~np.isfinite(value), y, (value + step).astype(dtype))


def coarsest(op: Operation) -> float:
    """The largest unit roundoff of the types that an op, or an op inside it, gives."""
    found = 0.0
    for inner in op.walk():
        for v in inner.results:
            if isinstance(v.type, TensorType):
                found = max(found, roundoff(numpy_dtype(v.type.element_type)))
    return found


def _is_narrower(x: Array, want: Array) -> bool:
    """Whether x is of a float type that rounds more than that of a golden value of the same shape."""
    coarse, fine = roundoff(np.dtype(x.dtype)), roundoff(np.dtype(want.dtype))
    return x.shape == want.shape and coarse > fine > 0


def _apart(x: Array, y: Array) -> Array:
    """How far two arrays are apart, itself rounded up."""
    gap = distance(x, y)
    wider = gap * (1 + 4 * roundoff(np.dtype(gap.dtype))) + smallest(np.dtype(gap.dtype))
    return jax.numpy.where(x == y, 0, wider)


def _shape(value: SSAValue) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return shape_in(value.type)
