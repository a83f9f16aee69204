"""The prompts by intent: `render(NAME, **values)` fills a template. All prompts are made here.

Templates are Jinja with StrictUndefined and are rendered once: values (questions, lessons, model text) are data and
may hold braces, backslashes or template syntax. The manifest records the hash of every template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SYSTEM_INSTRUCTION_WITH_MEMORY = "system_instruction_with_memory"
JUDGE_PROMPT = "judge"
EXTRACT_SUCCESS_PROMPT = "extract_success"
EXTRACT_FAILURE_PROMPT = "extract_failure"
MATTS_PARALLEL_CONTRAST_PROMPT = "matts_parallel_contrast"
MATTS_SEQUENTIAL_CHECK_PROMPT = "matts_sequential_check"
MATTS_SEQUENTIAL_EXTRACT_PROMPT = "matts_sequential_extract"
SELECT_BEST_PROMPT = "select_best"
INDUCE_WORKFLOWS_PROMPT = "induce_workflows"
MEMORY_BLOCK = "memory_block"  # fills the slot {{ memory_block }} of the system instruction
MERGE_LESSONS_PROMPT = "merge_lessons"  # this and the next are for memory.consolidate, not in the paper
RELATE_LESSONS_PROMPT = "relate_lessons"

INTENTS = (
    SYSTEM_INSTRUCTION_WITH_MEMORY,
    JUDGE_PROMPT,
    EXTRACT_SUCCESS_PROMPT,
    EXTRACT_FAILURE_PROMPT,
    MATTS_PARALLEL_CONTRAST_PROMPT,
    MATTS_SEQUENTIAL_CHECK_PROMPT,
)
_FOLDER = Path(__file__).parent
_OWN: list[Path] = []  # folders of the run whose templates come first


@contextmanager
def preferring(folder: Path) -> Iterator[None]:
    """Templates of this folder take the place of those here until the block ends, in every thread of the process."""
    _OWN.append(folder)
    try:
        yield
    finally:
        _OWN.remove(folder)


@cache
def _environment(*own: Path):
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([*own, _FOLDER]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(name: str, **values: object) -> str:
    """A template's text with its values; a missing value raises jinja2.UndefinedError."""
    return _environment(*_OWN).get_template(f"{name}.jinja").render(**values).strip()


def hashes() -> dict[str, str]:
    """sha256 of every template, for the manifest: two runs with the same hashes were asked the same way."""
    found = [path for folder in (_FOLDER, *_OWN) for path in sorted(folder.glob("*.jinja"))]
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
