"""Which op of StableHLO runs on which engine of a target, found by compiling it.

A form of each op that the frontend has a rule for is compiled for each element type, each in a module of its own. What
became of it is read off the npu level: a host call, or instructions on the pipes of the cube, of the vector unit, or
only of transfers. Ops without a rule run on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from ..api.program import CompileError
from ..api.sources import read_module
from ..dialects.elementwise import FUNCTIONS
from ..dialects.npu import NpuOp, Pipe, PipeBarrierOp, SetCrossOp, SyncOp, WaitCrossOp
from ..dialects.npu.structure import HostCallOp, KernelOp
from ..frontends import FrontendError, bindings
from ..frontends.rules import ON_COMPLEX, RULES, STRUCTURAL
from ..frontends.rules.elementwise import NAMES
from ..frontends.walk import CUSTOM_CALL
from ..machine import PIPES, Machine
from ..passes.errors import PassError
from ..passes.pipeline import PIPELINE, run_pipeline
from ..support.plugins import entries

DTYPES = (
    *("f32", "f16", "bf16", "f64", "f8E4M3FN", "i8", "i16", "i32", "i64"),
    *("ui8", "ui16", "ui32", "ui64", "i1", "complex<f32>"),
)
"""StableHLO's element types that are tried."""

ENGINES = {Pipe.M: "cube", Pipe.V: "vector"}
FLAGS = (SyncOp, PipeBarrierOp, SetCrossOp, WaitCrossOp)
DMA, HOST, FOLDED = "dma", "host", "folded"
"""Only transfers; the host; no instruction at all (a view, or worked out at compile time)."""


@dataclass(frozen=True)
class Support:
    """What an op on an element type becomes. engines: in the order cube, vector, pipes of the chip's own, dma, host,
    folded; instructions: the npu ops that compute, each once, with the elements or multiply-accumulates that it does in
    a cycle of one core; problem: why it cannot be compiled, or ""."""

    engines: tuple[str, ...]
    instructions: dict[str, float]
    problem: str = ""

    def __str__(self) -> str:
        return "error" if self.problem else "+".join(self.engines)


@dataclass(frozen=True)
class OpRow:
    """An op: name, where the frontend has its rule ("" for none), and what it becomes by element type."""

    name: str
    rule: str
    support: dict[str, Support]


def rows(target: str, names: list[str] | None = None) -> Iterator[OpRow]:
    """A row for each op of StableHLO, or those named, in alphabetical order."""
    for name in sorted(known_ops()) if names is None else names:
        rule = next(
            (t[key] for t in (RULES, STRUCTURAL, ON_COMPLEX) if (key := f"stablehlo.{name}") in t), None
        )
        if rule is None:
            yield OpRow(name, "", {d: Support((HOST,), {}) for d in DTYPES})
            continue
        form = form_of(name)
        home = rule.__module__.rsplit(".", 1)[-1]
        found = (
            {} if form is None else {d: s for d in DTYPES for s in [_probe(form, d, target)] if s is not None}
        )
        yield OpRow(name, home, found)


def known_ops() -> set[str]:
    """The ops of StableHLO, as its own bindings list them, and the custom calls that have a rule."""
    from jaxlib.mlir.dialects import stablehlo

    listed = (getattr(value, "OPERATION_NAME", "") for value in vars(stablehlo).values())
    ops = {n.removeprefix("stablehlo.") for n in listed if n.startswith("stablehlo.")} - {"return"}
    calls = {n.removeprefix("stablehlo.") for n in RULES if n.startswith(f"{CUSTOM_CALL} @")}
    return ops | calls


def _probe(form: str, dtype: str, target: str) -> Support | None:
    """What a form becomes on an element type; None where StableHLO itself does not allow it."""
    content = form.replace("$T", dtype).replace("$ZERO", _zero(dtype))
    try:
        bindings.parse(content, "probe.mlir")
    except (FrontendError, ValueError):
        return None
    try:
        module = read_module(content.encode(), "probe.mlir", Machine.load(target))
    except CompileError as error:
        # of a custom call its own rule says which types there are
        return None if f'"{CUSTOM_CALL}"' in form else Support((), {}, str(error))
    try:
        run_pipeline(module, target, stages=[s for s in PIPELINE if s.name != "npu-check"])
    except (CompileError, PassError) as error:
        return Support((), {}, str(error))
    return _engines(module, Machine.load(target))


def _engines(module: ModuleOp, machine: Machine) -> Support:
    """What became of the one op of a module."""
    engines: set[str] = set()
    instructions: dict[str, float] = {}
    for op in module.walk():
        if isinstance(op, HostCallOp):
            engines.add(HOST)
        elif isinstance(op, NpuOp) and not isinstance(op, FLAGS) and _in_kernel(op):
            own = op.PIPE not in PIPES  # of a pipe of the chip's own only the cost says whether it computes
            if op.PIPE not in ENGINES and not own:
                engines.add(DMA)
                continue
            try:
                cost = op.cost(machine, [0] * len(op.index_operands()))
            except KeyError as error:
                return Support((), {}, f"{op.name} has no cost on {machine.name}: {error.args[0]}")
            computes = not own or bool(cost.macs or cost.elements)
            engines.add(ENGINES.get(op.PIPE, str(op.PIPE)) if computes else DMA)
            if computes:
                rate = (cost.macs or cost.elements) / max(cost.cycles, 1)
                name = op.name.removeprefix("npu.")
                instructions[name] = max(instructions.get(name, 0.0), round(rate, 2))
    order = (*ENGINES.values(), *sorted(engines - {*ENGINES.values(), DMA, HOST}), HOST)
    found = tuple(e for e in order if e in engines) or ((DMA,) if DMA in engines else (FOLDED,))
    return Support(found, instructions)


def _in_kernel(op: Operation | None) -> bool:
    while op is not None and not isinstance(op, KernelOp):
        op = op.parent_op()
    return op is not None


def _zero(dtype: str) -> str:
    return (
        "(0.0, 0.0)"
        if dtype.startswith("c")
        else "false"
        if dtype == "i1"
        else "0.0"
        if dtype[0] in "fb"
        else "0"
    )


# -- a form of each op ---------------------------------------------------------------------------------------


@cache
def forms() -> dict[str, str]:
    """The forms of `forms.mlir` by op: StableHLO functions, `$T` for the element type."""
    content = (files("tilewright.cli") / "forms.mlir").read_text(encoding="utf-8")
    _, *sections = content.split("// form: ")
    return {name: form for name, _, form in (section.partition("\n") for section in sections)}


def form_of(name: str) -> str | None:
    """StableHLO text of a function with the op, `$T` for the element type; None for ops whose engine is that of what
    they contain, such as `while`."""
    ours = NAMES.get(name, name)
    added = entries("forms")
    if name in added:
        return added[name].given
    if name in forms():
        return forms()[name]
    if ours not in FUNCTIONS or f"stablehlo.{name}" not in RULES:
        return None
    function, shape = FUNCTIONS[ours], "tensor<24x40x$T>"
    result = "tensor<24x40xi1>" if function.result == "i1" else shape
    names = [f"%{i}" for i in range(function.arity)]
    op, _, called = name.partition(" @")
    target = f' {{call_target_name = "{called}"}}' if called else ""
    return (
        f"func.func @main({', '.join(f'{n}: {shape}' for n in names)}) -> {result} {{\n"
        f'  %r = "stablehlo.{op}"({", ".join(names)}){target} : ({", ".join([shape] * len(names))}) -> {result}\n'
        f"  return %r : {result}\n}}\n"
    )
