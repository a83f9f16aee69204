"""Checks of a run's records against the design's invariants: labels, order, counts, the bank, the configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext

from analysis.evidence import (
    Check,
    NotChecked,
    bank_owners,
    env_class,
    has_ended,
    is_own_kind,
    known_records,
    lessons_of,
    stored_before,
    where,
)
from analysis.runs import Run, own_bank
from core.errors import UserError
from core.memory.open import read_records
from core.memory.records import ticked, was_told
from core.redact import HIDDEN
from core.run.files import CALLS, lines_of
from core.run.keys import changed_leaves, differences, what_decides_outcomes
from core.run.manifest import BY_CONTENT, identity
from core.run.metrics import VALID, VALIDATION, followed, rate
from core.run.records import evaluated, every_try, outcomes_of, place_of, records_of
from core.run.unfinished import trajectory_of
from core.setting import GOLD, TOLD, TRUE_LABELS, joined_labels, labels_of
from core.types import Task, Usage, content_id

FULL = 1 - 1e-9  # a reward, in steps, that adds up to a solved task
FULL_SUM = 1 + 1e-9  # a sum of costs in another order
CLOSE = 1e-3  # in cosine: what is nearer by less may be rounding
# The keys under which retrieval is the cosine of two queries and nothing else: a bank that only grows, searched whole.
PLAIN_MEMORY = {"unit": "record", "key": "query", "index": "flat", "hygiene": None, "consolidate": None}
PLAIN_RETRIEVAL = dict.fromkeys(("unit", "key", "min_score", "domain", "outcome", "min_confidence"))


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
                yield f"{where(row)}: was shown {hit['id']}, which has labels {joined_labels(gold)}"
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
                truths = {grade(attempt), attempt["info"].get("won")} - {None}
                if truths - {attempt["success"]}:
                    said, now = (
                        "success" if each else "failure" for each in (attempt["success"], not attempt["success"])
                    )
                    yield f"{where(row)}: attempt {attempt['sample']} is stored as a {said}, and graded again a {now}"
                elif attempt["success"] != (attempt["reward"] >= FULL):
                    stored = f"reward {attempt['reward']} and success {attempt['success']}"
                    yield f"{where(row)}: attempt {attempt['sample']} has {stored}"
                unread += not truths
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
            versions = [lessons[: hit["n_shown"]] for lessons in lessons_of(hit, records)]
            now = {followed(env.follows, task, played, lessons) for lessons in versions}
            lost += "followed" in hit and not now
            if "followed" not in hit:
                unnoted += bool(now - {None})
            elif now and hit["followed"] not in now:
                said = "followed" if hit["followed"] else "not followed"
                yield f"{where(row)}: record {hit['id']} is noted as {said}, and what was done does not say so"
    if lost or unnoted:
        counts = {"are in no bank that is still there": lost, "have no such note": unnoted}
        raise NotChecked("; ".join(f"{count} lessons {what}" for what, count in counts.items() if count))


def self_retrieval(run: Run) -> Iterator[str]:
    """Invariant 2: a task that was shown what it taught itself, or what was learned only later."""
    if run.memory.get("allow_self"):
        raise NotChecked("memory.allow_self=true: a task may be shown what it taught itself")
    owners, before = bank_owners(run), stored_before(run)
    unknown: set[str] = set()
    born: dict[str, int] = {}
    for row in run.rows:
        for record in row["records"]:
            owners.setdefault(record["id"], set()).add(record["task_id"])
            born.setdefault(record["id"], row["index"])
    for row in run.rows:
        for hit in row["retrieved"]:
            if row["task_id"] in owners.get(hit["id"], ()):
                yield f"{where(row)}: was shown its own record {hit['id']}"
            if born.get(hit["id"], -1) < row["index"]:
                continue
            if before is None:
                unknown.add(hit["id"])
            elif hit["id"] not in before:
                yield f"{where(row)}: was shown record {hit['id']} of the later episode {born[hit['id']]}"
    if unknown:
        raise NotChecked(f"{len(unknown)} records that an episode made later may have been in the given bank before")


def made_elsewhere(row: dict) -> Iterator[str]:
    """Records of an episode's row that this episode, at its place in the run, did not make."""
    ids = {attempt["id"] for attempt in row["trajectories"]}
    for record in records_of(row):
        own = record.source_trajectory_id in ids and record.task_id == row["task_id"]
        whole = ticked(record, row["index"]).id == record.id and record.original_query == row["query"]
        if HIDDEN not in record.text + record.original_query and not (own and whole):
            yield f"{where(row)}: record {record.id} was not made by this episode"


def is_plain(run: Run) -> bool:
    """Whether retrieval is the cosine of two queries and nothing else."""
    retrieval = run.config.get("retrieval") or {}
    plain = run.memory.get("_target_", "") == "core.memory.bank.MemoryBank"
    plain = plain and all(run.memory.get(key) == value for key, value in PLAIN_MEMORY.items())
    plain = plain and all(retrieval.get(key) == value for key, value in PLAIN_RETRIEVAL.items())
    plain = plain and retrieval.get("when") in (None, "task")
    cosine = retrieval.get("_target_", "") == "core.memory.policies.cosine.Cosine" and not retrieval.get("tags")
    return plain and cosine


def denominators(run: Run) -> Iterator[str]:
    """Invariant 3: what broke counts, or taught; what counted was tried again; a status that its attempt belies."""
    tries = every_try(run.path)
    last = {place_of(row): row["index"] for row in tries}
    for row in tries:
        true = outcomes_of(row)[row["chosen"]]
        if row["status"] in VALID and row["index"] != last[place_of(row)]:
            yield f"{where(row)}: counted, and was tried again"
        if row["status"] != true:
            yield f"{where(row)}: status {row['status']}, but its attempt is a {true}"
        if row["status"] == "infra_error" and (row["lessons"] or row["records"]):
            yield f"{where(row)}: an infra_error was learned from"
    if has_ended(run):
        valid = [row for row in run.rows if row["status"] in VALID]
        known = valid if all(map(evaluated, valid)) else []
        now = {"n": len(valid), "n_infra_error": len(run.rows) - len(valid), **rate(known)}
        for key, value in now.items():
            if run.summary[key] != value:
                yield f"summary.json: {key} is {run.summary[key]}, by the episodes it is {value}"
    else:
        raise NotChecked("the summary: the run has not finished")


def contradictions(run: Run) -> Iterator[str]:
    """A row that says otherwise than its parts: its reward, its verdict, or more usage than the calls bear out."""
    said, had = defaultdict(Usage), defaultdict(Usage)
    for row in every_try(run.path):
        answer = row["chosen"]
        if row["reward"] != (true := row["trajectories"][answer]["reward"]):
            yield f"{where(row)}: reward {row['reward']}, but its attempt has {true}"
        if row["verdict"] != row["verdicts"][answer]:
            yield f"{where(row)}: its verdict is not the one on its answer"
        for role, usage in row["usage"].items():
            task = "" if role == VALIDATION else row["task_id"]  # its calls are about other tasks
            said[role, task] += Usage(**usage)
    if not (run.path / CALLS).is_file() or run.config.get("attempts_from"):
        raise NotChecked("usage: the calls are not there, or are another run's")
    for call in lines_of(run.path, CALLS):
        had[call["role"], call["task"]] += (used := Usage(**(call["usage"] or {})))
        had[VALIDATION, ""] += used
    if (VALIDATION, "") in said:  # against all calls, with what the rows have of them otherwise
        said[VALIDATION, ""] = sum(said.values(), Usage())
    for (role, task), usage in said.items():
        for name in ("calls", "prompt_tokens", "completion_tokens", "cost_usd"):
            told, found = getattr(usage, name), getattr(had[role, task], name)
            if told is not None and found is not None and told > found * FULL_SUM:
                yield f"{task}: {told:g} {name} of the {role}, but by calls.jsonl {found:g}"


def lost_or_doubled(run: Run) -> Iterator[str]:
    """Invariant 4: episodes that are not the manifest's tasks in its order, records twice, a bank that differs."""
    expected = run.manifest["task_ids"]
    if len(run.rows) > len(expected):
        yield f"{len(run.rows)} episodes of {len(expected)} tasks"
    tasks = dict(enumerate(expected))
    for row in run.rows:
        if (task := tasks.get(place_of(row))) != row["task_id"] and task:
            yield f"{where(row)}: the manifest has {task} there"
    ids = [record["id"] for row in run.rows for record in row["records"]]
    for twice in sorted({each for each in ids if ids.count(each) > 1}):
        yield f"record {twice} was made twice"
    bank, alone = own_bank(run), run.memory.get("path") is None and not run.memory.get("consolidate")
    if bank.is_file() and alone and is_own_kind(run) and has_ended(run):
        namespace = run.memory.get("namespace", "default")
        try:
            found = read_records(bank, namespace)
        except UserError as error:
            yield str(error)
            return
        stored = {record.id for record in found if run.setting != TOLD or not was_told(record)}
        for name in sorted(stored.symmetric_difference(ids)):
            yield f"record {name} is {'in the bank only' if name in stored else 'not in the bank'}"
    elif ids:
        raise NotChecked("the bank: it is not there, was given, changes its records, or is of another kind")


def drift(run: Run) -> Iterator[str]:
    """Invariant 10: a configuration or a list of tasks other than what the run was begun with."""
    begun = run.manifest["fingerprint"]
    for line in differences(what_decides_outcomes(begun["config"], *BY_CONTENT), identity(run.config, *BY_CONTENT)):
        yield f"manifest.json: {line}"
    for key, resolved, composed in changed_leaves(identity(run.config), identity(run.composed)):
        if "${" not in str(composed):  # an interpolation
            yield f".hydra/config.yaml: {key}: {resolved!r} there, {composed!r} here"
    if begun["dataset"]["tasks"] != content_id(run.manifest["task_ids"]):
        yield "manifest.json: the list of tasks is not that of the fingerprint"


CHECKS: tuple[Check, ...] = (
    oracle_labels,
    retrieved_labels,
    regraded,
    followed_lessons,
    self_retrieval,
    denominators,
    contradictions,
    lost_or_doubled,
    drift,
)
