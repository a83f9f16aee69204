"""The prompts of a run, each named for its purpose: `PROJECT.render(NAME, **values)` fills a template.

All prompts are rendered here. With judge.confidence=true, judge_confidence.jinja, which includes judge.jinja and also
asks for a confidence, replaces judge.jinja.

Templates are Jinja with StrictUndefined and are rendered once: values (questions, lessons, model text) are data and
may hold braces, backslashes or template syntax. The manifest records the hash of every template.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SYSTEM_INSTRUCTION_WITH_MEMORY = "system_instruction_with_memory"
JUDGE_PROMPT = "judge"
JUDGE_CONFIDENCE_PROMPT = "judge_confidence"  # replaces JUDGE_PROMPT with judge.confidence=true; not in the paper
EXTRACT_SUCCESS_PROMPT = "extract_success"
EXTRACT_FAILURE_PROMPT = "extract_failure"
MATTS_PARALLEL_CONTRAST_PROMPT = "matts_parallel_contrast"
MATTS_SEQUENTIAL_CHECK_PROMPT = "matts_sequential_check"
MATTS_SEQUENTIAL_EXTRACT_PROMPT = "matts_sequential_extract"
SELECT_BEST_PROMPT = "select_best"
GRADE_ANSWER_PROMPT = "grade_answer"  # for grader=model, not in the paper
INDUCE_WORKFLOWS_PROMPT = "induce_workflows"
MEMORY_BLOCK = "memory_block"  # fills the slot {{ memory_block }} of the system instruction
MERGE_LESSONS_PROMPT = "merge_lessons"  # MERGE_LESSONS and RELATE_LESSONS: for memory.consolidate, not in the paper
RELATE_LESSONS_PROMPT = "relate_lessons"
RELATE_LESSONS_CONFIDENCE_PROMPT = "relate_lessons_confidence"  # replaces it where a probability is asked for
FORMS = {"paper": MEMORY_BLOCK, "plain": "memory_block_plain", "plain_zh": "memory_block_plain_zh"}
OTHER_FORMS = [name for name in FORMS.values() if name != MEMORY_BLOCK]
CORRUPT_LESSONS_PROMPT = "corrupt_lessons"  # for retrieval=corrupt, not in the paper
SECOND_OPINION_PROMPT = "second_opinion"  # for memory.hygiene, not in the paper

# Folders of further extraction prompts, for +distiller.style=steps and =quote: steps/extract_success and so on.
STEPS, QUOTE = STYLES = ("steps", "quote")
RIVALS = "rivals"  # the folder of the prompts of memory=ace, expel and so on (core/memory/rivals), named by file
# Folders whose templates replace those of the same name where a detail asks for it (core/details.py).
NO_RULE_EXCEPTION, WORKFLOWS_EXAMPLE = "no_rule_exception", "workflows_example"
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The templates of a run.

    own            a folder whose templates replace those of the same name here; None: no such folder
    memory_block   paper | plain | plain_zh: how retrieved lessons are written: as in the paper, or as Title and Content
                   lines in English or Chinese
    """

    own: str | None = None
    memory_block: str = "paper"

    @classmethod
    def of(cls, config: Any) -> Prompts:
        """The prompts for the configuration's key `prompts`: {folder, memory_block}, a folder alone, or null."""
        if config is None or isinstance(config, str):
            return cls(own=config)
        return cls(own=config["folder"], memory_block=config["memory_block"])

    def render(self, name: str, variant: str | None = None, **values: object) -> str:
        """Fill a template with its values. Raises jinja2.TemplateError, in one sentence, for one that cannot be filled.

        variant   a folder of prompts/ whose templates, also included ones, replace those of the same name, but not
                  those of `own`
        """
        if name == MEMORY_BLOCK:
            name = FORMS[self.memory_block]
        *own, ours = self._folders()
        folders = (*own, *((ours / variant,) if variant else ()), ours)
        return _filled(_environment(*folders), f"{name}.jinja", values).strip()

    def hashes(self, *more: str) -> dict[str, str]:
        """{template: sha256}, for the manifest: two runs with the same hashes used the same prompts.

        Of the forms of MEMORY_BLOCK it has only the one in use, under the name MEMORY_BLOCK.

        more   folders of prompts/ whose templates are used as well, e.g. STEPS
        """
        paths = [path for folder in reversed(self._folders()) for path in sorted(folder.glob("*.jinja"))]
        templates = {path.stem: path for path in paths}
        templates |= {f"{name}/{path.stem}": path for name in more for path in sorted((_FOLDER / name).glob("*.jinja"))}
        hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in templates.items()}
        used = hashes[FORMS[self.memory_block]]
        return {name: used if name == MEMORY_BLOCK else h for name, h in hashes.items() if name not in OTHER_FORMS}

    def source(self) -> str:
        """The source text of all templates, unrendered."""
        return "\n".join(path.read_text("utf-8") for folder in self._folders() for path in folder.glob("*.jinja"))

    def _folders(self) -> tuple[Path, ...]:
        return (_FOLDER,) if self.own is None else (Path(self.own), _FOLDER)


PROJECT = Prompts()


def _filled(environment: Any, name: str, values: dict[str, object]) -> str:
    from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError

    try:
        return environment.get_template(name).render(**values)
    except TemplateSyntaxError as error:
        raise TemplateError(f"the prompt {error.filename}, line {error.lineno}: {error.message}") from error
    except UndefinedError as error:
        raise UndefinedError(
            f"the prompt {name}: {error.message}; its values are {', '.join(sorted(values))}."
        ) from error


@cache
def _environment(*folders: Path):
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(  # templates may be a stranger's: they write texts, and reach nothing else
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        auto_reload=False,  # a run goes on with the templates whose hashes its manifest has
    )
