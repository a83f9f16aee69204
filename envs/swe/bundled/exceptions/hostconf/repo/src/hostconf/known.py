"""The settings that there are."""

from datetime import timedelta


def yes_or_no(text):
    return {"yes": True, "no": False}[text.lower()]


def seconds(text):
    return timedelta(seconds=float(text))


TYPES = {"host": str, "port": int, "workers": int, "keepalive": seconds, "compress": yes_or_no}
USUAL = {"host": "localhost", "port": 8080, "workers": 4, "keepalive": timedelta(seconds=5), "compress": True}
