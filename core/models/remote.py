"""llm=openai|anthropic|gemini|vllm|ollama|remote: a chat model of any provider."""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core.errors import AttemptOver, InfraError, StopRun, TransientError, UserError, check_numbers
from core.models import direct
from core.models.base import ConfiguredModel, Reply, Request, reply_limit
from core.models.cut_prompts import PromptWatch
from core.models.endpoint import Endpoint
from core.models.faults import end_of, reason_given, refused_within
from core.models.litellm_library import load_litellm
from core.models.message import SETTING, apart, misplaced_text
from core.models.prices import expected_cost
from core.models.retry import error_within
from core.models.system_role import may_refuse_system, without_system
from core.models.token_counts import Counts, counts_of_response
from core.reply_marks import plain_reply
from core.tokens import estimate_tokens
from core.types import Message, Usage

_OLLAMA = ("ollama_chat", "ollama")  # providers that take num_ctx with a call
_TOKENS_OF_A_REPLY = 1000  # estimate for tokens_per_min, until the real number is known
_NEARLY_FULL = 0.85  # part of the context window from which on a prompt may be too long: tokens are estimated
_LEAST_TOKENS = 200  # no window is smaller, so that a shorter prompt is never refused for its length
log = logging.getLogger("run.retries")


@dataclass(kw_only=True)
class LiteLLMModel(Endpoint, ConfiguredModel):
    """One remote chat model. Besides the keys of Endpoint and ConfiguredModel:

    max_tokens    limit of a reply if the role sets none (`reply_limit`); None: the provider's
    num_ctx       Ollama's context window in tokens, sent with each call; None: the server's own
    json_schema   constrain the replies of judge and distiller by a JSON schema; only if the server supports it
    reasoning     {open, close}: the marks that set the model's thoughts apart, where neither the server does so nor the
                  marks are <think> and the like
    """

    max_tokens: int | None = None
    num_ctx: int | None = None
    json_schema: bool = False
    reasoning: dict[str, str] | None = None
    name: str = field(init=False)
    supports_schema: bool = field(init=False)
    _params: frozenset[str] | None = field(default=None, init=False, repr=False)
    _longest: int = field(default=0, init=False, repr=False)  # characters of the longest prompt that was taken
    _not_for_length: set[str] = field(default_factory=set, init=False, repr=False)  # refusals that a cut did not mend
    _watch: PromptWatch = field(default_factory=PromptWatch, init=False, repr=False)
    # Whether the system message goes to the user's; None: not known before the first reply, or the first refusal
    _without_system: bool | None = field(default=None, init=False, repr=False)
    _n_asking: int = field(default=0, init=False, repr=False)  # calls in flight until that is known
    _asking: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_ctx is not None:
            self._check_num_ctx()
        if self.reasoning is not None and (
            set(self.reasoning) != {"open", "close"} or not all(self.reasoning.values())
        ):
            raise UserError(f"llm.reasoning={self.reasoning}: give both marks, {{open: '<TAG>', close: '</TAG>'}}.")
        self.name, self.supports_schema = self.model, self.json_schema

    def chat(self, request: Request) -> Reply:
        wanted: dict[str, Any] = {"temperature": request.temperature, "seed": request.seed}
        wanted["max_tokens"] = reply_limit(request, self.max_tokens)
        if request.schema:
            json_schema = {"name": request.role, "schema": request.schema}
            wanted["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        sent = self._supported({name: value for name, value in wanted.items() if value is not None})
        sent |= _as_sent(request.more) | ({"num_ctx": self.num_ctx} if self.num_ctx else {})
        self._worked = self._worked or request.proven
        try:
            response, retries, rejected = self._complete(request.messages, sent, request.schema)
        except InfraError as error:
            if over := self._outgrown(error, request.messages, sent):
                raise over from error
            raise
        self._longest = max(self._longest, _length(request.messages))
        choice, counts = response.choices[0], counts_of_response(response)
        declined = not choice.message.content and _refusal(choice.message)
        text, thoughts = apart(_text(choice.message), self.reasoning)
        if "response_format" in sent:
            sent["response_format"] = "json_schema"
        if self._without_system and without_system(request.messages) != request.messages:
            sent["inject"] = "user"
        return Reply(
            text=text,
            usage=self.usage_of(response, counts) + rejected,
            finish_reason="refusal" if declined else choice.finish_reason or "",
            model=_as_named(response.model, self.model),
            sent=sent,
            provider=str(getattr(response, "provider", None) or ""),
            system_fingerprint=getattr(response, "system_fingerprint", None) or "",
            reasoning=getattr(choice.message, "reasoning_content", None) or thoughts,
            retries=retries,
            prompt_cut=self._cut(request.messages, counts.read),
            usage_corrected=bool(counts.corrected),
        )

    def _complete(
        self, messages: list[Message], sent: dict[str, Any], schema: dict[str, Any] | None = None
    ) -> tuple[Any, int, Usage]:
        """`call` for a reply to these messages. schema: as in `Request`."""
        tokens = sent.get("max_tokens") or _TOKENS_OF_A_REPLY
        if self.limiter.tokens_per_min is not None:
            tokens += _tokens(messages)
        check = partial(self._checked, schema=schema)
        return self.call("completion", tokens, check, messages=messages, **sent)

    def _outgrown(self, error: InfraError, messages: list[Message], sent: dict[str, Any]) -> AttemptOver | None:
        """The end of the attempt if a refusal whose words do not say so is one for length; else None.

        It is one if the prompt nearly fills the window that the server lists, or if the same call is accepted once its
        messages are cut. The latter is tried only for a prompt that is longer than all that the server took.
        """
        size = max(_tokens(messages), _length(messages) // 4)  # whichever is higher: servers count differently
        unclear = error.kind in ("bad_request", "server") and error.status in (400, 422, 500)
        if not unclear or size < _LEAST_TOKENS:
            return None
        if (window := self._window()) and size >= _NEARLY_FULL * window:
            return _over(error, f"about {size} tokens were sent; the server lists a window of {window}", Usage())
        words = re.sub(r"\d+", "0", str(error))
        if error.status == 500 or _length(messages) <= self._longest or words in self._not_for_length:
            return None
        log.warning("a shorter prompt is sent, to see whether the length was refused: %s", error)
        most = max(4 * _LEAST_TOKENS, self._longest) // 2 // len(messages)  # characters of each: half of what was taken
        cut = [{**message, "content": message["content"][:most]} for message in messages]
        try:  # nothing else is changed, as it may be what was refused
            response, _, rejected = self._complete(cut, sent)
        except (InfraError, StopRun):
            self._not_for_length.add(words)
            return None
        paid = self.usage_of(response) + rejected
        return _over(error, f"it took the call with shorter messages, so the {size} tokens were too many", paid)

    def identity(self) -> dict[str, Any]:
        window = {"num_ctx": self.num_ctx} if self.num_ctx else {}  # left out if unset, as in older caches
        return {"model": self.model, "api_base": self.api_base, "max_tokens": self.max_tokens, **window}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        cost = expected_cost(
            self.model, self.price_per_mtok, Counts(prompt=prompt_tokens, completion=completion_tokens)
        )
        if cost is None:
            self._say_price_is_unknown()
        return cost

    def unsupported(self, more: dict[str, Any]) -> str | None:
        """As in ChatModel, by what the client knows of the model; `extra_body` is not checked."""
        wanted = _as_sent(more)
        if unknown := set(wanted) - set(self._supported(wanted)) - {"extra_body"}:
            return f"{self.model} takes no {', '.join(sorted(unknown))}: extra_body can hold what its server calls it."
        return None

    def _checked(self, response: Any, schema: dict[str, Any] | None = None) -> Any:
        """The response, its text in the right field. Raises the error that it reports; TransientError without a choice.

        schema   as in `Request`
        """
        body = self._body()
        if not getattr(response, "choices", None):
            if (kind := refused_within(said := json.dumps(body))) in ("context", "content_filter"):
                raise AttemptOver(f"{self.model}: no reply, but {said[:200]}", kind)
            raise TransientError(f"{self.model}: the answer holds no choice", "bad_reply")
        choice = response.choices[0]
        if failure := error_within(choice, self.model, self.api_key_env, body):
            raise failure
        end = end_of(reason_given(choice, body) or "stop")
        if end != "stop":  # else litellm may have found a tool call
            choice.finish_reason = end or choice.finish_reason
        if choice.finish_reason == "content_filter" and not _text(choice.message).strip():
            raise AttemptOver(f"{self.model}: the provider's filter left nothing of the answer", "content_filter")
        if choice.finish_reason == "stop":
            self._put_right(choice.message, schema)
        return response

    def _put_right(self, message: Any, schema: dict[str, Any] | None) -> None:
        """Move a reply that stands in the field for reasoning, and say so; see `misplaced_text`."""
        reasoning = getattr(message, "reasoning_content", None) or ""
        if reasoning.strip() and not plain_reply(_text(message)).strip():
            self.notice("reasoning field", f"{self.model}: {SETTING}.")
            message.content, message.reasoning_content = misplaced_text(reasoning, schema)

    def _send(self, function: str, request: dict[str, Any]) -> Any:
        """One try. If it is refused before any was taken, at once another without the system message.

        If that is taken, all later calls are made so; if it is refused as well, it is not tried again. Calls that are
        in flight beside it are waited for: one that is taken shows that the system message was not what was refused.
        """
        user_only = request | {"messages": without_system(request["messages"])}
        if self._without_system is not None or user_only == request:
            return super()._send(function, user_only if self._without_system else request)
        with self._asking:
            self._n_asking += 1
        try:
            response = super()._send(function, request)
            self._without_system = False
            return response
        except Exception as error:
            if not may_refuse_system(error):
                raise
            refused = error
        finally:
            with self._asking:
                self._n_asking -= 1
                self._asking.notify_all()
        with self._asking:
            self._asking.wait_for(lambda: self._without_system is not None or not self._n_asking)
        if self._without_system is False:
            raise refused
        return self._send_without_system(function, user_only, refused)

    def _send_without_system(self, function: str, request: dict[str, Any], refused: Exception) -> Any:
        answer = self._trail.answer
        try:
            response = super()._send(function, request)
        except Exception as error:  # noqa: BLE001 - the first refusal is the one to explain
            if self._without_system is None and may_refuse_system(error):
                self._without_system = False
            self._trail.answer = answer
            raise refused from None
        self._without_system = True
        self.notice(
            "system",
            f"{self.model} takes no system message: the instructions now stand in front of the first user message, in "
            "every role that it plays, as with agent.inject=user.",
        )
        return response

    def _check_num_ctx(self) -> None:
        if self.model.split("/")[0] not in _OLLAMA:
            raise UserError(
                f"llm.num_ctx={self.num_ctx}: {self.model} takes no context window with a call; it is for llm=ollama. "
                "A server behind /v1 is started with it (Ollama: OLLAMA_CONTEXT_LENGTH, or num_ctx in a Modelfile; "
                "llama-server: -c; vLLM: --max-model-len)."
            )
        check_numbers(self, "llm", "num_ctx", least=1, whole=True)

    def _cut(self, messages: list[dict[str, str]], read: int) -> int:
        """`PromptWatch.cut`; says once what to change."""
        if cut := self._watch.cut(messages, read):
            remedy = (
                "Give it a larger one: llm.num_ctx=8192, for example."
                if self.model.split("/")[0] in _OLLAMA
                else "Start the server with a larger one (Ollama's /v1 ignores num_ctx in a call: take llm=ollama and "
                "llm.num_ctx, or set OLLAMA_CONTEXT_LENGTH; llama-server: -c, without --context-shift)."
            )
            self.notice(
                "cut",
                f"{self.model} read only {read:,} tokens of a prompt of {cut:,} or more: what is longer than its "
                "context window is cut, without an error, at the front, where the lessons are. "
                f"{remedy} Such calls are n_prompts_cut in summary.json.",
            )
        return cut

    def _supported(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """The parameters that the model supports; the others are not sent."""
        if self.client == "openai":
            self._params = direct.taken(self.model)
        if self._params is None:
            self._params = frozenset(load_litellm().get_supported_openai_params(model=self.model) or ())
        return {k: v for k, v in wanted.items() if k in self._params}


def _tokens(messages: list[Message]) -> int:
    return sum(estimate_tokens(message["content"]) for message in messages)


def _length(messages: list[Message]) -> int:
    """Characters of a prompt."""
    return sum(len(message["content"]) for message in messages)


def _as_named(given: str | None, asked: str) -> str:
    """The name of the model that answered, as its server gave it: litellm sets some providers' names before it."""
    provider = asked.partition("/")[0]
    if not given or given == asked or provider not in direct.PROVIDERS:
        return given or asked
    return given.removeprefix(f"{provider}/")


def _over(error: InfraError, why: str, paid: Usage) -> AttemptOver:
    over = AttemptOver(f"{error} ({why})", "context")
    used = paid + (error.usage or Usage())
    over.usage, over.retries, over.status = used if used.calls or used.tokens else None, error.retries, error.status
    return over


def _as_sent(more: dict[str, Any]) -> dict[str, Any]:
    """A role's `more` as arguments of litellm."""
    tokens = more.get("thinking_tokens")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens else {}
    return {name: value for name, value in more.items() if name != "thinking_tokens"} | thinking


def _text(message: Any) -> str:
    """The reply's text. A reply in the form of a tool call is returned as JSON text, because no tools were offered."""
    if message.content:
        return message.content
    calls = [call.function for call in getattr(message, "tool_calls", None) or []]
    if calls:
        return "\n".join(json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in calls)
    return _refusal(message)


def _refusal(message: Any) -> str:
    return (getattr(message, "provider_specific_fields", None) or {}).get("refusal") or ""
