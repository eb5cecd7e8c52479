"""The group of the services: datagrams to many by the socket of services, and an ear for them.

What goes to the group leaves by the socket of services, so its source is where its node can be
answered. It is heard by a socket of its own, opened by who subscribes to something, and at the port
behind that of the channel's group: nobody else is woken by it. A node without the group, or whose
system refuses it, is served datagram by datagram (decision 0054).
"""

import socket
from contextlib import suppress
from typing import Final

from hubbub.errors import LinkError
from hubbub.links import bpf
from hubbub.links.datagram import DatagramLink, Place
from hubbub.links.interfaces import Interface
from hubbub.links.socket_pair import (
    Endpoint,
    aim,
    change_membership,
    check_route,
    open_group,
    refusal,
)

_BUFFER_BYTES: Final = 8 << 20
_READS_MAX: Final = 256  # Of one turn of the loop.
_DATAGRAM_BYTES_MAX: Final = 65_536
_PORT_MAX: Final = 65_535


class GroupEar:
    """A group to which the socket of services can send, and which a socket beside it can hear."""

    def __init__(self, link: DatagramLink, group: str, port: int, known: list[Interface]) -> None:
        """Aim the socket of services at the group; LinkError: it cannot be."""
        port += 1 if port < _PORT_MAX else -1
        self._endpoint = Endpoint(
            group=group, port=port, wanted_address=None, ttl=1, wants_gso=False,
            receive_buffer_bytes=_BUFFER_BYTES, send_buffer_bytes=_BUFFER_BYTES,
        )  # fmt: skip
        self._own = link.place
        self._interface = self._find(known)
        self._socket: socket.socket | None = None
        self.place: Place = (group, port)
        self.received = 0
        try:
            check_route(self._endpoint, self._interface)
            aim(link.sender, self._endpoint, self._own[0], self._interface.index)
        except OSError as error:
            raise refusal(self._endpoint, self._interface, error) from error

    def _find(self, known: list[Interface]) -> Interface:
        host = self._own[0].partition("%")[0]
        is_alike = (":" in host) == (self._endpoint.family == socket.AF_INET6)
        for interface in known if is_alike else []:
            if host in interface.addresses:
                return interface
        raise LinkError(
            f"services at {host} are at no interface of the group {self._endpoint.group}"
        )

    def open(self) -> None:
        """Begin to hear; LinkError: the system refuses."""
        try:
            opened = open_group(self._endpoint, self._interface)
        except OSError as error:
            raise refusal(self._endpoint, self._interface, error) from error
        self._socket = opened
        try:
            self._change(socket.IP_ADD_MEMBERSHIP, socket.IPV6_JOIN_GROUP)
        except OSError as error:
            self.close()
            raise refusal(self._endpoint, self._interface, error) from error
        with suppress(OSError):  # Else what we sent is read, and dropped here.
            host = self._own[0].partition("%")[0]
            bpf.attach(opened, bpf.own_frames_program([(host, self._own[1])]))

    def leave(self) -> None:
        """Hear nothing any more, as if the network did not carry it."""
        self._change(socket.IP_DROP_MEMBERSHIP, socket.IPV6_LEAVE_GROUP)

    def _change(self, ipv4_option: int, ipv6_option: int) -> None:
        assert self._socket is not None
        option = ipv4_option if self._socket.family == socket.AF_INET else ipv6_option
        group, index = self._endpoint.group, self._interface.index
        change_membership(self._socket, group, self._own[0], index, option)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        assert self._socket is not None
        return self._socket.fileno()

    def receive(self) -> list[tuple[bytes, Place]]:
        """Return what has come of others."""
        assert self._socket is not None
        received: list[tuple[bytes, Place]] = []
        receive, own = self._socket.recvfrom, self._own
        for _ in range(_READS_MAX):
            try:
                data, address = receive(_DATAGRAM_BYTES_MAX)
            except OSError:  # There is no more; whatever else it is comes by other ways.
                break
            place = (address[0], address[1])
            if place != own:
                received.append((data, place))
        self.received += len(received)
        return received

    def close(self) -> None:
        """Leave the group, if it was heard."""
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()
