"""The basket of a web shop."""

from marketbasket.basket import Basket
from marketbasket.receipt import receipt

__all__ = ["Basket", "receipt"]
