"""Make the figures of docs/study.md again from the stored episodes, and compare them with the page.

    python -m benchmarks.study [--write] [--into FOLDER]
    python -m benchmarks.study --pack RUNS... --name NAME

docs/study/NAME.tar.xz holds the complete runs of a part of the study: manifests, episodes, banks. They are unpacked,
into a temporary folder or into a new FOLDER, and audited. Then every table in docs/study.md below a mark

    <!-- tables: NAME/GLOB... --table TABLE ; column, column -->

is made by scripts.tables from those runs and compared with the lines of the page. A mark that names no column means
all columns. If scripts.tables makes several tables, the one that has all named columns is taken. A number in the text
is checked in the same way. Its mark names the runs, and may select episodes by label (the judge's), status, type or
gold (the right answer, or A|B):

    all <!-- count: NAME/GLOB... ; label=success, type=TYPE -->502     how many; percent: of them solved
    all <!-- median: NAME/GLOB... ; type=TYPE -->13                    tokens of an attempt's replies; or mean, or least
    all <!-- look: NAME/GLOB... ; check=CHECK -->54                places that the audit names as worth a look

The answer of an experiment=verdict is made again from its runs, and compared with the block below its mark:

    <!-- verdict: NAME -->

The mark of a number must not begin a line, because Markdown would take the line for HTML. Broken episodes are never
counted.

Exit status 1: a run breaks an invariant, or something differs. --write puts the new figures into the page. --pack
stores the runs in RUNS, and removes this machine's paths from them.
"""

from __future__ import annotations

import difflib
import io
import json
import re
import shlex
import statistics
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.answer import Question, answer_of
from analysis.answer_page import page
from analysis.audit import BROKEN, WORTH_A_LOOK, findings
from analysis.runs import find_runs, read_run
from core.checksum import KEY
from core.errors import UserError
from core.run.files import MANIFEST, SUMMARY
from scripts import tables
from scripts.command_line import REPO, parser, plain_errors

PAGE = REPO / "docs" / "study.md"
STORE = REPO / "docs" / "study"
NAMED = "outputs/study"  # stands in the stored runs for the folder that they were made in
MARK = re.compile(  # and the table below it
    r"(?P<mark><!-- tables: (?P<words>[^;>]+?)(?:;(?P<columns>[^>]+?))? -->)\n(?:\n(?:\|.*\n)+)?"
)
KINDS = "count|percent|median|mean|least|look"
FIGURE = re.compile(  # and the number behind it
    rf"(?<=[^\n])(?P<mark><!-- (?P<what>{KINDS}): (?P<words>[^;>]+?)"
    r"(?:;(?P<fields>[^>]+?))? -->)(?P<shown>\d+(?:,\d{3})*(?:\.\d+)?)"
)
VERDICT = re.compile(r"(?P<mark><!-- verdict: (?P<name>\w+) -->)\n(?:\n(?:    .*\n|\n(?=    ))+)?")
FIGURES = re.compile(rf"<!-- (?:{KINDS}):")  # how each mark begins
NOT_STORED = ".lock"
MARKED = "<!-- tables:"  # how each mark begins
EPISODE: dict[str, Callable[[dict], Any]] = {  # what a number may be counted by
    "label": lambda row: row["verdict"]["label"],
    "status": lambda row: row["status"],
    "type": lambda row: row["task_type"],
    "gold": lambda row: row["trajectories"][0]["gold"],
}


@plain_errors()
def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--write", action="store_true", help="put the tables into the page")
    options.add_argument("--into", type=Path, metavar="FOLDER", help="keep the unpacked runs in this new folder")
    options.add_argument("--pack", type=Path, nargs="+", metavar="RUNS", help="store these runs")
    options.add_argument("--name", help="of the part that --pack stores")
    given = options.parse_args(arguments)
    if given.pack:
        return pack(given.pack, given.name)
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        into = given.into or Path(temporary) / "study"
        broken = [line for folder in unpack(into) for line in audited(folder)]
        made = remade(text, into)
    differs = list(difflib.unified_diff(text.splitlines(), made.splitlines(), "in the page", "made again", lineterm=""))
    if given.write and differs:
        PAGE.write_text(made, encoding="utf-8", newline="\n")
    print("\n".join(broken + differs))
    count = f"{len(MARK.findall(text))} tables and {len(FIGURE.findall(text))} numbers"
    count = f"{n} verdicts, {count}" if (n := len(VERDICT.findall(text))) else count
    print(f"{count}: {'written' if given.write else 'different' if differs else 'all as in docs/study.md'}")
    return int(bool(broken or (differs and not given.write)))


def unpack(into: Path) -> list[Path]:
    """The stored runs, a folder a part, in a new folder."""
    archives = sorted(STORE.glob("*.tar.xz"))
    if not archives:
        raise UserError(f"no stored runs in {STORE.relative_to(REPO)}.")
    if into.exists():
        raise UserError(f"--into {into}: it is there already; give a new folder.")
    folders = []
    for archive in archives:
        folder = into / archive.name.removesuffix(".tar.xz")
        with tarfile.open(archive) as file:
            # Python before 3.11.4 has no such filter; the archives are this repository's own.
            file.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            file.extractall(folder)
        folders.append(folder)
    return folders


def audited(folder: Path) -> list[str]:
    """What breaks an invariant in the runs of a part, and their number, a line each."""
    runs = [read_run(path) for path in find_runs([str(folder)])]
    found = [(run.path.name, name, lines) for run in runs for name, lines in findings(run, BROKEN).items()]
    print(f"{folder}: {len(runs)} runs, {sum(len(run.rows) for run in runs)} episodes, {len(found)} broken invariants")
    return [f"BROKEN {run}: {name}: {lines[0]}" for run, name, lines in found]


def remade(text: str, into: Path) -> str:
    """The page with the table below each of its marks, and the number behind it, made anew."""
    if (n := text.count(MARKED)) != len(MARK.findall(text)):
        raise UserError(f"docs/study.md has {n} marks {MARKED} ... -->, of which some cannot be read.")
    if (n := len(FIGURES.findall(text))) != len(FIGURE.findall(text)):
        raise UserError(f"docs/study.md has {n} marks of numbers, of which some cannot be read or begin a line.")
    text = FIGURE.sub(lambda mark: mark["mark"] + figure_of(mark, into), text)
    text = VERDICT.sub(lambda mark: "\n".join([mark["mark"], "", *verdict_of(into / mark["name"]), ""]), text)
    return MARK.sub(lambda mark: "\n".join([mark["mark"], "", *table_of(mark, into), ""]), text)


def table_of(mark: re.Match[str], into: Path) -> list[str]:
    """The lines of the Markdown table that a mark asks for."""
    words, columns = shlex.split(mark["words"]), [name.strip() for name in (mark["columns"] or "").split(",")]
    at = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
    runs = [str(path) for word in words[:at] for path in sorted(into.glob(word))]
    if not runs:
        raise UserError(f"docs/study.md names runs that are not stored: {' '.join(words[:at])}.")
    with tempfile.NamedTemporaryFile("r", suffix=".md", encoding="utf-8") as file:
        status = tables.main([*runs, *words[at:], "--format", "md", "-o", file.name])
        made = file.read()
    found = [[cells(line) for line in lines.splitlines()] for lines in re.findall(r"(?:^\|.*\n)+", made, re.MULTILINE)]
    named = [[cell.replace("<br>", " ") for cell in rows[0]] for rows in found]
    fitting = [place for place, names in enumerate(named) if not mark["columns"] or set(columns) <= set(names)]
    if status == 2 or not found or len(fitting) > 1:
        raise UserError(f"docs/study.md: a mark must give one table, {mark['words'].strip()} gives {len(fitting)}.")
    if not fitting:
        raise UserError(f"docs/study.md asks for columns that no table has together: {', '.join(columns)}.")
    rows, names = found[fitting[0]], named[fitting[0]]
    places = [names.index(name) for name in (columns if mark["columns"] else names)]
    return ["| " + " | ".join(row[place] for place in places) + " |" for row in rows]


def verdict_of(folder: Path) -> list[str]:
    """The lines of the answer that the runs of a study by experiment=verdict give, up to what to try next."""
    if (question := Question.read(folder)) is None:
        raise UserError(f"docs/study.md: {folder.name} is no study by experiment=verdict.")
    lines = page(folder, answer_of(folder, question) | {"try": [], "not_tested": []})
    wrapped = (textwrap.wrap(line, 116, subsequent_indent="  ") or [""] for line in lines)
    return [f"    {line}".rstrip() for part in wrapped for line in part]


def figure_of(mark: re.Match[str], into: Path) -> str:
    """The number that a mark asks for, with as many digits as the one that stands there."""
    words, asked = mark["words"].split(), [part.strip() for part in (mark["fields"] or "").split(",") if part.strip()]
    runs = [path for word in words for path in sorted(into.glob(word))]
    if not runs:
        raise UserError(f"docs/study.md names runs that are not stored: {' '.join(words)}.")
    runs, given = [read_run(path) for path in runs], dict(part.partition("=")[::2] for part in asked)
    if mark["what"] == "look":
        checks = [check for check in WORTH_A_LOOK if check.__name__ == given.get("check")]
        if not checks:
            known = ", ".join(check.__name__ for check in WORTH_A_LOOK)
            raise UserError(f"docs/study.md counts check={given.get('check')}: known are {known}.")
        return str(sum(len(lines) for run in runs for lines in findings(run, checks).values()))
    rows = [row for run in runs for row in run.rows if row["status"] != "infra_error"]
    for name, values in given.items():
        if name not in EPISODE:
            raise UserError(f"docs/study.md counts by {name}: known are {', '.join(EPISODE)}.")
        rows = [row for row in rows if EPISODE[name](row) in values.split("|")]
    if not rows and mark["what"] != "count":
        raise UserError(f"docs/study.md: no episode is meant by {mark['mark']}.")
    tokens = [row["trajectories"][0]["usage"]["completion_tokens"] for row in rows]
    made = {
        "count": lambda: len(rows),
        "percent": lambda: 100 * sum(row["status"] == "success" for row in rows) / len(rows),
        "median": lambda: statistics.median(tokens),
        "mean": lambda: statistics.mean(tokens),
        "least": lambda: min(tokens),
    }[mark["what"]]()
    return f"{made:,.{len(mark['shown'].partition('.')[2])}f}"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def pack(folders: list[Path], name: str | None) -> int:
    """Store the runs in these folders, or these runs, as a part of the study."""
    if not name or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError("--pack needs --name, in small letters, digits and underscores.")
    # A run keeps the name of its folder, as it has in a folder of runs.
    given = [(path, path.parent if (path / "episodes.jsonl").exists() else path) for path in folders]
    files = [
        (file, str(file.relative_to(root)), root)
        for path, root in given
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != NOT_STORED
    ]
    if len({name for _, name, _ in files}) < len(files):
        raise UserError("--pack: two of these runs have the same name.")
    STORE.mkdir(exist_ok=True)
    archive = STORE / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        machines = {root: places(root, f"{NAMED}/{name}") for _, root in given}
        for path, place, root in files:
            add(file, path, place, machines[root])
    print(f"{archive.relative_to(REPO)}: {archive.stat().st_size:,} bytes")
    return 0


def places(folder: Path, becomes: str) -> dict[bytes, bytes]:
    """What stands for this machine's paths: the folder of the runs, the checkout they were started in, and Python's."""
    found = {str(folder.resolve()): becomes}
    for log in folder.rglob("main.log"):  # where tracebacks stand
        text = log.read_text(encoding="utf-8", errors="replace")
        found |= dict.fromkeys(re.findall(r'"(/\S+?)/lib/python\d', text), "python")
    for path in folder.rglob(".hydra/hydra.yaml"):
        text = path.read_text(encoding="utf-8")
        found |= dict.fromkeys(re.findall(r"run_dir=(/\S+)", text), becomes)
        found |= dict.fromkeys(re.findall(r"^ +cwd: (/\S+)", text, re.MULTILINE), ".")
    longest_first = sorted(found.items(), key=lambda item: -len(item[0]))
    return {was.encode(): shown.encode() for was, shown in longest_first}


def add(file: tarfile.TarFile, path: Path, place: str, machine: dict[bytes, bytes]) -> None:
    """One file, in text with this machine's paths replaced."""
    content = path.read_bytes()
    if path.suffix not in (".sqlite", ".journal"):  # a bank holds no paths
        for was, shown in machine.items():
            content = content.replace(was, shown)
        content = without_checksums(content, path.name)
    entry = tarfile.TarInfo(place)
    entry.size = len(content)
    file.addfile(entry, io.BytesIO(content))


def without_checksums(content: bytes, name: str) -> bytes:
    """A file of a run without its checksums, which its paths no longer fit; the archive has its own."""
    if name in (MANIFEST, SUMMARY):
        whole = {key: value for key, value in json.loads(content).items() if key not in (KEY, "files")}
        return (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode()
    return re.sub(rb"# crc32: [0-9a-f]{8}\n\Z", b"", content) if name.endswith(".yaml") else content


if __name__ == "__main__":
    sys.exit(main())
