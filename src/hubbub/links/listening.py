"""Where a node listens for TCP: at a port that others can know, on the interface it uses."""

import errno
import ipaddress
import socket
from typing import Any, Final, NamedTuple

from hubbub.errors import ConfigurationError, LinkError
from hubbub.given import is_whole
from hubbub.links.dialling import parse_address
from hubbub.links.interfaces import ALL, choose
from hubbub.links.opening import wanted_address

_CALLS_MAX: Final = 128
_EVERYWHERE: Final = "0.0.0.0"


class ListenAt(NamedTuple):
    """What an application asked for; what is empty or None is left to us."""

    host: str = ""
    port: int | None = None  # 0: any that is free.


def parse_listen(value: Any) -> ListenAt:
    """Check the option `listen`: a port, or an address with or without one."""
    if is_whole(value):
        if not 0 <= value <= 65_535:
            raise ConfigurationError(f"listen={value} must be a port from 0 (any) to 65535")
        return ListenAt("", value)
    if isinstance(value, str) and value.strip().isdecimal():
        raise ConfigurationError(
            f"listen={value!r} is text: give the port as a number, or host:port"
        )
    host, port = parse_address(value, "listen")
    return ListenAt(host, port or None)


class Listener(NamedTuple):
    """An open socket, and the interface that addresses of the link belong to."""

    socket: socket.socket
    scope: int


def open_listener(interface: str | None, asked: ListenAt, channel_port: int) -> Listener:
    """Listen on an interface at the port of a channel, or as the application asked.

    Of several nodes of one host only the first can have that port; the others take any.
    """
    chosen = choose(interface)[0]
    host = asked.host or wanted_address(interface)
    if not host:
        host = _EVERYWHERE if interface == ALL else next(iter(chosen.addresses), "")
    if not host:
        raise ConfigurationError(f"interface {chosen.name} has no address to listen at")
    ports = [channel_port, 0] if asked.port is None else [asked.port]
    for port in ports:
        try:
            return Listener(_listen(host, port, chosen.index), chosen.index)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                reason = error.strerror or error
                raise LinkError(f"cannot listen at {host} port {port}: {reason}") from None
    raise AssertionError("one of the ports was taken or refused")


def _listen(host: str, port: int, scope: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
    )[0]
    if family == socket.AF_INET6:
        plain, _, number = str(address[0]).partition("%")
        if ipaddress.ip_address(plain).is_link_local and not number:
            address = (plain, port, 0, scope)
    listener = socket.socket(family, kind)
    try:
        listener.setblocking(False)
        # So that a node that was killed can come back to its port at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_CALLS_MAX)
    except OSError:
        listener.close()
        raise
    return listener


def address_text(address: Any) -> str:
    """Write an address as `peers=` takes it."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
