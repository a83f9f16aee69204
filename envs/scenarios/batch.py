"""Import a batch of files, bad ones among them.

The lesson that carries over: peek at every file first; more than 100000 rows are imported in chunks of at most 10000; a
file that is not UTF-8 is imported as latin-1; a file with fewer rows than its header says is cut off and goes to
quarantine, though an import of it would not complain; finish when all are dealt with. Names, sizes, the place of each
kind of file and how many plain ones there are differ by variant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from envs.scenarios.base import JobService, offered, write_call

TOPICS = "sales visits stock meters orders claims returns trips".split()
MOST_ROWS, CHUNK = 100_000, 10_000  # what the worker's memory holds; what it imports at a time
ENCODINGS = ("utf-8", "latin-1")


@dataclass(frozen=True, kw_only=True)
class File:
    name: str
    kind: str  # plain | large | latin | cut
    rows: int  # as its header says
    found: int  # rows in it


@dataclass(kw_only=True)
class BatchService(JobService):
    job = "batch"
    title = "Importing a batch of files with bad ones among them"
    rules: ClassVar[dict[str, str]] = {
        "memory": "Peek at every file before its import: a file of more than 100000 rows must be imported with a "
        "chunk_rows of at most 10000, or the worker runs out of memory. A file that is not UTF-8 is imported with the "
        "encoding latin-1.",
        "cut": "A file in which peek finds fewer rows than its header says is cut off: put it into quarantine and "
        "never import it, although the import would not complain. Import all other files, and finish when every "
        "file is dealt with.",
    }
    _dealt: dict[str, str] = field(default_factory=dict, init=False)  # file -> imported | quarantine
    _listed: bool = field(default=False, init=False)

    @property
    def query(self) -> str:
        return (
            f"Import the batch of {self._topic()} files of {self.word('company').title()}: all good files, no bad one."
        )

    def open(self) -> str:
        return f"There are {len(self._files())} files in the inbox."

    @offered
    def list_files(self) -> str:
        """lists the inbox."""
        self._listed = True
        return "\n".join(["200 OK", *(f"- {one.name}: {self._dealt.get(one.name, 'new')}" for one in self._files())])

    @offered
    def peek(self, file: str) -> str:
        """looks into a file."""
        if (one := self._file(file)) is None:
            return "404 Not Found: no such file."
        text = "byte 0xe9 is not UTF-8 (latin-1 fits)" if one.kind == "latin" else "all UTF-8"
        return f"200 OK {file}: its header says {one.rows} rows, {one.found} rows found; {text}"

    @offered
    def import_file(self, file: str, encoding: str = "utf-8", chunk_rows: int = 0) -> str:
        """imports a file; encoding and chunk_rows may be left out, 0 imports all rows at once."""
        if (one := self._file(file)) is None:
            return "404 Not Found: no such file."
        if file in self._dealt:
            return f"409 Conflict: the file is dealt with already ({self._dealt[file]})."
        if encoding not in ENCODINGS:
            return f"400 Bad Request: the encodings are {' and '.join(ENCODINGS)}."
        if one.rows > MOST_ROWS and not 0 < chunk_rows <= CHUNK:
            return self.fail("memory", "500 Out of memory: the worker was killed, and the table is damaged.")
        if (one.kind == "latin") != (encoding == "latin-1"):
            return "422 Unprocessable: invalid bytes for this encoding; nothing was imported."
        self._dealt[file] = "imported"
        return f"200 OK: {one.found} rows imported."

    @offered
    def quarantine(self, file: str) -> str:
        """puts a bad file aside; that is final."""
        if self._file(file) is None:
            return "404 Not Found: no such file."
        if file in self._dealt:
            return f"409 Conflict: the file is dealt with already ({self._dealt[file]})."
        self._dealt[file] = "quarantine"
        return "200 OK: put aside."

    @offered
    def finish(self) -> str:
        """closes the batch; that is final."""
        wrong = [one for one in self._files() if self._dealt.get(one.name) != self._due(one)]
        if wrong:
            return self.fail("cut", f"409 Conflict: {len(wrong)} files were not dealt with as they should have been.")
        return self.win("200 OK: the batch is complete.")

    def walkthrough(self) -> list[str]:
        names = [one.name for one in self._files()]
        dealt = [self._best(one) for one in self._files()]
        peeks = [write_call("peek", file=name) for name in names]
        steps = [call for pair in zip(peeks, dealt) for call in pair]
        return [write_call("list_files"), *steps, write_call("finish")]

    def choices(self) -> list[str]:
        new = [one.name for one in self._files() if one.name not in self._dealt] if self._listed else []
        calls = [
            call
            for name in new
            for call in (
                write_call("peek", file=name),
                write_call("import_file", file=name),
                write_call("import_file", file=name, encoding="latin-1"),
                write_call("import_file", file=name, chunk_rows=CHUNK),
                write_call("quarantine", file=name),
            )
        ]
        return [write_call("list_files"), *calls, write_call("finish")]

    def _best(self, one: File) -> str:
        """The right call for a file."""
        if one.kind == "cut":
            return write_call("quarantine", file=one.name)
        options = {"large": {"chunk_rows": CHUNK}, "latin": {"encoding": "latin-1"}}.get(one.kind, {})
        return write_call("import_file", file=one.name, **options)

    def _due(self, one: File) -> str:
        return "quarantine" if one.kind == "cut" else "imported"

    def _file(self, name: str) -> File | None:
        return next((one for one in self._files() if one.name == name), None)

    def _files(self) -> list[File]:
        plain = self.draw((1, 2), "plain")
        kinds = self.shuffled(["large", "latin", "cut", *(["plain"] * plain)][: 3 + plain], "kinds")
        return [self._made(place, kind) for place, kind in enumerate(kinds)]

    def _made(self, place: int, kind: str) -> File:
        rows = self.draw(range(150_000, 2_000_000) if kind == "large" else range(200, 9000), "rows", place)
        lost = self.draw(range(5, 90), "lost", place) if kind == "cut" else 0
        name = f"{self._topic()}_{self.words(5, 'file')[place]}.csv"
        return File(name=name, kind=kind, rows=rows, found=rows - lost)

    def _topic(self) -> str:
        return self.draw(TOPICS, "topic")
