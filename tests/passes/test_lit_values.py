"""The modules of lit_tests/passes/graph give the same values before and after their pass, and every rule is among what
happens to them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from harness import assert_close, tolerance
from tiering import sampled
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_pipeline

from tilewright.backends.interpreter import run_graph
from tilewright.backends.interpreter.graph import main_of
from tilewright.dialects import make_context
from tilewright.dialects.affine import Symbol
from tilewright.dialects.dtypes import element_type, numpy_dtype
from tilewright.dialects.graph import FusionOp, GraphOp, HostOp
from tilewright.dialects.open_sizes import assuming
from tilewright.dialects.open_text import reading
from tilewright.dialects.precision import PrecisionRecord, recorded_precision
from tilewright.dialects.text import parse_module
from tilewright.machine import Machine
from tilewright.passes.instantiation import Instantiation
from tilewright.passes.patterns import patterns
from tilewright.passes.pipeline import all_passes
from tilewright.passes.quantized.products_named import WEIGHT
from tilewright.passes.simplify.simplify import simplify
from tilewright.pruning import two_of_four
from tilewright.support.precisions import NARROW

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in (ROOT / "lit_tests" / "passes" / "graph").glob("*.mlir")
    if "--verify-diagnostics" not in page.read_text()  # nothing stands behind a pass that refuses
)
MACHINE = Machine.load("ascend-910b1")
"""The one that the pages' RUN lines are for."""

MOST = 1e9
"""Operations of a module above which the interpreter takes too long: it walks a window for each element."""


def passes_of(page: Path) -> list[ModulePass]:
    """The passes of the page's RUN line."""
    found = re.search(r"RUN: .*?-p ('[^']*'|\S+)", page.read_text())
    assert found, page
    known = all_passes()
    return [known[spec.name]().from_spec(spec) for spec in parse_pipeline(found[1].strip("'"))]


@functools.cache
def modules(page: Path) -> list[ModuleOp]:
    return [parse_module(make_context(), text, page.name) for text in page.read_text().split("// -----")]


def runs(module: ModuleOp) -> bool:
    """Whether the interpreter can run it: host ops of these files are mostly empty shells."""
    ops = list(module.walk())
    empty = any(isinstance(op, HostOp) and "@main" not in op.module.data for op in ops)
    parts = (op for op in ops if isinstance(op, GraphOp) and not isinstance(op, FusionOp))  # and what fusions have
    return not empty and sum(op.flops() for op in parts) < MOST


def arguments(module: ModuleOp, sparse: bool = False) -> list[np.ndarray]:
    """Floats around 1, integers of 1 to 3: they count, select and place, and a loop that doubles one ends. sparse:
    whether two of four rows of weights are zero in each column."""
    rng, found = np.random.default_rng(0), []
    main = main_of(module)
    for arg, attributes in zip(main.body.block.args, main.arg_attrs or itertools.repeat(None)):
        kind: Any = arg.type
        dtype, shape = numpy_dtype(kind.element_type), kind.get_shape()
        whole = dtype.kind in "iub"
        values = rng.integers(1, 4, shape) if whole else 1 + 0.5 * rng.standard_normal(shape)
        if sparse and attributes is not None and WEIGHT in attributes.data and not shape[0] % 8:
            values = np.where(two_of_four(jnp.asarray(values), 0), values, 0)
        imaginary = 1j * rng.standard_normal(shape) if dtype.kind == "c" else 0
        found.append(np.asarray(values + imaginary).astype(dtype))
    return found


def recorded(module: ModuleOp) -> PrecisionRecord:
    """What graph-precision made of a module."""
    found = recorded_precision(module)
    assert found is not None
    return found


def real(arrays: Iterable[Any]) -> list[np.ndarray]:
    """Arrays with the parts of complex ones in their place."""
    given = [np.asarray(x) for x in arrays]
    return [part for x in given for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]


def changed(page: Path, module: ModuleOp) -> ModuleOp:
    after = module.clone()
    for step in passes_of(page):
        step.apply(Context(), after)
    after.verify()
    return after


CASES = [(page, i) for page in PAGES for i, module in enumerate(modules(page)) if runs(module)]


@sampled(5)
@pytest.mark.parametrize(("page", "i"), CASES, ids=lambda p: p.stem if isinstance(p, Path) else str(p))
def test_values_stay(page: Path, i: int) -> None:
    module = modules(page)[i]
    after, args = changed(page, module), arguments(module, page.stem == "quantize_sparse")
    if not runs(after):
        pytest.fail(f"{page.name} {i}: the pass makes what the interpreter cannot run")
    want, got = real(run_graph(module, *args)), real(run_graph(after, *args))
    dtypes = [x.dtype for x in (*real(args), *want)]
    narrowed = any(step.name == "graph-precision" for step in passes_of(page))
    if narrowed:
        dtypes += [numpy_dtype(element_type(NARROW[recorded(after).mode]))]
    allowed = tolerance(dtypes, 16 if narrowed else 8192)
    if any(step.name == "graph-quantize" for step in passes_of(page)):
        allowed = 0.03  # of the largest number: both sides of a product are rounded to 8 bits
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, allowed)


OPEN_ROWS = """
func.func @main(%x: tensor<3x?xf32, #graph.sizes<["n"]>>) -> tensor<3x?xf32, #graph.sizes<["n"]>> {
  %y = graph.sort %x {descending = [0], dim = 1, keys = [0], total = [0]} : tensor<3x?xf32, #graph.sizes<["n"]>>
  func.return %y : tensor<3x?xf32, #graph.sizes<["n"]>>
}
"""


@functools.cache
def sorted_open_rows() -> tuple[set[str], ModuleOp]:
    """What happens to rows of 2 to 8 numbers, and the module behind it. A page says no bounds of a size."""
    n = Symbol("n", 2, 8)
    with reading({"n": n}), assuming({"n": 8}) as assumed:
        module = parse_module(make_context(), OPEN_ROWS, "rows.mlir")
        met = set(simplify(module, MACHINE, patterns()))
    assert not assumed.made
    return met, module


@pytest.mark.parametrize("n", [2, 5, 8])
def test_rows_of_open_length_are_sorted_as_the_longest(n: int) -> None:
    met, module = sorted_open_rows()
    assert "sort-open-rows" in met
    x = np.random.default_rng(n).normal(size=(3, n)).astype("f4")
    x[0, 0] = np.nan
    (got,) = run_graph(Instantiation({"n": n}).of(module), x)
    np.testing.assert_array_equal(got, np.sort(x, 1))


def test_each_pattern_has_a_case() -> None:
    """In a page of graph-simplify, in a module whose values are compared above, or for open sizes here."""
    met = set(sorted_open_rows()[0])
    for page, i in CASES:
        if passes_of(page)[0].name == "graph-simplify":
            met |= set(simplify(modules(page)[i].clone(), MACHINE, patterns()))
    assert {p.name for p in patterns()} == met


def test_each_graph_pass_has_a_page() -> None:
    compared = {step.name for page, _ in CASES for step in passes_of(page)}
    assert compared == {
        name for name in all_passes() if name.startswith("graph-") and name != "graph-to-tile"
    }
