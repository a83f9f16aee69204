"""The queue of attempts that wait for extraction. It is stored in the bank, so it survives the server.

One process at a time works on it: lead() takes the lock; leads() checks that we still hold it. The lock is released
when the process dies. A job found in the state running was left by such a process, and is done again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from core.memory.moment import now
from core.memory.store.contract import BankStore, Lead

KEPT = 1000  # finished jobs of a namespace that are kept, so that clients can ask for their results
TRIES = 5  # starts of a job, after each of which its process died, before it makes room for the others as failed
MOST_DEATHS = 20  # up to which it is tried again once no other waits: a process may die for reasons of its own
KEPT_TEXTS = 100  # failed jobs of a namespace that keep their payload, for another try
_ONE = "id = $1 AND coalesce($2, namespace) = namespace"  # namespace None: of any
# A job left running comes first; then round-robin over namespaces, so that one with a long queue does not starve the
# others: the oldest job of the namespace whose last job ended longest ago.
_NEXT = """
    SELECT * FROM jobs WHERE rowid = ( -- a payload may be large: only that of the next one is read
        SELECT j.rowid FROM jobs j LEFT JOIN (
            SELECT namespace, max(changed_at) AS at FROM jobs WHERE state IN ('completed', 'failed') GROUP BY namespace
        ) ended ON ended.namespace = j.namespace
        WHERE j.state IN ('pending', 'running')
        ORDER BY j.state = 'pending', coalesce(ended.at, ''), j.rowid LIMIT 1
    )
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """state is pending | running | completed | failed; payload is the input, deleted when the job is completed.

    The KEPT_TEXTS newest failed jobs of a namespace keep theirs.
    """

    id: str
    namespace: str
    state: str
    payload: dict[str, Any]
    result: dict[str, Any]
    tries: int
    created_at: str
    changed_at: str


class Jobs:
    """The queue of an open bank, of all namespaces. Thread-safe, also with other processes on the same bank."""

    def __init__(self, store: BankStore) -> None:
        self._store = store.of(None)
        self._lead: Lead | None = None

    def put(self, id: str, namespace: str, payload: dict[str, Any]) -> Job:
        """Queue a job. Does nothing if a job with this id exists, unless it has failed: then it is queued again."""
        text, at = json.dumps(payload), now()
        with self._store.unjournaled() as db:
            db.execute(
                "UPDATE jobs SET state = 'pending', payload = $3, result = '{}', tries = 0, changed_at = $4 "
                f"WHERE {_ONE} AND state = 'failed'",
                (id, namespace, text, at),
            )
            known = f"SELECT * FROM jobs WHERE {_ONE}"
            if (found := db.execute(known, (id, namespace)).fetchone()) is None:
                new = "INSERT INTO jobs VALUES ($1, $2, 'pending', $3, '{}', 0, $4, $4)"
                db.execute(new, (id, namespace, text, at))
                found = db.execute(known, (id, namespace)).fetchone()
            return _job(found)

    def get(self, id: str, namespace: str | None = None) -> Job | None:
        """The job with this id, of this namespace or of any; None when there is none."""
        found = self._store.rows(f"SELECT * FROM jobs WHERE {_ONE}", (id, namespace))
        return _job(found[0]) if found else None

    def counts(self, namespace: str | None = None) -> dict[str, int]:
        """{state: number of jobs}. namespace None: of all namespaces."""
        query = "SELECT state, count(*) FROM jobs WHERE coalesce($1, namespace) = namespace GROUP BY 1"
        return dict(self._store.rows(query, (namespace,)))

    def waiting(self) -> bool:
        """Whether any job is pending or running."""
        return bool(self._store.rows("SELECT 1 FROM jobs WHERE state IN ('pending', 'running') LIMIT 1"))

    def lead(self) -> bool:
        """Take the queue's lock; False while another process holds it."""
        if self._lead is None:
            self._lead = self._store.lead()
        return self._lead is not None

    def leads(self) -> bool:
        """Whether this process still holds the lock: in a database server it is lost with the connection."""
        return self._lead is not None and self._lead.held()

    def leave(self) -> None:
        """Release the queue's lock."""
        lead, self._lead = self._lead, None
        if lead is not None:
            lead.close()

    def next(self) -> Job | None:
        """The next job, marked as running. Call only while holding the lock. A job started TRIES times before fails."""
        while found := self._store.rows(_NEXT):
            job = _job(found[0])
            if job.tries < TRIES:
                begin = f"UPDATE jobs SET state = 'running', tries = tries + 1, changed_at = $3 WHERE {_ONE}"
                with self._store.unjournaled() as db:
                    db.execute(begin, (job.id, job.namespace, now()))
                return job
            deaths = job.result.get("deaths", 0) + job.tries
            why = f"the server died {deaths} times while it worked on this"
            self.end(job.id, "failed", {"error": why, "deaths": deaths}, namespace=job.namespace)
        return None

    def requeue(self, id: str, why: str, *, namespace: str | None = None) -> None:
        """Return a running job to pending without counting the try. `why` is stored in its result."""
        with self._store.unjournaled() as db:
            query = f"UPDATE jobs SET state = 'pending', tries = tries - 1, result = $3, changed_at = $4 WHERE {_ONE}"
            db.execute(query, (id, namespace, json.dumps({"waits_for": why[:2000]}), now()))

    def retry_died(self) -> bool:
        """Queue those failed jobs again at which servers died, up to MOST_DEATHS times. Call while no other waits."""
        died = f"state = 'failed' AND CAST(json_extract(result, '$.deaths') AS INTEGER) < {MOST_DEATHS}"
        return bool(self._store.rows(f"SELECT 1 FROM jobs WHERE {died} LIMIT 1")) and self._retry(died) > 0

    def retry_failed(self) -> int:
        """Queue all failed jobs again that have kept their payload; returns how many."""
        return self._retry("state = 'failed'")

    def _retry(self, which: str) -> int:
        query = f"UPDATE jobs SET state = 'pending', tries = 0, changed_at = $1 WHERE {which} AND payload <> '{{}}'"
        with self._store.unjournaled() as db:
            return db.execute(query, (now(),)).rowcount

    def end(self, id: str, state: str, result: dict[str, Any], *, namespace: str | None = None) -> None:
        """Mark a job as completed or failed. Of a namespace the newest KEPT stay, with the payloads of the failed."""
        with self._store.unjournaled() as db:
            query = f"UPDATE jobs SET state = $3, result = $4, changed_at = $5 WHERE {_ONE}"
            one = (id, namespace)
            db.execute(query, (*one, state, json.dumps(result), now()))
            ended = "FROM jobs WHERE state IN ('completed', 'failed')"
            mine = f"AND namespace = (SELECT namespace FROM jobs WHERE {_ONE} LIMIT 1)"
            newest = "ORDER BY changed_at DESC, rowid DESC LIMIT"
            db.execute(f"DELETE {ended} {mine} AND rowid NOT IN (SELECT rowid {ended} {mine} {newest} {KEPT})", one)
            kept = f"SELECT rowid FROM jobs WHERE state = 'failed' {mine} {newest} {KEPT_TEXTS}"
            done = f"state IN ('completed', 'failed') AND payload <> '{{}}' AND rowid NOT IN ({kept})"
            db.execute(f"UPDATE jobs SET payload = '{{}}' WHERE {done} {mine}", one)


def _job(row: tuple) -> Job:
    values = dict(zip((field.name for field in fields(Job)), row))
    return Job(**values | {name: json.loads(values[name]) for name in ("payload", "result")})
