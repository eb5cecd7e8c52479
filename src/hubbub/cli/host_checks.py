"""Checks of this host that need no network: Python, kernel features, clocks."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hubbub.cli.diagnosis import Finding
from hubbub.configuration import unknown_variables
from hubbub.errors import LinkError
from hubbub.limits import SWITCH_INTERVAL_MS
from hubbub.links import meeting
from hubbub.runtime.kernel_clock import ask_kernel
from hubbub.runtime.timer import open_timer

CLOCK_LOOK_S: Final = 0.2
DRIFT_PPM_MAX: Final = 500  # More than any quartz or NTP slew: somebody is setting the clock.
_STEP_NS: Final = 1_000_000
_SLOW_CLOCKS: Final = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def examine() -> Iterator[Finding]:
    """Look at everything here."""
    yield check_python()
    yield check_environment(unknown_variables())
    yield check_local_link()
    yield check_memfd()
    yield check_timer()
    yield check_switch_interval(sys.getswitchinterval() * 1000)
    yield check_clock()
    yield check_clock_source(_read(_CLOCK_SOURCE))
    yield check_synchronisation(ask_kernel())


def check_python() -> Finding:
    """Tell which Python on which system this is."""
    what = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    if sys.platform == "linux":
        return Finding("python", "ok", f"{what} {platform.release()}")
    return Finding(
        "python", "warn", what, "Linux is what Hubbub is made for; elsewhere it is slower"
    )


def check_environment(unknown: list[str]) -> Finding:
    """Name variables that look like ours, and that nobody reads."""
    if not unknown:
        return Finding("environment", "ok", "every HUBBUB_* variable is one that is read")
    return Finding(
        "environment", "warn", f"nobody reads {', '.join(unknown)}",
        "mend the name: `hubbub config show` lists those that there are",
    )  # fmt: skip


def check_local_link() -> Finding:
    """Look for the place where the nodes of this host meet."""
    if not meeting.is_supported():
        return Finding(
            "local link", "warn", "no UNIX sockets that tell who is there",
            "use Linux; without them the nodes of one host talk by multicast, several times slower",
        )  # fmt: skip
    try:
        directory = meeting.runtime_directory()
    except LinkError as error:
        return Finding(
            "local link", "warn", str(error),
            "mend it, or name another with HUBBUB_RUNTIME_DIR; meanwhile the nodes of this host"
            " talk by multicast, several times slower",
        )  # fmt: skip
    return Finding("local link", "ok", f"nodes of this host meet in {directory}")


def check_memfd() -> Finding:
    """Make anonymous memory and seal it."""
    try:
        fileno = os.memfd_create("hubbub-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError) as error:
        return Finding(
            "memfd", "warn", f"no sealed shared memory: {error}",
            "use Linux 3.17 or later, and a sandbox that allows memfd_create;"
            " without it large payloads are copied",
        )  # fmt: skip
    os.close(fileno)
    return Finding("memfd", "ok", "sealed shared memory can be made")


def check_timer() -> Finding:
    """Make a timer descriptor."""
    timer = open_timer()
    if timer is None:
        return Finding(
            "timerfd", "warn", "no timerfd: timers are up to 1 ms late",
            "use Linux, and a sandbox that allows timerfd_create",
        )  # fmt: skip
    timer.close()
    return Finding("timerfd", "ok", "timers are precise")


def check_switch_interval(interval_ms: float) -> Finding:
    """Tell how long a busy thread may keep the interpreter."""
    what = f"{interval_ms:g} ms"
    if interval_ms <= SWITCH_INTERVAL_MS:
        return Finding("switch interval", "ok", what)
    return Finding(
        "switch interval", "ok", f"{what}; an open node lowers it to {SWITCH_INTERVAL_MS} ms"
    )


def check_clock() -> Finding:
    """Compare wall clock and monotonic clock for a moment."""
    wall_ns, steady_ns = time.time_ns(), time.monotonic_ns()
    time.sleep(CLOCK_LOOK_S)
    return judge_clock(time.time_ns() - wall_ns, time.monotonic_ns() - steady_ns)


def judge_clock(wall_ns: int, steady_ns: int) -> Finding:
    """Judge how far the wall clock went while the monotonic one went so far."""
    apart_ns = wall_ns - steady_ns
    if abs(apart_ns) > _STEP_NS:
        return Finding(
            "clock", "warn",
            f"the wall clock stepped by {apart_ns / 1e6:+.1f} ms within {steady_ns / 1e9:.1f} s",
            "find out who sets the clock; let NTP or PTP slew it: latencies are wrong at each step",
        )  # fmt: skip
    drift_ppm = apart_ns / steady_ns * 1e6
    if abs(drift_ppm) > DRIFT_PPM_MAX:
        return Finding(
            "clock", "warn", f"the wall clock runs {drift_ppm:+.0f} ppm against the monotonic one",
            "wait until NTP has slewed it: latencies drift meanwhile",
        )  # fmt: skip
    return Finding("clock", "ok", f"wall and monotonic clock agree ({drift_ppm:+.1f} ppm)")


def check_clock_source(source: str) -> Finding:
    """Judge what the kernel reads the time from."""
    if source in _SLOW_CLOCKS:
        return Finding(
            "clock source", "warn", f"{source}: reading the time takes a system call and longer",
            f"if the processor allows it: echo tsc | sudo tee {_CLOCK_SOURCE}",
        )  # fmt: skip
    return Finding("clock source", "ok", source or "not known on this system")


def check_synchronisation(is_synchronised: bool | None) -> Finding:
    """Judge the kernel's word on whether the clock is kept in step."""
    if is_synchronised is None:
        return Finding("clock sync", "ok", "not known on this system")
    if not is_synchronised:
        return Finding(
            "clock sync", "warn", "no NTP or PTP: latencies between hosts cannot be trusted",
            "sudo timedatectl set-ntp true   (or chrony, or ptp4l)",
        )  # fmt: skip
    return Finding("clock sync", "ok", "kept in step with other hosts")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
