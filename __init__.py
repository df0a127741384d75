"""Tilewright: compiles JAX functions for cube-and-vector NPUs and runs them on a model of the machine.

import tilewright as tw
program = tw.compile(fn, *args, target="ascend-910b1")
y = program(*args)            # the npu level's values
print(program.report())       # where the microseconds go
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.jitted import jit
    from .api.program import CompileError, Options, Program, Verification, compile, verify
    from .backends.simulator.errors import SimulationError
    from .frontends.custom import custom_call
    from .machine import Machine, MachineError
    from .passes.pins import Schedule
    from .support.plugins import AddedPass, Plugin, PluginError

__all__ = [
    "AddedPass",
    "CompileError",
    "Machine",
    "MachineError",
    "Options",
    "Plugin",
    "PluginError",
    "Program",
    "Schedule",
    "SimulationError",
    "Verification",
    "compile",
    "custom_call",
    "jit",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Loads the compiler on first use, so that tools which need little of it start at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = {
        **{"Machine": ".machine", "MachineError": ".machine", "Schedule": ".passes.pins", "jit": ".api.jitted"},
        **dict.fromkeys(("AddedPass", "Plugin", "PluginError"), ".support.plugins"),
        "custom_call": ".frontends.custom",
        "SimulationError": ".backends.simulator.errors",
    }
    home = import_module(homes.get(name, ".api.program"), __name__)
    globals()[name] = getattr(home, name)
    return globals()[name]
