"""The methods that the loop calls on a memory. To write your own, inherit from `Memory` and define two methods:

    @dataclass(kw_only=True)
    class LastLesson(Memory):
        def __post_init__(self): self.kept = []
        def retrieve(self, query, exclude_task=None):
            return [Scored(record=r, score=1.0) for r in self.kept[-1:] if r.task_id != exclude_task]
        def add(self, record, *, shown=()): self.kept.append(record); return True

Its fields are its keys in config/memory/*.yaml. A field named `path`, `embedder`, `policy`, `read_only`, `run`,
`provenance`, `role` or `seed` is set at runtime, if the class has it (core/build.py says what each is).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast

from core.errors import check_returned
from core.types import MemoryRecord, Scored, Task, Usage


class Did(NamedTuple):
    """A step of an attempt that a record was made from. ended   whether the environment ended the attempt with it."""

    action: str
    observation: str
    ended: bool = False


Steps = Sequence[Did]


class Memory(Protocol):
    """A store of lessons. One thread writes; `retrieve` may be called from several at once.

    learns   False: nothing is ever stored, so that episodes do not depend on each other (memory=none)
    uses     "cited": an episode's row counts for each retrieved record the lessons that the answer cites (n_cited)
    """

    learns: bool = True
    uses: str | None = None

    @abstractmethod
    def retrieve(self, query: str, exclude_task: str | None = None) -> list[Scored]:
        """The records to show to the agent, best first, none that came from exclude_task. Never writes.

        Raises InfraError when the embedder fails: the episode is then an infra_error.
        """
        ...

    def filed_under(self, task: Task) -> tuple[str | None, tuple[str, ...]]:
        """(domain, tags) for the records that a task adds. If there is a domain, `retrieve` gets it as `domain`."""
        return None, ()

    @abstractmethod
    def add(self, record: MemoryRecord, *, shown: Sequence[str] = ()) -> bool:
        """Store a record durably; False if its id is stored already. shown: ids of the records in the task's prompt."""
        ...

    def add_from(self, record: MemoryRecord, did: Steps, *, shown: Sequence[str] = ()) -> bool:
        """`add` with the attempts' steps, for a memory that checks lessons against them."""
        return self.add(record, shown=shown)

    def learn(self, episode: dict[str, Any] | None) -> None:
        """Take in the outcome of an episode. Called after its records were added, with its row (core/run/records.py).

        A row that was given before must change nothing. None: finish the work that a crash interrupted.
        """

    def ids(self) -> set[str]:
        """Ids of the stored records. A resumed run adds the records that are missing here once more."""
        return set()

    def get(self, id: str) -> MemoryRecord | None:
        """The stored record of this id; None if there is none, or the memory does not tell. A resumed run asks."""
        return None

    def labels(self) -> set[str]:
        """Label sources of all stored lessons (`core.setting.labels_of`). Asked of a memory given as `memory.path`."""
        return {"unknown"}

    def spent(self) -> Usage | None:
        """Cost of the model calls that the memory made in this run; None: it calls no model."""
        return None

    def close(self) -> None:
        """Release files and wait for background work."""


def hits_of(part: object, method: str, found: object) -> list[Scored]:
    """What a memory, or a policy, has retrieved. UserError unless it is a list of Scored, as the protocol has it."""
    right = isinstance(found, list) and all(
        isinstance(hit, Scored) and isinstance(hit.record, MemoryRecord) and isinstance(hit.score, (int, float))
        for hit in found
    )
    check_returned(
        right, f"{type(part).__name__}.{method}", "a list of Scored (record: MemoryRecord, score: float)", found
    )
    return cast(list[Scored], found)
