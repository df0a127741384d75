"""The one exception passes raise for a program they cannot compile as asked."""


class PassError(Exception):
    """One clear sentence: the op, its place, and what to do."""
