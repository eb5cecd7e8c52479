"""Nodes come, go, die, return and are cut off from each other."""

from hubbub.events import PeerJoined, PeerLeft
from hubbub.limits import CACHE_AGE, MS, SECOND, US
from hubbub.protocol.settings import Settings
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.registry import chatter, gather, scenario, start
from hubbub.simulation.stage import Stage

_JOIN_NS = 100 * MS
_RETURN_NS = 4 * SECOND  # A heartbeat comes each second, then there are repairs.
# One split may follow another before the two sides have met: then both count as one.
_SPLIT_MS_MAX = 50_000
assert _SPLIT_MS_MAX * MS + 2 * _RETURN_NS < CACHE_AGE


def _split(
    stage: Stage, publishing: list[SimulatedNode], subscribing: list[SimulatedNode], time_ns: int
) -> None:
    """Cut some subscribers off from some publishers for a time, both ways or one way."""
    random = stage.random
    far = random.sample(subscribing, random.randint(1, len(subscribing)))
    near = random.sample(publishing, random.randint(1, len(publishing)))
    others = [node for node in publishing + subscribing if node not in far and node not in near]
    sides = [node.index for node in far], [node.index for node in near]
    for node in others:
        random.choice(sides).append(node.index)
    way = random.choice(["both", "both", "there", "back"])
    if way == "back":
        sides = sides[1], sides[0]
    stage.network.block(*sides, both=way == "both")
    stage.world.run_for(time_ns)
    stage.network.unblock()


def _talk_for_long(stage: Stage, host: Host) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
    """Publish some 50 messages a second for some seconds."""
    publishing, subscribing = gather(stage, host=host)
    topics = [(node, topic) for node in publishing for topic in node.topics]
    for node, topic in topics:
        stage.feed(node, topic, count=500 // len(topics), pause_ns=(0, 30 * MS * len(topics)))
    return publishing, subscribing


def _begin_topic(stage: Stage, node: SimulatedNode) -> None:
    topic = node.publish_on(f"/t/new/{len(node.topics)}")
    stage.feed(node, topic, count=100, pause_ns=(0, 80 * MS))


@scenario
def partition_short(stage: Stage) -> None:
    """Split the network once to three times for 0.1-30 s, within the repair window: no gap."""
    random = stage.random
    publishing, subscribing = _talk_for_long(stage, stage.host())
    left_ms = _SPLIT_MS_MAX
    for _ in range(random.randint(1, 3)):
        stage.world.run_for(random.randint(50, 500) * MS)
        time_ms = random.choice([random.randint(100, 4000), random.randint(100, 30_000)])
        time_ms = min(time_ms, left_ms)
        left_ms -= time_ms
        stage.world.after(random.randrange(1000) * MS, _begin_topic, stage, publishing[0])
        _split(stage, publishing, subscribing, time_ms * MS)
    stage.play()
    stage.finish(_RETURN_NS)
    stage.check_first()


@scenario
def partition_long(stage: Stage) -> None:
    """Split the network for longer than anything is kept: each hole is reported once."""
    random = stage.random
    stage.ledger.are_gaps_allowed = True
    settings = Settings(
        repair_window_ms=random.choice([300, 1500]), cache_bytes=random.choice([3_000, 1 << 20]),
        peer_timeout_ms=1500, heartbeat_ms=300,
    )  # fmt: skip
    publishing, subscribing = _talk_for_long(stage, stage.host(settings=settings))
    for _ in range(random.randint(1, 2)):
        stage.world.run_for(random.randint(50, 500) * MS)
        node, after_ms = random.choice(publishing), random.randrange(1000)
        stage.world.after(after_ms * MS, _begin_topic, stage, node)
        _split(stage, publishing, subscribing, random.randint(500, 6000) * MS)
    stage.play()
    stage.finish(_RETURN_NS)


@scenario
def late_join(stage: Stage) -> None:
    """Join a running conversation: the first message comes within 100 ms of subscribing."""
    random, world = stage.random, stage.world
    loss = random.choice([0, random.uniform(0, 0.1)])
    _, subscribing = chatter(stage, messages=600, pause_ns=3 * MS)
    stage.faults(loss=loss)
    world.run_for(random.randint(0, 200) * MS)
    for _ in range(random.randint(1, 3)):
        node = stage.node(subscribing[0].host)
        world.run_for(random.choice([0, 0, 100 * MS]))  # One that is there already may join, too.
        opened_ns = world.now
        node.subscribe("/t/...")
        world.run_for(random.randint(0, 50) * MS)
        if not loss:
            _check_joined(stage, node, opened_ns)
    stage.play()
    stage.finish()


def _check_joined(stage: Stage, node: SimulatedNode, opened_ns: int) -> None:
    stage.world.run(opened_ns + _JOIN_NS)
    for publication in stage.ledger.publications.values():
        reception = stage.ledger.reception(publication, node)
        # What was published 50 ms after opening, when awareness is promised, must be among it.
        first_due = publication.first + sum(
            1 for time_ns in publication.times_ns if time_ns < opened_ns + _JOIN_NS // 2
        )
        if publication.next > first_due and stage.feeds and not stage.feeds[0].is_done:
            stage.world.check(
                reception.first is not None and reception.first <= first_due,
                f"{node.name} began {publication.topic.subject} with {reception.first},"
                f" not {first_due}",
            )


@scenario
def leave(stage: Stage) -> None:
    """Close subscribers in the midst of it: seen at once, and the others miss nothing."""
    random, world = stage.random, stage.world
    publishing, subscribing = chatter(stage, subscribers=4, pause_ns=1 * MS)
    for node in random.sample(subscribing, random.randint(1, 3)):
        world.run_for(random.randint(1, 100) * MS)
        node.close(100 * MS)
        limit_ns = world.now + 50 * MS
        for publisher in publishing:
            await_left(stage, publisher, node.source, limit_ns - world.now)
    stage.play()
    stage.finish()
    stage.check_first()


def await_left(stage: Stage, node: SimulatedNode, source: object, limit_ns: int) -> None:
    """Let time pass until a node has missed another; it must, soon."""
    world = stage.world
    start_ns = world.now
    world.run_while(lambda: source in stage.ledger.present[node], limit_ns)
    took_ns = world.now - start_ns
    world.check(
        source not in stage.ledger.present[node],
        f"{node.name} has not missed {source} after {took_ns / MS:.0f} ms",
    )


@scenario
def crash(stage: Stage) -> None:
    """Kill a publisher: reported within the timeout, and what it could not repair is, too."""
    random, world = stage.random, stage.world
    stage.ledger.are_gaps_allowed = True
    timeout_ms = random.choice([500, 1000, 3000])
    settings = Settings(
        peer_timeout_ms=timeout_ms, heartbeat_ms=timeout_ms / 4, repair_window_ms=1000
    )
    stage.faults(loss=random.choice([0, 0.1]))
    publishing, subscribing = chatter(
        stage, messages=400, pause_ns=1 * MS, host=stage.host(settings=settings)
    )
    world.run_for(random.randint(0, 150) * MS)
    victim = random.choice(publishing)
    source = victim.source
    knew = [node for node in subscribing if source in stage.ledger.present[node]]
    victim.crash()
    start_ns = world.now
    for node in knew:
        await_left(stage, node, source, start_ns + timeout_ms * MS + 10 * MS - world.now)
    stage.play()
    world.run_for(2 * SECOND)  # Until what was between them is forgotten.
    stage.finish()
    for node in subscribing:
        world.check(
            all(peer.source != source for peer in node.core.peers.values()),
            f"{node.name} still keeps {source}",
        )


@scenario
def restart(stage: Stage) -> None:
    """Restart publishers, also within the same millisecond: two incarnations never mix."""
    random, world = stage.random, stage.world
    stage.ledger.are_gaps_allowed = True
    stage.faults(loss=random.choice([0, 0.1]), reorder=random.choice([0, 0.1]))
    publishing, subscribing = chatter(stage, messages=300, pause_ns=1 * MS)
    for _ in range(random.randint(1, 4)):
        world.run_for(random.randint(0, 80) * MS)
        victim = random.choice([node for node in publishing if node.is_alive])
        publishing.remove(victim)
        victim.crash()
        world.run_for(random.choice([0, random.randrange(1 * MS), 30 * MS, 4 * SECOND]))
        node = stage.node(victim.host, victim.index)
        publishing.append(node)
        for topic in victim.topics:
            node.publish_on(topic.subject)
        stage.meet(node.topics, len(subscribing))
        start(stage, [node], messages=60, pause_ns=1 * MS)
    stage.play()
    stage.finish()
    _check_alternation(stage)


def _check_alternation(stage: Stage) -> None:
    """Check that a node never sees two incarnations of one other at the same time."""
    present: dict[tuple[SimulatedNode, bytes], int] = {}
    for _, node, event in stage.ledger.events:
        if isinstance(event, PeerJoined):
            key = node, event.peer.id
            present[key] = present.get(key, 0) + 1
            stage.world.check(present[key] == 1, f"{node.name} sees {event.peer} twice")
        elif isinstance(event, PeerLeft):
            present[node, event.peer.id] -= 1


@scenario
def churn(stage: Stage) -> None:
    """Subscribe and unsubscribe at any time, while messages flow and some are lost."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.choice([0, random.uniform(0, 0.15)]))
    _, subscribing = chatter(stage, messages=800, pause_ns=1 * MS)
    patterns = ["/t/...", "/t/*", "/t/0", "/t/1", "/t/2"]
    for _ in range(random.randint(5, 30)):
        world.run_for(random.choice([0, random.randrange(30 * MS)]))
        stage.change_interest(random.choice(subscribing), patterns)
    stage.play()
    stage.finish()


@scenario
def open_publish_close(stage: Stage) -> None:
    """Open, publish, close at 10 % loss, stalled or not: it reaches every running subscriber."""
    _publish_once(stage, stage.host(), pauses_ns=(0, 100 * MS))


@scenario
def open_publish_close_busy(stage: Stage) -> None:
    """Open, publish and close at once, where subscribers are kept from running, too."""
    host = stage.host(stall=stage.random.uniform(0.01, 0.2), stall_ns=100 * MS)
    _publish_once(stage, host, pauses_ns=(0, 0))


def _publish_once(stage: Stage, host: Host, pauses_ns: tuple[int, int]) -> None:
    random, world = stage.random, stage.world
    _, subscribing = stage.group(0, random.randint(1, 5), host=host)
    world.run_for(random.choice([100, 1000]) * MS)
    stage.faults(loss=0.1)
    stalled = stage.host(stall=random.uniform(0.01, 0.3), stall_ns=random.choice([10, 100]) * MS)
    node = stage.node(random.choice([subscribing[0].host, stalled]))
    messages = random.randint(1, 3)
    topic = node.publish_on("/t/0")
    for place in range(messages):
        world.check(node.publish(topic, b"%d" % place), "no room for the first message")
        pause_ns = random.choice([0, random.randint(*pauses_ns)])
        if pause_ns:  # Else it is closed before it has done anything.
            world.run_for(pause_ns)
    node.close(1 * SECOND)
    closed = world.run_while(lambda: node.is_alive, 3 * SECOND)
    world.check(closed, "close() hangs")
    publication = next(iter(stage.ledger.publications.values()))
    for subscriber in subscribing:
        count = stage.ledger.reception(publication, subscriber).count
        world.check(count == messages, f"{subscriber.name} got {count} of {messages} messages")
    stage.finish()


@scenario
def goodbye(stage: Stage) -> None:
    """Close publishers at up to 20 % loss: all they sent is there, and they left, closed."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.uniform(0, 0.2), jitter_ns=random.choice([0, 500 * US]))
    publishing, subscribing = chatter(stage, messages=200)
    stage.play()
    for node in publishing:
        node.close(3 * SECOND)
        world.run_for(random.choice([0, 20 * MS]))
    world.check(
        world.run_while(lambda: any(node.is_alive for node in publishing), 4 * SECOND),
        "close() hangs",
    )
    for publication in stage.ledger.publications.values():
        for node in subscribing:
            count = stage.ledger.reception(publication, node).count
            world.check(
                count == len(publication.payloads),
                f"{node.name} got {count} of {len(publication.payloads)} before the goodbye",
            )
    reasons = {e.reason for _, _, e in stage.ledger.events if isinstance(e, PeerLeft)}
    world.check(reasons <= {"closed"}, f"nodes left by {reasons}")
    stage.finish()
