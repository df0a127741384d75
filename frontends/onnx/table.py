"""The table of rules: what each ONNX op computes, as a function of JAX arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

MODULES = (
    "attention",
    "contractions",
    "contrib",
    "contrib_attention",
    "control",
    "convolutions",
    "elementwise",
    "indexing",
    "losses",
    "ml",
    "movement",
    "normalization",
    "pooling",
    "quantized",
    "random",
    "recurrent",
    "reductions",
    "regions",
    "sampling",
    "selection",
    "sequences",
    "shapes",
    "signal",
    "training",
    "trees",
)
"""The modules of `rules/`, each for a class of ops."""


def own_domain(name: str) -> str:
    """A domain, or "" for ONNX's own, which has two names."""
    return "" if name == "ai.onnx" else name


@dataclass(frozen=True)
class Rule:
    """What an op computes.

    build: takes the `Node` and its inputs (None for one that is left out), and gives the output, or a tuple of outputs.
    folds: it computes with `node.xp`, so that known values stay known. of_shape: it says the shape of its operand, and
    so does not depend on the operand's value.
    """

    build: Callable[..., Any]
    folds: bool = False
    of_shape: bool = False


RULES: dict[tuple[str, str], Rule] = {}
"""By domain ("" for ONNX's own) and op type."""


def rule(
    *names: str, domain: str = "", folds: bool = False, of_shape: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the rule of ops."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        add_rules(names, build, domain, folds, of_shape)
        return build

    return register


def add_rules(
    names: Iterable[str],
    build: Callable[..., Any],
    domain: str = "",
    folds: bool = False,
    of_shape: bool = False,
) -> None:
    """Makes a function the rule of ops. Raises ValueError where one has a rule already."""
    for name in names:
        if (domain, name) in RULES:
            raise ValueError(f"{name} has two rules")
        RULES[domain, name] = Rule(build, folds, of_shape)


def rule_of(domain: str, op: str) -> Rule | None:
    """The rule of an op; None where it has none."""
    load()
    return RULES.get((domain, op))


@cache
def load() -> None:
    """Imports the modules with the rules."""
    for name in MODULES:
        import_module(f".rules.{name}", __package__)
