"""A recorded page as text: the candidates and what stands around them, the rest of the page left out.

    <html> <form search> <input id=12 text title of the book /> <button id=21> Search </button> </form> </html>

The rules and their numbers are those of Mind2Web's MindAct (Deng et al. 2023), which Synapse and AWM took over. Only
candidates have an id, the page's own `backend_node_id`; MindAct renumbers them, the others do not.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from core.errors import UserError

ID, TEXT = "backend_node_id", "text"
DEPTH, CHILDREN, SIBLINGS = 6, 50, 3  # levels and elements below a candidate; elements before and after it
MOST_WORDS = 20  # of a text, and of an element's attributes
CHOICE_WORDS = 10  # of an element that stands in a list of choices
VALUE_WORDS, WORD_CHARS = 5, 15  # words of an attribute, and of how many characters they stay under
# Attributes in the order in which they are shown, without their names; the others are not.
SHOWN = (
    *"role aria_role type alt aria_description aria_label label title name text_value value placeholder".split(),
    *"input_checked input_value option_selected class".split(),
)
SAYS_NOTHING = ("hidden", "none", "presentation", "null", "undefined")


@dataclass
class Page:
    """`cleaned_html` of a step. Raises UserError where it is no XML."""

    html: str
    _root: ET.Element = field(init=False, repr=False)
    _parents: dict[ET.Element, ET.Element] = field(init=False, repr=False)
    _elements: dict[str, ET.Element] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self._root = ET.fromstring(self.html)
        except ET.ParseError as error:
            raise UserError(f"a page of Mind2Web cannot be read: {error}") from error
        self._parents = {child: parent for parent in self._root.iter() for child in parent}
        self._elements = {node.attrib[ID]: node for node in self._root.iter() if node.tag != TEXT and ID in node.attrib}

    def text(self, candidates: Iterable[str]) -> str:
        """The page around the candidates; ids that it does not have are passed over."""
        known = [self._elements[each] for each in candidates if each in self._elements]
        kept = {node for candidate in known for node in self._around(candidate)}
        return " ".join(self._words(self._root, kept, set(known)))

    def element(self, candidate: str) -> str:
        """The first words of one element; "" where the page does not have it."""
        node = self._elements.get(candidate)
        if node is None:
            return ""
        words = " ".join(self._words(node, {node, *_below(node, 0)}, {node})).split()
        return " ".join(words[:CHOICE_WORDS])

    def _around(self, node: ET.Element) -> Iterator[ET.Element]:
        yield node
        yield from islice(_below(node, 0), CHILDREN)
        parent = self._parents.get(node)
        if parent is not None:
            beside = [child for child in parent if child.tag != TEXT]
            place = beside.index(node)
            yield from beside[max(0, place - SIBLINGS) : place + SIBLINGS + 1]
        while parent is not None:
            yield parent
            parent = self._parents.get(parent)

    def _words(self, node: ET.Element, kept: set[ET.Element], candidates: set[ET.Element]) -> list[str]:
        """The element as a tag, its texts and those of its children that are kept."""
        below = [
            _text(child) if child.tag == TEXT else self._words(child, kept, candidates)
            for child in node
            if child.tag == TEXT or child in kept
        ]
        inner = [word for words in below for word in words]
        bare = node not in candidates and not node.attrib.keys() - {ID} and node in self._parents
        if bare and sum(map(bool, below)) <= 1 and not any(child.tag == TEXT for child in node):
            return inner  # an element that says nothing of itself and holds at most one other
        about = [node.tag, *([f"id={node.attrib[ID]}"] if node in candidates else []), *_attributes(node)]
        head = " ".join(about)
        return [f"<{head}>", *inner, f"</{node.tag}>"] if inner else [f"<{head} />"]


def _below(node: ET.Element, depth: int) -> Iterator[ET.Element]:
    """The elements below, each before its own children."""
    if depth == DEPTH:
        return
    for child in node:
        yield child
        yield from _below(child, depth + 1)


def _text(node: ET.Element) -> list[str]:
    return (node.text or "").split()[:MOST_WORDS]


def _attributes(node: ET.Element) -> list[str]:
    """The words of the attributes that say something, each value once."""
    values: dict[str, None] = {}
    for name in SHOWN:
        value = node.attrib.get(name, "").lower()
        if value in SAYS_NOTHING or value.startswith("http"):
            continue
        words = [word for word in value.split() if len(word) < WORD_CHARS][:VALUE_WORDS]
        if words:
            values[" ".join(words)] = None
    return " ".join(values).split()[:MOST_WORDS]
