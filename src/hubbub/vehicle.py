"""A vehicle: components on ports of their own, and a gateway between them and everybody outside.

Port 0 is the gateway, to which everything from outside is addressed; what concerns a component is
passed on inside (port 1), components have ports from 2 on. All of it lives in one node, without a
thread for any component.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from hubbub.addresses import VehicleAddress, check_address, check_port
from hubbub.closing import Closing
from hubbub.consumer import Consumer
from hubbub.errors import ConfigurationError
from hubbub.mail import DirectMessage, Mail, read_letter
from hubbub.node import Node
from hubbub.opening import open as open_node
from hubbub.producer import Producer
from hubbub.wire.timed import (
    COMPONENT_PORT,
    GATEWAY_PORT,
    INTERNAL_PORT,
)

__all__ = ["DirectMessage", "GatewayStatistics", "Mail", "Vehicle", "VehicleAddress"]

PROFILES: Final = ("default", "p3")


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
        try:
            self._driver = self.node._first_channel().driver
        except ConfigurationError:
            self.node.close(0)
            raise
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

    def listen(self, port: int, callback: Callable[[DirectMessage], object] | None = None) -> Mail:
        """Hear the direct messages for a port, of a component or of nobody else.

        A port has one listener, until that is closed. Callbacks run on the delivery threads.
        """
        return Mail(self.node, port, callback)

    def send(self, to: VehicleAddress, payload: bytes, *, port: int = COMPONENT_PORT) -> bool:
        """Send a direct message to a port of a vehicle; False: that vehicle is not here.

        It goes once and is not repaired. `port` is that of the component that it comes from.
        """
        check_address(to)
        check_port(port)
        data = read_letter(payload)
        return bool(self._driver.call(self._gateway.post.send, port, to[0], to[1], data))

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
