"""The progress line of a sweep, and its end: the table, the incomplete cells, the command that resumes the sweep.

Runs in the process that was started. The cells may run in other processes: their state is read from the marks that they
leave at their begin and end (`leave_mark`), and from their episodes.jsonl.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.text import Text

from core.checksum import read_whole
from core.console import Console
from core.errors import UserError, extra_for
from core.run.display import percent
from core.run.folders import discard
from core.run.launch import short, tool
from core.run.records import usage_of
from core.terminal import print_printable
from core.textfile import write_whole
from core.types import Usage

BEGUN, DONE, FAILED = "running", "done", "failed"  # states of a cell
EVERY_S = 0.5
PLAIN_EVERY_S = 5.0  # without a terminal; the interval grows with the sweep's duration
MOST_CHARS = 200  # of a cell's error while the others run; the end prints all of it


def leave_mark(marks: Path, number: int, **said: Any) -> None:
    """Update a cell's mark file: {folder, state, before, reason, may_go_on}. Values that are not given stay."""
    path = marks / f"{number}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_whole(path, json.dumps(known | said))


def finished(path: Path, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """(where its line ends, the row) of each finished episode of an episodes.jsonl, from byte `start` on.

    Ends before one that is stopped or still being written: its line will be replaced. Of a damaged one its run says so.
    """
    with suppress(OSError, ValueError, AttributeError, RecursionError), path.open("rb") as file:
        file.seek(start)
        for line in file:
            row = json.loads(line)
            if not line.endswith(b"\n") or row.get("status") == "stopped":
                return
            start += len(line)
            yield start, row


def n_finished(path: Path) -> int:
    """The number of finished episodes in an episodes.jsonl; 0 if there is no such file."""
    return sum(1 for _ in finished(path))


@dataclass(kw_only=True)
class Cell:
    """One cell: its state, and counts from its episodes. `update` reads what is new.

    before   number of episodes that earlier starts had finished
    n_tasks  number of its tasks; 0 while that is unknown
    n_done   tasks with an episode
    n_new    episodes of this start, and `spent` their usage
    may_go_on  False: the same command will be refused again
    """

    number: int
    folder: Path
    state: str = BEGUN
    reason: str = ""
    may_go_on: bool = True
    before: int = 0
    n_tasks: int = 0
    n_done: int = 0
    n_new: int = 0
    spent: Usage = field(default_factory=Usage)
    summary: dict[str, Any] = field(default_factory=dict)
    _read: int = 0
    _lines: int = 0

    @property
    def whole(self) -> bool:
        return self.state == DONE and bool(self.summary.get("complete"))

    @property
    def problem(self) -> str:
        """Why the cell is incomplete, in a text that is equal for all cells with the same reason; "" if it is whole."""
        if self.whole or self.state == FAILED:
            return self.reason.strip().removeprefix("error: ").replace(f"run_dir={self.folder}", "its run_dir")
        n, of = self.summary.get("n", self.n_done), self.summary.get("n_tasks", self.n_tasks)
        if self.state == DONE:
            return f"partial, {n} of {of} tasks: its budget.run is used up"
        return f"stopped after {self.n_done} of {of} tasks"

    @property
    def line(self) -> str:
        """How the cell ended, in one line."""
        if self.state == FAILED:
            lines = self.problem.splitlines() or ["no reason was given"]
            line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
            return f"failed   {self.folder.name}: {line[:MOST_CHARS]}"
        s = self.summary
        rate = f"{percent(s.get('success_rate'))} ({s.get('n_success', 0)} of {s.get('n', 0)})"
        new = "nothing new" if not self.n_new else f"{self.n_new} new" if self.before else ""
        return "   ".join(filter(None, ["done  " if self.whole else "partial", self.folder.name, rate, new]))

    def update(self, mark: dict[str, Any]) -> None:
        """Read the mark, the new lines of episodes.jsonl and, once the cell has ended, its summary."""
        if self.state != BEGUN:
            return
        if not self.n_new:  # before its first new episode the manifest may be that of a smaller `limit`
            self.n_tasks = len(_json(self.folder / "manifest.json").get("task_ids", ()))
        with suppress(KeyError, TypeError, AttributeError):  # damaged: its run says so
            for end, row in finished(self.folder / "episodes.jsonl", self._read):
                self._read, self._lines = end, self._lines + 1
                self.n_done += "retries" not in row
                if self._lines > self.before:
                    self.n_new += 1
                    self.spent += usage_of(row)
        self.state, self.reason = mark["state"], mark.get("reason", "")
        self.may_go_on = mark.get("may_go_on", True)
        if self.state != BEGUN:
            self.summary = _json(self.folder / "summary.json")
            self.n_tasks = self.summary.get("n_tasks", self.n_tasks)


def read_cells(marks: Path, cells: dict[int, Cell]) -> None:
    """Update `cells`, {number: cell}, from the marks."""
    for path in marks.glob("*.json"):
        mark = _json(path)
        if "folder" in mark:
            number = int(path.stem)
            made = {"number": number, "folder": Path(mark["folder"]), "before": mark.get("before", 0)}
            cells.setdefault(number, Cell(**made)).update(mark)


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_whole(path) or {}
    except (OSError, UserError):  # damaged: its run says so
        return {}


def duration(seconds: float) -> str:
    """A time in its two largest units: 40 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Watch(threading.Thread):
    """Shows the cells' states, whichever process runs them: one progress line, and one line per ended cell.

    folder    the sweep's folder
    marks     folder of the cells' mark files; removed at the end
    planned   the overrides of each cell; None if only the sweeper knows them
    command   the command that resumes the sweep
    table     dotted name of a function (folder, console) that prints the table
    """

    def __init__(self, folder: Path, marks: Path, planned: list[list[str]] | None, command: str, table: str) -> None:
        super().__init__(name="sweep", daemon=True)
        self._folder, self._marks, self._planned, self._command, self._table = folder, marks, planned, command, table
        self._cells: dict[int, Cell] = {}
        self._reported: set[int] = set()
        self._lost: dict[int, str] = {}
        self._console = Console()
        self._began = self._printed = time.monotonic()
        self._line = ""
        self._ended, self._over, self._whole = threading.Event(), threading.Lock(), True
        live = {"console": self._console, "transient": True, "refresh_per_second": 4}
        self._live = Live(Text(), **live) if self._console.is_terminal else None

    @classmethod
    def running(cls) -> Watch | None:
        """The Watch of this process; None if no sweep was started here."""
        return next((thread for thread in threading.enumerate() if isinstance(thread, cls)), None)

    def run(self) -> None:
        cells = "" if self._planned is None else f" of {self._n_cells()} cells"
        print(f"sweep{cells} in {short(self._folder)}", flush=True)
        if self._live is not None:
            self._live.start()
            print_printable()
        try:
            while not self._ended.wait(EVERY_S):
                self._look()
        finally:
            if self._live is not None:
                self._live.stop()

    def lost(self, number: int, reason: str) -> None:
        """Mark a cell as failed whose process ended without a mark; called by launchers."""
        self._lost[number] = reason
        leave_mark(self._marks, number, state=FAILED, reason=reason)

    def interrupted(self) -> str:
        """Stop watching. Returns a message with the number of finished cells and the command that resumes the sweep."""
        self._stop_looking()
        done = sum(cell.whole for cell in self._cells.values())
        return f"stopped: {done} of {self._n_cells()} cells are done.\nto go on where it stopped: {self._command}"

    def end(self) -> bool:
        """Print the table and the incomplete cells, once. Returns whether every cell is complete."""
        with self._over:
            if not self._ended.is_set():
                self._stop_looking()
                self._whole = self._print_end()
            return self._whole

    def _stop_looking(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()
        self._look(last=True)
        shutil.rmtree(self._marks, ignore_errors=True)

    def _look(self, last: bool = False) -> None:
        read_cells(self._marks, self._cells)
        for number, cell in sorted(self._cells.items()):
            if cell.state != BEGUN and number not in self._reported:
                self._reported.add(number)
                said = Text(cell.line)
                if self._live is not None:  # one line per cell; the end prints the whole reason
                    said.truncate(self._console.width, overflow="ellipsis")
                print(said.plain, flush=True)
        if last:
            return
        line, now = self._of_sweep(), time.monotonic()
        left = self._time_left(now - self._began)
        if self._live is not None:
            self._live.update(Text(line + left, no_wrap=True, overflow="ellipsis"))
        elif line != self._line and now - self._printed >= max(PLAIN_EVERY_S, (now - self._began) / 20):
            self._printed, self._line = now, line
            print(line + left, flush=True)

    def _of_sweep(self) -> str:
        cells = self._cells.values()
        over = sum(cell.state != BEGUN for cell in cells)
        n_failed = sum(cell.state == FAILED for cell in cells)
        cost = sum((cell.spent for cell in cells), Usage()).cost_usd
        words = [f"sweep {over - n_failed}/{self._n_cells()} done", f"{len(cells) - over} running"]
        words += [f"{n_failed} failed"] if n_failed else []
        words += [f"{sum(cell.n_new for cell in cells)} new tasks"]
        return "  ".join([*words, "cost unknown" if cost is None else f"{cost:.4f} USD"])

    def _time_left(self, passed_s: float) -> str:
        """The time left by the calls still to be made: as many a task as its arm took so far, else as all did."""
        cells, calls = self._cells.values(), sum(cell.spent.calls for cell in self._cells.values())
        if self._planned is None or not calls:
            return ""
        made: dict[tuple[str, ...], list[int]] = {}
        for cell in cells:
            counts = made.setdefault(self._arm(cell.number), [0, 0])
            counts[:] = counts[0] + cell.spent.calls, counts[1] + cell.n_new
        usual = calls / sum(cell.n_new for cell in cells), max(cell.n_tasks for cell in cells)
        rest = 0.0
        for number in range(len(self._planned)):
            seen, n = made.get(self._arm(number), (0, 0))
            cell = self._cells.get(number)
            to_do = usual[1] if cell is None else (cell.n_tasks - cell.n_done) * (cell.state == BEGUN)
            rest += max(to_do, 0) * (seen / n if n else usual[0])
        return f"  about {duration(passed_s * rest / calls)} left"

    def _arm(self, number: int) -> tuple[str, ...]:
        """What a cell has in common with its other seeds."""
        return tuple(word for word in (self._planned or ())[number] if not word.startswith("seed="))

    def _n_cells(self) -> str:
        return "?" if self._planned is None else str(len(self._planned))

    def _print_table(self) -> None:
        from hydra.utils import get_method

        try:
            get_method(self._table)(self._folder, Console(width=None if sys.stdout.isatty() else 140))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
        except ModuleNotFoundError as error:
            sentence = extra_for(error) or f"{error}."
            print(f"no table yet, as {sentence}\nthen: {self._script('tables')}", file=sys.stderr)
        except Exception:  # noqa: BLE001 - the incomplete cells must be printed even if the table fails
            traceback.print_exc()

    def _script(self, name: str, *words: str) -> str:
        return shlex.join([tool(), name, str(short(self._folder)), *words])

    def _anew(self, cells: list[Cell]) -> str:
        """One command that removes these cells and runs the sweep again."""
        return f"{shlex.join(['rm', '-r', *(str(short(cell.folder)) for cell in cells)])} && {self._command}"

    def _print_end(self) -> bool:
        if not self._cells:  # the command was wrong, and Hydra has printed an error
            return False
        # Whether a cell was run or is whole: what a refused one holds is of another command.
        has_results = any(cell.summary and (cell.may_go_on or cell.n_new) for cell in self._cells.values())
        if has_results:
            self._print_table()
        problems: dict[str, list[str]] = {}
        for _, cell in sorted(self._cells.items()):
            if not cell.whole:
                problems.setdefault(cell.problem, []).append(cell.folder.name)
        for number, words in enumerate(self._planned or ()):
            if number not in self._cells:
                reason = self._lost.get(number, "not run")
                problems.setdefault(reason, []).append(" ".join(w for w in words if not w.startswith("run_dir=")))
        n = sum(map(len, problems.values()))
        if n:
            say = [f"{n} of {self._n_cells()} cells are not whole:"]
            for reason, names in problems.items():
                say += [*(f"  {name}" for name in names), *(f"    {line}" for line in reason.splitlines())]
            refused = sum(not cell.may_go_on for cell in self._cells.values())
            kept = [
                cell for cell in self._cells.values() if not cell.may_go_on and (cell.folder / "manifest.json").exists()
            ]
            if kept:
                say.append(
                    f"to begin {'these' if len(kept) > 1 else 'this'} anew, without what was done: {self._anew(kept)}"
                )
            say += [f"to go on: {self._command}"] if n > refused else []
            print("\n".join(say), file=sys.stderr, flush=True)
        if has_results:
            page = self._script("report", "-o", "report.html")
            print(f"  {short(self._folder)}\nnext, a page to look at: {page}", flush=True)
        discard(self._folder)  # if every cell was refused
        return not n
