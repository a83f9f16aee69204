"""`reasoningbank learn --from PATH`: learn from sessions that were made before there was a bank.

It reads what clients and harnesses leave behind: transcripts of Claude Code and Codex (.jsonl), trajectories in
Harbor's format ATIF (.json), logs of Inspect (.eval), and lines of your own (--map). Credentials are taken out of the
texts first. Without --yes it says what there is and what learning from it would cost, and asks no model.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import InfraError, StopRun, UserError
from core.memory.hygiene.scrub import scrub
from core.tokens import estimate_tokens
from core.types import content_id
from mcp_server import checks
from mcp_server.config import bank_options
from mcp_server.extraction import learn_attempt
from mcp_server.hooks import MAX_QUERY, MAX_TURN, last_turns, read_turns
from mcp_server.service import Service, lookup, open_service

Turn = dict[str, str]
KINDS = (".jsonl", ".json", ".eval")
GOES_ON = 4  # a message of fewer words ("yes, go on") begins no task of its own
REPLY_TOKENS = 600  # of judge and extractor together, for the estimate
MOST = 64 << 20  # bytes of a sample in a log; a larger one is refused
FIELDS = ("query", "messages")
_SPEAKERS = {"user": "user", "system": "user", "agent": "assistant", "assistant": "assistant", "tool": "tool"}


@dataclass(frozen=True)
class PastTask:
    """A task of a session, and what was done at it."""

    query: str
    turns: list[Turn]


def run_learn(argv: list[str]) -> int:
    """The command `learn --from`; the exit code."""
    top = argparse.ArgumentParser(
        prog="reasoningbank learn --from PATH",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bank_options(top)
    top.add_argument("--from", dest="paths", action="append", type=Path, required=True, metavar="PATH")
    top.add_argument("--map", metavar="query=KEY,messages=KEY", help="the keys of your own lines of JSON")
    top.add_argument("--agent-id", default="", metavar="NAME", help="whose memory")
    top.add_argument("--yes", action="store_true", help="learn now; without it only the plan is printed")
    given = top.parse_intermixed_args(argv)
    sessions = sessions_of(given.paths, map_of(given.map))
    with closing(open_service(given)) as service:
        return learn_sessions(service, given.agent_id, sessions, yes=given.yes)


def sessions_of(paths: list[Path], keys: dict[str, str] | None) -> list[list[PastTask]]:
    """The tasks of each file at or below the paths. A damaged file of a folder is left out, and named on stderr."""
    found = []
    for given, file in [(path, file) for path in paths for file in files_of(path)]:
        try:
            found.append(attempts_of(file, keys))
        except UserError as error:
            if file == given.expanduser():
                raise
            print(f"left out: {error}", file=sys.stderr)
    if not any(found):
        raise UserError(
            f"no session was found in {', '.join(map(str, paths))}: it reads .jsonl of Claude Code and Codex, "
            "ATIF's .json, Inspect's .eval, and with --map query=KEY,messages=KEY lines of your own."
        )
    if without := found.count([]):
        print(f"{without} of {len(found)} files hold no task with a reply", file=sys.stderr)
    return found


def learn_sessions(service: Service, agent_id: str, sessions: list[list[PastTask]], *, yes: bool) -> int:
    """Say what there is to learn, and with `yes` learn it. The same session again adds nothing."""
    bank = service.bank_for(agent_id)
    found = {}
    for attempt in (each for session in sessions for each in session):
        payload = payload_of(attempt, service)
        found[content_id("session", payload)] = payload
    new = {id: payload for id, payload in found.items() if lookup(bank, content_id("extracted", id)) is None}
    print(f"{sum(map(bool, sessions))} sessions, {len(found)} tasks, {len(found) - len(new)} of them learned before")
    if not new:
        return 0
    if not service.has_model:
        raise UserError("no model distils them: say which one, e.g. llm=NAME.")
    print(f"learning from {len(new)} tasks: {cost_of(service, list(new.values()))}")
    if not yes:
        print("nothing was sent. To learn: the same command with --yes")
        return 0
    counts: dict[str, int] = {}
    for number, (id, payload) in enumerate(new.items(), 1):
        try:
            told = learn_attempt(service, bank, id, payload)
            state = told["state"]
            said = ", ".join(each["title"] for each in told["memories"]) or "no lesson"
        except StopRun:  # no further call can succeed
            raise
        except (UserError, InfraError) as error:
            state, said = "failed", service.said(error)
        counts[state] = counts.get(state, 0) + 1
        print(f"{number}/{len(new)}  {state:<12}{said}", flush=True)
    print(", ".join(f"{n} {state}" for state, n in counts.items()))
    if counts.get("quarantined"):
        print("what is quarantined waits for a person: reasoningbank bank review", file=sys.stderr)
    return int("failed" in counts)


def cost_of(service: Service, payloads: list[dict[str, Any]]) -> str:
    """What judge and extractor would read and cost, in words."""
    roles = service.roles()
    most = service.cfg.distiller.get("max_chars") or 24_000
    texts = [" ".join(turn["content"] for turn in payload["trajectory"])[:most] for payload in payloads]
    tokens = sum(estimate_tokens(text) + 500 for text in texts)
    prices = [roles[name].llm.price(tokens, REPLY_TOKENS // 2 * len(texts)) for name in ("judge", "extractor")]
    usd = None if None in prices else sum(price for price in prices if price is not None)
    cost = "at a price that is unknown" if usd is None else f"about {usd:.2f} USD"
    names = dict.fromkeys(roles[name].llm.name for name in ("judge", "extractor"))
    return f"about {2 * tokens:,} tokens for {' and '.join(names)}, {cost}"


def payload_of(attempt: PastTask, service: Service) -> dict[str, Any]:
    """The attempt as it is sent: without credentials, and as long as a server takes."""
    turns = [turn | {"content": scrub(turn["content"])[0]} for turn in last_turns(attempt.turns)]
    return checks.attempt(turns, scrub(attempt.query)[0][:MAX_QUERY], service.settings)


def files_of(path: Path) -> list[Path]:
    """The files of sessions at or below a path."""
    path = path.expanduser()
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in KINDS and file.is_file())
    if not path.is_file():
        raise UserError(f"--from {path}: there is no such file or folder.")
    return [path]


def map_of(text: str | None) -> dict[str, str] | None:
    """query=KEY,messages=KEY as a dictionary."""
    if text is None:
        return None
    found = dict(part.partition("=")[::2] for part in text.split(","))
    if set(found) != set(FIELDS) or not all(found.values()):
        raise UserError(f"--map {text}: give query=KEY,messages=KEY, the keys of your lines of JSON.")
    return found


def attempts_of(file: Path, keys: dict[str, str] | None) -> list[PastTask]:
    """The tasks of a file, in their order; [] where it holds none."""
    try:
        if file.suffix == ".eval":
            return [
                found for sample in _samples(file) if (found := _of_messages(sample.get("input"), sample["messages"]))
            ]
        if file.suffix == ".json":
            whole = json.loads(file.read_text(encoding="utf-8-sig"))
            steps = whole.get("steps") if isinstance(whole, dict) else None
            found = _of_messages(None, list(map(_of_step, steps))) if isinstance(steps, list) else None
            return [found] if found else []
        if keys is not None:
            return list(_of_rows(file, keys))
        return list(_tasks(list(read_turns(file))))
    except (OSError, ValueError, KeyError, AttributeError, TypeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} cannot be read as a session: {error!r:.200}") from None


def _tasks(turns: list[Turn]) -> Iterator[PastTask]:
    """A client's conversation, divided where the user asks for something new."""
    begun: list[Turn] = []
    for turn in turns:
        asks = turn["role"] == "user" and len(turn["content"].split()) >= GOES_ON
        if asks and any(each["role"] == "assistant" for each in begun):
            yield PastTask(begun[0]["content"], begun)
            begun = []
        if begun or asks:
            begun.append(turn)
    if any(each["role"] == "assistant" for each in begun):
        yield PastTask(begun[0]["content"], begun)


def _of_rows(file: Path, keys: dict[str, str]) -> Iterator[PastTask]:
    """The tasks of your own lines of JSON. A line that is torn or without a reply is left out, and named on stderr."""
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").split("\n"), 1):
        task = None
        with suppress(json.JSONDecodeError):
            row = json.loads(line)
            if missing := [key for key in keys.values() if key not in row]:
                raise UserError(f"{file} line {number} has no {missing[0]}: --map names the keys of your lines.")
            task = _of_messages(row[keys["query"]], row[keys["messages"]])
        if task:
            yield task
        elif line.strip():
            print(f"left out: {file} line {number} is torn, or has no list of messages with a reply", file=sys.stderr)


def _of_messages(query: Any, messages: Any) -> PastTask | None:
    """One task of messages {role, content}, with their calls of tools; None without a task or a reply."""
    turns = []
    for message in messages if isinstance(messages, list) else ():
        speaker = _SPEAKERS.get(str(message.get("role")))
        parts = message.get("content") or []
        parts = parts if isinstance(parts, list) else [parts]
        texts = [part if isinstance(part, str) else str(part.get("text") or "") for part in parts]
        for call in message.get("tool_calls") or ():
            about = call.get("function")
            name, given = (about, call.get("arguments")) if isinstance(about, str) else _call_of(about or call)
            texts.append(f"{name}({given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)})")
        if speaker and (text := "\n".join(filter(None, texts)).strip()):
            turns.append({"role": speaker, "content": text[:MAX_TURN]})
    first = query if isinstance(query, str) else next((t["content"] for t in turns if t["role"] == "user"), "")
    return PastTask(first, turns) if first.strip() and any(turn["role"] == "assistant" for turn in turns) else None


def _call_of(about: dict[str, Any]) -> tuple[Any, Any]:
    """(name, arguments) of a call of a tool, in OpenAI's form or ATIF's."""
    return about.get("name") or about.get("function_name"), about.get("arguments")


def _of_step(step: dict[str, Any]) -> dict[str, Any]:
    """A step of an ATIF trajectory as a message; what its tools returned follows in the same text."""
    results = (step.get("observation") or {}).get("results") or ()
    seen = [str(each.get("content") or "") for each in results if isinstance(each, dict)]
    content = [step.get("message") or "", *(f"(result) {text}" for text in seen if text)]
    return {"role": step.get("source"), "content": content, "tool_calls": step.get("tool_calls")}


def _samples(file: Path) -> Iterator[dict[str, Any]]:
    """The samples of a log of Inspect, which is a zip with a file for each."""
    with zipfile.ZipFile(file) as log:
        for about in log.infolist():
            if about.filename.startswith("samples/") and about.filename.endswith(".json"):
                if about.file_size > MOST:
                    raise UserError(f"{file}: {about.filename} is larger than {MOST >> 20} MB.")
                yield json.loads(log.read(about))
