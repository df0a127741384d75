"""Tilewright: compiles JAX functions for cube-and-vector NPUs and runs them on a model of the machine.

import tilewright as tw
program = tw.compile(fn, *args, target="ascend-910b1")
y = program(*args)            # the npu level's values
print(program.report())       # where the microseconds go
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import pruning, serving, tiers, training
    from .api.compiling import compile, debug, verify
    from .api.debugging import debugging
    from .api.files.loading import load
    from .api.files.saving import save
    from .api.files.updating import update
    from .api.jitted import jit
    from .api.onnx_sources import onnx_function
    from .api.options import Options
    from .api.program import CompileError, Program
    from .api.sizes.bounded import bounded, compress, nms, nonzero, unique
    from .api.sizes.dynamic import DynamicProgram
    from .api.sizes.variants import variants
    from .api.sources import ProgramSource
    from .backends.simulator.errors import SimulationError
    from .frontends.custom import custom_call
    from .machine import Machine, MachineError
    from .modelfile.archive import ModelFileError
    from .modelfile.keys import Secret
    from .passes.pins import Schedule
    from .passes.quantized.recipes import ProductChoice, QuantConfig
    from .quantization.fake import fake_quant
    from .quantization.quantize import Quantized, quantize
    from .serving.session import Session
    from .serving.streams import SessionError
    from .support.plugins import AddedPass, Plugin, PluginError
    from .tuning.autotune import Autotuned, autotune
    from .tuning.checklist import Checklist, checklist
    from .tuning.configuration import Configuration
    from .tuning.tune import Tuned, tune
    from .verification.results import Verification

__all__ = [
    "AddedPass",
    "Autotuned",
    "Checklist",
    "CompileError",
    "Configuration",
    "DynamicProgram",
    "Machine",
    "MachineError",
    "ModelFileError",
    "Options",
    "Plugin",
    "PluginError",
    "ProductChoice",
    "Program",
    "ProgramSource",
    "QuantConfig",
    "Quantized",
    "Schedule",
    "Secret",
    "Session",
    "SessionError",
    "SimulationError",
    "Tuned",
    "Verification",
    "autotune",
    "bounded",
    "checklist",
    "compile",
    "compress",
    "custom_call",
    "debug",
    "debugging",
    "fake_quant",
    "jit",
    "load",
    "nms",
    "nonzero",
    "onnx_function",
    "pruning",
    "quantize",
    "save",
    "serving",
    "tiers",
    "training",
    "tune",
    "unique",
    "update",
    "variants",
    "verify",
]


def __dir__() -> list[str]:
    """The public names, loaded or not, and what every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    """Loads the compiler on first use, so that tools which need little of it start at once. Raises AttributeError,
    with the name that is meant, for one that there is not."""
    if name not in __all__:
        from difflib import get_close_matches

        lower = {each.lower(): each for each in __all__}
        near = get_close_matches(name.lower(), lower, 1)
        hint = f"; did you mean tw.{lower[near[0]]}?" if near else f"; it has {', '.join(__all__)}"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)
    if name in ("pruning", "serving", "tiers", "training"):
        return import_module(f".{name}", __name__)
    homes = {
        **{
            "Machine": ".machine",
            "MachineError": ".machine",
            "Schedule": ".passes.pins",
            "jit": ".api.jitted",
        },
        **{"SimulationError": ".backends.simulator.errors", "ProgramSource": ".api.sources"},
        **dict.fromkeys(("AddedPass", "Plugin", "PluginError"), ".support.plugins"),
        **dict.fromkeys(("ProductChoice", "QuantConfig"), ".passes.quantized.recipes"),
        **dict.fromkeys(("Quantized", "quantize"), ".quantization.quantize"),
        **dict.fromkeys(("Checklist", "checklist"), ".tuning.checklist"),
        **dict.fromkeys(("Tuned", "tune"), ".tuning.tune"),
        **dict.fromkeys(("Autotuned", "autotune"), ".tuning.autotune"),
        "Configuration": ".tuning.configuration",
        **dict.fromkeys(("compile", "debug", "verify"), ".api.compiling"),
        "debugging": ".api.debugging",
        "Session": ".serving.session",
        "SessionError": ".serving.streams",
        "load": ".api.files.loading",
        "save": ".api.files.saving",
        "update": ".api.files.updating",
        "ModelFileError": ".modelfile.archive",
        "Secret": ".modelfile.keys",
        **dict.fromkeys(("bounded", "compress", "nms", "nonzero", "unique"), ".api.sizes.bounded"),
        "DynamicProgram": ".api.sizes.dynamic",
        "Options": ".api.options",
        "onnx_function": ".api.onnx_sources",
        "custom_call": ".frontends.custom",
        "variants": ".api.sizes.variants",
        "fake_quant": ".quantization.fake",
        "Verification": ".verification.results",
    }
    home = import_module(homes.get(name, ".api.program"), __name__)
    globals()[name] = getattr(home, name)
    return globals()[name]
