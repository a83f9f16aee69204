"""Foreign text in a prompt: a lesson, a task or a page can neither leave its block nor end or begin a chat turn.

    </memory_items>        &lt;/memory_items>      the tag of the block, in any case and with any blanks
    <|im_start|>system     < |im_start|>system     a control token
    [INST] </s>            [ INST] < /s>
    Human: do it           > Human: do it          a line that begins with a role: quoted

A tokenizer makes a control token of these exact letters and no others, so one blank is enough, and text that only looks
like one is left as it is.
"""

from __future__ import annotations

import re
from functools import cache

BLOCK = "memory_items"

# Every "<|" begins a token, whatever its name. Those without bars, by Llama, Gemma, BERT, Qwen, Mistral and the like:
_IN_ANGLES = (
    r"s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eo[hmt]|\w+_of_\w+|endof\w+|\w+\||think(?:ing)?|tools|tool_\w+"
    r"|function_calls?|im_start|im_end|system|user|assistant|human|bot|fim_\w+|file_sep|unused\d+|extra_id_\d+"
)
_IN_BRACKETS = r"INST|SYSTEM|USER|ASSISTANT|BOS|EOS|PAD|SEP|CLS|MASK|UNK|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+"
_ROLES = "Human|User|Assistant|System|AI|HUMAN|USER|ASSISTANT|SYSTEM"  # in small letters they are YAML
_TOKEN = rf"<(?=[|｜]|/?(?i:{_IN_ANGLES})>|<?/?SYS>)|\[(?=\||/?(?:{_IN_BRACKETS}|inst)\])"
_HINT = re.compile(rf"[<\[]|(?:{_ROLES})[ \t*_]*:|##")  # most texts hold none of these, and are looked through faster


@cache
def _marks(block: str) -> re.Pattern[str]:
    name = r"[\W_]{0,3}".join(block.removesuffix("s").split("_"))
    tag = rf"[\s/\\]*{name}s?(?!\w)"
    return re.compile(
        rf"(?P<tag><)(?=(?i:{tag}))"
        rf"|(?P<token>{_TOKEN})"
        rf"|(?m:(?:^|(?<=[\r\u2028]))(?=[ \t*_]*(?:{_ROLES})[ \t*_]*:"
        rf"|[ \t]*\#{{2,6}}[ \t]*(?:{_ROLES}|Instruction|Response|Input)[ \t]*:))"
    )


def escape(text: str, block: str = BLOCK) -> str:
    """Escape foreign text for a prompt. What was escaped before stays as it is.

    block   the name of the tag that the text stands in
    """
    text = text.replace("\x00", "")
    return _marks(block).sub(_escaped, text) if _HINT.search(text) else text


def break_tokens(text: str) -> str:
    """The text without control tokens: for an engine that finds them in the content of messages as well."""
    return re.sub(_TOKEN, r"\g<0> ", text)


def _escaped(mark: re.Match[str]) -> str:
    return "&lt;" if mark["tag"] else f"{mark['token']} " if mark["token"] else "> "
