"""The one exception passes raise for a program they cannot compile as asked."""


class CompileError(Exception):
    """A program that cannot be compiled or called as asked: one sentence with the op and the place."""


class PassError(CompileError):
    """One clear sentence: the op, its place, and what to do."""
