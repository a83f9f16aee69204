"""Log in to a site that guards its form with a CSRF token and a rate limit.

The lesson that carries over: the token is the one in the page's meta tag, never the one in the form's old hidden field;
each page's token is good for one request; after 429, wait as long as Retry-After says and open the page again. Two
refused requests lock the account. Site, user, password, tokens, the seconds, the order of the two fields, and whether
the page, the form or both are throttled first differ by variant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from envs.scenarios.base import JobService, offered, write_call

USERS = "ann ben cleo dara emil fay gus hana ivo jana".split()


@dataclass(kw_only=True)
class LoginService(JobService):
    """Throttled once by the page, once by the form, or by both, as the variant has it."""

    job = "login"
    title = "Logging in with a CSRF token under a rate limit"
    rules: ClassVar[dict[str, str]] = {
        "token": "Call open_page before every login, because a token is good for one request, and take the csrf token "
        "from the page's meta tag csrf-token, never from the form's hidden field. Two refused requests lock the "
        "account.",
        "wait": "After an answer 429 first call wait with as many seconds as Retry-After says, then call open_page "
        "again and log in with its new token.",
    }
    _clock: int = field(default=0, init=False)
    _free_at: int = field(default=0, init=False)  # the clock's time until which everything is refused
    _pages: int = field(default=0, init=False)
    _token: str = field(default="", init=False)  # the only one that counts; "" once it is used
    _refused: int = field(default=0, init=False)
    _throttles: set[str] = field(default_factory=set, init=False)  # where the next request is answered by 429

    @property
    def query(self) -> str:
        return f"Log in to the site {self._site()} as {self._user()}."

    def open(self) -> str:
        self._throttles = set(self._traps())
        return f'The password is "{self._password()}".'

    @offered
    def open_page(self) -> str:
        """shows the login page."""
        if refusal := self._hindered("page"):
            return refusal
        self._pages += 1
        self._token = self._csrf(self._pages)
        fields = [
            f'<meta name="csrf-token" content="{self._token}">',
            f'<input type=hidden name=csrf value="{self._old()}">',
        ]
        return f"200 OK {' '.join(self.shuffled(fields, 'fields'))} <input name=user> <input name=password>"

    @offered
    def login(self, user: str, password: str, csrf: str) -> str:
        """sends the login form."""
        token, self._token = self._token, ""
        if self._clock < self._free_at:
            return self._hindered("form")
        if not token or csrf != token:
            return self._refuse("token", "403 Forbidden: CSRF token missing, used or invalid.")
        if refusal := self._hindered("form"):
            return refusal
        if (user, password) != (self._user(), self._password()):
            return self._refuse(None, "401 Unauthorized: wrong user or password.")
        return self.win(f"200 OK: welcome, {user}.")

    @offered
    def wait(self, seconds: int) -> str:
        """lets time pass."""
        self._clock += seconds
        return f"{seconds} s have passed."

    def walkthrough(self) -> list[str]:
        page, wait = write_call("open_page"), write_call("wait", seconds=self._retry_after())
        traps = self._traps()
        pages = [page, wait, page] if "page" in traps else [page]
        if "form" not in traps:
            return [*pages, self._form(1)]
        return [*pages, self._form(1), wait, page, self._form(2)]

    def choices(self) -> list[str]:
        times = (5, self._retry_after()) if self._free_at else (5,)
        waits = [write_call("wait", seconds=seconds) for seconds in times]
        tokens = [self._csrf(self._pages), self._old()] if self._pages else [""]
        sent = {"user": self._user(), "password": self._password()}
        return [write_call("open_page"), *waits, *(write_call("login", **sent, csrf=token) for token in tokens)]

    def _hindered(self, where: str) -> str:
        """The answer to a request that comes too early; "" to one in time."""
        if self._clock < self._free_at:
            return self._refuse("wait", "429 Too Many Requests: you did not wait.")
        if where not in self._throttles:
            return ""
        self._throttles.remove(where)
        self._free_at = self._clock + self._retry_after()
        return f"429 Too Many Requests. Retry-After: {self._retry_after()}"

    def _refuse(self, rule: str | None, text: str) -> str:
        self._refused += 1
        return self.fail(rule, f"{text} 423 Locked: the account is locked.") if self._refused > 1 else text

    def _form(self, page: int) -> str:
        return write_call("login", user=self._user(), password=self._password(), csrf=self._csrf(page))

    def _traps(self) -> tuple[str, ...]:
        return self.draw([("page",), ("form",), ("page", "form")], "traps")

    def _site(self) -> str:
        return f"{self.word('site')}.example"

    def _user(self) -> str:
        return self.draw(USERS, "user")

    def _password(self) -> str:
        return f"{self.word('password')}-{self.draw(range(10, 99), 'password number')}"

    def _csrf(self, page: int) -> str:
        return self.word("csrf", page, syllables=4)

    def _old(self) -> str:
        return self.word("old", syllables=5)  # longer, so that it is never a token

    def _retry_after(self) -> int:
        return self.draw(range(20, 90), "retry")
