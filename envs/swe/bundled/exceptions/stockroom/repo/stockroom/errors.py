class StockError(Exception):
    """Something that this package was asked to do cannot be done."""
