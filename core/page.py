"""Text of others in a prompt, and a web page in it: from a line that is PAGE or HTML to an empty one, or the end."""

from __future__ import annotations

import re

PAGE = "Page (accessibility tree):"
HTML = "Page (html):"
_PAGE = re.compile(rf"^(?:{re.escape(PAGE)}|{re.escape(HTML)})\n(?:.+(?:\n|\Z))*", re.MULTILINE)


def without_page(text: str, note: str = "") -> str:
    """The text with a note in the place of its page; as it is where it has none."""
    return _PAGE.sub(lambda page: note + "\n" * page[0].endswith("\n"), text)


def page_of(text: str) -> str:
    """The last page in a text, with its first line; "" where it has none."""
    return next((page[0].rstrip("\n") for page in reversed(list(_PAGE.finditer(text)))), "")


def has_page(text: str) -> bool:
    return _PAGE.search(text) is not None


def escape(text: str) -> str:
    """A lesson's text, or a page's, escaped so that it can neither close the memory block nor end a template's turn."""
    text = re.sub(r"<(?=/?\s*memory_items)", "&lt;", text, flags=re.IGNORECASE)
    return text.replace("<|", "< |").replace("\x00", "")
