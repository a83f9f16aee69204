class RateError(Exception):
    """There is no rate to be had."""
