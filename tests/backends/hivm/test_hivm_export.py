"""Kernels as HIVM: stored texts, and what is refused. `REWRITE_HIVM=1` in the environment stores them anew."""

from __future__ import annotations

import os
import re

import jax.numpy as jnp
import pytest
from hivm_texts import NAMES, STORED, exported, npu_module
from xdsl.parser import Parser

import tilewright as tw
from tilewright.api.hivm import export_module
from tilewright.backends.hivm.traces import differences, read_module, traces_of
from tilewright.dialects import make_context
from tilewright.dialects.dtypes import size
from tilewright.passes.errors import CompileError


@pytest.mark.parametrize("name", NAMES)
def test_stored_texts(name: str) -> None:
    stored = STORED / f"{name}.hivm.mlir"
    if os.environ.get("REWRITE_HIVM"):
        stored.write_text(exported(name))
    assert exported(name) == stored.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_of_our_dialect(name: str) -> None:
    found = read_module(exported(name))
    found.verify()
    assert str(found) == exported(name).rstrip()


@pytest.mark.parametrize("name", NAMES)
def test_flags_barriers_and_addresses_are_ours(name: str) -> None:
    """Each flag and barrier of the kernel is in the text, but for those that the macro of a product has itself, and
    barriers behind fills of numbers, which are operands there; each address of ub and l1 but theirs is in it."""
    program = npu_module(name)
    ours = [op for op in program.walk() if op.name in ("npu.set_flag", "npu.pipe_barrier")]
    inner = sum(op.name == "npu.mmad" for op in program.walk())
    traces = [t[0] for t in traces_of(read_module(exported(name))).values()]
    sets = sum(t.flags for t in traces)
    kept = sum(op.name == "npu.set_flag" for op in ours)
    assert kept - 3 * inner <= sets <= kept
    ends = len(traces)
    numbers = [op.dest for op in program.walk() if op.name == "npu.vfill" and size(op.dest.type.shape) == 1]
    barriers = sum(op.name == "npu.pipe_barrier" for op in ours) + ends
    assert barriers - len(numbers) <= sum(t.barriers for t in traces) <= barriers
    used = {a for t in traces for space, a in t.addresses if space in ("ub", "cbuf")}
    assert used
    for op in program.walk():
        if op.name != "npu.alloc" or op.result in numbers:
            continue
        if op.result.type.space in ("ub", "l1") and op.result.type.slots == 1:
            assert op.address.value.data in used


def test_a_drain_that_accumulates_has_a_mode_around_it() -> None:
    """A store says itself what it is combined with: see atomic.npu.mlir."""
    head, drain, tail = (STORED / "cube.npu.mlir").read_text().partition("npu.fixpipe")
    text = head + drain + tail.replace("{", '{accumulate = "max", ', 1)
    (kernel,) = export_module(Parser(make_context(), text).parse_module()).kernels.values()
    found = re.findall(r"hivm.hir.(?:set_atomic .*|fixpipe)", kernel.text)
    modes = [f"hivm.hir.set_atomic kind = <{kind}>[type = f16]" for kind in ("max", "none")]
    assert found == [modes[0], "hivm.hir.fixpipe", modes[1]]
    assert [a.role for a in kernel.arguments] == ["input", "input", "updated"]


def test_difference_of_two_texts_is_found() -> None:
    text = exported("vector")
    lost = text.replace("    hivm.hir.pipe_barrier[<PIPE_V>]\n", "", 1)
    moved = text.replace("= arith.constant 20224 : i64", "= arith.constant 20256 : i64")
    assert differences(read_module(text), read_module(text)) == []
    assert differences(read_module(text), read_module(lost)) == ["@reduce_0: lost pipe_barrier PIPE_V"]
    assert differences(read_module(text), read_module(moved)) == [
        "@reduce_0: address 20224 of ub is gone",
        "@reduce_0: address 20256 of ub is new",
    ]


def test_attribute_that_the_vendors_driver_deletes_is_not_the_last() -> None:
    head = exported("vector").splitlines()[0]
    assert head.index("hacc.") < head.index("hivm.module_core_type")


SOFTMAX = jnp.ones((4, 16), "float32")


def test_program_gives_its_kernels() -> None:
    program = tw.compile(jnp.tanh, SOFTMAX, options=tw.Options(hivm=True))
    kernels = program.to_hivm()
    assert list(kernels) == ["tanh_0"]
    assert kernels["tanh_0"].kind == "AIV"
    assert [a.role for a in kernels["tanh_0"].arguments] == ["input", "output"]
    assert "hivm.hir.vtanh" not in kernels["tanh_0"].text


@pytest.mark.parametrize(
    ("options", "target", "said"),
    [
        ({}, "ascend-910b1", r"compile it with Options\(hivm=True\)"),
        ({"hivm": True}, "ascend-310", "HIVM is written for ascend-910b1"),
    ],
)
def test_program_that_is_not_for_hivm(options: dict[str, bool], target: str, said: str) -> None:
    program = tw.compile(jnp.exp, SOFTMAX, target=target, options=tw.Options(**options))
    with pytest.raises(CompileError, match=said):
        program.to_hivm()


def test_refusal_names_kernel_op_and_reason() -> None:
    program = tw.compile(lambda x: jnp.sort(x), SOFTMAX, options=tw.Options(hivm=True))
    with pytest.raises(CompileError, match=r"kernel @sort_0: 'npu.vsort' .*has no counterpart in HIVM"):
        program.to_hivm()


@pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (3, 1), (1, 40), (5, 3, 17)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_odd_shapes_are_exported(shape: tuple[int, ...], dtype: str) -> None:
    x = jnp.ones(shape, dtype)
    program = tw.compile(lambda x: x.sum(-1) + x.max(), x, options=tw.Options(hivm=True))
    for kernel in program.to_hivm().values():
        read_module(kernel.text).verify()


def test_number_is_an_operand_without_memory() -> None:
    """A scalar that instructions take as a number is not filled, and no barrier orders that."""
    program = tw.compile(lambda x: 2 * x + 1, SOFTMAX, options=tw.Options(hivm=True))
    (kernel,) = program.to_hivm().values()
    assert "vbrc" not in kernel.text
    assert kernel.text.count("pipe_barrier[<PIPE_V>]") == 1  # between the product and the sum
