"""Where a node can be reached, as others tell it: an address in figures, and a port.

A name is no place. Somebody would have to look it up before each datagram, and wait for that; and
what is no address at all is refused by the socket in ways that an address is not.
"""

from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from re import compile as compile_pattern
from typing import Final

PORT_MAX: Final = 0xFFFF
_PLACES_KEPT: Final = 4096
_SCOPE: Final = compile_pattern(r"[A-Za-z0-9._-]{1,16}")  # A number, or an interface.


@lru_cache(_PLACES_KEPT)
def is_place(host: str, port: int) -> bool:
    """Tell whether a datagram can be sent there: to an IP address in figures, and a port."""
    if not 0 < port <= PORT_MAX:
        return False
    address, percent, scope = host.partition("%")
    try:
        if ":" not in address:
            IPv4Address(host)
            return True
        IPv6Address(address)
    except AddressValueError:
        return False
    return not percent or _SCOPE.fullmatch(scope) is not None
