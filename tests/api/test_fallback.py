"""Faults of what makes programs faster: the program is compiled without it, a warning names the fault, and the report
says so."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilewright as tw
from tilewright.api.sizes import templates
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.control import AXES
from tilewright.passes.choose.choose import Scheduler
from tilewright.passes.choose.layout_choice import LayoutChooser
from tilewright.passes.errors import FusionWarning, TooLarge
from tilewright.passes.forms import attention
from tilewright.passes.fusion.groups import Grouper
from tilewright.passes.lower.chains.attention_choice import AttentionChoice
from tilewright.passes.lower.vector import VectorKernel


def attend(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2), axis=-1) @ v


ARGS = [np.random.default_rng(i).normal(size=(2, 32, 16)).astype("f4") for i in range(3)]


def fail(*_: Any, **__: Any) -> NoReturn:
    raise KeyError("lost")


def too_large(*_: Any, **__: Any) -> NoReturn:
    raise TooLarge("it does not fit")


def compiled_without(fn: Any, *args: Any, match: str, without: str = "") -> tw.Program:
    """A program that is compiled with a warning, and gives JAX's values."""
    with pytest.warns(FusionWarning, match=match):
        program = tw.compile(fn, *args, options=tw.Options(without=without))
    return right(program, fn, *args)


def right(program: tw.Program, fn: Any, *args: Any) -> tw.Program:
    """A program that gives JAX's values."""
    for got, want in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
    return program


@pytest.mark.parametrize("fault", [fail, too_large])
def test_a_fusion_that_fails(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentionChoice, "__init__", fault)
    program = compiled_without(attend, *ARGS, match="'attention' failed", without="unchained")
    report = program.report()
    assert not any(kernel.name.startswith("attention") for kernel in report.kernels)
    assert report.left_out is not None and "'attention'" in report.left_out
    assert "left out: the alternative 'attention' failed" in report.table()


def test_attention_that_has_no_kernel_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to warn of: its parts are an alternative like any other."""
    monkeypatch.setattr(AttentionChoice, "__init__", too_large)
    report = right(tw.compile(attend, *ARGS), attend, *ARGS).report()
    assert report.left_out is None and not any(kernel.name.startswith("attention") for kernel in report.kernels)


def test_a_recogniser_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "in_one_kernel", fail)
    program = compiled_without(attend, *ARGS, match="finding attention at 'graph.contract' .*KeyError in .*lost")
    assert program.report().left_out is None  # the program is that of a recogniser that finds nothing


def test_a_trial_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "_estimate", fail)
    x, w = (np.ones(shape, "f4") for shape in ((2048, 512), (512, 1000)))
    compiled_without(lambda x, w: x @ w, x, w, match="judging 'graph.fusion'")


def test_a_version_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a range of sizes; each of them is compiled alone."""
    monkeypatch.setattr(templates, "check_template", fail)
    (n,) = export.symbolic_shape("n", constraints=["n <= 32"])
    x = np.arange(20, dtype="f4") / 8
    program = tw.compile(jnp.exp, jax.ShapeDtypeStruct((n,), "float32"))
    with pytest.warns(FusionWarning, match="the version for n >= 17 and n <= 32 failed .*KeyError in .*alone"):
        got = program(x)
    np.testing.assert_allclose(got, np.exp(x), rtol=1e-5)


def test_several_mechanisms_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each of them runs into the fault alone, all are left out."""
    monkeypatch.setattr(LayoutChooser, "block", fail)
    program = compiled_without(attend, *ARGS, match="^every alternative failed")
    assert program.report().left_out is not None


def test_fusion_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grouper, "merge", fail)
    x = ARGS[0]
    program = compiled_without(lambda x, y: jnp.exp(x) + jnp.exp(y), x, x + 1, match="^fusion failed")
    assert program.report().counts.launches == 3


def test_no_fusion() -> None:
    """Each op is a kernel of its own."""
    x = ARGS[0]
    fn = lambda x, y: jnp.concatenate([jnp.exp(x) * y, jnp.max(x, axis=0, keepdims=True)])  # noqa: E731
    program = tw.compile(fn, x, x, options=tw.Options(without={"fusion"}))
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    members = [[op for op in each.body.block.ops if AXES in op.attributes] for each in fusions]
    assert [len(ops) for ops in members if ops] == [1, 1, 1, 1]
    np.testing.assert_allclose(np.asarray(program(x, x)), np.asarray(fn(x, x)), rtol=1e-5)


def test_a_fault_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails whatever is left out is raised as it is."""
    monkeypatch.setattr(VectorKernel, "__init__", fail)
    with pytest.raises(KeyError, match="lost"):
        tw.compile(lambda x: x + 1, ARGS[0])


def test_a_mistake_of_the_user() -> None:
    """It is no fault of the compiler, and nothing is tried."""
    with pytest.raises(tw.CompileError, match="may not use the host"):
        tw.compile(jnp.fft.fft, np.ones(8, "c8"), options=tw.Options(host="forbid"))


def test_a_function_that_raises_is_traced_once() -> None:
    """What a function raises is no fault of the compiler."""
    traced = []

    def fn(x: Any) -> NoReturn:
        traced.append(x)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        tw.compile(fn, ARGS[0])
    assert len(traced) == 1
