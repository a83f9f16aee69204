"""llm.fallbacks: other models that answer after the first one has failed for good."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import AttemptOver, InfraError, StopRun
from core.models.base import ChatModel, Reply, Request
from core.types import Usage


@dataclass(kw_only=True)
class FallbackModel(ChatModel):
    """Calls its models in order until one answers; each call begins with the first. `Reply.failed` lists the others.

    A model has failed for good if its own retries are used up (InfraError) or no call can succeed (StopRun: a rejected
    key, no credit, a server that is gone). An AttemptOver, which is the agent's own doing, is raised at once. If all
    models fail: raises StopRun if each raised StopRun, else InfraError.

    models   at least two. Each has its own cache, limits and retries, so a cached reply always belongs to its model
    """

    models: list[ChatModel]
    name: str = field(init=False)  # the first model's: the requested one
    supports_schema: bool = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.supports_schema = self.models[0].name, self.models[0].supports_schema

    def chat(self, request: Request) -> Reply:
        errors: list[InfraError | StopRun] = []
        for model in self.models:
            schema = request.schema if model.supports_schema else None
            try:
                reply = model.chat(replace(request, schema=schema))
            except AttemptOver as error:
                error.usage = _paid([*errors, error])
                raise
            except (InfraError, StopRun) as error:
                if isinstance(error, InfraError) and error.kind == "closed":  # the run is ending: call no other model
                    raise
                errors.append(error)
            else:
                failed = [{"model": m.name, "error": str(e)} for m, e in zip(self.models, errors, strict=False)]
                usage = reply.usage + (_paid(errors) or Usage())
                paid = _paid([error for error in errors if not error.kept]) if reply.from_cache else None
                return replace(reply, fallback=model.name, failed=failed, usage=usage, paid=paid) if failed else reply
        raise _all(errors) from errors[-1]

    def identity(self) -> dict[str, Any]:
        return {"models": [model.identity() for model in self.models]}

    def unsupported(self, more: dict[str, Any]) -> str | None:
        return next((why for model in self.models if (why := model.unsupported(more))), None)

    def problem(self) -> str | None:
        return next((why for model in self.models if (why := model.problem())), None)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """The cost if the first model answers."""
        return self.models[0].price(prompt_tokens, completion_tokens)

    def close(self) -> None:
        for model in self.models:
            model.close()


def _all(errors: list[InfraError | StopRun]) -> InfraError | StopRun:
    """The error if every model failed. StopRun only if all are: otherwise a later call may succeed."""
    said = " Then its fallback: ".join(str(error) for error in errors)
    kind = next((error.kind for error in errors if isinstance(error, InfraError)), None)
    if kind is None:
        return StopRun(said)
    failure = InfraError(said, kind)
    failure.usage = _paid(errors)
    return failure


def _paid(errors: list[InfraError | StopRun]) -> Usage | None:
    """Usage of the rejected responses behind these errors; None if there were none."""
    used = [error.usage for error in errors if error.usage is not None]
    return sum(used, Usage()) if used else None
