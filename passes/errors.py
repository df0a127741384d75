"""The exceptions that passes raise for a program they cannot compile as asked."""


class PassError(Exception):
    """One clear sentence: the op, its place, and what to do."""


class TooLarge(PassError):
    """A fusion whose values do not fit on chip together; in parts it may."""
