"""Runs the tile and the npu level on NumPy arrays, the latter one instruction at a time at real addresses: see
docs/stepper.md."""

from .errors import Race, StepFault
from .program import StepProgram
from .session import Session
from .tiles import run_tile

__all__ = ["StepProgram", "Race", "Session", "StepFault", "run_tile"]
