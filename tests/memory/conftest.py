"""What all tests of the memory share."""

from __future__ import annotations

import re

import pytest

from core.memory.consolidation import deduplicate, merge
from core.memory.consolidation.differences import difference

_ANGLE = re.compile(r"@\d")


@pytest.fixture(autouse=True)
def angles_are_no_facts(monkeypatch):
    """Lessons of the embedder Compass (memory_kit) name the angle that they point to: a number, but no fact.

    Their tests are of thresholds on the cosine; what corrects what: test_memory_corrections.py.
    """

    def without_angles(one, other):
        return None if _ANGLE.search(one.text) or _ANGLE.search(other.text) else difference(one, other)

    monkeypatch.setattr(deduplicate, "difference", without_angles)
    monkeypatch.setattr(merge, "difference", without_angles)
