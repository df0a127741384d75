"""Runs StableHLO text on the host. The only module here that uses JAX's semi-private compiler API."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from jax._src import compiler, xla_bridge
from jax._src.interpreters import mlir
from jaxlib import xla_client
from jaxlib.mlir import ir
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from ...dialects import callbacks
from ...dialects.base import describe
from ...dialects.host_modules import HostType, read_host_module, said_types

_CONFIG = "mhlo.backend_config"


@dataclass(frozen=True)
class HostCode:
    """What runs a module: its executable, and shape and dtype of each input."""

    executable: Any
    inputs: tuple[HostType, ...]


@functools.lru_cache(maxsize=1024)
def compile_text(module: str) -> HostCode:
    """What runs a module with one public function `main`. Raises VerifyException for a text that is none."""
    backend = xla_bridge.get_backend("cpu")
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    with mlir.make_ir_context():
        parsed, inputs, _ = read_host_module(module)
        functions = _callbacks(parsed) if callbacks.KEY in module else []
        made = backend.compile_and_load(
            parsed, executable_devices=devices, compile_options=options, host_callbacks=functions
        )
    return HostCode(made, inputs)


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


def run_text(module: str, inputs: Sequence[Array | np.ndarray], op: Operation | None = None) -> list[Array]:
    """The results of `main` for these inputs. Raises VerifyException, which names the op whose module it is, for a text
    that is no StableHLO or takes other inputs."""
    try:
        return _run_text(module, inputs)
    except VerifyException as error:
        raise VerifyException(str(error) if op is None else f"{describe(op)}: {error}") from None


def _run_text(module: str, inputs: Sequence[Array | np.ndarray]) -> list[Array]:
    with jax.enable_x64(True):
        # the executable takes buffers on its device; it checks neither their number nor their types
        code = compile_text(module)
        given = tuple((tuple(x.shape), _element(np.dtype(x.dtype))) for x in inputs)
        if given != code.inputs:
            raise VerifyException(
                f"the module of a host op takes {said_types(code.inputs)}, and is given {said_types(given)}"
            )
        placed = [jax.device_put(x, jax.local_devices(backend="cpu")[0]) for x in inputs]
        results = code.executable.execute_sharded(placed)
        return [parts[0] for parts in results.disassemble_into_single_device_arrays()]


@functools.cache
def _element(dtype: np.dtype) -> str:
    """An element type as MLIR writes it."""
    with mlir.make_ir_context():
        return str(mlir.dtype_to_ir_type(dtype))
