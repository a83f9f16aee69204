"""What the loop needs of a memory, and nothing else. One of your own inherits from `Memory` and writes two methods:

    @dataclass(kw_only=True)
    class LastLesson(Memory):
        def __post_init__(self): self.kept = []
        def retrieve(self, query, exclude_task=None):
            return [Scored(record=r, score=1.0) for r in self.kept[-1:] if r.task_id != exclude_task]
        def add(self, record, *, shown=()): self.kept.append(record); return True

Its fields are its keys in config/memory/*.yaml. A field named `path`, `embedder`, `policy`, `read_only`, `run` or
`provenance` is given at runtime (core/build.py says what each is); one that is not there is not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from core.types import MemoryRecord, Scored, Task, Usage


class Memory(Protocol):
    """Where lessons are kept. One thread writes; `retrieve` may be called from several at once.

    learns   False: nothing is ever kept, so that episodes do not depend on each other (memory=none)
    uses     "cited": an episode's row says of each retrieved record how many of its lessons the answer cites (n_cited)
    """

    learns: bool = True
    uses: str | None = None

    def retrieve(self, query: str, exclude_task: str | None = None) -> list[Scored]:
        """The records to put before the agent, best first. Never writes; none that came from exclude_task.

        Raises InfraError when an embedder breaks: the episode is then an infra_error.
        """
        ...

    def filing(self, task: Task) -> tuple[str | None, tuple[str, ...]]:
        """(domain, tags) of the records that a task teaches. With a domain, `retrieve` is given it as `domain`."""
        return None, ()

    def add(self, record: MemoryRecord, *, shown: Sequence[str] = ()) -> bool:
        """Keep a record, durably; False where its id is known already. shown: ids of what its task had retrieved."""
        ...

    def add_from(self, record: MemoryRecord, did: Sequence[tuple[str, str]], *, shown: Sequence[str] = ()) -> bool:
        """`add` with (action, observation) of each step of the attempts, for a memory that checks lessons by them."""
        return self.add(record, shown=shown)

    def learn(self, episode: dict[str, Any] | None) -> None:
        """Called after an episode's records were added, with its row (core/run/records.py): how its lessons did.

        Must change nothing for a row that it has had before. None: finish what a crash cut off.
        """

    def prefetch(self, query: str) -> None:
        """A task with this query comes next."""

    def ids(self) -> set[str]:
        """Of the records that were added and are still here. What is missing after a crash is added once more."""
        return set()

    def labels(self) -> set[str]:
        """The sources of the labels of all its lessons, as `core.setting.labels_of`; of one given as `memory.path`."""
        return {"unknown"}

    def spent(self) -> Usage | None:
        """What models that the memory itself asked have cost in this run; None: it asks none."""
        return None

    def close(self) -> None:
        """Release files; wait for what runs in the background."""
