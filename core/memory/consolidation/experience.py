"""What one episode tells the bank about its records: which were used, how it went, which record is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Experience:
    """The part of an episode that the fold over episodes reads. Nothing in it but what the learner believes.

    index             position in the stream; None outside a stream (a server), where nothing is resumed
    label             success | failure as judged, never the env's truth; None: nobody judged
    judge_confidence  in [0, 1]; None when the judge gives none
    used              ids of the records that were put before the agent
    added             id of the record that the episode added
    """

    index: int | None = None
    label: str | None = None
    judge_confidence: float | None = None
    used: tuple[str, ...] = ()
    added: str | None = None


def experience(episode: Any) -> Experience:
    """What there is to learn from an Episode, from its row in episodes.jsonl, or from an Experience itself.

    A broken attempt (infra_error) says nothing about the records that it used.
    """
    if isinstance(episode, Experience):
        return episode
    if not isinstance(episode, dict):
        episode = {
            "index": episode.index,
            "status": episode.status,
            "verdict": {"label": episode.verdict.label, "confidence": episode.verdict.confidence},
            "retrieved": episode.retrieved,
            "record": None if episode.record is None else {"id": episode.record.id},
        }
    broken, verdict, record = episode["status"] == "infra_error", episode["verdict"], episode["record"]
    return Experience(
        index=episode["index"],
        label=verdict["label"],
        judge_confidence=verdict["confidence"],
        used=() if broken else tuple(dict.fromkeys(hit["id"] for hit in episode["retrieved"])),
        added=record["id"] if record else None,
    )
