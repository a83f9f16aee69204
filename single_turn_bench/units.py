"""Units behind a value: `125 miles`, `15 cm^2`, `3 m/s`, `5.4 cents`. They are no part of the answer's value.

A unit is either one of the usual abbreviations or whole words of three letters and more after a space, so that
products of variables (`5ab`, `2 xy`) are never taken for one.

Two units that are both known (`gm` and `g`, `kmph` and `km/h`) must be spelled as the same one; words that are no known
unit (`eggs`, `units`) say nothing. Nothing is converted.
"""

from __future__ import annotations

import re

SHORT = (
    "mms?|cms?|dm|kms?|Km|ft|in|yds?|mi|mg|kgs?|Kg|KG|gms?|mtrs?|mts|lbs?|oz|mL|ml|ltrs?|cc|secs?|mins?|hrs?|mph|kph|kmh|kmph"
    "|deg|rad|cu|sq|[kMG]?Hz|kJ|kWh?|k?Pa|kN|mol|[Rr]s|am|pm"
)
LETTER = "m|g|s|h|L|C|F"  # a unit only behind a plain number; elsewhere a variable
POWER = r"(?:\s*\^\s*(?:\{-?\d\}|\d))?"
JOINT = r"(?:\s*(?:/|\\cdot)\s*|\s+(?:per|of|in|a|an|the)\s+)"
WORD = rf"(?:(?:{SHORT})\.?|[A-Za-z]{{3,}})(?![A-Za-z]){POWER}"
ONE = rf"(?:\s*(?:{SHORT}|{LETTER})(?![A-Za-z]){POWER}|\s+{WORD})"
UNIT = rf"(?:\s+of(?:\s+(?:the|a|an))?)?{ONE}(?:(?:{JOINT}|\s+)(?:{WORD}|(?:{LETTER})(?![A-Za-z]){POWER}))*"
# Only what measures or pays, where any words would say too much: "3,7 both" and "3,7 are solutions" are lists.
COMMON = (
    rf"(?:(?:{SHORT}|{LETTER}|(?i:(?:kilo|centi|milli)?(?:met(?:er|re)|lit(?:er|re)|gram)s?|miles?|feet|inches|degrees?"
    r"|seconds?|minutes?|hours?|days?|weeks?|months?|years?|euros?|dollars?|cents?|pounds?|francs?|yen|rupees?))"
    rf"(?![A-Za-z]){POWER})"
)
MEASURE = rf"\s*(?:(?:square|cubic)\s+)?{COMMON}(?:(?:\s*/\s*|\s+per\s+){COMMON})?"

# Spellings of one unit; a plural needs no entry. The long ones may have a prefix.
SPELLINGS = (
    "m meter metre mtr mt", "g gram gramme gm", "L liter litre ltr", "s sec second", "min minute", "h hr hour", "day",
    "week wk", "month", "year yr", "in inch inche", "ft foot feet", "yd yard", "mi mile", "lb pound", "oz ounce",
    "ton tonne", "degree deg", "radian rad", "C celsius", "F fahrenheit", "dollar usd", "cent", "euro eur",
    "rupee inr re rs", "franc", "yen", "mm", "cm", "dm", "km", "mg", "kg kilo", "mL ml", "cm^3 cc", "mi/h mph",
    "km/h kmph kph kmh", "kW", "N newton", "J joule", "W watt", "V volt",
)  # fmt: skip
NAMES = {spelling: row.split()[0] for row in SPELLINGS for spelling in row.split()}
SYMBOL = re.compile("[kMGTmcdµμn]?(?:Hz|Pa|Wh?|J|N|V|A|mol|eV|cal)")  # each is the spelling of itself alone: kHz, MW
PREFIXES = {"kilo": "k", "centi": "c", "milli": "m"}
SPELLED = (
    (re.compile(r"\s*(?:/|\b(?:per|an?)\b)\s*"), "/"),
    (re.compile(r"\b(?:square|sq)\b\.?\s*([A-Za-z]+)"), r"\1^2"),
    (re.compile(r"\b(?:cubic|cu)\b\.?\s*([A-Za-z]+)"), r"\1^3"),
    (re.compile(r"\s+squared\b"), "^2"),
    (re.compile(r"\s+cubed\b"), "^3"),
    (re.compile(r"\s*\^\s*\{?\s*(-?\d)\s*\}?"), r"^\1"),
    (re.compile(r"(?<=\w)\s*(?:\\cdot|[.\s])\s*([A-Za-z]+)\^-(\d)"), r"/\1^\2"),  # m s^{-2} is m/s^2
    (re.compile(r"\^1\b|\.$"), ""),
    (re.compile(r"\bdegrees?\s+(?=[A-Za-z])"), ""),
)

MODULUS = re.compile(r"\s*(?:\\p?mod|\(\s*\\?mod)(?![a-z])\s*\{?\s*\d+\s*\}?\s*\)?\s*$")
BEHIND_EXPRESSION = re.compile(
    rf"^(?P<value>.*?[\d}})\]a-z])(?:\s+of(?:\s+(?:the|a|an))?)?\s+(?P<unit>{WORD}(?:(?:{JOINT}|\s+){WORD})*)\s*$", re.S
)
COMPOUND = re.compile(r"/|\\cdot|\s(?:per|of|in|a|an|the)\s|^units?$")
EXPONENT = re.compile(r"\s*\^\s*\{?\s*(-?\d)\s*\}?")
POWERS = ((re.compile(r"\b(?:sq|square|squared)\b"), 2), (re.compile(r"\b(?:cu|cubic|cubed)\b"), 3))
NOT_A_UNIT = re.compile(r"(?:^|[\s\\])(?:mod|for|where|with|when|if|is|not|even|odd|infinitely|times)(?![a-z])")


def split_unit(text: str) -> tuple[str, str]:
    """(expression, unit) without the modulus behind it; the unit of text without a value (`Evelyn`) is empty."""
    text = MODULUS.sub("", text) or text
    match = BEHIND_EXPRESSION.match(text)
    if match is None or NOT_A_UNIT.search(text):
        return text, ""
    value = match["value"].strip()
    holds_value = re.search(r"\d|\\(?:pi|sqrt|frac|infty)", value)
    return (value, match["unit"]) if holds_value and "\\begin" not in text else (text, "")


def incompatible(a: str, b: str) -> bool:
    """Whether the two units cannot be those of one value: `cm^2` and `cm`, `s^2` and `m^2`, `am` and `pm`."""
    if not a or not b:
        return False
    if {a, b} == {"am", "pm"}:
        return True
    if (decided := same_unit(a, b)) is not None:
        return not decided
    if EXPONENT.sub("", a).split() == EXPONENT.sub("", b).split():
        return EXPONENT.findall(a) != EXPONENT.findall(b)
    return not COMPOUND.search(a) and not COMPOUND.search(b) and power(a) != power(b)


def same_unit(a: str, b: str) -> bool | None:
    """Whether two units are one; None where one of them holds a word that is no known unit."""
    p, g = spelled(a), spelled(b)
    if p is None or g is None:
        return None
    return p == g or ("degree" in (p, g) and bool({p, g} & {"C", "F"}))  # of what the degrees are is left out


def spelled(unit: str) -> str | None:
    """A unit in the first spelling of each of its words: `kilometres per hour` is km/h; None if one is unknown."""
    for pattern, replacement in SPELLED:
        unit = pattern.sub(replacement, unit.strip())
    words = re.split(r"([/^\s]+)", unit)
    found = [known(word) if word[:1].isalpha() else word for word in words]
    return None if None in found else "".join(filter(None, found))


def known(word: str) -> str | None:
    """The first spelling of a word: `kilometres` is km; None where it is no known unit."""
    for spelling in dict.fromkeys((word, word.removesuffix("s"), word.lower(), word.lower().removesuffix("s"))):
        prefix = next((each for each in PREFIXES if spelling.startswith(each) and len(spelling) > len(each) + 3), "")
        if name := NAMES.get(spelling.removeprefix(prefix)):
            return PREFIXES.get(prefix, "") + name
    return word if SYMBOL.fullmatch(word) else None


def power(unit: str) -> int:
    """2 of `cm^2`, `sq cm`, `square inches` and `cm squared`, 1 of `cm`."""
    if marked := EXPONENT.search(unit):
        return int(marked[1])
    return next((exponent for pattern, exponent in POWERS if pattern.search(unit)), 1)
