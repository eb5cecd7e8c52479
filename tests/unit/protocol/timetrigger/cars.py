"""Nodes with components on a network of hand-turned time."""

from typing import Any

from hubbub.events import Event
from hubbub.limits import MS, SECOND
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.protocol.timetrigger.gateway import Gateway
from hubbub.protocol.timetrigger.passing import Letter, Sample
from hubbub.protocol.timetrigger.producer import Due, Producer, ProducerOptions
from tests.harness import Lan, Node

SPEED = 1
WALL = 1_700_000_100 * SECOND


class Car:
    """A node with components, whose samples are numbers."""

    def __init__(self, lan: Lan, *, is_stateless: bool = False) -> None:
        self.lan = lan
        self.node: Node = lan.add()
        self.node.core.endpoint.wall_offset_ns = WALL
        self.gateway: Gateway = self.node.core.timed
        self.gateway.office.is_stateless = is_stateless
        self.reads = 0
        self.samples: dict[int, list[Sample]] = {}
        self.letters: list[Letter | None] = []

    @property
    def id(self) -> bytes:
        return self.gateway.node

    def produce(self, type: int = SPEED, subject: str = "", **options: Any) -> Producer:
        def read(due: Due) -> None:
            self.reads += 1
            value = b"%d" % self.reads
            self.gateway.respond(self.lan.now, due, value, WALL + self.lan.now)

        return self.gateway.produce(
            self.lan.now, type, subject or f"/x/{type}", ProducerOptions(**options), read
        )

    def consume(
        self, period_ms: float, type: int = SPEED, subject: str = "", **options: Any
    ) -> Consumer:
        consumer = Consumer(
            0, type, subject or f"/x/{type}", self.gateway.clock,
            period_us=int(period_ms * 1000), **options,
        )  # fmt: skip
        got: list[Sample] = []
        self.gateway.consume(self.lan.now, consumer, got.append)
        self.samples[consumer.port] = got
        return consumer

    def got(self, consumer: Consumer) -> list[Sample]:
        return self.samples[consumer.port]

    def receive(self, kind: int, body: bytes, sender: "Car") -> None:
        """Take a frame as if another had sent it."""
        endpoint = sender.node.core.endpoint
        endpoint.send(None, kind, 0, body)
        burst = endpoint.control.pop()
        data = b"".join(burst.buffers)
        self.node.core.receive(self.lan.now, data, 0, sender.node.address)
        self.node.drain(self.lan.now)

    def events(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.node.events if isinstance(event, kind)]


def ticks(samples: list[Sample]) -> list[int]:
    return [(sample.response.tick_ns - WALL) // MS for sample in samples]
