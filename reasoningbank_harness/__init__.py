"""A ReasoningBank in your own program.

    from reasoningbank_harness import open_bank

    with open_bank("lessons.sqlite") as bank:
        found = bank.retrieve("Fix the flaky test of the parser")
        print(found.text)  # for the prompt; found.lessons are the same, one by one
        bank.add("Fix the flaky test of the parser", "Seed it", "Set the seed before the first random draw.")

The bank is opened by a process of its own, as an MCP client does it, so nothing of the application (core, config,
workflows, ...) is imported here. Requests and answers are lines of JSON. Only the standard library is used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Bank", "BankError", "Found", "Learned", "Lesson", "open_bank"]
END_S = 60.0  # to finish what is being written, and a consolidation


class BankError(Exception):
    """A request was refused, or cannot be answered any more; the text says what to do, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A lesson that was found.

    id        of its record, for all of a record's lessons the same
    task      the task that it was learned from, as it was asked
    outcome   success | failure: how that attempt ended
    score     of the record for this query, 0 to 1
    """

    id: str
    title: str
    description: str
    content: str
    task: str
    outcome: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """The lessons for a task, best first, and the same as delimited, escaped text for a prompt; "" without any."""

    lessons: tuple[Lesson, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What was learned from an attempt.

    id        of the new record
    success   how the attempt ended: as said, else as judged
    titles    of the new lessons
    state     active: they are retrieved from now on; quarantined, archived, ...: they are not
    """

    id: str
    success: bool
    titles: tuple[str, ...]
    state: str


def open_bank(path: str | Path | None = None, *settings: str, agent_id: str = "") -> Bank:
    """Open a bank, and make it if it is not there. Several programs may have the same bank open, and all may write.

    path       its SQLite file, or the URL of a PostgreSQL database; None: that of `reasoningbank serve` without --bank
    settings   as after `reasoningbank serve`: llm=NAME, embedder=NAME, preset=NAME, retrieval.top_k=3, ...
    agent_id   whose memory; "": of nobody in particular

    Raises BankError if the bank cannot be opened, or a setting does not fit.
    """
    return Bank(path, settings, agent_id)


class Bank:
    """An open bank; made by `open_bank`. Thread-safe: requests of several threads are answered one after the other.

    A process that was forked from this one opens the bank itself. The bank's notes and warnings are on stderr.
    """

    def __init__(self, path: str | Path | None, settings: Sequence[str], agent_id: str) -> None:
        self._agent = {"agent_id": agent_id} if agent_id else {}
        self._lock, self._asked, self._owner = threading.Lock(), 0, os.getpid()
        where = [] if path is None else ["--bank", str(path)]
        # The package's folder, not its name: a program may have it on its path in a way of its own.
        command = [sys.executable, str(Path(__file__).resolve().parent), "serve", "embed", *where, *settings]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self._answer(0)
        except BaseException:
            self.close()
            raise

    def retrieve(self, query: str, top_k: int | None = None) -> Found:
        """The lessons of earlier tasks that fit a task; shown lessons are counted as used.

        query   the task as it is asked
        top_k   at most so many records; None: as the settings say
        """
        found = self._ask("retrieve", query=query, top_k=top_k)
        return Found(text=found["text"], lessons=tuple(Lesson(**lesson) for lesson in found["lessons"]))

    def learn(self, query: str, trajectory: Sequence[dict[str, Any]], success: bool | None = None) -> Learned:
        """Have the model of the settings (llm=NAME) distil an attempt at a task into lessons.

        trajectory   its turns, {"role": "user" | "assistant" | "tool", "content": text}
        success      how it ended; None: the model judges that, too

        Raises BankError without a model, if it cannot be reached, and if its reply holds no lesson.
        """
        made = self._ask("learn", query=query, trajectory=list(trajectory), success=success)
        return Learned(**made | {"titles": tuple(made["titles"])})

    def add(
        self,
        query: str,
        title: str,
        content: str,
        description: str = "",
        success: bool = True,
        tags: Sequence[str] = (),
    ) -> str:
        """Store a lesson of your own; returns its id. The same lesson again is the same record.

        query     the task that it comes from, as it was asked; the lesson is found by tasks like it
        success   whether that task was solved
        """
        lesson = {"title": title, "content": content, "description": description, "tags": list(tags)}
        return self._ask("add", query=query, success=success, **lesson)

    def close(self) -> None:
        """End the bank's process, after what it still writes. A second call does nothing."""
        if self._owner != os.getpid() or self._process.stdin.closed:
            return
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Bank:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self, what: str, **arguments: Any) -> Any:
        """The answer to one request. Raises BankError with the bank's own sentence."""
        if self._owner != os.getpid():
            raise BankError("this bank was opened by another process, which this one was forked from: open it here.")
        given = {name: value for name, value in (self._agent | arguments).items() if value is not None}
        try:
            text = json.dumps([what, given])
        except (TypeError, ValueError) as error:
            raise BankError(f"{what}: its arguments cannot be written as JSON: {error}.") from error
        with self._lock:
            if self._process.stdin.closed:
                raise BankError("the bank is closed: open it again.")
            self._asked += 1
            try:
                self._process.stdin.write(text.encode("ascii") + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._ended() from None
            return self._answer(self._asked)

    def _answer(self, number: int) -> Any:
        """The answer to a request; those to requests that were given up (Ctrl-C) are passed over."""
        for line in self._process.stdout:
            answered, result, error = json.loads(line)
            if answered == number:
                if error is not None:
                    raise BankError(error)
                return result
        raise self._ended()

    def _ended(self) -> BankError:
        status = self._process.wait()
        return BankError(f"the bank's process has ended (exit status {status}; stderr says why): open the bank again.")
