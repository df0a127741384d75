"""What was traced on sizes that data decides, for arrays of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..bounding import first, whole
from .errors import Unsupported
from .values import elements_at

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

_MADE = {"broadcast_in_dim": "shape", "iota": "shape"}
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
        import jax

        name, params = eqn.primitive.name, eqn.params
        if name == "dim_as_value" and self._is_found(params["dim"]):
            return [self._number(params["dim"]).astype(eqn.outvars[0].aval.dtype)]
        if name in ("reshape", "squeeze") and self._takes_found(eqn):
            return [self._reshaped(args[0], eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape)]
        if name == "tile" and self._takes_found(eqn, params["reps"]):
            return [self._tiled(args[0], eqn.invars[0].aval.shape, params["reps"])]
        if name == "stack" and self._takes_found(eqn):
            return [
                jax.lax.concatenate([jax.lax.expand_dims(v, [params["axis"]]) for v in args], params["axis"])
            ]
        if name.startswith("scatter") and self._takes_found(eqn):
            return [self._scattered(eqn, args)]
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
        if name == "pad":
            return [self._padded(eqn, *args)]
        if name == "split":
            return self._split(args[0], params["sizes"], params["axis"])
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
        kept = {}
        if name == "broadcast_in_dim":
            kept = dict(zip(eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape, strict=True))
        for d, n in enumerate(shape):
            if self._is_found(n) and kept.get(d) != n:
                made = first(made, self._number(n), d)
        return [made]

    def _takes_found(self, eqn: Any, more: Sequence[Any] = ()) -> bool:
        """Whether data decides a size of an operand, or one of more."""
        return any(self._is_found(n) for v in eqn.invars for n in (*getattr(v.aval, "shape", ()), *more))

    def _whole(self, x: Any, shape: Sequence[Any]) -> Any:
        """An array with all elements of its bounds. shape: that in the model."""
        return whole(x, [d for d, n in enumerate(shape) if self._is_found(n)])

    def _first(self, x: Any, shape: Sequence[Any]) -> Any:
        """An array of which as many elements count as the shape says."""
        for d, n in enumerate(shape):
            if self._is_found(n):
                x = first(x, self._number(n), d)
        return x

    def _reshaped(self, x: Any, before: Sequence[Any], after: Sequence[Any]) -> Any:
        """The same elements in row-major order: where those that count are not the first ones of the bound, each is
        taken from its place."""
        bounds = [self._bound(n) for n in after]
        x = self._whole(x, before)
        if not self._keeps_order(before, after):
            return self._first(self._taken(x, before, after, bounds), after)
        grown = _product(bounds)
        flat = x.reshape(-1)
        return self._first(_resized(flat, grown).reshape(bounds), after)

    def _keeps_order(self, before: Sequence[Any], after: Sequence[Any]) -> bool:
        """Whether elements that count have the same places in row-major order in arrays of the bounds: data decides
        none but the outermost size, apart from those of 1."""
        return not any(self._is_found(n) for shape in (before, after) for n in self._inner(shape))

    def _inner(self, shape: Sequence[Any]) -> list[Any]:
        """The sizes behind the outermost one that is not 1."""
        outer = next((d for d, n in enumerate(shape) if not (isinstance(n, int) and n == 1)), len(shape))
        return list(shape[outer + 1 :])

    def _taken(self, x: Any, before: Sequence[Any], after: Sequence[Any], bounds: Sequence[Any]) -> Any:
        """The element at each place of an array of the bounds, by the number that it has among those that count."""
        import jax
        import jax.numpy as jnp

        number: Any = jnp.zeros(tuple(bounds), jnp.int64)
        stride: Any = 1
        for d in reversed(range(len(after))):
            number = number + jax.lax.broadcasted_iota(jnp.int64, tuple(bounds), d) * stride
            stride = stride * self._value(after[d])
        place: Any = jnp.zeros(tuple(bounds), jnp.int64)
        stride = 1
        for d in reversed(range(len(before))):
            size = self._value(before[d])
            place = place + number % jnp.maximum(size, 1) * stride
            number = number // jnp.maximum(size, 1)
            stride = stride * x.shape[d]
        return elements_at(x.reshape(-1), place, 0)

    def _value(self, dim: Any) -> Any:
        return self._number(dim) if self._is_found(dim) else dim

    def _tiled(self, x: Any, shape: Sequence[Any], repeats: Sequence[Any]) -> Any:
        """An array again and again, along each dimension so often."""
        import jax

        for d, r in enumerate(repeats):
            if isinstance(r, int) and r == 1:
                continue
            wide = [*shape[:d], r, *shape[d:]]
            kept = [k for k in range(len(wide)) if k != d]
            bounds = [x.shape[k - (k > d)] if k != d else self._bound(r) for k in range(len(wide))]
            x = self._first(
                jax.lax.broadcast_in_dim(x, bounds, kept), [r if k == d else 1 for k in range(len(wide))]
            )
            shape = [*shape[:d], r * shape[d], *shape[d + 1 :]]
            x = self._reshaped(x, wide, shape)
        return x

    def _split(self, x: Any, sizes: Sequence[Any], axis: int) -> list[Any]:
        """Parts of an array, one behind the other."""
        import jax.numpy as jnp

        made: list[Any] = []
        begin: Any = 0
        for n in sizes:
            places = self._value(begin) + jnp.arange(self._bound(n), dtype=jnp.int64)
            part = elements_at(x, places, axis)
            made.append(first(part, self._number(n), axis) if self._is_found(n) else part)
            begin = begin + n
        return made

    def _padded(self, eqn: Any, x: Any, value: Any) -> Any:
        """x between as many values as there are."""
        import jax.numpy as jnp

        before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        rest = list(eqn.params["padding_config"])
        for d, (low, _, interior) in enumerate(eqn.params["padding_config"]):
            if not self._mentions(rest[d]):
                continue
            if interior:
                raise Unsupported("data decides how much is put around elements that are apart")
            places = jnp.arange(self._bound(after[d]), dtype=jnp.int64) - self._value(low)
            there = (places >= 0) & (places < self._value(before[d]))
            there = there.reshape([-1 if k == d else 1 for k in range(x.ndim)])
            x = jnp.where(there, elements_at(x, places, d), value)
            x = first(x, self._number(after[d]), d)
            rest[d] = (0, 0, 0)
        if any(any(r) for r in rest):
            (x,) = self._bound_to(eqn, {**eqn.params, "padding_config": tuple(rest)}, [x, value])
        return x

    def _scattered(self, eqn: Any, args: list[Any]) -> Any:
        """A scatter of the updates that count."""
        import jax
        import jax.numpy as jnp

        x, indices, updates = args
        shapes = [v.aval.shape for v in eqn.invars]
        numbers = eqn.params["dimension_numbers"]
        windows = numbers.update_window_dims
        kept = [
            d
            for d in range(len(shapes[0]))
            if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        ]
        for d, w in zip(kept, windows, strict=True):
            if self._is_found(shapes[2][w]) and shapes[2][w] != shapes[0][d]:
                raise Unsupported("data decides how long updates are")
        for d, n in enumerate(shapes[1][:-1]):
            if self._is_found(n):
                there = jax.lax.broadcasted_iota(jnp.int64, indices.shape, d) < self._number(n)
                indices = jnp.where(there, indices, jnp.asarray(-1, indices.dtype))
        given = [self._whole(v, n) for v, n in zip((x, indices, updates), shapes, strict=True)]
        mode = jax.lax.GatherScatterMode.FILL_OR_DROP
        (made,) = self._bound_to(eqn, {**eqn.params, "mode": mode}, given)
        return self._first(made, shapes[0])

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
            x = first(elements_at(x, places, d), self._number(n), d)
        return [x]

    def _controlled(self, eqn: Any, args: list[Any]) -> Sequence[Any]:
        """Branches and loops."""
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
        k, m, length = params["num_consts"], params["num_consts"] + params["num_carry"], params["length"]
        count = self._number(length) if self._is_found(length) else None

        def step(carried: Any, given: Any) -> Any:
            i, row = given
            made = run(params["jaxpr"], *args[:k], *carried, *row)
            after = made[: m - k]
            if count is not None:  # what is behind the last step changes nothing
                after = [jax.numpy.where(i < count, a, b) for a, b in zip(after, carried, strict=True)]
            return after, made[m - k :]

        bound = self._bound(length)
        rows = (jax.numpy.arange(bound, dtype=jax.numpy.int64) if count is not None else None, args[m:])
        ways = {"reverse": params["reverse"], "unroll": params["unroll"]}
        carried, rows = jax.lax.scan(step, args[k:m], rows, bound, **ways)
        return [*carried, *(rows if count is None else (first(r, count, 0) for r in rows))]


def _product(sizes: Sequence[Any]) -> Any:
    count: Any = 1
    for n in sizes:
        count = count * n
    return count


def _resized(flat: Any, size: Any) -> Any:
    """The first elements of an array, with zeros behind them where there are not so many."""
    import jax.numpy as jnp

    own = flat.shape[0]
    if own == size:
        return flat
    if isinstance(own, int) and isinstance(size, int):
        return flat[:size] if size < own else jnp.pad(flat, (0, size - own))
    raise Unsupported(f"its bounds are {own} and {size} elements, and it is not known which are fewer")
