"""The kernel of an HIVM module: its functions, what its arguments are, and what each core does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, AnyFloat, IntegerAttr, IntegerType, MemRefType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from ...dialects.base import text
from ...dialects.hivm.attributes import Enumeration, SymbolParameter
from ...machine import Machine
from ..errors import FrontendError
from . import cube, instructions, vectors  # noqa: F401  # the latter two add their rules
from .groups import alike
from .launching import GRID_RANK, LaunchTerms
from .numbers import Number
from .places import Memref, row_major
from .steps import CorePart, CoreStep, Scratch, Value, memref_of, refused
from .walk import MOST_HELD, BlockPlace, BlockWalk

HIDDEN = ("ffts_base_address", "sync_block_lock", "workspace", "tiling_key", "tiling_struct")
"""Arguments that the vendor's runtime gives."""


def _named(op: FuncOp, key: str) -> str | None:
    found = op.attributes.get(key)
    return found.data if isinstance(found, Enumeration) else None


@dataclass(frozen=True)
class KernelArgument:
    """An argument of a kernel: its name, type, and what the runtime gives it for, None for what the caller gives."""

    name: str
    kind: Attribute
    hidden: str | None

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor that the caller gives."""
        return isinstance(self.kind, MemRefType) and not self.hidden


@dataclass(frozen=True)
class KernelFunctions:
    """The functions of a module that are launched together, each with its kind of core, and their arguments."""

    functions: Sequence[tuple[FuncOp, str]]
    arguments: Sequence[KernelArgument]

    @property
    def func(self) -> FuncOp:
        """The first of its functions."""
        return self.functions[0][0]

    @property
    def kind(self) -> str:
        """cube, vector or mix."""
        return "mix" if len(self.functions) > 1 else self.functions[0][1]

    @property
    def triton(self) -> bool:
        """Whether its last three arguments are the grid, as those of Triton's kernels are."""
        last = [a.kind for a in self.arguments[-GRID_RANK:]]
        hidden = any(a.hidden == "sync_block_lock" for a in self.arguments)
        return hidden and len(last) == GRID_RANK and all(k == IntegerType(32) for k in last)

    @property
    def numbers(self) -> Sequence[KernelArgument]:
        """The arguments that are numbers which the caller gives."""
        shown = self.arguments[:-GRID_RANK] if self.triton else self.arguments
        return [a for a in shown if not a.hidden and isinstance(a.kind, IntegerType | AnyFloat)]


CORES = {"AIC": "cube", "AIV": "vector"}


def kernel_of(module: ModuleOp) -> KernelFunctions:
    """The kernel of a module: one function, or one for cube and one for vector cores. Raises FrontendError."""
    found = [
        op
        for op in module.walk()
        if isinstance(op, FuncOp) and "hacc.entry" in op.attributes and op.body.blocks
    ]
    found = [f for f in found if _named(f, "hacc.function_kind") != "HOST"]
    if not found:
        raise FrontendError("the module has no kernel: no func.func with hacc.entry")
    functions = []
    for func in found:
        core = CORES.get(_named(func, "hivm.func_core_type") or "")
        if core is None:
            raise refused(func, "is for no one kind of core: hivm.func_core_type is AIC or AIV")
        functions.append((func, core))
    functions.sort(key=lambda f: f[1])
    if len(functions) > 1 and [c for _, c in functions] != ["cube", "vector"]:
        names = " and ".join(f"@{text(f.sym_name)}" for f in found)
        raise refused(found[1], f"is a second kernel, beside others: {names}")
    func = functions[0][0]
    if any(f.function_type != func.function_type for f, _ in functions):
        raise refused(functions[1][0], "takes other arguments than the function for cube cores")
    attributes = [a.data for a in func.arg_attrs] if func.arg_attrs is not None else []
    arguments = []
    for i, arg in enumerate(func.body.blocks[0].args):
        kind = attributes[i].get("hacc.arg_type") if attributes else None
        hidden = kind.data if isinstance(kind, Enumeration) and kind.data in HIDDEN else None
        arguments.append(KernelArgument(arg.name_hint or f"arg{i}", arg.type, hidden))
    return KernelFunctions(functions, arguments)


def launched(kernel: KernelFunctions, launch: LaunchTerms | None) -> LaunchTerms:
    """The launch of a kernel, with the grid that it says itself. Raises FrontendError where numbers are missing."""
    launch = launch or LaunchTerms()
    grid = launch.grid
    if not grid:
        own = kernel.func.attributes.get("hacc.block_dim")
        grid = (own.value.data,) if isinstance(own, IntegerAttr) else ()
    if not grid:
        asks = any(op.name == "hivm.hir.get_block_idx" for f, _ in kernel.functions for op in f.walk())
        if asks:
            raise refused(kernel.func, f"runs on a grid that is not said: {_hint(kernel)}")
        grid = (1,)
    return replace(launch, grid=grid)


def _hint(kernel: KernelFunctions) -> str:
    numbers = "".join(f", {a.name}=..." for a in kernel.numbers)
    return (
        f"give --launch 'grid=(64,){numbers}', or write a line `// launch: grid=(64,){numbers}` into the file"
    )


def arguments_of(kernel: KernelFunctions, launch: LaunchTerms) -> list[Value]:
    """What stands for the arguments of a kernel. Raises FrontendError for numbers that are not given."""
    places = {a.name: str(i) for i, a in enumerate(kernel.numbers)}
    known = {*places, *places.values()}
    known |= {a.name for a in kernel.arguments if a.is_tensor}
    if unknown := [n for n in (*launch.numbers, *launch.sizes) if n not in known]:
        takes = ", ".join(places) or "none"
        raise refused(kernel.func, f"takes no number {unknown[0]}: its numbers are {takes}")
    given: list[Value] = []
    grid = list(launch.axes)
    last = len(kernel.arguments) - GRID_RANK if kernel.triton else len(kernel.arguments)
    for i, argument in enumerate(kernel.arguments):
        if i >= last:
            given.append(grid[i - last])
        elif isinstance(argument.kind, MemRefType):
            given.append(_tensor(kernel, argument, i, launch))
        elif argument.hidden:
            given.append(i)
        else:
            given.append(_number(kernel, argument, launch, places))
    return given


def given_sizes(kernel: KernelFunctions, launch: LaunchTerms) -> dict[int, int]:
    """The elements of the tensors whose sizes a launch gives, by the numbers of their arguments."""
    sizes = [(i, _tensor(kernel, a, i, launch).shape) for i, a in enumerate(kernel.arguments) if a.is_tensor]
    return {i: prod(shape) for i, shape in sizes if min(shape, default=1) >= 0}


def _tensor(kernel: KernelFunctions, argument: KernelArgument, number: int, launch: LaunchTerms) -> Memref:
    """The memref of an argument, whose open sizes the launch says; where it does not, the first one may be -1."""
    assert isinstance(argument.kind, MemRefType)
    shape = tuple(argument.kind.get_shape())
    given = launch.sizes.get(argument.name, ())
    if argument.name in launch.numbers:
        given = (launch.numbers[argument.name],)
    if not given and DYNAMIC_INDEX not in shape[1:]:
        given = (-1,) * shape.count(DYNAMIC_INDEX)
    if len(given) != shape.count(DYNAMIC_INDEX) or any(not isinstance(n, int) or n < -1 for n in given):
        form = ",".join("8" for n in shape if n == DYNAMIC_INDEX)
        what = f"takes %{argument.name}, {argument.kind}"
        raise refused(kernel.func, f"{what}: the launch says its open sizes, as in {argument.name}=({form})")
    left = iter(given)
    sizes = tuple(int(next(left)) if n == DYNAMIC_INDEX else n for n in shape)
    made = memref_of(kernel.func, argument.kind, 0, number)
    return replace(made, shape=sizes, strides=row_major([max(n, 1) for n in sizes]))


def tiling_of(module: ModuleOp, kernel: KernelFunctions, given: Sequence[Value]) -> dict[int, list[int]]:
    """What the host computes for a kernel, by the numbers of the arguments that it gives it with: the key by which the
    kernel goes a way, and the sizes of its tiles. Raises FrontendError for a host function that cannot be followed."""
    named = kernel.func.attributes.get("hacc.tiling_function")
    if not isinstance(named, SymbolParameter):
        return {}
    wanted = named.value.root_reference.data
    # A function outlined from the one that the attribute is about takes other arguments; its own stands beside it.
    own = kernel.func.sym_name.data.rpartition("_")[0] + "_tiling_function"
    funcs = {f.sym_name.data: f for f in module.walk() if isinstance(f, FuncOp)}
    fitting = (funcs[name] for name in (wanted, own) if name in funcs and _takes(funcs[name], kernel))
    func = next(fitting, None)
    if func is None:
        raise refused(kernel.func, f"has its tiling from @{wanted}, which is no function with its arguments")
    found: dict[int, list[int]] = {}
    for i, argument in enumerate(kernel.arguments):
        if argument.hidden in ("tiling_key", "tiling_struct"):
            size = argument.kind.get_shape()[0] if isinstance(argument.kind, MemRefType) else 1
            if not 0 <= size <= MOST_HELD:
                what = f"takes %{argument.name}, {argument.kind}"
                raise refused(kernel.func, f"{what}, of which {MOST_HELD:,} numbers may be")
            found[i] = [0] * size
    walk = BlockWalk(BlockPlace(0, 1), Scratch(), tiling=found)
    walk.run(func, given)
    return found


def _takes(host: FuncOp, kernel: KernelFunctions) -> bool:
    """Whether a function of the host takes what a kernel takes, but for where tensors lie."""
    taken = [a.type for a in host.body.blocks[0].args] if host.body.blocks else []
    wanted = [a.kind for a in kernel.arguments]
    return len(taken) == len(wanted) and all(
        a.get_shape() == b.get_shape() and a.element_type == b.element_type
        if isinstance(a, MemRefType) and isinstance(b, MemRefType)
        else a == b
        for a, b in zip(taken, wanted, strict=True)
    )


def _number(kernel: KernelFunctions, argument: KernelArgument, launch: LaunchTerms, places: dict[str, str]) -> Number:
    for key in (argument.name, places.get(argument.name, "")):
        if key in launch.numbers:
            value = launch.numbers[key]
            return float(value) if isinstance(argument.kind, AnyFloat) else int(value)
    raise refused(kernel.func, f"takes %{argument.name} of type {argument.kind}: {_hint(kernel)}")


def cores_of(
    module: ModuleOp, kernel: KernelFunctions, launch: LaunchTerms, machine: Machine
) -> tuple[list[list[CorePart]], Scratch]:
    """What each core does, or each cube core with the vector cores beside it. Blocks that are more than there are cores
    run one after the other. Raises FrontendError for what cannot be imported."""
    scratch = Scratch()
    beside = machine.vector_cores // machine.cube_cores if kernel.kind == "mix" else 1
    cores = min(launch.blocks, machine.vector_cores if kernel.kind == "vector" else machine.cube_cores)
    given = arguments_of(kernel, launch)
    tiling = tiling_of(module, kernel, given)
    if "V" in machine.unordered and (call := next(filter(vectors.calls, module.walk()), None)) is not None:
        what = f"runs on chips whose vector unit keeps its order, such as ascend-950pr, not {machine.name}"
        raise refused(call, what)
    units = [beside if core == "vector" else 1 for _, core in kernel.functions]
    found: list[list[list[list[CoreStep]]]] = [[[[] for _ in range(n)] for n in units] for _ in range(cores)]
    functions: dict[ModuleOp, dict[str, FuncOp]] = {}
    for number in range(launch.blocks):
        for (func, _), steps in zip(kernel.functions, found[number % cores], strict=True):
            for unit, listed in enumerate(steps):
                place = BlockPlace(number, launch.blocks, unit, number // cores, beside)
                walk = BlockWalk(place, scratch, tiling=tiling, functions=functions)
                scratch.begin()
                walk.run(func, given)
                cube.settle_pieces(walk)
                listed += walk.steps
    return [
        [
            alike(CorePart(core, tuple(map(tuple, steps))))
            for (_, core), steps in zip(kernel.functions, parts, strict=True)
        ]
        for parts in found
    ], scratch
