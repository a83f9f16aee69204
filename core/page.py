"""Web pages in a text.

A page begins with the line PAGE or HTML and extends to an empty line or the text's end.
"""

from __future__ import annotations

import re

PAGE = "Page (accessibility tree):"
HTML = "Page (html):"
_PAGE = re.compile(rf"^(?:{re.escape(PAGE)}|{re.escape(HTML)})\n(?:.+(?:\n|\Z))*", re.MULTILINE)


def without_page(text: str, note: str = "") -> str:
    """The text with each page replaced by a note."""
    return _PAGE.sub(lambda page: note + "\n" * page[0].endswith("\n"), text)


def page_of(text: str) -> str:
    """The last page in a text, including its first line; "" if there is none."""
    return next((page[0].rstrip("\n") for page in reversed(list(_PAGE.finditer(text)))), "")


def has_page(text: str) -> bool:
    return _PAGE.search(text) is not None
