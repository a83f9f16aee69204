"""What is on the shelves."""

from .delivery import book_delivery
from .errors import StockError
from .room import Stockroom

__all__ = ["StockError", "Stockroom", "book_delivery"]
