from choirdates.dates import Date
from choirdates.season import Season

__all__ = ["Date", "Season"]
