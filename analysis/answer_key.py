"""Check for a key: one text, the same for all tasks, that holds the answers of most of them.

A prompt's own answer says nothing there, because it holds the others as well (`gold_by_chance`). So it is asked of each
such text: does it hold most of the tasks' answers, which are many and not there by chance; or does it name most tasks,
each with its own answer; or does it quote their questions. A list of a few admissible answers, such as the letters of
options, does none of these.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from analysis.evidence import SHORTEST, Check, known_records, secret_of
from analysis.leaks import KEY_TASKS, LEVEL, at_least, excuse, more_than_chance, stands
from analysis.runs import Run
from analysis.twins import plain
from core.run.manifest import prompts_of
from core.run.records import answer_of
from core.setting import TOLD
from core.types import MEMORY

MOST = 0.5  # of the tasks
WORD_BY_CHANCE = 0.05  # a cautious guess: the chance that an answer of letters stands in a text
STRETCH = 200  # characters after, or before, a word that names a task
SAMPLED = 5  # different texts of each place that are looked at
QUOTED = 20  # characters of a question that is quoted


def answer_key(run: Run) -> Iterator[str]:
    """A text for all tasks that holds most of their answers: in a prompt, a template, or a lesson of a given bank."""
    rows = list({row["task_id"]: row for row in run.rows if answer_of(row)["gold"]}.values())
    if len(rows) < KEY_TASKS:
        return
    for place, text in constant_texts(run):
        if found := many_answers(rows, text) or named_answers(rows, text) or quoted_questions(rows, text):
            yield f"{place} holds {found}: {text.strip()[:80]!r}"


def constant_texts(run: Run) -> Iterator[tuple[str, str]]:
    """(place, text) of what may be the same for all tasks: first messages less their lessons, templates, lessons."""
    opened: dict[str, Counter[str]] = {"system prompt": Counter(), "first message": Counter()}
    for row in run.rows:
        for attempt in row["trajectories"]:
            for place, message in zip(opened, attempt["opening"], strict=False):
                opened[place][MEMORY.sub("", message["content"])] += 1
    for place, texts in opened.items():
        yield from ((f"the {place}", text) for text, _ in texts.most_common(SAMPLED))
    if (prompts := prompts_of(run.config)).own:
        yield "a template of the run's own", prompts.source()
    if run.setting != TOLD:  # there the lessons are the answers
        own, records = {record["id"] for row in run.rows for record in row["records"]}, known_records(run)
        shown = Counter(hit["id"] for row in run.rows for hit in row["retrieved"] if hit["id"] not in own)
        for id, _ in shown.most_common(SAMPLED):
            yield from ((f"the lesson {id}", record.text) for record in records[id][:1])


def many_answers(rows: list[dict], text: str) -> str | None:
    """What to say where the answers of most tasks stand in a text, nearly all of them different; else None."""
    answers = {secret_of(answer_of(row)["gold"], row["query"]): row["query"] for row in rows}
    answers = {gold: query for gold, query in answers.items() if gold.isdecimal() or len(gold) >= SHORTEST}
    hits = sum(stands(gold, [(text, query)]) for gold, query in answers.items())
    if hits < max(KEY_TASKS, MOST * len(rows)):
        return None
    numbers = Counter(map(len, set(re.findall(r"(?<![\w.])\d+(?!\w|\.\d)", text))))  # {digits: how many there are}
    chances = [
        min(1.0, (numbers[len(gold)] + 1) / 10 ** len(gold)) if gold.isdecimal() else WORD_BY_CHANCE for gold in answers
    ]
    return f"the answers of {hits} of {len(rows)} tasks" if at_least(hits, chances) < LEVEL else None


def named_answers(rows: list[dict], text: str) -> str | None:
    """What to say where a text names most tasks, and with each its own answer more often than by chance; else None.

    A task is named by a word that only tasks of its answer have.
    """
    golds: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for word in words_of(row["query"]):
            golds[word].add(answer_of(row)["gold"])
    told = {word: next(iter(all_)) for word, all_ in golds.items() if len(all_) == 1}
    places = [(match.start(), match.end(), told[match[0].casefold()]) for match in names_in(text, told)]
    named = {gold for *_, gold in places}
    if len({*map(gold_of, rows)}) < 2 or sum(gold_of(row) in named for row in rows) < MOST * len(rows):
        return None
    after, before = defaultdict(list), defaultdict(list)
    for number, (start, end, gold) in enumerate(places):
        others = [place for place in places[number:] if place[2] != gold][:1]
        after[gold].append(text[end : min(end + STRETCH, others[0][0] if others else len(text))])
        others = [place for place in places[:number] if place[2] != gold][-1:]
        before[gold].append(text[max(start - STRETCH, others[0][1] if others else 0) : start])
    for stretches in (after, before):
        texts = [(row, "\n".join(stretches[gold_of(row)]), excuse(row, row["query"])) for row in rows]
        if found := more_than_chance(texts):
            return f"words that name tasks, and beside them {found}"
    return None


def quoted_questions(rows: list[dict], text: str) -> str | None:
    """What to say where a text quotes the questions of most tasks; else None."""
    whole = plain(text)
    n = sum(len(query) >= QUOTED and query in whole for query in (plain(row["query"]) for row in rows))
    return f"the questions of {n} of {len(rows)} tasks" if n >= max(KEY_TASKS, MOST * len(rows)) else None


def gold_of(row: dict) -> str:
    """The answer of an episode's task, as the env has it."""
    return answer_of(row)["gold"]


def words_of(text: str) -> set[str]:
    """The words of a text, without case."""
    return {word.casefold() for word in re.findall(r"\w+", text)}


def names_in(text: str, told: dict[str, str]) -> list[re.Match]:
    """The places of a text in which one of the words stands that name a task."""
    return [match for match in re.finditer(r"\w+", text) if match[0].casefold() in told]


LOOK: tuple[Check, ...] = (answer_key,)
