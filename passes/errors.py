"""The exceptions that passes raise for a program they cannot compile as asked."""


class CompileError(Exception):
    """A program that cannot be compiled or called as asked: one sentence with the op and the place."""


class PassError(CompileError):
    """One clear sentence: the op, its place, and what to do."""


class TooLarge(PassError):
    """A fusion whose values do not fit on chip together; in parts it may."""
