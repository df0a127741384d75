"""The simulator's one error."""


class SimulationError(Exception):
    """A program that cannot be simulated, or that would hang; one sentence with the op and its place."""
