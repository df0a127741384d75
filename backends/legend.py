"""What the words of a report mean: `report --legend` prints them, docs/glossary.md has them."""

from __future__ import annotations

LEGEND: dict[str, str] = {
    "S": "the scalar unit: it issues the instructions of a core to the other pipes",
    "M": "the cube: products of matrices",
    "V": "the vector unit: arithmetic on elements",
    "MTE1": "copies from l1 to l0a and l0b, the operands of the cube",
    "MTE2": "loads from device memory to l1 or ub",
    "MTE3": "stores from ub to device memory",
    "FIX": "drains sums of products from l0c",
    "gm": "device memory",
    "l1, l0a, l0b, l0c": "memories of a cube core: operands on their way, left and right operand, sums",
    "ub": "the memory of a vector core",
    "HBM, L2": "where device memory is, and the cache before it that all cores share",
    "kind": "the cores of a kernel: cube, vector, or mix for both; copy and host have none",
    "cores": "how many cores of the chip work on it",
    "runs": "how often a kernel is started in one run of the program",
    "us, share": "modelled microseconds of all runs, launches included, and their part of the program's",
    "eff.": "the floor as a share of the time",
    "floor": "the least that the work could take: bytes over HBM, products and lanes, each at the chip's peak",
    "bound": "what a kernel waits for most: a pipe, HBM or L2 behind it, or its launch",
    "pipes": "microseconds that each pipe of the heaviest core works",
    "launch": "starting a kernel on its cores, and ending it",
    "MB": "bytes that kernels read and write in device memory, from L2 or HBM",
    "source": "the lines of the program, or the nodes of the model, that a kernel comes from",
    "mJ": "modelled energy",
}
"""Words of reports, with what each means."""


def legend() -> str:
    """One line for each word."""
    width = max(map(len, LEGEND))
    return "\n".join(f"{word:<{width}}  {text}" for word, text in LEGEND.items())
