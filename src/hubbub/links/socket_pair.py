"""What a multicast link has on one interface: a socket of its own, and one that hears the group.

The unicast socket is bound to the interface's address and a port of its own, and sends everything,
so the source of every frame is where its node can be answered. The group socket is bound to the
group's address and not to the wildcard, else it would also hear other groups of the same port;
IP_MULTICAST_ALL off keeps it from hearing the group on interfaces that it did not join. Several
processes of a host share group and port: SO_REUSEADDR gives each of them every multicast datagram
(and would give a unicast one to a single process, hence the other socket).

Options that an operating system lacks are left out one by one; what is missing then costs speed,
not frames: without UDP_SEGMENT and UDP_GRO frames travel one by one, without the filter own frames
are dropped after reading them.
"""

import contextlib
import errno
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hubbub.errors import LinkError
from hubbub.links import bpf
from hubbub.links.interfaces import Interface
from hubbub.protocol.burst import Address

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104

_IS_LINUX: Final = sys.platform == "linux"
_IP_MULTICAST_ALL: Final = 49
_IPV6_MULTICAST_ALL: Final = 29
_SO_BUFFORCE: Final = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")
_MEMINFO_DROPS: Final = 8

# RFC 4291 section 2.7: a group of this scope or less stays on the link.
_LINK_LOCAL_SCOPE: Final = 2


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What the sockets of a link have in common, whatever the interface."""

    group: str
    port: int
    wanted_address: str | None
    ttl: int
    receive_buffer_bytes: int
    send_buffer_bytes: int
    wants_gso: bool
    has_group: bool = True
    """Else there is the unicast socket alone, and nothing is sent to all."""

    @property
    def family(self) -> socket.AddressFamily:
        """The address family of the group."""
        return socket.AF_INET6 if ":" in self.group else socket.AF_INET

    def destination(self, interface: Interface) -> Address:
        """Where to send what is for the group on an interface."""
        if self.family == socket.AF_INET6:
            return self.group, self.port, 0, interface.index
        return self.group, self.port


class SocketPair:
    """The sockets of a link on one interface."""

    def __init__(self, endpoint: Endpoint, interface: Interface, unicast_port: int = 0) -> None:
        self.interface = interface
        self._endpoint = endpoint
        address = _own_address(endpoint, interface)
        self.destination = endpoint.destination(interface)
        with contextlib.ExitStack() as undo:
            try:
                self.unicast = undo.enter_context(self._open_unicast(address, unicast_port))
                self.group = self.unicast
                if endpoint.has_group:
                    self.group = undo.enter_context(open_group(endpoint, interface))
                    self.join()
                    check_route(endpoint, interface)
            except OSError as error:
                raise refusal(endpoint, interface, error) from error
            undo.pop_all()
        self.sockets = (self.unicast, self.group) if endpoint.has_group else (self.unicast,)
        self.address: Address = self.unicast.getsockname()
        self.has_gso = endpoint.wants_gso and _try_option(self.unicast, SOL_UDP, UDP_SEGMENT, 0)
        self.has_gro = _try_option(self.group, SOL_UDP, UDP_GRO, 1)
        _try_option(self.unicast, SOL_UDP, UDP_GRO, 1)
        self.has_filter = False
        self.looped_back = 0
        """How many of our own datagrams the group socket's filter must have dropped."""
        self.send_error = ""
        """Why the last frame for the group could not be sent, empty if it could."""
        self.down_reason = ""
        """Why the link is down here, as reported; empty while it works."""
        self.is_interface_down = False

    @property
    def host(self) -> str:
        """Our address without port and scope."""
        return str(self.address[0]).partition("%")[0]

    def join(self) -> None:
        """Become a member of the group on this interface."""
        self._change_membership(socket.IP_ADD_MEMBERSHIP, socket.IPV6_JOIN_GROUP)

    def rejoin(self) -> None:
        """Join again, so that switches and routers hear of us after the interface was down."""
        if not self._endpoint.has_group:
            return
        with contextlib.suppress(OSError):
            self._change_membership(socket.IP_DROP_MEMBERSHIP, socket.IPV6_LEAVE_GROUP)
        self.join()

    def drop_frames_of(self, own: list[Address]) -> None:
        """Let the kernel drop what comes from these addresses."""
        try:
            endpoints = [(host.partition("%")[0], port) for host, port, *_ in own]
            bpf.attach(self.group, bpf.own_frames_program(endpoints))
        except OSError:
            self.has_filter = False
        else:
            self.has_filter = True

    def receive_buffer_bytes(self) -> int:
        """How much the group socket's buffer holds, in the kernel's count (truesize)."""
        return self.group.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def kernel_drops(self) -> int:
        """How many datagrams (or coalesced runs of them) the kernel dropped for want of buffer.

        SO_MEMINFO has the figure without a control message on every read. It includes what the
        filter dropped, which is exactly what we sent to the group and what was looped back.
        """
        dropped = _socket_drops(self.unicast)
        if not self._endpoint.has_group:
            return dropped
        group_dropped = _socket_drops(self.group)
        if self.has_filter:
            group_dropped = max(0, group_dropped - self.looped_back)
        return dropped + group_dropped

    def close(self) -> None:
        """Close both sockets; leaving the group is a part of it."""
        self.group.close()
        self.unicast.close()

    def _open_unicast(self, address: str, port: int) -> socket.socket:
        opened = _open_socket(self._endpoint)
        with _closed_on_error(opened):
            aim(opened, self._endpoint, address, self.interface.index)
            self._bind_unicast(opened, address, port)
        return opened

    def _bind_unicast(self, opened: socket.socket, address: str, port: int) -> None:
        """Take the port asked for (the one had before) or, if somebody else has it now, any."""
        scope = (0, self.interface.index) if _is_link_local(address) else ()
        if port:
            with contextlib.suppress(OSError):
                opened.bind((address, port, *scope))
                return
        opened.bind((address, 0, *scope))

    def _change_membership(self, ipv4_option: int, ipv6_option: int) -> None:
        address, index = self.unicast.getsockname()[0], self.interface.index
        option = ipv6_option if self._endpoint.family == socket.AF_INET6 else ipv4_option
        change_membership(self.group, self._endpoint.group, address, index, option)


def open_group(endpoint: Endpoint, interface: Interface) -> socket.socket:
    """Open a socket that can hear the group; it is not a member yet."""
    opened = _open_socket(endpoint)
    with _closed_on_error(opened):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not _IS_LINUX and hasattr(socket, "SO_REUSEPORT"):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if endpoint.family == socket.AF_INET6:
            _try_option(opened, socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
        else:
            _try_option(opened, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        try:
            opened.bind(endpoint.destination(interface))
        except OSError:
            if _IS_LINUX:
                raise
            opened.bind(("", endpoint.port))  # Windows binds no group address.
    return opened


def aim(opened: socket.socket, endpoint: Endpoint, address: str, index: int) -> None:
    """Let a socket send to the group by an interface, as far as the group shall reach."""
    if endpoint.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, endpoint.ttl)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    else:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, endpoint.ttl)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        where = _ipv4_interface("0.0.0.0", address, index, is_membership=False)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, where)


def change_membership(
    opened: socket.socket, group: str, address: str, index: int, option: int
) -> None:
    """Join or leave a group on an interface, of which this is an address and the index."""
    if opened.family == socket.AF_INET6:
        request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("=I", index)
        opened.setsockopt(socket.IPPROTO_IPV6, option, request)
    else:
        request = _ipv4_interface(group, address, index, is_membership=True)
        opened.setsockopt(socket.IPPROTO_IP, option, request)


def _open_socket(endpoint: Endpoint) -> socket.socket:
    opened = socket.socket(endpoint.family, socket.SOCK_DGRAM)
    opened.setblocking(False)
    if endpoint.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    set_buffer(opened, socket.SO_RCVBUF, endpoint.receive_buffer_bytes)
    set_buffer(opened, socket.SO_SNDBUF, endpoint.send_buffer_bytes)
    return opened


def _own_address(endpoint: Endpoint, interface: Interface) -> str:
    """Choose the address to send from: the one asked for, else one of the group's reach."""
    is_ipv6 = endpoint.family == socket.AF_INET6
    addresses = interface.ipv6 if is_ipv6 else interface.ipv4
    if endpoint.wanted_address in addresses:
        return str(endpoint.wanted_address)
    if not addresses:
        raise LinkError(
            f"interface {interface} has no IPv{6 if is_ipv6 else 4} address,"
            f" which the group {endpoint.group} needs; give it one or choose another interface"
        )
    if not is_ipv6:
        return addresses[0]
    # The scope is the low half of the second byte. A group that stays on the link is best served by
    # the address that does, too: it is always there. One that is routed needs an address that is
    # routed.
    stays_on_link = socket.inet_pton(socket.AF_INET6, endpoint.group)[1] & 15 <= _LINK_LOCAL_SCOPE
    return min(addresses, key=lambda one: _is_link_local(one) != stays_on_link)


def _is_link_local(address: str) -> bool:
    return ":" in address and ipaddress.ip_address(address).is_link_local


def _ipv4_interface(group: str, address: str, index: int, *, is_membership: bool) -> bytes:
    """Name an interface: by index (struct ip_mreqn) on Linux, elsewhere by its address."""
    if _IS_LINUX:
        return struct.pack("=4s4si", socket.inet_aton(group), bytes(4), index)
    if is_membership:
        return socket.inet_aton(group) + socket.inet_aton(address)
    return socket.inet_aton(address)


def set_buffer(opened: socket.socket, option: int, size_bytes: int) -> None:
    """Set a buffer's size, beyond the system's limit if we may, else as far as it allows."""
    force_option = _SO_BUFFORCE[option]
    if not (_IS_LINUX and _try_option(opened, socket.SOL_SOCKET, force_option, size_bytes)):
        _try_option(opened, socket.SOL_SOCKET, option, size_bytes)


def _try_option(opened: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        opened.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _socket_drops(opened: socket.socket) -> int:
    if not _IS_LINUX:
        return 0
    try:
        found = opened.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        return int(_MEMINFO.unpack_from(found)[_MEMINFO_DROPS])
    except (OSError, struct.error):
        return 0


@contextlib.contextmanager
def _closed_on_error(opened: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.close()
        raise


def check_route(endpoint: Endpoint, interface: Interface) -> None:
    """Find out now, not at the first frame, that the group cannot be reached by this interface.

    Linux has no IPv6 multicast route on loopback by default; everywhere else this never fails.
    """
    if endpoint.family != socket.AF_INET6 or not interface.is_up:
        return
    with socket.socket(endpoint.family, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        probe.connect(endpoint.destination(interface))


def refusal(endpoint: Endpoint, interface: Interface, error: OSError) -> LinkError:
    """Say what the system refused, and what may help."""
    hint = ""
    if endpoint.family == socket.AF_INET6 and interface.is_loopback:
        hint = (
            "; Linux routes no IPv6 multicast on loopback unless told to by"
            f" `ip -6 route add local ff00::/8 dev {interface.name} table local`;"
            " IPv4 needs nothing"
        )
    if error.errno == errno.EADDRINUSE:
        hint = "; another program holds it (`ss -ulpn` names it): take another port"
    return LinkError(
        f"cannot use group {endpoint.group} port {endpoint.port} on {interface}:"
        f" {error.strerror}{hint}"
    )
