"""What the tests of a lesson's life share: records with chosen meanings, and a model that says what it is told to."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from core.memory.bank import MemoryBank
from core.memory.consolidation import differences
from core.memory.consolidation.consolidator import Consolidator
from core.memory.policies.cosine import Cosine
from core.models.base import Role
from core.models.embedding import Embedder
from core.models.offline import ScriptedModel
from core.types import Lesson, MemoryRecord

_ANGLE = re.compile(r"@(\d+)")
# For a test that asks something of the store itself, in a file that does not run on both as a whole.
on_both_stores = pytest.mark.parametrize("bank_store", ["sqlite", "postgres"], indirect=True)


class Compass(Embedder):
    """An embedder in which a text says where it points: "@30" is 30 degrees, so that every cosine is known."""

    name = "compass"

    def __init__(self):
        self.texts = []

    def embed(self, texts):
        self.texts += texts
        angles = [math.radians(int(found.group(1)) if (found := _ANGLE.search(text)) else 270) for text in texts]
        return np.array([[math.cos(a), math.sin(a)] for a in angles], dtype=np.float32)


def item(angle, words="look twice", title=None):
    """A memory item that points to an angle."""
    title = f"@{angle} {words}" if title is None else title
    return Lesson(title=title, description=f"@{angle} about it", content=f"@{angle} Always {words}.")


def different(one, other):
    """`differences.difference`, but lessons that name an angle have none: their tests are of cosines alone."""
    return None if _ANGLE.search(one.text + other.text) else differences.difference(one, other)


def may_correct(one, other):
    """The same for `differences.may_correct`."""
    return not _ANGLE.search(one.text + other.text) and differences.may_correct(one, other)


def record(id, *items, query=None, **changes):
    """A record, a success unless said otherwise, whose query points to 200 degrees."""
    values = {
        "id": id,
        "original_query": query or f"@200 task {id}",
        "items": items,
        "source_trajectory_id": f"trajectory {id}",
        "score": 0.0 if changes.get("outcome") == "failure" else 1.0,
        "outcome": "success",
        "label_source": "llm",
        "task_id": f"task {id}",
    }
    return MemoryRecord(**values | changes)


def merged_reply(angle=15):
    """What a distiller-like model says when it writes one item."""
    return (
        f"```\n# Memory Item 1\n## Title @{angle} The rule behind\n## Description Holds for all.\n"
        "## Content Do as all of them do.\n```"
    )


class Teller:
    """A Role whose replies come from a function of the prompt; keeps the prompts."""

    def __init__(self, answer):
        self.prompts = []

        def script(messages, role, sample):
            self.prompts.append(messages[-1]["content"])
            return answer(messages[-1]["content"]) if callable(answer) else answer

        self.role = Role(name="extractor", llm=ScriptedModel(script=script), temperature=0.0, max_tokens=None)


def open_life_bank(path, role=None, embedder=None, **policies):
    """A bank with a life of its lessons; every=1000 unless said, so that a test chooses when a round runs."""
    life = Consolidator(**{"every": 1000, "role": role} | policies)
    return MemoryBank(path=str(path), embedder=embedder or Compass(), policy=Cosine(), consolidate=life)


def statuses(bank):
    return {r.id: r.status for r in bank.records()}
