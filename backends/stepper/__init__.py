"""Runs the npu level one instruction at a time on NumPy arrays, at real addresses: see docs/stepper.md."""

from .errors import Race, StepFault
from .program import StepProgram
from .session import StepRun

__all__ = ["StepProgram", "Race", "StepRun", "StepFault"]
