"""The terminal of everything that prints in colours, in tables or live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import rich.console
from rich.segment import Segment

from core.redact import shown
from core.terminal import unfiltered


class Console(rich.console.Console):
    """rich's, for text of whatever origin: every text is `shown` (core/redact.py), none is read as markup.

    Colours are given as styles, and the sequences of rich itself reach the terminal.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**dict[str, Any](markup=False, emoji=False, highlight=False), **given})

    @property
    def file(self) -> IO[str]:
        return unfiltered(super().file)

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new

    def render(self, *given: Any, **named: Any) -> Iterable[Segment]:
        for segment in super().render(*given, **named):
            if segment.control:
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)
