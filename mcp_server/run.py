"""reasoningbank run: a memory around any command. Lessons go in before it; what it did is judged and learned after it.

Nothing that memory does may stop the task: whatever goes wrong with the bank, the embedder or a model is one warning
on stderr, is counted (`bank_status`), and the command runs as it would have without.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.build import build_learner
from core.errors import UserError, check_numbers
from core.learning.judges import heuristic_verdict
from core.learning.transcript import without_lessons
from core.memory.citations import cited
from core.memory.long_texts import both_ends
from core.models.reply_text import storable
from core.types import UNJUDGED, Lesson, Scored, Task, Trajectory, Verdict, content_id
from mcp_server.agent_commands import Prompt, prompt_in, prompt_named
from mcp_server.best_effort import BestEffort, WarningHandler
from mcp_server.config import bank_file, bank_options
from mcp_server.extraction import as_trajectory
from mcp_server.run_command import CommandResult, run_command, with_memory
from mcp_server.run_report import list_lessons, new_memories, note_run, report
from mcp_server.service import Service, configuration, describe_stored, new_record, open_service, saying_new
from mcp_server.texts import memory_prompt

if TYPE_CHECKING:
    from core.memory.bank import MemoryBank

EXAMPLES = """\
  %(prog)s --bank ~/lessons.sqlite -- claude -p "Make the parser accept empty files"
  %(prog)s --bank ~/lessons.sqlite llm=gemini -- codex exec "Mend the failing test"
  %(prog)s --bank ~/lessons.sqlite --task "Deploy the site" --judge exit-code -- ./deploy.sh {memory}
  %(prog)s --bank ~/lessons.sqlite --task-file TASK.md --stdin prompt -- my-agent
"""
VARIABLE = "REASONINGBANK_MEMORY"
K = 3  # lessons to retrieve, unless settings, preset or options say otherwise
UNLESS_SET = [f"retrieval.top_k={K}"]
JUDGES = ("heuristic", "llm", "exit-code", "none")
MODEL_KEY = re.compile(r"\+*(?:\w+_)?llm[=.]")  # overrides that choose a model or say something about it
SENTENCE = re.compile(r"[.!?]\s+|[\n。！？]\s*")  # the end of one
CLOSING = 2_000  # characters kept of the command's last paragraph


def run_around(argv: list[str]) -> int:
    """`reasoningbank run ... -- COMMAND ...`: the exit status is the command's own."""
    words, command = split(argv)
    given = options(words)
    if not command:
        raise UserError('no command: give one after --, e.g. reasoningbank run --bank PATH -- claude -p "...".')
    best_effort = BestEffort(bank=given.bank)
    for name in ("core", "mcp_server"):
        logging.getLogger(name).addHandler(WarningHandler(best_effort))
    task, prompt = find_task(given, command)
    prompt = None if given.stdin else prompt  # the lessons are handed over once
    task = task.replace("\x00", "")  # neither a variable nor an argument can hold one
    if not task:
        best_effort.warn("task", "none was found, so that there is nothing to recall: give --task TEXT")
    memory, began = TaskMemory(given=given, task=task, best_effort=best_effort), time.monotonic()
    off = best_effort.do("settings", given.memory_timeout, memory.is_off)
    if off:
        print("memory: off (enabled: false in the settings; --enable-memory: on)", file=sys.stderr)
    found = best_effort.do("retrieve", given.memory_timeout, memory.retrieve) if task and off is False else None
    hits, retrieve_s = found or [], time.monotonic() - began
    list_lessons(hits)
    text = memory.text(hits).replace("\x00", "")
    if given.memory_file is not None:
        best_effort.do("memory file", 10, lambda: given.memory_file.write_text(text, encoding="utf-8", newline="\n"))
    with_lessons, plain = (hand_over(command, prompt, task, words) for words in (text, ""))
    reached = "stdin" if given.stdin else "arguments" if with_lessons != plain else "variables"
    if text and reached == "variables" and given.memory_file is None and VARIABLE not in " ".join(command):
        note_nowhere(command)
    done = run_command(with_lessons, plain, task, text, given.stdin)
    if done.too_long:
        why = "it is too long for this system with the lessons in it: they were in their file alone"
        best_effort.warn("command", why)
    result = {
        "success": done.status == 0,
        "exit_status": done.status,
        "output": done.output,
        "duration_s": round(done.duration_s, 3),
        "verdict": None,
        "confidence": None,
        "agent_id": given.agent_id,
        "memory_enabled": found is not None,
        "lessons_in": reached if text else None,
        "retrieved": [hit.record.id for hit in hits],
        "used": used_of(hits, done),
        "learned": [],
        "new_memories": [],
        "mean_duration_s": None,
        "earlier_runs": 0,
    }
    began = time.monotonic()
    if task and off is False and done.status != 130:  # 130: the user stopped it
        # Without a model that took too long it learns, too.
        result |= best_effort.do("learn", 1.1 * given.learn_timeout + 1, lambda: memory.learn(hits, done)) or {}
    best_effort.do("close", 10, memory.close)
    result |= {"memories_retrieved": len(hits), "memories_used": len(result["used"])}
    result |= {"memories_learned": len(result["learned"]), "warnings": best_effort.warnings}
    result |= {"retrieve_s": round(retrieve_s, 3), "learn_s": round(time.monotonic() - began, 3)}
    best_effort.do("metrics", 10, lambda: note_run(given.bank, command, result, task, done, memory.kept_attempts()))
    best_effort.do("result", 10, lambda: report(given.result, result))
    if best_effort.stuck:  # a thread that hangs must not keep the shell waiting
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(done.status)
    return done.status


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """(own words, the command): what stands before and after the first --."""
    place = argv.index("--") if "--" in argv else len(argv)
    return argv[:place], argv[place + 1 :]


def options(words: list[str]) -> argparse.Namespace:
    """The options before --, with the keys among `overrides` that some of them stand for."""
    given = parser().parse_intermixed_args(words)
    given.bank = bank_file(given)
    if given.domain:
        given.overrides.append(f"retrieval.domain={given.domain}")
    if given.consolidate_every is not None:
        given.overrides.append(f"memory.consolidate.every={given.consolidate_every}")
    return given


def parser() -> argparse.ArgumentParser:
    """The command line before --."""
    top = argparse.ArgumentParser(
        prog="reasoningbank run",
        usage="%(prog)s --bank PATH [options] [key=value ...] -- COMMAND ...",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bank_options(top)
    top.add_argument("--enable-memory", action="store_true", help="also where the settings say enabled: false")
    lessons = f"lessons to retrieve (retrieval.top_k, else {K})"
    top.add_argument("--k", "--memory-k", type=int, metavar="N", help=lessons)
    domain = "retrieve and store within this domain only"
    top.add_argument("--domain", "--memory-domain", default="", metavar="NAME", help=domain)
    top.add_argument("--agent-id", default="", metavar="NAME", help="whose memory")
    task = top.add_mutually_exclusive_group()
    task.add_argument("--task", metavar="TEXT", help="what is asked; else the prompt of an agent that is known here")
    task.add_argument("--task-file", type=Path, metavar="FILE", help="a file that says it")
    top.add_argument("--stdin", choices=("memory", "prompt"), help="give the lessons, or lessons and task, to stdin")
    top.add_argument("--memory-file", type=Path, metavar="FILE", help="write the lessons here as well")
    top.add_argument("--judge", choices=JUDGES, help="llm where a model is configured (llm=NAME), else heuristic")
    top.add_argument("--closing-words", action="store_true", help="without a model, keep the command's last paragraph")
    top.add_argument("--consolidate-every", type=int, metavar="N", help="new lessons after which a round begins (20)")
    top.add_argument("--result", metavar="FILE", help="write the result as JSON to a file; - prints it")
    top.add_argument("--json", dest="result", action="store_const", const="-", help="as --result -")
    top.add_argument("--memory-timeout", type=float, default=30, metavar="S", help="for retrieving (30)")
    top.add_argument("--learn-timeout", type=float, default=300, metavar="S", help="for judging and distilling (300)")
    return top


def find_task(given: argparse.Namespace, command: list[str]) -> tuple[str, Prompt | None]:
    """(what is asked, the command's own prompt if its place is known).

    The task is what the options say, else the command's own prompt, else $REASONINGBANK_TASK. Raises UserError without.
    """
    said = task_given(given)
    if said is None and "{prompt}" in command:
        raise UserError(
            "{prompt} stands for the lessons and the task: give the task as --task TEXT or --task-file FILE."
        )
    try:
        prompt = prompt_in(command)
    except UserError:
        said = os.environ.get("REASONINGBANK_TASK") if said is None else said
        if said is None:
            raise
        prompt = prompt_named(command, said)
    return (prompt.text if said is None else said).strip(), prompt


def task_given(given: argparse.Namespace) -> str | None:
    """The task that the options name; None without one."""
    if given.task_file is None:
        return given.task
    try:
        return given.task_file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError(f"--task-file {given.task_file}: {error.strerror}.") from error


def hand_over(command: list[str], prompt: Prompt | None, task: str, memory: str) -> list[str]:
    """The command with the lessons: in place of the arguments {memory} and {prompt}, else before its own prompt."""
    filled = {"{memory}": memory, "{prompt}": with_memory(task, memory)}
    if filled.keys() & set(command):
        return [filled.get(word, word) for word in command]
    return prompt.with_text(command, with_memory("", memory)) if prompt and memory else command


def note_nowhere(command: list[str]) -> None:
    """Say on stderr that no prompt holds the lessons."""
    print(
        f"memory: no argument of {command[0]} is known to be its prompt, so the lessons are in $REASONINGBANK_MEMORY "
        "and in the file $REASONINGBANK_MEMORY_FILE alone; an argument {memory} or {prompt} places them.",
        file=sys.stderr,
    )


@dataclass(kw_only=True)
class TaskMemory:
    """The bank for one task: retrieves lessons before the command, and learns from its result."""

    given: argparse.Namespace
    task: str
    best_effort: BestEffort
    _service: Service | None = None
    _cfg: Any = None
    _model_until: float = 0.0  # time.monotonic() until when a model may be asked; then the attempt is learned without

    def retrieve(self) -> list[Scored]:
        """Retrieve the records for the task, and count them as shown."""
        bank = self.bank()
        if not len(bank):  # nor is the embedder loaded then, which takes seconds
            return []
        hits = bank.retrieve(self.query, bank.policy.top_k if self.given.k is None else self.given.k)
        self.service().count_shown(bank, [hit.record.id for hit in hits])
        return hits

    def text(self, hits: list[Scored]) -> str:
        """The lessons as text for a prompt; "" without any."""
        if not hits:
            return ""
        settings = self.service().settings
        return memory_prompt(hits, settings.max_memory_chars, settings.prompt_style)

    @property
    def query(self) -> str:
        """The task's text, its two ends if it is longer than server.max_query_chars."""
        return both_ends(storable(self.task), self.service().settings.max_query_chars)

    def cfg(self) -> Any:
        """The configuration; raises the errors of `configuration`."""
        if self._cfg is None:
            self._cfg = configuration(self.given, UNLESS_SET)
        return self._cfg

    def is_off(self) -> bool:
        """Whether the settings switch memory off, and the command line does not switch it on."""
        try:
            return not (self.cfg().enabled or self.given.enable_memory)
        except UserError:  # said when the bank is opened
            return False

    def kept_attempts(self) -> int:
        """How many attempts are kept (`run.attempts`); none if the configuration is wrong."""
        if self._cfg is None:
            return 0
        check_numbers(self._cfg.run, "run", "attempts", least=0, whole=True)
        return self._cfg.run.attempts

    def service(self) -> Service:
        """The service of the bank, opened at the first call; raises the errors of `open_service`."""
        if self._service is None:
            try:
                with saying_new(self.given):
                    self._service = open_service(self.given, cfg=self.cfg())
            except UserError as error:
                others = [word for word in self.given.overrides if not MODEL_KEY.match(word)]
                if others == self.given.overrides:
                    raise
                self.given.overrides, self._cfg = others, None
                self._service = open_service(self.given, cfg=self.cfg())  # raises what is wrong besides
                self.best_effort.warn("model", f"{str(error)[:400]} What is said about a model is left out.")
        return self._service

    def bank(self) -> MemoryBank:
        return self.service().bank_for(self.given.agent_id)

    def learn(self, hits: list[Scored], done: CommandResult) -> dict[str, Any]:
        """Judge the attempt, distil lessons and store them: {success, verdict, confidence, learned}.

        If the bank sets the record aside at once, as a copy of a shown one or as suspect, it is under `set_aside`.
        """
        service, bank = self.service(), self.bank()
        self._model_until = time.monotonic() + self.given.learn_timeout
        task = Task(id=content_id("task", self.query), query=self.query)
        payload = {"query": self.query, "trajectory": turns(self.task, done)}
        attempt = without_lessons(as_trajectory(payload), hits)
        verdict = self._verdict(task, attempt, done)
        outcome = {"confidence": verdict.confidence, "learned": []}
        outcome["verdict"] = {
            "label": verdict.label,
            "confidence": verdict.confidence,
            "reason": verdict.reason,
            "source": verdict.source,
        }
        if verdict.label is None:
            return outcome
        outcome["success"] = verdict.label == "success"
        lessons, source = self._lessons(task, attempt, verdict, hits, done)
        if lessons:
            id = content_id("run", bank.namespace, payload, bank.history.seq())
            about = {"source": "reasoningbank run", "by": source}
            record = new_record(bank, id, self.query, lessons, verdict, trajectory_id=attempt.id, about=about)
            used = tuple(hit.record.id for hit in hits)
            steps = [(step.action, step.observation) for step in attempt.steps]
            service.add(bank, replace(record, domain=self.given.domain), used, steps, verdict.confidence)
            stored = describe_stored(bank, id)
            outcome |= {"learned": [id]} if stored["state"] == "active" else {"set_aside": stored}
            outcome["new_memories"] = new_memories(bank, outcome["learned"], outcome["verdict"])
        return outcome

    def _verdict(self, task: Task, attempt: Trajectory, done: CommandResult) -> Verdict:
        """The verdict; by the heuristic judge where the model that should judge fails."""
        service, judge = self.service(), self.given.judge
        judge = judge or ("llm" if service.has_model else "heuristic")
        if judge == "exit-code":
            label = "success" if done.status == 0 else "failure"
            return Verdict(label=label, source="exit_code", reason=f"exit status {done.status}")
        if judge == "none":
            return UNJUDGED
        if judge == "llm":

            def ask() -> Verdict:
                return build_learner(service.cfg.judge, service.roles()["judge"], service.cfg).judge(task, attempt)

            if verdict := self._by_model("judge", ask, "The heuristic judges instead."):
                return verdict
            self._model_until = 0.0  # it would not distil either
        said = {"role": "assistant", "content": f"{done.output}\n{done.errors}"}  # all of it is what it printed
        return heuristic_verdict(as_trajectory({"trajectory": [said]}), exit_status=done.status)

    def _lessons(
        self, task: Task, attempt: Trajectory, verdict: Verdict, hits: list[Scored], done: CommandResult
    ) -> tuple[tuple[Lesson, ...], str]:
        """(lessons, their author): by the model; where there is none, the closing words with --closing-words."""
        service = self.service()
        if service.has_model and self._model_until:

            def ask() -> tuple[tuple[Lesson, ...], str]:
                role = service.roles()["extractor"]
                distiller = build_learner(service.cfg.distiller, role, service.cfg)
                return distiller.distil(task, attempt, verdict, hits, None).lessons, role.llm.name

            kept = (
                "The closing words are kept." if self.given.closing_words else "--closing-words keeps the last words."
            )
            found = self._by_model("distil", ask, kept)
            if found and not found[0]:
                raise UserError("the model's reply held no lesson that could be read")
            if found:
                return found
        lesson = closing_words(self.task, done) if self.given.closing_words else None
        return ((lesson,) if lesson else ()), "closing words"

    def _by_model(self, step: str, ask: Callable[[], Any], otherwise: str) -> Any:
        """What a model says; None, with a warning, if it cannot be called, fails or takes too long."""
        found = self.best_effort.do(step, max(self._model_until - time.monotonic(), 0.0), ask, otherwise)
        self.best_effort.step = "learn"
        return found

    def close(self) -> None:
        """Wait for background work, and close the bank."""
        if self._service is not None:
            self._service.close()


def turns(task: str, done: CommandResult) -> list[dict[str, Any]]:
    """The run as a conversation: the task, the command's output, and its errors with the exit status."""
    ended = f"exit status {done.status}"
    return [
        {"role": "user", "content": task},
        {"role": "assistant", "content": done.output.strip() or "(nothing was printed)"},
        {"role": "tool", "content": f"{done.errors[-CLOSING:].strip()}\n{ended}".strip()},
    ]


def closing_words(task: str, done: CommandResult) -> Lesson | None:
    """The last paragraph of the command's output as a lesson; None if it printed nothing."""
    paragraphs = [text.strip() for text in re.split(r"\n\s*\n", done.output) if text.strip()]
    if not paragraphs:
        return None
    title = " ".join(task.split())[:80]
    return Lesson(title=title, description=f"The last words after: {title}", content=last_words(paragraphs[-1]))


def last_words(text: str) -> str:
    """The end of a text, at most CLOSING characters, from the beginning of a sentence, or at least of a word, on."""
    if len(text) <= CLOSING:
        return text
    end = text[-CLOSING:]
    begin = SENTENCE.search(end) or re.search(r"\s", end)
    return end[begin.end() :] if begin else end


def used_of(hits: list[Scored], done: CommandResult) -> list[str]:
    """Ids of the records whose lessons the command's output cites, by number, id or title."""
    lessons = [(hit.record.id, lesson.title) for hit in hits for lesson in hit.record.items]
    return list(dict.fromkeys(lessons[place][0] for place in sorted(cited(done.output, lessons))))
