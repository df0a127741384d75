"""Random programs of floats as JAX writes them, with products that are quantized in a random configuration.

A program is a list of steps; step number i makes value number i. `function` is the JAX function of it, `floats` its
values in numpy, and `chain_model.py` has what the quantized program computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from layers import convolved

NUMBERS = ("NHWC", "HWIO", "NHWC")
PRODUCTS = ("conv", "dot", "transposed", "left", "batched", "heads")
AFFINE = ("times", "divided", "plus", "minus", "less")
MOVES = ("reshape", "transpose", "slice", "reverse")
ELEMENTWISE = (*AFFINE, "scaled", "relu", "relu6", "clip", "add", "tanh")
STATIC = ("w8a8", "w4a8")
WHOLE = (*STATIC, "w8a8-dynamic", "w4a8-dynamic", "w8a16")
"""Modes whose products are products of integers."""

FLOAT_MODES = ("w4a16", "w4a16-g4", "w8a16-g2", "f16", "bf16", "origin")
INEXACT = ("average", "mean", "tanh")
"""Steps whose floats depend on the order of additions, or on a library."""

TARGETS = ("ascend-910b1",) * 5 + ("ascend-310", "ascend-910a", "ascend-950pr")


@dataclass(frozen=True)
class Step:
    """One step: its kind, the values that it takes, the parameter that it takes, and what else it is told."""

    kind: str
    args: tuple[int, ...] = ()
    param: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [*(f"v{i}" for i in self.args), *([self.param] if self.param else [])]
        return f"{self.kind}({', '.join([*words, *(f'{k}={v}' for k, v in self.facts.items())])})"


@dataclass(frozen=True)
class Choice:
    """The mode that a configuration gives a product by its name, and the scale and zero point of its input."""

    mode: str
    scale: float
    zero: int


@dataclass(frozen=True)
class ChainProgram:
    """A program and how it is quantized. shapes: of the values; products: by the number of their step their names;
    pins: modes by name, which win over choices; default: the mode of products without a choice."""

    steps: tuple[Step, ...]
    shapes: tuple[tuple[int, ...], ...]
    params: Mapping[str, np.ndarray]
    x: np.ndarray
    target: str
    default: str = "origin"
    pins: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"v{i}: {list(self.shapes[i])} = {step}" for i, step in enumerate(self.steps)]
        kinds = {name: f"{p.dtype}{list(p.shape)}" for name, p in self.params.items()}
        lines += [f"params {kinds}", f"default {self.default}, pins {dict(self.pins)}"]
        lines += [f"{name}: {choice}" for name, choice in self.choices.items()]
        return "\n".join([*lines, f"{self.x.dtype}, results {self.results}, {self.target}"])

    @property
    def products(self) -> dict[int, str]:
        """The names of products, as docs/quantization.md says: of the weights, with a number from the second on."""
        seen: dict[str, int] = {}
        names = {}
        for i, step in enumerate(self.steps):
            if step.kind in PRODUCTS:
                seen[step.param] = seen.get(step.param, 0) + 1
                count = f"#{seen[step.param]}" if seen[step.param] > 1 else ""
                names[i] = f"params['{step.param}']{count}"
        return names

    def mode(self, name: str) -> str:
        """The mode of a product: a pin's, or its own, or the default."""
        own = self.choices[name].mode if name in self.choices else self.default
        return self.pins.get(name, own)

    @property
    def results(self) -> list[int]:
        """The values that the program gives: those that no step takes."""
        taken = {v for step in self.steps for v in step.args}
        return [i for i in range(len(self.steps)) if i not in taken]

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded but element by element: all products are of integers, and no floats are added
        up."""
        modes = [self.mode(name) for name in self.products.values()]
        return all(m in WHOLE for m in modes) and not any(s.kind in INEXACT for s in self.steps)

    def function(self) -> Callable[..., Any]:
        """The JAX function of it, of params and x."""

        def chain(params: Mapping[str, jax.Array], x: jax.Array) -> list[jax.Array]:
            values: list[jax.Array] = []
            for step in self.steps:
                taken = [values[i] for i in step.args]
                values.append(x if step.kind == "input" else _jax(step, taken, params))
            return [values[i] for i in self.results]

        return chain

    def floats(self) -> list[np.ndarray]:
        """The values of all steps without quantization, in f64."""
        values: list[np.ndarray] = []
        for step, shape in zip(self.steps, self.shapes, strict=True):
            taken = [values[i] for i in step.args]
            if step.kind == "input":
                values.append(self.x.astype(np.float64))
            elif step.kind in PRODUCTS:
                values.append(multiplied(step, taken[0], self.params[step.param].astype(np.float64), shape))
            else:
                values.append(plain(step, taken, self.params, shape))
        return values

    def prefix(self, count: int) -> ChainProgram:
        """The program of its first steps."""
        made = replace(self, steps=self.steps[:count], shapes=self.shapes[:count])
        names = set(made.products.values())
        used = {step.param for step in made.steps}
        return replace(
            made,
            params={k: v for k, v in self.params.items() if k in used},
            pins={k: v for k, v in self.pins.items() if k in names},
            choices={k: v for k, v in self.choices.items() if k in names},
        )


# -- what a step computes --------------------------------------------------------------------------------------


def _jax(step: Step, taken: Sequence[jax.Array], params: Mapping[str, jax.Array]) -> jax.Array:
    x, facts = taken[0], step.facts
    p = params[step.param] if step.param else None
    match step.kind:
        case "conv":
            assert p is not None
            return jax.lax.conv_general_dilated(
                x, p, facts["strides"], facts["pads"], rhs_dilation=facts["dilation"], dimension_numbers=NUMBERS,
                feature_group_count=facts["groups"],
            )  # fmt: skip
        case "dot":
            return x @ p
        case "transposed":
            assert p is not None
            return x @ p.T
        case "left":
            return p @ x
        case "batched":
            return jnp.einsum("btk,bkn->btn", x, p)
        case "heads":
            return jnp.einsum("btd,dhc->bthc", x, p)
        case "times" | "plus" | "minus" | "divided" | "less":
            assert p is not None
            p = jnp.reshape(
                p, [p.shape[facts["dims"].index(d)] if d in facts["dims"] else 1 for d in range(x.ndim)]
            )
            made = {
                "times": lambda: x * p,
                "plus": lambda: x + p,
                "minus": lambda: x - p,
                "less": lambda: p - x,
            }
            return made.get(step.kind, lambda: x / p)()
        case "scaled":
            return x * facts["by"]
        case "relu":
            return jax.nn.relu(x)
        case "relu6":
            return jax.nn.relu6(x)
        case "clip":
            return jnp.clip(x, facts["low"], facts["high"])
        case "tanh":
            return jnp.tanh(x)
        case "add":
            return x + taken[1]
        case "concat":
            return jnp.concatenate(taken, facts["dim"])
        case "largest" | "average":
            kind = (jax.lax.max, -jnp.inf) if step.kind == "largest" else (jax.lax.add, 0.0)
            size, stride = facts["size"], facts["stride"]
            made = jax.lax.reduce_window(
                x,
                kind[1],
                kind[0],
                (1, size, size, 1),
                (1, stride, stride, 1),
                [(0, 0), *facts["pads"], (0, 0)],
            )
            return made if step.kind == "largest" else made / (size * size)
        case "mean":
            return x.mean((1, 2))
        case "reshape":
            return x.reshape(facts["to"])
        case "transpose":
            return jnp.transpose(x, facts["perm"])
        case "slice":
            return x[tuple(slice(*s) for s in facts["parts"])]
        case _:
            assert step.kind == "reverse"
            return jnp.flip(x, facts["dim"])


def multiplied(step: Step, x: np.ndarray, w: np.ndarray, out: Sequence[int]) -> np.ndarray:
    """A product in the type of its operands."""
    match step.kind:
        case "conv":
            f = step.facts
            low, high = zip(*f["pads"], strict=True)
            return convolved(x, w, out, f["strides"], low, high, (1, 1), f["dilation"], f["groups"])
        case "dot":
            return x @ w
        case "transposed":
            return x @ w.T
        case "left":
            return w @ x
        case "batched":
            return x @ w
        case _:
            return np.einsum("btd,dhc->bthc", x, w)


def plain(
    step: Step, taken: Sequence[np.ndarray], params: Mapping[str, np.ndarray], out: Sequence[int]
) -> np.ndarray:
    """What a step that is no product computes, in the type of what it takes: each operation is rounded to it."""
    x, facts = taken[0], step.facts
    kind = x.dtype.type
    p = np.zeros(())
    if step.param:
        p = params[step.param].astype(x.dtype)
        p = p.reshape([p.shape[facts["dims"].index(d)] if d in facts["dims"] else 1 for d in range(x.ndim)])
    match step.kind:
        case "times":
            return x * p
        case "divided":
            return x / p
        case "plus":
            return x + p
        case "minus":
            return x - p
        case "less":
            return p - x
        case "scaled":
            return x * kind(facts["by"])
        case "relu":
            return np.maximum(x, kind(0))
        case "relu6":
            return np.clip(x, kind(0), kind(6))
        case "clip":
            return np.clip(x, kind(facts["low"]), kind(facts["high"]))
        case "tanh":
            return np.tanh(x)
        case "add":
            return x + taken[1]
        case "concat":
            return np.concatenate(taken, facts["dim"])
        case "largest":
            return pooled(step, x, np.max, -np.inf)
        case "average":
            return pooled(step, x.astype(np.float64), np.sum, 0).astype(x.dtype) / kind(facts["size"] ** 2)
        case "mean":
            return x.astype(np.float64).mean((1, 2)).astype(x.dtype)
        case _:
            return moved(step, x)


def moved(step: Step, x: np.ndarray) -> np.ndarray:
    """What a step that only moves elements gives."""
    facts = step.facts
    match step.kind:
        case "reshape":
            return x.reshape(facts["to"])
        case "transpose":
            return np.transpose(x, facts["perm"])
        case "slice":
            return x[tuple(slice(*s) for s in facts["parts"])]
        case _:
            return np.flip(x, facts["dim"])


def pooled(step: Step, x: np.ndarray, reduce: Callable[..., np.ndarray], beside: float) -> np.ndarray:
    """Windows of a tensor in NHWC."""
    size, stride = step.facts["size"], step.facts["stride"]
    x = np.pad(x, [(0, 0), *step.facts["pads"], (0, 0)], constant_values=beside)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    return reduce(windows[:, ::stride, ::stride], axis=(-2, -1))
