"""The one exception that frontends raise for input they cannot take."""

from ..support.sentences import SentenceError


class FrontendError(SentenceError):
    """The source is not a program Tilewright can read; one sentence with the place, where known."""
