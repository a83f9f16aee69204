"""A note as text."""

from typing import NamedTuple


class Note(NamedTuple):
    title: str
    body: str

    def to_text(self):
        return f"# {self.title}\n\n{self.body}"

    @classmethod
    def from_text(cls, text):
        head, _, body = text.partition("\n\n")
        return cls(head.removeprefix("# "), body)
