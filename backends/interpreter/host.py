"""Runs StableHLO text on the host: the one place here that uses JAX's semi-private compiler API."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax import Array
from jax._src import compiler, xla_bridge
from jax._src.interpreters import mlir
from jaxlib import xla_client
from jaxlib.mlir import ir


@functools.lru_cache(maxsize=1024)
def compile_text(module: str) -> Any:
    """A loaded executable for a module with one public function `main`."""
    backend = xla_bridge.get_backend("cpu")
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        return backend.compile_and_load(parsed, executable_devices=devices, compile_options=options)


def run_text(module: str, inputs: Sequence[Array]) -> list[Array]:
    """The results of `main` for these inputs."""
    with jax.enable_x64(True):
        # the executable takes buffers on its device; it checks neither their number nor their types
        placed = [jax.device_put(x, jax.local_devices(backend="cpu")[0]) for x in inputs]
        results = compile_text(module).execute_sharded(placed)
        return [parts[0] for parts in results.disassemble_into_single_device_arrays()]
