"""A model that is made when it is first asked, so that a bank opens and is searched without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.errors import InfraError, UserError
from core.models.base import ChatModel, Reply, Request


class LateModel(ChatModel):
    """Stands for a model that may not be there yet, or not any more: a key is missing, a server does not answer.

    make   returns the model, or raises UserError or InfraError. Each use then raises InfraError, and the next one asks
           again
    """

    def __init__(self, make: Callable[[], ChatModel]) -> None:
        self._make = make

    @property
    def _model(self) -> ChatModel:
        try:
            return self._make()
        except UserError as error:
            raise InfraError(str(error), "connection") from error

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def supports_schema(self) -> bool:
        return self._model.supports_schema

    def chat(self, request: Request) -> Reply:
        return self._model.chat(request)

    def identity(self) -> dict[str, Any]:
        return self._model.identity()

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self._model.price(prompt_tokens, completion_tokens)
