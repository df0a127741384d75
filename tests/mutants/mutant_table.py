"""Which modules are mutated, and the tests of each: the first row whose path begins a module's is the module's.

Each row has the shortest tests first; a mutant that one of them kills goes no further. `lit` stands for lit_tests. The
tests that are named for a module, or import it, come before those of its row.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Tests = tuple[str, ...]

COST: Tests = (
    "tests/backends/test_simulator.py",
    "tests/backends/test_simulator_exact.py",
    "tests/backends/test_timeline.py",
    "tests/backends/test_report.py",
    "tests/calibration/test_calibrate.py",
    "tests/backends/test_simulator_loops.py",
)
OPS: Tests = (
    "tests/ops/test_control.py",
    "tests/ops/test_indexed.py",
    "tests/ops/test_contract.py",
    "tests/ops/test_affine.py",
    "tests/ops/test_conv.py",
)
GRAPH: Tests = (
    "tests/passes/test_lit_values.py",
    "lit/passes/graph",
    "tests/passes/test_held.py",
    "tests/passes/test_partition.py",
    "tests/passes/test_values.py",
    "tests/ops/test_fusion.py",
    *OPS,
)
LOWER: Tests = (
    "tests/passes/test_schedules.py",
    "tests/passes/test_access.py",
    "tests/passes/test_queues.py",
    "lit/passes/tile",
    "tests/passes/test_values.py",
    "tests/passes/test_launch_order.py",
    "tests/passes/test_oversized.py",
    "tests/passes/test_pins.py",
    "tests/ops/test_fusion.py",
    "tests/ops/test_scatter.py",
    "tests/ops/test_sort.py",
    "tests/ops/test_cumulate.py",
    "tests/ops/test_selecting.py",
    *OPS,
)
CHECK: Tests = (
    "lit/passes/npu",
    "tests/passes/test_check.py",
    "tests/passes/test_findings.py",
    "tests/faults/test_streams.py",
    "tests/faults/test_faults.py",
)

TABLE: dict[str, Tests] = {
    "backends/functions/values.py": (
        "tests/backends/test_values.py",
        "tests/ops/test_domains.py",
        "tests/ops/test_integers.py",
        "tests/ops/test_random_bits.py",
        "tests/ops/test_complex.py",
        "tests/ops/test_host.py",
        "tests/ops/test_affine.py",
        "tests/ops/test_cumulate.py",
        "tests/backends/test_compiling.py",
    ),
    "backends/stepper/numbers.py": ("tests/backends/stepper/test_numbers.py",),
    "backends/stepper/reductions.py": ("tests/backends/stepper/test_numbers.py",),
    "backends/stepper/products.py": ("tests/backends/stepper/test_numbers.py",),
    "backends/stepper/rules.py": ("tests/backends/stepper/test_programs.py",),
    "backends/stepper/instructions.py": (
        "tests/backends/stepper/test_programs.py",
        "tests/backends/stepper/test_session.py",
    ),
    "backends/stepper/order.py": ("tests/backends/stepper/test_faults.py", "tests/backends/stepper/test_programs.py"),
    "backends/stepper/device.py": ("tests/backends/stepper/test_faults.py",),
    "backends/stepper/launch.py": ("tests/backends/stepper/test_faults.py",),
    "backends/stepper/cores.py": ("tests/backends/stepper/test_faults.py",),
    "backends/stepper/streams.py": ("tests/backends/stepper/test_faults.py",),
    "backends/stepper/host.py": ("tests/backends/stepper/test_programs.py", "tests/backends/stepper/test_faults.py"),
    "backends/stepper/": (
        "tests/backends/stepper/test_programs.py",
        "tests/backends/stepper/test_faults.py",
        "tests/backends/test_interpreter_tile.py",
        "tests/backends/test_turns.py",
        "tests/verification/test_verify.py",
    ),
    "backends/interpreter/instructions.py": (
        "tests/backends/test_interpreter_npu.py",
        "tests/ops/test_fills.py",
        "tests/ops/test_cumulate.py",
        "tests/ops/test_sort.py",
        "tests/ops/test_scatter.py",
        *OPS,
    ),
    "backends/interpreter/graph.py": (
        "tests/backends/test_graph.py",
        "tests/passes/test_lit_values.py",
        "tests/frontends/test_jax.py",
        "tests/passes/test_values.py",
        "tests/frontends/test_stablehlo.py",
        "tests/fuzz/test_fuzz.py",
    ),
    "backends/simulator/": COST,
    "dialects/graph/": (
        "lit/dialects/graph",
        "tests/passes/test_lit_values.py",
        "tests/dialects/test_effects.py",
        "tests/frontends/test_stablehlo.py",
        "tests/frontends/test_jax.py",
        *OPS,
    ),
    "dialects/tile/": (
        "lit/dialects/tile",
        "tests/backends/test_interpreter_tile.py",
        "lit/passes/tile",
        *OPS,
    ),
    "dialects/npu/synchronization.py": ("lit/dialects/npu", *CHECK[1:], *COST),
    "dialects/npu/streams.py": ("lit/dialects/npu", *CHECK[1:], *COST),
    "dialects/npu/host_program.py": ("lit/dialects/npu", "tests/dialects/test_effects.py", *CHECK[1:], *COST),
    "dialects/npu/": ("lit/dialects/npu", "tests/backends/test_interpreter_npu.py", *COST, *OPS),
    "dialects/": (
        "lit/dialects",
        "tests/dialects/test_effects.py",
        "tests/dialects/test_functions.py",
        "tests/machine/test_machine.py",
        "tests/frontends/test_constants.py",
        *COST,
        *OPS,
    ),
    "passes/npu/check/": CHECK,
    "passes/numbers/complex": (
        "lit/passes/graph",
        "tests/passes/test_lit_values.py",
        "tests/ops/test_complex.py",
    ),
    "passes/strips/": ("tests/ops/test_strips.py", "lit/passes/graph", "tests/passes/test_lit_values.py", *OPS),
    "passes/quantized/integer_": (
        "lit/passes/graph",
        "tests/passes/test_lit_values.py",
        "tests/quantized/test_drains.py",
        "tests/quantized/test_columns.py",
        "tests/quantized/test_chains.py",
        "tests/quantized/test_layers.py",
    ),
    "passes/simplify/grouped_products.py": (
        "lit/passes/graph",
        "tests/passes/test_lit_values.py",
        "tests/ops/test_gathered_products.py",
        *OPS,
    ),
    "passes/program/pack.py": (
        "lit/passes/graph",
        "tests/quantization/test_packing.py",
        "tests/quantization/test_open_packing.py",
        "tests/cli/test_pack.py",
    ),
    "passes/quantized/stored_weights.py": (
        "lit/passes/graph",
        "tests/passes/test_lit_values.py",
        "tests/quantization/test_configurations.py",
        "tests/quantization/test_weight_scales.py",
        "tests/cli/test_quantize_mistakes.py",
        "tests/quantization/test_nibbles.py",
        "tests/quantization/test_modes.py",
    ),
    "passes/lower/cube/draining.py": (
        "lit/passes/tile",
        "tests/quantized/test_drains.py",
        "tests/quantized/test_columns.py",
        "tests/ops/test_eight_bit_floats.py",
    ),
    **dict.fromkeys(
        ("passes/lower/cube/prologue.py", "passes/choose/prologue.py"),
        ("lit/passes/graph", "tests/ops/test_cube_prologue.py", "tests/ops/test_prologue.py"),
    ),
    **dict.fromkeys(
        [f"kernels/{name}.py" for name in ("price", "columns", "product_cost", "chain_cost", "vector_cost")],
        ("tests/kernels/test_price.py", "tests/passes/test_schedules.py", "tests/passes/test_product_choice.py"),
    ),
    "passes/choose/column_epilogue.py": ("lit/passes/graph", "tests/ops/test_column_epilogue.py"),
    **dict.fromkeys(("kernels/", "passes/lower/", "passes/choose/", "passes/order/"), LOWER),
    **dict.fromkeys(
        (f"passes/{r}/" for r in "forms fusion numbers program quantized simplify strips".split()), GRAPH
    ),
    "passes/npu/": (
        "lit/passes/npu",
        "tests/passes/test_synchronize.py",
        "tests/passes/test_rooms.py",
        "tests/passes/test_in_place.py",
        "tests/passes/test_check.py",
        "tests/backends/test_host_program.py",
        "tests/backends/test_interpreter_npu.py",
        "tests/passes/test_values.py",
        "tests/api/test_donation.py",
        "tests/ops/test_control.py",
    ),
    "passes/added.py": ("tests/plugins",),
    "passes/": (
        "tests/passes/test_access.py",
        "tests/passes/test_pins.py",
        "tests/passes/test_calls.py",
        "tests/cli/test_opt.py",
        "tests/passes/test_lit_values.py",
        "lit/passes",
        "tests/passes/test_values.py",
        *OPS,
    ),
}


def covering(module: str) -> Tests:
    """The tests of a module, given by its path from the root; each once."""
    row = next(tests for prefix, tests in TABLE.items() if module.startswith(prefix))
    return tuple(dict.fromkeys([*own_tests(module), *row]))


def own_tests(module: str) -> list[str]:
    """The files of tests that are named for a module, and those that import it."""
    package, _, stem = module.removesuffix(".py").rpartition("/")
    dotted = re.escape(f"tilewright.{package}".replace("/", "."))
    imported = re.compile(
        rf"^ *(from {dotted}\.{stem} import|from {dotted} import .*\b{stem}\b|import {dotted}\.{stem}\b)", re.M
    )
    return [
        name
        for name, source in sources().items()
        if Path(name).stem == f"test_{stem}" or imported.search(source)
    ]


@cache
def sources() -> dict[str, str]:
    """The text of each file of tests, by its path from the root."""
    return {str(p.relative_to(ROOT)): p.read_text() for p in sorted((ROOT / "tests").rglob("test_*.py"))}


def modules() -> list[str]:
    """All modules that are mutated."""
    paths = (
        str(p.relative_to(ROOT))
        for folder in ("backends", "dialects", "kernels", "passes")
        for p in (ROOT / folder).rglob("*.py")
    )
    return sorted(p for p in paths if any(p.startswith(prefix) for prefix in TABLE))
