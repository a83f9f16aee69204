"""reasoningbank run: a memory around any command. Lessons go in before it; what it did is judged and learned after it.

Nothing that memory does may stop the task: whatever goes wrong with the bank, the embedder or a model is one warning
on stderr, is counted (`bank_status`), and the command runs as it would have without.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.build import build_learner
from core.errors import InfraError, UserError
from core.learning.judges import heuristic_verdict
from core.learning.transcript import without_lessons
from core.memory.citations import cited
from core.models.reply_text import storable
from core.types import UNJUDGED, Lesson, Scored, Task, Trajectory, Verdict, content_id
from mcp_server import warnings_file
from mcp_server.command import Done, run_command, with_memory
from mcp_server.config import bank_file, bank_options, open_service
from mcp_server.extraction import as_trajectory
from mcp_server.service import describe_stored, new_record
from mcp_server.texts import memory_prompt

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank
    from mcp_server.service import Service

EXAMPLES = """\
  %(prog)s --bank ~/lessons.sqlite -- claude -p "Make the parser accept empty files"
  %(prog)s --bank ~/lessons.sqlite llm=gemini -- codex exec "Mend the failing test"
  %(prog)s --bank ~/lessons.sqlite --task "Deploy the site" --judge exit-code -- ./deploy.sh {memory}
  %(prog)s --bank ~/lessons.sqlite --task-file TASK.md --stdin prompt -- my-agent
"""
# Options after which a command line names its own task, in the print mode of the usual agents.
PROMPT_OPTIONS = ("-p", "--print", "--prompt", "-m", "--message", "-t", "--task", "-q", "--query", "exec", "run")
JUDGES = ("heuristic", "llm", "exit-code", "none")
CLOSING = 2_000  # characters kept of the command's last paragraph


@dataclass(kw_only=True)
class Beside:
    """Does what memory does beside the task. An error, or too long a time, is a warning; the task goes on."""

    bank: Path
    warnings: list[dict[str, str]] = field(default_factory=list)
    doing: str = "start"
    stuck: bool = False  # something still runs that took too long

    def do(self, what: str, seconds: float, function: Callable[[], Any]) -> Any:
        """What the function returns; None where it broke or took longer."""
        self.doing = what
        ended: dict[str, Any] = {}

        def work() -> None:
            try:
                ended["value"] = function()
            except BaseException as error:  # noqa: BLE001 - told and counted below; the task must go on
                ended["error"] = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(seconds)
        if "value" in ended:
            return ended["value"]
        if "error" not in ended:
            self.stuck = True
            self.warn(what, f"not done within {seconds:g} s")
        else:
            error = ended["error"]
            self.warn(
                what, str(error) if isinstance(error, UserError | InfraError) else f"{type(error).__name__}: {error}"
            )
        return None

    def warn(self, what: str, why: str) -> None:
        """One line on stderr, and an entry that bank_status counts; the same again says nothing new."""
        why = " ".join(why.split())[:500]
        if why in [warning["why"] for warning in self.warnings]:
            return
        self.warnings.append({"what": what, "why": why})
        print(f"memory: warning: {what}: {why}", file=sys.stderr)
        warnings_file.note(self.bank, what, why)


class Told(logging.Handler):
    """What the parts of the memory log as a warning is one of ours: a repaired bank, a round that failed."""

    def __init__(self, beside: Beside) -> None:
        super().__init__(logging.WARNING)
        self.beside = beside

    def emit(self, record: logging.LogRecord) -> None:
        self.beside.warn(self.beside.doing, record.getMessage())


def run_around(argv: list[str]) -> int:
    """`reasoningbank run ... -- COMMAND ...`: the exit status is the command's own."""
    words, command = split(argv)
    given = parser().parse_intermixed_args(words)
    given.bank = bank_file(given)
    if given.domain:
        given.overrides.append(f"retrieval.domain={given.domain}")
    if given.consolidate_every is not None:
        given.overrides.append(f"memory.consolidate.every={given.consolidate_every}")
    if not command:
        raise UserError('no command: give one after --, e.g. reasoningbank run --bank PATH -- claude -p "...".')
    beside = Beside(bank=given.bank)
    for name in ("core", "mcp_server"):
        logging.getLogger(name).addHandler(Told(beside))
    task, place = find_task(given, command)
    task = task.replace("\x00", "")  # neither a variable nor an argument can hold one
    if not task:
        beside.warn("task", "none was found, so that there is nothing to recall: give --task TEXT")
    memory = TaskMemory(given=given, task=task)
    hits = beside.do("retrieve", given.memory_timeout, memory.recall) or [] if task else []
    for number, hit in enumerate(hits, 1):
        titles = " / ".join(lesson.title for lesson in hit.record.items)
        print(f"memory: [{number}] {titles} (from a {hit.record.outcome}, {min(hit.score, 1):.2f})", file=sys.stderr)
    text = memory.text(hits).replace("\x00", "")
    if given.memory_file is not None:
        beside.do("memory file", 10, lambda: given.memory_file.write_text(text, encoding="utf-8"))
    with_lessons, plain = (hand_over(command, place, task, words) for words in (text, ""))
    done = run_command(with_lessons, plain, task, text, given.stdin)
    if done.plain:
        beside.warn("command", "it is too long for this system with the lessons in it: they were in their file alone")
    result = {
        "success": done.status == 0,
        "exit_status": done.status,
        "output": done.output,
        "duration_s": round(done.duration_s, 3),
        "verdict": None,
        "confidence": None,
        "retrieved": [hit.record.id for hit in hits],
        "used": used_of(hits, done),
        "learned": [],
    }
    if task and done.status != 130:  # 130: the user stopped it
        learned = beside.do("learn", given.learn_timeout, lambda: memory.learn(hits, done)) or {}
        result |= learned
    beside.do("close", 10, memory.close)
    result |= {"memories_retrieved": len(hits), "memories_used": len(result["used"])}
    result |= {"memories_learned": len(result["learned"]), "warnings": beside.warnings}
    report(given, result, beside)
    if beside.stuck:  # a thread that hangs must not keep the shell waiting
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(done.status)
    return done.status


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """(own words, the command): what stands before and after the first --."""
    place = argv.index("--") if "--" in argv else len(argv)
    return argv[:place], argv[place + 1 :]


def parser() -> argparse.ArgumentParser:
    """The options before --."""
    top = argparse.ArgumentParser(
        prog="reasoningbank run",
        usage="%(prog)s --bank PATH [options] [key=value ...] -- COMMAND ...",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bank_options(top)
    top.add_argument("--k", type=int, default=3, metavar="N", help="lessons to retrieve (3)")
    top.add_argument("--domain", default="", metavar="NAME", help="retrieve and store within this domain only")
    top.add_argument("--agent-id", default="", metavar="NAME", help="whose memory")
    task = top.add_mutually_exclusive_group()
    task.add_argument("--task", metavar="TEXT", help="what is asked; else the command's own prompt argument")
    task.add_argument("--task-file", type=Path, metavar="FILE", help="a file that says it")
    top.add_argument("--stdin", choices=("memory", "prompt"), help="give the lessons, or lessons and task, to stdin")
    top.add_argument("--memory-file", type=Path, metavar="FILE", help="write the lessons here as well")
    top.add_argument("--judge", choices=JUDGES, help="llm where a model is configured (llm=NAME), else heuristic")
    top.add_argument("--closing-words", action="store_true", help="without a model, keep the command's last paragraph")
    top.add_argument("--consolidate-every", type=int, metavar="N", help="new lessons after which a round begins (20)")
    top.add_argument("--result", metavar="FILE", help="write the result as JSON to a file; - prints it")
    top.add_argument("--memory-timeout", type=float, default=30, metavar="S", help="for retrieving (30)")
    top.add_argument("--learn-timeout", type=float, default=300, metavar="S", help="for judging and distilling (300)")
    return top


def find_task(given: argparse.Namespace, command: list[str]) -> tuple[str, int | None]:
    """(what is asked, its place in the command where it is the command's own argument, else None)."""
    if given.task is not None:
        return given.task.strip(), None
    if given.task_file is not None:
        try:
            return given.task_file.read_text(encoding="utf-8", errors="replace").strip(), None
        except OSError as error:
            raise UserError(f"--task-file {given.task_file}: {error.strerror}.") from error
    after = [place for place, word in enumerate(command[1:-1], 1) if word in PROMPT_OPTIONS]
    named = [place + 1 for place in after if not command[place + 1].startswith("-")]
    spaced = [place for place, word in enumerate(command[1:], 1) if len(word.split()) > 1]
    found = [place for place in named if len(command[place].split()) > 1] or named or spaced[-1:]
    return (command[found[0]].strip(), found[0]) if found else ("", None)


def hand_over(command: list[str], place: int | None, task: str, memory: str) -> list[str]:
    """The command with the lessons in it: at {memory} or {prompt}, else before its own prompt argument."""
    prompt = with_memory(task, memory)
    if any("{memory}" in word or "{prompt}" in word for word in command):
        return [word.replace("{memory}", memory).replace("{prompt}", prompt) for word in command]
    return [prompt if number == place and memory else word for number, word in enumerate(command)]


@dataclass(kw_only=True)
class TaskMemory:
    """The bank for one task: what it recalls, and what it learns from how the command did."""

    given: argparse.Namespace
    task: str
    _service: Service | None = None

    def recall(self) -> list[Scored]:
        """The lessons for the task, counted as shown."""
        bank = self.bank()
        hits = bank.retrieve(self.query, self.given.k)
        self.service().count_shown(bank, [hit.record.id for hit in hits])
        return hits

    def text(self, hits: list[Scored]) -> str:
        """The lessons as a prompt holds them; "" without any."""
        if not hits:
            return ""
        limits = self.service().limits
        return memory_prompt(hits, limits.max_memory_chars, limits.prompt_style)

    @property
    def query(self) -> str:
        """The task, cut to what a query may have."""
        return storable(self.task)[: self.service().limits.max_query_chars]

    def service(self) -> Service:
        """The open bank; raises what opening it raises."""
        if self._service is None:
            self._service = open_service(self.given)
        return self._service

    def bank(self) -> MemoryBank:
        return self.service().bank_for(self.given.agent_id)

    def learn(self, hits: list[Scored], done: Done) -> dict[str, Any]:
        """Judge the attempt and store what it teaches: {success, verdict, confidence, learned}.

        A lesson that the bank set aside at once, as a copy of what was shown or as suspect, is under `set_aside`.
        """
        service, bank = self.service(), self.bank()
        task = Task(id=content_id("task", self.query), query=self.query)
        payload = {"query": self.query, "trajectory": turns(self.task, done)}
        attempt = without_lessons(as_trajectory(payload), hits)
        verdict = self._verdict(task, attempt, done)
        told = {"confidence": verdict.confidence, "learned": []}
        told["verdict"] = {name: getattr(verdict, name) for name in ("label", "confidence", "reason", "source")}
        if verdict.label is None:
            return told
        told["success"] = verdict.label == "success"
        lessons, source = self._lessons(task, attempt, verdict, hits, done)
        if lessons:
            id = content_id("run", bank.namespace, payload, bank.history.seq())
            about = {"source": "reasoningbank run", "by": source}
            made = new_record(bank, id, self.query, lessons, verdict, trajectory=attempt.id, about=about)
            used, did = (
                tuple(hit.record.id for hit in hits),
                [(step.action, step.observation) for step in attempt.steps],
            )
            service.add(bank, replace(made, domain=self.given.domain), used, did, verdict.confidence)
            stored = describe_stored(bank, id)
            told |= {"learned": [id]} if stored["state"] == "active" else {"set_aside": stored}
        return told

    def _verdict(self, task: Task, attempt: Trajectory, done: Done) -> Verdict:
        service, judge = self.service(), self.given.judge
        judge = judge or ("llm" if service.cfg.get("llm") is not None else "heuristic")
        if judge == "exit-code":
            label = "success" if done.status == 0 else "failure"
            return Verdict(label=label, source="exit_code", reason=f"exit status {done.status}")
        if judge == "heuristic":
            said = {"role": "assistant", "content": f"{done.output}\n{done.errors}"}  # all of it is what it printed
            return heuristic_verdict(as_trajectory({"trajectory": [said]}), exit_status=done.status)
        if judge == "llm":
            return build_learner(service.cfg.judge, service.roles()["judge"]).judge(task, attempt)
        return UNJUDGED

    def _lessons(
        self, task: Task, attempt: Trajectory, verdict: Verdict, hits: list[Scored], done: Done
    ) -> tuple[tuple[Lesson, ...], str]:
        """(lessons, who worded them): by the model that is configured, else the command's own words where asked."""
        service = self.service()
        if service.cfg.get("llm") is not None:
            role = service.roles()["extractor"]
            lessons = build_learner(service.cfg.distiller, role).distil(task, attempt, verdict, hits, None).lessons
            if not lessons:
                raise UserError("the model's reply held no lesson that could be read")
            return lessons, role.llm.name
        lesson = closing_words(self.task, done) if self.given.closing_words else None
        return ((lesson,) if lesson else ()), "closing words"

    def close(self) -> None:
        """Wait for what runs in the background, and close the bank."""
        if self._service is not None:
            self._service.close()


def turns(task: str, done: Done) -> list[dict[str, Any]]:
    """The run as a conversation: the task, what the command said, and how it ended."""
    ended = f"exit status {done.status}"
    return [
        {"role": "user", "content": task},
        {"role": "assistant", "content": done.output.strip() or "(nothing was printed)"},
        {"role": "tool", "content": f"{done.errors[-CLOSING:].strip()}\n{ended}".strip()},
    ]


def closing_words(task: str, done: Done) -> Lesson | None:
    """The command's last paragraph as a lesson; None where it said nothing."""
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", done.output) if part.strip()]
    if not paragraphs:
        return None
    title = " ".join(task.split())[:80]
    return Lesson(title=title, description="What was said at the end of this task.", content=paragraphs[-1][-CLOSING:])


def used_of(hits: list[Scored], done: Done) -> list[str]:
    """Ids of the lessons that the command cites in what it printed: by number, id or title."""
    lessons = [(hit.record.id, lesson.title) for hit in hits for lesson in hit.record.items]
    return list(dict.fromkeys(lessons[place][0] for place in sorted(cited(done.output, lessons))))


def report(given: argparse.Namespace, result: dict[str, Any], beside: Beside) -> None:
    """One line on stderr, and the whole result where it is asked for."""
    verdict = result["verdict"] or {}
    label = verdict.get("label") or "not judged"
    print(f"memory: {label}, {result['memories_learned']} learned, {result['duration_s']:.1f} s", file=sys.stderr)
    if given.result == "-":
        print(json.dumps(result, ensure_ascii=False))
    elif given.result:
        try:
            Path(given.result).write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            beside.warn("result", f"{given.result}: {error.strerror}")
