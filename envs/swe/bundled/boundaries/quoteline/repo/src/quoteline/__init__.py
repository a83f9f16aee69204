"""Quote lines of a file."""

__version__ = "0.3.1"
