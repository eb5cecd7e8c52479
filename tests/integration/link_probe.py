"""What the tests of links do with them: find a free port, collect frames, wait with a deadline."""

import itertools
import os
import random
import select
import socket
import time
from contextlib import suppress
from typing import Any

from hubbub.links.faults import split
from hubbub.links.multicast import MulticastLink
from hubbub.protocol.burst import Burst

DEADLINE_S = 5.0
_draw = random.SystemRandom()
_groups = itertools.count(os.getpid() % 200 * 256)


def free_port() -> int:
    """Find a port that nobody has, and that the kernel gives to nobody who asks for any."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as given_out:
        below = int(given_out.read().split()[0])
    while True:
        port = _draw.randrange(10_000, max(below, 20_000))
        with (
            suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
        ):
            datagrams.bind(("127.0.0.1", port))
            stream.bind(("127.0.0.1", port))
            return port


def fresh_group() -> str:
    """Name a group that no other test uses."""
    number = next(_groups) % 65_536
    return f"239.201.{number >> 8}.{number & 255}"


def open_links(count: int, **options: Any) -> list[MulticastLink]:
    """Open links of one fresh group, on loopback unless told otherwise."""
    group, port = options.pop("group", None) or fresh_group(), free_port()
    options.setdefault("interface", "127.0.0.1")
    return [MulticastLink(group, port, **options) for _ in range(count)]


def close(*links: MulticastLink) -> None:
    """Close them all."""
    for link in links:
        link.close()


def burst(*frames: bytes, to: Any = None) -> Burst:
    """Make a burst of frames, all of one size but perhaps the last."""
    return Burst(to, list(frames), len(frames[0]) if len(frames) > 1 else 0)


def receive(link: MulticastLink, count: int) -> list[tuple[bytes, Any]]:
    """Wait until so many frames have come, and give them with their sources."""
    frames: list[tuple[bytes, Any]] = []
    end = time.monotonic() + DEADLINE_S
    while len(frames) < count:
        left_s = end - time.monotonic()
        assert left_s > 0, f"{len(frames)} frames of {count} within {DEADLINE_S} s"
        select.select(link.filenos(), [], [], left_s)
        frames += take(link)
    return frames


def take(link: MulticastLink) -> list[tuple[bytes, Any]]:
    """Take all frames that are there now; on loopback that is all that was sent."""
    frames: list[tuple[bytes, Any]] = []
    while received := link.receive():
        for data, segment_bytes, source in received:
            frames += [(frame, source) for frame in split(data, segment_bytes)]
    return frames


def payloads(frames: list[tuple[bytes, Any]]) -> list[bytes]:
    """Leave the sources out."""
    return [frame for frame, _ in frames]


def numbered(count: int, size_bytes: int = 1000, start: int = 0) -> list[bytes]:
    """Make frames that can be told apart."""
    return [number.to_bytes(size_bytes, "big") for number in range(start, start + count)]
