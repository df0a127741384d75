class ExplainError(Exception):
    """The page cannot be made: one sentence."""
