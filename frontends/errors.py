"""The one exception that frontends raise for input they cannot take."""


class FrontendError(Exception):
    """The source is not a program Tilewright can read; one sentence with the place, where known."""
