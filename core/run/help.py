"""python main.py --help: how to start, and the groups, on one screen; --help GROUP: its options; --help keys: all keys.

The text is read from the YAML files' first comments; nothing else of the project is imported, so that the help appears
immediately.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from core.errors import meant
from core.version import version_line

CONFIG = Path(__file__).parents[2] / "config"
KEYS = "keys"  # the word that asks for them
ALL = "--help alone lists the groups."
WIDEST = 100  # most characters of a line, even in a wider terminal
# The order of the groups; others follow by name.
FIRST = "env arm workflow llm memory setting judge retrieval experiment".split()
HOW = """\
Does reasoning memory make an agent better? A run streams the tasks of a
benchmark through an agent that keeps lessons in a memory, and measures it.

  python main.py experiment=recorded          a study, from recorded replies
  python main.py                              bundled problems, bundled model
  python main.py env=math500 arm=no_memory    a benchmark, the baseline
  python main.py -m arm=no_memory,reasoningbank seed=0,1,2            a sweep
  python main.py experiment=main_table        the paper's main table, as a sweep
  python main.py ... dry_run=true             what it would ask and cost
  python main.py ... run_dir=FOLDER           again to go on where it stopped
  reasoningbank tables FOLDER                 the table of what was run

  python main.py --help judge                 the options of a group
  python main.py --help env=alfworld          the keys of one option
  python main.py --help keys                  the keys of a run
  python main.py --cfg job env=alfworld       every key with its value
"""


def how() -> str:
    """`HOW` with the program as it was called."""
    if Path((sys.orig_argv[1:] or [""])[0]).stem != "reasoningbank":
        return HOW
    return HOW.replace("python main.py", "reasoningbank eval")


def asked(words: list[str]) -> bool:
    """Whether a command line asks for help, or for the version alone."""
    return bool({"--help", "-h"} & set(words)) or words == ["--version"]


def print_help(words: list[str]) -> None:
    """Print what the words ask for: the file of each GROUP=OPTION, the options of each GROUP, the keys of a run.

    Else all groups, a line each; the version, if it alone is asked for. Ends the program for a group that there is not.
    """
    if words == ["--version"]:
        print(version_line())
        return
    folders, width = [*config_dirs(words), CONFIG], min(WIDEST, shutil.get_terminal_size().columns)
    chosen = [word.split("=", 1) for word in words if "=" in word and not word.startswith("-")]
    files = [file for group, name in chosen if (file := _file(folders, group.lstrip("+"), name))]
    known = options(folders)
    asked_for = [group for word in words for group in known if group[:-1] == word.rstrip("=/")]
    behind = next((after for flag, after in pairwise(words) if flag in ("--help", "-h")), KEYS)
    if not asked_for and behind != KEYS and re.fullmatch(r"\w+", behind):
        sys.exit(f"error: no group is called {behind}{meant(behind, [KEYS, *(group[:-1] for group in known)])} {ALL}")
    parts = [f"# {file}\n{file.read_text(encoding='utf-8')}" for file in files]
    parts += ["\n".join(choices({group: known[group] for group in asked_for}, width))] if asked_for else []
    parts += ["\n".join(keys(width))] if KEYS in words else []
    print("\n".join(parts or [how(), *groups(known, width)]))


def config_dirs(words: list[str]) -> list[Path]:
    """The folders that a command line names by --config-dir."""
    flags = ("--config-dir", "-cd")
    after = [words[place + 1] for place, word in enumerate(words[:-1]) if word in flags]
    joined = [word.partition("=")[2] for word in words if word.startswith("--config-dir=")]
    return [Path(folder) for folder in (*after, *joined)]


def options(folders: list[Path]) -> dict[str, dict[str, Path]]:
    """{group: {option: its file}}, groups in the order of `FIRST`, then by name. Earlier folders take precedence.

    Options in subfolders are listed under the top folder: {"memory/": {"hygiene=guard": ...}}.
    """
    found: dict[str, dict[str, Path]] = {}
    for folder in folders:
        for file in sorted(folder.rglob("*.yaml")):
            group, _, below = file.parent.relative_to(folder).as_posix().partition("/")
            if group not in (".", "hydra"):
                group, name = (f"{group}/", f"{below}={file.stem}") if below else (f"{group}=", file.stem)
                found.setdefault(group, {}).setdefault(name, file)
    first = [f"{group}=" for group in FIRST]
    places = {group: (first.index(group) if group in first else len(first), group) for group in found}
    return {group: dict(sorted(found[group].items())) for group in sorted(found, key=places.__getitem__)}


def described(file: Path) -> str:
    """The first sentence of a file's leading comments, without commands; "" if there is none."""
    comments: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").strip()
        if text.startswith(("python ", "reasoningbank ")):
            if comments:
                break
        elif not text.startswith("@package"):
            comments.append(text)
    if comments and (named := re.match(r"[\w/]+=\w+, see [\w.]+: (\w)", comments[0])):
        comments[0] = named.group(1).upper() + comments[0][named.end() :]
    sentence = re.match(r".*?[^.\s]\.(?=\s+[A-Z]|$)", " ".join(comments))
    return (sentence.group() if sentence else " ".join(comments)).rstrip(".")


def groups(known: dict[str, dict[str, Path]], width: int) -> Iterator[str]:
    """A line for each group: what is taken without, how many options it has, what it is."""
    yield "Choose one of each group, GROUP=OPTION (here: what is taken without):\n"
    defaults, about = _defaults()
    for group, files in known.items():
        if (name := group.removesuffix("=")) != group:
            usual = defaults.get(name, "null").replace("null", "")
            text = textwrap.shorten(about.get(name, ""), width - 33, placeholder=" ...")
            yield f"  {group + usual:<24}{f'of {len(files)}':<7}{text}".rstrip()


def choices(known: dict[str, dict[str, Path]], width: int) -> Iterator[str]:
    """Text of groups with their options, one line each."""
    yield "GROUP=OPTION chooses one (* is what is taken without)\n"
    defaults, about = _defaults()
    for group, files in known.items():
        yield "\n".join(_wrapped(group, about.get(group.removesuffix("="), ""), len(group) + 2, width))
        column = min(26, max(map(len, files))) + 5
        for name, file in files.items():
            mark = "*" if defaults.get(group.removesuffix("=")) == name else " "
            yield "\n".join(_wrapped(f" {mark} {name}", described(file), column, width))
        yield ""


def keys(width: int) -> Iterator[str]:
    """Text of the keys of config.yaml, with their values and comments."""
    yield "Keys: KEY=VALUE\n"
    for key, value, comment in _keys(CONFIG / "config.yaml"):
        yield "\n".join(_wrapped(f"   {key}" + (f"={value}" if value else ""), comment, 29, width))


def _keys(file: Path) -> list[tuple[str, str, str]]:
    """(dotted key, value, comment) of the keys below the defaults list, without `hydra`."""
    body = file.read_text(encoding="utf-8").split("\n\n", 1)[1].split("\nhydra:")[0]
    found: list[tuple[str, str, str]] = []
    path: list[tuple[int, str]] = []
    depth = 0  # of braces
    for line in body.splitlines():
        inside, depth = depth > 0, depth + line.count("{") - line.count("}")
        more = re.match(r"\s+#\s*(.*)", line)
        if more and found:
            found[-1] = (*found[-1][:2], f"{found[-1][2]} {more.group(1)}")
        made = re.match(r"( *)(\w+):\s*([^#{]*?)\s*(?:#\s*(.*))?$", line)
        if inside or not made or made.group(2) == "_target_":
            continue
        indent, name = len(made.group(1)), made.group(2)
        path = [(n, each) for n, each in path if n < indent] + [(indent, name)]
        found.append((".".join(each for _, each in path), made.group(3) or "", made.group(4) or ""))
    return [(key, value, comment) for key, value, comment in found if value or comment]


def _defaults() -> tuple[dict[str, str], dict[str, str]]:
    """({group: its default option}, {group: the comment on it}) of config.yaml."""
    text = (CONFIG / "config.yaml").read_text(encoding="utf-8")
    lines = re.findall(r"^  - ([\w@]+): (\S+)\s*(?:# (.*))?$", text, re.MULTILINE)
    return {group: name for group, name, _ in lines}, {group: comment for group, _, comment in lines}


def _file(folders: list[Path], group: str, name: str) -> Path | None:
    files = (folder / group.partition("@")[0] / f"{name}.yaml" for folder in folders)
    return next((file for file in files if file.is_file()), None)


def _wrapped(name: str, text: str, column: int, width: int) -> list[str]:
    """A name with its wrapped text from `column` on; the text begins on the next line if the name is too long."""
    lines = textwrap.wrap(text, max(20, width - column), break_on_hyphens=False) or [""]
    first = [f"{name:<{column}}{lines[0]}"] if len(name) < column else [name, " " * column + lines[0]]
    return [line.rstrip() for line in [*first, *(" " * column + line for line in lines[1:])]]
