"""Options of a program as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...dialects.graph.stored import Give, Keep
from ...knowledge.file_plans import FilePlans
from ...passes.quantized.quantize import read_config
from ...passes.quantized.recipes import QuantConfig
from ..options import Options
from ..plans import plans_of
from .signatures import array_facts, stored_array

KEPT_OPTIONS = (
    "memory",
    "check",
    "host",
    "donate",
    "precision",
    "without",
    "strips",
    "winograd",
    "memory_limit",
    "hivm",
    "quantization",
    "weights",
)
"""Options that a file has, so that it is compiled for other chips as it was for its own, and compared with sources."""

FURTHER = ("schedule", "oracle", "weights")
"""A program with one of these options is for its own chips alone."""


def options_facts(options: Options, keep: Keep) -> dict[str, Any]:
    """What is not as it is by default, as JSON. keep: keeps the bytes of arrays. Raises PassError for a configuration
    of quantized products that cannot be read."""
    default = Options()
    found = {name: getattr(options, name) for name in KEPT_OPTIONS}
    said = {name: _plain(value) for name, value in found.items() if value != getattr(default, name)}
    if options.quantization is not None:
        said["quantization"] = _quantization_facts(read_config(options.quantization), keep)
    return said


def options_in(facts: Mapping[str, Any], stored: Give) -> Options:
    """The options that `options_facts` has said. stored: gives the bytes of arrays. Raises CompileError, PassError,
    KeyError, TypeError or ValueError for what it has not."""
    found = dict(facts)
    if "quantization" in found:
        found["quantization"] = _quantization_in(found["quantization"], stored)
    return Options(**found)


def _quantization_facts(config: QuantConfig, keep: Keep) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name, product in config.products.items():
        for kind, array in product.arrays().items():
            arrays.setdefault(name, {})[kind] = array_facts(array, keep, f"the array {kind!r} of {name}")
    return {"table": config.to_table(), "arrays": arrays}


def _quantization_in(facts: Mapping[str, Any], stored: Give) -> QuantConfig:
    config = QuantConfig.of_table(facts["table"])
    products = dict(config.products)
    for name, arrays in facts["arrays"].items():
        found = {kind: stored_array(each, stored) for kind, each in arrays.items()}
        products[name] = replace(products[name], **found)
    return replace(config, products=products)


def has_further(options: Options) -> bool:
    """Whether options say more than a file has."""
    default = Options()
    return any(getattr(options, name) != getattr(default, name) for name in FURTHER)


def with_plans(options: Options, plans: FilePlans | None) -> Options:
    """Options with the plans that a file has for a chip, behind those of the knowledge base that options name."""
    if plans is None:
        return options
    return replace(options, plans=plans_of(options.plans, options.plans_for, plans) or "")


def _plain(value: Any) -> Any:
    """An option as JSON has it."""
    if isinstance(value, set | frozenset | tuple | list):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return dict(value) if isinstance(value, Mapping) else value
