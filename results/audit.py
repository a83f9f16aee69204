"""A finished run held against the design's invariants, from its records alone.

A check yields one line for each place where it fails. Those of BROKEN make the run's numbers untrustworthy; those of
WORTH_A_LOOK are facts that a reader of the numbers should know. Neither can prove that a run is clean: a paraphrased
answer is not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from core.memory.store.bank_file import read_records
from core.run.manifest import identity
from core.run.metrics import rate
from core.run.records import changed_leaves, differences, outcomes_of
from core.setting import TRUE_LABELS
from core.types import Lesson, content_id
from results.load import VALID, Run, read_banks

SHORTEST = 4  # characters of an answer that is looked for anywhere; a shorter one only where it is called the answer
MEMORY = re.compile(r"<memory_items>.*?</memory_items>", re.DOTALL)
Check = Callable[[Run], Iterator[str]]


def gold_in_prompts(run: Run) -> Iterator[str]:
    """Invariant 1: the answer in a prompt that neither the task, nor the env, nor a lesson told (not in train)."""
    for row in run.rows if run.setting != "train" else ():
        told = row["query"]
        for attempt in row["trajectories"]:
            for message in attempt["opening"]:
                found = answer_in(MEMORY.sub("", message["content"]), attempt["gold"], told)
                if found:
                    yield f"{where(row)}: {message['role']} prompt of attempt {attempt['sample']} holds {found!r}"
            told += "\n" + _text(attempt)  # a later round is shown what this one saw


def gold_in_learning(run: Run) -> Iterator[str]:
    """Invariant 1: a lesson or a verdict that knows the answer although the attempts never met it (not in train)."""
    for row in run.rows if run.setting != "train" else ():
        gold = row["trajectories"][row["chosen"]]["gold"]
        told = row["query"] + "".join(_text(attempt, opening=True) for attempt in row["trajectories"])
        said = {"the verdict": row["verdict"]["reason"]}
        said |= {f"lesson {n}": Lesson(**lesson).text for n, lesson in enumerate(row["lessons"])}
        for name, text in said.items():
            if found := answer_in(text, gold, told):
                yield f"{where(row)}: {name} knows {found!r}, which no attempt met"


def oracle_labels(run: Run) -> Iterator[str]:
    """Invariant 1: labels of the environment where the setting has none, and anything learned in setting=frozen."""
    for row in run.rows:
        sources = [verdict["source"] for verdict in (row["verdict"], *row["verdicts"])]
        sources += [record["label_source"] for record in row["records"]]
        if run.setting not in TRUE_LABELS and "oracle" in sources:
            yield f"{where(row)}: a label is the environment's in setting={run.setting}"
        if run.setting == "frozen" and (row["lessons"] or row["records"]):
            yield f"{where(row)}: something was learned in setting=frozen"


def self_retrieval(run: Run) -> Iterator[str]:
    """Invariant 2: a task that was shown what it taught itself, or what was learned only later."""
    if run.memory.get("allow_self"):
        return
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
            if born.get(hit["id"], -1) >= row["index"]:
                yield f"{where(row)}: was shown record {hit['id']} of the later episode {born[hit['id']]}"


def denominators(run: Run) -> Iterator[str]:
    """Invariant 3: what broke counts as a failure, or taught something; a status that its attempt does not bear out."""
    for row in run.rows:
        true = outcomes_of(row)[row["chosen"]]
        if row["status"] != true:
            yield f"{where(row)}: status {row['status']}, but its attempt is a {true}"
        if row["status"] == "infra_error" and (row["lessons"] or row["records"]):
            yield f"{where(row)}: an infra_error was learned from"
    if _ended(run):
        valid = [row for row in run.rows if row["status"] in VALID]
        now = {"n": len(valid), "n_infra_error": len(run.rows) - len(valid), **rate(valid)}
        for key, value in now.items():
            if run.summary[key] != value:
                yield f"summary.json: {key} is {run.summary[key]}, by the episodes it is {value}"


def lost_or_doubled(run: Run) -> Iterator[str]:
    """Invariant 4: episodes that are not the manifest's tasks in its order, records twice, a bank that differs."""
    expected = run.manifest["task_ids"]
    if len(run.rows) > len(expected):
        yield f"{len(run.rows)} episodes of {len(expected)} tasks"
    for row, task_id in zip(run.rows, expected, strict=False):
        if row["task_id"] != task_id:
            yield f"{where(row)}: the manifest has {task_id} there"
    ids = [record["id"] for row in run.rows for record in row["records"]]
    for twice in sorted({each for each in ids if ids.count(each) > 1}):
        yield f"record {twice} was made twice"
    bank, alone = run.path / "bank.sqlite", run.memory.get("path") is None and not run.memory.get("consolidate")
    if bank.is_file() and alone and _own_kind(run) and _ended(run):
        stored = {record.id for record in read_records(bank, run.memory.get("namespace", "default"))}
        for name in sorted(stored.symmetric_difference(ids)):
            yield f"record {name} is {'in the bank only' if name in stored else 'not in the bank'}"


def drift(run: Run) -> Iterator[str]:
    """Invariant 10: a configuration or a list of tasks other than what the run was begun with."""
    begun = run.manifest["fingerprint"]
    for line in differences(begun["config"], identity(run.config)):
        yield f"manifest.json: {line}"
    for key, resolved, composed in changed_leaves(identity(run.config), identity(run.composed)):
        if "${" not in str(composed):  # an interpolation
            yield f".hydra/config.yaml: {key}: {resolved!r} there, {composed!r} here"
    if begun["dataset"]["tasks"] != content_id(run.manifest["task_ids"]):
        yield "manifest.json: the list of tasks is not that of the fingerprint"


BROKEN: tuple[Check, ...] = (
    gold_in_prompts,
    gold_in_learning,
    oracle_labels,
    self_retrieval,
    denominators,
    lost_or_doubled,
    drift,
)


def answer_in(text: str, gold: str, told: str) -> str | None:
    """The answer, where a text gives it away and what was told before did not."""
    secret = gold.replace(told.partition("\n")[0], "").strip(" .:\n") or gold
    if not secret.strip():
        return None
    word = rf"(?<!\w){re.escape(secret)}(?!\w)"
    if len(secret) < SHORTEST:
        word = rf"(?:\\boxed\{{|answer\W{{0,3}}(?:is\b)?\W{{0,4}}){re.escape(secret)}(?!\w)"
    if re.search(word, told, re.IGNORECASE):
        return None
    return secret if re.search(word, text, re.IGNORECASE) else None


def where(row: dict) -> str:
    """An episode as the audit's lines name it."""
    return f"episode {row['index']} ({row['task_id']})"


def _text(attempt: dict, *, opening: bool = False) -> str:
    steps = [f"{step['text']}\n{step['observation']}" for step in attempt["steps"]]
    return "\n".join([*(message["content"] for message in attempt["opening"] if opening), *steps])


def bank_owners(run: Run) -> dict[str, set[str]]:
    """{record: tasks of its lineage} of the run's bank and of the one it was given."""
    owners: dict[str, set[str]] = {}
    for record in read_banks(run, must=_own_kind(run) and _ended(run)):
        lineage = record.provenance.get("tasks", ()) if record.parents else ()
        owners.setdefault(record.id, set()).update((record.task_id, *lineage))
    return owners


def _ended(run: Run) -> bool:
    """Whether the summary tells of these episodes. Else the run goes on, or was copied while it did: its bank may be of
    another moment than its episodes, and what they lack is no sign of a loss.
    """
    told = run.summary.get("n", 0) + run.summary.get("n_infra_error", 0), run.summary.get("n_retried", 0)
    return told == (run.n_tasks, sum("retries" in row for row in run.rows)) and run.complete


def _own_kind(run: Run) -> bool:
    """Whether the run's memory is the project's own and its file a bank: one from outside keeps there what it likes."""
    memory = run.manifest["fingerprint"]["config"].get("memory") or {}
    return "." not in memory.get("_target_", "")  # the path of a class from outside
