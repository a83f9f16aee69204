"""Checks of a run's records against each other: ids, which are hashes of content, the log of its calls, and its bank.

They find what was changed after it was written, as far as it was not changed everywhere. A text from which a secret was
removed (core/redact.py) is passed over: it was hashed with it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.evidence import Check, NotChecked, is_own_kind, known_records, where
from analysis.invariants import CLOSE, is_plain, made_elsewhere
from analysis.runs import Run, read_banks
from core.build import part
from core.conversation import conversation
from core.errors import UserError
from core.memory.records import is_altered, ticked, was_told
from core.redact import HIDDEN
from core.run.files import CALLS, PROMPTS, lines_of
from core.run.records import every_try, records_of
from core.run.unfinished import trajectory_of
from core.types import MemoryRecord, Trajectory, content_id, trajectory_id

SHORT = 600  # characters of a query that is embedded whole; of a longer one the part that others do not share counts
MODULES = {"agent": "core.agent", "judge": "core.learning.judges"}
MODULES |= dict.fromkeys(("distiller", "contrast"), "core.learning.lessons")


def content_ids(run: Run) -> Iterator[str]:
    """An attempt or a record whose id is not the hash of its content, or that is of another episode."""
    require_unscrubbed(run)
    for row in every_try(run.path):
        for attempt in row["trajectories"]:
            if not hidden(attempt) and trajectory_id(row["task_id"], trajectory_of(attempt)) != attempt["id"]:
                yield f"{where(row)}: attempt {attempt['sample']} is not what its id was made from"
        yield from made_elsewhere(row)


def changed_prompts(run: Run) -> Iterator[str]:
    """Prompts of judge, selector or extractor (prompts.jsonl) that are not those that were sent."""
    require_unscrubbed(run)
    for row in lines_of(run.path, PROMPTS):
        if not hidden(row) and content_id(row["messages"]) != row["id"]:
            yield f"prompts.jsonl: {row['id']} is not what its id was made from"


def odd_endings(run: Run) -> Iterator[str]:
    """Attempts that ended by reaching the goal and are stored as a failure, or without it and as a success."""
    for row in every_try(run.path):
        for attempt in row["trajectories"]:
            if attempt["ended_by"] in ("goal", "end") and attempt["success"] != (attempt["ended_by"] == "goal"):
                said = "success" if attempt["success"] else "failure"
                yield f"{where(row)}: attempt {attempt['sample']} is a {said}, ended_by is {attempt['ended_by']}"


def changed_lessons(run: Run) -> Iterator[str]:
    """A record in the bank, or one that was retrieved, with other lessons than those that its id was made from."""
    made = {record.id: record for row in every_try(run.path) for record in records_of(row)}
    for stored in read_banks(run, must=False):
        if stored.id in made and is_altered(stored, made[stored.id]):
            yield f"record {stored.id} in the bank holds other lessons than its episode"
    records = known_records(run)
    retrieved = {hit["id"] for row in run.rows for hit in row["retrieved"]} - made.keys()
    for id in sorted(retrieved):
        for record in records[id]:
            if not came_from(record):
                yield f"record {id}, which was retrieved, is not what its id was made from"


def came_from(record: MemoryRecord) -> bool:
    """Whether a record's id is the hash of its content; True where it is no such hash (a client's, a merged one).

    In a bank that others had filled its tick is later than the index of its episode, which was hashed.
    """
    if was_told(record):
        return record.id == content_id("told", record.domain, record.text)
    by_a_run = record.provenance.get("run") and record.source_trajectory_id and not record.parents
    if not by_a_run or record.provenance.get("hygiene") or hidden(record.text):
        return True
    return any(ticked(record, index).id == record.id for index in range(record.tick, -1, -1))


def recorded_replies(run: Run) -> Iterator[str]:
    """A step, a verdict or a lesson that the log of the calls (calls.jsonl) does not bear out."""
    require_unscrubbed(run)
    if source := run.config.get("attempts_from"):
        yield from learned_again(run, Path(source))
        return
    agent = own_class(run, "agent")
    if agent is not None and not agent.asks_model:
        return
    if not (run.path / "calls.jsonl").is_file():
        if any(attempt["steps"] for row in run.rows for attempt in row["trajectories"]):
            raise NotChecked("there is no calls.jsonl: nothing says what the models replied")
        return
    calls = answered(run)
    seen = messages_of(run, agent)
    for row in every_try(run.path):
        said = {(call["messages"], call["text"]) for call in calls["agent", row["task_id"]]}
        texts = {text for _, text in said}
        for attempt in filter(lambda each: not hidden(each), row["trajectories"]):
            made, at = trajectory_of(attempt), f"{where(row)}: attempt {attempt['sample']}"
            for number, step in enumerate(made.steps):
                if step.text not in texts:
                    yield f"{at}, step {number + 1}: no call gave this reply"
                elif seen and (content_id(seen(made, number)), step.text) not in said:
                    yield f"{at}, step {number + 1}: the reply was given to another prompt than is recorded"
        if not hidden(row):
            yield from (f"{where(row)}: {line}" for line in learned(run, row, calls))
    if agent is None:
        raise NotChecked("what was sent to an agent from outside: only its replies were looked up")


def learned_again(run: Run, source: Path) -> Iterator[str]:
    """Of a run with attempts_from: an attempt that is not the other run's, and what `learned` says."""
    calls = answered(run) if (run.path / "calls.jsonl").is_file() else defaultdict(list)
    made = {_id(row, attempt) for row in every_try(source) for attempt in row["trajectories"]}
    for row in run.rows:
        for attempt in row["trajectories"] if made else ():
            if _id(row, attempt) not in made:
                yield f"{where(row)}: attempt {attempt['sample']} is none of those in {source}"
        yield from (f"{where(row)}: {line}" for line in learned(run, row, calls))
    if not made:
        raise NotChecked(f"the attempts: {source}, whose they are, is not there")


def _id(row: dict, attempt: dict) -> str:
    return trajectory_id(row["task_id"], trajectory_of(attempt))


def learned(run: Run, row: dict, calls: dict[tuple[str, str], list[dict]]) -> Iterator[str]:
    """What to say of an episode's verdicts and lessons that no reply of judge or extractor gave."""
    judge, extractors = own_class(run, "judge"), [own_class(run, key) for key in ("distiller", "contrast")]
    labels = {judge.label_in(call["text"]) for call in calls["judge", row["task_id"]]} if judge else {None}
    for number, verdict in enumerate(row["verdicts"]):
        asked = verdict["source"] == "llm" and None not in labels
        if asked and verdict["label"] is not None and verdict["label"] not in labels:
            yield f"no reply of the judge says {verdict['label']}, as the verdict on attempt {number} does"
    replies = [call["text"] for call in calls["extractor", row["task_id"]]]
    told = [maker.lessons_in(reply, row["query"]) for maker in filter(None, extractors) for reply in [*replies, ""]]
    if extractors[0] is None or None in told:
        return
    for record in records_of(row):
        if not {*record.items} <= {lesson for lessons in told for lesson in lessons}:
            yield f"no reply of the extractor holds the lessons of record {record.id}"


def answered(run: Run) -> dict[tuple[str, str], list[dict]]:
    """{(role, task): lines of calls.jsonl that hold a reply}."""
    calls: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for call in lines_of(run.path, CALLS):
        if not call.get("error") and call.get("text") is not None:
            calls[call["role"], call["task"]].append(call)
    return calls


def messages_of(run: Run, agent: Any) -> Any:
    """A function (attempt, number of a step) -> the messages to which that step was the reply.

    None where they are not known: of an agent from outside, or of a model that was also offered the actions.
    """
    model = own_class(run, "llm")
    if agent is None or model is None or model.draws:
        return None
    shown = {name: run.config["agent"][name] for name in ("keep_observations",) if name in run.config["agent"]}
    asked = agent(answer_format="", **shown)

    def seen(made: Trajectory, number: int) -> list[dict]:
        return asked.seen(conversation(made, number))

    return seen


def own_class(run: Run, key: str) -> Any:
    """The class of this project that a part of the run is; None for one from outside, or gone, and for no part.

    It is known by its name, as its module may have moved since the run was made.
    """
    recorded = (run.config.get(key) or {}).get("_target_", "")
    module, _, name = recorded.rpartition(".")
    try:
        return part({"_target_": f"{MODULES.get(key, module)}.{name}"}) if recorded.startswith("core.") else None
    except UserError:
        return None


def hidden(value: Any) -> bool:
    """Whether a secret was removed from a text, or from JSON data."""
    return HIDDEN in (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def require_unscrubbed(run: Run) -> None:
    """Raise NotChecked if `scrub_episodes` may have changed the texts that ids were made from."""
    if run.config.get("scrub_episodes"):
        raise NotChecked("scrub_episodes=true changed the texts that ids were made from")


def other_queries(run: Run) -> Iterator[str]:
    """Retrievals whose scores are not those of the task's own query, so that another text was searched for."""
    import numpy as np

    if not is_plain(run) or not is_own_kind(run):
        return
    stored = [record for record in read_banks(run, must=False, vectors=True) if record.query_embedding]
    vectors = {record.id: np.array(record.query_embedding) for record in stored}
    queries = {record.original_query: vectors[record.id] for record in stored if len(record.original_query) < SHORT}
    short = {record.id for record in stored if len(record.original_query) < SHORT}
    rows = [row for row in run.rows if row["query"] in queries]
    hits = [(row, hit) for row in rows for hit in row["retrieved"] if hit["id"] in short]
    other = [row for row, hit in hits if abs(vectors[hit["id"]] @ queries[row["query"]] - hit["score"]) > CLOSE]
    if other:
        yield f"{len(other)} of {len(hits)} lessons were found by another text than the task's query: {where(other[0])}"


LOOK: tuple[Check, ...] = (changed_prompts, odd_endings, other_queries)
BROKEN: tuple[Check, ...] = (content_ids, changed_lessons, recorded_replies)
