"""What one episode tells the bank about its records: which were used, how it went, which records are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EpisodeFeedback:
    """The part of an episode that consolidation reads. Nothing in it but what the learner believes.

    index   position in the stream; None outside a stream (a server), where nothing is resumed
    label   success | failure as judged, never the env's truth; None: nobody judged
    used    ids of the records that were put before the agent
    new     (id, confidence of its judge in [0, 1], None where it gives none) of each record that the episode added
    """

    index: int | None = None
    label: str | None = None
    used: tuple[str, ...] = ()
    new: tuple[tuple[str, float | None], ...] = ()


def feedback_of(row: dict[str, Any]) -> EpisodeFeedback:
    """What there is to learn from a row of episodes.jsonl.

    A broken attempt (infra_error) says nothing about the records that it used.
    """
    judged = zip(row["trajectories"], row["verdicts"], strict=True)
    confidence = {trajectory["id"]: verdict["confidence"] for trajectory, verdict in judged}
    used = () if row["status"] == "infra_error" else dict.fromkeys(hit["id"] for hit in row["retrieved"])
    return EpisodeFeedback(
        index=row["index"],
        label=row["verdict"]["label"],
        used=tuple(used),
        new=tuple((record["id"], confidence.get(record["source_trajectory_id"])) for record in row["records"]),
    )
