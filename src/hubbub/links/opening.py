"""What a multicast link settles before it opens: options that can work, the size of a frame."""

import ipaddress
import socket
from typing import Final

from hubbub.errors import ConfigurationError
from hubbub.limits import FRAME_BYTES_MAX, FRAME_BYTES_MIN
from hubbub.links.interfaces import ETHERNET_MTU, Interface, plain_address

# On loopback 64 KiB cost each side 12 to 14 us of the processor in frames of any size from 8 KB on
# (16 us in frames of 1,472 bytes), if bursts are segmented. What is left is the protocol's work on
# each frame, so the fewest frames win. Fifteen pages leave room for headers that are yet to come.
LOOPBACK_FRAME_BYTES: Final = 61_440

_IPV4_AND_UDP_HEADERS: Final = 28
_IPV6_AND_UDP_HEADERS: Final = 48

# How Linux charges a datagram to a socket buffer (skb truesize; measured on 6.18, within 8 %). Up
# to a few pages it lies in one allocation of a power of two, which also holds headers and
# bookkeeping; above that in pages, which fit. To each comes the descriptor itself.
_LINEAR_BYTES_MAX: Final = 16_384
_LINEAR_OVERHEAD: Final = 384
_DESCRIPTOR_BYTES: Final = 256
_PAGED_OVERHEAD: Final = 832


def check_options(group: str, port: int, ttl: int, frame_bytes_max: int) -> str:
    """Return the group as it is usually written, or say which option cannot work."""
    try:
        address = ipaddress.ip_address(group)
    except ValueError:
        address = None
    if address is None or not address.is_multicast:
        raise ConfigurationError(
            f"group {group!r} is no multicast address; take one of 239.0.0.0/8 or ff02::/16"
        )
    if not 1 <= port <= 65_535:
        raise ConfigurationError(f"port {port} must be from 1 to 65535")
    if not 0 <= ttl <= 255:
        raise ConfigurationError(f"ttl {ttl} must be from 0 (this host) to 255")
    if frame_bytes_max and not FRAME_BYTES_MIN <= frame_bytes_max <= FRAME_BYTES_MAX:
        raise ConfigurationError(
            f"frame_bytes_max {frame_bytes_max} must be from {FRAME_BYTES_MIN} to"
            f" {FRAME_BYTES_MAX}, or 0 to take it from the interface"
        )
    return str(address)


def wanted_address(interface: str | None) -> str | None:
    """Return the address if the interface was named by one."""
    return plain_address(interface or "")


def frame_bytes(
    chosen: list[Interface], family: socket.AddressFamily, frame_bytes_max: int, *,
    is_growing: bool = False,
) -> int:  # fmt: skip
    """Choose the frame size: what was asked for, else what fits a datagram on every interface.

    A loopback that is there until a LAN comes has frames that fit an Ethernet.
    """
    if frame_bytes_max:
        return frame_bytes_max
    headers = _IPV6_AND_UDP_HEADERS if family == socket.AF_INET6 else _IPV4_AND_UDP_HEADERS
    loopback_bytes = ETHERNET_MTU - headers if is_growing else LOOPBACK_FRAME_BYTES
    sizes = [
        min(loopback_bytes if one.is_loopback else FRAME_BYTES_MAX, one.mtu - headers)
        for one in chosen
    ]
    return max(FRAME_BYTES_MIN, min(sizes))


def window_bytes(buffer_bytes: int, frame_bytes_max: int) -> int:
    """Tell how many bytes in full frames may be on their way to a socket buffer.

    `buffer_bytes` is what getsockopt(SO_RCVBUF) says: twice what was asked for, because the kernel
    charges each datagram with all the memory it occupies (1,472 bytes cost 2,304, 80 cost 832).
    What fits by that count is halved, because up to a quarter of the buffer is given back late by
    the reading side, and because frames that are not full cost more than their share.
    """
    if frame_bytes_max + _LINEAR_OVERHEAD <= _LINEAR_BYTES_MAX:
        allocation = 1 << (frame_bytes_max + _LINEAR_OVERHEAD - 1).bit_length()
        cost = allocation + _DESCRIPTOR_BYTES
    else:
        cost = frame_bytes_max + _PAGED_OVERHEAD
    return buffer_bytes * frame_bytes_max // cost // 2
