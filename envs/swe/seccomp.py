"""The system calls that a sandbox refuses: they reach what no namespace divides, or serve attacks on the kernel.

A filter is a program of classic BPF, which the kernel runs at each call of whatever runs in the sandbox (seccomp(2)).
A refused call fails with ENOSYS, as on a kernel without it, so programs that can do without it do.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from functools import cache

from core.errors import UserError

# {call: (number on x86_64, on aarch64)}; None: this machine has none
# fmt: off
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # the keyring: one a user, whatever the namespaces, so a task would read what another has stored
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # large parts of the kernel that no task needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "fanotify_init": (300, 262),
    "modify_ldt": (154, None),
    # the memory and the files of other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # memory that belongs to no process: nothing that may be measured here holds it
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186),
    # other namespaces, mounts, and files by their number
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # the machine itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "syslog": (103, 116), "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None),
}
# fmt: on
SOCKETS = (1, 2, 10, 16)  # unix, inet, inet6, netlink: of others the namespace of the network does not hold all (vsock)
MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # (its AUDIT_ARCH, its number of `socket`)
X32 = 0x40000000  # from this number on: the calls of x86_64 once more, with pointers of 32 bits

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # where they stand in struct seccomp_data; little-endian
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def numbers(machine: str | None = None) -> dict[str, int]:
    """{call: its number} of those refused here. Raises UserError on a machine for which they are not known."""
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise UserError(f"env.sandbox=bwrap: its filter of system calls knows {' and '.join(MACHINES)}, not {machine}.")
    place = list(MACHINES).index(machine)
    return {name: both[place] for name, both in REFUSED.items() if both[place] is not None}


def program(machine: str | None = None) -> bytes:
    """The filter, as `bwrap --seccomp` reads it: struct sock_filter of 8 bytes each. Other ABIs are refused whole."""
    refused = sorted(numbers(machine).values())
    arch, socket = MACHINES[machine or platform.machine()]
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += [(_EQUAL, len(refused) + 1 - place, 0, number) for place, number in enumerate(refused)]
    lines += [(_EQUAL, 2, 0, socket), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += [(_LOAD, 0, 0, _FIRST_ARGUMENT)]
    lines += [(_EQUAL, len(SOCKETS) - place, 0, family) for place, family in enumerate(SOCKETS)]
    lines += [(_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


@cache
def filter_file() -> int:
    """A descriptor of the filter, as a file in memory that is there as long as this process."""
    file = os.memfd_create("seccomp")
    os.write(file, program())
    return file
