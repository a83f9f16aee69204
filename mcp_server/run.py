"""reasoningbank run: a memory around any command. Lessons go in before it; what it did is judged and learned after it.

Nothing that memory does may stop the task: whatever goes wrong with the bank, the embedder or a model is one warning
on stderr, is counted (`bank_status`), and the command runs as it would have without.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.jsonl import in_strings
from core.memory.policies.trust import FAILED
from core.redact import redactor
from core.types import Scored
from mcp_server import run_records
from mcp_server.agent_commands import Prompt, prompt_in, prompt_named, tokens_reported
from mcp_server.best_effort import BestEffort, WarningHandler
from mcp_server.config import bank_file, bank_options, bank_said
from mcp_server.holdout import check_share
from mcp_server.run_command import run_command, with_memory
from mcp_server.task_memory import K, TaskMemory, used_of

EXAMPLES = """\
  %(prog)s --bank ~/lessons.sqlite -- claude -p "Make the parser accept empty files"
  %(prog)s --bank ~/lessons.sqlite llm=gemini -- codex exec "Mend the failing test"
  %(prog)s --bank ~/lessons.sqlite --task "Deploy the site" --judge exit-code -- ./deploy.sh {memory}
  %(prog)s --bank ~/lessons.sqlite --task-file TASK.md --stdin prompt -- my-agent
"""
VARIABLE = "REASONINGBANK_MEMORY"
JUDGES = ("heuristic", "llm", "exit-code", "none")
SHARE_OF_SAME = 0.005  # a difference of less than half a per cent is none


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
    drawn = given.holdout and task and off is False
    shown = best_effort.do("holdout", 10, lambda: run_records.draw(given.bank, task, given.holdout)) if drawn else None
    if shown is False:
        print(f"memory: not shown in this run, for comparison (--holdout {given.holdout:g})", file=sys.stderr)
    asks = task and off is False and shown is not False
    found = best_effort.do("retrieve", given.memory_timeout, memory.retrieve) if asks else None
    hits, retrieve_s = found or [], time.monotonic() - began
    list_lessons(hits)
    text = memory.text(hits).replace("\x00", "")
    if given.memory_file is not None:
        best_effort.do("memory file", 10, lambda: given.memory_file.write_text(text, encoding="utf-8", newline="\n"))
    with_lessons, plain = (hand_over(command, prompt, task, words) for words in (text, ""))
    reached = "stdin" if given.stdin else "arguments" if with_lessons != plain else "variables"
    if text and reached == "variables" and given.memory_file is None and VARIABLE not in " ".join(command):
        note_nowhere(command)
    done = run_command(with_lessons, plain, task, text, given.stdin, sys.stderr if given.result == "-" else sys.stdout)
    if done.too_long:
        why = "it is too long for this system with the lessons in it: they were in their file alone"
        best_effort.warn("command", why)
    result = {
        "success": done.status == 0,
        "exit_status": done.status,
        "output": done.output,
        "duration_s": round(done.duration_s, 3),
        "tokens": tokens_reported(done.output),
        "verdict": None,
        "confidence": None,
        "agent_id": given.agent_id,
        "memory_enabled": found is not None,
        "shown": shown,
        "holdout": given.holdout,
        "lessons_in": reached if text else None,
        "retrieved": [hit.record.id for hit in hits],
        "used": used_of(hits, done),
        "learned": [],
        "why_not": None,
        "note": None,
        "new_memories": [],
        "mean_duration_s": None,
        "earlier_runs": 0,
    }
    began = time.monotonic()
    if task and off is False and done.started and done.status != 130:  # 130: the user stopped it
        # Without a model that took too long it learns, too.
        limit = 1.1 * given.learn_timeout + 1 + (given.check_timeout + 1 if given.check else 0)
        result |= best_effort.do("learn", limit, lambda: memory.learn(hits, done)) or memory.known
    best_effort.do("close", 10, memory.close)
    result |= {"memories_retrieved": len(hits), "memories_used": len(result["used"])}
    result |= {"memories_learned": len(result["learned"]), "warnings": best_effort.warnings}
    result |= {"retrieve_s": round(retrieve_s, 3), "learn_s": round(time.monotonic() - began, 3)}
    attempt = task, done.output, done.errors
    best_effort.do("metrics", 10, lambda: run_records.keep(given.bank, command, result, attempt, memory.kept_attempts))
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
    file = bank_file(given)
    if given.bank is None:
        print(f"memory: the bank is {bank_said(given)}", file=sys.stderr)
    given.bank = file
    if given.holdout is not None:
        check_share("--holdout ", given.holdout)
    if given.check and given.judge:
        raise UserError("--check decides whether the task is solved: leave out --judge.")
    if given.consolidate_every is not None:
        given.overrides.append(f"memory.consolidate.every={given.consolidate_every}")
    return given


def parser() -> argparse.ArgumentParser:
    """The command line before --."""
    top = argparse.ArgumentParser(
        prog="reasoningbank run",
        usage="%(prog)s [options] [key=value ...] -- COMMAND ...",
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
    top.add_argument("--check", metavar="CMD", help="a command that says by its exit status whether the task is solved")
    top.add_argument("--check-timeout", type=float, default=600, metavar="S", help="for the check (600)")
    share = "show no memory to this share of the tasks, e.g. 0.2; `reasoningbank runs` prints what memory changes"
    top.add_argument("--holdout", type=float, metavar="SHARE", help=share)
    top.add_argument("--judge", choices=JUDGES, help="llm where a model is configured (llm=NAME), else heuristic")
    top.add_argument("--closing-words", action="store_true", help="without a model, keep the command's last paragraph")
    top.add_argument("--consolidate-every", type=int, metavar="N", help="new lessons after which a round begins (20)")
    top.add_argument("--result", metavar="FILE", help="write the result as JSON to a file; -: on stdout alone")
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


def list_lessons(hits: list[Scored]) -> None:
    """One line on stderr for each lesson that was retrieved."""
    for number, hit in enumerate(hits, 1):
        titles, record = " / ".join(lesson.title for lesson in hit.record.items), hit.record
        sure = "" if record.confidence is None else f", confidence {record.confidence:.2f}"
        about = f"{FAILED if record.outcome == 'failure' else 'from a success'}, {min(hit.score, 1):.2f}{sure}"
        print(f"memory: [{number}] {titles} ({about})", file=sys.stderr)


def report(where: str | None, result: dict[str, Any]) -> None:
    """Print what was learned and how it went to stderr, and write the result as JSON where --result asks for it.

    Raises UserError if the file cannot be written.
    """
    verdict = result["verdict"] or {}
    for new in result["new_memories"]:
        sure = "" if new["confidence"] is None else f", {new['confidence']:.2f}"
        print(f"memory: learned: {new['title']} (from a {new['verdict']}{sure})", file=sys.stderr)
    label, took = verdict.get("label") or "not judged", f"{result['duration_s']:.1f} s{compared(result)}"
    why_not = f" ({result['why_not']})" if result["why_not"] else ""
    if result["note"]:
        print(f"memory: {result['note']}", file=sys.stderr)
    print(f"memory: {label}, {result['memories_learned']} learned{why_not}, {took}", file=sys.stderr)
    result = in_strings(result, redactor().certain)
    if where == "-":
        print(json.dumps(result, ensure_ascii=False))
    elif where:
        try:
            Path(where).write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
        except OSError as error:
            raise UserError(f"{where}: {error.strerror}") from error


def compared(result: dict[str, Any]) -> str:
    """How the duration compares with the mean of earlier successful runs of the same command; "" without any."""
    mean, n = result["mean_duration_s"], result["earlier_runs"]
    if not mean or result["exit_status"] != 0:
        return ""
    share = 1 - result["duration_s"] / mean
    how = "as long as" if abs(share) < SHARE_OF_SAME else f"{abs(share):.0%} {'faster' if share > 0 else 'slower'} than"
    return f", {how} the mean of {n} earlier run{'s' if n > 1 else ''}"
