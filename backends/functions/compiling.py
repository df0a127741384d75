"""The options with which XLA compiles the interpreter's code.

Bytes memory and the tile level are compiled with `OPTIONS`. Two other sets compile in two thirds of the time:
`QUICK_OPTIONS` for the graph level and typed memory, `SUMMING_OPTIONS` for kernels that accumulate products in loops.
Both memory modes must give the same bits, so the functions of `values.py` are written such that XLA can round them in
one way only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint
from xdsl.ir import Operation

from ...dialects.affine import Expr
from ...dialects.npu import MmadOp

LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"
LIBRARY, KINDS = "xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE"
DISABLED = "xla_disable_hlo_passes"
ROLLED = "xla_cpu_disable_loop_unrolling"

Options = dict[str, bool | int | str]


def _unless_set(**options: bool | int) -> Options:
    return {k: v for k, v in options.items() if k not in os.environ.get("XLA_FLAGS", "")}


OPTIONS: Options = {
    "xla_allow_excess_precision": False,
    DISABLED: "while-loop-invariant-code-motion,transpose-folding,small-while-loop-hoisting",
    "xla_cpu_parallel_codegen_split_count": 1,
    LIBRARY: f"{KINDS}_INDIVIDUAL_DOT,{KINDS}_INDIVIDUAL_CONVOLUTION",
    **_unless_set(**{LEVEL: 2}),
}
"""A rounding to f16 or bf16 is never skipped. What loops repeat in vain is little, and moving it out costs a tenth of
the compile time. What becomes of transposed operands of products is for `products.py` to say. A loop over few bytes
stays a loop: XLA would make it one function with products of its own, and bytes memory, which is larger, would have
those of the library. Two functions are compiled at a time, each on one thread: parts of one for several threads cost up
to a sixth more. A library may compute products, but not reductions over windows: those of f16 it gets wrong where the
input is dilated. LLVM's last level costs another tenth, and what it makes is not faster; at its first, one exponential
is not always computed like another. A level in XLA_FLAGS is obeyed."""

QUICK_OPTIONS: Options = {**OPTIONS, **_unless_set(**{EMITTERS: False})}
"""With XLA's older emitters of fusions. In bytes memory what they make takes twice as long. The newer ones end XLA on
some programs that it compiles whole (fuzz seed 1041598); the older ones give wrong values for `generate:tiny_beam`
where the result of a kernel that stores in a loop has a layout constraint. Emitters in XLA_FLAGS are obeyed."""

SUMMING_OPTIONS: Options = {**QUICK_OPTIONS, LIBRARY: f"{KINDS}_DOT,{KINDS}_INDIVIDUAL_CONVOLUTION"}
"""The library adds a product to its accumulator, too, for which the older emitters do not use vectors."""

PLAIN_OPTIONS: Options = QUICK_OPTIONS | _unless_set(**{LEVEL: 0})
"""Without LLVM's optimizations, in half to two thirds of the time: for what only copies, where there is nothing to make
faster, and for what runs once on few numbers."""

FEW_NUMBERS = 1 << 18
"""Up to so many numbers a program that runs once is compiled by `PLAIN_OPTIONS`: it takes 13 ns more for each of them,
and 20 to 30 ms less to compile."""


def options_once(arrays: Sequence[Any]) -> Options:
    """The options for a program that runs once or a few times, on these arrays."""
    return PLAIN_OPTIONS if sum(x.size for x in arrays) <= FEW_NUMBERS else QUICK_OPTIONS

SUMMED = frozenset({"add", "bitcast", "constant", "dot", "pad", "parameter"})
"""What the library may do around a product. It has functions of its own, with other roundings, and a product with one
number in all places it gets wrong."""


def xla_jit(function: Callable[..., Any], options: Options = OPTIONS, **more: Any) -> Any:
    """`jax.jit` for the interpreter."""
    return jax.jit(function, compiler_options=options, keep_unused=True, **more)


def in_rows(x: Array) -> Array:
    """x, row-major: else XLA may hand a product a transposed operand, whose sums then run in another order. It fuses
    nothing across this."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def row_major(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results leave `xla_jit` row-major. JAX gives a result that a layout constraint makes the layout
    that XLA likes best, and whatever takes it on a CPU reads it as row-major all the same."""

    @wraps(function)
    def settled(*args: Any) -> Any:
        return jax.tree.map(lax.optimization_barrier, function(*args))

    return settled


def lowered(function: Callable[..., Any], shapes: Sequence[Any], **more: Any) -> Any:
    """`function` as XLA is given it, for arguments of these shapes, to be compiled with some options. Python does this,
    and XLA the rest, which may be done on another thread meanwhile. Loops are not unrolled."""
    with jax.enable_x64(True):
        made = jax.jit(function, keep_unused=True, **more).lower(*shapes)
    where = made._lowering.compile_args
    where["backend"] = _Client(where["backend"])
    return made


class _Client:
    """XLA's client, but it unrolls no loops: that costs a seventh of the compile time, and what comes of it is not
    faster. The option is an entry of a map, and JAX has no way to name one. One in XLA_FLAGS is obeyed."""

    def __init__(self, client: Any):
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def compile_and_load(
        self, module: Any, executable_devices: Any, compile_options: Any, **more: Any
    ) -> Any:
        if ROLLED not in os.environ.get("XLA_FLAGS", ""):
            message = compile_options.SerializeAsString() + EXTRA_OPTION
            compile_options = type(compile_options).ParseFromString(message)
        return self.client.compile_and_load(module, executable_devices, compile_options, **more)


def _field(number: int, contents: bytes) -> bytes:
    """A field of a message of Protocol Buffers that holds text or a message: its number and type, length, contents."""
    return _varint(number << 3 | 2) + _varint(len(contents)) + contents


def _varint(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + _varint(n >> 7)


EXTRA_OPTION = _field(3, _field(3, _field(500, _field(1, ROLLED.encode()) + _field(2, b"true"))))
"""A CompileOptionsProto with an entry of executable_build_options.debug_options.xla_backend_extra_options. Behind
another message, it is merged into that."""


def compile_kernel(made: Any, kernel: Operation, alone: bool) -> Any:
    """What a kernel in typed memory was lowered to as an executable. alone: on one thread."""

    def compiled(options: Options) -> Any:
        return made.compile(on_one_thread(options) if alone else options)

    if not _sums(kernel):
        return compiled(QUICK_OPTIONS)
    executable = compiled(SUMMING_OPTIONS)
    return executable if only_summed(executable) else compiled(OPTIONS)


def on_one_thread(options: Options) -> Options:
    """`options`, but XLA does not cut what it computes itself up for its threads. Where these are busy with another
    group of cores, to hand a slice of 16 KB to one of them takes longer than the slice, a fifth of GPT-2's run."""
    return {**options, DISABLED: f"{options[DISABLED]},cpu-parallel-task-assigner"}


def _sums(kernel: Operation) -> bool:
    """Whether products are added to accumulators, in any iteration of a loop."""
    return any(isinstance(op, MmadOp) and op.linear()[0] != Expr() for op in kernel.walk())


def only_summed(executable: Any) -> bool:
    """Whether what the library computes is products, and their sums."""
    for module in executable.runtime_executable().hlo_modules():
        text = module.to_string()
        bodies = dict(re.findall(r"^(%[\w.-]+) \(.*?\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE))
        for name in re.findall(r"kind=kCustom, calls=(%[\w.-]+)", text):
            if not SUMMED.issuperset(re.findall(r" = \S+ ([\w-]+)\(", bodies[name])):
                return False
    return True
