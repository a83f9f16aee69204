"""What to do after a run: the same run with or without memory, then the comparison of the two."""

from __future__ import annotations

import shlex
from pathlib import Path

from omegaconf import DictConfig

from core.build import part
from core.run.launch import again, choice, command_line, program, short

ENDINGS = ("-without-memory", "-with-memory")  # of the directory of a run's partner
# What a run without memory would ignore or refuse, and what the partner chooses by itself.
_DROPPED = ("workflow", "arm", "select", "contrast", "k", "r", "refine")


def next_step(cfg: DictConfig, run_dir: Path) -> list[str]:
    """Lines to print: what comes next, then its commands, which can be pasted. [] where that is not known."""
    for ending in ENDINGS:
        first = run_dir.with_name(run_dir.name.removesuffix(ending))
        if first != run_dir and (first / "summary.json").exists():
            return ["next, what memory changed, and every episode on one page:", *_together(*_pair(first, run_dir))]
    if getattr(part(cfg.agent), "uses_gold", False):
        return []
    has_memory = part(cfg.workflow).has_memory and getattr(part(cfg.memory), "learns", True)
    if not has_memory and not cfg.setting.learn and cfg.memory.get("path") is None:
        return []  # with memory it would need a bank
    partner = run_dir.with_name(run_dir.name + ENDINGS[not has_memory])
    words = [*_words(has_memory), _chosen(has_memory)]
    said = "without memory" if has_memory else "with memory"
    compare = _together(*_pair(run_dir, partner))[:1]
    return [f"next, the same {said}, and what memory changed:", again(partner, words), *compare]


def _words(has_memory: bool) -> list[str]:
    """The words of this run that its partner shares."""
    dropped = _DROPPED if has_memory else (*_DROPPED, "memory")
    words = [(word, word.lstrip("+~").partition("=")[0].partition(".")[0]) for word in command_line()[1:]]
    return [word for word, key in words if key not in dropped]


def _chosen(has_memory: bool) -> str:
    """The partner's method: an arm where this run was given one."""
    arm = choice("arm")
    if has_memory:
        return "arm=no_memory" if arm else "workflow=vanilla"
    named = arm.removesuffix("_no_memory") if arm else ""
    return f"arm={'reasoningbank' if named == 'no_memory' else named}" if named else "workflow=reasoningbank"


def _pair(one: Path, other: Path) -> tuple[Path, Path]:
    """The two directories, the run without memory first: what the other is compared with."""
    bare = other.name.endswith(ENDINGS[0]) or one.name.endswith(ENDINGS[1])
    return (other, one) if bare else (one, other)


def _together(*runs: Path) -> list[str]:
    """The commands that read finished runs. The scripts are found from the folder of this checkout alone."""
    root = Path(__file__).parents[2]
    home = root == Path.cwd()
    paths = [str(short(path) if home else path.resolve()) for path in runs]
    page = str(Path(paths[-1]).parent / "report.html")
    commands = [["scripts.compare", *paths], ["scripts.report", *paths, "-o", page]]
    go = "" if home else f"cd {shlex.quote(str(root))} && "
    return [go + shlex.join([program()[0], "-m", *words]) for words in commands]
