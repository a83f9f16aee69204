"""What one episode tells the bank about its records: which were used, how it went, which record is new."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Experience:
    """The part of an episode that the fold over episodes reads. Nothing in it but what the learner believes.

    index             position in the stream; None outside a stream (a server), where nothing is resumed
    label             success | failure as judged, never the env's truth; None: nobody judged
    judge_confidence  in [0, 1]; None when the judge gives none
    used              ids of the records that were put before the agent
    added             id of the record that the answer's attempt added
    others            (id, confidence of its judge) of the records that attempts beside the answer added
    """

    index: int | None = None
    label: str | None = None
    judge_confidence: float | None = None
    used: tuple[str, ...] = ()
    added: str | None = None
    others: tuple[tuple[str, float | None], ...] = ()

    @property
    def new(self) -> tuple[tuple[str, float | None], ...]:
        """(id, confidence of its judge) of every record that the episode added."""
        return (*(() if self.added is None else ((self.added, self.judge_confidence),)), *self.others)


def experience(episode: Any) -> Experience:
    """What there is to learn from an Episode, from its row in episodes.jsonl, or from an Experience itself.

    A broken attempt (infra_error) says nothing about the records that it used.
    """
    if isinstance(episode, Experience):
        return episode
    if not isinstance(episode, dict):
        episode = asdict(episode)
    broken, verdict, record = episode["status"] == "infra_error", episode["verdict"], episode["record"]
    return Experience(
        index=episode["index"],
        label=verdict["label"],
        judge_confidence=verdict["confidence"],
        used=() if broken else tuple(dict.fromkeys(hit["id"] for hit in episode["retrieved"])),
        added=record["id"] if record else None,
        others=_others(episode),
    )


def _others(row: dict) -> tuple[tuple[str, float | None], ...]:
    attempts = zip(row.get("trajectories", ()), row.get("verdicts", ()))
    sure = {trajectory["id"]: verdict["confidence"] for trajectory, verdict in attempts}
    return tuple((r["id"], sure.get(r["source_trajectory_id"])) for r in row.get("other_records", ()))
