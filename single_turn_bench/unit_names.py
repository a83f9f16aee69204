"""Which unit a word names: `gm` and `grams` are one, `kg` is another, `kmph` is `km/h`; `eggs` is none of these."""

from __future__ import annotations

import re
from functools import cache, lru_cache

# Spellings of one unit, the first its name here; a plural needs no entry.
SPELLINGS = (
    "m meter metre mtr mt", "g gram gramme gm", "L l liter litre ltr", "s sec second", "min minute", "h hr hour", "day",
    "week wk", "month", "year yr", "in inch inche", "ft foot feet", "yd yard", "mi mile", "lb pound", "oz ounce",
    "ton tonne", "gallon gal", "acre", "hectare", "degree deg", "radian rad", "C celsius centigrade", "F fahrenheit",
    "K kelvin", "J joule", "cal calorie", "N newton", "W watt", "V volt", "A ampere amp",
    "Hz hertz", "Pa pascal", "mol mole", "bit", "byte",
    "dollar buck usd", "cent", "euro eur", "rupee inr re rs", "franc", "yen",
)  # fmt: skip
PREFIXED = frozenset(["m", "g", "L", "s", "J", "cal", "N", "W", "V", "A", "Hz", "Pa", "mol", "bit", "byte"])
PREFIXES = {"kilo": "k", "centi": "c", "milli": "m", "micro": "u", "nano": "n", "mega": "M", "giga": "G", "deci": "d"}
SHORT_FORMS = {"mph": "mi/h", "kmph": "km/h", "kph": "km/h", "kmh": "km/h", "cc": "cm^3", "kilo": "kg", "kwh": "kW h"}
# What coherent units are made of, so that a value is the same in both: N and kg m/s^2, mL and cm^3.
MADE_OF = {"N": "kg m/s^2", "J": "kg m^2/s^2", "W": "kg m^2/s/s^2", "Pa": "kg/m/s^2", "Hz": "s^{-1}", "mL": "cm^3"}
TEMPERATURES = ("C", "F", "K")
TOKEN = re.compile(
    r"(?P<per>/|\b(?:per|an?)\b)|(?P<joint>\\cdot|\.)"
    r"|(?P<word>[A-Za-z]+)(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?|\S"
)
BEFORE_UNIT = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
BEHIND_UNIT = {"squared": 2, "sq": 2, "cubed": 3}

Factors = dict[str, int]


def same_unit(a: str, b: str) -> bool | None:
    """Whether two units are one, in whatever spelling; None where one of them holds a word that is no known unit."""
    p, g = factors(a), factors(b)
    if p is None or g is None:
        return None
    if {"degree": 1} in (p, g) and any({unit: 1} in (p, g) for unit in TEMPERATURES):
        return True  # of what the degrees are is left out
    return p == g


@lru_cache(maxsize=1024)
def factors(text: str) -> Factors | None:
    """The known units that a unit is made of, with their powers: `km/h` is {km: 1, h: -1}; None if any is unknown."""
    found: Factors = {}
    sign, scale, last = 1, 1, ""
    for token in TOKEN.finditer(text):
        word = token["word"] or ""
        if token["per"]:
            sign = -1
        elif token["joint"] or (word == "degrees" and last == "" and text.strip() != word):
            continue  # degrees Celsius
        elif last and word in BEHIND_UNIT:
            found[last] *= BEHIND_UNIT[word]
        elif word in BEFORE_UNIT:
            scale = BEFORE_UNIT[word]
        elif parts := known(word):
            power, scale = sign * scale * int(token["power"] or 1), 1
            for last, own in parts.items():
                found[last] = found.get(last, 0) + own * power
        else:
            return None
    return {unit: power for unit, power in found.items() if power} or None


@lru_cache(maxsize=1024)
def known(word: str) -> Factors | None:
    """A word as known units: `kms` and `kilometres` are {km: 1}, `mph` is {mi: 1, h: -1}."""
    for spelling in dict.fromkeys((word, word.lower(), word.removesuffix("s"), word.lower().removesuffix("s"))):
        if long := SHORT_FORMS.get(spelling):
            return factors(long)
        if unit := units_by_spelling().get(spelling):
            return factors(MADE_OF[unit]) if unit in MADE_OF else {unit: 1}
    return None


@cache
def units_by_spelling() -> dict[str, str]:
    """Every spelling with the name of its unit, those with a prefix included; an unprefixed unit keeps its spelling."""
    plain = {spelling: row.split()[0] for row in SPELLINGS for spelling in row.split()}
    table = {}
    for spelling, unit in plain.items():
        if unit in PREFIXED:
            written = PREFIXES if len(spelling) > 3 else {short: short for short in PREFIXES.values()}
            table |= {prefix + spelling: written[prefix] + unit for prefix in written}
    return table | plain
