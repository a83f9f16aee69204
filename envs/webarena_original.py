"""WebArena's original evaluation (Zhou et al. 2023, evaluation_harness/evaluators.py), at the end of an attempt.

    string_match    the answer is a text, or holds texts; or a model says that it means the same (fuzzy_match)
    url_match       the page that was left open is at an address
    program_html    pages hold texts: see envs/web/looks.py

Every part must hold. The original calls a model of 2023 for fuzzy_match; here it is whoever `ask` is, with the
original's words.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from core.errors import InfraError
from envs.web.looks import Look
from envs.web.sites import Ended
from envs.webarena_tasks import WebTask, at
from envs.webarena_verifier import WebVerdict

OR = " |OR| "
Ask = Callable[[str], str]  # a question -> a model's answer
_TOKEN = re.compile(r"\w+(?:[-.,:'/]\w+)*|[^\w\s]")  # about as NLTK's word_tokenize, which the original asks
SAME = """Help a teacher to grade the answer of a student given a question. Keep in mind that the student may use \
different phrasing or wording to answer the question. The goal is to evaluate whether the answer is semantically \
equivalent to the reference answer.
question: {question}
reference answer: {reference}
all the string 'N/A' that you see is a special sequence that means 'not achievable'
student answer: {answer}
Conclude the judgement by correct/incorrect/partially correct."""
REASON = """A task described in Task_1 cannot be completed for reason listed in Reason_1. A person tried to complete \
the task and failed, he reported his attempt in Report_1, check if Report_1 is refering to Reason_1, even implicitly. \
If match, return same, else, return different
Task_1 = {question}
Reason_1 = {reference}
Report_1 = {answer}
return [same] or [different]"""


def looks_of(task: WebTask, urls: dict[str, str]) -> list[Look]:
    """The pages that must be looked at before the browser is closed."""
    if "program_html" not in task.checks["eval_types"]:
        return []
    return [
        Look(url=at(urls, each["url"]), locator=each["locator"], before=tuple(each.get("prep_actions", ())))
        for each in task.checks["program_html"]
    ]


def verdict(task: WebTask, answer: str | None, ended: Ended, urls: dict[str, str], ask: Ask | None) -> WebVerdict:
    """Of an attempt that is over. Raises InfraError where a model must be asked and there is none."""
    failed = []
    for kind in task.checks["eval_types"]:
        if kind == "string_match":
            failed += [f"string_match: {each}" for each in _answer_lacks(task, clean(answer or ""), ask)]
        elif kind == "url_match" and not url_matches(at(urls, task.checks["reference_url"]), ended.url):
            failed.append("url_match")
        elif kind == "program_html":
            checks = zip(task.checks["program_html"], ended.found, strict=True)
            failed += [f"program_html {n}" for n, (each, text) in enumerate(checks) if not holds(each, text)]
    return WebVerdict(score=float(not failed), failed=tuple(failed))


def asks_model(task: WebTask) -> bool:
    """Whether a model may be asked about the answer."""
    return "fuzzy_match" in (task.checks["reference_answers"] or {})


def described(task: WebTask) -> str:
    """What a task expects, in a line, for the record."""
    checks = task.checks
    told = [checks.get("reference_answer_raw_annotation") or "", checks["reference_url"]]
    for each in checks["program_html"] or ():
        told += [each["url"], *_wanted(each)]
    return "; ".join(filter(None, told)) or str(checks["reference_answers"])


def clean(text: str) -> str:
    text = text.strip()
    for sign in "'\"":
        if text.startswith(sign) and text.endswith(sign):
            text = text[1:-1]
            break
    return text.lower()


def includes(wanted: str, text: str, *, alone: bool = False) -> bool:
    """alone: nothing else is wanted, so that a single letter or digit must be a word of its own."""
    wanted, text = clean(wanted), clean(text)
    return wanted in _TOKEN.findall(text) if alone and len(wanted) == 1 else wanted in text


def holds(check: dict[str, Any], text: str) -> bool:
    """Whether the text that was found on a page is as one of `program_html` wants it."""
    text = html.unescape(text)
    if "exact_match" in check["required_contents"]:
        return clean(text) == clean(check["required_contents"]["exact_match"])
    return all(any(includes(one, text) for one in wanted.split(OR)) for wanted in _wanted(check))


def url_matches(reference: str, url: str) -> bool:
    """GOLD in PRED: a reference's host and path stand in those of the page, and each of its query's keys has a value
    of the references'."""
    place, query = _parts(url)
    bases, values = [], defaultdict(set)
    for one in reference.split(OR):
        base, wanted = _parts(one)
        bases.append(base)
        for key, found in wanted.items():
            values[key].update(found)
    return any(base in place for base in bases) and all(values[key] & set(query.get(key, ())) for key in values)


def _answer_lacks(task: WebTask, answer: str, ask: Ask | None) -> list[str]:
    lacks = []
    for how, wanted in task.checks["reference_answers"].items():
        if how == "exact_match":
            lacks += [how] * (answer != clean(wanted))
        elif how == "must_include":
            lacks += [f"{how} {n}" for n, one in enumerate(wanted) if not includes(one, answer, alone=len(wanted) == 1)]
        elif wanted == "N/A":
            note = {"question": task.intent, "reference": task.checks["string_note"], "answer": answer}
            lacks += [how] * (answer != "n/a" and not _says(ask, REASON, note, "same", ("different",)))
        else:
            for reference in wanted:
                note = {"question": task.intent, "reference": reference, "answer": answer}
                right = answer and _says(ask, SAME, note, "correct", ("partially correct", "incorrect"))
                lacks += [how] * (not right)
    return lacks


def _says(ask: Ask | None, question: str, values: dict[str, str], yes: str, no: tuple[str, ...]) -> bool:
    """A reply that holds neither is a no, as in BrowserGym."""
    if ask is None:
        raise InfraError("this task's answer is judged by a model (fuzzy_match), and there is none to ask")
    reply = ask(question.format_map(values)).lower()
    return yes in reply and not any(word in reply for word in no)


def _parts(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(url.rstrip("/"))
    return (parts.netloc + parts.path).rstrip("/"), parse_qs(parts.query)


def _wanted(check: dict[str, Any]) -> list[str]:
    wanted = check["required_contents"]
    return [wanted["exact_match"]] if "exact_match" in wanted else wanted["must_include"]
