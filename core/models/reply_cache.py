"""The response cache: a run that is repeated asks no question twice, and `replay` asks none at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import AttemptOver, InfraError, StopRun, UserError
from core.models.base import ChatModel, Reply
from core.models.key_value import KeyValueFile
from core.types import Message, Usage, digest

MODES = ("off", "read_write", "replay")
NOT_KEPT = ("from_cache", "retries", "fallback", "failed", "paid")  # of a Reply: how this call went


def cached(model: Any) -> ChatModel:
    """The model behind the cache that its own `cache` and `cache_path` ask for; with `off`, the model itself."""
    if model.cache not in MODES:
        raise UserError(f"llm.cache={model.cache}: choose {', '.join(MODES)}.")
    return model if model.cache == "off" else CachedModel(inner=model, path=model.cache_path, mode=model.cache)


@dataclass(kw_only=True)
class CachedModel:
    """A ChatModel whose answers are kept in a SQLite file.

    The key is the whole request (model, its server or file, messages, decoding, schema) with the role and the sample
    index: k samples of one prompt stay k answers. Errors are not kept, except those that ended an attempt by its own
    doing: a replay ends it at the same place, while read_write asks again. Of the others what was paid for them is: a
    replay of a fallback's answer (core/models/fallback.py) costs its episode what the recorded one did.
    """

    inner: ChatModel
    path: str
    mode: str

    def __post_init__(self) -> None:
        self.name, self.supports_schema = self.inner.name, self.inner.supports_schema
        columns = "key TEXT PRIMARY KEY, model TEXT NOT NULL, role TEXT NOT NULL, reply TEXT NOT NULL"
        self._file = KeyValueFile(path=self.path, what="the response cache", table="replies", columns=columns)
        if self.mode == "replay" and not Path(self.path).is_file():
            raise UserError(f"llm.cache=replay: {self.path} does not exist; record it first with llm.cache=read_write.")

    def chat(
        self,
        messages: list[Message],
        *,
        role,
        sample=0,
        seed=None,
        temperature=0.0,
        max_tokens=None,
        schema=None,
        more=None,
    ) -> Reply:
        """The kept answer, else (read_write) the model's. Raises StopRun on a miss in replay."""
        decoding = {"seed": seed, "temperature": temperature, "max_tokens": max_tokens, "schema": schema}
        decoding |= {"more": more} if more else {}
        key = digest(self.inner.identity(), messages, role, sample, decoding)
        if (text := self._file.get(key)) is not None:
            kept = json.loads(text)
            return Reply(**kept | {"usage": Usage(**kept["usage"]), "from_cache": True})
        if self.mode == "replay" and (refusal := self._file.get(f"{key} refused")):
            raise _refused(*json.loads(refusal))
        if self.mode == "replay":
            missing = StopRun(
                f"llm.cache=replay: {self.path} holds no answer to this request of role {role}, sample {sample}: "
                "its prompt, model or decoding differs from the recorded ones."
            )
            paid = self._file.get(f"{key} paid")
            missing.usage, missing.kept = Usage(**json.loads(paid)) if paid else None, True
            raise missing
        try:
            reply = self.inner.chat(messages, role=role, sample=sample, **decoding)
        except AttemptOver as error:
            paid = [vars(error.usage)] if error.usage else []
            self._file.put(f"{key} refused", self.name, role, json.dumps([str(error), error.kind, *paid]))
            raise
        except InfraError as error:
            if error.usage:
                self._file.put(f"{key} paid", self.name, role, json.dumps(vars(error.usage)))
            raise
        kept = {name: value for name, value in vars(reply).items() if name not in NOT_KEPT}
        text = json.dumps(kept | {"usage": vars(reply.usage)}, sort_keys=True)  # ASCII: no text is refused
        self._file.put(key, self.name, role, text)
        return reply

    def identity(self) -> dict[str, Any]:
        return self.inner.identity()

    def refuses(self, more: dict[str, Any]) -> str | None:
        return self.inner.refuses(more)

    def problem(self) -> str | None:
        """Replay needs no key and no server."""
        return None if self.mode == "replay" else self.inner.problem()

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self.inner.price(prompt_tokens, completion_tokens)

    def close(self) -> None:
        self._file.close()
        self.inner.close()


def _refused(message: str, kind: str, paid: dict[str, Any] | None = None) -> AttemptOver:
    error = AttemptOver(message, kind)
    error.usage, error.kept = Usage(**paid) if paid else None, True
    return error
