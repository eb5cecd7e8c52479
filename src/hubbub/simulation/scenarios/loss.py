"""Loss of every kind: nothing missing, nothing twice, order kept, and no gap reported either."""

from math import comb

from hubbub.limits import MS, SECOND, US
from hubbub.protocol.settings import Settings
from hubbub.simulation.network import Drop, name_kind
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.registry import chatter, gather, scenario
from hubbub.simulation.stage import Stage
from hubbub.wire.header import HELLO, KIND_OFFSET

_TAIL_NS = 100 * MS


@scenario
def random_loss(stage: Stage) -> None:
    """Lose 0-20 % of all datagrams, duplicate and reorder others."""
    random = stage.random
    stage.faults(
        loss=random.uniform(0, 0.2),
        duplicate=random.choice([0, random.uniform(0, 0.2)]),
        reorder=random.choice([0, random.uniform(0, 0.2)]),
        reorder_ns=random.choice([1, 5, 50]) * MS,
        jitter_ns=random.choice([0, 30 * US, 1 * MS]),
    )
    chatter(stage)
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def burst_loss(stage: Stage) -> None:
    """Lose whole bursts: Gilbert's two states, 1-200 datagrams at once, up to 30 % in all."""
    random = stage.random
    length = random.choice([2, 10, 50, 200])
    share = random.uniform(0, 0.3)
    chatter(stage)
    stage.faults(
        burst_end=1 / length,
        burst_begin=share / (1 - share) / length,
        burst_loss=random.uniform(0.5, 1),
        duplicate=random.choice([0, 0.05]),
    )
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def small_cache(stage: Stage) -> None:
    """Keep less for repair than receivers could take in at once, and lose up to 15 %."""
    random = stage.random
    settings = Settings(cache_bytes=random.choice([4_000, 20_000, 60_000]), slow_ms=10_000)
    publishing, _ = gather(stage, host=stage.host(settings=settings))
    stage.faults(loss=random.uniform(0, 0.15), reorder=random.choice([0, 0.1]), reorder_ns=5 * MS)
    for node in publishing:
        stage.feed(
            node, node.topics[0], count=300, pause_ns=(0, 20 * MS), size_bytes=(500, 4000), burst=30
        )
    stage.play()
    stage.finish()
    stage.check_first()


def _lose_kind(stage: Stage, kind: str) -> None:
    """Lose half of one kind of frame; beside it first transmissions alone, or some of everything.

    Without any lost message nobody would ask, and nothing would be repaired.
    """
    share = stage.random.uniform(0.02, 0.1)
    if stage.random.random() < 0.5:
        stage.faults(kind_loss={"data": share, kind: 0.5})
    else:
        stage.faults(loss=share, kind_loss={kind: 0.5})
    chatter(stage, messages=300)
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def nak_loss(stage: Stage) -> None:
    """Lose half of all requests for repair."""
    _lose_kind(stage, "nak")


@scenario
def repair_loss(stage: Stage) -> None:
    """Lose half of all repairs."""
    _lose_kind(stage, "repair")


@scenario
def heartbeat_loss(stage: Stage) -> None:
    """Lose half of all heartbeats."""
    _lose_kind(stage, "heartbeat")


@scenario
def status_loss(stage: Stage) -> None:
    """Lose half of what receivers say of themselves."""
    _lose_kind(stage, "status")


@scenario
def tail_loss(stage: Stage) -> None:
    """Lose the last 1-20 datagrams: they are there within 100 ms of the last one."""
    random, world = stage.random, stage.world
    publishing, _ = gather(stage)
    world.run_for(60 * MS)
    node, topic = publishing[0], publishing[0].topics[0]
    for _ in range(random.randint(0, 30)):
        node.publish(topic, b"before")
    world.run_for(random.choice([0, 5, 50, 500]) * MS)
    is_for_all = random.random() < 0.5

    def is_lost(source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        return name_kind(frame) == "data" and (is_for_all or target.index % 2 == 1)

    stage.network.drop = is_lost
    for _ in range(random.randint(1, 20)):
        node.publish(topic, bytes(random.randint(1, 3000)))
        world.run_for(random.choice([0, 100 * US, 2 * MS]))
    last_ns = world.now
    world.run_while(lambda: not stage.ledger.is_complete, SECOND)
    took_ns = world.now - last_ns
    world.check(took_ns <= _TAIL_NS, f"the tail came after {took_ns / MS:.0f} ms")
    stage.finish()


@scenario
def corruption(stage: Stage) -> None:
    """Flip 1-16 bits in up to 5 % of all datagrams: the checksum finds each."""
    random = stage.random
    stage.faults(corrupt=random.uniform(0.001, 0.05), loss=random.choice([0, 0.05]))
    chatter(stage)
    stage.play()
    stage.finish()
    stage.check_first()


def transmissions_bound(loss: float, receivers: int) -> float:
    """Return how often a frame must be sent on average until all receivers have it."""
    terms = [comb(receivers, k) / (1 - loss**k) for k in range(1, receivers + 1)]
    return sum(terms[::2]) - sum(terms[1::2])


@scenario
def repair_bound(stage: Stage) -> None:
    """Send no more than 1.5 times what independent loss of 5-20 % makes unavoidable."""
    random, world = stage.random, stage.world
    loss, receivers = random.uniform(0.05, 0.2), random.choice([1, 3, 10])
    publishing, _ = stage.group(1, receivers, host=Host(frame_bytes_max=1400))
    topic = publishing[0].publish_on("/t/0")
    stage.meet([topic], receivers)
    world.run_for(60 * MS)
    stage.faults(loss=loss)
    stage.feed(
        publishing[0], topic, count=300, pause_ns=(0, 1 * MS), size_bytes=(1000, 1200)
    )  # fmt: skip
    stage.play()
    stage.settle()
    sender = publishing[0].core.outgoing.reliable
    frames = sender.next_sequence - 1
    sent = (frames + sender.repairs_sent) / frames
    bound = 1.5 * transmissions_bound(loss, receivers)
    world.check(sent <= bound, f"{sent:.2f} transmissions a frame, at most {bound:.2f}")
    stage.finish()


@scenario
def nak_implosion(stage: Stage) -> None:
    """Let 50 receivers lose the same frames: about two ask for each, and one repair goes out."""
    world, network = stage.world, stage.network
    losses, receivers = 12, 50
    stage.faults(delay_ns=stage.random.choice([20 * US, 500 * US, 2 * MS]), jitter_ns=200 * US)
    network.drop = _one_hello_is_enough()
    publishing, _ = stage.group(1, receivers, host=Host(frame_bytes_max=1400))
    topic = publishing[0].publish_on("/t/0")
    stage.meet([topic], receivers)
    world.run_for(100 * MS)
    asked: list[int] = []
    for _ in range(losses):
        before = network.counts["nak"]
        network.drop = lambda source, target, frame: name_kind(frame) == "data"
        publishing[0].publish(topic, b"lost by all")
        world.run_for(1 * MS)
        network.drop = None
        publishing[0].publish(topic, b"shows the gap")
        world.run_for(60 * MS)
        asked.append(network.counts["nak"] - before)
    world.counts["naks_per_loss_percent"] = round(100 * sum(asked) / losses)
    repairs = publishing[0].core.outgoing.reliable.repairs_sent / losses
    # Theory says 2.1 on average. One seed of twelve losses may be above 2.5; all seeds may not, and
    # a test over many of them says so. Once in 5,000 losses all 50 draw a late time, and then half
    # of them ask before they hear each other; so of twelve the worst is judged with all seeds only.
    naks = (sum(asked) - max(asked)) / (losses - 1)
    world.check(naks <= 4, f"{naks:.2f} requests a loss")
    world.check(repairs <= 1.2, f"{repairs:.2f} repairs a loss")
    stage.settle()


def _one_hello_is_enough() -> Drop:
    """Make the opening of a large group cheap: each node hears the first HELLO of each other."""
    met: set[tuple[int, int]] = set()

    def is_lost(source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        pair = source.index, target.index
        if frame[KIND_OFFSET] != HELLO:
            return False
        is_again = pair in met
        met.add(pair)
        return is_again

    return is_lost
