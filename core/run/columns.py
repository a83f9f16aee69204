"""What a table needs of each episode, as columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from core.build import ROLES
from core.errors import UserError
from core.memory.open import read_records
from core.models.reply_text import without_surrogates
from core.plain_answer import plain_answer
from core.run.metrics import VALID, VALIDATION, limit_of, n_tampered, steps, tokens
from core.run.records import answer_of, evaluated, outcomes_of, place_of, records_of
from core.tokens import estimate_tokens
from core.types import MEMORY, MemoryRecord, content_id

SHORTEST = 4  # an answer of fewer characters stands in many texts by chance
Kinds = dict[str, set[str | None]]  # {record: the types of the tasks that it came from; None for one not known}


def columns_of(rows: list[dict[str, Any]], banked: Callable[[], Iterable[MemoryRecord]]) -> dict[str, list[Any]]:
    """{column: a value for each episode}: those of `episode_columns`, `lesson_step`, `visit` and `said`.

    rows     one episode a task (`core.run.records.current`)
    banked   reads the run's banks; called only where the rows do not hold all records that they retrieved

    visit counts earlier passes over the task; said is an id of the task and of what was said and done in its attempts.
    A run without an episode has one row, of status "none", so that it is not overlooked.
    """
    seen: Counter[str] = Counter()
    kinds, episodes = kinds_of(rows, banked), []
    for row in rows:
        about = {"lesson_step": lesson_step(row, kinds), "visit": seen[row["task_id"]], "said": said_in(row)}
        episodes.append(episode_columns(row) | about)
        seen[row["task_id"]] += 1
    if not rows:
        episodes.append({"index": -1, "status": "none"})
    return {key: [each[key] for each in episodes] for key in episodes[0]}


def banked_records(run_dir: Path, memory: dict[str, Any]) -> list[MemoryRecord]:
    """The records of a run's own bank and of the one it was given, as far as they can be read. memory: its config."""
    found = []
    for path in filter(None, (run_dir / "bank.sqlite", memory.get("path"))):
        try:
            found += read_records(path, memory.get("namespace", "default"))
        except UserError:  # no bank of this project, or damaged: the kinds of its lessons are not known
            continue
    return found


def episode_columns(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of one episode. success is 1.0, 0.0 or NaN (infra_error); tokens or a cost of NaN are unknown.

    lenient is success read leniently: a reply that states no answer, or was cut off, counts as right if the answer
    stands anywhere in it. limit: see `core.run.metrics.limit_of`. attempts has an outcome an attempt: success | failure
    | infra_error; verdicts the label of each, None where it was not judged; confidences the judge's in that label, None
    where it gave none.
    """
    chosen, spent = answer_of(row), tokens([row])
    stated, limit = chosen.get("info", {}).get("stated", True), limit_of(chosen)
    counts, solved = row["status"] in VALID, row["status"] == "success"
    found = solved or ((not stated or bool(limit)) and holds(_last_text(chosen), chosen["gold"] or ""))
    costs = [used["cost_usd"] for used in row["usage"].values()]
    counted = {"tokens": spent["total"]} | {f"tokens_{role}": spent.get(role, 0) for role in (*ROLES, VALIDATION)}
    return {
        "index": place_of(row),
        "task_id": without_surrogates(row["task_id"]),
        "task_type": without_surrogates(row["task_type"]),
        "status": row["status"],
        "graded": evaluated(row),
        "retried": "retries" in row,  # it broke, and this is the try at the end of the stream
        "success": float(solved) if counts else float("nan"),
        "lenient": float(found) if counts else float("nan"),
        "stated": bool(stated),
        "limit": limit,
        "reward": row["reward"],
        "steps": steps(row),
        "measures": json.dumps(chosen.get("info", {}).get("measures", {})),  # {name: [sum, over how many]}
        "n_invalid": sum(not step["valid"] for step in chosen["steps"]),
        "n_tampered": n_tampered(row),
        "ended_by": chosen["ended_by"],
        "error": without_surrogates((chosen["error"] or "").split(":")[0]),
        "attempts": outcomes_of(row),
        "n_agreed": n_agreed(row),
        "selected_by": (row["selection"] or {}).get("by", ""),
        "verdicts": [verdict["label"] for verdict in row["verdicts"]],
        "confidences": [verdict["confidence"] for verdict in row["verdicts"]],
        **{name: float("nan") if n is None else n for name, n in counted.items()},
        "cost": float("nan") if None in costs else sum(costs),
        "n_retrieved": len(row["retrieved"]),
        **shown_columns(row),
        "top_score": row["retrieved"][0]["score"] if row["retrieved"] else float("nan"),
        "n_lessons": len(row["lessons"]),
        "n_dropped": row["n_dropped"],
        "n_distillations_cut": row["n_truncated"],
        "n_learning_errors": len(row["learning_errors"]),
        "verdict": row["verdict"]["label"],
        "verdict_source": row["verdict"]["source"],
        "verdict_parsed": row["verdict"]["parsed"],
    }


def n_agreed(row: dict[str, Any]) -> int:
    """How many of an episode's attempts give the answer that counts; 0 if it gives none, as in most of many steps."""
    answers = [plain_answer(each["answer"] or "") for each in row["trajectories"]]
    return answers.count(own) if (own := plain_answer(answer_of(row)["answer"] or "")) else 0


def shown_columns(row: dict[str, Any]) -> dict[str, Any]:
    """How much of the memory the answer's prompts showed, by which a control can be held against what it replaces.

    lessons_shown   lessons with a word in them
    lesson_tokens   estimated tokens of all blocks of lessons, with their frame
    lessons_at      estimated tokens that stand before the first block; NaN where none was shown
    blocks          an id of these blocks, made from their words
    """
    chosen = answer_of(row)
    own = chosen["sample"]
    told = [*(m["content"] for m in chosen["opening"]), *(step["observation"] for step in chosen["steps"])]
    blocks = [block for text in told for block in MEMORY.findall(text)]
    before = float("nan")
    if blocks:
        first = next(place for place, text in enumerate(told) if MEMORY.search(text))
        before = sum(map(estimate_tokens, [*told[:first], MEMORY.split(told[first], maxsplit=1)[0]]))
    return {
        "lessons_shown": sum(n_worded(hit) for hit in row["retrieved"] if hit.get("sample", own) == own),
        "lesson_tokens": sum(map(estimate_tokens, blocks)),
        "lessons_at": before,
        "blocks": content_id(blocks),
    }


def n_worded(hit: dict[str, Any]) -> int:
    """How many lessons of a retrieved record were shown; of rewritten ones those that have a word."""
    if "items" not in hit:
        return hit["n_shown"]
    return sum(any(item.values()) for item in hit["items"][: hit["n_shown"]])


def holds(text: str, answer: str) -> bool:
    """Whether an answer stands in a text as a word of its own; a short one in its own case."""
    if not answer.strip() or answer.lower() not in text.lower():
        return False
    case = 0 if len(answer) < SHORTEST else re.IGNORECASE
    return re.search(rf"(?<![\w.]){re.escape(answer)}(?!\w|\.\d)", text, case) is not None


def _last_text(attempt: dict[str, Any]) -> str:
    return attempt["steps"][-1]["text"] if attempt["steps"] else ""


def said_in(row: dict[str, Any]) -> str:
    """An id of an episode's task and of what was said and done in its attempts, made from the words."""
    return content_id(row["task_id"], [_words(each) for each in row["trajectories"]])


def _words(attempt: dict[str, Any]) -> list[Any]:
    steps = [(step["text"], step["observation"]) for step in attempt["steps"]]
    return [attempt["opening"], steps, attempt["success"]]


def kinds_of(rows: list[dict[str, Any]], banked: Callable[[], Iterable[MemoryRecord]]) -> Kinds:
    """The kinds of every record that the rows retrieved, as far as it is known.

    banked   reads the run's banks; called only where the rows do not hold all records
    """
    types = {row["task_id"]: row["task_type"] for row in rows}
    kinds = {record.id: _kinds(record, types) for row in rows for record in records_of(row)}
    wanted = {hit["id"] for row in rows for hit in row["retrieved"]} - kinds.keys()
    return kinds | {record.id: _kinds(record, types) for record in (banked() if wanted else ()) if record.id in wanted}


def _kinds(record: MemoryRecord, types: dict[str, str]) -> set[str | None]:
    came_from = {types.get(task) for task in source_tasks(record)}
    if record.domain in types.values():  # another one is a subject of the user's own
        return came_from - {None} | {record.domain}
    return came_from


def source_tasks(record: MemoryRecord) -> set[str]:
    """The tasks that a record came from; of a merged one those of all that were merged into it."""
    return {record.task_id, *(record.provenance.get("tasks", ()) if record.parents else ())}


def lesson_step(row: dict[str, Any], kinds: Kinds) -> str:
    """The last step that an episode is at of the funnel from lesson to result (analysis/funnel_steps.py).

    A lesson is of the right kind, or relevant, where the task that it came from, or its record's domain, has the task's
    type; and where the env could say whether it was followed, for then it speaks of this task. Of several lessons one
    that is of the right kind is enough, and of these one that the answer followed. What an attempt was shown on its way
    (retrieval.when) does not count: it may have been shown because it went badly, and the step would depend on that.
    """
    shown = [hit for hit in row["retrieved"] if hit["n_shown"] and "step" not in hit]
    if not shown:
        return "none"
    relevant = [_relevant(row["task_type"], hit, kinds) for hit in shown]
    if True not in relevant:
        return "kind_unknown" if None in relevant else "irrelevant"
    did = [hit.get("followed") for hit, fits in zip(shown, relevant, strict=True) if fits]
    return "followed" if True in did else "followed_unknown" if None in did else "not_followed"


def _relevant(task_type: str, hit: dict[str, Any], kinds: Kinds) -> bool | None:
    if "followed" in hit:
        return True
    if not task_type:
        return None
    known = kinds.get(hit["id"], {None})
    return True if task_type in known else None if known & {None, ""} else False
