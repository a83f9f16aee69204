from .bus import Bus
from .topics import fits

__all__ = ["Bus", "fits"]
