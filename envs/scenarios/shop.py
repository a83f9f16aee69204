"""Read a shop whose pages load lazily and whose page count is out of date: which of its products is the cheapest?

The lesson that carries over: scroll every page on which something loads late, go on until `next` says none whatever the
page count says, leave out the ads of other shops, and report only then, because there is one report. Shop, goods,
prices, cursors, the number of pages, and where the cheapest one hides (late on a page, or beyond the page count) differ
by variant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from envs.scenarios.base import JobService, offered, write_call

GOODS = "lamp chair kettle rug clock vase mirror basket".split()
FIRST = "start"
SHOWN = 2  # products of a page that are there at once
MOST = 4  # products of a page
CHEAP, DEAR = range(900, 1000), range(1100, 6000)  # cents: of the cheapest product, of all others


@dataclass(frozen=True, kw_only=True)
class Product:
    name: str
    cents: int
    late: bool  # loads only when the page is scrolled
    ad: bool  # of another shop

    def __str__(self) -> str:
        return f"{self.name}: {self.cents} cents{' (ad of another shop)' if self.ad else ''}"


@dataclass(kw_only=True)
class ShopService(JobService):
    job = "shop"
    title = "Reading a shop with pages that load lazily"
    rules: ClassVar[dict[str, str]] = {
        "read": "There is one report, so read everything first: call get_page, then scroll if more products load, "
        "then get_page with the next cursor, until next is none, because the page count is out of date. Only then "
        "report the name of the cheapest product.",
        "ads": "Ads of other shops do not count, however cheap they are.",
    }
    _seen: dict[str, Product] = field(default_factory=dict, init=False)
    _cursors: list[str] = field(default_factory=lambda: [FIRST], init=False)  # those that the agent was told

    @property
    def query(self) -> str:
        return f"Find the cheapest {self._kind()} of the shop {self.word('shop').title()} and report its name."

    def open(self) -> str:
        return f'The first page has the cursor "{FIRST}".'

    @offered
    def get_page(self, cursor: str) -> str:
        """shows a page of products."""
        if (number := self._page(cursor)) is None:
            return "404 Not Found: no page has this cursor."
        products, late = self._products(number), self._late(number)
        lines = self._show([one for one in products if not one.late])
        after = self._cursor(number + 1) if number + 1 < self._pages() else "none"
        if after != "none" and after not in self._cursors:
            self._cursors.append(after)
        more = [f"({len(late)} more load when the page is scrolled)"] if late else []
        head = f"200 OK, page {number + 1} of {self._announced()}"
        return "\n".join([head, *lines, *more, f"next: {after}"])

    @offered
    def scroll(self, cursor: str) -> str:
        """scrolls a page down to its end."""
        if (number := self._page(cursor)) is None:
            return "404 Not Found: no page has this cursor."
        return "\n".join(["200 OK", *(self._show(self._late(number)) or ["nothing more loads"])])

    @offered
    def report(self, product: str) -> str:
        """hands in the name of the cheapest product; it can be done once."""
        product = next((one.name for one in self._all() if one.name.lower() == product.lower()), product)
        if product == self._cheapest().name:
            return self.win("201 Created: that is the cheapest one.")
        wrong = "409 Conflict: that is not the shop's cheapest one."
        if product in {one.name for one in self._all() if one.ad}:
            return self.fail("ads", wrong)
        unread = sum(one.name not in self._seen for one in self._all())
        return self.fail("read", f"{wrong} Products that you have not read: {unread}.")

    def walkthrough(self) -> list[str]:
        calls = []
        for number in range(self._pages()):
            calls.append(write_call("get_page", cursor=self._cursor(number)))
            calls += [write_call("scroll", cursor=self._cursor(number))] * bool(self._late(number))
        return [*calls, write_call("report", product=self._cheapest().name)]

    def choices(self) -> list[str]:
        reading = [write_call(name, cursor=cursor) for cursor in self._cursors for name in ("get_page", "scroll")]
        return [*reading, *(write_call("report", product=name) for name in self._seen)]

    def _show(self, products: list[Product]) -> list[str]:
        self._seen |= {one.name: one for one in products}
        return [f"- {one}" for one in products]

    def _page(self, cursor: str) -> int | None:
        """The number of the page with a cursor that the agent was told, from 0."""
        known = {self._cursor(number): number for number in range(self._pages())}
        return known[cursor] if cursor in self._cursors else None

    def _late(self, number: int) -> list[Product]:
        return [one for one in self._products(number) if one.late]

    def _products(self, number: int) -> list[Product]:
        """Those of a page: two at once, then one or two late ones where it is lazy; and the ad on the first page."""
        cheapest = self._place_of_cheapest()
        lazy = number == cheapest[0] or self.draw((True, True, False), "lazy", number)
        count = SHOWN + (1 + self.draw((0, 1), "late", number) if lazy else 0)
        products = [
            Product(
                name=self._name(number * MOST + slot),
                cents=self.draw(CHEAP if (number, slot) == cheapest else DEAR, "cents", number, slot),
                late=slot >= SHOWN,
                ad=False,
            )
            for slot in range(count)
        ]
        return [*products, self._ad()] if number == 0 else products

    def _ad(self) -> Product:
        cents = self.draw(range(300, 800), "ad cents")
        return Product(name=self._name(-1), cents=cents, late=False, ad=True)

    def _name(self, number: int) -> str:
        return f"{self.words(self._pages() * MOST + 1, 'name')[number].title()} {self._kind()}"

    def _all(self) -> list[Product]:
        return [one for number in range(self._pages()) for one in self._products(number)]

    def _cheapest(self) -> Product:
        return min((one for one in self._all() if not one.ad), key=lambda one: one.cents)

    def _place_of_cheapest(self) -> tuple[int, int]:
        """(page, slot): late on a page that is announced, or at once on the last one, which is not."""
        beyond = (self._pages() - 1, 0)
        return self.draw([(0, SHOWN), (1, SHOWN), beyond, beyond], "place")

    def _kind(self) -> str:
        return self.draw(GOODS, "kind")

    def _pages(self) -> int:
        return self.draw((3, 4), "pages")

    def _announced(self) -> int:
        return self._pages() - 1

    def _cursor(self, number: int) -> str:
        return [FIRST, *self.words(self._pages() - 1, "cursor")][number]
