"""Whole nets quantized by qwix (Google's library for JAX) and by `tw.quantize`: accuracy or perplexity, and the SQNR of
logits against f32, side by side.

    python benchmarks/qwix_nets.py                 # all, some minutes; needs `pip install qwix==0.1.8`
    python benchmarks/qwix_nets.py digits          # nets whose name has this in it

Both get the same trained weights and the same calibration data, and both quantize the same products: those with
weights. qwix is no dependency of this project: install it into an environment of its own that has the project, too.

Two things of qwix decide what is compared. Its convolutions take weights and inputs of one type, so they stay f32 in
`w8a16` and `w4a16` and are `w8a8` in `w4a8`, here and there. Its static scales are the mean of batches' largest
numbers, here over all rows as ours; by default they would differ for each position of a sequence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import jax
import jax.numpy as jnp
import numpy as np
from quantized_accuracy import accuracy, tuned

import tilewright as tw
from tilewright.compression.measures import sqnr

Function = Callable[[Any], jax.Array]


@dataclass(frozen=True)
class Mode:
    """A mode that both have. ours: of `tw.quantize`, and of convolutions where those differ; weights, inputs: qwix's
    types; group: of weights that share a scale; method: what recovers weights, in both."""

    name: str
    ours: str
    weights: str
    inputs: str | None = None
    static: bool = False
    group: int | None = None
    method: str = ""
    convolutions: str | None = None


MODES = (
    Mode("w8a8", "w8a8", "int8", "int8", static=True),
    Mode("w8a8-dynamic", "w8a8-dynamic", "int8", "int8"),
    Mode("w8a16", "w8a16", "int8", convolutions="origin"),
    Mode("w4a16", "w4a16", "int4", group=128, convolutions="origin"),
    Mode("w4a16-g32", "w4a16-g32", "int4", group=32, convolutions="origin"),
    Mode("w4a16-g32, awq", "w4a16-g32", "int4", group=32, method="awq", convolutions="origin"),
    Mode("w4a16-g32, gptq", "w4a16-g32", "int4", group=32, method="gptq", convolutions="origin"),
    Mode("w4a8", "w4a8", "int4", "int8", static=True, convolutions="w8a8"),
    Mode("w4a8-dynamic", "w4a8-dynamic", "int4", "int8", convolutions="w8a8-dynamic"),
    Mode("w4a8-dynamic, gptq", "w4a8-dynamic", "int4", "int8", method="gptq", convolutions="w8a8-dynamic"),
)

TRAINED = Mode("w4a8-dynamic, trained", "w4a8-dynamic", "int4", "int8", convolutions="w8a8-dynamic")


# -- qwix ------------------------------------------------------------------------------------------------------


class Twin:
    """A net as a module of flax, which qwix takes: each product with weights is a module of its own, named as them.

    The net's jaxpr is run op by op: qwix looks at calls of `jax.lax.dot_general` and `conv_general_dilated`, and only
    products with weights are made by these.
    """

    def __init__(self, forward: Callable[..., Any], params: Any, x: jax.Array) -> None:
        from flax import linen as nn

        closed = jax.make_jaxpr(forward)(params, x)
        leaves, tree = jax.tree.flatten(params)
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.flatten_with_path(params)[0]]
        self.names = [
            "_".join(p.replace("[", " ").replace("]", " ").replace("'", " ").split()) for p in paths
        ]
        self.tree, self.leaves = tree, leaves
        run, names, count = self._run, self.names, len(leaves)
        numbers = {v: i for i, v in enumerate(closed.jaxpr.invars[:count])}
        products = [e for e in _products(closed.jaxpr) if e.invars[1] in numbers]
        self.ranks = {numbers[e.invars[1]]: e.invars[0].aval.ndim for e in products}
        self.convolutions = {
            names[numbers[e.invars[1]]] for e in products if e.primitive.name != "dot_general"
        }

        class Product(nn.Module):
            initial: Any

            @nn.compact
            def __call__(self, x: jax.Array, multiply: Callable[..., Any]) -> jax.Array:
                return multiply(x, self.param("w", lambda _: self.initial))

        class Net(nn.Module):
            @nn.compact
            def __call__(self, others: Sequence[Any], x: jax.Array) -> jax.Array:
                return run(closed, others, x, lambda i: Product(leaves[i], name=names[i]))

        self.module = Net()

    @property
    def params(self) -> dict[str, Any]:
        """Weights of products, as the module takes them."""
        return {self.names[i]: {"w": jnp.asarray(self.leaves[i])} for i in sorted(self.ranks)}

    @property
    def others(self) -> list[Any]:
        """All weights; those of products are not looked at."""
        return self.leaves

    def _run(
        self, closed: Any, others: Sequence[Any], x: jax.Array, product: Callable[[int], Any]
    ) -> jax.Array:
        env: dict[Any, Any] = dict(zip(closed.jaxpr.invars, [*others, x], strict=True))
        numbers = {v: i for i, v in enumerate(closed.jaxpr.invars) if i in self.ranks}
        return _evaluate(closed, env, numbers, product)[0]


def _products(jaxpr: Any) -> list[Any]:
    return [e for e in jaxpr.eqns if e.primitive.name in ("dot_general", "conv_general_dilated")]


def _evaluate(
    closed: Any, env: dict[Any, Any], numbers: dict[Any, int], product: Callable[[int], Any]
) -> list[Any]:
    """Runs a jaxpr; a product whose right side is one of the numbered weights is left to its module."""
    jaxpr = closed.jaxpr
    env.update(zip(jaxpr.constvars, closed.consts, strict=True))

    def read(v: Any) -> Any:
        return v.val if hasattr(v, "val") else env[v]

    for eqn in jaxpr.eqns:
        name, given = eqn.primitive.name, eqn.params
        number = None if len(eqn.invars) < 2 or hasattr(eqn.invars[1], "val") else numbers.get(eqn.invars[1])
        if name == "dot_general" and number is not None:
            dims = given["dimension_numbers"]
            made = [product(number)(read(eqn.invars[0]), lambda a, b, d=dims: jax.lax.dot_general(a, b, d))]
        elif name == "conv_general_dilated" and number is not None:
            taken = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers")
            kept = {k: given[k] for k in (*taken, "feature_group_count")}
            made = [
                product(number)(
                    read(eqn.invars[0]), lambda a, b, k=kept: jax.lax.conv_general_dilated(a, b, **k)
                )
            ]
        else:
            operands = [read(v) for v in eqn.invars]
            made = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(given))
            made = made if eqn.primitive.multiple_results else [made]
        env.update(zip(eqn.outvars, made, strict=True))
    return [read(v) for v in jaxpr.outvars]


def flat(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose jaxpr has the products at its top: `@` is a jitted function of its own."""

    def run(*args: Any) -> Any:
        with jax.disable_jit():
            return forward(*args)

    return run


def theirs(mode: Mode, forward: Callable[..., Any], params: Any, batches: Sequence[Any]) -> Function:
    """The net as qwix quantizes it after training."""
    import qwix
    from qwix.contrib import awq, gptq

    twin = Twin(flat(forward), params, batches[0])
    model, others = twin.module, twin.others
    rules = {"": qwix.QuantizationRule, "gptq": gptq.GptqRule, "awq": awq.AwqRule}
    of_mode = _rules(twin, mode, qwix.QuantizationRule)
    made = awq.AwqInferenceProvider if mode.method == "awq" else qwix.PtqProvider
    quantized = qwix.quantize_model(model, made(of_mode))
    # with the weights as initial ones; a static scale is linear in the largest number of the batch
    made_on = [jax.jit(quantized.init)(jax.random.key(0), others, x)["params"] for x in batches]
    weights = made_on[0]
    if mode.static:
        weights = jax.tree.map_with_path(_mean_scale, *made_on)
    if mode.method:
        provider = {"gptq": gptq.GptqCalibrationProvider, "awq": awq.AwqCalibrationProvider}[mode.method]
        watched = qwix.quantize_model(model, provider(_rules(twin, mode, rules[mode.method])))
        found = _gathered(watched, twin, batches)
        quantize = {"gptq": gptq.quantize_params, "awq": awq.quantize_params}[mode.method]
        weights = quantize(twin.params, weights, found)
    return jax.jit(lambda x: quantized.apply({"params": weights}, others, x))


def _mean_scale(path: Any, *values: jax.Array) -> jax.Array:
    """The mean over batches of what inputs are scaled by; weights are the same in all."""
    scales = any(str(getattr(key, "key", "")).endswith("_scale") for key in path)
    return sum(values[1:], values[0]) / len(values) if scales else values[0]


def _rules(twin: Twin, mode: Mode, kind: Any) -> list[Any]:
    """What qwix is told: of convolutions, of products that are no whole number of groups, and of all others."""
    types = {
        "weight_qtype": getattr(jnp, mode.weights),
        "act_qtype": mode.inputs and getattr(jnp, mode.inputs),
    }

    def rule(path: str, rank: int, **given: Any) -> Any:
        if given.get("act_qtype") is not None and mode.static:
            given |= {"act_static_scale": True, "act_batch_axes": tuple(range(rank - 1)) or (0,)}
        return kind(module_path=path, **given)

    found = []
    for number in sorted(twin.ranks):
        name, shape = twin.names[number], np.shape(twin.leaves[number])
        if name in twin.convolutions:
            if mode.convolutions != "origin":
                found.append(rule(name, 2, weight_qtype=jnp.int8, act_qtype=types["act_qtype"]))
        else:
            fits = mode.group is not None and shape[0] % mode.group == 0
            found.append(rule(name, twin.ranks[number], **types, tile_size=mode.group if fits else None))
    return found


def _gathered(model: Any, twin: Twin, batches: Sequence[Any]) -> Any:
    """Statistics of inputs over batches."""
    variables = model.init(jax.random.key(0), twin.others, batches[0])
    stats = variables["quant_stats"]

    @jax.jit
    def step(stats: Any, x: jax.Array) -> Any:
        given = {"params": twin.params, "quant_stats": stats}
        return model.apply(given, twin.others, x, mutable=["quant_stats"])[1]["quant_stats"]

    for x in batches:
        stats = step(stats, x)
    return stats


def theirs_trained(
    mode: Mode, forward: Callable[..., Any], params: Any, batches: Sequence[Any], labels: Sequence[Any]
) -> Function:
    """The net after quantization-aware training by qwix."""
    import qwix

    twin = Twin(flat(forward), params, batches[0])
    model = qwix.quantize_model(twin.module, qwix.QtProvider(_rules(twin, mode, qwix.QuantizationRule)))

    def run(state: Any, x: jax.Array) -> jax.Array:
        return model.apply({"params": state["products"]}, state["others"], x)

    state = tuned(run, {"products": twin.params, "others": twin.others}, batches, labels)
    return jax.jit(lambda x: run(state, x))


# -- ours ------------------------------------------------------------------------------------------------------


def ours(mode: Mode, forward: Callable[..., Any], params: Any, batches: Sequence[Any]) -> Any:
    """What `tw.quantize` makes of the net."""
    has_convolutions = any(name.startswith("conv") for name in params)
    pins = {"params['conv*": mode.convolutions} if has_convolutions and mode.convolutions else {}
    return tw.quantize(
        forward,
        params,
        batches[0],
        data=batches,
        config=tw.QuantConfig(mode.ours, pins),
        recover=mode.method or (),
        progress=False,
    )


# -- nets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A trained net: data to calibrate with, and what tells how good a function of inputs is. labels: None where it is
    not trained further; score: accuracy in %, or perplexity; some: inputs of which logits are compared."""

    forward: Callable[..., Any]
    params: Any
    batches: list[jax.Array]
    labels: list[Any] | None
    score: Callable[[Function], float]
    some: jax.Array

    def measured(self, function: Function) -> tuple[float, float]:
        """The score of a function, and the SQNR of its logits in dB."""
        reference = jax.jit(self.forward)(self.params, self.some)
        return self.score(function), sqnr([reference], [function(self.some)])

    def row(self, mode: Mode) -> list[tuple[float, float]]:
        """What qwix and we make of it."""
        given = (self.forward, self.params, self.batches)
        function = ours(mode, *given).function
        if mode is not TRAINED:
            run = jax.jit(function)
            return [self.measured(theirs(mode, *given)), self.measured(lambda x: run(self.params, x))]
        assert self.labels is not None
        params = tuned(function, self.params, self.batches, self.labels)
        run = jax.jit(function)
        both = theirs_trained(mode, *given, self.labels), lambda x: run(params, x)
        return [self.measured(f) for f in both]


def digits(net: Any, seed: int) -> Trained:
    """A net on digits."""
    (images, targets), (test, wanted) = net.data()
    count = len(test)
    starts = range(0, len(images) - count + 1, count)
    return Trained(
        net.forward,
        net.params(seed),
        [jnp.asarray(images[i : i + count]) for i in starts],
        [targets[i : i + count] for i in starts],
        lambda f: accuracy(f(jnp.asarray(test)), wanted),
        jnp.asarray(test),
    )


def language() -> Trained:
    """The character language model."""
    import char_lm as net

    train, validation = net.data()
    batches = [jnp.asarray(b) for b in net.windows(train, 64)[:, :-1].reshape(4, 16, -1)]
    some = jnp.asarray(net.windows(validation, 16)[:, :-1])
    text = validation[: 64 * 1024]
    return Trained(net.forward, net.params(), batches, None, lambda f: net.perplexity(f, text), some)


def trained(name: str, seed: int) -> Trained:
    """A net by its name and seed."""
    import digits_cnn
    import vit_digits

    if name == LANGUAGE:
        return language()
    return digits(digits_cnn if name == "digits CNN" else vit_digits, seed)


LANGUAGE = "language model"
NETS = ("digits CNN", "digits transformer", LANGUAGE)


def table(name: str, known: dict[str, Any], seeds: Sequence[int]) -> list[str]:
    """The table of a net: means over seeds."""
    is_language = name == LANGUAGE
    what = "perplexity" if is_language else "accuracy %"
    lines = [
        f"| {name} | qwix, {what} | ours, {what} | qwix, SQNR dB | ours, SQNR dB |",
        "|---|--:|--:|--:|--:|",
    ]
    for mode in ("f32", *(m.name for m in (*MODES, TRAINED))):
        rows = [known[key] for seed in seeds if (key := f"{name}/{seed}/{mode}") in known]
        if rows:
            scores = [np.mean([row[i][0] for row in rows]) for i in (0, -1)]
            noises = [np.mean([row[i][1] for row in rows]) for i in (0, -1)]
            cells = [mode, *(f"{s:.4f}" if is_language else f"{s:.2f}" for s in scores)]
            cells += ["" if mode == "f32" else f"{n:.1f}" for n in noises]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", help="parts of the names of nets")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="nets on digits (default 3)")
    parser.add_argument(
        "--keep", metavar="FILE.json", help="rows that are known, and where new ones are added"
    )
    parser.add_argument(
        "--first", type=int, metavar="N", help="measure no more than N rows that are not known"
    )
    given = parser.parse_args()
    try:
        import qwix  # noqa: F401
    except ImportError:
        print(
            "qwix is not installed: `pip install qwix==0.1.8` in an environment that has tilewright",
            file=sys.stderr,
        )
        return 1
    kept = Path(given.keep) if given.keep else None
    known: dict[str, Any] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    left = given.first
    for name in (n for n in NETS if not given.nets or any(part in n for part in given.nets)):
        seeds = range(1 if name == LANGUAGE else given.seeds)
        modes = MODES if name == LANGUAGE else (*MODES, TRAINED)
        for seed in seeds:
            missing = [m for m in modes if f"{name}/{seed}/{m.name}" not in known][:left]
            if missing:
                net = trained(name, seed)
                plain = jax.jit(net.forward)
                known[f"{name}/{seed}/f32"] = [net.measured(lambda x, n=net, f=plain: f(n.params, x))]
            for mode in missing:
                known[f"{name}/{seed}/{mode.name}"] = net.row(mode)
                if kept is not None:
                    kept.write_text(json.dumps(known, indent=1))
            left = None if left is None else left - len(missing)
        print("\n" + "\n".join(table(name, known, seeds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
