"""Publishers that wait until their receivers have a message: who is counted has it."""

from hubbub.events import SlowConsumer
from hubbub.limits import MS, SECOND
from hubbub.protocol.receipts import UNACKNOWLEDGED
from hubbub.protocol.topics import OutgoingTopic
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_PATIENCE_NS = 300 * MS
_STOP_NS = 2 * SECOND


def _publish(
    stage: Stage, node: SimulatedNode, topic: OutgoingTopic, subscribing: list[SimulatedNode]
) -> tuple[int, int]:
    """Publish a message and wait for its receipt; return how many took it, and the time."""
    world, receipts = stage.world, node.core.outgoing.receipts
    size_bytes = stage.random.choice([10, 1000, 5000])
    start_ns = world.now
    receipt = node.publish_acknowledged(topic, bytes(size_bytes))
    world.run_while(lambda: not receipt.is_done, _PATIENCE_NS, 100_000)
    taken = receipt.taken if receipt.is_done else receipts.close(receipt)
    publication = next(iter(stage.ledger.publications.values()))
    having = sum(
        stage.ledger.reception(publication, one).next > receipt.sequence for one in subscribing
    )
    world.check(taken <= having, f"{taken} acknowledged what {having} have")
    return taken, world.now - start_ns


@scenario
def acknowledged(stage: Stage) -> None:
    """Wait for receipts at up to 10 % loss: who is counted has it, who is stopped costs it once."""
    random, world = stage.random, stage.world
    publishing, subscribing = stage.group(1, random.randint(1, 4))
    node, topic = publishing[0], publishing[0].publish_on("/t/0")
    stage.meet([topic], len(subscribing))
    world.run_for(100 * MS)
    loss = random.choice([0, random.uniform(0, 0.1)])
    stage.faults(loss=loss)
    for _ in range(20):
        taken, took_ns = _publish(stage, node, topic, subscribing)
        world.check(loss > 0 or taken == len(subscribing), f"only {taken} acknowledged")
        world.check(loss > 0 or took_ns <= 5 * MS, f"acknowledging took {took_ns / MS:.1f} ms")
    stage.heal()
    world.run_for(1500 * MS)  # Until everybody has announced itself again.
    before = node.core.endpoint.counters[UNACKNOWLEDGED]
    subscribing[0].stop_for(_STOP_NS)
    start_ns = world.now
    for place in range(10):
        taken, took_ns = _publish(stage, node, topic, subscribing)
        is_first = place == 0
        world.check(taken == len(subscribing) - 1, f"{taken} acknowledged, one being stopped")
        world.check(is_first == (took_ns >= _PATIENCE_NS), f"waited for {took_ns / MS:.1f} ms")
    world.run(start_ns + _STOP_NS + 1500 * MS)
    taken, _ = _publish(stage, node, topic, subscribing)
    world.check(taken == len(subscribing), "one that goes on again is not waited for")
    reports = [e for _, _, e in stage.ledger.events if isinstance(e, SlowConsumer)]
    late = [event for event in reports if event.policy == UNACKNOWLEDGED]
    world.check(len(late) == before + 1, f"{len(late) - before} reports of one stopped receiver")
    stage.finish()
