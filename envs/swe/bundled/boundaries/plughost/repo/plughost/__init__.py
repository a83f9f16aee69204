from .discovery import Plugin, discover
from .resolve import loadable, newest

__all__ = ["Plugin", "discover", "loadable", "newest"]
