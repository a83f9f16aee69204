"""The end of experiment=recorded: the table, one lesson with the two episodes around it, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from rich.text import Text

from analysis.cells import rows_of
from analysis.matrix import build_matrix
from analysis.runs import Run, find_runs, read_run
from analysis.tables import load_episodes
from analysis.text_table import show
from core.console import Console
from core.run.launch import program, short, tool
from core.terminal import prose

WIDTH = 79
# experiment=recorded has a fixed number of seeds; the study that its replies are of looked after each one.
PLANNED = "The study looked after each seed: corrected for that, p is 0.0225. It ran no placebo (docs/study.md)."


class Story(NamedTuple):
    """A lesson that was followed: the failure that taught it, and the success that it was shown for."""

    run: Run
    before: dict[str, Any]
    after: dict[str, Any]
    record: dict[str, Any]
    score: float


def print_recorded(folder: Path, console: Console) -> None:
    """Print the table of the runs in a folder, an episode before and after a lesson, and the next commands."""
    if any(folder.glob("*/summary.json")):
        cells, [table, *_] = build_matrix(load_episodes([str(folder)]))
        show(console, replace(table, notes=[]))
        rests_on = ["what this rests on:", f"  {tool()} tables {short(folder)}", ""]
        console.print(prose("\n".join([*differences(rows_of(cells.table)), *rests_on])), soft_wrap=True)
    told = min(stories(map(read_run, find_runs([folder]))), key=_length, default=None)
    for line in prose("\n".join([*(lines_of(told) if told else ()), "", *next_commands()])).splitlines():
        console.print(Text(line), soft_wrap=True)


def differences(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each arm that was compared."""
    for row in rows:
        if row.get("p") is not None:
            gain, least, most = (100 * row[name] for name in ("difference", "difference_low", "difference_high"))
            yield (
                f"{row['label']} solves {abs(gain):.1f} points {'more' if gain >= 0 else 'less'} on the same tasks and "
                f"seeds (95 % interval {least:+.1f} to {most:+.1f}, p = {row['p']:.2g}). {PLANNED}"
            )


def stories(runs: Iterable[Run]) -> Iterator[Story]:
    """Every success that followed a lesson of an earlier failure."""
    for run in runs:
        taught = {record["id"]: (row, record) for row in run.rows for record in row["records"]}
        for row in run.rows:
            for hit in row["retrieved"]:
                before, record = taught.get(hit["id"], (None, None))
                if row["status"] == "success" and hit.get("followed") and before and before["status"] == "failure":
                    yield Story(run, before, row, record, hit["score"])


def _length(story: Story) -> int:
    return len(_lesson(story.record))


def _lesson(record: dict[str, Any]) -> str:
    item = record["items"][0]
    return f"{item['title']}: {item['description']} {item['content']}"


def lines_of(story: Story) -> list[str]:
    """The story in lines of a terminal of 80 columns."""
    found = f"success: the lesson was found (similarity {story.score:.2f}) and followed"
    return [
        f"one lesson, the shortest that was followed, and the two tasks around it ({short(story.run.path)}):",
        *_episode("before", story.before, "failure"),
        *_block("lesson", _lesson(story.record)),
        *_episode("after", story.after, found),
    ]


def _episode(name: str, row: dict[str, Any], outcome: str) -> list[str]:
    lines = _block(name, f"{row['query']} ({outcome})")
    for step in row["trajectories"][row["chosen"] or 0]["steps"]:
        lines += _block("", f"> {step['action']}") + _block("", step["observation"])
    return lines


def _block(name: str, text: str) -> list[str]:
    return wrap(" ".join(text.split()), WIDTH, initial_indent=f"  {name:8}", subsequent_indent=" " * 10)


def next_commands() -> list[str]:
    """What to type for one's own case."""
    main, reasoningbank = shlex.join(program()), tool()
    return [
        "next, does memory help your model on your questions? (docs/tutorial.md; dry_run=true says what it would cost)",
        f"  {reasoningbank} fetch minilm",
        f"  {main} -m arm=no_memory,reasoningbank seed=0,1,2,3,4 env=questions env.path=FILE.jsonl llm=openai",
        "the same with your own server: llm=vllm llm.api_base=http://HOST:PORT/v1 in place of llm=openai",
        "a memory for your coding agent (docs/mcp.md):",
        f"  {reasoningbank} client claude --bank ~/lessons.sqlite",
        "a model of 135 million parameters, live, here (300 MB more; it shows the loop, not what memory is worth):",
        '  make run ARGS="llm=local"',
    ]
