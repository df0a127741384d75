"""How each StableHLO op becomes graph ops: tables from op name to rule, to which plugins add.

A custom call has the name `stablehlo.custom_call @target`.
"""

from collections.abc import Collection

from ...support.plugins import PluginEntry, entries
from ..walk import Rule
from . import (
    bounded,
    collectives,
    contractions,
    control,
    elementwise,
    movement,
    quantized,
    random_bits,
    reductions,
    scatter,
    selecting,
    sorting,
)


def _of_plugins(taken: Collection[str]) -> dict[str, Rule]:
    """The rules of plugins, each loaded when it is first used."""

    def lazy(entry: PluginEntry) -> Rule:
        loaded: list[Rule] = []

        def rule(*arguments):
            if not loaded:
                loaded.append(entry.function())
            return loaded[0](*arguments)

        rule.__module__ = entry.given.partition(":")[0]
        return rule

    return {name: lazy(entry) for name, entry in entries("rules", taken).items()}


RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **random_bits.RULES,
    **reductions.RULES,
    **selecting.RULES,
    **contractions.RULES,
    **sorting.RULES,
}
"""Rules for ops whose operands and results all have element types of the device."""

ON_COMPLEX: dict[str, Rule] = {
    **elementwise.ON_COMPLEX,
    **movement.RULES,
    **reductions.RULES,
    **contractions.RULES,
    **sorting.ON_COMPLEX,
}
"""Rules for ops that have complex numbers, and else element types of the device."""

STRUCTURAL: dict[str, Rule] = {
    **control.RULES,
    **collectives.RULES,
    **movement.STRUCTURAL,
    **elementwise.STRUCTURAL,
    **scatter.STRUCTURAL,
    **bounded.STRUCTURAL,
}
"""Rules for any element types."""

ON_QUANTIZED: dict[str, Rule] = quantized.ON_QUANTIZED
"""Rules for ops on quantized numbers; others compute with what these stand for."""

REWRITES = bounded.REWRITES
"""What makes graph ops right on bounded dimensions."""

RULES |= _of_plugins({*RULES, *ON_COMPLEX, *STRUCTURAL})

__all__ = ["ON_COMPLEX", "ON_QUANTIZED", "REWRITES", "RULES", "STRUCTURAL"]
