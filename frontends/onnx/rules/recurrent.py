"""RNN, GRU and LSTM: one projection of all inputs, then a scan over time for all directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....dialects.elementwise import value_of
from ..node import Node
from ..table import add_rules
from .elementwise import elu, hard_sigmoid, leaky_relu, softplus, softsign

Activation = Callable[[Any], Any]


def _activations() -> Mapping[str, tuple[Callable[[Any, float, float], Any], float | None, float | None]]:
    """By lower-case name: the function of x, alpha and beta, and what these are by default; None where it has none."""
    import jax.numpy as jnp

    tanh, sigmoid = value_of("tanh"), value_of("logistic")
    return {
        "relu": (lambda x, a, b: jnp.maximum(x, 0), None, None),
        "tanh": (lambda x, a, b: tanh(x), None, None),
        "sigmoid": (lambda x, a, b: sigmoid(x), None, None),
        "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
        "leakyrelu": (lambda x, a, b: leaky_relu(x, a), 0.01, None),
        "thresholdedrelu": (lambda x, a, b: jnp.where(x >= a, x, 0), 1.0, None),
        "scaledtanh": (lambda x, a, b: a * tanh(b * x), 1.0, 1.0),
        "hardsigmoid": (hard_sigmoid, 0.2, 0.5),
        "elu": (lambda x, a, b: elu(x, a), 1.0, None),
        "softsign": (lambda x, a, b: softsign(x), None, None),
        "softplus": (lambda x, a, b: softplus(x), None, None),
    }


DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
"""The activations of a direction."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _functions(node: Node, directions: int) -> list[Activation]:
    """The activations of a cell, each for the values of all directions. Inputs are clipped, unless the limit is 0,
    which exporters write for none."""
    import jax.numpy as jnp

    names = node.get("activations") or DEFAULTS[node.op] * directions
    count, table = len(DEFAULTS[node.op]), _activations()
    if len(names) != count * directions:
        raise node.unsupported(f"it has {len(names)} activations, and needs {count * directions}")
    unknown = next((n for n in names if n.lower() not in table), None)
    if unknown is not None:
        raise node.unsupported(f"{unknown} is no activation")
    clip = node.get("clip") or None
    rows = [table[n.lower()] for n in names]
    alphas = _consumed(node.get("activation_alpha", []), [row[1] for row in rows])
    betas = _consumed(node.get("activation_beta", []), [row[2] for row in rows])

    def of(k: int) -> Activation:
        def apply(x: Any) -> Any:
            return rows[k][0](x if clip is None else jnp.clip(x, -clip, clip), alphas[k], betas[k])

        return apply

    def of_all(k: int) -> Activation:
        """The k-th of each direction; one function where they are the same."""
        own = [k + d * count for d in range(directions)]
        if len({(names[i].lower(), alphas[i], betas[i]) for i in own}) == 1:
            return of(k)
        return lambda x: jnp.stack([of(i)(x[d]) for d, i in enumerate(own)])

    return [of_all(k) for k in range(count)]


def _consumed(given: Sequence[float], defaults: Sequence[float | None]) -> list[float]:
    """Parameters of activations: one for each, or in turn for those that have one."""
    if len(given) == len(defaults):
        return list(given)
    left = iter(given)
    return [0.0 if d is None else next(left, d) for d in defaults]


@dataclass
class _Cell:
    """What a step computes with.

    r: [directions,] hidden, gates * hidden; own: the bias of a GRU's hidden gate that is not in the projection;
    peepholes: of an LSTM, [directions,] 1, 3 * hidden. Directions are left out where there is one.
    """

    node: Node
    functions: list[Activation]
    r: Any
    own: Any
    peepholes: Any

    def part(self, x: Any, k: int, to: int | None = None) -> Any:
        """Gate k of an array, or all up to gate `to`."""
        n = self.r.shape[-2]
        return x[..., k * n : (k + 1 if to is None else to) * n]

    def __call__(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state after a step. x: the projection of its input."""
        return {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.node.op](x, state)

    def _rnn(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.functions[0](x + state[0] @ self.r),)

    def _gru(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        f, g = self.functions
        (h,) = state
        if self.node.get("linear_before_reset", 0):
            product = h @ self.r
            z, r = (f(self.part(x, k) + self.part(product, k)) for k in range(2))
            new = g(self.part(x, 2) + r * (self.part(product, 2) + self.own))
        else:
            gates = f(self.part(x, 0, 2) + h @ self.part(self.r, 0, 2))
            z, r = (self.part(gates, k) for k in range(2))
            new = g(self.part(x, 2) + (r * h) @ self.part(self.r, 2) + self.own)
        return ((1 - z) * new + z * h,)

    def _lstm(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        f, g, last = self.functions
        h, c = state
        gates = x + h @ self.r
        i, o, forget, new = (self.part(gates, k) for k in range(4))
        peep = self.peepholes
        i = f(i if peep is None else i + self.part(peep, 0) * c)
        if self.node.get("input_forget", 0):
            forget = 1 - i
        else:
            forget = f(forget if peep is None else forget + self.part(peep, 2) * c)
        c = forget * c + i * g(new)
        o = f(o if peep is None else o + self.part(peep, 1) * c)
        return (o * last(c), c)


def _recurrent(
    node: Node,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> Any:
    import jax
    import jax.numpy as jnp

    directions, gates, hidden = w.shape[0], GATES[node.op], r.shape[-1]
    direction = node.get("direction", "forward").lower()
    if directions != (2 if direction == "bidirectional" else 1):
        raise node.unsupported(f"it is {direction} and has weights of {directions} directions")
    _check_sizes(node, hidden, {"weights": w, "recurrence weights": r, "biases": b, "peepholes": p})
    if node.get("layout", 0):
        x, h, c = (v if v is None else jnp.swapaxes(v, 0, 1) for v in (x, h, c))
    bias = jnp.zeros((directions, 2 * gates * hidden), x.dtype) if b is None else b
    bias, own = _biases(node, bias, hidden)
    steps, batch = x.shape[:2]
    projected = jnp.einsum("sbi,dgi->sdbg", x, w) + bias[:, None]
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    projected = _turned(projected, backward, lengths)
    starts = [h, c] if node.op == "LSTM" else [h]
    states = [jnp.zeros((directions, batch, hidden), x.dtype) if s is None else s for s in starts]

    def bare(v: Any, axis: int = 0) -> Any:
        """A value without its one direction."""
        return v.squeeze(axis) if directions == 1 and v is not None else v

    peepholes = None if p is None else bare(p[:, None])
    cell = _Cell(
        node, _functions(node, directions), bare(jnp.swapaxes(r, 1, 2)), bare(own[:, None]), peepholes
    )
    wanted = bool(node.outputs) and bool(node.outputs[0])

    def step(state: tuple[Any, ...], given: Any) -> Any:
        row, lasts = given
        after = tuple(v.astype(x.dtype) for v in cell(row, state))
        out = after[0]
        if lasts is not None:
            after = tuple(jnp.where(lasts, a, s) for a, s in zip(after, state, strict=True))
            out = jnp.where(lasts, out, jnp.zeros((), out.dtype))
        return after, (out if wanted else None)

    counts = None if lengths is None else (jnp.arange(steps)[:, None] < lengths)[..., None]
    final, y = jax.lax.scan(step, tuple(map(bare, states)), (bare(projected, 1), counts))
    final = [v[None] if directions == 1 else v for v in final]
    if wanted:
        y = _turned(y[:, None] if directions == 1 else y, backward, lengths)
    if node.get("layout", 0):
        final = [jnp.swapaxes(v, 0, 1) for v in final]
        y = jnp.transpose(y, (2, 0, 1, 3)) if wanted else y
    return (y, *final)


def _check_sizes(node: Node, hidden: Any, operands: Mapping[str, Any]) -> None:
    """Raises Unsupported where weights are of other sizes than a cell of so many hidden values takes."""
    gates, directions = GATES[node.op], operands["weights"].shape[0]
    wanted = {"weights": gates, "recurrence weights": gates, "biases": 2 * gates, "peepholes": 3}
    for what, value in operands.items():
        if value is None:
            continue
        if value.shape[0] != directions:
            raise node.unsupported(
                f"its {what} are for {value.shape[0]} directions, and its weights for {directions}"
            )
        if value.shape[1] != wanted[what] * hidden:
            given = f"its {what} have {value.shape[1]} rows for each direction"
            raise node.unsupported(f"{given}, and {hidden} hidden values take {wanted[what] * hidden}")


def _biases(node: Node, bias: Any, hidden: int) -> tuple[Any, Any]:
    """Biases that are in the projection, and that of a GRU's hidden gate where it belongs to the recurrence."""
    import jax.numpy as jnp

    half = GATES[node.op] * hidden
    of_input, of_recurrence = bias[:, :half], bias[:, half:]
    if node.op != "GRU" or not node.get("linear_before_reset", 0):
        return of_input + of_recurrence, jnp.zeros((bias.shape[0], 1), bias.dtype)
    first = of_input[:, : 2 * hidden] + of_recurrence[:, : 2 * hidden]
    return jnp.concatenate([first, of_input[:, 2 * hidden :]], axis=1), of_recurrence[:, 2 * hidden :]


def _turned(x: Any, backward: Sequence[bool], lengths: Any) -> Any:
    """Values of all steps and directions, in the other order for directions that go backward: within each example's
    length, so that what is behind it stays there."""
    import jax.numpy as jnp

    if not any(backward):
        return x
    if lengths is None:
        turned = jnp.flip(x, 0)
    else:
        steps = jnp.arange(x.shape[0])[:, None]
        places = jnp.where(steps < lengths, lengths - 1 - steps, steps)
        turned = jnp.take_along_axis(x, places[:, None, :, None], axis=0)
    if all(backward):
        return turned
    return jnp.stack([(turned if b else x)[:, d] for d, b in enumerate(backward)], axis=1)


add_rules(["RNN", "GRU", "LSTM"], _recurrent)
