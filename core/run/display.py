"""Terminal output of a run: a live progress bar (plain lines without a terminal), and a table at its end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any

from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from core.console import Console
from core.models.waits import SHOWN_S, Wait
from core.run.launch import short
from core.run.records import evaluated, usage_of
from core.terminal import print_printable, started
from core.types import total

log = logging.getLogger("run")
NOTICES = logging.getLogger("run.notices")  # what the user should know: any part may write to it, as often as it likes
ACTIONS = logging.getLogger("actions")  # what an agent does, as it does it: for the screen alone
PLAIN_EVERY_S = 5.0
ACTION_EVERY_S = 60.0  # in a file, an action is shown where nothing else was for so long
_ACTION_CHARS = 60
MOST_BROKEN = 20  # tasks with an infra error that the table of a run lists
_WAIT_CHARS = 60  # of a wait and its reason in the live line
_WIDTH = 72  # of a table row's two texts, in a terminal of 80 columns
_REPEATED = "{} of {} tasks were asked before under another id: a lesson may hold the answer"
UNKNOWN = "not known: the environment did not evaluate; evaluate what the run left"
MOST_CHARS = 200  # of a task's error in the table


class RunProgress:
    """Progress display: done, success rate, lessons, tokens, time left. A context manager; `update(row)` per episode.

    rows    episodes of earlier starts
    quiet   show only warnings: the run is a cell of a sweep, which has its own progress line
    """

    def __init__(self, total: int, rows: list[dict], label: str, quiet: bool = False) -> None:
        self._total, self._label, self._quiet = total, label, quiet
        self._known = True
        self._done = self._valid = self._won = self._lessons = self._tokens = self._retries = 0
        self._waits: set[Wait] = set()  # those in progress
        self._action = ""  # the last one
        self._doing = ""  # what the run waits for besides calls, e.g. loading a model
        self._began, self._shown, self._at_start = time.monotonic(), -inf, len(rows)
        self._warned: set[str] = set()
        self._live = Console().is_terminal and not quiet
        self._ear = logging.Handler()
        self._ear.emit = self.hear
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Now(lambda task: f"{task.completed:.0f}/{task.total:.0f}  {self._facts()}"),
            TimeRemainingColumn(compact=True),
            console=Console(),
            disable=not self._live,
        )
        for row in rows:
            self._count(row)
        self._task = self._bar.add_task(label, total=total, completed=self._done)

    def update(self, row: dict) -> None:
        """Count one more episode and refresh the display."""
        self._count(row)
        self._show(last=self._done == self._total)

    def _show(self, last: bool = False) -> None:
        if self._quiet:
            return
        self._bar.update(self._task, completed=self._done)
        now = time.monotonic()
        if not self._live and (now - self._shown >= PLAIN_EVERY_S or last):
            self._shown = now
            made, left = self._done - self._at_start, self._total - self._done
            about = f"  about {(now - self._began) / made * left:.0f} s left" if made > 0 else ""
            print(f"{self._label}  {self._done}/{self._total}  {self._facts()}{about}", flush=True)

    def hear(self, record: logging.LogRecord) -> None:
        """Reflect a log record in the display: a notice, a retried call, a model that is being loaded, a long wait."""
        if record.name == NOTICES.name:
            self.warn(record.getMessage())
        elif record.name == ACTIONS.name:
            self._act(" ".join(record.getMessage().split())[:_ACTION_CHARS])
        elif record.name == "run.retries":
            self._retries += 1
            self._show()
        elif (doing := getattr(record, "doing", None)) is not None:
            self._doing = doing
            self._bar.refresh()
        elif (begins := getattr(record, "wait_begins", None)) is not None:
            self._begin_wait(begins)
        elif (ends := getattr(record, "wait_ends", None)) is not None:
            self._waits.discard(ends)
            self._bar.refresh()

    def _act(self, action: str) -> None:
        """Show an action; without a live line only the first, and one where nothing else was shown for long."""
        self._action, now = action, time.monotonic()
        if self._live:
            self._bar.refresh()
        elif not self._quiet and now - self._shown >= ACTION_EVERY_S:
            self._shown = now
            print(f"{self._label}  {self._done}/{self._total}  {action}", flush=True)

    def _begin_wait(self, wait: Wait) -> None:
        """Show a wait; without a live line only if it is much longer than what is waited for already."""
        longest = self._longest_wait()
        self._waits.add(wait)
        if self._live:
            self._bar.refresh()
        elif longest is None or wait.until > longest.until + SHOWN_S:
            print(f"{self._label}  {wait.text()}", flush=True)

    def _longest_wait(self) -> Wait | None:
        return max(tuple(self._waits), key=lambda wait: wait.until, default=None)

    def warn(self, text: str) -> None:
        """Print a warning above the bar and log it; a repeated text is ignored."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning(text)
            if self._quiet:
                print(f"warning: {self._label}: {text}", flush=True)
                return
            self._bar.console.print(f"warning: {text}", style="yellow", soft_wrap=True)

    def _count(self, row: dict) -> None:
        self._done += "retries" not in row  # a retry: its task is already counted
        self._valid += row["status"] in ("success", "failure")
        self._known = self._known and evaluated(row)
        self._won += row["status"] == "success"
        self._lessons += len(row["lessons"])
        self._tokens = total((self._tokens, usage_of(row).tokens))

    def _facts(self) -> str:
        if self._doing and self._live:  # instead of the counts: the bar has only one line
            return f"{self._doing} ..."
        if self._live and (wait := self._longest_wait()) is not None:
            return wait.text()[:_WAIT_CHARS]
        rate = f"{100 * self._won / self._valid:.0f} %" if self._valid and self._known else "- %"
        broken = self._done - self._valid
        counts = {"broken": broken, "retries": self._retries}
        rare = "".join(f"  {name} {count}" for name, count in counts.items() if count)
        facts = f"success {rate}  lessons {self._lessons}  tokens {counted(self._tokens)}{rare}"
        return facts if self._done or not self._live else self._action or facts

    def __enter__(self) -> RunProgress:
        started()
        self._bar.start()
        print_printable()
        for logger in (log, NOTICES, ACTIONS):
            logger.addHandler(self._ear)
        ACTIONS.setLevel(logging.INFO)
        ACTIONS.propagate = False
        NOTICES.propagate = False  # `warn` logs each text once
        return self

    def __exit__(self, *_exc: object) -> None:
        for logger in (log, NOTICES, ACTIONS):
            logger.removeHandler(self._ear)
        NOTICES.propagate = True
        self._bar.stop()


class _Now(ProgressColumn):
    """A column whose text is made anew at each refresh, so that it can count down."""

    def __init__(self, text: Callable[[Any], str]) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Any) -> Text:
        return Text(self._text(task))


def print_summary(
    summary: dict[str, Any], title: str, run_dir: Path, then: Sequence[str] = (), rows: Sequence[dict[str, Any]] = ()
) -> None:
    """Print a run's results, its infra errors, its folder, one lesson that it learned, and what to do next.

    rows   its episodes
    then   a sentence followed by commands (`next_step` in core/run/session.py)
    """
    table = Table(title=Text(title), title_justify="left", show_header=False, min_width=60)
    for name, value in facts_of(summary):
        table.add_row(Text(name), Text(value))
    for broken in summary["broken"][:MOST_BROKEN]:
        table.add_row(Text(f"  broken: {broken['task_id']}", "red"), Text(broken["error"][:MOST_CHARS]))
    console = Console(soft_wrap=True) if not sys.stdout.isatty() else Console()
    console.print(table)
    console.print(Text(f"  {short(run_dir)}"), soft_wrap=True)  # not wrapped, so that it can be copied
    for line in a_lesson(rows):
        console.print(Text(line), soft_wrap=True)
    for number, line in enumerate(then):
        console.print(Text(f"  {line}" if number else line), soft_wrap=True)


def a_lesson(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines with one lesson, best one that was retrieved, and the task that taught it; [] if nothing was learned."""
    taught = [row for row in rows if row["lessons"]]
    if not taught:
        return []
    retrieved = {hit["id"] for row in rows for hit in row["retrieved"]}
    row = max(taught, key=lambda row: any(record["id"] in retrieved for record in row["records"]))
    lesson, label = row["lessons"][0], (row["verdict"] or {}).get("label")
    source = f"a {label}" if label else "an attempt"
    text = " ".join(f"{lesson['title']}: {lesson['content']}".split())
    text = shorten(text, 3 * _WIDTH, placeholder=" ...")
    first = shorten(f"a lesson that it learned, from {source} at {row['task_id']}:", _WIDTH + 6, placeholder=" ...")
    return [first, *wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")]


def facts_of(s: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a run's table, (name, value): the main results, and the counts that are not zero."""
    interval = f", 95 % interval {' to '.join(percent(v) for v in s['ci95'])}" if s["ci95"] else ""
    known = s["success_rate"] is not None or not s["n"]
    # Attempts were labelled, so that lessons could be made, and none was made or shown.
    nothing_learned = s["label_source"] != "none" and s["n"] > 0 and not (s["n_lessons"] or s["n_retrieved"])
    learned = f"{s['n_lessons']} learned, {_number(s['shown_per_task'])} shown per task"
    spent = [
        f"{counted(s['tokens']['total'])} tokens",
        _money(s["cost_usd"], s["cost_usd_per_success"]),
        f"{s['wall_s']:.1f} s",
    ]
    facts = [
        ("success", f"{percent(s['success_rate'])}   ({s['n_success']} of {s['n']}){interval}" if known else UNKNOWN),
        *([] if s["complete"] else [("not complete", f"{s['n']} of {s['n_tasks']} tasks")]),
        *([("mean score", percent(s["mean_reward"]))] if s["mean_reward"] != s["success_rate"] else []),
        *(
            (name.replace("_", " "), f"{percent(each['macro'])} over tasks, {percent(each['micro'])} over steps")
            for name, each in s.get("measures", {}).items()
        ),
        *([("mean steps", _number(s["mean_steps"]))] if s["mean_steps"] not in (None, 1.0) else []),
        *([("lessons", learned)] if s["n_lessons"] or s["n_retrieved"] else []),
        *([("lessons", "none was learned")] if nothing_learned else []),
        *([("repeated", _REPEATED.format(s["n_repeated"], s["n"]))] if s.get("n_repeated") and s["n_lessons"] else []),
        *_labels(s),
        ("spent", ", ".join(spent)),
        *([("stream", described)] if (described := stream_of(s)) else []),
        *((f"pass {n}", f"{percent(p['success_rate'])} of {p['n']}") for n, p in enumerate(s["by_pass"], 1)),
    ]
    facts += [(name, str(count)) for name, count in _rare(s).items() if count]
    facts += [(f"served as {asked}", ", ".join(served)) for asked, served in s.get("drift", {}).items()]
    facts += [("answered by a fallback", f"{name}: {n} calls") for name, n in s.get("fallbacks", {}).items()]
    facts += _scaling_of(s["scaling"])
    types = [f"{type_name(kind)} {percent(r['success_rate'])} of {r['n']}" for kind, r in s["by_type"].items()]
    width = _WIDTH - max(len(name) for name, _ in facts)
    return facts + ([("by type", _lines(types, width))] if types else [])


def counted(tokens: float | None) -> str:
    """A number of tokens as text; None and NaN are unknown."""
    return "unknown" if tokens is None or tokens != tokens else f"{tokens:,}"


def _lines(words: list[str], width: int) -> str:
    """Join words into lines of at most `width` characters, broken only between words."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 3 + len(word) > width:
            lines.append("")
        lines[-1] += ("   " if lines[-1] else "") + word
    return "\n".join(lines)


def type_name(kind: str) -> str:
    """A task's type for display: a bare number is a level of difficulty."""
    return f"level {kind}" if kind.isdigit() else kind or "(no type)"


def _labels(s: dict[str, Any]) -> list[tuple[str, str]]:
    """The row with the source of the labels and, if there is a judge, its accuracy."""
    if s["judge_agreement"] is None:
        return [] if s["label_source"] == "none" else [("labels", s["label_source"])]
    return [("judge", f"right in {percent(s['judge_agreement'])} (labels: {s['label_source']})")]


def _rare(s: dict[str, Any]) -> dict[str, int]:
    return {
        "broken (not counted)": s["n_infra_error"],
        "tried again": s["n_retried"],
        "ended by the step limit": s["n_step_limit"],
        "ended stuck (max_repeats)": s["n_stuck"],
        "ended by the episode's budget": s["n_budget"],
        "ended by the context window": s["n_context"],
        "ended by a content filter": s["n_content_filter"],
        "ended by episode_timeout_s": s["n_time"],
        "stopped by the run's budget": s["n_stopped"],
        "tasks whose reply states no answer": s.get("n_unstated", 0),
        "empty replies": s["n_empty_replies"],
        "replies cut off": s["n_truncated"],
        "invalid actions": s["n_invalid_actions"],
        "tampered attempts": s.get("n_tampered", 0),
        "lessons dropped": s["n_lessons_dropped"],
        "retrieved lessons not shown": s["n_not_shown"],
        "records corrupted by rule, not by the model": s.get("n_fell_back", 0),
        "verdicts cut off": s["n_verdicts_truncated"],
        "distillations cut off": s["n_extractions_truncated"],
        "verdicts not readable": s["n_verdicts_unparsed"],
        "broken judgements, distillations": s["n_learning_errors"],
        "prompts cut (llm.num_ctx)": s.get("n_prompts_cut", 0),
        "token counts corrected": s.get("n_usage_corrected", 0),
    }


def _money(usd: float | None, per_success: float | None) -> str:
    """A cost in USD, and the cost per success."""
    if not usd:
        return "cost unknown" if usd is None else "0 USD"
    return f"{usd:.4f} USD" + ("" if per_success is None else f" ({per_success:.4f} a success)")


def stream_of(summary: dict[str, Any]) -> str:
    """The stream settings that differ from the paper's, as key=value words; "" if none does."""
    usual = {"batch": 1, "order": "file", "passes": 1}
    return " ".join(f"{key}={value}" for key, value in summary["stream"].items() if value != usual.get(key))


def _scaling_of(found: dict[str, Any]) -> list[tuple[str, str]]:
    if not found:
        return []
    if found["kind"] == "sequential":
        by_round = "   ".join(percent(rate) for rate in found["success_by_round"])
        changed = f"{found['n_corrected']} corrected, {found['n_spoiled']} spoiled"
        return [("success by round", by_round), ("changed by checks", changed)]
    facts = [
        ("pass@1", percent(found["pass_at_1"])),
        (f"best of {found['k']} ({found['select']})", percent(found["best_of_n"])),
        (f"pass@{found['k']} (oracle)", percent(found["pass_at_k_oracle"])),
    ]
    counts = {"broken attempts": "n_infra_error_attempts", "selections not readable": "n_selections_unparsed"}
    return facts + [(name, str(found[key])) for name, key in counts.items() if found[key]]


def percent(value: float | None, unknown: str = "-") -> str:
    """A proportion as a percentage, with one decimal."""
    return unknown if value is None else f"{100 * value:.1f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
