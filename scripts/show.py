"""A run in the terminal: its episodes, or one of them whole.

python -m scripts.show RUN [--status failure] [--type pick] [--flag]     every episode, a line each
python -m scripts.show RUN TASK [--prompts]                             one: TASK is its place or the end of its id
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from core.errors import UserError
from core.models.reply_text import storable
from results.load import Run, episode_columns, find_runs, read_run

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COLOUR = {"success": "green", "failure": "red", "infra_error": "yellow"}


def clean(text: str) -> str:
    """Text of a model or an env as a terminal may be given it: without control characters."""
    return _CONTROL.sub("�", storable(str(text)).replace("\r\n", "\n"))


def console() -> Console:
    """The terminal; where there is none, lines as wide as they are."""
    return Console() if sys.stdout.isatty() else Console(soft_wrap=True, width=160)


class Printer:
    """Prints headings, and text that is never read as markup."""

    def __init__(self) -> None:
        self.console = console()

    def head(self, text: str, style: str = "bold") -> None:
        self.console.print(clean(text), style=style, markup=False, highlight=False)

    def text(self, text: str, indent: int = 2) -> None:
        pad = " " * indent
        lines = clean(text).splitlines() or [""]
        self.console.print("\n".join(pad + line for line in lines), markup=False, highlight=False)


def episodes(run: Run, status: str | None, kind: str | None, flagged: bool) -> Table:
    """A line an episode."""
    table = Table(title=clean(str(run.path)), title_justify="left")
    for heading in ("place", "task", "status", "judged", "shown", "lessons", "steps", "tokens", "note"):
        table.add_column(heading, justify="left" if heading in ("task", "status", "judged", "note") else "right")
    for row in run.rows:
        facts = episode_columns(row)
        disagree = facts["verdict"] is not None and facts["verdict"] != row["status"]
        note = facts["error"] or ("the judge is wrong" if disagree else "")
        if (status and row["status"] != status) or (kind and row["task_type"] != kind) or (flagged and not note):
            continue
        colour = COLOUR[row["status"]]
        cells = [facts["n_retrieved"], facts["n_lessons"], facts["steps"], f"{facts['tokens']:,}"]
        task = clean(row["task_id"]).replace("[", r"\[")
        state = f"[{colour}]{row['status']}[/{colour}]"
        table.add_row(str(row["index"]), task, state, facts["verdict"] or "-", *map(str, cells), note)
    return table


def find_row(run: Run, wish: str) -> dict[str, Any]:
    """The episode at a place, or the one whose task's id ends so. Raises UserError for none or several."""
    if wish.isdecimal() and int(wish) < len(run.rows):
        return run.rows[int(wish)]
    found = [row for row in run.rows if row["task_id"] == wish] or [r for r in run.rows if r["task_id"].endswith(wish)]
    if len(found) != 1:
        places = ", ".join(str(row["index"]) for row in found[:10])
        raise UserError(f"{wish} names {len(found)} episodes" + (f": give its place, {places}." if found else "."))
    return found[0]


def one(out: Printer, run: Run, row: dict[str, Any], prompts: bool) -> None:
    """One episode: task, lessons shown, attempts, verdict, truth, lessons learned, tokens."""
    out.head(f"{row['index']}  {row['task_id']}  {row['status']}", COLOUR[row["status"]])
    out.text(row["query"])
    lessons = {record["id"]: record for each in run.rows for record in each["records"]}
    for hit in row["retrieved"]:
        record = lessons.get(hit["id"])
        source = f"of {record['task_id']}, a {record['outcome']}" if record else "not made in this run"
        out.head(f"\nshown {hit['id']}  score {hit['score']:.3f}  {source}", "cyan")
        for item in record["items"] if record else ():
            out.text(f"{item['title']}: {item['content']}")
    for attempt in row["trajectories"]:
        chosen = "  (the answer)" if attempt["sample"] == row["chosen"] and len(row["trajectories"]) > 1 else ""
        out.head(f"\nattempt {attempt['sample']}  {attempt['ended_by']}  reward {attempt['reward']}{chosen}", "bold")
        for message in attempt["opening"] if prompts else ():
            out.head(f"  [{message['role']}]", "dim")
            out.text(message["content"], 4)
        for number, step in enumerate(attempt["steps"], 1):
            out.head(f"  step {number}" + ("" if step["valid"] else "  (invalid)"), "dim")
            out.text(step["text"], 4)
            if step["observation"]:
                out.text(f"-> {step['observation']}", 4)
        if attempt["error"]:
            out.text(attempt["error"], 4)
        out.text(f"truth: {attempt['gold']}", 2)
    verdict = row["verdict"]
    out.head(f"\nverdict {verdict['label']} by {verdict['source']}", "bold")
    out.text(verdict["reason"])
    for lesson in row["lessons"]:
        out.head(f"\nlearned: {lesson['title']}", "magenta")
        out.text(f"{lesson['description']}\n{lesson['content']}")
    for error in row["learning_errors"]:
        out.head(f"broke beside the attempt: {error}", "yellow")
    spent = (f"{role} {used['prompt_tokens'] + used['completion_tokens']:,}" for role, used in row["usage"].items())
    out.head("\ntokens  " + "   ".join(spent), "dim")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("task", nargs="?", metavar="TASK")
    parser.add_argument("--status", choices=COLOUR)
    parser.add_argument("--type", help="of the tasks")
    parser.add_argument("--flag", action="store_true", help="only errors and wrong verdicts")
    parser.add_argument("--prompts", action="store_true", help="the opening messages too")
    given = parser.parse_args(arguments)
    out = Printer()
    try:
        found = find_runs([given.run])
        if len(found) > 1:
            raise UserError(f"{given.run} holds {len(found)} runs: " + ", ".join(path.name for path in found[:10]))
        run = read_run(found[0])
        if given.task is None:
            out.console.print(episodes(run, given.status, given.type, given.flag))
        else:
            one(out, run, find_row(run, given.task), given.prompts)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
