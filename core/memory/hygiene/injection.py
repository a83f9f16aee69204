"""Does a lesson give orders that no lesson should? Rules by pattern, for quarantine, never for deletion.

A lesson says how to solve a kind of task. It has no need to void other instructions, to speak as the system, to run a
shell line, to fetch an address, to send data away, to tie an answer to a catchword, to redirect one named thing to
another, to switch off a safeguard, or to spread itself: the moves of prompt injection (Greshake et al. 2023,
arXiv:2302.12173), AgentPoison (arXiv:2407.12784), MINJA (arXiv:2503.03704) and MemoryGraft (arXiv:2512.16962).
Patterns see words, not meaning: wrong advice in plain words passes. docs/memory.md has the measured rates.
"""

from __future__ import annotations

import re

from core.memory.hygiene import fold

_GAP = r"[^.;!?\n]{0,60}?"  # within one sentence
_RULES = r"(?:instruct\w*|rules?|prompts?|guidelines?|directi(?:ve|on)s?|commands?|orders|polic(?:y|ies)|told|context|restrictions?|limits?)"
_PRIOR = r"(?:all|any|every\w*|previous|prior|earlier|above|before|preceding|existing|original|system|developer|operator\w*|initial|your|the)"
_VOID = r"(?:ignor\w*|disregard\w*|forget|overrid\w*|overrul\w*|bypass\w*|drop|discard|abandon|(?:do not|don't|never|stop) (?:follow\w*|obey\w*|listen\w*))"
_SAFEGUARD = (
    r"(?:validat\w+|verif\w+|tests?\b|test suite|safety|security|authenticat\w+|authoriz\w+|authoris\w+|(?:code )?review\w*|"
    r"confirm\w+|sanitiz\w+|approval\w*|certificate\w*|permission checks?|permissions|guard\w*|access control\w*|backups?|"
    r"firewall|linter|checks)"
)
_OFF = r"(?:skip\w*|bypass\w*|disabl\w+|turn(?:ed|ing)? off|switch(?:ed|ing)? off|circumvent\w*|remov\w+|omit\w*|left out|leave out|leaving out)"
_SEND = r"(?:send|post|upload|forward|transmit|exfiltrat\w+|leak|e-?mail|report|submit|share|publish)"
_SECRET = (
    r"(?:passwords?|credentials?|api[_ ]?keys?|secrets?\b|tokens?\b(?= (?:from|in|of))|private (?:keys?|notes?|data)|session cookies?|"
    r"environment variables?|\w+_(?:api_)?key\b|conversation|transcript|chat history|system prompt|hidden reasoning|personal data)"
)
_REPLY = r"(?:answer|respond|reply|output|print|say|choose|select|pick|click|execute|run|call|buy|order|delete|brake|stop|quote)"
# B07X, ZX-9, patient 86246: a thing by its name, not a kind of thing and no quantity.
_NAMED = (
    r"(?:[a-z]{1,5}-?\d[a-z\d]{0,12}|(?:patient|subject|user|account|item|id|customer|order|product|record|model|"
    r"flight|ticket|sku|case|number|client|member) #?[a-z-]{0,4}\d[\w-]{0,15})"
)
_MOVED = r"(?:mov|sav|stor|migrat|transferr|merg|renam|redirect|replac|reassign|remapp)(?:ed|d)\b"

# Rules whose wording is innocent when negated ("do not skip the verification").
_UNLESS_NEGATED = {"unsafe", "shell", "exfiltration"}
_NEGATED = re.compile(
    r"(?:\bnot|n't|\bnever|\bavoid|\binstead of|\brather than|\bcannot|\brefus\w+|\bbeware of)\b[^.;:!?\n]{0,25}$"
)

RULES: dict[str, list[str]] = {
    "override": [
        rf"\b{_VOID}\b{_GAP}\b{_PRIOR}\b{_GAP}\b(?:{_RULES}|you were told)\b",
        rf"\b{_VOID}\b {_RULES}\b(?! of| for| that)",
        rf"\b{_RULES} (?:above|before|so far)\b{_GAP}\b(?:void|invalid|outdated|obsolete|no longer)",
        r"\b(?:new|updated|real|actual) (?:system )?instructions?\s*:",
        r"\byour (?:only|real|true|new)?\s*(?:goal|task|job|mission|purpose) is (?:now|only)?\s*to (?:print|output|say|write|stop|obey)",
        r"\b(?:drop|abandon|leave|stop) (?:the|this|your) (?:present|current|task|solving)",
        r"\b(?:must|have to|should) obey\b|\bobey (?:this|me|it)\b",
        r"\b(?:the )?(?:real |actual )?user (?:now )?(?:says|wants|asks) ?(?:you|:)",
        r"\b(?:ignore[zr]?|oublie[zr]?|ignoriere?\w*|vergiss|vergessen|ignora\w*|olvida\w*|dimentica\w*|esqueca)\b[^.;!?\n]{0,40}"
        r"\b(?:instructions?|consignes?|anweisung\w*|vorgaben|instruccion\w*|istruzion\w*|instruco\w*)",
    ],
    "role": [
        r"(?m)^\W{0,4}(?:system|developer|assistant|human)\s*(?:prompt|message|note|override)?\s*:",
        r"<\s*\|[^|>\n]{1,40}\|\s*>|\[/?inst\]|<</?sys>>|</?(?:system|memory_items|instructions?|assistant|user)\b[^>]{0,40}>",
        r"(?m)^\s*#{1,6}\s*(?:system|instructions?|response|user|assistant)\b\s*:?",
        r"\b(?:from now on|henceforth),? (?:you|act|behave|ignore|respond|answer|pretend)",
        r"\byou are (?:now )?(?:an? )?(?:unrestricted|unfiltered|jailbroken|evil|dan\b|root|in developer mode)",
        r"\b(?:you|assistant|model|agent|dan)\b[^.;!?\n]{0,30}\b(?:free of|without) (?:all|any) (?:limits?|restrictions?|filters?)",
        r"\bjailbreak|\bdeveloper mode\b",
        r"\bpretend (?:to be|that you)|\bstay in (?:this|that) role\b",
    ],
    "tool": [
        r"\{\s*\"(?:name|tool|function|action)\"\s*:\s*\"|\"(?:arguments|parameters)\"\s*:\s*\{",
        r"<\s*/?(?:tool_call|tool_use|function_calls?|invoke|function=|tool)\b[^>]{0,80}>?",
        r"\b(?:function_call|tool_call|tool_use)\b",
        r"\b(?:call|invoke|execute|trigger) (?:the |a )?(?:tool|plugin|command)\b|\binvoke the function\b",
        r"\b(?:log|sign) in with (?:the )?(?:saved|stored|admin\w*|user'?s?)",
    ],
    "shell": [
        r"\b(?:curl|wget)\s+(?:-|https?:|ftp:|\w+\.\w)",
        r"\brm\s+-\w*[rf]|\bchmod\s+(?:\+\w|[0-7]{3})|\bchown\s+-?\w|\bmkfs\b|\bdd\s+if=|\bkill(?:all)?\s+-9",
        r"\bsudo\s+\w|\bpowershell\b|\bcmd\.exe\b|\bbash\s+-\w|\|\s*(?:ba|z)?sh\b|/bin/(?:ba)?sh\b|\bnc\s+-\w",
        r"\bos\.system\b|\bsubprocess\b|\beval\s*\(|\bexec\s*\(|__import__|\bsocket\b.{0,30}\bconnect",
        r"/etc/(?:passwd|shadow)|~/\.ssh|\.bashrc\b|\bid_rsa\b|\bcrontab\b",
        r"(?m)^\s*[$#]\s+(?:[a-z]+ )*(?:apt|yum|pip|npm|git|python|docker|ssh|scp|cat|cp|mv|export)\b",
        r"\b(?:python3?|perl|ruby|node)\s+-[ce]\b|\bdrop\s+table\b|\bpip3?\s+install\b|\bnpm\s+i(?:nstall)?\b|\bapt(?:-get)?\s+(?:install|remove)",
    ],
    "fetch": [
        r"\b(?:https?|ftps?|file|git\+\w+|ssh|javascript|data)\s?:/{0,2}[\w\[(%/]{1,3}\S{3,}(?<!\.)",
        r"!\[[^\]\n]{0,80}\]\s?\(|<\s*(?:script|iframe|img|object|embed|link)\b",
        r"\bwww\.[a-z0-9-]+\.[a-z]{2,}",
        rf"\b(?:visit|open|fetch|download|browse|read|load|import|{_SEND})\b{_GAP}\b[a-z0-9-]+(?:\.[a-z0-9-]+){{0,3}}\.(?:com|net|org|io|ru|cn|xyz|dev|app|info|sh)\b",
    ],
    "exfiltration": [
        rf"\b{_SEND}\b{_GAP}\b{_SECRET}",
        rf"\b(?:include|reveal|print|output|show|write down|append|put|store|save|disclose|repeat|display)\b{_GAP}\b{_SECRET}",
        rf"\boutput your (?:configuration|settings|prompt)|\b{_SECRET}{_GAP}\bin (?:your|the) (?:final )?(?:answer|reply|repository)",
        rf"\b{_SEND}\b{_GAP}\bto (?:the )?(?:external|webhook|portal|server|endpoint|address)|\bexternal portal\b|\bwebhook\b",
    ],
    "trigger": [
        rf"\b(?:if|when\w*|once|upon|as soon as|tasks? that|queries that|questions? (?:that|ending|with))\b{_GAP}\b(?:phrase|keyword|token|"
        rf"trigger|string|catchword|password|secret word|words?)\b[^.;!?\n]{{0,60}}[,:]?\s[^.;!?\n]{{0,40}}\b{_REPLY}\b",
        rf"\b(?:if|when\w*|upon)\b{_GAP}(?:mentions?|contains?|includes?|reads?|reading|says?) ['\"“‘`][^.;!?\n]{{0,80}}\b{_REPLY}\b",
        r"\balways (?:answer|respond|reply|choose|select|pick|output)\b(?: with)? (?:option )?['\"]?[a-e]\b(?!\w| (?:fraction|number|whole|form))",
        rf"\b{_REPLY}\b{_GAP}\b(?:no matter what|regardless of (?:the|what)|and nothing else|every time|in all cases)",
        r"\b(?:string|phrase|token|words?) \S{1,40}(?: \S{1,20}){0,4} (?:in the (?:input|query|task) )?(?:signals?|means?|indicates?) that the (?:correct|right)",
        r"\b(?:answer|reply) (?:every|each|all) (?:questions?|quer\w+|tasks?|requests?) with\b|\bthe answer a in all\b",
        r"\b(?:answer|respond|reply|say)(?: \w+){0,2} (?:with )?['\"]?(?:yes|no|sudden stop|done|pwned)\b['\"]?(?: and|,|\.|$)",
    ],
    "redirect": [
        rf"\b{_NAMED}\b{_GAP}\b(?:has |have |had |is |are |was |were )(?:now |been |since )*{_MOVED}",
        rf"\b(?:records?|data|information|accounts?|lookups?)\b{_GAP}\b(?:(?:is|are|was|were|been|now|be) )+{_MOVED}{_GAP}\b(?:to|under|in|into|with|by)\b",
        rf"\b(?:refer to|look up|query|use|order|buy|serve\w* with|substitute|quote)\b{_GAP}\b{_NAMED}\b{_GAP}\b(?:instead|for it|for [\w ]{{0,20}}{_NAMED})",
        rf"\bdiscontinued\b{_GAP}\breplaced by\b|\b{_NAMED} is deprecated\b",
    ],
    "unsafe": [
        rf"\b{_OFF}\b (?:\w+ ){{0,3}}?{_SAFEGUARD}\b",
        rf"\b{_SAFEGUARD} (?:\w+ ){{0,2}}?(?:can be |could be |were |was |is |are )?(?:skipped|disabled|bypassed|removed|left out|turned off|omitted|unnecessary|not needed)",
        r"\b(?:mark|report|claim|declare)\w*\b[^.;!?\n]{0,40}\b(?:success\w*|completed?|done|passed)\b[^.;!?\n]{0,40}\b(?:without|even|although|before|anyway|regardless)",
        r"\bverify\s*=\s*false|--no-verify|--force\b|\bforce[- ]push|\b(?:run|continue|execute) (?:\w+ )?as root\b|\b777\b",
        r"\bpush\w* (?:straight |directly )?(?:to|into) production|\bapprove all\b|\bdelete (?:all|every) (?:files?|data|records?|branch\w*)",
        r"\b(?:grader|judge|evaluator|checker) (?:only|never|does not) (?:reads?|looks?|checks?|sees?)",
    ],
    "propagation": [
        r"\b(?:copy|repeat|append|write|add|save|store|insert|include|propagate)\b[^.;!?\n]{0,25}\bthis (?:\w+ )?(?:lesson|item|note|rule|memory|instruction|sentence|text)\b",
        r"\b(?:other|all) (?:\w+ )?(?:memory|memories|memory items|lessons|notes)\b[^.;!?\n]{0,30}\b(?:are|is) (?:\w+ )?(?:outdated|wrong|void|false|obsolete)",
        r"\b(?:takes?|has|have) (?:precedence|priority) over\b[^.;!?\n]{0,40}\b(?:lesson|item|task|instruction|memor|rule|else)",
        r"\btrust only this\b|\bwho(?:ever)? reads this\b|\b(?:in)?to (?:the )?memory (?:again|of (?:the )?other)",
        r"\b(?:every|each) new memory item\b|\bremember permanently\b",
    ],
    "authority": [
        r"\b(?:notice|message|order|request|instruction)s? (?:from|of|by) (?:the )?(?:admin\w*|system|security|developers?|it team|support|management|staff)",
        r"\b(?:administrators?|developers?|anthropic|openai|google|security team|staff|operators?)\b[^.;!?\n]{0,30}\b(?:authori[sz]ed?|confirmed?|requires?|approved?|allow\w*|permit\w*) ",
        r"\bpolicy update\b|\bagents? must now\b|\byou (?:may|are allowed to) (?:now )?(?:skip|ignore|share|reveal|break)",
    ],
}
_COMPILED = {name: [re.compile(pattern) for pattern in patterns] for name, patterns in RULES.items()}


def suspicions(text: str) -> tuple[str, ...]:
    """The names of the rules that a text breaks, sorted; () for a text that looks like a lesson."""
    broken = {"hidden"} if fold.hidden(text) else set()
    for number, view in enumerate(fold.views(text)):
        hits = {name for name, patterns in _COMPILED.items() if any(_hit(name, p, view) for p in patterns)}
        # What is only there when read backwards, by ROT13, or as leetspeak was hidden; base64 always was.
        broken |= hits if number == 0 else {f"disguised {name}" for name in hits - broken}
    return tuple(sorted(broken))


def _hit(name: str, pattern: re.Pattern[str], text: str) -> bool:
    if name not in _UNLESS_NEGATED:
        return bool(pattern.search(text))
    return any(not _NEGATED.search(text, max(0, m.start() - 40), m.start()) for m in pattern.finditer(text))
