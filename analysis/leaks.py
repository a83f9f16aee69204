"""Checks of what a run's texts hold: the lessons that were shown, and the answers where they must not be.

A text is looked at in its context: an answer that stood before it is no leak. An answer under four characters stands in
a text by chance. So it is counted in how many tasks theirs does, beside how often the answers of other tasks stand in
the same text, and theirs in the texts of other tasks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from analysis.evidence import (
    Check,
    NotChecked,
    answer_in,
    known_records,
    lessons_of,
    require_secret_answers,
    require_whole_texts,
    secret_of,
    text_of,
    where,
)
from analysis.runs import Run
from core.build import ROLES
from core.control_tokens import escape
from core.run.columns import SHORTEST, holds
from core.run.files import CALLS, PROMPTS, lines_of
from core.run.manifest import prompts_of
from core.run.records import answer_of
from core.types import MEMORY, Lesson

LEVEL = 0.01  # of chance, under which as many answers in a place are worth a look
MORE = 1.5  # times as many as by chance, at least: an option's letter stands in every question that has it
KEY_TASKS = 4  # of fewer tasks an answer key is not told from a list of options
OTHERS = 50  # answers of other tasks that a text is searched for
WARNING = re.compile(r"\(warning: [^)]*\)")
NUMBER = re.compile(r"\[\d+\]")
TAG = re.compile(r"^(Thought|Action|Observation): ")  # of a transcript
QUOTED = "[memory item]"  # in the place of a lesson that an attempt quoted
LEARNERS = tuple(role for role in ROLES[1:] if role != "grader")  # a grader is given the answer
TextInContext = tuple[dict, str, str]  # an episode's row, a text, what stood before it


def gold_in_prompts(run: Run) -> Iterator[str]:
    """Invariant 1: the answer in a prompt that neither the task, nor the env, nor a lesson told (not in train).

    A list of options is no leak; see `_lists_options`.
    """
    require_secret_answers(run)
    tasks: dict[str, dict[str, str]] = defaultdict(dict)  # {line of a prompt: {task: its answer}}
    for row in run.rows:
        for attempt in row["trajectories"]:
            for message in attempt["opening"]:
                for line in MEMORY.sub("", message["content"]).splitlines():
                    tasks[line][row["task_id"]] = attempt["gold"]
    for row in run.rows:
        context = row["query"]
        for attempt in row["trajectories"]:
            for message in attempt["opening"]:
                text = MEMORY.sub("", message["content"])
                if answer_in(text, attempt["gold"], context):
                    text = "\n".join(line for line in text.splitlines() if not _lists_options(line, tasks[line]))
                if answer := answer_in(text, attempt["gold"], context):
                    yield f"{where(row)}: {message['role']} prompt of attempt {attempt['sample']} holds {answer!r}"
            context += "\n" + text_of(attempt)  # a later round is shown what this one saw
    require_whole_texts(run)


def _lists_options(line: str, answers: dict[str, str]) -> bool:
    """Whether a line is shown to several tasks alike, whose answers differ and all stand in it.

    If it told more than that, it would be an answer key, which is looked for where there are as many tasks.

    answers   {task that is shown the line: its answer}
    """
    several = len(answers) >= KEY_TASKS and len({*answers.values()}) > 1
    return several and all(answer_in(line, answer, "") for answer in answers.values())


def shown_items(run: Run) -> Iterator[str]:
    """Invariant 14: a lesson in the prompt that belongs to no record that the task retrieved."""
    prompts = prompts_of(run.config)
    if prompts.own and any(Path(prompts.own).glob("memory_block*.jinja")):
        raise NotChecked("the run shows lessons by a template of its own")
    whole = prompts.memory_block == "paper"
    records, lost = known_records(run), 0
    for row in run.rows:
        found = [lessons_of(hit, records) for hit in row["retrieved"]]
        items = [item for versions in found for lessons in versions for item in lessons]
        shown = [item.text if whole else f"Title: {item.title} Content: {item.content}" for item in items]
        texts = [plain(WARNING.sub("", text)) for text in shown]
        rest = {foreign(block, texts) for attempt in row["trajectories"] for block in blocks(attempt)} - {""}
        if rest and all(found):
            yield f"{where(row)}: was shown what it had not retrieved: {min(rest)[:100]!r}"
        elif rest:
            lost += 1
    if lost:
        raise NotChecked(f"in {lost} episodes, whose records are in no bank that is still there")


def one_system_prompt(run: Run) -> Iterator[str]:
    """System prompts that differ between tasks, of one kind of answer, in more than the lessons shown."""
    kinds: dict[tuple, list[tuple[dict, str]]] = defaultdict(list)
    for row in run.rows:
        for attempt in row["trajectories"]:
            for message in attempt["opening"][:1]:
                text = MEMORY.sub("", message["content"])
                kinds[text != message["content"], attempt.get("info", {}).get("kind")].append((row, text))
    for prompts in kinds.values():
        usual = Counter(text for _, text in prompts).most_common(1)
        for line in dict.fromkeys(where(row) for row, text in prompts if text != usual[0][0]):
            yield f"{line}: has a system prompt of its own"


def gold_in_learning(run: Run) -> Iterator[str]:
    """Invariant 1: a lesson or verdict with an answer that no attempt met and it may have been told (not in train)."""
    return _knowing(run, alone=False)


def answers_worked_out(run: Run) -> Iterator[str]:
    """A lesson or a verdict with an answer that no attempt met, though its recorded prompts do not hold it."""
    return _knowing(run, alone=True)


def _knowing(run: Run, alone: bool) -> Iterator[str]:
    """The lines of `known_answers` on tasks that are `unaided`, or on the others."""
    require_secret_answers(run)
    known, kept = list(known_answers(run)), learning_calls(run) is not None
    own = unaided(run) if known and (kept or alone) else set()
    yield from (line for task, line in known if (task in own) == alone)
    require_whole_texts(run)


def known_answers(run: Run) -> Iterator[tuple[str, str]]:
    """(task, what to say) of each lesson and verdict that knows the answer although the attempts never met it."""
    for row in run.rows:
        context = row["query"] + "".join(text_of(attempt, opening=True) for attempt in row["trajectories"])
        said = {"the verdict": row["verdict"]["reason"]}
        said |= {f"lesson {n}": Lesson(**lesson).text for n, lesson in enumerate(row["lessons"])}
        for name, text in said.items():
            if answer := answer_in(text, answer_of(row)["gold"], context):
                yield row["task_id"], f"{where(row)}: {name} knows {answer!r}, which no attempt met"


def unaided(run: Run) -> set[str]:
    """Tasks whose prompts of judge, selector and extractor are on record without their answer, be it by chance.

    These prompts ask the model to work the task out itself, so a strong one may find what the agent did not.
    """
    alone, aided = set(), set()
    for row, prompt, context in learning_prompts(run):
        gold = answer_of(row)["gold"]
        holds = answer_in(prompt, gold, context) or stands(secret_of(gold, row["query"]), [(prompt, context)])
        (aided if holds else alone).add(row["task_id"])
    return alone - aided


def gold_in_learning_prompts(run: Run) -> Iterator[str]:
    """Invariant 1: an answer sent to judge, selector or extractor that neither task nor attempt told (not in train)."""
    for row, prompt, context in learning_prompts(run):
        if answer := answer_in(prompt, answer_of(row)["gold"], context):
            yield f"{where(row)}: a prompt of the learner holds {answer!r}, which no attempt met"


def gold_by_chance(run: Run) -> Iterator[str]:
    """Answers in lessons, tasks, types, prompts, observations or the learner's prompts, more than by chance."""
    places = {
        "lessons shown": lessons_shown(run),
        "task": [(row, row["query"], "") for row in run.rows],
        "type of the task": [(row, row["task_type"], row["query"]) for row in run.rows],
        "system prompt": system_prompts(run),
        "observations before the end": observations(run),
    }
    if run.setting != "train" and learning_calls(run) is not None:
        places["learner's prompts"] = list(learning_prompts(run))
    for place, texts in places.items():
        if line := more_than_chance(texts):
            yield f"{place}: {line}"


def more_than_chance(texts: Iterable[TextInContext]) -> str | None:
    """What to say where tasks' own answers stand in their texts more often than those of others; else None.

    One short answer says nothing by itself: there must be two.
    """
    episodes: dict[int, tuple[dict, str, list[tuple[str, str]]]] = {}  # {index: (row, answer, texts in context)}
    for row, text, context in texts:
        gold = secret_of(answer_of(row)["gold"], row["query"])
        if gold.strip():
            episodes.setdefault(row["index"], (row, gold, []))[2].append((text, context))
    for short in (True, False):
        rows = [each for each in episodes.values() if (len(each[1]) < SHORTEST) == short]
        golds = sorted({gold for _, gold, _ in rows})
        golds = golds[:: max(1, len(golds) // OTHERS)]
        hits = [row for row, gold, own in rows if stands(gold, own)]
        if len(hits) < (2 if short else 1):
            continue
        others = [[stands(other, own) for other in golds if other != gold] for _, gold, own in rows]
        pooled = (1 + sum(map(sum, others))) / (1 + sum(map(len, others)))
        chances = []
        for (_, gold, _), here in zip(rows, others, strict=True):
            there = [stands(gold, own) for _, other, own in rows[:: max(1, len(rows) // OTHERS)] if other != gold]
            chances.append(max((sum(hit) + pooled) / (len(hit) + 1) for hit in (here, there)))
        if len(hits) >= MORE * sum(chances) and (p := at_least(len(hits), chances)) < LEVEL:
            first = ", ".join(str(row["index"]) for row in hits[:5])
            by_chance = f"{sum(chances):.1f} by chance, p {p:.2g}"
            return f"the own answer in {len(hits)} of {len(rows)} ({by_chance}), as in episode {first}"
    return None


def at_least(count: int, chances: list[float]) -> float:
    """The probability of so many successes or more in independent trials of unlike chances."""
    below = [1.0] + [0.0] * (count - 1)  # of exactly 0, 1, ... successes, under `count`
    for chance in chances:
        shifted = [0.0, *below[:-1]]
        below = [stay * (1 - chance) + more * chance for stay, more in zip(below, shifted, strict=True)]
    return max(0.0, 1 - sum(below))


def stands(gold: str, texts: list[tuple[str, str]]) -> bool:
    """Whether an answer is a word of one of the texts and of nothing before it; short ones by their case as well.

    texts   each with its context, what stood before it
    """
    return any(holds(text, gold) and not holds(before, gold) for text, before in texts)


def lessons_shown(run: Run) -> list[TextInContext]:
    """The block of lessons of every attempt."""
    return [(row, block, excuse(row, row["query"])) for row, attempt in attempts_of(run) for block in blocks(attempt)]


def system_prompts(run: Run) -> list[TextInContext]:
    """The first message of every attempt, less its lessons."""
    return [
        (row, MEMORY.sub("", message["content"]), excuse(row, row["query"]))
        for row, attempt in attempts_of(run)
        for message in attempt["opening"][:1]
    ]


def attempts_of(run: Run) -> Iterator[tuple[dict, dict]]:
    """Every attempt, with its episode's row."""
    return ((row, attempt) for row in run.rows for attempt in row["trajectories"])


def excuse(row: dict, context: str) -> str:
    """The context, where it explains why a text holds the answer; a short answer may stand there by chance."""
    return context if len(secret_of(answer_of(row)["gold"], row["query"])) >= SHORTEST else ""


def observations(run: Run) -> Iterator[TextInContext]:
    """Every observation but the last, and what the attempt had met or said before it."""
    for row, attempt in attempts_of(run):
        context = "\n".join([row["query"], *(message["content"] for message in attempt["opening"])])
        for step in attempt["steps"][:-1]:
            context += f"\n{step['text']}"
            yield row, MEMORY.sub("", step["observation"]), context
            context += f"\n{step['observation']}"


def learning_prompts(run: Run) -> Iterator[TextInContext]:
    """What the prompts of judge, selector and extractor hold beside the task, its attempts and the templates.

    A prompt about an attempt that is not recorded (it was made again after a crash) is passed over.
    """
    require_secret_answers(run)
    if (calls := learning_calls(run)) is None:
        raise NotChecked("there is no prompts.jsonl")
    templates = prompts_of(run.config).source()
    visits = defaultdict(list)
    for row in run.rows:
        visits[row["task_id"]].append(row)
    for task, rows in visits.items():
        attempts = [attempt for row in rows for attempt in row["trajectories"]]
        context = "\n".join([rows[0]["query"], *(text_of(attempt, opening=True) for attempt in attempts), templates])
        said = {text[:40] for each in attempts for step in each["steps"] for text in (step["action"], step["text"])}
        for call in calls[task]:
            if any(text in call["prompt"] for text in said if text):
                yield rows[0], beside(call["prompt"], context), excuse(rows[0], context)


def beside(prompt: str, context: str) -> str:
    """The lines of a prompt that are not those of the context, whole or cut, with a tag or without quoted lessons."""
    lines = [TAG.sub("", line).strip() for line in prompt.splitlines()]
    return "\n".join(line for line in lines if not all(text.strip() in context for text in line.split(QUOTED)))


def learning_calls(run: Run) -> dict[str, list[dict]] | None:
    """{task: calls of judge, selector and extractor}, each a line of calls.jsonl with its whole `prompt`, once.

    None where the run has kept no prompts.
    """
    if not all((run.path / name).is_file() for name in (PROMPTS, CALLS)):
        return None
    texts = {row["id"]: "\n\n".join(m["content"] for m in row["messages"]) for row in lines_of(run.path, PROMPTS)}
    by_task: dict[str, dict] = defaultdict(dict)
    for call in lines_of(run.path, CALLS):
        if call["role"] in LEARNERS and call["messages"] in texts:
            key = (call["role"], call["messages"], call.get("text"))
            by_task[call["task"]][key] = call | {"prompt": texts[call["messages"]]}
    return defaultdict(list, {task: list(each.values()) for task, each in by_task.items()})


def blocks(attempt: dict) -> list[str]:
    """The blocks of lessons in an attempt's opening and after its steps, without their tags."""
    texts = [message["content"] for message in attempt["opening"]]
    texts += [step["observation"] for step in attempt["steps"]]
    tagged = [block for text in texts for block in MEMORY.findall(text)]
    return [block.removeprefix("<memory_items>").removesuffix("</memory_items>") for block in tagged]


def foreign(block: str, items: list[str]) -> str:
    """What is left of a block without the items, their numbers and warnings."""
    rest = plain(WARNING.sub("", block))
    for item in sorted(filter(None, items), key=len, reverse=True):
        rest = rest.replace(item, "")
    return plain(NUMBER.sub("", rest))


def plain(text: str) -> str:
    """With single blanks, and escaped as the agent escapes a lesson, whether it was before or not."""
    return " ".join(escape(text).replace("> ", "").replace("&lt;", "<").split())


BROKEN: tuple[Check, ...] = (shown_items, gold_in_learning, gold_in_learning_prompts)
LOOK: tuple[Check, ...] = (one_system_prompt, gold_by_chance, answers_worked_out)
