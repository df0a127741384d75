"""The ways a program is made smaller. An edit lists its places in a module, and changes a clone at some of them.

A place is the number of an op in the order of `module.walk()`, with what else the edit needs to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from xdsl.dialects import scf
from xdsl.dialects.arith import ConstantOp as IndexConstantOp
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    TensorType,
    f64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from ..backends.functions.loops import bounds
from ..dialects import tile
from ..dialects.base import INDEX, ints, text, to_ints
from ..dialects.dtypes import shape_in
from ..dialects.graph import ConstantOp, DataAttr, FusionOp, YieldOp
from ..dialects.npu import structure as npu
from ..dialects.npu.places import addresses_of, set_addresses
from ..dialects.tile import TileType

Place = tuple[int, Any]

KERNELS = (npu.KernelOp, tile.KernelOp)


class Edit(Protocol):
    """One way to make a module smaller."""

    def sites(self, module: ModuleOp) -> list[Place]:
        """Where it could be applied."""
        ...

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        """Changes the module at these places; False where nothing could be changed."""
        ...


def _numbered(module: ModuleOp) -> list[Operation]:
    return list(module.walk())


def _inside_main(op: Operation) -> bool:
    parent = op.parent_op()
    return isinstance(parent, FuncOp) and text(parent.sym_name) == "main"


class OpsBecomeInputs:
    """Ops of a graph or tile program are left out: what they made becomes an argument of @main."""

    def sites(self, module: ModuleOp) -> list[Place]:
        return [
            (i, None)
            for i, op in enumerate(_numbered(module))
            if _inside_main(op)
            and op.results
            and not isinstance(op, ConstantOp)
            and all(isinstance(r.type, TensorType) for r in op.results)
        ]

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        block = None
        for i, _ in reversed(sites):
            op, block = ops[i], ops[i].parent
            assert block is not None
            for r in op.results:
                if r.uses:
                    arg = block.insert_arg(r.type, len(block.args))
                    arg.name_hint = r.name_hint
                    r.replace_all_uses_with(arg)
            op.detach()
            op.erase()
        return block is not None


class OpsBecomeOperands:
    """Users of an op see something of the same type that was there before it: an operand, or an earlier value."""

    def sites(self, module: ModuleOp) -> list[Place]:
        found: list[Place] = []
        for i, op in enumerate(_numbered(module)):
            if len(op.results) == 1 and op.results[0].uses and not isinstance(op, ConstantOp):
                found += [(i, j) for j in range(len(_substitutes(op)))]
        return found

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        done: set[int] = set()
        for i, j in sites:
            if i in done:
                continue
            done.add(i)
            _replace(ops[i].results[0], _substitutes(ops[i])[j])
        return bool(done)


def _replace(value: SSAValue, other: SSAValue) -> None:
    for use in list(value.uses):
        use.operation.operands[use.index] = other


def _substitutes(op: Operation) -> list[SSAValue]:
    kind = op.results[0].type
    if kind == INDEX:
        return []
    found = [v for v in op.operands if v.type == kind]
    if not found:
        block = op.parent
        earlier: list[SSAValue] = [a for a in block.args if a.type == kind] if block is not None else []
        at = op.prev_op
        while at is not None and not found and not earlier:
            earlier += [r for r in at.results if r.type == kind]
            at = at.prev_op
        found = earlier[:1]
    return list(dict.fromkeys(found))


class TilesBecomeConstants:
    """A tile is filled with zeros instead of computed."""

    def sites(self, module: ModuleOp) -> list[Place]:
        return [
            (i, None)
            for i, op in enumerate(_numbered(module))
            if len(op.results) == 1
            and isinstance(kind := op.results[0].type, TileType)
            and kind.space == "ub"
            and not isinstance(op, tile.FillOp)
            and op.results[0].uses
        ]

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        for i, _ in sites:
            op = ops[i]
            fill = tile.FillOp.create(
                result_types=[op.results[0].type],
                properties={"value": FloatAttr(0.0, f64)},
                location=op.location,
            )
            assert op.parent is not None
            op.parent.insert_op_before(fill, op)
            op.results[0].replace_all_uses_with(fill.result)
        return True


class EffectsVanish:
    """Ops without results go: stores, launches, copies, flags, whole sections and loops."""

    def sites(self, module: ModuleOp) -> list[Place]:
        keep = (FuncOp, ModuleOp, *KERNELS)
        return [
            (i, None)
            for i, op in enumerate(_numbered(module))
            if not op.results and not isinstance(op, keep) and not op.has_trait(IsTerminator)
        ]

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        for i, _ in reversed(sites):
            ops[i].detach()
            ops[i].erase()
        return True


class OutputsVanish:
    """Results of @main, and of fusions, are left out."""

    def sites(self, module: ModuleOp) -> list[Place]:
        found: list[Place] = []
        for i, op in enumerate(_numbered(module)):
            if isinstance(op, ReturnOp) and _inside_main(op) and len(op.operands) > 1:
                found += [(i, j) for j in range(len(op.operands))]
            if isinstance(op, FusionOp) and len(op.results) > 1:
                found += [(i, j) for j, r in enumerate(op.results) if not r.uses]
        return found

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        for i in dict.fromkeys(i for i, _ in sites):
            op, drop = ops[i], {j for k, j in sites if k == i}
            kept = [j for j in range(len(op.results or op.operands)) if j not in drop]
            if not kept:
                return False
            if isinstance(op, ReturnOp):
                op.operands = [op.operands[j] for j in kept]
                func = op.parent_op()
                assert isinstance(func, FuncOp)
                func.res_attrs = None  # the sizes of results, which change nothing that is computed
            else:
                _keep_results(op, kept)
        return True


def _keep_results(op: Operation, kept: Sequence[int]) -> None:
    assert isinstance(op, FusionOp)
    end = op.body.block.last_op
    assert isinstance(end, YieldOp) and op.parent is not None
    end.operands = [end.operands[j] for j in kept]
    body = op.detach_region(0)
    new = FusionOp.create(
        operands=list(op.operands),
        result_types=[op.results[j].type for j in kept],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
        regions=[body],
        location=op.location,
    )
    op.parent.insert_op_before(new, op)
    for j, r in zip(kept, new.results, strict=True):
        r.name_hint = op.results[j].name_hint
        op.results[j].replace_all_uses_with(r)
    op.detach()
    op.erase()


class LoopsRunOnce:
    """Loops of kernels run once, or half as often."""

    def sites(self, module: ModuleOp) -> list[Place]:
        found: list[Place] = []
        for i, op in enumerate(_numbered(module)):
            if isinstance(op, scf.ForOp) and isinstance(op.ub.owner, IndexConstantOp):
                trips = bounds(op)[2]
                found += [(i, n) for n in dict.fromkeys((1, trips // 2)) if 0 < n < trips]
        return found

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        for i, trips in sites:
            loop = ops[i]
            assert isinstance(loop, scf.ForOp) and loop.parent is not None
            first, step, _ = bounds(loop)
            limit = IndexConstantOp(IntegerAttr(first + trips * step, INDEX))
            loop.parent.insert_op_before(limit, loop)
            loop.operands[1] = limit.result
        return True


class GridsShrink:
    """Kernels run on one core along an axis, or on half as many."""

    def sites(self, module: ModuleOp) -> list[Place]:
        found: list[Place] = []
        for i, op in enumerate(_numbered(module)):
            if isinstance(op, KERNELS):
                for a, n in enumerate(to_ints(op.grid)):
                    found += [(i, (a, m)) for m in dict.fromkeys((1, n // 2)) if 0 < m < n]
        return found

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        ops = _numbered(module)
        for i, (axis, n) in sites:
            kernel = ops[i]
            assert isinstance(kernel, KERNELS)
            grid = list(to_ints(kernel.grid))
            grid[axis] = n
            kernel.grid = ints(grid)
        return True


class SizesShrink:
    """One size of a graph's tensors becomes smaller everywhere, where the ops' shapes still fit together."""

    def sites(self, module: ModuleOp) -> list[Place]:
        if any(isinstance(op, KERNELS) for op in module.ops):
            return []
        sizes: dict[int, None] = {}
        for op in module.walk():
            for v in (*op.operands, *op.results):
                if isinstance(v.type, TensorType):
                    sizes |= dict.fromkeys(shape_in(v.type))
        found: list[Place] = []
        for n in sorted(sizes, reverse=True):
            found += [(n, m) for m in dict.fromkeys((1, 2, 3, n // 8, n // 2, n - 1)) if 0 < m < n]
        return found

    def apply(self, module: ModuleOp, sites: Sequence[Place]) -> bool:
        if len(sites) != 1:
            return False  # which of several new sizes it is cannot be both
        ((old, new),) = sites
        for op in module.walk():
            for region in op.regions:
                for block in region.blocks:
                    for arg in block.args:
                        _retype(arg, old, new)
            for r in op.results:
                _retype(r, old, new)
            for name in ("limits", "sizes", "slice_sizes", "domain"):
                attr = op.properties.get(name)
                if isinstance(attr, DenseArrayBase):
                    op.properties[name] = ints([new if n == old else n for n in to_ints(attr)])
            if isinstance(op, ConstantOp):
                array = op.value.data.array()
                cut = array[tuple(slice(new) if n == old else slice(None) for n in array.shape)]
                op.properties["value"] = DataAttr.of(np.ascontiguousarray(cut))
        return True


def _retype(value: SSAValue, old: int, new: int) -> None:
    kind = value.type
    if isinstance(kind, TensorType) and old in shape_in(kind):
        shape = [new if n == old else n for n in shape_in(kind)]
        value._type = TensorType(kind.element_type, shape)  # pyright: ignore[reportAttributeAccessIssue]  # in place: xDSL only replaces values


EDITS: tuple[Edit, ...] = (
    OpsBecomeInputs(),
    OutputsVanish(),
    EffectsVanish(),
    OpsBecomeOperands(),
    TilesBecomeConstants(),
    LoopsRunOnce(),
    GridsShrink(),
    SizesShrink(),
)
"""In the order they are tried: what removes most comes first."""


# -- what no candidate keeps ---------------------------------------------------------------------------------


def tidy(module: ModuleOp) -> None:
    """Drops what nothing uses: pure ops, arguments of @main and of fusions, kernels; and writes @main's type."""
    for op in reversed(list(module.walk())):
        if op.results and is_trivially_dead(op):
            op.detach()
            op.erase()
    for op in list(module.walk()):
        if isinstance(op, FusionOp):
            _drop_inputs(op)
    called = {
        op.callee.root_reference.data for op in module.walk() if isinstance(op, npu.LaunchOp | tile.LaunchOp)
    }
    for op in list(module.ops):
        if isinstance(op, KERNELS) and text(op.sym_name) not in called:
            op.detach()
            op.erase()
    for op in module.ops:
        if isinstance(op, FuncOp) and op.body.blocks:
            _tidy_function(op)


def _drop_inputs(fusion: FusionOp) -> None:
    block = fusion.body.block
    kept = [i for i, a in enumerate(block.args) if a.uses]
    for i in reversed([i for i in range(len(block.args)) if i not in kept]):
        block.erase_arg(block.args[i])
    fusion.operands = [fusion.operands[i] for i in kept]


def _tidy_function(func: FuncOp) -> None:
    block: Block = func.body.block
    addresses = addresses_of(func)
    places = list(addresses or ())
    donations = list(func.arg_attrs or ())
    donations += [DictionaryAttr({})] * (len(block.args) - len(donations))  # an edit may have added some
    for i in reversed(range(len(block.args))):
        if not block.args[i].uses:
            block.erase_arg(block.args[i])
            if places:
                del places[i]
            if donations:
                del donations[i]
    if func.arg_attrs is not None:
        func.arg_attrs = ArrayAttr(donations)
    if addresses is not None:
        set_addresses(func, places)
    end = block.last_op
    if isinstance(end, ReturnOp):
        func.function_type = _function_type(block.args, end.operands)


def _function_type(inputs: Iterable[SSAValue], outputs: Iterable[SSAValue]) -> FunctionType:
    given: list[Attribute] = [v.type for v in inputs]
    return FunctionType.from_lists(given, [v.type for v in outputs])


__all__ = ["EDITS", "Edit", "tidy"]
