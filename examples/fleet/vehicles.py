"""Vehicles that sample speed and position when somebody wants them, and the control that does."""

import math
import time
from typing import Any

import msgspec

from fleet.cast import Stop, open_node

SPEED_MS, POSITION_MS = 50, 200


class Position(msgspec.Struct):
    """Where a vehicle is."""

    x: float
    y: float


def drive(name: str, domain: str, stop: Stop) -> dict[str, Any]:
    """Drive in a circle; samples are made only when a consumer is due one."""
    began_s = time.monotonic()

    def position() -> Position:
        angle = (time.monotonic() - began_s) / 5
        return Position(100 * math.cos(angle), 100 * math.sin(angle))

    with open_node(name, domain) as node:
        speed = node.produce(f"/{name}/speed", lambda: b"%.1f" % (13 + math.sin(time.monotonic())))
        node.produce(f"/{name}/position", position, type=Position)
        stop.wait()
        return {"sent": speed.statistics().sent}


def control(name: str, domain: str, stop: Stop, vehicles: list[str]) -> dict[str, Any]:
    """Want the speed of each vehicle each 50 ms, and its position each 200 ms."""
    with open_node(name, domain) as node:
        speeds = {}
        for vehicle in vehicles:
            speeds[vehicle] = node.consume(
                f"/{vehicle}/speed", period_ms=SPEED_MS, callback=_look_at
            )
            node.consume(f"/{vehicle}/position", period_ms=POSITION_MS, callback=_look_at)
        stop.wait()
        counted = {vehicle: one.statistics() for vehicle, one in speeds.items()}
        return {vehicle: (one.served, one.missed) for vehicle, one in counted.items()}


def _look_at(sample: Any) -> None:
    """Do what a control does; here that is nothing."""
