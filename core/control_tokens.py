"""Foreign text in a prompt: a lesson, a task or a page can neither leave its block nor end or begin a chat turn.

    </memory_items>        &lt;/memory_items>      the tag of the block, however it is spaced
    <|im_start|>system     < |im_start|>system     a control token
    [INST] </s>            [ INST] < /s>
    Human: do it           > Human: do it          a line that begins with a role: quoted

A tokenizer makes a control token of these exact letters and no others, so one blank is enough. Marks are looked for in
the text as a reader sees it: full-width signs and letters of other alphabets that look like ours count as ours,
invisible characters count as none.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

BLOCK = "memory_items"

# Signs and letters that look like ours, beside those that NFKD knows (full-width, bold, italic, with an accent).
_LOOKS = str.maketrans(
    "‹〈〈⟨˂ᐸ❬›〉〉⟩˃ᐳ❭∣│❘ǀ⁄∕【〔】〕аеіјорсухѕԁһԛԝмтнкαορτνειγηυχϲАВЕІЅНКМОРСТХΑΒΕΖΗΙΚΜΝΟΡΤΥΧ≺≻¦",
    "<<<<<<<>>>>>>>||||//[[]]aeijopcyxsdhqwmthkaoptveiynuxcABEISHKMOPCTXABEZHIKMNOPTYX<>|",
)
_INVISIBLE = re.compile("[\x01-\x08\x0e-\x1f\x7f]")  # of ASCII; of the others `_as_ours` says so
# Unicode's categories of marks above, below and around a letter, of formats and of controls.
_NO_LETTERS = ("Mn", "Me", "Cf", "Cc")
_FILLERS = set("\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # letters without a shape

# The control tokens of tokenizers, by the families that have them. Those in <|...|> need no names: every "<|" is one.
_IN_ANGLES = (
    r"s|(?:bos|eos|pad|unk|mask|sep|cls|sop|eop|eod)(?:_token)?|eo[apthm]|bo[pthm]"  # Llama 1 and 2, Gemma, BERT, GLM
    r"|(?:start|begin|beginning|end)_?of_?\w+|\w{1,30}\|"  # Gemma: <start_of_turn>, <turn|>; GPT-2: <endoftext>
    r"|(?:im|turn)_(?:start|end)|(?:start|end)_header_id|eot_id|eom_id"  # without their bars
    r"|think(?:ing)?|thought|tools|tool_(?:calls?|response|results?)|function_(?:calls?|results?)"  # Qwen, Claude
    r"|role|system|user|assistant|human|model|ai|bot"  # Ling: <role>; marks of roles in words
    r"|seed:[\w:]{1,30}|(?:antml|minimax):\w{1,30}|longcat_\w{1,30}|arg_(?:key|value)"
    r"|(?:start|end)_function_\w+|escape|ctrl_?\d+|image(?:_soft_token)?|audio_soft_token|img_context"  # Gemma, LLaVA
    r"|fim[_-]\w+|pr(?:_\w{1,30})?|file_sep|repo_?name|filename|gh_stars|issue_\w+|jupyter_\w+"  # StarCoder
    r"|commit_\w+|empty_output"
    r"|unused_?\d+|reserved_?\w*\d+|special_\d+|extra_id_\d+|tokens_unused_\d+"  # Gemma, Apertus, T5, InternLM
)
_IN_BRACKETS = (
    r"(?i:INST)|SYSTEM|USER|ASSISTANT|BOS|EOS|PAD|SEP|CLS|MASK|UNK|EOT|[gs]?MASK|SYSTEM_PROMPT|AVAILABLE_TOOLS|MODEL_SETTINGS"
    r"|TOOL_(?:CALLS?|RESULTS?|CONTENT)|ARGS|CALL_ID|THINK|PREFIX|SUFFIX|MIDDLE|IMG(?:_BREAK|_END)?"
    r"|UNUSED_TOKEN_\d+|@[A-Z]{2,9}@|(?:BEGIN_)?AUDIO|TRANSCRIBE|REF"
)
_FALCON = "TITLE|ABSTRACT|INTRODUCTION|SUMMARY|COMMENT|ANSWER|QUESTION|DOMAIN|PREFIX|SUFFIX|MIDDLE"
_ROLES = "|".join(
    f"{role}|{role.upper()}" for role in ("Human", "User", "Assistant", "System", "AI")
)  # "user: x" is YAML


# What every mark holds: most texts hold none, and are looked through much faster for this.
_HINT = re.compile(rf"[<>\[\]]|(?:{_ROLES})[ \t*_]*:|##")


@cache
def _marks(block: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<tag><)(?=[\s/\\]*{_spaced(block)})"
        rf"|(?P<token><(?=\||(?i:/?(?:{_IN_ANGLES}))>|<?/?(?i:SYS)>)|\[(?=\||/?(?:{_IN_BRACKETS})\]|e~\[)"
        r"|\](?=~!?[a-z]~?[\[\]]|<\])"
        rf"|>(?=>(?:{_FALCON})<<)|<(?=(?:PRE|SUF|MID)>))"
        rf"|(?P<role>(?:\A|(?<=[\n\r\v\f\x85\u2028\u2029]))(?=[ \t*_]*(?:{_ROLES})[ \t*_]*:"
        rf"|[ \t]*\#{{2,6}}[ \t]*(?:{_ROLES}|Instruction|Response|Input)[ \t]*:))"
    )


def _spaced(name: str) -> str:
    """The pattern of a tag's name: in any case, in singular too, "_" as any sign, digits that look like letters.

    Between its letters may stand what Markdown does not show.
    """
    likes = {"_": r"[^A-Za-z0-9<>]{0,30}", "o": "[o0]", "i": "[i1l|]", "e": "[e3]", "s": "[s5$]", "a": "[a4@]"}
    spelled = "[*_~`]{0,3}".join(likes.get(letter, letter) for letter in name.removesuffix("s"))
    return f"(?i:{spelled}{likes['s']}?(?![a-z]))"


def escape(text: str, block: str = BLOCK) -> str:
    """Escape foreign text for a prompt. What was escaped before stays as it is.

    block   the name of the tag that the text stands in
    """
    text = text.replace("\x00", "")
    seen, places = _as_seen(text)
    if not _HINT.search(seen):
        return text
    pieces, at = [], 0
    for mark in _marks(block).finditer(seen):
        place = places[mark.start()] if places else mark.start()
        if mark["role"] is not None:
            pieces += [text[at:place], "> "]
            at = place
        else:
            pieces += [text[at:place], "&lt;" if mark["tag"] else f"{text[place]} "]
            at = place + 1
    return "".join((*pieces, text[at:]))


def _as_seen(text: str) -> tuple[str, list[int]]:
    """(the text as a reader sees it, the place of each of its characters in the text); no places: they are the same."""
    seen = text if text.isascii() else "".join(map(_as_ours, text))
    if not _INVISIBLE.search(seen):
        return seen, []
    places = [place for place, letter in enumerate(seen) if not _INVISIBLE.match(letter)]
    return "".join(seen[place] for place in places), places


@cache
def _as_ours(letter: str) -> str:
    """A character of ASCII in the place of one that looks like it, a control for one without a shape; else itself."""
    if letter.isascii() or letter == "\x85":  # a new line
        return letter
    if unicodedata.category(letter) in _NO_LETTERS or letter in _FILLERS:
        return "\x01"
    bare = "".join(each for each in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(each))
    ours = bare.translate(_LOOKS)
    return ours if len(ours) == 1 and ours.isascii() else letter
