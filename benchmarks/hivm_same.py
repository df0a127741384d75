"""The same computations by the vendor's compiler and by ours: `python benchmarks/hivm_same.py FOLDER`.

FOLDER has NAME.hivm.mlir of the vendor's compiler with NAME.json, whose `compile_seconds` is what it took, and launches
are those of tests/frontends/hivm/stored_kernels.py. Ours are JAX functions, exported as HIVM. A row has bytes of ub and
of l1, flags that are set and barriers in the text, modelled microseconds of both, and what compiling took: the vendor's
process, and ours in this one once JAX and the compiler are warm.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.api.launched import Launched
from tilewright.dialects.base import integer
from tilewright.dialects.npu import AllocOp, buffer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "frontends" / "hivm"))


def _softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def _norm(x: Any, scale: Any, bias: Any) -> Any:
    far = x - x.mean(-1, keepdims=True)
    return far / jnp.sqrt((far * far).mean(-1, keepdims=True) + 1e-5) * scale + bias


def _product(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = 0.125 * jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores).astype(q.dtype), v)


OURS: dict[str, Callable[..., Any]] = {
    "add_f32": lambda x, y: x + y,
    "gelu_tanh_f32": lambda x: jax.nn.gelu(x, approximate=True),
    "adam_f32": _adam,
    "softmax_f32": _softmax,
    "layernorm_256x1024_f32": _norm,
    "reduce_sum_f32": lambda x: x.sum(1),
    "reduce_max_axis0_f32": lambda x: x.max(0),
    "transpose_f32": lambda x: x.T,
    "matmul_512_f16": lambda a, b: _product(a, b).astype(a.dtype),
    "matmul_relu_f16": lambda a, b: jax.nn.relu(_product(a, b)).astype(a.dtype),
    "matmul_bias_gelu_f16": lambda a, b, c: jax.nn.gelu(_product(a, b) + c.astype("float32")).astype(a.dtype),
    "attention_f16": _attention,
}


def used(program: tw.Program) -> str:
    """Bytes of ub, and of l1 where there are some, of the kernel that uses most."""
    ends = {"ub": 0, "l1": 0}
    for op in program.module().walk():
        if not isinstance(op, AllocOp) or op.address is None:
            continue
        kind = buffer(op.result)
        if kind.space in ends:
            ends[kind.space] = max(ends[kind.space], integer(op.address) + kind.slots * kind.slot_bytes)
    return f"{ends['ub']:,}" + (f" ({ends['l1']:,})" if ends["l1"] else "")


def ordered(text: str) -> str:
    """Flags that are set, and barriers, in a text."""
    sets = len(re.findall(r"hir\.set_flag|hir\.sync_block_set", text))
    return f"{sets}, {text.count('hir.pipe_barrier')}"


def row(folder: Path, name: str) -> list[str]:
    """The cells of a kernel."""
    import numpy as np
    REFERENCES = importlib.import_module("stored_kernels").REFERENCES

    reference, path = REFERENCES[name], folder / f"{name}.hivm.mlir"
    seconds = json.loads((folder / f"{name}.json").read_text())["compile_seconds"]
    theirs = tw.compile(Launched(path, reference.launch))
    args = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in reference.inputs(np.random.default_rng(0))]
    options = tw.Options(hivm=True)
    tw.compile(OURS[name], *args, options=options)
    start = time.process_time()
    ours = tw.compile(lambda *given: OURS[name](*given), *args, options=options)
    took = time.process_time() - start
    texts = "".join(k.text for k in ours.to_hivm().values())
    return [
        name,
        used(theirs),
        ordered(path.read_text()),
        f"{theirs.report().microseconds:.1f}",
        f"{seconds:.2f}",
        used(ours),
        ordered(texts),
        f"{ours.report().microseconds:.1f}",
        f"{took:.2f}",
    ]


def main() -> None:
    """Prints the table."""
    print("| kernel | ub (l1) | flags, barriers | us | s | our ub (l1) | flags, barriers | us | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in OURS:
        print(f"| {' | '.join(row(Path(sys.argv[1]), name))} |", flush=True)


if __name__ == "__main__":
    main()
