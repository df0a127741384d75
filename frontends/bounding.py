"""The primitive of JAX behind `tw.bounded`: the identity, which StableHLO has as a composite that we know."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..dialects.graph.extents import BOUNDED


def mark(x: Any, n: Any, axis: int) -> Any:
    """x, of which the first n elements along an axis count, where JAX traces."""
    return _primitive().bind(x, n, axis=axis)


def _as_composite(ctx: Any, x: Any, n: Any, *, axis: int) -> Any:
    """`jax.lax.composite` does not take shapes that are symbolic."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, stablehlo

    module = ctx.module_context
    with ir.InsertionPoint.at_block_begin(module.module.body):
        function = func.FuncOp(BOUNDED, ir.FunctionType.get([x.type, n.type], [x.type]), visibility="private")
    module.symbol_table.insert(function)
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        func.ReturnOp([block.arguments[0]])
    made = stablehlo.CompositeOp(
        [x.type],
        [x, n],
        name=BOUNDED,
        decomposition=ir.FlatSymbolRefAttr.get(function.name.value),
        composite_attributes=ir.DictAttr.get(
            {"dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)}
        ),
    )
    return made.results


@cache
def _primitive() -> Any:
    import jax
    import jax.numpy as jnp
    from jax.core import ShapedArray
    from jax.extend import core
    from jax.interpreters import ad, batching, mlir

    symbolic_zero: Any = ad.Zero
    made = core.Primitive("tilewright_bounded")

    def batch(args: Any, dims: Any, *, axis: int) -> Any:
        x, n = args
        at, per_example = dims
        if at is None:
            x, at = jnp.broadcast_to(x, (n.shape[per_example], *x.shape)), 0
        return made.bind(x, n, axis=axis + (at <= axis)), at

    def tangent(primals: Any, tangents: Any, *, axis: int) -> Any:
        x, n = primals
        out = made.bind(x, n, axis=axis)
        if type(tangents[0]) is symbolic_zero:
            return out, symbolic_zero.from_primal_value(out)
        return out, made.bind(tangents[0], n, axis=axis)

    def transposed(ct: Any, x: Any, n: Any, *, axis: int) -> Any:
        """All of x has a derivative; it is zero by what does not count."""
        counts = jax.lax.broadcasted_iota(jnp.int32, ct.shape, axis) < n
        return made.bind(jnp.where(counts, ct, 0), jnp.int32(ct.shape[axis]), axis=axis), None

    made.def_impl(lambda x, n, axis: x)
    made.def_abstract_eval(lambda x, n, axis: ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(made, _as_composite)
    batching.primitive_batchers[made] = batch
    ad.primitive_jvps[made] = tangent
    ad.primitive_transposes[made] = transposed
    return made
