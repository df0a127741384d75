"""What was traced on sizes that data decides, for arrays of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..bounding import first
from .errors import Unsupported

_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Primitives that call a function, and their parameter that is it."""

_MADE = {"broadcast_in_dim": "shape", "iota": "shape", "reshape": "new_sizes"}
"""Primitives with a parameter that is the shape of the result."""


class Reinterpreter:
    """Evaluates a jaxpr in which sizes that data decides are symbols. is_found: whether a size is one of these; number:
    a size as a value of the program; bound: the most that it can be."""

    def __init__(
        self, is_found: Callable[[Any], bool], number: Callable[[Any], Any], bound: Callable[[Any], Any]
    ) -> None:
        self._is_found, self._number, self._bound = is_found, number, bound

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The results for arrays of the bounds. Raises Unsupported for a primitive that takes such a size otherwise
        than as a shape."""
        from jax.extend.core import Literal

        env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

        def read(v: Any) -> Any:
            return v.val if isinstance(v, Literal) else env[v]

        for eqn in jaxpr.eqns:
            made = self._equation(eqn, list(map(read, eqn.invars)))
            env.update(zip(eqn.outvars, made, strict=True))
        return list(map(read, jaxpr.outvars))

    def _equation(self, eqn: Any, args: list[Any]) -> Sequence[Any]:
        name, params = eqn.primitive.name, eqn.params
        if name == "dim_as_value" and self._is_found(params["dim"]):
            return [self._number(params["dim"]).astype(eqn.outvars[0].aval.dtype)]
        if not self._mentions(params):
            return self._bound_to(eqn, params, args)
        if name in _INLINED:
            inner = params[_INLINED[name]]
            return self.evaluate(inner.jaxpr, inner.consts, args)
        if name in _MADE:
            return self._shaped(eqn, args)
        if name == "top_k":
            made = self._bound_to(eqn, {**params, "k": self._bound(params["k"])}, args)
            return [first(v, self._number(params["k"]), params.get("axis", -1)) for v in made]
        if name in ("slice", "dynamic_slice", "gather"):
            return self._sliced(eqn, args)
        if name in ("cond", "while", "scan"):
            return self._controlled(eqn, args)
        raise Unsupported(f"data decides a size in it ({name}), which only shapes can be")

    @staticmethod
    def _bound_to(eqn: Any, params: Any, args: list[Any]) -> Sequence[Any]:
        made = eqn.primitive.bind(*args, **eqn.primitive.get_bind_params(params))
        return made if eqn.primitive.multiple_results else [made]

    def _mentions(self, value: Any) -> bool:
        """Whether such a size is in parameters."""
        if isinstance(value, dict):
            return any(map(self._mentions, value.values()))
        if isinstance(value, tuple | list):
            return any(map(self._mentions, value))
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            made = [v.aval for e in inner.eqns for v in e.outvars]
            shapes = [getattr(a, "shape", ()) for a in (*made, *(v.aval for v in inner.invars))]
            return self._mentions(shapes) or any(self._mentions(e.params) for e in inner.eqns)
        from jax import export

        return export.is_symbolic_dim(value) and self._is_found(value)

    def _shaped(self, eqn: Any, args: list[Any]) -> list[Any]:
        """What is made in a shape: along the dimensions that are new, as many elements count as there are."""
        name, parameter = eqn.primitive.name, _MADE[eqn.primitive.name]
        shape = eqn.params[parameter]
        params = {**eqn.params, parameter: tuple(map(self._bound, shape))}
        (made,) = self._bound_to(eqn, params, args)
        if name == "reshape":
            return [made]
        kept = {}
        if name == "broadcast_in_dim":
            kept = dict(zip(eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape, strict=True))
        for d, n in enumerate(shape):
            if self._is_found(n) and kept.get(d) != n:
                made = first(made, self._number(n), d)
        return [made]

    def _sliced(self, eqn: Any, args: list[Any]) -> list[Any]:
        """A part of an array: as many elements as there are from a place on; or whole slices at indices."""
        import jax
        import jax.numpy as jnp

        x, whole, params = args[0], eqn.invars[0].aval.shape, eqn.params
        steps = (1,) * len(whole)
        match eqn.primitive.name:
            case "slice":
                begins: dict[int, Any] = dict(enumerate(params["start_indices"]))
                steps = params["strides"] or steps
                sizes = eqn.outvars[0].aval.shape
            case "dynamic_slice":
                begins, sizes = dict(enumerate(args[1:])), params["slice_sizes"]
            case _:
                sizes, numbers = params["slice_sizes"], params["dimension_numbers"]
                if all(not self._is_found(n) or n == whole[d] for d, n in enumerate(sizes)):
                    given = {**params, "slice_sizes": tuple(map(self._bound, sizes))}
                    return list(self._bound_to(eqn, given, args))
                if numbers.collapsed_slice_dims or args[1].ndim != 1:
                    raise Unsupported("data decides how long slices at indices are")
                begins = {d: args[1][k] for k, d in enumerate(numbers.start_index_map)}
        for d, n in enumerate(sizes):
            begin: Any = begins.get(d, 0)
            step = steps[d]
            if n == whole[d] and step == 1:
                continue
            if isinstance(begin, int) and not self._is_found(n):
                x = jax.lax.slice_in_dim(x, begin, begin + (n - 1) * step + 1, step, axis=d)
                continue
            begin = begin if hasattr(begin, "dtype") else self._number(begin)
            if step == 1 and not self._is_found(n):
                x = jax.lax.dynamic_slice_in_dim(x, begin, n, axis=d)
                continue
            places = begin + jnp.arange(self._bound(n), dtype=jnp.int64) * step
            x = first(jnp.take(x, places, axis=d, mode="clip"), self._number(n), d)
        return [x]

    def _controlled(self, eqn: Any, args: list[Any]) -> Sequence[Any]:
        """Branches and loops; how often a scan runs is not for data to decide."""
        import jax

        params = eqn.params

        def run(closed: Any, *given: Any) -> list[Any]:
            return self.evaluate(closed.jaxpr, closed.consts, given)

        match eqn.primitive.name:
            case "cond":
                return jax.lax.switch(args[0], [partial(run, b) for b in params["branches"]], *args[1:])
            case "while":
                k, m = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
                return jax.lax.while_loop(
                    lambda c: run(params["cond_jaxpr"], *args[:k], *c)[0],
                    lambda c: run(params["body_jaxpr"], *args[k:m], *c),
                    args[m:],
                )
        if self._is_found(params["length"]):
            raise Unsupported("data decides how often it goes on")
        k, m = params["num_consts"], params["num_consts"] + params["num_carry"]

        def step(carried: Any, row: Any) -> Any:
            made = run(params["jaxpr"], *args[:k], *carried, *row)
            return made[: m - k], made[m - k :]

        carried, rows = jax.lax.scan(
            step, args[k:m], args[m:], params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        return [*carried, *rows]
