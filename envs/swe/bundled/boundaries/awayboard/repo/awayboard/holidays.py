"""Public holidays."""

from datetime import date

FIXED = [(1, 1), (5, 1), (10, 3), (12, 25), (12, 26)]


def is_holiday(day: date) -> bool:
    return (day.month, day.day) in FIXED


def is_weekend(day: date) -> bool:
    return day.weekday() >= 5
