"""The sandboxes of env=swe: what runs in it reaches nothing, uses no more than it may, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import REPO, wait_for
from hostile import COMMANDS, GROUPS, filled
from swe_kit import bubblewrap, make, on_a_disk_of, stand_in, write_instances

from core.errors import InfraError, UserError
from core.types import digest
from envs.swe import bubblewrap as bubblewrap_module
from envs.swe import bubblewrap_words, seccomp, usage
from envs.swe.bubblewrap import Bubblewrap
from envs.swe.container import Container
from envs.swe.env import SANDBOXES, make_sandbox
from envs.swe.sandbox import Limits
from envs.swe.usage import passed

TIGHT = Limits(memory_mb=256, processes=64, file_mb=16, disk_mb=48, files=3000, output_mb=1)
CANARY = "canary-7f3a91-do-not-tell"


@pytest.fixture
def source(tmp_path) -> Path:
    folder = tmp_path / "source"
    (folder / "tests").mkdir(parents=True)
    (folder / "conftest.py").write_text("")
    return folder


@pytest.fixture
def box(source):
    made = make_sandbox("bwrap", TIGHT)
    made.check()
    made.open(str(source))
    yield made
    made.close()


def inside(folder: Path) -> list[int]:
    """The processes of this machine that have a sandbox's folder among their mounts."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                mounts = (entry / "mountinfo").read_text()
            except OSError:
                continue
            if folder.name in mounts:
                found.append(int(entry.name))
    return found


class Outside:
    """What a command must not reach: a folder that anybody may write to, a server, a process, our environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.heard = folder / "outside", 0
        self.folder.mkdir()
        (self.folder / "secret").write_text(CANARY)
        (self.folder / "file").write_text("good")
        self.servers = [socket.socket(), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        self.marker = f"marker-{os.getpid()}-{time.time_ns()}"
        for server, place in zip(
            self.servers, (("127.0.0.1", 0), str(self.folder / "socket"), f"\0{self.marker}"), strict=True
        ):
            server.bind(place)
            server.listen()
            threading.Thread(target=self._listen, args=(server,), daemon=True).start()
        for path in (self.folder, *self.folder.iterdir()):
            path.chmod(0o777)
        self.process = subprocess.Popen(["sleep", "1000"], env={"CANARY": CANARY}, cwd=self.folder)
        self.values = {"port": self.servers[0].getsockname()[1], "outside": self.folder, "pid": self.process.pid}
        self.values["marker"] = self.marker
        self.before = self.state()

    def _listen(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self.heard += 1
            connection.close()

    def state(self) -> str:
        """Of the folder, of the process, and of the machine's own folders."""
        files = [[path.name, path.read_bytes().hex()] for path in sorted(self.folder.iterdir()) if path.is_file()]
        modes = [stat.S_IMODE(path.stat().st_mode) for path in sorted(self.folder.iterdir())]
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        alive = self.process.poll() is None and "State:\tT" not in status
        places = [sorted(map(str, Path(place).iterdir())) for place in ("/", "/usr", "/opt", "/etc/profile.d")]
        home = Path("~/.bashrc").expanduser()
        return digest(files, modes, alive, places, home.read_text() if home.is_file() else "", socket.gethostname())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for server in self.servers:
            server.close()


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY", CANARY)
        patch.setenv("OPENAI_API_KEY", CANARY)
        made = Outside(tmp_path_factory.mktemp("machine"))
        yield made
        made.close()


@pytest.fixture(scope="module")
def contained(outside, tmp_path_factory):
    """Nothing hostile is tried where the simplest things are not so."""
    box = make_sandbox("bwrap", TIGHT)
    box.check()
    box.open(str(tmp_path_factory.mktemp("empty")))
    script = f'id -u; ls /proc | grep -c "^[0-9]"; ls {outside.folder} {REPO} ~/.bashrc; cat /proc/net/dev | wc -l; env'
    uid, n_processes, *said = box.run(script, 20).output.splitlines()
    box.close()
    assert (uid != "0" or os.geteuid() != 0) and int(n_processes) < 12
    assert sum("cannot access" in line for line in said) == 3 and "3" in said  # two lines of a head, and `lo`
    assert CANARY not in "\n".join(said)


def test_there_are_two_hundred_hostile_commands():
    assert len(COMMANDS) >= 200 and len({command for _, command in COMMANDS}) == len(COMMANDS)


@bubblewrap
@pytest.mark.usefixtures("contained")
@pytest.mark.parametrize("group", GROUPS)
def test_a_hostile_command_is_contained(group, source, outside):
    before = shutil.disk_usage("/dev/shm").used

    def tried(command):
        box = Bubblewrap(limits=TIGHT)
        box.open(str(source))
        folder, began = box._folder, time.monotonic()
        ran = box.run(filled(command, **outside.values), 0.6)
        assert time.monotonic() - began < 60, command  # it ended: some of them would go on for ever
        assert len(ran.output) <= TIGHT.output_mb << 20, command
        assert CANARY not in ran.output, command
        assert inside(folder) == [], command  # whatever it started has ended
        assert outside.state() == outside.before, command
        assert outside.heard == 0, command
        after = box.run("echo still here", 10)  # the attempt goes on; what it did to its own copy stays so
        assert "still here" in after.output or "bwrap" in after.output or after.killed, (command, after)
        more = shutil.disk_usage("/dev/shm").used - before
        assert more < 2 << 30, command
        box.close()
        assert not folder.exists(), command

    with ThreadPoolExecutor(3) as pool:  # most of them wait for their end
        list(pool.map(tried, GROUPS[group]))
    box = Bubblewrap(limits=TIGHT)
    box.open(str(source))
    assert box.run("ls", 10).output == "conftest.py\ntests\n"
    box.close()


@bubblewrap
@pytest.mark.parametrize(
    ("command", "killed"),
    [
        ("sleep 99", "time"),
        ("for n in 1 2 3 4; do python -c 'x = b\"1\" * (90 << 20); input(len(x))' < /dev/ptmx & done; wait", "memory"),
        ("while true; do n=$((n + 1)); head -c 8M /dev/zero > big$n; done", "disk"),
        ("while true; do : > f$((n++)); done", "files"),
        ("yes", "output"),
    ],
)
def test_what_is_over_a_limit_is_killed_and_named(box, command, killed):
    ran = box.run(command, 1.0 if killed == "time" else 30)
    assert (ran.killed, ran.returncode) == (killed, None)
    again = box.run("rm -rf big* f[0-9]*; ls", 20)  # what is too much can be removed
    assert (again.output, again.returncode) == ("conftest.py\ntests\n", 0)


# Programs that fill what belongs to no process, or to none that has it in its own memory, 8 MB at a time.
HOLD = """
import ctypes, mmap, os, sys, time
block, held, c = 8 << 20, [], ctypes.CDLL(None, use_errno=True)
c.shmat.restype, c.shmat.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
c.shmdt.argtypes, c.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def memfd():
    held.append(os.memfd_create("held"))
    os.write(held[-1], bytes(block))

def system_v():
    held.append(c.shmget(0, block, 0o1600))
    place = c.shmat(held[-1], None, 0)
    if held[-1] < 0 or place in (None, 2 ** 64 - 1):
        sys.exit("refused")
    c.memset(place, 1, block)
    c.shmdt(place)

def of_a_child_that_ended():
    held.append(mmap.mmap(-1, block))
    if os.fork() == 0:
        held[-1].write(b"1" * block)
        os._exit(0)
    os.wait()

def on_every_mount():
    for line in open("/proc/mounts"):
        kind, place = line.split()[2], line.split()[1]
        if kind == "tmpfs" and place not in ("/tmp", "/testbed", "/dev/shm"):
            try:
                with open(place + "/held", "ab") as file:
                    file.write(bytes(block))
                held.append(place)
            except OSError:
                pass

while True:
    before = len(held)
    try:
        globals()[sys.argv[1]]()
    except OSError as error:
        sys.exit(f"refused: {error}")
    if len(held) == before:
        sys.exit("refused")
    print(8 * len(held), flush=True)
    time.sleep(0.02)
"""


@bubblewrap
@pytest.mark.parametrize("kind", ["memfd", "system_v", "of_a_child_that_ended", "on_every_mount"])
@pytest.mark.slow
def test_memory_that_is_in_no_process_counts_too(box, kind):
    box.give("hold.py", HOLD)
    ran = box.run(f"for n in 1 2 3; do python /given/hold.py {kind} & done; wait", 30)
    assert ran.killed or ran.output.count("refused") == 3
    assert (ran.killed == "memory") is (kind == "of_a_child_that_ended")
    held = sorted(int(line) for line in ran.output.split() if line.isdigit())
    if (group := box._group) is None:  # it is looked at four times a second: a burst may pass the limit
        assert len(held) <= 2 * TIGHT.memory_mb / 8, ran.output  # of all three together: a line for each block
    else:
        peak = next(
            path for name in ("memory.peak", "memory.max_usage_in_bytes") if (path := group.folder / name).exists()
        )
        assert int(peak.read_text()) <= 1.05 * TIGHT.memory_mb * 2**20


@bubblewrap
@pytest.mark.slow
def test_a_group_of_the_kernel_goes_with_its_sandbox(source):
    box = Bubblewrap(limits=TIGHT)
    box.open(str(source))
    if (group := box._group) is None:
        box.close()
        pytest.skip("this user may make no group for memory")
    assert box.run("cat /proc/self/cgroup", 10).returncode == 0 and group.kills() == 0
    ran = box.run(
        "for n in 1 2 3 4; do python -c 'x = b\"1\" * (90 << 20); input(len(x))' < /dev/ptmx & done; wait", 30
    )
    assert ran.killed == "memory"
    assert box.run("echo on", 10).output == "on\n"
    box.close()
    assert not group.folder.exists()


@bubblewrap
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as an ordinary user already")
def test_an_ordinary_users_sandbox_holds_as_well():
    """The tests of limits and of hostile commands, once more, by a user who may make no group."""
    folder = Path(tempfile.mkdtemp(prefix="ordinary-"))
    try:
        folder.chmod(0o777)
        words = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
        words += ["-k", "hostile or limit or memory or user or calls", "--basetemp", str(folder / "tests")]
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
        env = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*user, *words], cwd=REPO, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout.count(".") > 25, done.stdout[-5000:] + done.stderr[-500:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@bubblewrap
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python -c 'bytearray(1 << 30)'", "MemoryError"),
        ("head -c 20M /dev/zero > one", ""),
        ("for n in $(seq 99); do sleep 1 & done; wait", "Resource temporarily unavailable"),
    ],
)
def test_a_limit_of_the_kernel_is_what_the_command_runs_into(box, command, said):
    ran = box.run(command, 30)
    assert said in ran.output and not ran.killed
    assert box.run("test -e one && stat -c %s one || echo 0", 10).output.strip() in ("0", str(16 << 20))


@bubblewrap
def test_files_stay_and_nothing_else(box):
    box.run("echo 1 > here; echo 2 > /tmp/there; export X=3; cd tests; sleep 99 > /dev/null 2>&1 &", 10)
    assert box.run("cat here /tmp/there; echo $X; pwd; ps -e | grep -c sleep", 10).output == "1\n2\n\n/testbed\n0\n"


@bubblewrap
def test_what_a_command_finds(box):
    ran = box.run("python --version; pytest --version; git --version; python -c 'import yaml'", 30)
    assert "pytest 9" in ran.output and "git version" in ran.output and "No module named 'yaml'" in ran.output
    box.give("note", "caf\u00e9\r\n")
    assert box.run("cat /given/note; echo x > /given/note", 10).output.startswith("caf\u00e9\r\n")
    assert box.run("printf 'a\\r\\nb\\0\\377'", 10).output == "a\r\nb\0\ufffd"


@bubblewrap
@pytest.mark.parametrize("where", ["ROOT", "home", "cwd"])
def test_what_lies_among_the_programs_and_is_none_of_them_is_hidden(where, source, monkeypatch):
    """As in an image with the project in /usr/src/app."""
    place = next(path for path in sorted(Path("/usr/share").iterdir()) if path.is_dir() and any(path.iterdir()))
    if where == "ROOT":
        monkeypatch.setattr(bubblewrap_words, "ROOT", place)
    else:
        monkeypatch.setattr(Path, where, lambda: place)
    bubblewrap_words.system.cache_clear()
    box = Bubblewrap(limits=TIGHT)
    try:
        box.open(str(source))
        assert box.run(f"ls -A {place}; ls /usr/share | wc -l", 10).output.strip() != "0"
        assert box.run(f"ls -A {place}", 10).output == ""
    finally:
        box.close()
        bubblewrap_words.system.cache_clear()


@bubblewrap
def test_two_at_once_do_not_meet(source):
    def work(number: int) -> tuple[str, str]:
        box = Bubblewrap(limits=TIGHT)
        box.open(str(source))
        try:
            box.run(f"echo {number} > mine; echo {number} > /tmp/mine; echo {number} > /dev/shm/mine", 20)
            first = box.run("sleep 0.5; cat mine /tmp/mine; ls /dev/shm; ls | wc -l", 20).output
            seen = box.run("ps -e | wc -l; sleep 0.5", 20).output
            return first, seen
        finally:
            box.close()

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(work, (1, 2)))
    assert [first for first, _ in found] == ["1\n1\n3\n", "2\n2\n3\n"]
    assert all(int(seen) < 10 for _, seen in found)


@bubblewrap
def test_an_abort_ends_the_command_at_once(box):
    threading.Timer(0.5, box.abort).start()
    began = time.monotonic()
    box.run("sleep 60", 60)
    assert time.monotonic() - began < 60 and inside(box._folder) == []


HARNESS = """
import sys
from envs.swe.env import make_sandbox
from envs.swe.sandbox import Limits
box = make_sandbox("bwrap", Limits())
box.open(sys.argv[1])
print(box._folder, flush=True)
box.run("(setsid sleep 1000 > /dev/null 2>&1 &); python -c 'import time; time.sleep(1000)' & sleep 1000", 1000)
"""


@bubblewrap
def test_when_the_harness_is_killed_no_process_stays(source):
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(source)], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    folder = Path(process.stdout.readline().strip())
    wait_for(lambda: len(inside(folder)) > 4)
    process.kill()
    process.wait()
    wait_for(lambda: inside(folder) == [] and not folder.exists())


@bubblewrap
def test_a_folder_whose_remover_was_killed_too_goes_with_the_next_sandbox(source):
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(source)], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    folder = Path(process.stdout.readline().strip())
    wait_for(lambda: len(inside(folder)) > 4)
    removers = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and parent_of(entry) == str(process.pid)
    ]
    for pid in (*removers, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: inside(folder) == [])
    assert folder.exists()
    box = Bubblewrap(limits=TIGHT)
    box.open(str(source))
    box.close()
    assert not folder.exists()


def parent_of(entry: Path) -> str:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""


CALLS = """
import ctypes, errno, json, socket
call = ctypes.CDLL(None, use_errno=True).syscall
def said(number):
    return errno.errorcode[ctypes.get_errno()] if call(number, 0, 0, 0, 0, 0) < 0 else "done"
found = {name: said(number) for name, number in json.loads(NUMBERS).items()}
for family in range(1, 46):
    try:
        socket.socket(family, socket.SOCK_STREAM if family != 16 else socket.SOCK_RAW).close()
        found[f"socket {family}"] = "done"
    except OSError as error:
        found[f"socket {family}"] = errno.errorcode[error.errno]
print(json.dumps(found))
"""


@bubblewrap
def test_the_calls_that_a_sandbox_refuses(box):
    asked = {**seccomp.numbers(), "keyctl of x32": 250 | seccomp.X32}
    ran = box.run(f"cat > calls.py <<'END'\nNUMBERS = '{json.dumps(asked)}'\n{CALLS}\nEND\npython calls.py", 30)
    said = json.loads(ran.output)
    assert {name for name in asked if said[name] != "ENOSYS"} == set()
    assert {"add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "ptrace"} <= set(asked)
    assert {"io_uring_setup", "process_vm_readv", "kexec_load", "mount", "fsopen", "unshare", "setns"} <= set(asked)
    families = {n: said[f"socket {n}"] for n in range(1, 46)}
    assert {n for n, each in families.items() if each != "EAFNOSUPPORT"} == set(seccomp.SOCKETS)
    assert all(families[n] == "done" for n in seccomp.SOCKETS)


@bubblewrap
def test_a_key_of_one_sandbox_is_in_no_other_and_not_in_ours(source):
    """The kernel has one keyring a user for all of them: 248 is add_key, 250 is keyctl of x86_64."""
    numbers = seccomp.numbers()
    script = (
        "import ctypes; c = ctypes.CDLL(None).syscall; "
        f"print(c({numbers['add_key']}, b'user', b'note', b'secret', 6, -4), c({numbers['keyctl']}, 11, -4, 0, 0, 0))"
    )
    for _ in range(2):
        box = Bubblewrap(limits=TIGHT)
        box.open(str(source))
        assert box.run(f'python -c "{script}"', 20).output == "-1 -1\n"
        box.close()


def test_a_machine_whose_calls_are_not_known_has_no_sandbox():
    with pytest.raises(UserError, match="knows x86_64 and aarch64, not riscv64"):
        seccomp.program("riscv64")


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_lets_through_what_it_does_not_refuse(machine):
    """Run here as the kernel runs it, for both machines."""
    lines = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    arch, socket_number = seccomp.MACHINES[machine]

    def answer(number: int, first: int = 0, arch: int = arch) -> int:
        data = {0: number, 4: arch, 16: first}
        place = loaded = 0
        while True:
            code, yes, no, value = lines[place]
            if code == 0x06:
                return value
            if code == 0x20:
                loaded = data[value]
            else:
                place += yes if (loaded == value if code == 0x15 else loaded >= value) else no
            place += 1

    allowed, refused = 0x7FFF0000, 0x50000 | errno.ENOSYS
    numbers = set(seccomp.numbers(machine).values())
    assert {n for n in range(600) if n != socket_number and answer(n) == refused} == numbers
    assert {answer(n) for n in range(600) if n not in {*numbers, socket_number}} == {allowed}
    assert {n for n in range(60) if answer(socket_number, n) == allowed} == set(seccomp.SOCKETS)
    assert answer(0, arch=0x40000003) == answer(seccomp.X32) == refused


@pytest.mark.parametrize("kind", ["none", "local", "", None])
def test_there_is_no_sandbox_that_is_none(kind, tmp_path):
    with pytest.raises(UserError, match="choose bwrap, docker or podman"):
        make_sandbox(kind, TIGHT)
    with pytest.raises(UserError, match="choose bwrap, docker or podman"):
        make(tmp_path, sandbox=kind)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (None, "bubblewrap is not installed: apt-get install -y bubblewrap"),
        ("echo bubblewrap 0.6.1", "0.8 or newer is needed, this is 0.6.1: apt-get install -y bubblewrap"),
        (
            '[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\n'
            'echo "setting up uid map: Permission denied" >&2; exit 1',
            r"cannot work here \(setting up uid map: Permission denied\). It needs user namespaces",
        ),
    ],
)
def test_without_bubblewrap_nothing_runs(program, said, tmp_path, monkeypatch):
    instances = write_instances(tmp_path / "data")
    folder = tmp_path / "bin"
    folder.mkdir()
    if program:
        (folder / "bwrap").write_text(f"#!/bin/sh\n{program}\n")
        (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    bubblewrap_words.check_bubblewrap.cache_clear()
    try:
        with pytest.raises(UserError, match=said):
            make(instances).tasks()
    finally:
        bubblewrap_words.check_bubblewrap.cache_clear()


@pytest.mark.parametrize("name", ["memory_mb", "processes", "output_mb"])
def test_a_limit_is_a_whole_number(name):
    for value in (0, -1, None, 1.5, True):
        with pytest.raises(UserError, match=f"env.limits.{name}="):
            Limits(**{name: value})


# docker and podman are tried with a stand-in only: there is none of them where these tests were written


@pytest.fixture
def container(request, tmp_path, monkeypatch):
    program = getattr(request, "param", "docker")
    programs = stand_in(tmp_path / "bin", program, write_instances(tmp_path / "data"), "{id}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    made = make_sandbox(program, TIGHT)
    made.check()
    made.open("empty_1776_stats-1")
    yield made, programs
    made.close()


@bubblewrap
def test_a_container_runs_commands_and_keeps_files(container):
    box, programs = container
    assert isinstance(box, Container)
    assert box.run("echo 1 > here; ls; pwd; exit 3", 20) == box.run("ls; pwd; exit 3", 20)
    ran = box.run("cat here; git log --oneline | wc -l; echo $PAGER", 20)
    assert (ran.output, ran.returncode) == ("1\n1\ncat\n", 0)
    box.give("a.txt", "text\n")
    assert box.run("cat /given/a.txt", 20).output == "text\n"
    assert box.run("yes", 20).killed == "output"
    assert box.run("sleep 60", 1).killed == "time"
    run = next(line for line in (programs / "log").read_text().splitlines() if line.startswith("run"))
    for words in (
        "--rm -i",
        "--network none",
        "--cap-drop ALL",
        "no-new-privileges",
        "--memory 256m",
        "--pids-limit 64",
    ):
        assert words in run
    assert "exec -w /testbed" in (programs / "log").read_text() and "kill -9 -1" in (programs / "log").read_text()
    name = box._name
    box.close()
    assert not (programs / name).exists()


@bubblewrap
@pytest.mark.parametrize("container", ["docker", "podman"], indirect=True)
def test_a_container_that_is_gone_or_never_came_is_an_infra_error(container):
    box, programs = container
    assert box.run("ls", 20).output == "conftest.py\nmean.py\ntests\n"
    box._client.kill()
    box._client.wait()
    shutil.rmtree(programs / box._name)
    with pytest.raises(InfraError, match="the container has ended"):
        box.run("ls", 20)
    with pytest.raises(InfraError, match="did not start nowhere: Unable to find image nowhere"):
        box.open("nowhere")


@bubblewrap
def test_a_container_that_ends_in_a_command_is_no_failure_of_the_command(container):
    """docker says so by the status 1, which many a command has too."""
    box, programs = container
    ends = f"os.kill({box._client.pid}, 9); sys.exit('No such container')"  # whose status is 1
    branch, text = 'elif words[0] == "exec":', (programs / box.program).read_text()
    (programs / box.program).write_text(text.replace(branch, f"{branch}\n    {ends}"))
    with pytest.raises(InfraError, match="the container has ended: No such container"):
        box.run("grep nothing a.txt", 20)


@bubblewrap
def test_an_abort_ends_a_container_for_good(container):
    box, programs = container
    abort = threading.Timer(0.5, box.abort)
    abort.start()
    began = time.monotonic()
    with pytest.raises(InfraError, match="^aborted$"):
        box.run("sleep 60", 60)
    assert time.monotonic() - began < 60
    abort.join(20)  # it is this call that removes the container: what it ended returns meanwhile
    assert not abort.is_alive() and not (programs / box._name).exists()
    with pytest.raises(InfraError, match="^aborted$"):
        box.open("empty_1776_stats-1")


@bubblewrap
def test_a_container_on_a_full_disk_says_so(container):
    box, programs = container
    box.check_room()
    name, text = box.program, (programs / box.program).read_text()
    table = "print('Filesystem 1024-blocks Used Available Capacity Mounted\\noverlay 9 9 1000 99% /'); sys.exit()"
    full = f'if "df" in words[-1]:\n    {table}\nif words[0] == "run":'
    (programs / name).write_text(text.replace('if words[0] == "run":', full))
    with pytest.raises(InfraError, match="the disk of its containers is full: less than 512 MB are free"):
        box.check_room()


def test_a_daemon_that_does_not_answer_is_an_infra_error(monkeypatch, tmp_path):
    (tmp_path / "docker").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("envs.swe.container.CALL_S", 0.5)
    with pytest.raises(UserError, match=r"does not work here \(docker version: .* timed out"):
        make_sandbox("docker", TIGHT).check()
    with pytest.raises(InfraError, match="docker exec: .* timed out"):
        make_sandbox("docker", TIGHT).give("a.patch", "text")


def test_a_container_needs_its_program(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for kind in SANDBOXES[1:]:
        with pytest.raises(UserError, match=f"{kind} is not installed"):
            make_sandbox(kind, TIGHT).check()
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(UserError, match=r"does not work here \(Cannot connect to the Docker daemon\)"):
        make_sandbox("docker", TIGHT).check()


# a full disk


@bubblewrap
def test_a_repository_for_which_the_disk_has_no_room_is_an_infra_error_and_leaves_nothing(source, tmp_path):
    (source / "large").write_bytes(os.urandom(4 << 20))
    said = on_a_disk_of(2, "told(box.open, str(tmp / 'source')); print(os.listdir(disk))", tmp_path)
    assert said == ["InfraError: the sandbox could not be made: [Errno 28] No space left on device (large)", "[]"]


@bubblewrap
def test_a_disk_that_is_filled_by_others_is_no_failure_of_the_command(source, tmp_path):
    script = """
box.open(str(tmp / "source"))
told(box.run, "echo here", 10)
with (disk / "others").open("w") as file:
    os.posix_fallocate(file.fileno(), 0, 100 << 20)
told(box.run, "echo here", 10)
told(box.run, "sleep 30", 60)
with (disk / "more").open("w") as file:
    room = os.statvfs(disk)
    os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
told(box.give, "a.patch", "x" * 100_000)
box.close()
"""
    said = on_a_disk_of(600, script, tmp_path)
    full = "InfraError: this machine's disk is full: there is no room for 512 MB where sandboxes are (TMPDIR)"
    unwritten = "InfraError: /given/a.patch could not be written: No space left on device"
    assert said == ["Ran(output='here\\n', returncode=0, killed='', refused=False)", full, full, unwritten]


@bubblewrap
def test_what_was_there_before_is_not_the_commands(source):
    """Also where it is more than the limits allow: then it must not grow."""
    for n in range(60):
        (source / f"file{n}").write_bytes(bytes(1 << 20))
    box = Bubblewrap(limits=TIGHT)
    box.open(str(source))
    assert box.run("sleep 1; ls | wc -l", 20).output == "62\n"
    assert box.run("head -c 8M /dev/zero > more; sleep 9", 20).killed == "disk"
    assert box.run("rm more file0; sleep 1; ls | wc -l", 20).output == "61\n"
    box.close()


@bubblewrap
def test_short_commands_cannot_write_more_than_a_long_one(box):
    """None of them is looked at while it runs."""
    ran = [box.run(f"head -c 16M /dev/zero > big{n}", 10) for n in range(8)]
    assert [each.killed for each in ran] == ["", "", "disk", "", "", "", "", ""], ran  # 48 MB are more than 48 MB
    assert "File size limit exceeded" in ran[3].output
    assert box.run("du -sm . | cut -f1", 10).output == "49\n"
    assert box.run("rm big0 big1; du -sm . | cut -f1", 10).output == "17\n"
    assert box.run("echo again > note; cat note", 10).output == "again\n"


@bubblewrap
def test_on_a_slow_machine_no_command_is_over_a_limit_that_it_is_within(box, source, monkeypatch, tmp_path):
    """And one that writes faster than can be counted does not get away."""
    du = shutil.which("du")
    (tmp_path / "du").write_text(f'#!/bin/sh\nsleep 0.3\nexec {du} "$@"\n')
    (tmp_path / "du").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(usage, "LOOK_S", 0.1)
    assert box.run("echo here > note", 20).returncode == 0
    with pytest.raises(InfraError, match="too slow: what a command writes could not be measured"):
        box.run("sleep 20", 20)
    monkeypatch.setattr("envs.swe.sandbox.POLL_S", 2.0)
    assert box.run("for n in 1 2 3 4; do head -c 16M /dev/zero > big$n; done; sleep 20", 20).killed == "disk"
    monkeypatch.setattr(bubblewrap_module, "MEASURE_S", 0.1)
    for work in (lambda: box.run("ls", 20), lambda: box.open(str(source))):
        with pytest.raises(InfraError, match="too slow: measuring a sandbox took longer than 0.1 s"):
            work()
    assert box._folder is None  # nothing is left of what could not be opened


@bubblewrap
def test_a_folder_that_only_its_owner_may_enter_is_readable_inside(source):
    """Also where the umask says so: root's commands run as another user."""
    source.chmod(0o700)
    umask, box = os.umask(0o077), Bubblewrap(limits=TIGHT)
    try:
        box.open(str(source))
        box.give("note", "text\n")
        said = box.run("ls; cat /given/note; pytest --version > /dev/null && touch new /tmp/new", 20)
    finally:
        os.umask(umask)
        box.close()
    assert (said.output, said.returncode) == ("conftest.py\ntests\ntext\n", 0)


@bubblewrap
def test_a_close_just_before_a_command_starts_is_no_error_of_ours(box, monkeypatch):
    def closed(*words):
        box.close()
        return passed(*words)

    monkeypatch.setattr(bubblewrap_module, "passed", closed)
    with pytest.raises(InfraError, match="^the sandbox was closed"):
        box.run("ls", 10)


@bubblewrap
def test_after_an_abort_nothing_begins(source, box):
    box.abort()
    for work in (lambda: box.run("ls", 10), lambda: box.give("a", "b"), lambda: box.open(str(source))):
        with pytest.raises(InfraError, match="^aborted$"):
            work()


@bubblewrap
def test_a_close_from_another_thread_ends_the_command_and_removes_the_folder(box):
    folder = box._folder
    threading.Timer(0.5, box.close).start()
    began = time.monotonic()
    with pytest.raises(InfraError, match="the sandbox (is gone|was closed)"):
        box.run("while true; do echo x > f$((n++ % 99)); done", 60)
    assert time.monotonic() - began < 60 and inside(folder) == []
    wait_for(lambda: not folder.exists())
