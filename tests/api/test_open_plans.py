"""One plan of device memory for a range of sizes: right at each, about as small as one of its own, and proven."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from loading import example_module
from memories import outputs
from tiering import MEMORIES, sampled
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import tilewright as tw
from tilewright.api.sizes.templates import SizedProgram, Version
from tilewright.api.sources import entry_of
from tilewright.dialects import make_context
from tilewright.dialects.base import integer, integer_attr
from tilewright.dialects.npu import gm
from tilewright.dialects.npu.lifetimes import order_of
from tilewright.dialects.npu.places import addresses_of, arena_of, set_arena
from tilewright.dialects.npu.structure import GmAllocOp, LaunchOp
from tilewright.dialects.open_sizes import OpenSize, typical_sizes, value_at
from tilewright.dialects.sizes import parse_size
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.instantiation import Instantiation
from tilewright.passes.npu import plan_memory, stacking
from tilewright.passes.templates import NoTemplate, check_template

Sizes = dict[str, int]
MACHINE = Machine.load("ascend-910b1")


def mlp(x: Any, w: Any, c: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w + c) @ v


def attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.split(x @ w, 3, axis=-1)
    return jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k) / 4, axis=-1) @ v + x


def crossed(x: Any, y: Any) -> Any:
    """Tensors that grow with one size, beside some that grow with the other."""
    long = jnp.tanh(x.sum(1, keepdims=True) * x) @ y
    return jax.nn.softmax(long @ y.T, axis=1) + x


def looped(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c @ c.T @ c), x)


def decoder() -> tuple[Callable[..., Any], list[Any]]:
    gpt2 = example_module("gpt2")
    weights = jax.eval_shape(lambda: gpt2.init(gpt2.TINY, "float32"))
    (t,) = export.symbolic_shape("t", constraints=["t <= 31"])
    return lambda p, x: gpt2.decode(p, x, gpt2.TINY.n_heads), [weights, jax.ShapeDtypeStruct((t,), "int32")]


def shaped(*shapes: str) -> list[Any]:
    scope = export.SymbolicScope()
    return [jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope), "float32") for s in shapes]


MODELS: dict[str, tuple[Callable[[], tuple[Callable[..., Any], list[Any]]], Sizes]] = {
    "mlp": (lambda: (mlp, shaped("b, 48", "48, 80", "80", "80, 10")), {"b": 64}),
    "attention": (lambda: (attention, shaped("b, s, 16", "16, 48")), {"b": 4, "s": 64}),
    "two sizes": (lambda: (crossed, shaped("b, s", "s, 24")), {"b": 16, "s": 64}),
    "a loop": (lambda: (looped, shaped("b, 24")), {"b": 32}),
    "gpt2": (decoder, {"t": 31}),
}


def planned(name: str) -> tuple[tw.DynamicProgram, Version]:
    """A program with its version for the sizes of the model, which has one plan for all."""
    make, at = MODELS[name]
    fn, args = make()
    program = tw.compile(fn, *args)
    assert isinstance(program, tw.DynamicProgram)
    assert isinstance(program.at(at), SizedProgram)
    (version,) = program.ranges.values()
    assert isinstance(version, Version) and not version.template.unplanned and not version.template.stages
    return program, version


def some_sizes(version: Version, count: int) -> Iterator[Sizes]:
    rng = np.random.default_rng(0)
    symbols = version.template.symbols.values()
    made = 0
    while made < count:
        at = {s.name: int(rng.integers(s.lower, version.template.example[s.name] + 1)) for s in symbols}
        if version.template.holds(at):
            made += 1
            yield at


def lives(func: FuncOp) -> list[tuple[int, int, GmAllocOp]]:
    """When each tensor that a function makes is used, by the numbers of ops."""
    order = order_of(func.body.block)
    return [(*order.span(op.result), op) for op in func.walk() if isinstance(op, GmAllocOp)]


def overlaps(func: FuncOp) -> list[tuple[GmAllocOp, GmAllocOp]]:
    """Tensors that share bytes and are needed at one time, or share bytes with an argument."""
    found = lives(func)
    start = {op: integer(op.address) for _, _, op in found if op.address is not None}
    end = {op: at + gm(op.result).bytes for op, at in start.items()}
    arguments = [
        (at, at + gm(a).bytes) for at, a in zip(addresses_of(func) or (), func.body.block.args, strict=True)
    ]
    assert max(end.values()) <= (arena_of(func) or 0)
    assert not [1 for op in start for at, last in arguments if start[op] < last and at < end[op]]
    return [
        (one, other)
        for (first, last, one), (begin, until, other) in combinations(found, 2)
        if first <= until and begin <= last and start[one] < end[other] and start[other] < end[one]
    ]


def alone(module: ModuleOp) -> int:
    """The bytes that a plan for a module's own sizes takes."""
    made = module.clone()
    plan_memory.NpuPlanMemoryPass(MACHINE.name).run_for(made, MACHINE)
    return arena_of(entry_of(made)) or 0


@sampled(2)
@pytest.mark.parametrize("name", MODELS)
def test_at_every_size_nothing_overlaps_and_the_arena_is_about_as_small(name: str) -> None:
    _, version = planned(name)
    largest = Instantiation(version.template.example).of(version.template.module)
    assert arena_of(entry_of(largest)) == alone(largest)
    ratios: list[float] = []
    for at in some_sizes(version, 20):
        module = version.template.instance(at)
        assert not overlaps(entry_of(module))
        ratios.append((arena_of(entry_of(module)) or 0) / alone(module))
    print(f"{name}: median {np.median(ratios):.3f}, largest {max(ratios):.3f}")
    assert max(ratios) <= 1.1


def test_the_plan_at_the_example_is_the_one_of_its_sizes() -> None:
    _, version = planned("attention")
    module = Instantiation(version.template.example).of(version.template.module)
    places = [op.address for op in entry_of(module).walk() if isinstance(op, GmAllocOp)]
    plan_memory.NpuPlanMemoryPass(MACHINE.name).run_for(module, MACHINE)
    assert places == [op.address for op in entry_of(module).walk() if isinstance(op, GmAllocOp)]


@pytest.mark.parametrize("name", ["attention", "gpt2"])
def test_the_check_refuses_each_pair_that_is_put_in_one_place(name: str) -> None:
    _, version = planned(name)
    template = version.template
    func = entry_of(template.module)
    pairs = [
        (one, other)
        for (first, last, one), (begin, until, other) in combinations(lives(func), 2)
        if first <= until and begin <= last
    ]
    names = tuple(template.example)
    check_template(replace(template), names)
    assert len(pairs) >= 6
    set_arena(func, 1 << 30)  # so that it is the overlap that is found
    for one, other in pairs[:: max(1, len(pairs) // 8)]:
        kept, other_kept = one.address, other.address
        assert kept is not None and other_kept is not None
        one.properties["address"] = other_kept
        with pytest.raises(NoTemplate, match=r"device-overlap|device-uninitialised"):
            check_template(replace(template), names)
        one.properties["address"] = kept
    check_template(replace(template), names)


def test_the_check_for_all_sizes_finds_what_is_right_at_the_ends_only() -> None:
    _, version = planned("mlp")
    template = version.template
    b = template.symbols["b"]
    assert (b.lower, b.upper) == (33, 64)
    moved = [op for op in entry_of(template.module).walk() if isinstance(op, GmAllocOp)][1]
    assert moved.address is not None
    right = integer(moved.address)
    low, high = (value_at(right, {"b": n}) for n in (33, 64))
    stepped = parse_size(f"{low} + {high - low}*floordiv(b, 64)", {"b": b})
    moved.properties["address"] = integer_attr(OpenSize.of(stepped))
    set_arena(entry_of(template.module), 1 << 20)
    with pytest.raises(NoTemplate, match=r"^for all sizes: device-overlap"):
        check_template(replace(template), ["b"])
    assert overlaps(entry_of(replace(template).instance({"b": 50})))
    assert not overlaps(entry_of(replace(template).instance({"b": 33})))


def test_a_plan_prints_and_parses() -> None:
    _, version = planned("two sizes")
    text = str(version.template.module)
    with typical_sizes():
        assert str(parse_module(make_context(), text, "plan.mlir")) == text
    assert 'address = "' in text and "npu.addresses = #graph.ints<[0, " in text


def test_bytes_memory_shows_it() -> None:
    program, version = planned("attention")
    rng = np.random.default_rng(0)
    for at in some_sizes(version, 4):
        x = rng.standard_normal((at["b"], at["s"], 16)).astype(np.float32)
        w = rng.standard_normal((16, 48)).astype(np.float32)
        (got,) = outputs(program.at(at), [x, w], MEMORIES)
        np.testing.assert_allclose(got, attention(x, w), rtol=2e-4, atol=2e-4)


def test_where_there_is_no_plan_for_all_sizes_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "MOST_FORMS", 0)
    program = tw.compile(mlp, *MODELS["mlp"][0]()[1])
    assert isinstance(program, tw.DynamicProgram)
    for b in (64, 40):
        assert not overlaps(entry_of(program.at(b=b).module()))
    (version,) = program.ranges.values()
    assert isinstance(version, Version) and "more than 0 sums of sizes" in version.template.unplanned
    assert [s.name for s in version.template.stages] == ["npu-plan-memory", "npu-schedule-host", "npu-join-launches"]
    assert "address" not in str(entry_of(version.template.module))
    assert [op for op in version.template.module.walk() if isinstance(op, LaunchOp)]


def test_what_is_too_large_for_the_device_is_refused_at_its_size() -> None:
    program = tw.compile(lambda x, y: jnp.tanh(x[:, None] + y), *shaped("n", "n"), target="ascend-310")
    assert isinstance(program, tw.DynamicProgram)
    assert (arena_of(entry_of(program.at(n=40000).module())) or 0) < 8 << 30
    (reason,) = program.ranges.values()
    assert isinstance(reason, NoTemplate) and "bytes of device memory, but ascend-310 has" in str(reason)
    with pytest.raises(tw.CompileError, match=r"needs 14400.* bytes of device memory"):
        program.at(n=60000)
