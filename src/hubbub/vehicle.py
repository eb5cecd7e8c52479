"""A vehicle: components on ports of their own, and a gateway between them and everybody outside.

Port 0 is the gateway, to which everything from outside is addressed; what concerns a component is
passed on inside (port 1), components have ports from 2 on. All of it lives in one node, without a
thread for any component.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from hubbub.closing import Closing
from hubbub.consumer import Consumer
from hubbub.errors import ConfigurationError, PayloadError
from hubbub.limits import DIRECT_BYTES_MAX, PORTS_MAX, QUEUE_MESSAGES
from hubbub.message import Source
from hubbub.node import Node
from hubbub.opening import open as open_node
from hubbub.producer import Producer
from hubbub.protocol.timetrigger.passing import Letter
from hubbub.wire.timed import (
    COMPONENT_PORT,
    GATEWAY_PORT,
    INTERNAL_PORT,
    NODE_BYTES,
    is_component_port,
)

__all__ = ["DirectMessage", "GatewayStatistics", "Vehicle", "VehicleAddress"]

PROFILES: Final = ("default", "p3")


class VehicleAddress(NamedTuple):
    """Where a component is: the id of its vehicle's node, and its port."""

    node: bytes
    port: int

    def __str__(self) -> str:
        """Write it as people do."""
        return f"{self.node.hex()}:{self.port}"


class DirectMessage(NamedTuple):
    """A message for one port of one vehicle."""

    source: Source
    origin: VehicleAddress
    payload: bytes
    received_ns: int


@dataclass(frozen=True, slots=True)
class GatewayStatistics:
    """What became of the frames at a gateway.

    `relayed` frames were passed on inside, `handed` counts the components that each was handed to,
    `taken` the samples that consumers kept. The others went no further: of a type that concerns
    nobody here, heard before, our own, addressed to port 1 or another, without a hop left, or
    `mismatched`: of a type that is called otherwise here.
    """

    heard: int
    relayed: int
    handed: int
    taken: int
    unwanted: int
    duplicates: int
    own: int
    refused_port: int
    refused_hops: int
    mismatched: int
    sent: int


class Vehicle(Closing):
    """A node with components and a gateway.

    with hubbub.Vehicle("car-1") as car:
        car.producer(hubbub.DataTypeId.VEHICLE_SPEED, read_speed)
        car.consumer(hubbub.DataTypeId.OBSTACLE_DISTANCE, period_ms=100, callback=brake)

    The profile `p3` does as the system it comes from: producers send at the greatest common divisor
    of all periods, everything is for everybody, and the gateway hands each sample to each consumer
    and each interest to each producer, which look for themselves whether it concerns them.
    """

    GATEWAY_PORT = GATEWAY_PORT
    INTERNAL_PORT = INTERNAL_PORT
    COMPONENT_PORT = COMPONENT_PORT

    def __init__(
        self, name: str | None = None, *, profile: str = "default", **options: Any
    ) -> None:
        """Open a vehicle; further options are those of `hubbub.open`."""
        if profile not in PROFILES:
            raise ConfigurationError(f"profile={profile!r}: choose one of {', '.join(PROFILES)}")
        self.profile = profile
        self.node: Node = open_node(name, **options)
        self._driver = self.node.channels[0].driver
        self._gateway = self._driver.core.timed
        self._gateway.office.is_stateless = profile == "p3"

    @property
    def name(self) -> str:
        """Return the name of the vehicle."""
        return self.node.name

    def address(self, port: int = GATEWAY_PORT) -> VehicleAddress:
        """Return where a component of this vehicle is; without a port, the gateway."""
        return VehicleAddress(self.node.id, port)

    def producer(self, what: str | int, read: Callable[[], Any], **options: Any) -> Producer:
        """Add a component that makes samples; options are those of `node.produce`."""
        if self.profile == "p3":
            options.setdefault("schedule", "strict")
        return self.node.produce(what, read, **options)

    def consumer(self, what: str | int, **options: Any) -> Consumer:
        """Add a component that wants samples; options are those of `node.consume`."""
        return self.node.consume(what, **options)

    def listen(
        self, port: int, callback: Callable[[DirectMessage], object] | None = None
    ) -> "Mail":
        """Hear the direct messages for a port, of a component or of nobody else."""
        _check_port(port)
        mail = Mail(self, port, callback)
        self._driver.call(lambda now: self._gateway.post.listen(mail._take, port))
        return mail

    def send(self, to: VehicleAddress, payload: bytes, *, port: int = COMPONENT_PORT) -> bool:
        """Send a direct message to a port of a vehicle; False: that vehicle is not here.

        It goes once and is not repaired. `port` is that of the component that it comes from.
        """
        _check_port(to.port)
        _check_port(port)
        if not isinstance(to.node, bytes) or len(to.node) != NODE_BYTES:
            raise ConfigurationError(f"{to!r} is no address of a vehicle: see Vehicle.address()")
        data = bytes(payload)
        if len(data) > DIRECT_BYTES_MAX:
            raise PayloadError(
                f"{len(data)} bytes: a direct message has at most {DIRECT_BYTES_MAX}"
            )
        return bool(self._driver.call(self._gateway.post.send, port, to.node, to.port, data))

    @property
    def components(self) -> tuple[int, ...]:
        """Return the ports of the components."""
        return tuple(sorted(self._gateway.components))

    def gateway(self) -> GatewayStatistics:
        """Return what the gateway did."""
        with self._driver.lock:
            return GatewayStatistics(**asdict(self._gateway.tally))

    def close(self) -> None:
        """End all components, and leave."""
        self.node.close()

    def __repr__(self) -> str:
        return f"<Vehicle {self.name}, {len(self.components)} components>"


class Mail:
    """The direct messages for one port; without a callback, the newest wait to be taken."""

    def __init__(
        self, vehicle: Vehicle, port: int, callback: Callable[[DirectMessage], object] | None
    ) -> None:
        self.port = port
        self._callback = callback
        self._queue: deque[DirectMessage] = deque(maxlen=QUEUE_MESSAGES)
        self._lane = vehicle.node._pool.lane(self._run)

    def take(self) -> DirectMessage | None:
        """Return the oldest message that waits; None: there is none."""
        return self._queue.popleft() if self._queue else None

    def _take(self, letter: Letter) -> None:
        origin = VehicleAddress(letter.source.id, letter.port)
        message = DirectMessage(letter.source, origin, letter.payload, letter.received_ns)
        self._queue.append(message)
        if self._callback is not None:
            self._lane.notify()

    def _run(self) -> bool:
        message = self.take()
        if message is not None and self._callback is not None:
            self._callback(message)
        return bool(self._queue)


def _check_port(port: Any) -> None:
    if not is_component_port(port):
        raise ConfigurationError(
            f"port={port!r}: components have {COMPONENT_PORT} to {PORTS_MAX};"
            " 0 is the gateway, 1 what it passes on"
        )
