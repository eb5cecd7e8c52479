"""Calling peers by address, named or found: again and again, ever less often, never all at once.

A peer that cannot be reached is called after 0.1 s, then ever later, up to 5 s; each time is drawn
from the second half of its interval, so that those who lost the same peer do not call as one. Names
are looked up in a thread, because the resolver may take seconds and the I/O thread has none.
"""

import contextlib
import errno
import ipaddress
import logging
import select
import socket
import threading
from collections.abc import Callable, Container
from random import Random
from typing import Any, Final, NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.limits import DIAL_INTERVAL, DIAL_INTERVAL_CEILING, DIAL_TIMEOUT, MS
from hubbub.links.interfaces import plain_address

_LOOKING_UP: Final = 20 * MS  # So often is looked whether a name was found.
_HOST_BYTES_MAX: Final = 255
_IN_VAIN_MAX: Final = 3  # Within half a second, if refused: who is started together may be late.
_log = logging.getLogger("hubbub.connection")
IsNearby = Callable[[bytes], bool]


class HostAndPort(NamedTuple):
    """Where somebody listens; port 0: the one that the channel has."""

    host: str
    port: int


def parse_address(text: Any, option: str) -> HostAndPort:
    """Take an address apart: `host`, `host:port`, `10.0.0.7:7266`, `[fe80::1%eth0]:7266`."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{option}={text!r} is no text like '10.0.0.7:7266'")
    host, port = text.strip(), ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        is_sound = bool(bracket) and (rest == "" or rest.startswith(":"))
        port = rest.removeprefix(":")
    else:
        is_sound = True
        if host.count(":") == 1:
            host, _, port = host.partition(":")
            is_sound = bool(port)
        elif ":" in host:
            is_sound = plain_address(host) is not None
    if not is_sound or not 0 < len(host.encode()) <= _HOST_BYTES_MAX or not host.isprintable():
        raise ConfigurationError(
            f"{option}={text!r} is no address: give a host, host:port or [IPv6]:port"
        )
    if port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise ConfigurationError(f"{option}={text!r}: port {port!r} must be from 1 to 65535")
    return HostAndPort(host, int(port or 0))


class Target:
    """One address that is called."""

    __slots__ = (
        "_addresses", "_calls", "_has_told", "began_ns", "due_ns", "has_no_address", "host",
        "in_vain", "interval_ns", "is_busy", "is_looking_up", "key", "port", "told",
    )  # fmt: skip

    def __init__(self, host: str, port: int, told: bytes = b"") -> None:
        self.host = host
        self.port = port
        self.told = told  # Who is there, as others say; nothing: it was named.
        self.key = told  # Of who answered last.
        self.is_busy = False  # A call is under way, or has led to a connection that lasts.
        self.is_looking_up = False
        self.has_no_address = False
        self.due_ns = 0
        self.began_ns = 0
        self.interval_ns = DIAL_INTERVAL
        self._addresses: list[Any] = []
        self._calls = 0
        self.in_vain = 0  # Calls that nobody answered, since the last one that somebody did.
        self._has_told = False

    def next_address(self) -> Any:
        """Return a family and an address to call, one after the other; None: not known yet."""
        if not self._addresses:
            try:
                self._look_up(socket.AI_NUMERICHOST)
            except OSError:
                self.is_looking_up = True
                threading.Thread(
                    target=self._look_up_name, name="hubbub-resolver", daemon=True
                ).start()
                return None
        self._calls += 1
        address = self._addresses[self._calls % len(self._addresses)]
        if self._calls % len(self._addresses) == 0:
            self._addresses = []  # The next time they may be others.
        return address

    def miss(self) -> None:
        """Note that nobody answered, and say so, if it is not the first time."""
        self.in_vain += 1
        if self.in_vain == _IN_VAIN_MAX and not self.told:
            _log.warning(
                "peers: nobody answers at %s port %d; it is called again and again",
                self.host, self.port,
            )  # fmt: skip

    def _look_up_name(self) -> None:
        with contextlib.suppress(OSError, UnicodeError):
            self._look_up(0)
        self.has_no_address = not self._addresses
        if self.has_no_address and not self._has_told:
            self._has_told = True
            _log.warning("peers: %s has no address; it is looked up again and again", self.host)
        self.is_looking_up = False

    def _look_up(self, flags: int) -> None:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=flags)
        self._addresses = [(family, address) for family, _, _, _, address in found]


class Dialler:
    """Calls all that were named, and that others told of, whenever no connection leads there."""

    def __init__(
        self, peers: list[HostAndPort], own_key: bytes, random: Random, epoll: select.epoll,
        scope: int,
    ) -> None:  # fmt: skip
        self.targets = [Target(*peer) for peer in peers]
        self.is_nearby: IsNearby = _is_never  # Who needs no call, unless it was named.
        self._own_key = own_key
        self._random = random
        self._epoll = epoll
        self._scope = scope  # The interface by which an IPv6 address of the link is meant.
        self._calls: dict[int, tuple[socket.socket, Target]] = {}

    def __contains__(self, fileno: int) -> bool:
        return fileno in self._calls

    @property
    def calls(self) -> int:
        """Return how many calls are under way."""
        return len(self._calls)

    @property
    def found(self) -> int:
        """Return how many are called that nobody named."""
        return sum(1 for one in self.targets if one.told)

    def call_also(self, told: dict[HostAndPort, bytes]) -> None:
        """Call those, too, of whom others tell now, by address and key."""
        named = [one for one in self.targets if not one.told]
        known = {(one.host, one.port, one.told): one for one in self.targets}
        found = [known.get((*place, key)) or Target(*place, key) for place, key in told.items()]
        places = {(one.host, one.port) for one in named}
        self.targets = named + [one for one in found if (one.host, one.port) not in places]

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        times = [one.due_ns for one in self.targets if not one.is_busy and not self._is_self(one)]
        times += [target.began_ns + DIAL_TIMEOUT for _, target in self._calls.values()]
        return min(times, default=None)

    def advance(self, now: int, connected: Container[bytes]) -> None:
        """Call who is due and not connected, and end calls that nobody answers."""
        for fileno, (_, target) in list(self._calls.items()):
            if now >= target.began_ns + DIAL_TIMEOUT:
                self._hang_up(fileno).close()
                target.miss()
                self.retry(now, target)
        for target in self.targets:
            if target.is_busy or self._is_self(target) or now < target.due_ns:
                continue
            is_needless = bool(target.told) and self.is_nearby(target.key)
            if is_needless or target.key in connected:
                target.due_ns = now + DIAL_INTERVAL_CEILING
            else:
                self._call(now, target)

    def _is_self(self, target: Target) -> bool:
        return target.key == self._own_key

    def _call(self, now: int, target: Target) -> None:
        if target.has_no_address:
            target.has_no_address = False
            self.retry(now, target)
            return
        found = None if target.is_looking_up else target.next_address()
        if found is None:
            target.due_ns = now + _LOOKING_UP
            return
        family, address = found
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setblocking(False)
        try:
            code = opened.connect_ex(self._with_scope(family, address))
        except OSError as error:
            code = error.errno or errno.EINVAL
        if code not in (0, errno.EINPROGRESS):
            opened.close()
            target.miss()
            self.retry(now, target)
            return
        target.is_busy = True
        target.began_ns = now
        self._calls[opened.fileno()] = opened, target
        self._epoll.register(opened, select.EPOLLOUT)

    def _with_scope(self, family: int, address: Any) -> Any:
        if family != socket.AF_INET6 or address[3] or not self._scope:
            return address
        if not ipaddress.ip_address(address[0].partition("%")[0]).is_link_local:
            return address
        return (*address[:3], self._scope)

    def answered(self, now: int, fileno: int) -> tuple[socket.socket, Target] | None:
        """Take the end of a call: a connection, or None if there is none."""
        target = self._calls[fileno][1]
        opened = self._hang_up(fileno)
        if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            opened.close()
            target.miss()
            self.retry(now, target)
            return None
        return opened, target

    def _hang_up(self, fileno: int) -> socket.socket:
        opened, _ = self._calls.pop(fileno)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fileno)
        return opened

    def retry(self, now: int, target: Target) -> None:
        """Call again later."""
        target.is_busy = False
        interval_ns = target.interval_ns
        target.due_ns = now + interval_ns - self._random.randrange(interval_ns // 2)
        target.interval_ns = min(2 * interval_ns, DIAL_INTERVAL_CEILING)

    def met(self, target: Target, key: bytes) -> None:
        """Note who is there: the next calls need not wait long."""
        target.key = key
        target.in_vain = 0
        target.interval_ns = DIAL_INTERVAL

    def missed(self, now: int, key: bytes) -> None:
        """Call one whose connection, whoever had made it, has ended."""
        for target in self.targets:
            if target.key == key:
                target.due_ns = min(target.due_ns, now + DIAL_INTERVAL)

    def close(self) -> None:
        """Call nobody any more."""
        for opened, _ in self._calls.values():
            opened.close()
        self._calls.clear()
        self.targets.clear()


def _is_never(key: bytes) -> bool:
    """Say that nobody can be reached otherwise."""
    return False
