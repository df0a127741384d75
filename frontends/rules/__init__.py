"""How each StableHLO op becomes graph ops: tables from op name to rule."""

from ..walk import Rule
from . import (
    contractions,
    control,
    elementwise,
    movement,
    random_bits,
    reductions,
    scatter,
    selecting,
    sorting,
)

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
    **movement.STRUCTURAL,
    **elementwise.STRUCTURAL,
    **scatter.STRUCTURAL,
}
"""Rules for any element types."""

__all__ = ["ON_COMPLEX", "RULES", "STRUCTURAL"]
