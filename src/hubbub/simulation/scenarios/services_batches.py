"""Services under load: messages in bursts, which go as batches, and more than anybody takes."""

from hubbub.limits import HOP_CROWDED_BYTES, MS, PUBLISHES_BYTES_MAX, SECOND
from hubbub.protocol.rendezvous.client import FIFO, NO_ORDER, TOTAL
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import TAKEN

_NAME = "news"
_ORDERS = (NO_ORDER, FIFO, TOTAL)
_LONG_BYTES = 50_000


def pour(town: Town, node: ServiceNode, bursts: int, pause_ns: int) -> list[bytes]:
    """Let a node publish many at a time for a while; return what it will have published."""
    random, sent = town.stage.random, list[bytes]()

    def publish(left: int) -> None:
        for _ in range(random.choice([1, 3, 30, 200])):
            sent.append(town.publish(node, _NAME))
        if left > 1:
            town.world.after(random.randrange(pause_ns), publish, left - 1)

    publish(bursts)
    return sent


@scenario
def services_burst(stage: Stage) -> None:
    """Publish in bursts while frames are lost and managers change: all comes, once, in order."""
    random, world = stage.random, stage.world
    town = Town(stage, Options(batch_bytes=random.choice([300, 1300, 60_000])))
    nodes = town.open_many(random.randint(4, 8))
    for place, node in enumerate(nodes):
        node.subscribe(_NAME, order=_ORDERS[place % 3])
    town.settle([_NAME])
    stage.faults(
        loss=random.choice([0, 0.05]), duplicate=random.choice([0, 0.1]),
        reorder=random.choice([0, 0.2]),
    )  # fmt: skip
    manager = town.closest(_NAME)
    publishers = random.sample([node for node in nodes if node is not manager], 2)
    sent = [pour(town, node, 12, 300 * MS) for node in publishers]
    for _ in range(random.randint(0, 3)):
        world.run_for(random.randrange(600 * MS))
        town.open()
    if random.random() < 0.3:
        manager.close()
    world.run_for(4 * SECOND)
    stage.heal()
    world.run_for(10 * SECOND)
    readers = [node for node in nodes if node.is_alive]
    for node, payloads in zip(publishers, sent, strict=True):
        town.check_complete(payloads, readers)
        ends = [one.status for one in node.settled]
        world.check(ends == [TAKEN] * len(payloads), f"{node}: no end of a message (H9)")
        world.check(node.machine.client.is_settled, f"{node}: requests without end (H9)")
    town.check_fifo(_NAME, nodes[_ORDERS.index(FIFO) :: 3])
    town.calm_down([_NAME])
    town.note_counts()


@scenario
def services_crowded(stage: Stage) -> None:
    """Publish faster than anybody takes: the publisher waits, and who gets on misses nothing."""
    random, world = stage.random, stage.world
    town = Town(stage, Options(batch_bytes=60_000))
    nodes = town.open_subscribed(random.randint(3, 5), _NAME)
    stage.faults(delay_ns=random.choice([5 * MS, 20 * MS]), loss=random.choice([0, 0.01]))
    manager = town.closest(_NAME)
    publisher = random.choice([manager, random.choice(nodes)])
    sent, left = list[bytes](), 90

    def publish() -> None:
        nonlocal left
        while left:
            payload = b"%d " % left + bytes(_LONG_BYTES)
            if publisher.publish(_NAME, payload) is None:
                world.after(1 * MS, publish)
                return
            town.published[payload] = (world.now, _NAME)
            sent.append(payload)
            left -= 1
            for track in manager.machine.hops.tracks.values():
                is_bounded = (
                    track.waiting_bytes <= HOP_CROWDED_BYTES + PUBLISHES_BYTES_MAX + 2 * _LONG_BYTES
                )
                world.check(is_bounded, f"{track.waiting_bytes} bytes wait at {manager} (H13)")

    publish()
    world.run_while(lambda: bool(left), 60 * SECOND)
    world.check(not left, f"{left} messages could not be published for a minute")
    world.run_for(10 * SECOND)
    town.check_complete(sent, nodes)
    lost = sum(node.machine.seat.counters["given_up_slow"] for node in nodes)
    world.check(not lost, f"{lost} frames were given up though everybody got on (H7)")
    town.note_counts()
