"""Tilewright: compiles JAX functions for cube-and-vector NPUs and runs them on a model of the machine.

    import tilewright as tw
    program = tw.compile(fn, *args, target="ascend-910b1")
    y = program(*args)            # the npu level's values
    print(program.report())       # where the microseconds go
"""

from .machine import Machine, MachineError
from .program import CompileError, Options, Program, Verification, compile, jit, verify

__all__ = [
    "CompileError",
    "Machine",
    "MachineError",
    "Options",
    "Program",
    "Verification",
    "compile",
    "jit",
    "verify",
]
