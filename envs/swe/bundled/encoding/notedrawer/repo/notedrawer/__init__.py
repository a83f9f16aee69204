from notedrawer.drawer import Drawer
from notedrawer.names import file_name

__all__ = ["Drawer", "file_name"]
