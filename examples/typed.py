"""Send and receive values instead of bytes; a publisher of another type is reported, not decoded.

`python examples/typed.py`
"""

from dataclasses import dataclass

import msgspec

import hubbub


class Temperature(msgspec.Struct):
    """A msgspec structure; dataclasses work as well."""

    celsius: float
    sensor: str


@dataclass
class Pressure:
    """Another type."""

    pascal: int


with hubbub.open("typed") as node:
    node.on_event(print)
    readings = node.subscribe("/plant/*/temp", type=Temperature)

    node.publisher("/plant/line1/temp", type=Temperature).publish(Temperature(21.5, "north"))
    message = readings.receive(timeout=5)
    assert message is not None
    print(f"{message.payload.sensor}: {message.payload.celsius} °C")

    # Line 2 has a pressure where a temperature should be: a SchemaMismatch event says so.
    node.publisher("/plant/line2/temp", type=Pressure).publish(Pressure(101_325))
    print("line 2:", readings.receive(timeout=0.5))
