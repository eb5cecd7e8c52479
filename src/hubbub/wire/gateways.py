"""What gateways tell each other on a network that they share: one frame, BEACON."""

from typing import Annotated, Final

import msgspec

from hubbub.wire.control import U16

GATEWAY_BYTES: Final = 12
GatewayId = Annotated[bytes, msgspec.Meta(min_length=GATEWAY_BYTES, max_length=GATEWAY_BYTES)]


class Beacon(msgspec.Struct, array_like=True, frozen=True):
    """A port of a gateway is here: how far it is from which root, and whether it passes on.

    `is_standby` says that what it wants here is only for when another gateway fails.
    """

    root: GatewayId
    distance: U16
    gateway: GatewayId
    port: U16
    is_open: bool
    is_standby: bool


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Beacon)


def encode_beacon(beacon: Beacon) -> bytes:
    """Make the body of a BEACON."""
    return _encoder.encode(beacon)


def decode_beacon(data: bytes) -> Beacon | None:
    """Decode the body of a BEACON; None if it is not one."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return None
