"""What consolidation learns from one episode: which records were used, how it was judged, which records are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EpisodeFeedback:
    """The part of an episode that consolidation reads. It holds the judge's labels, never the true outcome.

    index     position in the stream; None outside a stream (a server), where nothing is resumed
    label     success | failure as judged; None: not judged
    used      ids of the records that were shown to the agent; with memory.uses=cited, of those that it cited
    counted   these uses were counted when they were shown (bank.count_shown): what is new is how they ended
    new       (id, the judge's confidence in [0, 1] or None) of each record that the episode added
    """

    index: int | None = None
    label: str | None = None
    used: tuple[str, ...] = ()
    counted: bool = False
    new: tuple[tuple[str, float | None], ...] = ()


def feedback_of(row: dict[str, Any]) -> EpisodeFeedback:
    """The feedback in a row of episodes.jsonl. A broken attempt says nothing about the records that it used."""
    judged = zip(row["trajectories"], row["verdicts"], strict=True)
    confidence = {trajectory["id"]: verdict["confidence"] for trajectory, verdict in judged}
    shown = [hit["id"] for hit in row["retrieved"] if hit.get("n_cited", hit.get("n_shown", 1))]
    used = () if row["status"] == "infra_error" else dict.fromkeys(shown)
    return EpisodeFeedback(
        index=row["index"],
        label=row["verdict"]["label"],
        used=tuple(used),
        new=tuple((record["id"], confidence.get(record["source_trajectory_id"])) for record in row["records"]),
    )
