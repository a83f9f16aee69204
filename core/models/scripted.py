"""llm=scripted: a deterministic model for tests and demos. What it says is a function of what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.models.base import ChatModel, Reply
from core.types import Message, Usage

Script = Callable[[list[Message], str, int], str]  # (messages, role, sample) -> text


@dataclass(kw_only=True)
class ScriptedModel(ChatModel):
    """Answers with `script(messages, role, sample)`; a token is a word.

    delay_s makes each call take that long, to watch a progress bar or to test concurrency; 0 answers at once.
    cache, cache_path and fallbacks as for every model, see core/models/reply_cache.py and core/models/fallback.py.
    """

    script: Script
    delay_s: float = 0.0
    name: str = "scripted"
    cache: str = "off"
    cache_path: str = "outputs/.cache/replies.sqlite"
    fallbacks: list[Any] | None = None
    supports_schema: bool = field(default=False, init=False)

    def chat(
        self, messages: list[Message], *, role, sample=0, seed=None, temperature=0.0, max_tokens=None, schema=None
    ) -> Reply:
        if self.delay_s:
            time.sleep(self.delay_s)
        text = self.script(messages, role, sample)
        prompt = sum(len(m["content"].split()) for m in messages)
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=len(text.split()), cost_usd=0.0)
        return Reply(text=text, usage=usage, finish_reason="stop", model=self.name)

    def identity(self) -> dict[str, Any]:
        named = self.script if hasattr(self.script, "__qualname__") else type(self.script)
        return {"model": self.name, "script": f"{named.__module__}.{named.__qualname__}"}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0
