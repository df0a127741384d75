"""RNN, GRU and LSTM beside a plain loop over examples, steps and directions in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx_models import check, model_of, outputs
from tiering import sampled

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}

ACTIVATIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
    "Softplus": lambda x, a, b: np.logaddexp(0, x),
}
ALPHAS = {
    "Affine": 1.0,
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "ScaledTanh": 1.0,
    "HardSigmoid": 0.2,
    "Elu": 1.0,
}
BETAS = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}


def cell(
    op: str, f: list[Any], x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, p: Any, attributes: Any
) -> Any:
    """A step of one example."""
    n = h.shape[0]
    own, back = b[: len(b) // 2], b[len(b) // 2 :]
    a = np.split(w @ x + own, GATES[op])
    e = np.split(r @ h + back, GATES[op])
    if op == "RNN":
        return f[0](a[0] + e[0]), c
    if op == "GRU":
        z, reset = f[0](a[0] + e[0]), f[0](a[1] + e[1])
        if attributes.get("linear_before_reset"):
            new = f[1](a[2] + reset * e[2])
        else:
            new = f[1](a[2] + r[2 * n :] @ (reset * h) + back[2 * n :])
        return (1 - z) * new + z * h, c
    i = f[0](a[0] + e[0] + p[:n] * c)
    forget = 1 - i if attributes.get("input_forget") else f[0](a[2] + e[2] + p[2 * n :] * c)
    c = forget * c + i * f[1](a[3] + e[3])
    return f[0](a[1] + e[1] + p[n : 2 * n] * c) * f[2](c), c


def plain(op: str, inputs: list[Any], attributes: dict[str, Any]) -> list[np.ndarray]:
    """What an op gives, in f64 and the order of layout 0."""
    x, w, r, b, lengths, h0, c0, p = (
        None if v is None else v if v.dtype.kind == "i" else v.astype(np.float64)
        for v in (*inputs, *[None] * (8 - len(inputs)))
    )
    directions, n = w.shape[0], r.shape[-1]
    if attributes.get("layout"):
        x, h0, c0 = (None if v is None else v.swapaxes(0, 1) for v in (x, h0, c0))
    steps, batch = x.shape[:2]
    b = np.zeros((directions, 2 * GATES[op] * n)) if b is None else b
    p = np.zeros((directions, 3 * n)) if p is None else p
    names = attributes.get("activations", DEFAULTS[op] * directions)
    alphas, betas = iter(attributes.get("activation_alpha", [])), iter(attributes.get("activation_beta", []))
    clip = attributes.get("clip") or np.inf  # 0 is none

    def of(name: str) -> Any:
        alpha = next(alphas, ALPHAS[name]) if name in ALPHAS else 0
        beta = next(betas, BETAS[name]) if name in BETAS else 0
        return lambda v: ACTIVATIONS[name](np.clip(v, -clip, clip), alpha, beta)

    functions = [of(name) for name in names]
    y = np.zeros((steps, directions, batch, n))
    y_h, y_c = np.zeros((2, directions, batch, n))
    for d in range(directions):
        backward = d == 1 or attributes.get("direction") == "reverse"
        f = functions[d * FUNCTIONS[op] :][: FUNCTIONS[op]]
        for e in range(batch):
            h = np.zeros(n) if h0 is None else h0[d, e]
            c = np.zeros(n) if c0 is None else c0[d, e]
            size = steps if lengths is None else lengths[e]
            for t in range(size)[:: -1 if backward else 1]:
                h, c = cell(op, f, x[t, e], h, c, w[d], r[d], b[d], p[d], attributes)
                y[t, d, e] = h
            y_h[d, e], y_c[d, e] = h, c
    if attributes.get("layout"):
        y, y_h, y_c = y.transpose(2, 0, 1, 3), y_h.swapaxes(0, 1), y_c.swapaxes(0, 1)
    return [y, y_h, y_c] if op == "LSTM" else [y, y_h]


def arrays(
    op: str,
    directions: int,
    steps: int,
    batch: int,
    size: int,
    n: int,
    given: str = "bhcp",
    dtype: Any = np.float32,
    layout: int = 0,
) -> list[Any]:
    """Inputs of an op. given: which of those that may be left out there are; s: lengths."""
    rng = np.random.default_rng(steps * 7 + n)

    def draw(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 0.7).astype(dtype)

    def states() -> np.ndarray:
        v = draw(directions, batch, n)
        return v.swapaxes(0, 1).copy() if layout else v

    x, g = draw(steps, batch, size), GATES[op]
    made = [
        x.swapaxes(0, 1).copy() if layout else x,
        draw(directions, g * n, size),
        draw(directions, g * n, n),
        draw(directions, 2 * g * n) if "b" in given else None,
        rng.integers(0, steps + 1, batch).astype(np.int32) if "s" in given else None,
        states() if "h" in given else None,
    ]
    if op == "LSTM":
        made += [states() if "c" in given else None, draw(directions, 3 * n) if "p" in given else None]
    return made


def moderate(op: str, inputs: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """The inputs, halved until no output is above 10: a gate that is not bounded multiplies the state by itself, which
    after a few steps is infinite in f32 and finite in f64."""
    with np.errstate(over="ignore", invalid="ignore"):
        while not all(abs(v).max() <= 10 for v in plain(op, inputs, attributes)):
            inputs = [v if v is None or v.dtype.kind == "i" else v / 2 for v in inputs]
    return inputs


def compare(op: str, inputs: list[Any], rtol: float = 1e-4, opset: int = 22, **attributes: Any) -> None:
    model = model_of(
        op, inputs, len(plain_names(op)), opset=opset, hidden_size=inputs[2].shape[-1], **attributes
    )
    got = outputs(model, *[v for v in inputs if v is not None])
    want = plain(op, inputs, attributes)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype == inputs[0].dtype
        np.testing.assert_allclose(np.asarray(a).astype(np.float64), b, rtol=rtol, atol=rtol)


def plain_names(op: str) -> str:
    return "yhc" if op == "LSTM" else "yh"


DIRECTIONS = ["forward", "reverse", "bidirectional"]


@sampled(2)
@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("given", "layout"), [("", 0), ("bhcp", 1), ("bshcp", 0)])
def test_directions_inputs_and_layouts(op: str, direction: str, given: str, layout: int) -> None:
    inputs = arrays(op, 1 + (direction == DIRECTIONS[2]), 5, 3, 4, 2, given, layout=layout)
    compare(op, inputs, direction=direction, **({"layout": 1} if layout else {}))


@settings(max_examples=15, deadline=None)
@given(
    op=st.sampled_from(list(GATES)),
    direction=st.sampled_from(DIRECTIONS),
    sizes=st.tuples(*[st.sampled_from([1, 2, 3, 7])] * 4),
    inputs=st.sets(st.sampled_from("bshcp")).map("".join),
    names=st.lists(st.sampled_from(list(ACTIVATIONS)), min_size=6, max_size=6),
    parameters=st.booleans(),
    clip=st.sampled_from([None, 0.0, 0.3, 5.0]),
    flag=st.booleans(),
    layout=st.integers(0, 1),
)
@example("GRU", "forward", (7, 1, 1, 3), "", ["Affine", "Softplus"] * 3, False, None, False, 0)
def test_all_attributes(
    op: str,
    direction: str,
    sizes: tuple[int, ...],
    inputs: str,
    names: list[str],
    parameters: bool,
    clip: float | None,
    flag: bool,
    layout: int,
) -> None:
    directions = 1 + (direction == DIRECTIONS[2])
    attributes: dict[str, Any] = {"direction": direction, "activations": names[: directions * FUNCTIONS[op]]}
    if parameters:
        own = attributes["activations"]
        alphas = [0.3 + 0.1 * i for i, name in enumerate(own) if name in ALPHAS]
        betas = [0.6 - 0.1 * i for i, name in enumerate(own) if name in BETAS]
        attributes |= {k: v for k, v in (("activation_alpha", alphas), ("activation_beta", betas)) if v}
    if clip is not None:
        attributes["clip"] = clip
    if flag and op != "RNN":
        attributes["linear_before_reset" if op == "GRU" else "input_forget"] = 1
    if layout:
        attributes["layout"] = 1
    given_arrays = moderate(op, arrays(op, directions, *sizes, inputs, layout=layout), attributes)
    compare(op, given_arrays, rtol=1e-3, **attributes)


@pytest.mark.parametrize("op", list(GATES))
def test_a_clip_of_zero_is_none(op: str) -> None:
    compare(op, arrays(op, 1, 3, 2, 3, 4), clip=0.0)


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("opset", [7, 14, 22])
def test_opsets(op: str, opset: int) -> None:
    compare(op, arrays(op, 2, 4, 2, 3, 5), opset=opset, direction="bidirectional")


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float16, 1e-2), (ml_dtypes.bfloat16, 6e-2), (np.float64, 1e-9)]
)
def test_dtypes(op: str, dtype: Any, rtol: float) -> None:
    compare(op, arrays(op, 2, 4, 2, 3, 5, "bshcp", dtype), rtol, direction="bidirectional", clip=3.0)


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (3, 0, 3, 4), (3, 2, 0, 4)])
def test_empty(op: str, sizes: tuple[int, ...]) -> None:
    compare(op, arrays(op, 2, *sizes), direction="bidirectional")


@pytest.mark.parametrize("op", list(GATES))
def test_as_the_reference_has_it(op: str) -> None:
    inputs = arrays(op, 2, 4, 2, 3, 5)
    given = [v for v in inputs if v is not None]
    check(
        model_of(op, inputs, 3 if op == "LSTM" else 2, opset=22, hidden_size=5, direction="bidirectional"),
        *given,
    )


@pytest.mark.parametrize("op", list(GATES))
def test_inputs_are_projected_at_once(op: str) -> None:
    """One product for all steps and directions outside of one scan."""
    inputs = arrays(op, 2, 6, 2, 3, 5)
    model = model_of(op, inputs, 1, opset=22, hidden_size=5, direction="bidirectional")
    with jax.enable_x64(True):
        made = jax.make_jaxpr(OnnxFunction(read_model(model)))(*[v for v in inputs if v is not None])
    names = [e.primitive.name for e in made.eqns]
    assert names.count("scan") == names.count("dot_general") == 1


def test_outputs_that_are_left_out() -> None:
    inputs = arrays("LSTM", 1, 4, 2, 3, 5)
    model = model_of("LSTM", inputs, 3, opset=22, hidden_size=5)
    for name in ("y0", "y1"):
        model.graph.node[0].output[int(name[1])] = ""
    kept = model.graph.output[2]
    del model.graph.output[:]
    model.graph.output.append(kept)
    (got,) = outputs(model, *[v for v in inputs if v is not None])
    np.testing.assert_allclose(got, plain("LSTM", inputs, {})[2], rtol=1e-4, atol=1e-5)


def test_what_is_refused() -> None:
    inputs = arrays("RNN", 1, 2, 2, 2, 2, "")
    given = [v for v in inputs if v is not None]
    with pytest.raises(OnnxError, match="Sine is no activation"):
        outputs(model_of("RNN", inputs, opset=22, hidden_size=2, activations=["Sine"]), *given)
    with pytest.raises(OnnxError, match="it has 2 activations, and needs 1"):
        outputs(model_of("RNN", inputs, opset=22, hidden_size=2, activations=["Tanh", "Relu"]), *given)
    with pytest.raises(OnnxError, match="bidirectional and has weights of 1 directions"):
        outputs(model_of("RNN", inputs, opset=22, hidden_size=2, direction="bidirectional"), *given)
