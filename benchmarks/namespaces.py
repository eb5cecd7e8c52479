"""Two hosts out of namespaces, with an Ethernet between them that exists in memory only.

Each has a network of its own, of which a veth pair is all that leads elsewhere, and a /dev/shm of
its own, so that no peer can take a short cut that there is not between hosts.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

VETH = "hub0"
ADDRESSES = ("10.99.0.1", "10.99.0.2")
NEEDS = "needs root, unshare, nsenter and ip"
CLONE_FS = 0x200
# The host ends with the pipe to its standard input, however the benchmark ends.
LIVE = "mount -t tmpfs tmpfs /dev/shm && echo ready && exec cat"


@dataclass(frozen=True)
class Host:
    """One end, kept by a process that does nothing else."""

    pid: int

    @property
    def prefix(self) -> tuple[str, ...]:
        """Give the command that runs another one in this host's network."""
        return ("nsenter", "--net", "--target", str(self.pid))

    def enter(self) -> None:
        """Move the calling thread here; Python has `os.setns` since 3.12."""
        libc, place = ctypes.CDLL(None, use_errno=True), os.getcwd()
        # A mount namespace can only be entered by who shares no file system state with a thread.
        _check(libc.unshare(CLONE_FS), "unshare")
        for name in ("net", "mnt"):
            with open(f"/proc/{self.pid}/ns/{name}", encoding="ascii") as namespace:
                _check(libc.setns(namespace.fileno(), 0), f"setns {name}")
        os.chdir(place)


def _check(result: int, call: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), call)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host] | None]:
    """Make two hosts with a veth pair between them, MTU 1500; None: not possible here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        yield None
        return
    with contextlib.ExitStack() as stack:
        here, there = (_live(stack) for _ in ADDRESSES)
        _ip(here, f"link add {VETH} mtu 1500 type veth peer name {VETH} mtu 1500 netns {there.pid}")
        for host, address in zip((here, there), ADDRESSES, strict=True):
            _ip(host, "link set lo up")
            _ip(host, f"addr add {address}/24 dev {VETH}")
            _ip(host, f"link set {VETH} up multicast on")
            _ip(host, f"route add 224.0.0.0/4 dev {VETH}")
        yield here, there


def _live(stack: contextlib.ExitStack) -> Host:
    """Start the process that keeps a host, and wait until it is one."""
    process = subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-c", LIVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    stack.enter_context(process)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise SystemExit("no namespaces here: unshare or mount failed")
    return Host(process.pid)


def _ip(host: Host, arguments: str) -> None:
    subprocess.run([*host.prefix, "ip", *arguments.split()], check=True)
