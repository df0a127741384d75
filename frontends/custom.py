"""Functions of JAX that Tilewright takes for one op: a custom call where it compiles, a reference everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def custom_call(target: str, reference: Callable[..., Any], *args: Any, **attributes: int) -> Any:
    """Calls `reference(*args, **attributes)`, which Tilewright compiles as `stablehlo.custom_call @target`.

    A plugin has the rule for the target. JAX runs `reference` when Tilewright does not compile, and where the call
    is differentiated or batched.

    Args:
        target: The name of the custom call.
        reference: A function of arrays that returns one array.
        *args: The operands.
        **attributes: Integer attributes of the call.

    Returns:
        The array that `reference` returns.
    """
    return _primitive().bind(*args, target=target, reference=reference, attributes=tuple(sorted(attributes.items())))


def private_parameters(calls: bool = True) -> dict[str, Any]:
    """What `jax.stages.Traced.lower` has to be told, so that it lowers what it lowers otherwise, or not at all, for the
    host's CPU: products, and `calls` as custom calls as soon as there are some. JAX keeps what it lowers, and this is
    part of the key."""
    from jax._src.interpreters.mlir import LoweringParameters
    from jax._src.lax.lax import dot_general_p

    rules: Any = [(dot_general_p, _as_product)]
    if calls and _primitive.cache_info().currsize:
        rules.append((_primitive(), _as_call))
    return {"_private_parameters": LoweringParameters(override_lowering_rules=tuple(rules))}


def _as_product(ctx: Any, *operands: Any, precision: Any, **others: Any) -> Any:
    """A product that says how it adds up, as those of `jax.nn.dot_product_attention` in f16 do, is one of any platform:
    the CPU's has few such ways, and the cube adds up in f32."""
    from jax._src.lax.lax import (
        DotAlgorithm,
        DotAlgorithmPreset,
        _dot_general_lower,  # pyright: ignore[reportPrivateUsage]
    )

    platform = "default" if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)) else "cpu"
    return _dot_general_lower(ctx, *operands, precision=precision, platform=platform, **others)


def _as_call(ctx: Any, *operands: Any, target: str, attributes: tuple[tuple[str, int], ...], **_: Any) -> Any:
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    types = [ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(a.dtype)) for a in ctx.avals_out]
    known = {"call_target_name": ir.StringAttr.get(target)}
    given = {name: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value) for name, value in attributes}
    call = ir.Operation.create("stablehlo.custom_call", types, operands, attributes={**given, **known})
    return call.results


@cache
def _primitive() -> Any:
    import jax
    from jax.core import ShapedArray
    from jax.extend import core
    from jax.interpreters import ad, batching, mlir

    def run(*args: Any, target: str, reference: Callable[..., Any], attributes: tuple[tuple[str, int], ...]) -> Any:
        return reference(*args, **dict(attributes))

    def shape(*avals: Any, **params: Any) -> Any:
        structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        out = jax.eval_shape(lambda *xs: run(*xs, **params), *structs)
        return ShapedArray(out.shape, out.dtype)

    def batch(args: Any, dims: Any, **params: Any) -> Any:
        return jax.vmap(lambda *xs: run(*xs, **params), in_axes=dims)(*args), 0

    def tangent(primals: Any, tangents: Any, **params: Any) -> Any:
        known = [ad.instantiate_zeros(t) for t in tangents]
        return jax.jvp(lambda *xs: run(*xs, **params), tuple(primals), tuple(known))

    made = core.Primitive("tilewright_custom_call")
    made.def_impl(run)
    made.def_abstract_eval(shape)
    mlir.register_lowering(made, mlir.lower_fun(run, multiple_results=False))
    batching.primitive_batchers[made] = batch
    ad.primitive_jvps[made] = tangent
    return made
