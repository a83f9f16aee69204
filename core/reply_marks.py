"""A reply as its model means it: without thoughts, without the marks of chat templates, up to the end of its own turn.

    "<think>41?</think>42<|im_end|>"                                        42
    "41?</think>42"                                                         42     (the prompt opened the block)
    "<|channel|>analysis<|message|>41?<|end|>...final<|message|>42"         42
    "42<|im_end|>\n<|im_start|>user\nWhat is 2+2?"                          42
    'Write "<think>" first, and `</s>` last.'                               unchanged: quoted marks are ordinary text

Replies are recorded as they were sent; every reader takes them through `plain_reply`. Thoughts in other marks are set
apart by the server, or by `llm.reasoning` (core/models/remote.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A quotation, which closes on its line; a mark behind a digit is inches, one with a blank before and a letter behind it
# opens and closes nothing. Code in backticks, or in a fence that is closed before another one names a language.
_QUOTED = (
    r"(?P<quoted>(?<![\\\d])(?:(?<!\w)\"|\"(?!\s))(?:[^\"\n]|(?<=\\)\")*+(?:(?<!\s)\"|\"(?!\w))"
    r"|(?<!`)`(?![\s`])[^`\n]*+(?<!\s)`(?!`)"
    r"|(?m:^[ \t]*```[^`\n]*\n(?:(?![ \t]*```).*\n)*+[ \t]*```[ \t]*$))"
)
# <think>, <seed:think>, [THINK], <|begin_of_thought|>, <|END_THINKING|>: the word in any brackets of a template.
_MARK = re.compile(
    rf"{_QUOTED}|(?P<bracket><[|｜]?|\[|◁)(?P<shut>/|end_(?:of_)?)?(?:[a-z]+[:_])*"
    r"(?P<root>think|thought|reason|reflect|analysis)[a-z_]*(?:\s[^<>\n]{0,80})?(?:[|｜]?>|\]|▷)",
    re.IGNORECASE,
)
_BRACKET = re.compile(r"[<\[◁][|｜/A-Za-z]")  # how every mark and token begins
_ANY_MARK = re.compile(_MARK.pattern.removeprefix(f"{_QUOTED}|"), re.IGNORECASE)  # quoted as well
# gpt-oss: <|start|>assistant<|channel|>final <|constrain|>json<|message|>...; the prompt may end within the header.
_HEADER = re.compile(
    rf"{_QUOTED}|(?:<\|start\|>[^<\n]{{0,100}})?(?:<\|channel\|>|\A)\s*(?P<channel>[a-z]+)"
    r"(?:[^<\n]|<\|constrain\|>){0,100}<\|message\|>"
)
_BODY_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")

# Tokens that end or begin a turn. Those of tools have a content of their own, and <|x|> may be mathematics.
_TOKEN_TEXT = (
    r"<[|｜](?!\w*(?:tool|func|python|constrain|box|image|vision|code|file|fim_))"
    r"(?:[\w▁]*[_▁][\w▁]*|end\w*|eo\w|bos|user|assistant|system|return|start|observation|turn)[|｜]>"
    r"|</?s>|<(?:eo[st]|bos|pad|endof[a-z]+|(?:start|begin|end)_of_[a-z_]+)>|<\|turn>|<turn\|>|\[\|\w{3,20}\|\]"
    r"|\[/?INST\]"
)
_LEAD = re.compile(
    rf"\s*(?:\[INST\](?:(?!\[/?INST\]).){{0,20000}}\[/INST\]"
    rf"|(?:{_TOKEN_TEXT})\s*(?:(?:assistant|model|final)(?=[ \t]*(?:\n|<|\Z)))?:?|assistant[ \t]*\n)",
    re.DOTALL | re.IGNORECASE,
)
_TOKEN = re.compile(
    rf"{_QUOTED}|(?P<struck><s>[^<\n]{{1,500}}</s>)|(?i:{_TOKEN_TEXT})"
    r"|<[|｜][A-Za-z▁_]{2,40}[|｜]?\s*\Z"  # a token that is itself cut off
)
# ChatML's turns without their marks: lines with a role and nothing else.
_BARE_USER = re.compile(r"(?<=\S)[ \t]*\n\s*?user[ \t]*\n")
_BARE_REPLY = re.compile(r"\n(?:assistant|model)[ \t]*(?:\n|\Z)")

_ANSWER_NAME = r"(?:final[_ -]?)?(?:answer|ans|response|result|solution)|final"
_TAG = re.compile(
    rf"<(?P<shut>/)?(?P<name>{_ANSWER_NAME}|action)(?:\s[^<>\n]{{0,80}})?>|\[(?P<shut2>/)?(?P<name2>ANSWER|FINAL_ANSWER|ANS|ACTION)\]"
    r"|<\|(?P<box>begin|end)_of_box\|>",
    re.IGNORECASE,
)
_TAG_ALONE = re.compile(rf"(?m)^[ \t]*+</?(?:{_ANSWER_NAME})>[ \t]*+\n", re.IGNORECASE)
_BLANK_FORM = re.compile(
    r"[\s.…]*|\W*(?:(?:your|the|final|my|insert|put)\W+)*answer(?:\W+(?:goes\W+)?here)?\W*", re.IGNORECASE
)


def plain_reply(text: str | None) -> str:
    """What a reply says, as the table above shows; "" for None.

    A block of thoughts that is not closed extends to the end. A closing mark without an opening one ends a block that
    the prompt's template opened. A token of a chat template ends the reply; at its beginning it is skipped.
    """
    if not isinstance(text, str):
        return ""
    return own_turn(behind_thoughts(_without_blocks(_final_channel(text)))[1])


def own_turn(text: str) -> str:
    """The text up to the first token with which a chat template ends a turn, without such tokens at its beginning."""
    begin = 0
    while lead := _LEAD.match(text, begin):
        begin = lead.end()
    end = next((match.start() for match in _found(_TOKEN, text, begin) if not match["struck"]), len(text))
    if (user := _BARE_USER.search(text, begin, end)) and _BARE_REPLY.search(text, user.end() - 1, end):
        end = user.start()
    return text[begin:end] if begin or end < len(text) else text


def _found(pattern: re.Pattern, text: str, begin: int = 0) -> Iterator[re.Match]:
    """The matches that are not quoted; the pattern begins with `_QUOTED`."""
    if not _BRACKET.search(text, begin):
        return iter(())
    return (match for match in pattern.finditer(text, begin) if not match["quoted"])


def _without_blocks(text: str) -> str:
    """The text without blocks of thoughts. Within a block quotes mean nothing: its first closing mark ends it.

    A block that is not closed is one if its word is "think", as in <think>, or if the reply begins with it.
    """
    pieces, at = [], 0
    unclosed: set[tuple[str, str]] = set()  # kinds of marks that nothing closes from here on
    while mark := next((found for found in _found(_MARK, text, at) if not found["shut"]), None):
        pieces.append(text[at : mark.start()])
        kind = _kind(mark)
        closing = (each for each in _ANY_MARK.finditer(text, mark.end()) if each["shut"] and _kind(each) == kind)
        if kind not in unclosed and (end := next(closing, None)):
            at = end.end()
            continue
        unclosed.add(kind)
        is_word = mark["bracket"] == "[" and not mark.group().isupper()
        if not is_word and (kind[1] == "think" or not "".join(pieces).strip()):
            return "".join(pieces)
        pieces.append(mark.group())
        at = mark.end()
    return "".join((*pieces, text[at:]))


def _kind(mark: re.Match) -> tuple[str, str]:
    """What a closing mark shares with its opening one: the bracket and the word."""
    return mark["bracket"], mark["root"].lower()


def behind_thoughts(text: str) -> tuple[str, str]:
    """(thoughts, rest) around the last closing mark of the reply's own turn, the opening one of which the prompt had.

    Without such a mark there are no thoughts.
    """
    ends = [mark.end() for mark in _found(_MARK, text) if mark["shut"]]
    if not ends:
        return "", text
    turn_ends = (
        m.start() for m in _found(_TOKEN, text, ends[0]) if text[ends[0] : m.start()].strip() and not m["struck"]
    )
    turn = next(turn_ends, len(text))
    end = max(end for end in ends if end <= max(turn, ends[0]))
    return text[:end], text[end:]


def _final_channel(text: str) -> str:
    """The first message in gpt-oss's channel "final"; without one what follows the thoughts, or the last commentary."""
    if "<|message|>" not in text:
        return text
    headers = list(_found(_HEADER, text))
    if not headers:
        return text
    bodies = []
    for header in headers:
        end = _BODY_END.search(text, header.end())
        bodies.append((header["channel"], text[header.end() : end.start() if end else len(text)], end))
    said = [body for channel, body, _ in bodies if channel == "final"]
    if said:
        return said[0]
    last = bodies[-1][2]
    behind = text[last.end() :] if last and last.group() == "<|end|>" else ""
    told = [body for channel, body, _ in bodies if channel == "commentary"]
    return behind if own_turn(behind).strip() else (told or [""])[-1]


# Tags around an answer or an action.


@dataclass(frozen=True)
class Tagged:
    """An answer in tags: its place in the text (start, end; the tags included) and what they hold."""

    start: int
    end: int
    content: str
    name: str


def tagged_answers(text: str) -> list[Tagged]:
    """The answers in <answer>, <final_answer>, [ANSWER], GLM's box and the like, and actions in <action>.

    Empty forms are left out ("<answer>your answer</answer>"). The last tag may be left open; it ends with its line.
    """
    found: list[Tagged] = []
    opened: dict[str, re.Match] = {}
    for mark in _TAG.finditer(text):
        name = ("box" if mark["box"] else mark["name"] or mark["name2"]).lower()
        if not (mark["shut"] or mark["shut2"] or (mark["box"] or "").lower() == "end"):
            before, opened[name] = opened.get(name), mark
            between = text[before.end() : mark.start()].strip() if before else ""
            if before and between and "\n" not in between:  # <answer>42<answer>: the slash is missing
                found.append(Tagged(before.start(), mark.end(), between, name))
        elif (begin := opened.pop(name, None)) and not (found and begin.start() < found[-1].start):  # the innermost
            found.append(Tagged(begin.start(), mark.end(), text[begin.end() : mark.start()].strip(), name))
    if begin := opened.get("answer"):
        line = text[begin.end() :].strip().split("\n")[0]
        if not found or begin.start() > found[-1].end:
            found.append(
                Tagged(begin.start(), begin.end() + text[begin.end() :].find(line) + len(line), line, "answer")
            )
    return [tag for tag in found if not _BLANK_FORM.fullmatch(tag.content)]


def untagged(text: str) -> str:
    """The text with what stands in such tags, if they begin a line, on lines of its own; an action is called one."""
    pieces, at = [], 0
    for tag in tagged_answers(text):
        if tag.start < at or text[text.rfind("\n", 0, tag.start) + 1 : tag.start].strip(" \t*_>#-"):
            continue
        named = tag.name != "action" or re.match(r"\W*(?:action|thought)\b", tag.content, re.IGNORECASE)
        pieces += [text[at : tag.start].rstrip(" \t*_>#-"), "\n", "" if named else "Action: ", tag.content, "\n"]
        at = tag.end
    return _TAG_ALONE.sub("", "".join((*pieces, text[at:])))


# Running on: having answered, the model writes the next turn of the prompt itself.

_ASKED = r"question|problem|puzzle|task|exercise|instruction|q(?=[ \t]?\d{0,4}[ \t]?:)|user|human|student"
_NEXT = r"(?:(?:next|new|another)[ \t]++)?"
_NUMBER = r"(?:[ \t]++(?:#[ \t]?)?\d{1,4}|\d{1,4})"  # each run of blanks is entered once (`*+`)
_HEAD = re.compile(
    rf"(?mi)^[ \t>*_]*+(?:#{{1,6}}[ \t*_]*+)?{_NEXT}(?:{_ASKED}){_NUMBER}?[ \t*_]*+:(?!=)"
    rf"|^[ \t>]*+(?:#{{1,6}}[ \t*_]*+|[*_]{{2}}){_NEXT}(?:{_ASKED}){_NUMBER}?[ \t*_.]*+$"
    r"|^question[ \t]++\d{1,4}[ \t]*+$"
)
_OBSERVED = re.compile(r"(?mi)^[ \t>*_#-]*+(?:observation|environment|tool output|output)[ \t]*+\d{0,4}[ \t*_]*+:")
_HEADING = re.compile(r"(?m)^[ \t]*+(#{1,6}[ \t]++\S.{0,80}|\*\*[^*\n]{2,80}\*\*:?)[ \t]*+$")
_OWN_HEADING = re.compile(
    r"answer|solution|solve|step|check|verif|conclu|result|summary|final|approach|method|case|explanation|reason|note",
    re.I,
)


def next_turns(text: str, observed: bool = False) -> Iterator[int]:
    """Where a line begins as the prompt's next turn does: "Question:", "## Problem 2", "User:", a heading repeated.

    observed   also where the environment would speak: "Observation:"
    """
    places = {match.start() for match in _HEAD.finditer(text)}
    if observed:
        places |= {match.start() for match in _OBSERVED.finditer(text)}
    seen = set()
    for match in _HEADING.finditer(text):
        heading = match[1].casefold()
        if heading in seen and not _OWN_HEADING.search(heading):
            places.add(match.start())
        seen.add(heading)
    return iter(sorted(places))
