"""One receiver stops: the others go on as if it were not there, after being held up once."""

from itertools import combinations
from typing import TYPE_CHECKING

from hubbub.events import SlowConsumer
from hubbub.limits import MS, SECOND, US
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.settings import Settings
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

if TYPE_CHECKING:
    from hubbub.simulation.checkers import Subscriber

_MESSAGES = 1500
_SHARE_PERCENT = 5


class _Watch:
    """Notes when each receiver got its messages."""

    def __init__(self, stage: Stage) -> None:
        self.times_ns: dict[Subscriber, list[int]] = {}
        self._world = stage.world
        self._delivered = stage.ledger.delivered
        stage.ledger.delivered = self._note  # type: ignore[method-assign]

    def _note(self, node: "Subscriber", delivery: Delivery) -> None:
        self.times_ns.setdefault(node, []).extend([self._world.now] * len(delivery.payloads))
        self._delivered(node, delivery)


def _host(*, has_pipes: bool, slow_ms: int) -> Host:
    """Describe receivers that read slowly, so that windows are full and runs take seconds."""
    settings = Settings(slow_ms=slow_ms, peer_timeout_ms=3_600_000, reference_bytes=0)
    if has_pipes:
        return Host(buffer_bytes=512 << 10, read_ns=3 * MS, settings=settings)
    return Host(buffer_bytes=64 << 10, read_ns=3 * MS, settings=settings)


def _stream(stage: Stage, host: Host, *, has_pipes: bool, is_stopped: bool) -> list[list[int]]:
    """Publish at full speed to four; return when those got each message that were not stopped."""
    world, watch = stage.world, _Watch(stage)
    (publisher,), subscribing = stage.group(1, 4, host=host)
    publisher.host.read_ns = 2 * US
    topic = publisher.publish_on("/t/0")
    stage.meet([topic], len(subscribing))
    if has_pipes:
        for one, other in combinations([publisher, *subscribing], 2):
            stage.network.pipes.open(one, other)
    world.run_for(100 * MS)
    start_ns = world.now
    size = 50_000 if has_pipes else 900
    stage.feed(
        publisher, topic, count=_MESSAGES, pause_ns=(0, 1), size_bytes=(size, size), burst=50
    )
    world.run_for(500 * MS)
    if is_stopped:
        subscribing[0].stop_for(3600 * SECOND)
    others: list[SimulatedNode] = subscribing[1:]

    def is_under_way() -> bool:
        return min(len(watch.times_ns.get(one, ())) for one in others) < _MESSAGES

    world.run_while(is_under_way, 60 * SECOND)
    return [[at - start_ns for at in watch.times_ns[one]] for one in others]


@scenario
def stopped_receiver(stage: Stage) -> None:
    """Stop one of four receivers for good: the others wait for it once, for slow_ms, no more."""
    world, has_pipes = stage.world, stage.random.random() < 0.5
    slow_ms = stage.random.choice([150, 200])
    host = _host(has_pipes=has_pipes, slow_ms=slow_ms)
    stage.ledger.are_gaps_allowed = True
    alone = _stream(Stage(world.seed), host, has_pipes=has_pipes, is_stopped=False)
    beside = _stream(stage, host, has_pipes=has_pipes, is_stopped=True)
    for before, after in zip(alone, beside, strict=True):
        world.check(len(after) == _MESSAGES, f"{len(after)} of {_MESSAGES} messages came")
        late_ns = [b - a for a, b in zip(before, after, strict=True)]
        world.check(
            max(late_ns) <= slow_ms * MS,
            f"{max(late_ns) / MS:.1f} ms later than without it; {before[-1] / MS:.0f} ms in all",
        )
        world.check(
            100 * late_ns[-1] <= _SHARE_PERCENT * before[-1],
            f"{after[-1] / MS:.0f} ms instead of {before[-1] / MS:.0f} ms",
        )
    reports = [e for _, _, e in stage.ledger.events if isinstance(e, SlowConsumer)]
    world.check(len(reports) == 1, f"{len(reports)} reports of one stopped receiver")
