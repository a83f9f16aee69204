from pocketrates.convert import Converter
from pocketrates.errors import RateError

__all__ = ["Converter", "RateError"]
