"""What is wrong with a kernel whose footprint is asked for."""


class FootprintError(ValueError):
    """One sentence."""
