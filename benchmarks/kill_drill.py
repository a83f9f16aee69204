"""Kill runs and servers with SIGKILL at random moments, and count what is lost or there twice.

    python -m benchmarks.kill_drill [runs|saves|extractions] [--kills N] [--bank URL] [--json FILE] [--quick]

runs         of three kinds (plain, with consolidation, parallel scaling in batches), each started again until it has
             had its share of the kills: its episodes and banks are those of a run that nobody killed
saves        a server over stdio whose client saves lessons one after another: each acknowledged one is there, once
extractions  as saves, of attempts from which a scripted model distils one lesson each, some of them slowly: each
             accepted one ends as done, with its lesson there once

Without a word all three. Exit status 1 where something was lost, twice, or different. --bank: an empty bank of its own
in PostgreSQL for saves or extractions.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines, lines_parser
from core.memory.bank import MemoryBank
from core.memory.policies.cosine import Cosine
from core.models.embedding import HashingEmbedder
from scripts.command_line import REPO, command_of, plain_errors

WAITED_S = 300  # for the end of all extractions
TOY = ("env=toy", "llm=scripted", "embedder=hashing", "limit=24", "llm.delay_s=0.004")
KINDS = {
    "plain": ("arm=reasoningbank",),
    "consolidation": ("arm=reasoningbank", "memory=consolidated"),
    "parallel scaling": ("arm=matts_parallel", "stream.batch=3", "max_concurrency=2"),
}
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "drill", "version": "0"}},
}


def answer(messages: list[dict[str, str]], role: str, sample: int) -> str:
    """The scripted model of the extractions: content with everything, one lesson of each attempt."""
    text = messages[-1]["content"]
    number = text.partition("attempt number ")[2].split(" ")[0]
    time.sleep(random.random() * 0.05)
    if role == "judge":
        return 'Thoughts: it is done.\nStatus: "success"'
    return f"# Memory Item 1\n## Title Lesson {number}\n## Description Of attempt {number}.\n## Content Do {number}."


def killed_once(
    command: list[str],
    episodes: Path,
    rng: random.Random,
    step: int | None = None,
    start: Callable[..., subprocess.Popen] = subprocess.Popen,
) -> bool:
    """Start a run and kill it at a random moment; False where it ended before.

    step   kill it just after so many bytes were written at most; None: anywhere from its start on
    """
    process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = episodes.stat().st_size if episodes.exists() else 0
    wait_for = before + rng.randint(1, step) if step else None
    until = time.monotonic() + (60 if wait_for else rng.uniform(0.05, 2))
    while time.monotonic() < until and process.poll() is None:
        if wait_for and episodes.exists() and episodes.stat().st_size >= wait_for:
            break
        time.sleep(0.0005)
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


def killed_until_done(command: list[str], episodes: Path, kills: int, rng: random.Random) -> tuple[int, bool]:
    """Start a run again and again: (how often it was killed, whether it was done before the last kill was used)."""
    for killed in range(kills):
        if not killed_once(command, episodes, rng, 9_000 if killed % 2 else None):
            return killed, True
    return kills, False


def content(run: Path) -> list[tuple[Any, ...]]:
    """What the banks of two runs that are the same have in common."""
    found = []
    for path in run.rglob("*.sqlite"):
        with closing(opened(str(path))) as bank:
            found += [(path.name, each.id, each.status, each.n_used, repr(each.items)) for each in bank.records()]
    return sorted(found)


def opened(bank: str) -> MemoryBank:
    return MemoryBank(path=bank, embedder=HashingEmbedder(), policy=Cosine(), read_only=True)


def runs(lines: Lines, kills: int, folder: Path) -> None:
    """Kill runs, which are to end as the one that nobody killed."""
    rng = random.Random(1)
    for kind, words in KINDS.items():
        command = [sys.executable, str(REPO / "main.py"), *TOY, *words]
        whole, done, n_runs = folder / f"{kind} whole", 0, 0
        subprocess.run([*command, f"run_dir={whole}"], check=True, stdout=subprocess.DEVNULL)
        different = 0
        while done < kills // len(KINDS):
            run = folder / f"{kind} {n_runs}"
            own = [*command, f"run_dir={run}"]
            killed, ended = killed_until_done(own, run / "episodes.jsonl", kills // len(KINDS) - done, rng)
            done, n_runs = done + killed, n_runs + 1
            if not ended:
                subprocess.run(own, check=True, stdout=subprocess.DEVNULL)
            same = (run / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
            same &= content(run) == content(whole)
            different += not same
            shutil.rmtree(run)
        lines.add(f"runs, {kind}: ended otherwise", different, 0, f"of {n_runs}", note=f"{done} kills")


class Client:
    """A client of one server process over stdio; a call returns None once the server is dead."""

    def __init__(self, bank: str, *options: str) -> None:
        command = command_of("mcp_server", "--bank", bank, "--embedder", "hashing-256", *options)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        env = {**os.environ, "REASONINGBANK_SETTINGS": "none"}
        self.process, self.n = subprocess.Popen(command, cwd=REPO, env=env, **pipes), 0
        if self._asked(HELLO) is not None:
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any] | None:
        self.n += 1
        params = {"name": tool, "arguments": arguments}
        found = self._asked({"jsonrpc": "2.0", "id": self.n, "method": "tools/call", "params": params})
        if found is None:
            return None
        if found["result"].get("isError"):
            sys.exit(f"{tool}: {found['result']['content'][0]['text']}")
        return found["result"]["structuredContent"]

    def _asked(self, message: dict[str, Any]) -> dict[str, Any] | None:
        self._send(message)
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with suppress(BrokenPipeError):
            self.process.stdin.close()


def sessions(bank: str, kills: int, *options: str) -> Iterator[tuple[Client, float]]:
    """A client of a new server for each kill, with the moment (time.monotonic()) from which it is to be killed."""
    rng = random.Random(2)
    for _ in range(kills):
        client = Client(bank, *options)
        yield client, time.monotonic() + rng.uniform(0, 0.4)
        client.kill()


def call_until_killed(client: Client, deadline: float, tool: str, **arguments: Any) -> dict[str, Any] | None:
    """A call, during which the server is killed if its time comes; None if it was killed before it answered."""
    from threading import Timer

    timer = Timer(max(0.0, deadline - time.monotonic()), client.process.kill)
    timer.start()
    try:
        return client.call(tool, **arguments)
    finally:
        timer.cancel()


def saves(lines: Lines, kills: int, bank: str) -> None:
    """Kill a server that saves: each acknowledged lesson is there once."""
    told: list[str] = []
    number = 0
    for client, deadline in sessions(bank, kills):
        while True:
            number += 1
            lesson = {"query": f"task {number}", "title": f"Title {number}", "content": f"Do {number}, then look."}
            if (found := call_until_killed(client, deadline, "save_lesson", **lesson)) is None:
                break
            told.append(found["memory_id"])
    with closing(opened(bank)) as whole:
        there = Counter(each.id for each in whole.records())
        titles = Counter(item.title for each in whole.records() for item in each.items)
    lost, note = len(set(told) - set(there)), f"{kills} kills, {len(there)} there"
    lines.add("saves: lost", lost, 0, f"of {len(told)}", note=note)
    lines.add("saves: twice", sum(n > 1 for n in titles.values()), 0, f"of {len(told)}")


def extractions(lines: Lines, kills: int, bank: str) -> None:
    """Kill a server that distils: each accepted attempt came to an end once."""
    model = ("llm=scripted", "llm.script.path=benchmarks.kill_drill.answer", "server.max_pending_jobs=100000")
    accepted: list[str] = []
    number = 0

    def attempt(number: int) -> dict[str, Any]:
        said = f"This is attempt number {number} of them. "
        steps = [{"step": 1, "role": "user", "content": f"Do {number}."}]
        return {"query": f"Do {number}", "trajectory": [*steps, {"step": 2, "role": "assistant", "content": said * 20}]}

    for client, deadline in sessions(bank, kills, *model):
        while True:
            number += 1
            if (found := call_until_killed(client, deadline, "extract_memory", **attempt(number))) is None:
                break
            accepted.append(found["task_id"])
    client = Client(bank, *model)
    ends: Counter[str] = Counter()
    until = time.monotonic() + WAITED_S
    for task in accepted:
        status = client.call("task_status", task_id=task) or {}
        # One at which several servers died makes room for the others, and is tried again once none of them waits.
        while (status["status"] == "processing" or "deaths" in status) and time.monotonic() < until:
            time.sleep(0.05)
            status = client.call("task_status", task_id=task) or {}
        ends[status["status"]] += 1
        if status["status"] != "completed":
            print(f"extractions: {task}: {status}", flush=True)
    client.kill()
    with closing(opened(bank)) as whole:
        titles = Counter(item.title for each in whole.records() for item in each.items)
    note = f"{kills} kills, {len(titles)} lessons"
    lines.add("extractions: not completed", len(accepted) - ends["completed"], 0, f"of {len(accepted)}", note=note)
    lines.add("extractions: no lesson", max(0, len(accepted) - len(titles)), 0, f"of {len(accepted)}")
    lines.add("extractions: twice", sum(n > 1 for n in titles.values()), 0, f"of {len(titles)}")


KILLS = {"runs": 320, "saves": 60, "extractions": 40}


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("what", nargs="?", choices=KILLS)
    options.add_argument("--kills", type=int, help="left out: 320 of runs, 60 of saves, 40 of extractions")
    options.add_argument("--bank", metavar="URL")
    given, lines = options.parse_args(arguments), Lines()
    for what in [given.what] if given.what else KILLS:
        kills = given.kills or KILLS[what] // (10 if given.quick else 1)
        with tempfile.TemporaryDirectory() as name:
            bank = given.bank or str(Path(name) / "bank.sqlite")
            if what == "runs":
                runs(lines, kills, Path(name))
            else:
                {"saves": saves, "extractions": extractions}[what](lines, kills, bank)
    return lines.end(given.json) or int(any(row["value"] for row in lines.rows))


if __name__ == "__main__":
    sys.exit(main())
