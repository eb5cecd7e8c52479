"""Run a test's scenario in a network namespace of its own, which goes away with the process.

A scenario is a module-level function without arguments; it runs in a child process, so nothing it
does to interfaces and routes is seen outside. Root may make a namespace; others may if the kernel
lets them make a user namespace along with it.
"""

import atexit
import ctypes
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NoReturn

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
TIMEOUT_S = 60
SKIPPED = 77  # As automake and meson have it.


def run_scenario(scenario: Callable[[], None], timeout_s: float = TIMEOUT_S) -> None:
    """Run a scenario in a fresh namespace where only loopback is up; skip where there is none."""
    refusal = why_not()
    if refusal:
        pytest.skip(refusal)
    done = enter_and_run(scenario, timeout_s)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def enter_and_run(
    scenario: Callable[[], None] | None, timeout_s: float = TIMEOUT_S
) -> "subprocess.CompletedProcess[str]":
    """Run a scenario in a process that enters a namespace first."""
    _python, *ordered = command(scenario)
    return processes.run(
        ordered, imports=("hubbub", "pytest"), cwd=ROOT, text=True, timeout=timeout_s
    )


def command(scenario: Callable[[], None] | None) -> list[str]:
    """Write the command that enters a namespace and runs a scenario there."""
    name = f"{scenario.__module__}:{scenario.__qualname__}" if scenario else ":"
    return [sys.executable, "-m", "tests.integration.namespace", name]


@cache
def why_not() -> str:
    """Say why there can be no namespace here, or nothing."""
    if sys.platform != "linux":
        return "network namespaces are a feature of Linux"
    probe = enter_and_run(None)
    if probe.returncode:
        return f"no network namespace: {probe.stderr.strip().splitlines()[-1]}"
    return ""


def skip(reason: str) -> NoReturn:
    """Say, from inside a scenario, that it cannot be played here."""
    sys.stdout.write(reason)
    sys.exit(SKIPPED)


def ip(arguments: str) -> None:
    """Run `ip` in the current namespace."""
    subprocess.run(["ip", *arguments.split()], check=True, timeout=TIMEOUT_S)


def wait_for_cable(name: str) -> None:
    """Wait until an interface has noticed its cable: before that the kernel drops what is sent."""
    deadline = time.monotonic() + TIMEOUT_S
    shown = ""
    while "LOWER_UP" not in shown or "state UP" not in shown or "tentative" in shown:
        assert time.monotonic() < deadline, shown
        time.sleep(0.01)
        arguments = ["ip", "address", "show", "dev", name]
        shown = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def enter() -> None:
    """Move this process into a fresh network namespace and bring loopback up."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET):
        if libc.unshare(CLONE_NEWNET | CLONE_NEWUSER):
            code = ctypes.get_errno()
            raise OSError(code, f"unshare: {os.strerror(code)}")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        # We are root here, but the runtime directory of root is not ours.
        runtime = os.environ["HUBBUB_RUNTIME_DIR"] = mkdtemp(prefix="hubbub-")
        atexit.register(rmtree, runtime, ignore_errors=True)
    ip("link set lo up")


def main() -> None:
    """Enter a namespace, then run the scenario named by the command line."""
    enter()
    module, _, name = sys.argv[1].partition(":")
    if module:
        getattr(importlib.import_module(module), name)()


if __name__ == "__main__":
    main()
