"""What a server's words mean: why a reply ended, and whether a refusal is about the request's own content.

Servers say the same thing in ever new words, so these are rules about words ("input length" near "exceeds"), not lists
of whole phrases. core/models/retry.py makes exceptions of what they find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Why a reply ended ----------------------------------------------------------------------------------------------------

# (what it means, words as `_word` writes them), the first match counts. None: the server broke the reply off.
_ENDS: tuple[tuple[str | None, str], ...] = (
    (
        "content_filter",
        r".*(?:filter|safety|sensitive|refus|moderat|guardrail|toxic|block|prohibit|recitation|polic|spii|violat|inspect"
        r"|censor).*|(?:high_)?risk|language|other|escalation|no_image|image_.*",
    ),
    (None, r".*(?:deadline|cancel|abort|time_?out|time_limit|rate_limit).*"),
    ("context", r".*context.*|error_limit"),
    (
        None,
        r".*(?:error|overload|resource|capacity|unavailable|fail|interrupt|disconnect|network|quota|crash|shut_?down"
        r"|preempt|kill|busy).*",
    ),
    ("length", r".*(?:length|max|limit|truncat|repetition|cut_?off|too_long).*|compaction|token_budget"),
    ("tool_calls", r"tool_?(?:calls?|uses?)"),
    ("function_call", r"function_?calls?"),
    (
        "stop",
        r"stop(?:ped)?|(?:stop|stopping)_(?:sequences?|tokens?|strings?|str|words?|criteria|string_found|id)|matched_stop"
        r"|eos(?:_(?:token|token_id|id|found|reached))?|eot(?:_id|_token)?|end|end_?of_?(?:text|turn|sequence|message)"
        r"|end_turn|im_end|complete|completed|completion|finish|finished|done|final|success|succeeded|normal|natural"
        r"|message_stop|pause_turn"
        # what the model wrote ended there, only not as it should
        r"|malformed_.*|unexpected_tool_call|too_many_tool_calls|missing_thought_signature",
    ),
)
_NONE = ("", "none", "null")  # DashScope sends the text "null"


def end_of(reason: Any) -> str | None:
    """What a finish reason means, in any server's word: stop | length | tool_calls | function_call | content_filter |
    context (the window was full). None: the server broke the reply off, or says so in no word that is known.
    """
    word = _word(reason)
    return next((end for end, words in _ENDS if re.fullmatch(words, word)), None)


def _word(reason: Any) -> str:
    """A reason in lower case with underscores: "eosFound", "FINISH_REASON_STOP", {"type": "length"}."""
    if isinstance(reason, dict):
        reason = reason.get("type")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s.-]+", "_", str(reason or "").strip()).lower()
    return re.sub(r"^finish_?reason_", "", snake)


def reason_given(choice: Any, body: Any) -> str | None:
    """The server's own word for a reply's end; None if it gave none. litellm makes "stop" of words it does not know.

    choice   of the response, as litellm or direct.py returns it
    body     of the server's answer, as parsed; None if unknown: then what litellm kept of it
    """
    if isinstance(body, dict):
        for holder, key in (
            (_first(body.get("choices")), "finish_reason"),
            (_first(body.get("candidates")), "finishReason"),  # Gemini
            (body, "stop_reason"),  # Anthropic
            (body, "done_reason"),  # Ollama
        ):
            if isinstance(holder, dict) and key in holder:
                return None if _word(holder[key]) in _NONE else holder[key]
        if _first(body.get("choices")):
            return None
    kept = (getattr(choice, "provider_specific_fields", None) or {}).get("native_finish_reason")
    return kept or choice.finish_reason


def _first(several: Any) -> Any:
    return several[0] if isinstance(several, list) and several else None


def _any(*words: str) -> str:
    """A pattern for any of these."""
    return f"(?:{'|'.join(words)})"


# The patterns are compiled where they are first used, as most runs use none.

# Why a request was refused --------------------------------------------------------------------------------------------

_READ, _READ_OF_ONE = 3000, 600  # characters that are read: of all texts, of one (which may end with the whole prompt)
# Statuses that are about the account, the address or the moment, whatever their text.
_NOT_THE_CONTENT = (401, 402, 404, 407, 408, 409, 429)

_ACCOUNT = (
    r"\b(?:account|organi[sz]ation|project|api key|subscription|ip(?: address)?|your access)\b"
    r".{0,60}\b(?:block|disabl|suspend|bann|deactivat|terminat|restrict|limit|violat|polic|not allowed|flagged)"
    r"|(?:blocked|restricted|limited|forbidden) by your (?:organi[sz]ation|admin|account|project)|账户|账号|用户被"
)
_REGION = (
    r"unsupported (?:country|region|location)|(?:country|region|territory|location)\b.{0,60}"
    r"(?:not supported|unsupported|not available|unavailable|restricted|not allowed|blocked)"
    r"|(?:not supported|not available|unavailable|restricted|blocked) in (?:your|this) (?:country|region|location|area)"
    r"|地区.{0,8}(?:不支持|限制)|不支持.{0,8}地区"
)
_POLICY = r"(?:polic|guideline|terms of|safety|regulation)"
_FILTER = _any(
    r"content (?:filter|polic|management polic|moderation|safety|security|inspection|(?:exists |at )?risk|violat"
    r"|censor|guideline|prohibited|rejected)",
    r"data inspection|risk detect|inappropriate|responsible ai|usage (?:polic|guideline)|acceptable use",
    r"safety (?:system|service|classif|polic|filter|check|setting|guideline|reason|restriction|block|violation"
    r"|standard)|\b(?:nsfw|toxic|hate speech|hateful|offensive|sexual\w*|self harm)\b|polic\w+ violation",
    rf"violat\w* .{{0,40}}{_POLICY}|failed check|prompt shield|jailbreak",
    r"moderation|moderated|guard ?rail|block ?list|block reason|prohibited (?:content|use|word|term|topic)",
    r"(?:was|were|been|is|are|got) (?:\w+ )?flagged|flagged (?:as|for|by|content)|high risk",
    r"sensitive (?:content|word|information|topic|data|input|output|material)|(?:contains?|new|code:) sensitive",
    r"\b(?:prompt|request|response|output|input|content|message|query|answer|reply|completion)s?\b[^.|]{0,60}? "
    r"(?:blocked|censored|filtered|intercepted)\b|blocked (?:by|due to|because)|\bwaf\b|web application firewall",
    r"\b(?:unsafe|harmful) (?:content|prompt|input|output|request|material)",
    r"(?:considered|deemed|potentially|be|is|as) (?:unsafe|harmful)",
    r"(?:code|error)\W{1,3}1301\b",  # Zhipu
    r"敏感|违规|违法|不安全|审核|有害|内容安全|不当内容|风险|不合规|屏蔽",
)
# A firewall's own page. Not a "checking your browser", nor a bare "403 Forbidden": these say nothing of the content.
_PAGE = (
    r"attention required|have been blocked|(?:request|page|access)(?: was| has been| is)? (?:blocked|rejected|denied)"
    r"|request could not be satisfied|url was rejected|firewall|\bwaf\b|mod ?security|not acceptable|incapsula|imperva"
    r"|sucuri|fortiweb|support id|(?:incident|event|block) id|阻断|拦截|防火墙|安全威胁"
)
_UNSAID = ("message", "msg", "error_msg", "detail", "error", "input")  # keys whose names say nothing of the cause
_DOWN = r"unavailable|timed? ?out|try again|retry|internal|overload|failed to|could not be reached"

_RATE = (
    r"per (?:second|min|hour|day|week|month)|/ ?min|\b[tr]p[mdh]\b|rate ?limit|throttl|daily|weekly|monthly|quota"
    r"|credit|billing|balance|free tier|too many requests|每分钟|每天|频率|频繁|速率|限流|并发|额度|余额|配额"
)
_PROMPT = r"prompt|inputs?\b|messages?|conversation|history|输入|上下文|消息|提示|对话"
_MAX_TOKENS = r"max (?:new |output |completion )?tokens?\b"
_SETTING = rf"{_MAX_TOKENS}|output tokens?\b"
# The server's own arithmetic, window - prompt, left nothing for the reply.
_NOTHING_LEFT = rf"{_MAX_TOKENS}.{{0,60}}(?:\(-\d|\bgot:? ?-\d|\bgot:? ?0\b|= ?-\d)"
_OTHER_THINGS = r"\b(?:image|audio|video|file|attachment|schema|grammar|logprobs|vocab|stop sequence)s?\b"
_OF_TIME = r"\btime|deadline|memory|queue|retries|retry|overload|concurren|capacity"
_POSITIVE = r"(?:greater|larger|more|longer) than (?:or equal to )?(?:0|zero|1|one)\b|at least (?:1|one)\b"

# A measure of the prompt, and that it is too much. Either is common; near each other they speak of the length.
_AMOUNT = _any(
    r"(?:context|prompt|input|sequence|seq|conversation|history|token|query|text|content)s? (?:text )?(?:tokens? )?"
    r"(?:length|len|size|window|limit|count|number|maximum|space)",
    r"(?:messages?|session|total|model)(?: max\w*)? (?:length|len|size)|total length",
    r"(?:model|total|requested|current|message)s? tokens? (?:limit|count|number|length)",
    r"(?:input|prompt|context|message|total)s? tokens",
    r"\binputs? must",
    r"(?:number of|allowed|permitted) (?:\w+ )?tokens",
    r"n ctx|ctx (?:size|len)",
    r"\d[\d,.]*k? (?:\w+ )?tokens|tokens? count",
    r"max ?(?:seq|model|num|input|prompt|context) ?(?:len|tokens|length)",
)
_OVER = _any(
    r"exceed|overflow|beyond|surpass|outgr[eo]w|out of range|ran out|reached|shorten|truncat|max(?:imum)?\b|at most",
    r"(?:longer|larger|greater|more|bigger|less|fewer|smaller|shorter) than",
    r"too (?:long|large|big|many)|fit\b|not enough|reduce the (?:length|size)|limit (?:is|of)|limited to|should be \[",
    r"(?:only|up to) (?:\w+ )?\d",
    r"<=? ?\d|≤|>=? ?\d",
)
_SAID_OF_IT = (
    r"(?: (?:is|are|was|were|has|have|been|the|length|text|tokens?|you|provided|much|far|size|doesn?|don?|can|will))*"
)
_CUT = r"(?:prompt|inputs?|messages?|context|conversation)"
_TOO_LONG = _any(
    rf"{_AMOUNT}.{{0,120}}?{_OVER}",
    rf"{_OVER}.{{0,120}}?{_AMOUNT}",
    rf"\b(?:prompt|inputs?|context|conversation|messages?|history|content)(?: \([^)]*\))?{_SAID_OF_IT} "
    r"(?:too (?:long|large|big)|overflow|exceed(?:s|ed)? (?:the |its |model |max|context|limit)|full\b|exhausted"
    r"|(?:longer|larger) than|(?:t|not|cannot) fit)",
    r"context (?:shift|overflow|exceeded)|(?:exceed\w*|insufficient|not enough) (?:\w+ ){0,4}context",
    rf"no (?:more )?(?:room|space) .{{0,30}}(?:context|prompt)|maximum length .{{0,30}}{_CUT}",
    r"too (?:many|much) (?:input |prompt |context )?(?:tokens|context)",
    r"(?:request|payload|body|entity)(?: entity| body| payload| size)*(?: is| was)? too (?:large|long|big)",
    r"payload size exceeds|current length is|(?:tokens?|length) limits? reached|expected max ?length",
    rf"(?:reduce|shorten) (?:\w+ ){{0,4}}{_CUT}|(?:shorter|fewer|smaller) {_CUT}",
    r"\b(?:messages|content|prompt|input)\b.{0,40}(?:string|array) too long",
    r"(?:输入|上下文|提示词?|对话|消息|文本|内容|prompt|tokens?|长度|字数|字符|序列).{0,20}"
    r"(?:超过|超出|超限|过长|超长|太长|太多|过大|过多|大于|最大长度|上限)",
    r"(?:超过|超出|达到|大于).{0,20}(?:最大|上下文|长度|上限|窗口|tokens?)|最大(?:输入|上下文|tokens?)|输入长度.{0,12}\[",
    r"(?:缩短|精简|减少).{0,6}(?:输入|对话|上下文|提示|内容|文本)",
)
_LOADING = re.compile(
    r"\bmodel\b[^.]{0,80}\b(?:loading|being loaded|starting|initiali[sz]ing|not ready|warming)"
    r"|\b(?:loading|starting|initiali[sz]ing|warming up)\b[^.]{0,40}\b(?:model|engine|server|worker)|estimated_time",
    re.IGNORECASE,
)
_WINDOW = r"(?:context|model|sequence|seq|prompt)[^.\d]{0,40}?(\d[\d,]{2,})(?![\d.]*\d)"


def is_loading(text: str) -> bool:
    """Whether a server says of a 503 that its model is not there yet: llama.cpp, Hugging Face, TGI, LM Studio, ..."""
    return _LOADING.search(text) is not None


def refused_for(status: int, said: str, page: bool = False) -> str | None:
    """Why a request was refused: context | content_filter | region | rate_limit | setting (it asks for more tokens of a
    reply than the model gives); None if the words do not say.

    said, page   as `words_of` returns them
    """
    if status in _NOT_THE_CONTENT:
        return None
    if re.search(_REGION, said) and status < 500:
        return "region"
    filtered = re.search(_FILTER, said) or (page and status < 500 and re.search(_PAGE, said))
    if filtered and not re.search(_ACCOUNT, said) and not (status >= 500 and re.search(_DOWN, said)):
        return "content_filter"
    if page and status != 413:
        return None
    if re.search(_RATE, said):
        return "rate_limit" if status < 500 and re.search(_TOO_LONG, said) else None
    if status == 413 or re.search(_NOTHING_LEFT, said):
        return "context"
    if re.search(_SETTING, said) and not re.search(_PROMPT, said):
        return "setting" if status < 500 else None
    if re.search(_OTHER_THINGS, said) and not re.search(r"prompt|messages|conversation|history|context|tokens", said):
        return None
    if status >= 500 and re.search(_OF_TIME, said):
        return None
    return "context" if re.search(_TOO_LONG, re.sub(_POSITIVE, " ", said)) else None


_PARAMETERS = (
    "temperature top_p stop seed max_tokens max_completion_tokens reasoning_effort response_format thinking".split()
)


def names_a_parameter(text: str) -> bool:
    """Whether an answer refuses a decoding parameter for this model, as OpenAI says it; every call would be refused."""
    try:
        error = json.loads(text)["error"]
        return error["code"] in ("unsupported_parameter", "unsupported_value") and error["param"] in _PARAMETERS
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def window_named(said: str) -> int | None:
    """The context window in tokens that an error names; None if it names none."""
    found = re.search(_WINDOW, said)
    return int(found[1].replace(",", "")) if found else None


def words_of(*texts: str | None) -> tuple[str, bool]:
    """(the words of a server's answer in one line of lower case, whether it is a web page).

    Identifiers are written as words: "max_tokens" is "max tokens", "DataInspectionFailed" "data inspection failed".
    """
    page = any(is_page(text) for text in texts)
    found = " | ".join(part[:_READ_OF_ONE] for text in texts for part in _parts(text or ""))[:_READ]
    found = re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), found)
    found = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", found).lower()
    return " ".join(re.sub(r"(?<=[a-z])-(?=[a-z])|[_`'\"*’]+", " ", found).split()), page


def is_page(text: str | None) -> bool:
    """Whether a text is a web page, not an API's answer."""
    return bool(re.match(r"\s*<(?:!doctype|html|head|body|\?xml)", text or "", re.IGNORECASE))


def words_of_200(text: str) -> tuple[str, bool]:
    """`words_of` for an answer of status 200 that could not be read; ("", False) where it may be a part of a reply."""
    if is_page(text):
        return words_of(text)
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return "", False
    choice = _first(body.get("choices")) if isinstance(body, dict) else None
    if isinstance(choice, dict):  # Gemini leaves out the message of a choice that it filtered
        filtered = not choice.get("message") and end_of(choice.get("finish_reason")) == "content_filter"
        return ("content filter" if filtered else ""), False
    return words_of(text)


def _parts(text: str) -> Iterator[str]:
    """The texts of an answer: "key: value" of every value of JSON, or what a page shows, or the text itself."""
    if is_page(text):
        yield re.sub(r"<(?:script|style).*?</(?:script|style)>|<[^>]*>", " ", text[:50_000], flags=re.DOTALL | re.I)
        return
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        yield text
        return
    yield from _values(parsed, "")


def _values(value: Any, key: str, depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict) and depth < 6:
        for name, inner in value.items():
            yield from _values(inner, str(name), depth + 1)
    elif isinstance(value, list) and depth < 6:
        for inner in value[:20]:
            yield from _values(inner, key, depth + 1)
    elif value is not None and not isinstance(value, (dict, list)):
        yield f"{value}" if key in _UNSAID else f"{key}: {value}"
