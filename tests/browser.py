"""A headless Chromium that is installed here, driven by Playwright, to look at a page as a reader's browser does."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

# No sandbox, because containers and root have none: so only for pages made here.
FLAGS = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")
PATIENCE_MS = 60_000


class Browser(ExitStack):
    """One tab. A context manager, or to be closed; `errors` collects what its console and its scripts complain about,
    `requests` the addresses that its pages ask for.

    Raises playwright's errors, for a page that cannot be opened and a script that fails or does not end in time.
    """

    def __init__(self, program: str) -> None:
        from playwright.sync_api import sync_playwright

        super().__init__()
        self.errors: list[str] = []
        self.requests: list[str] = []
        chromium = self.enter_context(sync_playwright()).chromium
        self._tab = self.enter_context(chromium.launch(executable_path=program, args=FLAGS)).new_page()
        self.screen()
        self._tab.set_default_timeout(PATIENCE_MS)
        self._tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self._tab.on("console", self._listen)
        self._tab.on("request", lambda request: self.requests.append(request.url))

    def _listen(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.errors.append(said.text)

    def screen(self, width: int = 1400, height: int = 900, *, dark: bool = False) -> None:
        """The window's size, and whether the reader wants pages dark."""
        self._tab.set_viewport_size({"width": width, "height": height})
        self._tab.emulate_media(color_scheme="dark" if dark else "light")

    def open(self, url: str) -> None:
        """Go to an address and wait until the page has loaded, anew even where only what follows the # is another."""
        if "#" in url:
            self._tab.goto("about:blank")
        self._tab.goto(url, wait_until="load")

    def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return self._tab.screenshot()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        return self._tab.evaluate(script)

    def wait(self, script: str, *, reloads: bool = False) -> None:
        """Until an expression is true. reloads: also where the page loads itself anew meanwhile."""
        from playwright.sync_api import Error

        end = time.monotonic() + PATIENCE_MS / 1000
        while True:  # playwright's own wait needs eval, which the report's policy forbids
            try:
                if self.run(f"Boolean({script})"):
                    return
            except Error:
                if not reloads:
                    raise
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """A key, as a person would press it."""
        self._tab.keyboard.press(key)
