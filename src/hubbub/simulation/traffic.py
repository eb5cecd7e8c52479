"""What applications do in a run: publish at some pace, wait when the backlog is full."""

from hubbub.limits import MS
from hubbub.protocol.topics import OutgoingTopic
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.world import World

_RETRY_NS = 1 * MS


def make_payload(index: int, topic: int, count: int, size_bytes: int) -> bytes:
    """Make a payload that tells who published it and as which message, as far as it is long."""
    mark = b"%d/%d/%d." % (count, topic, index)
    return (mark * (size_bytes // len(mark) + 1))[:size_bytes]


class Feed:
    """Publishes so many messages on one topic, with drawn pauses and sizes."""

    def __init__(
        self, world: World, node: SimulatedNode, topic: OutgoingTopic, *,
        count: int, pause_ns: tuple[int, int], size_bytes: tuple[int, int] = (1, 200),
        burst: int = 1,
    ) -> None:  # fmt: skip
        self.world = world
        self.node = node
        self.topic = topic
        self.left = count
        self.published = 0
        self.last_ns = 0
        self.waits = 0
        self._pause_ns = pause_ns
        self._size_bytes = size_bytes
        self._burst = burst
        self._waiting: bytes | None = None
        world.after(world.draw_ns(0, pause_ns[1] or 1), self._go)

    @property
    def is_done(self) -> bool:
        """Tell whether everything was published, or the node is gone."""
        return self.left == 0 or not self.node.is_alive

    def stop(self) -> None:
        """Publish no more."""
        self.left = 0

    def _go(self) -> None:
        for _ in range(self._burst):
            if self.is_done or self.node.core.is_closing:
                return
            if not self._publish_one():
                self.waits += 1
                self.world.after(_RETRY_NS, self._go)
                return
        self.world.after(self.world.draw_ns(*self._pause_ns), self._go)

    def _publish_one(self) -> bool:
        payload = self._waiting
        if payload is None:
            size = self.world.random.randint(*self._size_bytes)
            payload = make_payload(self.node.index, self.topic.number, self.published, size)
        if not self.node.publish(self.topic, payload):
            self._waiting = payload
            return False
        self._waiting = None
        self.published += 1
        self.left -= 1
        self.last_ns = self.world.now
        return True
