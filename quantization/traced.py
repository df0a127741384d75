"""A source at the graph level with its products by name, and runners that look at these or replace them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from ..api.arguments.signature import CompileError, Signature
from ..api.quantized import named_module
from ..api.sizes.sources import sized_origin
from ..api.sources import as_compile_error, called
from ..backends.interpreter.graph import Env, GraphRunner, needs_host
from ..dialects.base import integer
from ..dialects.graph import control
from ..passes.inlining import inline_calls
from ..passes.quantized.products_named import NamedProduct, main_function, mark_weights, named_products

Change = Callable[[Array, Array], Array]
"""Computes a product of its input and its weights in another way."""


@dataclass(frozen=True)
class TracedSource:
    """The module of a source, whose calls are inlined; weights: for each input, whether it is weights."""

    module: ModuleOp
    signature: Signature
    weights: tuple[bool, ...]
    products: tuple[NamedProduct, ...]
    name: str

    @property
    def names(self) -> list[str]:
        """What the products are called."""
        return [p.name for p in self.products]

    def run(self, runner: GraphRunner, leaves: Sequence[Any]) -> list[Array]:
        """The flat results of the program."""
        main = main_function(self.module)
        env: Env = dict(zip(main.body.block.args, leaves, strict=True))
        return runner.block(main.body.block, env)


def trace_source(
    source: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    weights: Sequence[str] | None,
    target: str | None = None,
) -> TracedSource:
    """Traces a source for arguments of such types, and a target. Raises CompileError for what cannot be traced or calls
    the host."""
    with as_compile_error():
        origin = sized_origin(source, args, kwargs, target)
        module, signature = named_module(origin)
        inline_calls(module)
        flags = mark_weights(module, weights)
        found = named_products(module, flags)
        if needs_host(main_function(module)):
            raise CompileError(
                f"{origin.name} calls the host, which no gradient and no calibration goes through"
            )
    return TracedSource(module, signature, tuple(flags), tuple(found), origin.name)


def flat_inputs(
    traced: TracedSource, source: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Arguments with values as the flat inputs. Raises CompileError where they do not fit."""
    call = called(source, args, kwargs)
    given = (call.args, call.kwargs) if call is not None else (tuple(args), dict(kwargs))
    return traced.signature.flatten(traced.name, *given)


class ChangedRunner(GraphRunner):
    """Runs a module with some products computed in another way. A gradient goes through loops that are counted."""

    def __init__(self, products: Sequence[NamedProduct], changes: Mapping[str, Change]):
        super().__init__()
        self.changes = {p.op: (p, changes[p.name]) for p in products if p.name in changes}

    def op(self, op: Operation, env: Env) -> None:
        found = self.changes.get(op)  # pyright: ignore[reportArgumentType]  # others are not there
        if found is None:
            super().op(op, env)
        else:
            product, change = found
            env[op.results[0]] = change(env[product.input], env[product.weights])

    def loop(self, op: control.WhileOp, env: Env) -> list[Array]:
        if op.trip_count is None or needs_host(op):
            return super().loop(op, env)
        block = op.body.block

        def step(state: list[Array], _: None) -> tuple[list[Array], None]:
            return self.block(block, {**env, **dict(zip(block.args, state, strict=True))}), None

        return lax.scan(step, [env[v] for v in op.inits], None, integer(op.trip_count))[0]


class WatchingRunner(GraphRunner):
    """Runs a module and gathers what it is told of each product's input: `update(state, x)` gives the next state."""

    def __init__(
        self,
        products: Sequence[NamedProduct],
        states: dict[str, Any],
        update: Callable[[str, Any, Array], Any],
    ):
        super().__init__()
        self.products = {p.op: p for p in products if p.name in states}
        self.states, self.update = states, update

    def op(self, op: Operation, env: Env) -> None:
        product = self.products.get(op)  # pyright: ignore[reportArgumentType]
        if product is not None:
            self.states[product.name] = self.update(
                product.name, self.states[product.name], env[product.input]
            )
        super().op(op, env)

    def loop(self, op: control.WhileOp, env: Env) -> list[Array]:
        inside = [p.name for p in (self.products.get(i) for i in op.body.walk()) if p is not None]  # pyright: ignore
        if not inside or needs_host(op):
            return super().loop(op, env)
        block, condition = op.body.block, op.condition.block
        count = None if op.trip_count is None else integer(op.trip_count)

        def go_on(carry: tuple[Array, list[Array], dict[str, Any]]) -> Array:
            trip, state, _ = carry
            if count is not None:
                return lax.lt(trip, np.int32(count))
            found = self.block(condition, {**env, **dict(zip(condition.args, state, strict=True))})
            return lax.reshape(found[0], ())

        def step(
            carry: tuple[Array, list[Array], dict[str, Any]],
        ) -> tuple[Array, list[Array], dict[str, Any]]:
            trip, state, seen = carry
            outer, self.states = self.states, {**self.states, **seen}
            state = self.block(block, {**env, **dict(zip(block.args, state, strict=True))})
            seen, self.states = {n: self.states[n] for n in inside}, outer
            return trip + 1, state, seen

        start = (jnp.int32(0), [env[v] for v in op.inits], {n: self.states[n] for n in inside})
        _, end, seen = lax.while_loop(go_on, step, start)
        self.states.update(seen)
        return end

    def case(self, op: control.CaseOp, env: Env) -> list[Array]:
        hidden = [p.name for p in (self.products.get(i) for i in op.walk()) if p is not None]  # pyright: ignore
        if not hidden:
            return super().case(op, env)
        raise CompileError(
            f"{hidden[0]} is multiplied in one of several branches: calibrate it outside of them"
        )
