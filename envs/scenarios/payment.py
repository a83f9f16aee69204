"""Take one payment over an API with OAuth, retries and signed webhooks.

The lesson that carries over: ask for the scope payments.write; give the charge an idempotency key, and after 504 repeat
it with the same key; after 401 get a new token; verify webhooks with the webhook secret (not the client's) and
acknowledge only one that is valid. Names, secrets, amounts, how soon a token expires, and the order of the true and the
forged webhooks differ by variant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from envs.scenarios.base import JobService, offered, write_call

SCOPES = ("payments.read", "payments.write")
MERCHANTS = "Ravel Ostrand Kimble Tavex Brunel Corvin Lindor Marsk".split()


@dataclass(kw_only=True)
class PaymentService(JobService):
    """The gateway books the first charge and then times out, so that a second one without its key is booked again."""

    job = "payment"
    title = "Charging once over a payment API with webhooks"
    rules: ClassVar[dict[str, str]] = {
        "once": "First get a token with the scope payments.write. Give every charge an idempotency_key of your own, "
        "and after 504 or 401 repeat the charge with the same key: a charge that timed out may have been booked, and "
        "without the key it is booked twice. After 401 get a new token first.",
        "webhook": "After the charge call read_webhooks. Verify every webhook with the webhook secret, not with the "
        "client secret, and acknowledge only the one that is valid: some are forged.",
    }
    _tokens: dict[str, list] = field(default_factory=dict, init=False)  # token -> [scope, charges that it is good for]
    _booked: list[str] = field(default_factory=list, init=False)  # the keys of the charges, "" without
    _confirmed: bool = field(default=False, init=False)
    _verified: set[str] = field(default_factory=set, init=False)
    _read: bool = field(default=False, init=False)

    @property
    def query(self) -> str:
        return (
            f"Charge {self._amount()} cents for order {self._order()} of the merchant {self._merchant()}, exactly once."
        )

    def open(self) -> str:
        return (
            f'The client is "{self._client()}" with the client secret "{self._secret("client")}"; the webhook secret '
            f'is "{self._secret("webhook")}". Then acknowledge the webhook that says the charge went through.'
        )

    @offered
    def get_token(self, client: str, secret: str, scope: str) -> str:
        """gets an OAuth token."""
        if (client, secret) != (self._client(), self._secret("client")):
            return "401 Unauthorized: invalid_client."
        if scope not in SCOPES:
            return f"400 Bad Request: invalid_scope. The scopes are {' and '.join(SCOPES)}."
        token = self._token(len(self._tokens))
        self._tokens[token] = [scope, self._uses()]
        return f"200 OK: token {token}"

    @offered
    def charge(self, token: str, order: str, cents: int, idempotency_key: str = "") -> str:
        """charges the customer; the idempotency_key may be left out."""
        scope, uses = self._tokens.get(token, ("", 0))
        if not uses:
            return "401 Unauthorized: invalid_token, unknown or expired."
        if scope != "payments.write":
            return "403 Forbidden: insufficient_scope."
        if (order, cents) != (self._order(), self._amount()):
            return "422 Unprocessable: no such order with this amount."
        self._tokens[token][1] -= 1
        again = bool(idempotency_key) and idempotency_key in self._booked
        if not again:
            self._booked.append(idempotency_key)
        if len(self._booked) > 1:
            return self.fail("once", "200 OK, but the customer was charged twice.")
        if not again:
            return "504 Gateway Timeout: it is not known whether the charge was booked."
        self._confirmed = True
        return "200 OK: the charge is booked."

    @offered
    def read_webhooks(self) -> str:
        """lists the webhooks that came in."""
        if not self._confirmed:
            return "200 OK: none has come in. They come after a charge that was answered by 200."
        self._read = True
        lines = (f"- {event}: charge.succeeded for order {self._order()}" for event in self._events())
        return "\n".join(["200 OK", *lines])

    @offered
    def verify(self, event: str, secret: str) -> str:
        """checks a webhook's signature with a secret."""
        if not self._read or event not in self._events():
            return "404 Not Found: no such webhook."
        if event != self._genuine() or secret != self._secret("webhook"):
            return "200 OK: the signature does not match."
        self._verified.add(event)
        return "200 OK: the signature is valid."

    @offered
    def acknowledge(self, event: str) -> str:
        """acknowledges a webhook; the goods are then sent."""
        if not self._read or event not in self._events():
            return "404 Not Found: no such webhook."
        if event not in self._verified:
            return self.fail(
                "webhook", "200 OK, but the goods were sent for a webhook that was not shown to be genuine."
            )
        return self.win("200 OK: paid once, and the goods are sent.")

    def walkthrough(self) -> list[str]:
        charges = [self._charge(0), self._charge(0)]
        if self._uses() == 1:  # the second charge is told that its token has expired
            charges += [self._get_token(), self._charge(1)]
        checks = [self._verify(event) for event in self._events()[: self._events().index(self._genuine()) + 1]]
        done = write_call("acknowledge", event=self._genuine())
        return [self._get_token(), *charges, write_call("read_webhooks"), *checks, done]

    def choices(self) -> list[str]:
        charges = [self._charge(len(self._tokens) - 1, key) for key in (True, False)] if self._tokens else []
        events = self._events() if self._read else []
        after = [call for one in events for call in (self._verify(one), write_call("acknowledge", event=one))]
        return [self._get_token(), *charges, write_call("read_webhooks"), *after]

    def _get_token(self) -> str:
        return write_call("get_token", client=self._client(), secret=self._secret("client"), scope="payments.write")

    def _charge(self, token: int, key: bool = True) -> str:
        keyed = {"idempotency_key": f"key-{self._order()}"} if key else {}
        return write_call("charge", token=self._token(token), order=self._order(), cents=self._amount(), **keyed)

    def _verify(self, event: str) -> str:
        return write_call("verify", event=event, secret=self._secret("webhook"))

    def _merchant(self) -> str:
        return self.draw(MERCHANTS, "merchant")

    def _client(self) -> str:
        return f"{self._merchant().lower()}-{self.draw(range(10, 99), 'client')}"

    def _order(self) -> str:
        return f"A{self.draw(range(1000, 9999), 'order')}"

    def _amount(self) -> int:
        return self.draw(range(1200, 90000), "amount")

    def _secret(self, whose: str) -> str:
        return self.word("secret", whose, syllables=4)

    def _token(self, number: int) -> str:
        return self.word("token", number, syllables=4)

    def _uses(self) -> int:
        """Charges until a token expires: with 1, the repeated charge needs a new one."""
        return self.draw((1, 2), "uses")

    def _events(self) -> list[str]:
        return self.shuffled([f"ev_{word}" for word in self.words(3, "event")], "events")

    def _genuine(self) -> str:
        return f"ev_{self.words(3, 'event')[0]}"
