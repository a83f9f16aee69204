"""The prompts by intent: `render(NAME, **values)` fills a template. All prompts are made here.

Templates are Jinja with StrictUndefined and are rendered once: values (questions, lessons, model text) are data and
may contain braces, backslashes or template syntax. To change a prompt, edit its file: the manifest records its hash.
"""

from __future__ import annotations

import hashlib
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


@cache
def _environment():
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(name: str, **values: object) -> str:
    """The template filled with the values; a missing value raises jinja2.UndefinedError."""
    return _environment().get_template(f"{name}.jinja").render(**values).strip()


def hashes() -> dict[str, str]:
    """sha256 of every template, for the manifest: runs with the same hashes used the same prompts."""
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(_FOLDER.glob("*.jinja"))}
