"""Damage one file of a stopped run, or of a bank, and see what the next commands make of it.

    python -m benchmarks.damage_drill [--trials 60] [--subject SUBJECT]... [--file NAME]... [--json FILE] [--quick]

The subjects are a run that ended early, a run with consolidation that was killed (its bank has a log of SQLite beside
it), and a bank whose writer was killed. In each trial one file of a copy is damaged: one bit, 200 bytes, cut short, two
lines exchanged, or emptied. A run then goes on by its command and is put in a table; its bank, or the bank, is listed.
All commands are given, also after one has refused. Of each trial there is one end:

  said       a command refuses in a sentence, or says a note, a warning or an error that an undamaged copy does not have
  whole      nothing is said, and episodes, table and bank are those of an undamaged copy
  unseen     so is what was damaged in a line of the run that was killed, and it can still be read
  SILENT     nothing is said, and one of them is another
  TRACEBACK  a command ends in a traceback, or by a signal

Exit status 1 where one trial was silent or ended in a traceback. Commands are started as copies of one process that has
loaded everything, which makes a trial a matter of a second.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.lines import Lines, lines_parser
from scripts.command_line import REPO, plain_errors, start_module

TOY = ("env=toy", "llm=scripted", "embedder=hashing")
ENDS = SAID, WHOLE, UNSEEN, SILENT, TRACEBACK = "said", "whole", "unseen", "SILENT", "TRACEBACK"
UNREAD = re.compile(r"-shm|\.lock|\.open|\.turn")  # made anew at each opening
CHANGING = re.compile(r"\d+(\.\d+)? ?(s|ms|min)\b|\S*/copy\d+")  # times, and the copy's own name
TELLS = re.compile(r"\b(note|error|warning|damaged|rebuilt|brought back|made anew)\b", re.IGNORECASE)
DATE = re.compile(r'"created_at": ?"[^"]*"')


def one_bit(data: bytes, rng: random.Random) -> bytes:
    at, changed = rng.randrange(len(data)), bytearray(data)
    changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def two_hundred_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(max(1, len(data) - 200))
    return data[:at] + bytes(byte ^ rng.randrange(1, 256) for byte in data[at : at + 200]) + data[at + 200 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def exchanged_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    places = [at for at in range(len(lines) - 1) if lines[at] != lines[at + 1]]
    if not places or b"\0" in data:
        return data
    at = rng.choice(places)
    lines[at : at + 2] = lines[at + 1], lines[at]
    return b"".join(lines)


def emptied(data: bytes, rng: random.Random) -> bytes:
    return b""


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    each.__name__: each for each in (one_bit, two_hundred_bytes, cut, exchanged_lines, emptied)
}


@dataclass(frozen=True)
class DrillCommand:
    """A command of the trial: `{}` in its words is the copy's directory. is_answer: what it prints is compared, too."""

    module: str
    words: Sequence[str]
    is_answer: bool = True

    def run(self, copy: Path) -> tuple[int, str, str]:
        """(exit status, stdout, stderr) of it in a process of its own; a signal's number is negative."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if not (child := os.fork()):
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                status = 70
                try:
                    status = start_module(
                        self.module, self.module, [word.replace("{}", str(copy)) for word in self.words]
                    )
                except BaseException:  # noqa: BLE001 - Python would print it
                    import traceback

                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            _, ended = os.waitpid(child, 0)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(CHANGING.sub("_", file.read().decode(errors="replace")))
        return os.waitstatus_to_exitcode(ended), texts[0], texts[1]


@dataclass
class Subject:
    """Something that is damaged.

    make       makes it in a directory
    commands   given after the damage, in order
    files      read at the end, which are to be those of an undamaged copy
    unnoted    endings of the files of which no checksum is noted yet
    """

    name: str
    make: Callable[[Path], None]
    commands: Sequence[DrillCommand]
    files: Sequence[str] = ()
    unnoted: tuple[str, ...] = ()
    whole: Path = field(init=False)
    expected: list[tuple[int, str, str]] = field(init=False)
    contents: list[str] = field(init=False)

    def prepare(self, folder: Path) -> None:
        """Make it, and note what the commands say of an undamaged copy."""
        self.whole = folder / self.name
        self.whole.mkdir(parents=True)
        self.make(self.whole)
        copy = shutil.copytree(self.whole, folder / "copy0")
        self.expected = [command.run(copy) for command in self.commands]
        for status, out, err in self.expected:
            if status:
                sys.exit(f"{self.name}: an undamaged copy ends with status {status}: {err or out}")
        self.contents = self.read(copy)
        shutil.rmtree(copy)

    def read(self, copy: Path) -> list[str]:
        """What its files hold, without the time at which a record was made."""
        return [DATE.sub("", (copy / name).read_text(encoding="utf-8")) for name in self.files]

    def trial(self, name: str, damage: str, number: int, copy: Path) -> str | None:
        """The end of one trial; None where this kind cannot damage this file."""
        data, rng = (self.whole / name).read_bytes(), random.Random(f"{self.name} {name} {damage} {number}")
        if not data or (damaged := DAMAGES[damage](data, rng)) == data:
            return None
        shutil.copytree(self.whole, copy)
        try:
            (copy / name).write_bytes(damaged)
            found = [command.run(copy) for command in self.commands]
            where = f"--- {self.name} {name} {damage} {number}:"
            said = set[str]()
            for (status, out, err), (status_whole, *texts) in zip(found, self.expected, strict=True):
                if status < 0 or "Traceback (most recent call last)" in out + err:
                    print(f"{where} status {status}\n{out[-300:]}{err[-1500:]}")
                    return TRACEBACK
                before_it = set("\n".join(texts).splitlines())
                said |= {line for line in f"{out}\n{err}".splitlines() if TELLS.search(line)} - before_it
                if status != status_whole and not err.strip():
                    print(f"{where} status {status} without a word")
                    return SILENT
            if said:
                return SAID
            pairs = zip(self.commands, found, self.expected, strict=True)
            other = [command.module for command, now, then in pairs if command.is_answer and now[:2] != then[:2]]
            if self.read(copy) != self.contents or other:
                if name.endswith(self.unnoted):
                    return UNSEEN
                print(f"{where} another answer of {', '.join(other) or 'the files'}")
                return SILENT
            return WHOLE
        finally:
            shutil.rmtree(copy)


MAIN = [sys.executable, str(REPO / "main.py")]
MATTS = (*TOY, "llm.delay_s=0.01", "arm=matts_parallel", "memory=consolidated", "max_concurrency=2", "limit=10")


def ended_early(folder: Path) -> None:
    run = [*MAIN, *TOY, "arm=reasoningbank", "limit=6", f"run_dir={folder}"]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)


def killed(folder: Path) -> None:
    process = subprocess.Popen([*MAIN, *MATTS, f"run_dir={folder}"], stdout=subprocess.DEVNULL)
    episodes = folder / "episodes.jsonl"
    while not episodes.exists() or episodes.read_bytes().count(b"\n") < 6:
        if process.poll() is not None:
            sys.exit("the run that was to be killed has ended.")
        time.sleep(0.005)
    process.kill()
    process.wait()


def written(folder: Path) -> None:
    """A bank of 60 lessons, half of them in SQLite's log: its writer was killed."""
    code = f"from benchmarks.damage_drill import write; write({str(folder / 'bank.sqlite')!r})"
    if subprocess.run([sys.executable, "-c", code], cwd=REPO).returncode != -signal.SIGKILL:
        sys.exit("the bank was not written.")


def write(path: str) -> None:
    """Write such a bank, and end as by a kill."""
    from core.memory.bank import MemoryBank
    from core.memory.policies.cosine import Cosine
    from core.models.embedding import HashingEmbedder
    from core.types import Lesson, MemoryRecord

    for numbers in (range(30), range(30, 60)):
        bank = MemoryBank(path=path, embedder=HashingEmbedder(), policy=Cosine())
        for n in numbers:
            item = Lesson(title=f"lesson {n}", description=f"when task {n} comes", content=f"do {n} things, in order")
            made = {"source_trajectory_id": f"t{n}", "label_source": "judge", "task_id": f"task{n}"}
            query = {"original_query": f"task {n}", "score": 1.0, "outcome": "success"}
            bank.add(MemoryRecord(id=f"r{n}", items=(item,), **query, **made))
        if not numbers.start:
            bank.close()
    os.kill(os.getpid(), signal.SIGKILL)


TABLE = DrillCommand("scripts.tables", ("{}", "--table", "main"))
EXPORT = DrillCommand("core.memory", ("export", "{}/bank.sqlite", "{}/exported.jsonl"))
EPISODES = ("episodes.jsonl", "exported.jsonl")
MARK = DrillCommand("core.memory", ("mark", "{}/bank.sqlite", "r7", "helpful"))
DOCTOR = DrillCommand("core.memory", ("doctor", "{}/bank.sqlite"))
GO_ON, GO_ON_MATTS = (
    DrillCommand("main", (*words, "run_dir={}"), is_answer=False)
    for words in ((*TOY, "arm=reasoningbank", "limit=10"), MATTS)
)
SUBJECTS = (
    Subject("ended_early", ended_early, (GO_ON, TABLE, EXPORT), EPISODES),
    Subject("killed", killed, (GO_ON_MATTS, TABLE, EXPORT), EPISODES, unnoted=(".jsonl",)),
    Subject("bank", written, (MARK, EXPORT, DOCTOR), ("exported.jsonl",)),
)


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = lines_parser(__doc__, quick=True)
    options.add_argument("--trials", type=int, default=60, help="of each kind of damage to each file")
    options.add_argument("--subject", action="append", choices=[each.name for each in SUBJECTS])
    options.add_argument("--file", action="append", metavar="NAME", help="only files of this name")
    given, lines = options.parse_args(arguments), Lines()
    given.trials = 2 if given.quick else given.trials
    import faiss  # noqa: F401 - what every command would load
    import pandas  # noqa: F401
    import scipy.stats  # noqa: F401

    import analysis.tables  # noqa: F401
    import core.memory.commands  # noqa: F401
    import workflows.build  # noqa: F401

    print(f"| subject | file | damage | {' | '.join(ENDS)} |\n| --- | --- | --- |{' ---: |' * len(ENDS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.chdir(folder)
        for subject in (each for each in SUBJECTS if not given.subject or each.name in given.subject):
            total: Counter[str] = Counter()
            subject.prepare(folder)
            files = sorted(str(each.relative_to(subject.whole)) for each in subject.whole.rglob("*") if each.is_file())
            wanted = [name for name in files if not UNREAD.search(name) and name in (given.file or files)]
            for name, damage in itertools.product(wanted, DAMAGES):
                n_trials = 1 if damage == "emptied" else given.trials
                ends = Counter(subject.trial(name, damage, number, folder / "copy1") for number in range(n_trials))
                if any(ends):
                    counts = " | ".join(str(ends[each]) for each in ENDS)
                    print(f"| {subject.name} | {name} | {damage} | {counts} |", flush=True)
                total += ends
            n = sum(total[each] for each in ENDS)
            for end in (SILENT, TRACEBACK):
                lines.add(f"{subject.name}: {end}", total[end], 0, f"of {n}")
    return lines.end(given.json) or int(any(row["value"] for row in lines.rows))


if __name__ == "__main__":
    sys.exit(main())
