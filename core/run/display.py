"""What a person sees: a live bar while a run goes on (plain lines without a terminal), a table at its end."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from core.run.records import usage_of

PLAIN_EVERY_S = 5.0
MOST_BROKEN = 20  # tasks that broke, in the table of a run
MOST_CHARS = 200  # of what broke one


class RunProgress:
    """Done, success rate, lessons, tokens, time left. A context manager; `update(row)` after each episode.

    quiet   show nothing but warnings: the run is a cell of a sweep, which has a line of its own
    """

    def __init__(self, total: int, rows: list[dict], label: str, quiet: bool = False) -> None:
        self._total, self._label, self._quiet = total, label, quiet
        self._done = self._valid = self._won = self._lessons = self._tokens = 0
        self._began, self._shown, self._at_start = time.monotonic(), 0.0, len(rows)
        self._warned: set[str] = set()
        self._live = Console().is_terminal and not quiet
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=Console(),
            disable=not self._live,
        )
        for row in rows:
            self._count(row)
        self._task = self._bar.add_task(label, total=total, completed=self._done, facts=self._facts())

    def update(self, row: dict) -> None:
        """Show that one more episode has ended."""
        self._count(row)
        if self._quiet:
            return
        self._bar.update(self._task, completed=self._done, facts=self._facts())
        now = time.monotonic()
        if not self._live and (now - self._shown >= PLAIN_EVERY_S or self._done == self._total):
            self._shown = now
            left = (now - self._began) / max(1, self._done - self._at_start) * (self._total - self._done)
            print(f"{self._label}  {self._done}/{self._total}  {self._facts()}  about {left:.0f} s left", flush=True)

    def warn(self, text: str) -> None:
        """A line above the bar, once; said again it is not shown."""
        if text not in self._warned:
            self._warned.add(text)
            if self._quiet:
                print(f"warning: {self._label}: {text}", flush=True)
                return
            self._bar.console.print(f"warning: {text}", style="yellow", highlight=False, soft_wrap=True)

    def _count(self, row: dict) -> None:
        self._done += "retries" not in row  # another try at a task that was counted as broken
        self._valid += row["status"] in ("success", "failure")
        self._won += row["status"] == "success"
        self._lessons += len(row["lessons"])
        self._tokens += usage_of(row).tokens

    def _facts(self) -> str:
        rate = f"{100 * self._won / self._valid:.0f} %" if self._valid else "- %"
        broken = self._done - self._valid
        errors = f"  infra errors {broken}" if broken else ""
        return f"success {rate}  lessons {self._lessons}  tokens {self._tokens:,}{errors}"

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._bar.stop()


def print_summary(summary: dict[str, Any], title: str, run_dir: Path) -> None:
    """One run's result, what to be careful about, and where everything was written."""
    table = Table(title=title, title_justify="left", show_header=False, min_width=60)
    for name, value in _facts_of(summary):
        table.add_row(name, value)
    for broken in summary["broken"][:MOST_BROKEN]:
        table.add_row(Text(f"  broke: {broken['task_id']}", "red"), Text(broken["error"][:MOST_CHARS]))
    console = Console(soft_wrap=True) if not sys.stdout.isatty() else Console()
    console.print(table)
    for name in ("episodes.jsonl", "bank.sqlite", "summary.json", "manifest.json", "calls.jsonl", "timings.jsonl"):
        if (run_dir / name).exists():
            console.print(f"  {shown_path(run_dir / name)}", highlight=False, soft_wrap=True)


def _facts_of(s: dict[str, Any]) -> list[tuple[str, str]]:
    per_100, shown = _number(s["lessons_per_100"], 0), _number(s["shown_per_task"])
    facts = [
        ("success rate", f"{percent(s['success_rate'])}   ({s['n_success']} of {s['n']})"),
        ("95 % interval", " to ".join(percent(v) for v in s["ci95"]) if s["ci95"] else "-"),
        *([("mean score", percent(s["mean_reward"]))] if s["mean_reward"] != s["success_rate"] else []),
        ("tasks", f"{s['n']} of {s['n_tasks']}" + ("" if s["complete"] else "   (not complete)")),
        ("mean steps", _number(s["mean_steps"])),
        ("lessons", f"{s['n_lessons']}   ({per_100} per 100 tasks, {s['n_lessons_dropped']} dropped)"),
        ("tasks with a retrieved lesson", f"{s['n_retrieved']}   ({shown} lessons shown a task)"),
        ("judge agrees with the truth", f"{percent(s['judge_agreement'])}   (labels: {s['label_source']})"),
        ("tokens", "   ".join(f"{role} {count:,}" for role, count in s["tokens"].items())),
        ("cost", _each(s["cost_usd"], s["cost_usd_per_success"], "USD", 4)),
        ("wall time", _each(s["wall_s"], s["wall_s_per_success"], "s", 1)),
        *([("stream", described)] if (described := stream_of(s)) else []),
        *((f"pass {n}", f"{percent(p['success_rate'])}   (of {p['n']})") for n, p in enumerate(s["by_pass"], 1)),
    ]
    counts = {
        "infra errors (not counted)": s["n_infra_error"],
        "tried again": s["n_retried"],
        "ended by the step limit": s["n_step_limit"],
        "ended stuck (max_repeats)": s["n_stuck"],
        "ended by the episode's budget": s["n_budget"],
        "ended by the context window": s["n_context"],
        "ended by a content filter": s["n_content_filter"],
        "ended by episode_timeout_s": s["n_time"],
        "stopped by the run's budget": s["n_stopped"],
        "empty replies": s["n_empty_replies"],
        "replies cut off": s["n_truncated"],
        "invalid actions": s["n_invalid_actions"],
        "retrieved lessons not shown": s["n_not_shown"],
        "verdicts cut off": s["n_verdicts_truncated"],
        "distillations cut off": s["n_extractions_truncated"],
        "verdicts not readable": s["n_verdicts_unparsed"],
        "judge or distiller errors": s["n_learning_errors"],
    }
    facts += [(name, str(count)) for name, count in counts.items() if count]
    facts += [(f"served as {asked}", ", ".join(served)) for asked, served in s.get("drift", {}).items()]
    facts += [("answered by a fallback", f"{name}: {n} calls") for name, n in s.get("fallbacks", {}).items()]
    facts += _scaling_of(s["scaling"])
    return facts + [(f"  {kind}", f"{percent(r['success_rate'])}   (of {r['n']})") for kind, r in s["by_type"].items()]


def _each(value: float | None, per_success: float | None, unit: str, digits: int) -> str:
    """A sum, and what a success took of it."""
    if value is None:
        return "unknown"
    each = "" if per_success is None else f"   ({per_success:.{digits}f} a success)"
    return f"{value:.{digits}f} {unit}{each}"


def stream_of(summary: dict[str, Any]) -> str:
    """What is unlike the paper's stream, in words; "" when nothing is."""
    usual = {"batch": 1, "order": "file", "passes": 1}
    return " ".join(f"{key}={value}" for key, value in summary["stream"].items() if value != usual[key])


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
    counts = {"infra errors of attempts": "n_infra_error_attempts", "selections not readable": "n_selections_unparsed"}
    return facts + [(name, str(found[key])) for name, key in counts.items() if found[key]]


WIDE = 120  # characters from which on a sweep's table has all its columns


def print_runs(folder: Path, console: Console) -> None:
    """One line a run of a sweep's folder. What the names of all runs share stands above them, once."""
    found = [(path.parent.name, json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*/summary.json"))]
    shared = [w for w in found[0][0].split(",") if all(w in name.split(",") for name, _ in found)] if found[1:] else []
    table = Table(title=" ".join(["sweep", *shared]), title_justify="left")
    columns = "run,success,rate,95 % interval,steps,lessons,infra errors,labels,tokens,stream".split(",")
    columns = columns if console.width >= WIDE else columns[:4]
    for heading in columns:
        justify = "left" if heading in ("run", "labels", "stream") else "right"
        table.add_column(heading, justify=justify, overflow="fold" if heading == "run" else "ellipsis")
    for name, s in found:
        interval = " to ".join(percent(v) for v in s["ci95"]) if s["ci95"] else "-"
        done = f"{s['n_success']}/{s['n']}" + ("" if s["complete"] else " (partial)")
        arm, run = s.get("arm", ""), ",".join(word for word in name.split(",") if word not in shared)
        run = f"{run}: {arm}" if " " in arm else run  # the folder is named as the command was, not as it ran
        cells = [run, done, percent(s["success_rate"]), interval, _number(s["mean_steps"]), str(s["n_lessons"])]
        cells += [str(s["n_infra_error"]), s["label_source"], f"{s['tokens']['total']:,}", stream_of(s) or "-"]
        table.add_row(*cells[: len(columns)])
    console.print(table)
    for name, s in found:
        for fallback, n in s.get("fallbacks", {}).items():
            console.print(f"  {name}: {n} calls answered by the fallback {fallback}", highlight=False, soft_wrap=True)


def shown_path(path: Path) -> Path:
    """The path from where the user stands, when it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def percent(value: float | None, unknown: str = "-") -> str:
    """A proportion as a person reads it."""
    return unknown if value is None else f"{100 * value:.1f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
