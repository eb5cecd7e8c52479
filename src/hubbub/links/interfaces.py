"""The machine's network interfaces, and the choice of those a channel uses.

`getifaddrs` is asked through ctypes: it is the one call that gives names, flags and addresses of
both families at once, exists on every Unix, and costs no dependency. Reading /sys would show the
interfaces of another network namespace when a process was moved into one, and /proc/net knows no
IPv4 addresses.
"""

import ctypes
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from hubbub.errors import ConfigurationError

ALL = "all"
ETHERNET_MTU = 1500
LOOPBACK_MTU = 65536

_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_IFF_RUNNING = 0x40
_IS_LINUX = sys.platform == "linux"
_IFF_MULTICAST = 0x1000 if _IS_LINUX else 0x8000
_SIOCGIFMTU = 0x8921 if _IS_LINUX else 0xC0206933

# rtnetlink(7): RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
_NETLINK_ROUTE = 0
_LINK_AND_ADDRESS_GROUPS = 0x1 | 0x10 | 0x100
_NOTICE_BYTES = 8192
_NOTICES_MAX = 64

# Addresses reserved for documentation (RFC 5737, RFC 3849): nobody has them, so only the default
# route leads there. Connecting a datagram socket looks up the route and sends nothing.
_OUTSIDE = ((socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1"))


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface as it is now; addresses are without a scope."""

    name: str
    index: int
    ipv4: tuple[str, ...]
    ipv6: tuple[str, ...]
    mtu: int
    is_up: bool
    is_loopback: bool
    is_multicast: bool

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, IPv4 first."""
        return self.ipv4 + self.ipv6

    def __str__(self) -> str:
        state = "" if self.is_up else ", down"
        return f"{self.name} ({', '.join(self.addresses) or 'no address'}{state})"


def interfaces() -> list[Interface]:
    """List the interfaces, in the order of their index."""
    try:
        entries = list(_entries())
    except (AttributeError, OSError):
        return _interfaces_by_route()
    flags: dict[str, int] = {}
    addresses: dict[str, list[str]] = {}
    for name, flag_bits, address in entries:
        flags[name] = flag_bits
        addresses.setdefault(name, [])
        if address is not None:
            addresses[name].append(address)
    found = [_interface(name, flags[name], addresses[name]) for name in flags]
    return sorted((one for one in found if one is not None), key=lambda one: one.index)


def choose(wanted: str | None) -> list[Interface]:
    """Pick the interfaces for a channel: the LAN's (None), a name, an address, or "all".

    Without a LAN the answer is the loopback interface: a caller who gave None or "all" can tell by
    `is_loopback` that only processes of this host will be heard.
    """
    known = interfaces()
    if wanted in (None, ALL):
        return choose_lans(wanted, known) or [_loopback(known)]
    assert wanted is not None
    address = plain_address(wanted)
    for interface in known:
        if wanted == interface.name or address in interface.addresses:
            return [interface]
    listed = "; ".join(map(str, known)) or "none at all"
    raise ConfigurationError(f"interface {wanted!r} is not there; this machine has: {listed}")


def choose_lans(wanted: str | None, known: list[Interface]) -> list[Interface]:
    """Pick the LAN's interface (None), or those of all LANs; none, if there is no LAN."""
    candidates = [
        one
        for one in known
        if one.is_up and one.is_multicast and one.addresses and not one.is_loopback
    ]
    if wanted == ALL or len(candidates) <= 1:
        return candidates
    for address in _outward_addresses():
        for interface in candidates:
            if address in interface.addresses:
                return [interface]
    # An IPv6 address of the link alone comes by itself; an IPv4 address was given on purpose.
    return [min(candidates, key=lambda one: not one.ipv4)]


def _loopback(known: list[Interface]) -> Interface:
    for interface in known:
        if interface.is_loopback and interface.is_up:
            return interface
    listed = "; ".join(map(str, known)) or "none at all"
    raise ConfigurationError(f"no interface is up, not even loopback; this machine has: {listed}")


def plain_address(text: str) -> str | None:
    """Write an address as `interfaces()` does, or None if it is none."""
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def _outward_addresses() -> Iterator[str]:
    """Tell which of our addresses the default routes would use; nothing is sent."""
    for family, outside in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                yield probe.getsockname()[0].partition("%")[0]
        except OSError:
            continue


class InterfaceWatch:
    """Tell whether any interface or address changed, at the price of one system call.

    Listing the interfaces takes 0.1 ms each; a netlink socket that is subscribed to changes makes
    it needless while nothing happens. Where there is no netlink, the answer is always yes.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        if not hasattr(socket, "AF_NETLINK"):
            return
        try:
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
        except OSError:
            return
        try:
            opened.setblocking(False)
            opened.bind((0, _LINK_AND_ADDRESS_GROUPS))
        except OSError:
            opened.close()
            return
        self._socket = opened

    def has_changed(self) -> bool:
        """Tell whether anything changed since the last call."""
        if self._socket is None:
            return True
        has_changed = False
        for _ in range(_NOTICES_MAX):
            try:
                self._socket.recv(_NOTICE_BYTES)
            except BlockingIOError:
                return has_changed
            except OSError:
                return True  # The kernel had more to say than the buffer holds (ENOBUFS).
            has_changed = True
        return True

    def close(self) -> None:
        """Close the netlink socket."""
        if self._socket is not None:
            self._socket.close()


class _Ifaddrs(ctypes.Structure):
    """`struct ifaddrs`, the same on Linux, macOS and the BSDs."""


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
    ("destination", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
]


def _entries() -> Iterator[tuple[str, int, str | None]]:
    """Walk `getifaddrs`: (name, flags, address), the address None in entries of the link layer."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_Ifaddrs)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    try:
        entry = head
        while entry:
            item = entry.contents
            yield os.fsdecode(item.name), item.flags, _sockaddr_text(item.address)
            entry = item.next
    finally:
        libc.freeifaddrs(head)


def _sockaddr_text(pointer: int | None) -> str | None:
    """Read the address out of a `struct sockaddr`, None for other families."""
    if not pointer:
        return None
    # Linux starts with a 16-bit family; the BSDs have a length byte before an 8-bit one.
    start = ctypes.string_at(pointer, 2)
    family = struct.unpack("=H", start)[0] if _IS_LINUX else start[1]
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, ctypes.string_at(pointer + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, ctypes.string_at(pointer + 8, 16))
    return None


def _interface(name: str, flags: int, addresses: list[str]) -> Interface | None:
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        return None  # It went away between the two calls.
    is_loopback = bool(flags & _IFF_LOOPBACK)
    return Interface(
        name=name,
        index=index,
        ipv4=tuple(one for one in addresses if ":" not in one),
        ipv6=tuple(one for one in addresses if ":" in one),
        mtu=_mtu(name) or (LOOPBACK_MTU if is_loopback else ETHERNET_MTU),
        # Running means that there is a carrier: an unplugged cable is as good as no interface.
        is_up=bool(flags & _IFF_UP and flags & _IFF_RUNNING),
        is_loopback=is_loopback,
        is_multicast=bool(flags & _IFF_MULTICAST),
    )


def _mtu(name: str) -> int:
    """Ask the kernel for the MTU; 0 if it does not say."""
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("16s16x", os.fsencode(name))
            return int(struct.unpack_from("=i", fcntl.ioctl(probe, _SIOCGIFMTU, request), 16)[0])
    except (ImportError, OSError):
        return 0


def _interfaces_by_route() -> list[Interface]:
    """Make do where `getifaddrs` is missing: loopback, and what the default routes use."""
    found = [Interface("loopback", 0, ("127.0.0.1",), ("::1",), LOOPBACK_MTU, True, True, True)]
    for address in _outward_addresses():
        ipv4, ipv6 = ((), (address,)) if ":" in address else ((address,), ())
        found.append(Interface(address, 0, ipv4, ipv6, ETHERNET_MTU, True, False, True))
    return found
