"""A text classifier that a server offers, e.g. one trained on prompt injection (`memory.hygiene.classifier`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.errors import StopRun, UserError, check_numbers, check_positive
from core.models.network import http_client
from core.models.servers import key_in
from core.types import MemoryRecord


class Classifier(Protocol):
    """What the guard asks about a lesson that broke no rule."""

    def judge(self, record: MemoryRecord) -> dict[str, Any]:
        """{harmful, ...}, as JSON; harmful None and an `error` if it cannot say."""
        ...


@dataclass(kw_only=True)
class ServedClassifier(Classifier):
    """POST {"inputs": text} to a server of text-classification, as text-embeddings-inference and Hugging Face speak it.

    The answer holds {"label": L, "score": S} for one label or for each, in lists or not. A lesson is harmful if the
    score of one of `harmful` reaches the threshold. The texts of lessons leave the machine if the server is elsewhere.

    url           address of its route, e.g. http://localhost:8080/predict
    harmful       labels of attacks, in any case
    threshold     0 to 1
    timeout_s     limit of one call, in seconds
    api_key_env   environment variable with the key, which is sent as a bearer token; None: no key
    """

    url: str
    harmful: list[str] = field(default_factory=lambda: ["injection", "jailbreak", "malicious", "unsafe", "label_1"])
    threshold: float = 0.5
    timeout_s: float = 10.0
    api_key_env: str | None = None
    _client: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        where = "memory.hygiene.classifier"
        if not str(self.url).startswith(("http://", "https://")):
            raise UserError(f"{where}.url={self.url}: give an address, e.g. http://localhost:8080/predict.")
        if self.api_key_env and not key_in(self.api_key_env):
            raise UserError(f"{where}.api_key_env={self.api_key_env}: this variable is not set.")
        check_numbers(self, where, "threshold", least=0, most=1)
        check_positive(self, where, "timeout_s")

    def judge(self, record: MemoryRecord) -> dict[str, Any]:
        """{harmful, score}: the highest score of a harmful label, over the record's lessons."""
        try:
            score = max(self._score(item.text) for item in record.items)
        except _Broken as error:
            return {"harmful": None, "error": str(error)}
        return {"harmful": score >= self.threshold, "score": round(score, 4)}

    def _score(self, text: str) -> float:
        import httpx

        key = key_in(self.api_key_env)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self._client = self._client or http_client(self.url, timeout_s=self.timeout_s)
            answer = self._client.post(self.url, json={"inputs": text}, headers=headers)
            found = list(_labelled(answer.json())) if answer.status_code == 200 else []
        except (httpx.HTTPError, httpx.InvalidURL, StopRun) as error:
            raise _Broken(f"connection: {type(error).__name__}") from error
        except (ValueError, RecursionError) as error:
            raise _Broken("unreadable answer") from error
        if not found:
            raise _Broken("unreadable answer" if answer.status_code == 200 else f"status {answer.status_code}")
        names = {name.lower() for name in self.harmful}
        return max((score for label, score in found if label.lower() in names), default=0.0)


class _Broken(Exception):
    """The server gave no score; the message is noted in the record."""


def _labelled(answer: Any) -> Iterator[tuple[str, float]]:
    """(label, score) of everything in an answer that has both."""
    for part in answer if isinstance(answer, list) else [answer]:
        if isinstance(part, list):
            yield from _labelled(part)
        elif isinstance(part, dict) and isinstance(part.get("label"), str):
            score = part.get("score")
            if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1:
                yield part["label"], float(score)
