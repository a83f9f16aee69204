"""A finished run held against the design's invariants, from its records alone.

A check yields one line for each place where it fails, and raises NotChecked at its end where it could not look at
everything. Those of BROKEN make the run's numbers untrustworthy; those of WORTH_A_LOOK (analysis/lesson_quality.py) are
facts that a reader of the numbers should know. Neither can prove that a run is clean: no paraphrased answer is found.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from analysis.load import VALID, Run, own_banks, read_banks
from core.build import option, options, part
from core.errors import UserError
from core.memory.hygiene.scrub import scrub
from core.memory.open import read_records
from core.memory.records import ticked, was_told
from core.redact import HIDDEN
from core.run.manifest import identity
from core.run.metrics import followed, rate
from core.run.records import changed_leaves, differences, evaluated, outcomes_of, place_of, read_episodes, records_of
from core.run.resume import faults
from core.run.unfinished import trajectory_of
from core.run.upgrade import completed
from core.setting import GOLD, TOLD, TRUE_LABELS, joined, labels_of
from core.types import MEMORY, MemoryRecord, Task, content_id

if TYPE_CHECKING:
    from analysis.load import Run

# Retrieval asked again, from a run's bank and its episodes: was what a task was shown the nearest that there was?

CLOSE = 1e-3  # in cosine: what is nearer by less may be rounding
# The keys under which retrieval is the cosine of two queries and nothing else: a bank that only grows, searched whole.
PLAIN_MEMORY = {"path": None, "unit": "record", "key": "query", "index": "flat", "hygiene": None, "consolidate": None}
PLAIN_RETRIEVAL = dict.fromkeys(("unit", "key", "min_score", "domain", "outcome", "min_confidence"))


def can_be_asked(run: Run) -> bool:
    """Whether the run's retrieval is plain enough, and its bank there."""
    retrieval = run.config.get("retrieval") or {}
    plain = all(run.memory.get(key) == value for key, value in PLAIN_MEMORY.items())
    plain = plain and all(retrieval.get(key) == value for key, value in PLAIN_RETRIEVAL.items())
    named = retrieval.get("_target_", "") == "core.memory.policies.cosine.Cosine" and not retrieval.get("tags")
    return plain and named and (run.path / "bank.sqlite").is_file()


def nearer(run: Run) -> Iterator[tuple[dict[str, Any], str]]:
    """(row, record) of each task that was not shown a record that was nearer than one it was shown, or was free.

    What there was when it began are the records of the episodes that it had `seen`, less those of the task itself.
    """
    import numpy as np

    records = read_records(run.path / "bank.sqlite", run.memory.get("namespace", "default"), vectors=True)
    made = {record.id: np.array(record.query_embedding) for record in records if record.query_embedding}
    queries = {record.original_query: made[record.id] for record in records if record.id in made}
    born = [(row["index"], row["task_id"], r["id"]) for row in run.rows for r in row["records"] if r["id"] in made]
    for row in run.rows:
        if row["status"] == "infra_error" or row["query"] not in queries:
            continue
        shown = {hit["id"]: hit["score"] for hit in row["retrieved"]}
        there = [id for index, task, id in born if index < row["seen"] and task != row["task_id"] and id not in shown]
        full = len(shown) >= run.config["retrieval"]["top_k"]
        least = min(shown.values(), default=-1.0) + CLOSE if full else -2.0
        best = max(there, key=lambda id: made[id] @ queries[row["query"]], default=None)
        if best is not None and made[best] @ queries[row["query"]] > least:
            yield row, best


SHORTEST = 4  # characters of an answer that is looked for anywhere; a shorter one only where it is called the answer
ARTICLES = re.compile(r"\b(?:the|an?)\s+", re.IGNORECASE)
Check = Callable[[Run], Iterator[str]]
FULL = 1 - 1e-9  # a reward, in steps, that adds up to a solved task


class NotChecked(Exception):
    """Why a check could not look at all that it should, in words."""


def gold_in_prompts(run: Run) -> Iterator[str]:
    """Invariant 1: the answer in a prompt that neither the task, nor the env, nor a lesson told (not in train)."""
    untold(run)
    for row in run.rows:
        told = row["query"]
        for attempt in row["trajectories"]:
            for message in attempt["opening"]:
                found = answer_in(MEMORY.sub("", message["content"]), attempt["gold"], told)
                if found:
                    yield f"{where(row)}: {message['role']} prompt of attempt {attempt['sample']} holds {found!r}"
            told += "\n" + told_by(attempt)  # a later round is shown what this one saw
    unscrubbed(run)


def oracle_labels(run: Run) -> Iterator[str]:
    """Invariant 1: labels of the environment where the setting has none, and anything learned where nothing may be."""
    for row in run.rows:
        sources = [verdict["source"] for verdict in (row["verdict"], *row["verdicts"])]
        sources += [record["label_source"] for record in row["records"]]
        if run.setting not in TRUE_LABELS and "oracle" in sources:
            yield f"{where(row)}: a label is the environment's in setting={run.setting}"
        if run.setting in ("frozen", TOLD) and (row["lessons"] or row["records"]):
            yield f"{where(row)}: something was learned in setting={run.setting}"


def retrieved_labels(run: Run) -> Iterator[str]:
    """Invariant 13: a lesson labelled by the environment, or made from answers, where the setting knows neither."""
    if run.setting in TRUE_LABELS:
        raise NotChecked(f"setting={run.setting} has the environment's labels")
    if run.config["setting"].get("allow_oracle_bank"):
        raise NotChecked("setting.allow_oracle_bank=true: the run may read such lessons, and its tables say so")
    records, lost = known_records(run), set()
    own = {record["id"] for row in run.rows for record in row["records"]}  # which `oracle_labels` looks at
    for row in run.rows:
        for hit in (hit for hit in row["retrieved"] if hit["id"] not in own):
            found = records[hit["id"]]
            if gold := set().union(*map(labels_of, found)) & {*GOLD}:
                yield f"{where(row)}: was shown {hit['id']}, which has labels {joined(gold)}"
            if not found:
                lost.add(hit["id"])
    if lost:
        raise NotChecked(f"{len(lost)} retrieved records are in no bank that is still there")


def regraded(run: Run) -> Iterator[str]:
    """A stored success that the grader of today, or the env's own facts and rewards, do not bear out."""
    env, unread = env_class(run), 0
    # one from outside is not asked: what it noted itself is what is known
    grader = nullcontext(lambda attempt: attempt["info"].get("won")) if env is None else env.regrader(run.config["env"])
    with grader as grade:
        for row in run.rows:
            for attempt in row["trajectories"]:
                if attempt["ended_by"] == "infra_error":
                    continue
                truth = grade(attempt)
                if truth is not None and truth != attempt["success"]:
                    said, now = ("success" if each else "failure" for each in (attempt["success"], truth))
                    yield f"{where(row)}: attempt {attempt['sample']} is stored as a {said}, and graded again a {now}"
                elif attempt["success"] != (attempt["reward"] >= FULL):
                    stored = f"reward {attempt['reward']} and success {attempt['success']}"
                    yield f"{where(row)}: attempt {attempt['sample']} has {stored}"
                unread += truth is None
    if unread:
        raise NotChecked(f"{unread} attempts: the env has noted nothing to grade them by")


def followed_lessons(run: Run) -> Iterator[str]:
    """A lesson that is noted as followed, or as not, where the env's rule says otherwise of what was done."""
    hits = [hit for row in run.rows for hit in row["retrieved"]]
    noted = sum("followed" in hit for hit in hits)
    env = env_class(run)
    if not hits or not (noted or env):
        return
    if env is None:
        raise NotChecked(f"{noted} lessons: the rule that says whether they were followed is from outside")
    if noted and run.config.get("scrub_episodes"):
        raise NotChecked("scrub_episodes=true changed the texts that say whether a lesson was followed")
    records = known_records(run)
    goes_on = (run.config.get("workflow") or {}).get("refine") == "continue"
    lost = unnoted = 0
    for row in run.rows:
        task = Task(id=row["task_id"], query=row["query"], type=row["task_type"])
        played = list(map(trajectory_of, row["trajectories"][0 if goes_on else row["chosen"] : row["chosen"] + 1]))
        if played[-1].ended_by == "infra_error":  # in no number
            continue
        for hit in row["retrieved"]:
            now = {
                followed(env.follows, task, played, record.items[: hit.get("n_shown")]) for record in records[hit["id"]]
            }
            lost += "followed" in hit and not now
            if "followed" not in hit:
                unnoted += bool(now - {None})
            elif now and hit["followed"] not in now:
                said = "followed" if hit["followed"] else "not followed"
                yield f"{where(row)}: record {hit['id']} is noted as {said}, and what was done does not say so"
    if lost or unnoted:
        counts = {"are in no bank that is still there": lost, "of an earlier version have no such note": unnoted}
        raise NotChecked("; ".join(f"{count} lessons {what}" for what, count in counts.items() if count))


def self_retrieval(run: Run) -> Iterator[str]:
    """Invariant 2: a task that was shown what it taught itself, or what was learned only later."""
    if run.memory.get("allow_self"):
        raise NotChecked("memory.allow_self=true: a task may be shown what it taught itself")
    owners = bank_owners(run)
    born: dict[str, int] = {}
    for row in run.rows:
        for record in row["records"]:
            owners.setdefault(record["id"], set()).add(record["task_id"])
            born.setdefault(record["id"], row["index"])
    for row in run.rows:
        for hit in row["retrieved"]:
            if row["task_id"] in owners.get(hit["id"], ()):
                yield f"{where(row)}: was shown its own record {hit['id']}"
            if born.get(hit["id"], -1) >= min(row.get("seen", row["index"]), row["index"]):
                yield f"{where(row)}: was shown record {hit['id']} of the later episode {born[hit['id']]}"


def overlapping(run: Run) -> Iterator[str]:
    """The order of a run with stream.mode=async: what cannot be, or was not so when its records were made."""
    stream = run.config.get("stream") or {}
    overlapped = [row for row in run.rows if "place" in row or "seen" in row]
    if stream.get("mode", "in_order") != "async":
        for row in overlapped:
            yield f"{where(row)}: has an order of its own, and the run's configuration is not stream.mode=async"
        return
    if not overlapped and not any(row["records"] for row in run.rows):  # nothing was learned: no task overlaps another
        return
    wrong = list(faults(_all_tries(run), stream["window"]))
    yield from wrong
    if run.config.get("scrub_episodes"):
        raise NotChecked("scrub_episodes=true changed the texts that say which episode made a record")
    again = not wrong and _ended(run) and is_own_kind(run) and can_be_asked(run)
    for row, id in nearer(run) if again else ():
        yield f"{where(row)}: was not shown record {id}, which was nearer, of an episode that it had seen"
    for row in run.rows:
        for record in records_of(row):
            if HIDDEN not in record.text and ticked(record, row["index"]).id != record.id:
                yield f"{where(row)}: record {record.id} was not made by this episode"
    if not wrong and not again:
        raise NotChecked("whether what was shown was the nearest: the run goes on, or its retrieval is not the paper's")


def _all_tries(run: Run) -> list[dict]:
    """Every line of the run's episodes, those of tasks that were tried again included."""
    file = run.path / "episodes.jsonl"
    return [row for row in read_episodes(file) if row["status"] != "stopped"] if file.is_file() else []


def denominators(run: Run) -> Iterator[str]:
    """Invariant 3: what broke counts, or taught; what counted was tried again; a status that its attempt belies."""
    tries = _all_tries(run)
    last = {place_of(row): row["index"] for row in tries}
    for row in tries:
        true = outcomes_of(row)[row["chosen"]]
        if row["status"] in VALID and row["index"] != last[place_of(row)]:
            yield f"{where(row)}: counted, and was tried again"
        if row["status"] != true:
            yield f"{where(row)}: status {row['status']}, but its attempt is a {true}"
        if row["status"] == "infra_error" and (row["lessons"] or row["records"]):
            yield f"{where(row)}: an infra_error was learned from"
    if _ended(run):
        valid = [row for row in run.rows if row["status"] in VALID]
        known = valid if all(map(evaluated, valid)) else []
        now = {"n": len(valid), "n_infra_error": len(run.rows) - len(valid), **rate(known)}
        for key, value in now.items():
            if run.summary[key] != value:
                yield f"summary.json: {key} is {run.summary[key]}, by the episodes it is {value}"
    else:
        raise NotChecked("the summary: the run has not finished")


def lost_or_doubled(run: Run) -> Iterator[str]:
    """Invariant 4: episodes that are not the manifest's tasks in its order, records twice, a bank that differs."""
    expected = run.manifest["task_ids"]
    if len(run.rows) > len(expected):
        yield f"{len(run.rows)} episodes of {len(expected)} tasks"
    tasks = dict(enumerate(expected))
    for row in run.rows:
        if (task := tasks.get(place_of(row))) != row["task_id"] and (task or "place" in row):
            yield f"{where(row)}: the manifest has {task} there"
    ids = [record["id"] for row in run.rows for record in row["records"]]
    for twice in sorted({each for each in ids if ids.count(each) > 1}):
        yield f"record {twice} was made twice"
    banks, alone = own_banks(run), run.memory.get("path") is None and not run.memory.get("consolidate")
    if all(bank.is_file() for bank in banks) and alone and is_own_kind(run) and _ended(run):
        namespace = run.memory.get("namespace", "default")
        found = [record for bank in banks for record in read_records(bank, namespace)]
        stored = {record.id for record in found if run.setting != TOLD or not was_told(record)}
        for name in sorted(stored.symmetric_difference(ids)):
            yield f"record {name} is {'in the bank only' if name in stored else 'not in the bank'}"
    elif ids:
        raise NotChecked("the bank: it is not there, was given, changes its records, or is of another kind")


def drift(run: Run) -> Iterator[str]:
    """Invariant 10: a configuration or a list of tasks other than what the run was begun with."""
    begun = run.manifest["fingerprint"]
    for line in differences(begun["config"], identity(run.config)):
        yield f"manifest.json: {line}"
    for key, resolved, composed in changed_leaves(identity(run.config), identity(completed(run.composed))):
        if "${" not in str(composed):  # an interpolation
            yield f".hydra/config.yaml: {key}: {resolved!r} there, {composed!r} here"
    if begun["dataset"]["tasks"] != content_id(run.manifest["task_ids"]):
        yield "manifest.json: the list of tasks is not that of the fingerprint"


BROKEN: tuple[Check, ...] = (
    gold_in_prompts,
    oracle_labels,
    retrieved_labels,
    regraded,
    followed_lessons,
    self_retrieval,
    overlapping,
    denominators,
    lost_or_doubled,
    drift,
)


def answer_in(text: str, gold: str, told: str) -> str | None:
    """The answer, where a text gives it away and what was told before did not."""
    secret = secret_of(gold, told)
    if not secret.strip():
        return None
    word = rf"(?<!\w){re.escape(secret)}(?!\w)"
    if len(secret) < SHORTEST:
        word = rf"(?:\\boxed\{{|answer\W{{0,3}}(?:is\b)?\W{{0,4}}){re.escape(secret)}(?!\w)"
    bare = ARTICLES.sub("", secret)  # "press green" was told by "press the green button"
    plain = rf"(?<!\w){re.escape(bare)}(?!\w)"
    if re.search(word, told, re.IGNORECASE) or (
        len(bare) >= SHORTEST and re.search(plain, ARTICLES.sub("", told), re.IGNORECASE)
    ):
        return None
    return secret if re.search(word, text, re.IGNORECASE) else None


def secret_of(gold: str, told: str) -> str:
    """An answer without the task's first line, which some benchmarks repeat in it."""
    return gold.replace(told.partition("\n")[0], "").strip(" .:\n") or gold


def untold(run: Run) -> None:
    """Raise NotChecked where the learner may be told the answer."""
    if run.setting == "train":
        raise NotChecked("in setting=train the failure prompt may hold the answer")


def unscrubbed(run: Run) -> None:
    """Raise NotChecked where answers cannot be found in texts from which `scrub_episodes` took such data."""
    answers = [attempt["gold"] for row in run.rows for attempt in row["trajectories"]]
    if run.config.get("scrub_episodes") and any(scrub(answer)[1] for answer in answers):
        raise NotChecked("scrub_episodes=true took from all texts what some of the answers consist of")


def where(row: dict) -> str:
    """An episode as the audit's lines name it."""
    return f"episode {row['index']} ({row['task_id']})"


def told_by(attempt: dict, *, opening: bool = False) -> str:
    steps = [f"{step['text']}\n{step['observation']}" for step in attempt["steps"]]
    return "\n".join([*(message["content"] for message in attempt["opening"] if opening), *steps])


def known_records(run: Run) -> dict[str, list[MemoryRecord]]:
    """{id: the records of that id} in the run's episodes, in its bank and in the one it was given."""
    found: dict[str, list[MemoryRecord]] = defaultdict(list)
    for record in (
        *read_banks(run, must=is_own_kind(run) and _ended(run)),
        *(r for row in run.rows for r in records_of(row)),
    ):
        found[record.id].append(record)
    return found


def bank_owners(run: Run) -> dict[str, set[str]]:
    """{record: tasks of its lineage} of the run's bank and of the one it was given."""
    owners: dict[str, set[str]] = {}
    for record in read_banks(run, must=is_own_kind(run) and _ended(run)):
        lineage = record.provenance.get("tasks", ()) if record.parents else ()
        owners.setdefault(record.id, set()).update((record.task_id, *lineage))
    return owners


def _ended(run: Run) -> bool:
    """Whether the summary tells of these episodes. Else the run goes on, or was copied while it did: its bank may be of
    another moment than its episodes, and what they lack is no sign of a loss.
    """
    told = run.summary.get("n", 0) + run.summary.get("n_infra_error", 0), run.summary.get("n_retried", 0)
    return told == (run.n_tasks, sum("retries" in row for row in run.rows)) and run.complete


def env_class(run: Run) -> Any:
    """The class of the run's environment; None for one from outside this project, which is not imported to be asked.

    It is known by its name: its module may have moved since the run was made.
    """
    recorded = (run.config.get("env") or {}).get("_target_", "")
    if not recorded.startswith("envs."):
        return None
    with suppress(UserError):
        return part({"_target_": recorded})
    name = recorded.rpartition(".")[2]
    present = (option("env", each)["env"]["_target_"] for each in options("env"))
    return next((part({"_target_": path}) for path in present if path.rpartition(".")[2] == name), None)


def is_own_kind(run: Run) -> bool:
    """Whether the run's memory is the project's own and its file a bank: one from outside keeps there what it likes."""
    memory = run.manifest["fingerprint"]["config"].get("memory") or {}
    return "." not in memory.get("_target_", "")  # the path of a class from outside
