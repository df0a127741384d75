"""All step generators, and the programs that campaigns make with them."""

from __future__ import annotations

import jax

from . import table_arrays, table_compute, table_control
from .generate import Generator, Limits, Make, Program

TABLE: tuple[tuple[str, float, Make], ...] = (*table_arrays.TABLE, *table_compute.TABLE, *table_control.TABLE)

DEVICE = ("bool", "int8", "int32", "float16", "bfloat16", "float32")
"""Dtypes that the device computes with."""


def program_of(seed: int, only: str = "") -> Program:
    """The random program of a seed. only: names of generators, separated by commas; the others are left out but for
    what makes values."""
    names = [n for n in only.split(",") if n]
    table = [row for row in TABLE if not names or row[0] in names]
    # the seed's residues choose the kind of program, so that any range of seeds has all of them
    x64, special = seed % 5 == 4, seed % 3 == 2
    large, long = seed % 11 == 10, seed % 7 == 6
    limits = Limits(steps=30 if long else 10, elements=40_000 if large else 2500, depth=1 if large else 2)
    dtypes = DEVICE if seed % 2 and not x64 else None
    with jax.enable_x64(x64):
        return Generator(seed, table, x64, special, limits, dtypes).program()
