"""Exported vector kernels as text that the vendor's compiler lowers for this processor, to LLVM's dialect.

Casts of addresses become views of one array of bytes, so that buffers overlap where ours do; the number of the block an
argument. Flags and barriers vanish on the way: the steps run in the order of the text. What runs the result is
mlir-cpu-runner of LLVM 19, which no package of Python has.
"""

from __future__ import annotations

import re

from tilewright.backends.hivm.tools import VendorTools

UB_BYTES = 196_608
ARENA = f"memref<{UB_BYTES}xi8>"

UPSTREAM = "builtin.module(execution-engine-convert-hivm-to-upstream)"
LOWERED = (
    "builtin.module(empty-tensor-to-alloc-tensor,execution-engine-convert-hfusion-to-upstream,"
    "one-shot-bufferize{allow-return-allocs-from-loops=1},bufferization-lower-deallocations,"
    "func.func(finalizing-bufferize),annotation-lowering,lower-memref-ext,convert-linalg-to-loops,lower-affine,"
    "expand-strided-metadata,lower-affine,convert-scf-to-cf,arith-expand,convert-math-to-llvm,convert-math-to-libm,"
    "finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,convert-index-to-llvm,convert-arith-to-llvm,"
    "reconcile-unrealized-casts)"
)

NEUTRAL = {"sum": "0.0", "prod": "1.0", "max": "0xFF800000", "min": "0x7F800000"}

_CAST = re.compile(
    r"(?m)^( +)(%\w+) = hivm\.hir\.pointer_cast\((%\w+)\) : "
    r"memref<((?:\d+x)*)(\w+)(, strided<\[([\d, ]+)\]>)?, #hivm\.address_space<ub>>$"
)
_ROW = re.compile(
    r"(?m)^( +)(hivm\.hir\.vreduce <\w+>) ins\((%\w+) : memref<(\d+)xf32, (\S+)>\) outs\((%\w+) : memref<1xf32, \S+>\)"
    r"(?: temp_buffer\(.*?\))? reduce_dims = \[0\]$"
)
_REDUCED = re.compile(r"(?m)^( +)hivm\.hir\.vreduce <(\w+)> ins\(.*?\) outs\((%\w+) : (memref<.*?>>)\)")


def arena_text(text: str) -> str:
    """A vector kernel with its memory as one array, its first arguments: the block's number, and the bytes of ub."""
    text = re.sub(r"(?m)^.*hivm\.hir\.set_mask_norm\n", "", text)
    text = re.sub(r"hivm\.hir\.get_block_idx -> i64", "arith.addi %block, %none : i64", text)
    text = _CAST.sub(_view, text)
    text = _REDUCED.sub(_begun, _ROW.sub(_as_rows, text))
    head = f"(%block: i64, %ub: {ARENA}, "
    text = re.sub(r"(func\.func @\w+)\(", lambda m: m[1] + head, text, count=1)
    return re.sub(r"(?m)^(  func\.func .*\{)$", r"\1\n    %none = arith.constant 0 : i64", text, count=1)


def _view(found: re.Match[str]) -> str:
    """A cast of an address as a view of the array, with the strides that it has."""
    indent, name, address, dims, element, layout, strides = found.groups()
    shape = [int(n) for n in dims.split("x") if n]
    steps = [int(n) for n in strides.split(",")] if strides else []
    count = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1 if steps else 0
    flat = f"memref<{count}x{element}>" if steps else f"memref<{dims}{element}>"
    plain, key = f"memref<{dims}{element}{layout or ''}>", name[1:]
    lines = [
        f"%at_{key} = arith.index_cast {address} : i64 to index",
        f"%flat_{key} = memref.view %ub[%at_{key}][] : {ARENA} to {flat}",
    ]
    if steps:
        lines.append(
            f"%rows_{key} = memref.reinterpret_cast %flat_{key} to offset: [0], sizes: {shape}, strides: {steps} : "
            f"{flat} to {plain}"
        )
    source = f"%rows_{key}" if steps else f"%flat_{key}"
    space = f"{plain[:-1]}, #hivm.address_space<ub>>"
    lines.append(f"{name} = memref.memory_space_cast {source} : {plain} to {space}")
    return "\n".join(indent + line for line in lines)


def _as_rows(found: re.Match[str]) -> str:
    """A reduction of one row to a number as one of rows to columns: the vendor's conversion has no other."""
    indent, reduced, source, count, space, dest = found.groups()
    names, kinds = (f"%row{found.start()}", f"%one{found.start()}"), (f"1x{count}", "1x1")
    lines = [
        f"{name} = memref.reinterpret_cast {of} to offset: [0], sizes: [1, {n}], strides: [{n}, 1] : "
        f"memref<{n}xf32, {space}> to memref<{kind}xf32, {space}>"
        for name, of, n, kind in zip(names, (source, dest), (count, 1), kinds, strict=True)
    ]
    of, into = (f"{name} : memref<{kind}xf32, {space}>" for name, kind in zip(names, kinds, strict=True))
    lines.append(f"{reduced} ins({of}) outs({into}) reduce_dims = [1]")
    return "\n".join(indent + line for line in lines)


def _begun(found: re.Match[str]) -> str:
    """A reduction of f32 behind a fill of its result: the vendor's conversion goes on with what is there."""
    indent, kind, dest, kind_of_dest = found.groups()
    name = f"%begin{found.start()}"
    return (
        f"{indent}{name} = arith.constant {NEUTRAL[kind]} : f32\n"
        f"{indent}hivm.hir.vbrc ins({name} : f32) outs({dest} : {kind_of_dest})\n{found[0]}"
    )


def lowered(text: str, tools: VendorTools) -> str:
    """An exported vector kernel in LLVM's dialect. Raises ToolError for what the vendor's lowering does not take."""
    return tools.passes(LOWERED, tools.passes(UPSTREAM, arena_text(text)))
