"""Runs StableHLO text on the host. The only module here that uses JAX's semi-private compiler API."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax._src import compiler, xla_bridge
from jax._src.interpreters import mlir
from jaxlib import xla_client
from jaxlib.mlir import ir

from ...dialects import callbacks

_CONFIG = "mhlo.backend_config"


@functools.lru_cache(maxsize=1024)
def compile_text(module: str) -> Any:
    """A loaded executable for a module with one public function `main`."""
    backend = xla_bridge.get_backend("cpu")
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        functions = _callbacks(parsed) if callbacks.KEY in module else []
        return backend.compile_and_load(
            parsed, executable_devices=devices, compile_options=options, host_callbacks=functions
        )


def _callbacks(module: ir.Module) -> list[callbacks.Callback]:
    """The Python functions that a module calls; its custom calls get their places in this list, as XLA takes them.
    Raises MissingCallback for functions of another process."""
    calls: list[tuple[ir.Operation, ir.IntegerAttr]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.custom_call" and _CONFIG in op.attributes:
            config = ir.DictAttr(op.attributes[_CONFIG])
            if callbacks.KEY in config:
                calls.append((op, ir.IntegerAttr(config[callbacks.KEY])))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for place, (op, number) in enumerate(calls):
        op.attributes[_CONFIG] = ir.DictAttr.get({"index": ir.IntegerAttr.get(number.type, place)})
    return [callbacks.callback(int(number.value)) for _, number in calls]


def run_text(module: str, inputs: Sequence[Array | np.ndarray]) -> list[Array]:
    """The results of `main` for these inputs."""
    with jax.enable_x64(True):
        # the executable takes buffers on its device; it checks neither their number nor their types
        placed = [jax.device_put(x, jax.local_devices(backend="cpu")[0]) for x in inputs]
        results = compile_text(module).execute_sharded(placed)
        return [parts[0] for parts in results.disassemble_into_single_device_arrays()]
