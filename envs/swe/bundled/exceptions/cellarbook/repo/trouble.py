"""The one exception."""


class CellarError(Exception):
    """The cellar cannot do that."""
