"""Sites of WebArena set up anew, by the control ports that the images of webarena-verified have beside their own."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from http.client import HTTPException
from urllib.parse import urlsplit

from core.errors import InfraError

READY_S = 600.0  # for the sites of a task to be set up, all together: GitLab takes minutes
LOOK_S = 0.5  # between two looks at whether the attempt was aborted


def control_of(site: str, url: str) -> str:
    """The control port of a site at an address, as the images have it: its own + 1, of reddit - 1."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port + (-1 if site == 'reddit' else 1)}"


def reset_sites(
    controls: Mapping[str, str], within_s: float = READY_S, aborted: Callable[[], bool] = lambda: False
) -> None:
    """All of them at once. Raises InfraError as soon as one fails, or is not ready within_s seconds however it answers.

    controls   {site: the address of its control port}
    aborted    asked while waiting: whether the attempt is over, so that nothing is waited for any more
    """
    end, begun = time.monotonic() + within_s, {}
    for site, control in controls.items():
        begun[site] = outcome = Future()
        # Not of a pool: nobody waits for a server that hangs, and a socket's own limit is for each of its bytes.
        threading.Thread(target=_ask, args=(site, control, within_s, outcome), name="worker-reset", daemon=True).start()
    while True:
        done, waiting = wait(begun.values(), max(0.0, min(LOOK_S, end - time.monotonic())), FIRST_EXCEPTION)
        for outcome in done:
            outcome.result()
        if not waiting:
            return
        if aborted():
            raise InfraError("aborted")
        if time.monotonic() >= end:
            site = next(site for site, outcome in begun.items() if outcome in waiting)
            raise InfraError(f"{site} cannot be reset by {controls[site]}/init: it took longer than {within_s:g} s")


def _ask(site: str, control: str, timeout_s: float, outcome: Future) -> None:
    try:
        outcome.set_result(_reset(site, control, timeout_s))
    except BaseException as error:  # noqa: BLE001 - raised where the outcome is waited for
        outcome.set_exception(error)


def _reset(site: str, control: str, timeout_s: float) -> None:
    """POST /init, and wait for its answer {success, message}. Raises InfraError where that is no success."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"{control}/init", data=b"", method="POST")
    try:
        with direct.open(request, timeout=timeout_s) as answer:
            told = json.loads(answer.read())
    except (OSError, ValueError, HTTPException) as error:
        raise InfraError(f"{site} cannot be reset by {control}/init: {error}") from error
    if not (isinstance(told, dict) and told.get("success")):
        raise InfraError(f"{site} cannot be reset by {control}/init: {str(told)[:200]}")
