"""The report as a page that follows its runs: served on this machine alone, made anew whenever a run has gone on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from core.errors import UserError
from core.types import content_id

HOST = "127.0.0.1"
WATCHED = ("manifest.json", "episodes.jsonl", "summary.json")  # what a run writes as it goes on
LOOK_S = 1.0  # how often the runs are looked at
REST = 4  # a page that took a second to make is not made anew for this many seconds


@dataclass(kw_only=True)
class Live:
    """The newest page and how it is kept so.

    paths     run directories or folders of them; runs that are started there later join in
    make      the page of what is there now, given its version; raises UserError while there is nothing to show
    waiting   the page that is shown until then, given that error and its version
    """

    paths: list[Path]
    make: Callable[[str], bytes]
    waiting: Callable[[str, str], bytes]
    page: bytes = b""
    version: str = ""
    said: str = ""
    _shows: bool = field(default=False, repr=False)  # results, not a page that waits for some
    _ready: float = field(default=0.0, repr=False)

    def refresh(self) -> bool:
        """Make the page anew where the runs have gone on and the last one is old enough; whether it was."""
        if time.monotonic() < self._ready or (version := self._seen()) == self.version:
            return False
        began = time.monotonic()
        try:
            page, self._shows = self.make(version), True
        except (UserError, OSError) as error:
            self._ready = began + LOOK_S
            if self._shows:  # a run is being moved, or restarted: what was shown stays
                self.said = f"not up to date: {error}"
                return False
            page = self.waiting(str(error), version)
        self.page, self.version = page, version  # in this order: a page is never older than its version
        self.said = f"following the runs · as of {time.strftime('%H:%M:%S')}"
        self._ready = time.monotonic() + REST * (time.monotonic() - began)
        return True

    def state(self) -> bytes:
        """What the page asks for: which version is the newest, and a few words."""
        return json.dumps({"version": self.version, "said": self.said}).encode()

    def _seen(self) -> str:
        """An id of how far every run has got."""
        manifests = {file for path in self.paths for file in [path / "manifest.json", *path.rglob("manifest.json")]}
        seen = []
        for folder in sorted(file.parent for file in manifests):
            for name in WATCHED:
                try:
                    found = (folder / name).stat()
                    seen.append((str(folder), name, found.st_size, found.st_mtime_ns))
                except FileNotFoundError:
                    continue
        return content_id(seen)


class Handler(BaseHTTPRequestHandler):
    """Two addresses, read only: / is the page, /state says whether there is a newer one."""

    def __init__(self, *given: object, live: Live) -> None:
        self.live = live
        super().__init__(*given)  # which answers the request

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            return self.send_error(403, "this page is for this machine alone")  # a name that someone pointed here
        path = self.path.partition("?")[0]
        if path == "/":
            return self._answer("text/html; charset=utf-8", self.live.page)
        if path == "/state":
            return self._answer("application/json", self.live.state())
        return self.send_error(404)

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_given: object) -> None:
        """Nothing: the terminal is the reader's."""


def serve(live: Live, port: int, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C. port: 0 for any that is free. Raises UserError for one that is taken."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(Handler, live=live))
    except OSError as error:
        raise UserError(f"port {port} cannot be used ({error.strerror}): give another with --port, or 0.") from error
    server.daemon_threads = True
    with server:
        try:
            live.refresh()
            threading.Thread(target=server.serve_forever, daemon=True).start()
            say(f"http://{HOST}:{server.server_address[1]}/ follows the runs; Ctrl-C ends it.")
            while True:
                time.sleep(LOOK_S)
                live.refresh()
        except KeyboardInterrupt:
            say("\nStopped following; the runs were only read.")
