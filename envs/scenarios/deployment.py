"""Bring a new version of a service live without downtime: two slots, health checks, a migration of the database.

The lesson that carries over: expand the database first; deploy to the slot without traffic; ask for its health until
it is healthy; send it 10 percent, and if more than 1 percent of its requests fail take the traffic back and deploy the
fixed version there; then 100 percent; contract the database last. Names, versions, which slot is live, how long it
warms up and whether the first build is bad differ by variant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from envs.scenarios.base import JobService, offered, write_call

SLOTS = ("blue", "green")
SERVICES = "billing search cart mail stock login maps chat".split()
CANARY = 10  # percent of the traffic, at most, that a new version may be given at first


@dataclass(kw_only=True)
class DeploymentService(JobService):
    job = "deployment"
    title = "Deploying without downtime over two slots"
    rules: ClassVar[dict[str, str]] = {
        "slot": "Deploy only to the slot that has no traffic, never to the live one.",
        "health": "First migrate with the step expand, then deploy, and ask for the slot's health until it says "
        "healthy before you send it any traffic.",
        "canary": "Send a new version 10 percent of the traffic first, and 100 percent only if at most 1 percent of "
        "its requests fail; else send it 0 percent, deploy the fixed version to the same slot and begin again.",
        "contract": "Migrate with the step contract last, when the new version has 100 percent of the traffic.",
    }
    _versions: dict[str, str] = field(default_factory=dict, init=False)  # slot -> version
    _share: dict[str, int] = field(default_factory=dict, init=False)  # slot -> percent of the traffic
    _schema: str = field(default="old", init=False)  # old | expanded | contracted
    _asked: int = field(default=0, init=False)  # for the health of the new version
    _healthy: bool = field(default=False, init=False)  # the agent was told so
    _tried: bool = field(default=False, init=False)  # the new version had a part of the traffic
    _seen_bad: bool = field(default=False, init=False)  # the first build failed with a part of it

    @property
    def query(self) -> str:
        return f"Bring version {self._version('new')} of the service {self._service()} live without downtime."

    def open(self) -> str:
        live, idle = self._slots()
        self._versions = {live: self._version("old"), idle: "nothing"}
        self._share = {live: 100, idle: 0}
        return (
            f"The version {self._version('fixed')} is a fixed build, for the case that {self._version('new')} is bad. "
            "The new version needs a column, which the step expand adds; the step contract removes the old one."
        )

    @offered
    def status(self) -> str:
        """shows slots, traffic and schema."""
        slots = (f"{slot} runs {self._versions[slot]} with {self._share[slot]} percent" for slot in SLOTS)
        return f"200 OK: {', '.join(slots)}; the schema is {self._schema}"

    @offered
    def migrate(self, step: str) -> str:
        """changes the database: expand or contract."""
        after = {"expand": ("old", "expanded"), "contract": ("expanded", "contracted")}.get(step)
        if after is None:
            return "400 Bad Request: the steps are expand and contract."
        if self._schema != after[0]:
            return f"409 Conflict: the schema is {self._schema}."
        live, idle = self._slots()
        self._schema = after[1]
        if step == "expand":
            return "200 OK: the schema is expanded."
        if self._share[live]:
            return self.fail("contract", "500 Outage: the live version's column is gone.")
        return self.win(f"200 OK: version {self._versions[idle]} is live, without downtime.")

    @offered
    def deploy(self, slot: str, version: str) -> str:
        """puts a version into a slot."""
        if slot not in SLOTS or version not in (self._version("new"), self._version("fixed")):
            return "404 Not Found: no such slot or version."
        if version == self._version("fixed") and not self._seen_bad:
            return f"403 Forbidden: {self._version('new')} was not shown to be bad."
        if self._share[slot]:
            return self.fail("slot", f"502 Outage: {slot} had {self._share[slot]} percent of the traffic.")
        self._versions[slot] = version
        self._asked, self._healthy, self._tried = 0, False, False
        return f"202 Accepted: {slot} starts {version}."

    @offered
    def health(self, slot: str) -> str:
        """asks for the health of a slot."""
        if slot not in SLOTS or self._versions[slot] == "nothing":
            return "404 Not Found: nothing runs there."
        if slot == self._slots()[0]:
            return "200 OK: healthy."
        if self._schema == "old":
            return "500 Unhealthy: a column is missing in the database."
        self._asked += 1
        if self._asked < self._warms_up():
            return "503 Starting: not healthy yet."
        self._healthy = True
        return "200 OK: healthy."

    @offered
    def shift_traffic(self, slot: str, percent: int) -> str:
        """sends a slot so many percent of the traffic, and the rest to the other one."""
        live, idle = self._slots()
        if slot not in SLOTS or percent > 100:
            return "400 Bad Request: no such slot, or more than 100 percent."
        share = percent if slot == idle else 100 - percent  # of the new version
        if share and not self._healthy:
            return self.fail("health", "502 Outage: the slot that was sent traffic was not shown to be healthy.")
        if share > CANARY and (self._bad() or not self._tried):
            return self.fail("canary", "500 Outage: too many requests failed on the new version.")
        self._share = {idle: share, live: 100 - share}
        self._tried = self._tried or share > 0
        self._seen_bad = self._seen_bad or (share > 0 and self._bad())
        failing = f"; {self._failing()} percent of the requests to {idle} fail" if share else ""
        return f"200 OK: {idle} has {share} percent, {live} has {100 - share} percent{failing}."

    def walkthrough(self) -> list[str]:
        idle = self._slots()[1]
        calls = [write_call("status"), write_call("migrate", step="expand")]
        for version in ("new", "fixed")[: 1 + self._first_is_bad()]:
            calls.append(write_call("deploy", slot=idle, version=self._version(version)))
            calls += [write_call("health", slot=idle)] * self._warms_up()
            calls.append(write_call("shift_traffic", slot=idle, percent=CANARY))
            if version == "new" and self._first_is_bad():
                calls.append(write_call("shift_traffic", slot=idle, percent=0))
        return [*calls, write_call("shift_traffic", slot=idle, percent=100), write_call("migrate", step="contract")]

    def choices(self) -> list[str]:
        versions = (self._version("new"), self._version("fixed"))
        per_slot = [
            call
            for slot in SLOTS
            for call in (
                *(write_call("deploy", slot=slot, version=version) for version in versions),
                write_call("health", slot=slot),
                *(write_call("shift_traffic", slot=slot, percent=percent) for percent in (0, CANARY, 100)),
            )
        ]
        return [write_call("status"), *(write_call("migrate", step=step) for step in ("expand", "contract")), *per_slot]

    def _bad(self) -> bool:
        """Whether the build in the new slot fails."""
        return self._first_is_bad() and self._versions[self._slots()[1]] == self._version("new")

    def _failing(self) -> float:
        return self.draw((4, 7, 9, 12), "failing") if self._bad() else 0.1

    def _first_is_bad(self) -> bool:
        return self.draw((True, False), "bad")

    def _warms_up(self) -> int:
        """How often its health is asked until a new version is healthy."""
        return self.draw((2, 3), "warm")

    def _slots(self) -> tuple[str, str]:
        """(the live one, the other one)."""
        return self.draw([SLOTS, SLOTS[::-1]], "live")

    def _version(self, which: str) -> str:
        major, minor = self.draw(range(2, 9), "major"), self.draw(range(1, 20), "minor")
        return {"old": f"{major}.{minor}.0", "new": f"{major}.{minor + 1}.0", "fixed": f"{major}.{minor + 1}.1"}[which]

    def _service(self) -> str:
        return f"{self.word('team')}-{self.draw(SERVICES, 'service')}"
