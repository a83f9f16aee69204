"""Show a run in the terminal: all its episodes in short, or one of them in full.

reasoningbank show RUN [--status failure] [--type pick] [--flag]     a line for each episode
reasoningbank show RUN TASK [--prompts]              one episode; TASK is its number, or the end of its task's id
"""

from __future__ import annotations

import sys
from textwrap import shorten
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analysis.leaks import learning_calls
from analysis.notes import LIMITS
from analysis.runs import Run, find_runs, read_run
from analysis.text_table import clean
from core.console import Console
from core.errors import UserError
from core.run.columns import episode_columns
from core.run.display import counted, facts_of
from core.run.metrics import limit_of
from core.run.records import evaluated, place_of, status_of, was_graded
from core.types import Usage
from scripts.command_line import parser, plain_errors

COLOUR = {"success": "green", "failure": "red", "infra_error": "yellow"}


def console() -> Console:
    """The terminal, which reads no text as markup; where there is none, lines as wide as they are."""
    wide = not sys.stdout.isatty()
    return Console(soft_wrap=wide, width=160 if wide else None)


def say(out: Console, text: str, indent: int = 2, style: str | None = None) -> None:
    """Text of whatever origin, every line of it indented."""
    out.print("\n".join(" " * indent + line for line in clean(text).splitlines()), style=style)


def one_run(path: str) -> Run:
    """The one run at a path. Raises UserError for a folder of several."""
    found = find_runs([path])
    if len(found) > 1:
        raise UserError(f"{path} holds {len(found)} runs: give one of " + ", ".join(each.name for each in found[:10]))
    return read_run(found[0])


WIDE = 110  # characters of a terminal that has room for the ids
WORDS = 44  # characters of a task's question beside its id


def episodes(run: Run, status: str | None, kind: str | None, flagged: bool, width: int) -> Table:
    """A line an episode. Where it is narrow, ids and costs are left out: the place names an episode as well."""
    look = {"box": SIMPLE_HEAD, "show_edge": False, "padding": (0, 1, 0, 0)}
    table = Table(title=clean(str(run.path)), title_justify="left", **look)
    for heading in ("place", "task", "question", "status", "judged", "shown", "lessons", "steps", "tokens", "note"):
        left = heading in ("task", "question", "status", "judged", "note")
        if width >= WIDE or heading not in ("task", "steps", "tokens"):
            table.add_column(heading, justify="left" if left else "right", no_wrap=heading not in ("question", "note"))
    for row in run.rows:
        facts = episode_columns(row)
        disagree = facts["verdict"] is not None and facts["verdict"] != row["status"] and evaluated(row)
        note = facts["error"] or ("the judge is wrong" if disagree else "")
        if (status and row["status"] != status) or (kind and row["task_type"] != kind) or (flagged and not note):
            continue
        state = Text(status_of(row), COLOUR[row["status"]])
        cells = [facts["lessons_shown"], facts["n_lessons"]]
        cells += [facts["steps"], counted(facts["tokens"])] if width >= WIDE else []
        task, verdict = clean(row["task_id"]), facts["verdict"] or "-"
        asked = shorten(clean(row["query"]), WORDS, placeholder=" ...")
        named = [task, asked] if width >= WIDE else [asked]
        table.add_row(str(place_of(row)), *named, state, verdict, *map(str, cells), clean(note))
    return table


def graded(attempt: dict[str, Any], status: str) -> list[str]:
    """The answer that was graded, the reference and why the attempt ended as it did, a line each."""
    info, limit = attempt.get("info", {}), limit_of(attempt)
    why = [
        "no answer is stated" * (not info.get("stated", True)),
        LIMITS.get(limit, limit) and f"ended by a limit: {LIMITS.get(limit, limit)}",
        info.get("rule") and f"read by the rule {info['rule']}",
        info.get("kind") and f"compared as {info['kind']}",
    ]
    answer = [f"graded answer: {attempt['answer']}"] if attempt["answer"] is not None else []
    return [*answer, f"reference: {attempt['gold']}", "; ".join([status, *filter(None, why)])]


def find_row(run: Run, wish: str) -> dict[str, Any]:
    """The episode at a place, or the one whose task's id ends so. Raises UserError for none or several."""
    if wish.isdecimal() and int(wish) < len(run.rows):
        return run.rows[int(wish)]
    found = [row for row in run.rows if row["task_id"] == wish] or [r for r in run.rows if r["task_id"].endswith(wish)]
    if len(found) != 1:
        places = ", ".join(str(place_of(row)) for row in found[:10])
        raise UserError(f"{wish} names {len(found)} episodes" + (f": give its place, {places}." if found else "."))
    return found[0]


def calls_of(run: Run, task: str) -> list[dict[str, Any]]:
    """The calls of judge, selector and extractor about a task, in all passes; [] where no prompts were kept."""
    return (learning_calls(run) or {}).get(task, [])


def one(out: Console, run: Run, row: dict[str, Any], prompts: bool) -> None:
    """One episode: task, lessons shown, attempts, verdict, truth, lessons learned, tokens."""
    say(out, f"{row['index']}  {row['task_id']}  {status_of(row)}", 0, COLOUR[row["status"]])
    say(out, row["query"])
    lessons = {record["id"]: record for each in run.rows for record in each["records"]}
    for hit in row["retrieved"]:
        record = lessons.get(hit["id"])
        source = f"of {record['task_id']}, a {record['outcome']}" if record else "not made in this run"
        did = {True: ", followed", False: ", not followed"}.get(hit.get("followed"), "")
        did += ", its text replaced" if "items" in hit else ""
        say(out, f"\nshown {hit['id']}  score {hit['score']:.3f}  {source}{did}", 0, "cyan")
        for item in hit.get("items", record["items"] if record else ()):
            say(out, f"{item['title']}: {item['description']} {item['content']}")
    for attempt in row["trajectories"]:
        chosen = "  (the answer)" if attempt["sample"] == row["chosen"] and len(row["trajectories"]) > 1 else ""
        say(out, f"\nattempt {attempt['sample']}  {attempt['ended_by']}  reward {attempt['reward']}{chosen}", 0, "bold")
        for message in attempt["opening"] if prompts else ():
            say(out, f"  [{message['role']}]", 0, "dim")
            say(out, message["content"], 4)
        for number, step in enumerate(attempt["steps"], 1):
            say(out, f"  step {number}" + ("" if step["valid"] else "  (invalid)"), 0, "dim")
            say(out, step["text"], 4)
            if step["observation"]:
                say(out, f"-> {step['observation']}", 4)
        if attempt["error"]:
            say(out, attempt["error"], 4)
        outcome = ("right" if attempt["success"] else "wrong") if was_graded(attempt) else "not evaluated"
        for line in graded(attempt, outcome):
            say(out, line, 2)
    verdict = row["verdict"]
    say(out, f"\nverdict {verdict['label']} by {verdict['source']}", 0, "bold")
    say(out, verdict["reason"])
    for call in calls_of(run, row["task_id"]) if prompts else ():
        say(out, f"\n{call['role']} was asked, sample {call['sample']}, prompt {call['messages']}", 0, "bold")
        say(out, call["prompt"], 4)
        say(out, f"-> {call.get('text') or call['error'] or ''}", 4)
    for lesson in row["lessons"]:
        say(out, f"\nlearned: {lesson['title']}", 0, "magenta")
        say(out, f"{lesson['description']}\n{lesson['content']}")
    for error in row["learning_errors"]:
        say(out, f"an error, but not of the attempt: {error}", 0, "yellow")
    spent = (f"{role} {counted(Usage(**used).tokens)}" for role, used in row["usage"].items())
    say(out, "\ntokens  " + "   ".join(spent), 0, "dim")


@plain_errors()
def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("run", metavar="RUN")
    options.add_argument("task", nargs="?", metavar="TASK")
    options.add_argument("--status", choices=COLOUR)
    options.add_argument("--type", help="of the tasks")
    options.add_argument("--flag", action="store_true", help="only errors and wrong verdicts")
    options.add_argument(
        "--prompts",
        action="store_true",
        help="the opening messages, and what judge, selector and extractor were sent and replied",
    )
    given = options.parse_args(arguments)
    out, run = console(), one_run(given.run)
    if given.task is None:
        out.print(episodes(run, given.status, given.type, given.flag, out.width))
        for name, value in facts_of(run.summary) if run.summary else ():
            if name not in ("by type", "success"):
                say(out, f"{name}: {value}")
    else:
        one(out, run, find_row(run, given.task), given.prompts)


if __name__ == "__main__":
    sys.exit(main())
