"""Helpers of the audit's checks: a run's texts, records and banks, and the search for an answer in a text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

from analysis.runs import MADE_ANEW, Run
from core.errors import UserError
from core.make import option, options, part
from core.memory.hygiene.scrub import scrub
from core.memory.open import first_tick, read_records
from core.run.columns import SHORTEST, source_tasks
from core.run.records import records_of
from core.types import Lesson, MemoryRecord

Check = Callable[[Run], Iterator[str]]  # yields a line for each place where it fails
ARTICLES = re.compile(r"\b(?:the|an?)\s+", re.IGNORECASE)


class NotChecked(Exception):
    """Raised by a check that could not look at everything; its text is the reason."""


def answer_in(text: str, gold: str, context: str) -> str | None:
    """The answer if a text reveals it and the context (all text before it) did not; else None.

    One of fewer than SHORTEST characters is found only if the text calls it the answer, a longer one anywhere.
    """
    secret = secret_of(gold, context)
    if not secret.strip():
        return None
    word = rf"(?<!\w){re.escape(secret)}(?!\w)"
    if len(secret) < SHORTEST:
        word = rf"(?:\\boxed\{{|answer\W{{0,3}}(?:is\b)?\W{{0,4}}){re.escape(secret)}(?!\w)"
    bare = ARTICLES.sub("", secret)  # "press green" was given away by "press the green button"
    plain = rf"(?<!\w){re.escape(bare)}(?!\w)"
    if re.search(word, context, re.IGNORECASE) or (
        len(bare) >= SHORTEST and re.search(plain, ARTICLES.sub("", context), re.IGNORECASE)
    ):
        return None
    return secret if re.search(word, text, re.IGNORECASE) else None


def secret_of(gold: str, query: str) -> str:
    """An answer without the first line of the task, which some benchmarks repeat in it."""
    return gold.replace(query.partition("\n")[0], "").strip(" .:\n") or gold


def require_secret_answers(run: Run) -> None:
    """Raise NotChecked if the setting shows the learner the answer."""
    if run.setting == "train":
        raise NotChecked("in setting=train the failure prompt may hold the answer")


def require_whole_texts(run: Run) -> None:
    """Raise NotChecked if `scrub_episodes` may have removed the answers from the texts."""
    answers = [attempt["gold"] for row in run.rows for attempt in row["trajectories"]]
    if run.config.get("scrub_episodes") and any(scrub(answer)[1] for answer in answers):
        raise NotChecked("scrub_episodes=true took from all texts what some of the answers consist of")


def where(row: dict) -> str:
    """The name of an episode in the audit's lines."""
    return f"episode {row['index']} ({row['task_id']})"


def text_of(attempt: dict, *, opening: bool = False) -> str:
    """The replies and observations of an attempt as one text; with `opening` also its first messages."""
    steps = [f"{step['text']}\n{step['observation']}" for step in attempt["steps"]]
    return "\n".join([*(message["content"] for message in attempt["opening"] if opening), *steps])


def known_records(run: Run) -> dict[str, list[MemoryRecord]]:
    """{id: the records of that id} in the run's episodes, in its bank and in the one it was given.

    A bank that cannot be read is a finding of `lost_or_doubled`.
    """
    by_id: dict[str, list[MemoryRecord]] = defaultdict(list)
    for record in (*run.banked, *(record for row in run.rows for record in records_of(row))):
        by_id[record.id].append(record)
    return by_id


def lessons_of(hit: dict, records: dict[str, list[MemoryRecord]]) -> list[tuple[Lesson, ...]]:
    """The lessons of a retrieved record: those in the episode if it has them, for they were rewritten; else those of
    each record of this id."""
    if "items" in hit:
        return [tuple(Lesson(**item) for item in hit["items"])]
    return [record.items for record in records[hit["id"]]]


def bank_owners(run: Run) -> dict[str, set[str]]:
    """{record: tasks of its lineage} of the run's bank and of the one it was given."""
    owners: dict[str, set[str]] = {}
    for record in run.banked:
        owners.setdefault(record.id, set()).update(source_tasks(record))
    return owners


def stored_before(run: Run) -> set[str] | None:
    """Ids of the records that the given bank held when the run began; None where the bank does not tell.

    An identical run made records of the same ids: they are hashes of content.
    """
    if (given := run.memory.get("path")) is None:
        return set()
    namespace = run.memory.get("namespace", "default")
    try:
        records, began = read_records(given, namespace), first_tick(given, namespace, str(run.path.resolve()))
    except UserError:
        return None
    if began is None:
        return None if run.config["setting"]["learn"] else {record.id for record in records}
    return {record.id for record in records if record.tick < began}


def has_ended(run: Run) -> bool:
    """Whether the run has ended, that is, its summary matches its episodes.

    Else it goes on, or was copied while it did: its bank and its episodes may be of different moments, so that a
    record missing from one of them is no error.
    """
    counts = run.summary.get("n", 0) + run.summary.get("n_infra_error", 0), run.summary.get("n_retried", 0)
    return (
        MADE_ANEW not in run.summary
        and counts == (run.n_tasks, sum("retries" in row for row in run.rows))
        and run.complete
    )


def env_class(run: Run) -> Any:
    """The class of the run's environment; None for one from outside this project, which is not imported to be asked.

    It is known by its name: its module may have moved since the run was made.
    """
    recorded = (run.config.get("env") or {}).get("_target_", "")
    if not recorded.startswith("envs."):
        return None
    if path := _env_classes().get(recorded.rpartition(".")[2]):
        return part({"_target_": path})
    with suppress(ModuleNotFoundError):  # no option names it: its module may still be there
        if find_spec(recorded.rpartition(".")[0]) is not None:
            found = part({"_target_": recorded})  # the run may be a stranger's: what it names need be no env
            return found if "BaseEnv" in {each.__name__ for each in getattr(found, "__mro__", ())} else None
    return None


@cache
def _env_classes() -> dict[str, str]:
    """{class: where it is} of the options of `env`."""
    present = (option("env", each)["env"]["_target_"] for each in options("env"))
    return {path.rpartition(".")[2]: path for path in present}


def is_own_kind(run: Run) -> bool:
    """Whether the run's memory is a class of this project, so that its file is a bank in the known format."""
    memory = run.manifest["fingerprint"]["config"].get("memory") or {}
    return "." not in memory.get("_target_", "")  # the path of a class from outside
