"""What a user of the debugger did wrong."""


class DebugError(Exception):
    """A command of the debugger that cannot be done, in one sentence."""
