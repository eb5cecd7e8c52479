"""Where components are: the node, and the port in it."""

from typing import Any, NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.limits import PORTS_MAX
from hubbub.message import Source
from hubbub.wire.timed import (
    COMPONENT_PORT,
    GATEWAY_PORT,
    NODE_BYTES,
    is_component_port,
    make_origin,
)


class VehicleAddress(NamedTuple):
    """Where a component is: the id of its vehicle's node, and its port."""

    node: bytes
    port: int

    def __str__(self) -> str:
        """Write it as people do."""
        return f"{self.node.hex()}:{self.port}"


def check_port(port: Any) -> None:
    """Refuse what no component can have."""
    if not is_component_port(port):
        raise ConfigurationError(
            f"port={port!r}: components have {COMPONENT_PORT} to {PORTS_MAX};"
            " 0 is the gateway, 1 what it passes on"
        )


def check_address(to: Any) -> None:
    """Refuse what is no address of a component."""
    is_address = isinstance(to, tuple) and len(to) == 2
    if not is_address or not isinstance(to[0], bytes) or len(to[0]) != NODE_BYTES:
        raise ConfigurationError(
            f"{to!r} is no address of a vehicle's component: see Vehicle.address(port)"
        )
    check_port(to[1])


def read_device(of: Any) -> bytes:
    """Return with what the origins of wanted samples begin, given as people have it.

    That is an address (of a gateway: all its vehicle makes), a source, an id, or one of these in
    writing: 24 hexadecimal digits, and a port behind a colon.
    """
    node, port = _split(of)
    if len(node) != NODE_BYTES:
        raise ConfigurationError(
            f"of={of!r}: give an address such as vehicle.address(7), the source of a message, or"
            f" the {2 * NODE_BYTES} digits of a node's id, with :PORT behind them or without"
        )
    if port == GATEWAY_PORT:
        return node
    check_port(port)
    return make_origin(node, port)


def _split(of: Any) -> tuple[bytes, Any]:
    if isinstance(of, tuple) and len(of) == 2 and isinstance(of[0], bytes):
        return of
    if isinstance(of, Source):
        return of.id, GATEWAY_PORT
    if isinstance(of, bytes):
        return of, GATEWAY_PORT
    if isinstance(of, str):
        digits, colon, port = of.partition(":")
        try:
            return bytes.fromhex(digits), int(port) if colon else GATEWAY_PORT
        except ValueError:
            return b"", GATEWAY_PORT
    return b"", GATEWAY_PORT
