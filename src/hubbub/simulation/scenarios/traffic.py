"""What is sent: large messages, many topics, two at a time, best effort, at a limited rate."""

from hubbub.events import Nagging
from hubbub.limits import MS, SECOND, SEQUENCE_MAX
from hubbub.protocol.settings import Settings
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.registry import chatter, scenario
from hubbub.simulation.stage import Stage
from hubbub.simulation.traffic import make_payload


@scenario
def large_messages(stage: Stage) -> None:
    """Send 1 B to 5 MB at 1-30 % loss, small and large ones mixed on several topics."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.choice([0.01, 0.1, 0.3]), duplicate=random.choice([0, 0.1]))
    frame_bytes = random.choice([1400, 16_384, 65_507])
    host = Host(frame_bytes_max=frame_bytes, burst_bytes_max=64_400 if frame_bytes == 1400 else 0)
    publishing, subscribing = stage.group(1, random.randint(1, 2), host=host)
    topics = stage.topics(publishing, 2)
    stage.meet(topics, len(subscribing))
    left = {1400: 600_000, 16_384: 3_000_000, 65_507: 7_000_000}[frame_bytes]
    largest = {1400: 400_000, 16_384: 2_000_000, 65_507: 5_000_000}[frame_bytes]
    count = 0
    while left > 0 and count < 100:
        size = min(int(10 ** random.uniform(0, 6.7)), largest)
        payload = make_payload(1, 1, count, size)
        while not publishing[0].publish(random.choice(topics), payload):
            world.run_for(1 * MS)
        left -= size
        count += 1
        world.run_for(random.choice([0, 0, 2 * MS]))
    stage.settle(20 * SECOND)
    stage.finish()
    stage.check_first()


@scenario
def images_beside_samples(stage: Stage) -> None:
    """Send 200 small messages a second beside 10 images: no image keeps a small one waiting."""
    random, world = stage.random, stage.world
    # An image takes the wire 25 to 40 ms; whole, it would hold up five samples and more.
    host = Host(
        frame_bytes_max=random.choice([1400, 16_384]),
        settings=Settings(rate_limit_bits=100_000_000),
    )
    publishing, subscribing = stage.group(1, random.randint(1, 2), host=host)
    images, samples = stage.topics(publishing, 2)
    stage.meet([images, samples], len(subscribing))
    world.run_for(60 * MS)
    small = stage.feed(publishing[0], samples, count=200, pause_ns=(5 * MS, 5 * MS))
    stage.feed(
        publishing[0], images, count=10, pause_ns=(100 * MS, 100 * MS),
        size_bytes=(300_000, 500_000),
    )  # fmt: skip
    publication = next(p for p in stage.ledger.publications.values() if p.topic is samples)
    while not small.is_done:
        world.run_for(1 * MS)
        for node in subscribing:
            count = stage.ledger.reception(publication, node).count
            waiting = len(publication.payloads) - count
            world.check(waiting <= 2, f"{waiting} small messages wait at {node.name}")
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def many_topics(stage: Stage) -> None:
    """Publish on hundreds of topics, declared before and after the subscribers come."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.choice([0, 0.1]))
    host = stage.host()
    publisher = stage.node(host)
    early = [publisher.publish_on(f"/t/early/{i}") for i in range(random.choice([10, 300]))]
    subscribing = stage.nodes(random.randint(1, 3), host)
    for node in subscribing:
        node.subscribe(random.choice(["/t/...", "/t/*/*"]))
    stage.meet(early, len(subscribing), 2 * SECOND)
    late = [publisher.publish_on(f"/t/late/{i}") for i in range(random.choice([10, 300]))]
    for topic in random.choices(early + late, k=600):
        publisher.publish(topic, b"%d" % random.randrange(1000))
        if random.random() < 0.1:
            world.run_for(random.randrange(3 * MS))
    stage.finish()


@scenario
def two_publishers(stage: Stage) -> None:
    """Let two publishers send the same sequences on one subject, and lose frames of one only."""
    random = stage.random
    publishing, subscribing = stage.group(2, random.randint(1, 3))
    topics = stage.topics(publishing)
    stage.meet(topics, len(subscribing))
    victim, loss = publishing[0].index, random.uniform(0.05, 0.3)

    def is_lost(source: SimulatedNode, target: SimulatedNode, frame: bytes) -> bool:
        return source.index == victim and random.random() < loss

    stage.network.drop = is_lost
    for node, topic in zip(publishing, topics, strict=True):
        stage.feed(node, topic, count=200, pause_ns=(0, 1 * MS))
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def best_effort(stage: Stage) -> None:
    """Send best effort beside reliable at 0-30 % loss: in order, once, holes not repaired."""
    random, world = stage.random, stage.world
    publishing, subscribing = stage.group(1, random.randint(1, 3))
    topics = [publishing[0].publish_on("/t/reliable")]
    stage.meet(topics, len(subscribing))
    world.run_for(60 * MS)
    loss, reorder = random.choice([0, random.uniform(0, 0.3)]), random.choice([0, 0.1])
    stage.faults(loss=loss, reorder=reorder, duplicate=random.choice([0, 0.1]))
    topics += [publishing[0].publish_on(f"/t/best/{i}", is_reliable=False) for i in range(2)]
    for topic in topics:
        stage.feed(publishing[0], topic, count=150, pause_ns=(0, 1 * MS), size_bytes=(1, 1000))
    stage.play()
    stage.heal()
    stage.settle()
    world.run_for(500 * MS)
    for topic in topics:
        stage.feed(publishing[0], topic, count=50, pause_ns=(0, 1 * MS), size_bytes=(1, 1000))
    stage.play()
    stage.finish()
    for publication in stage.ledger.publications.values():
        for node in subscribing:
            next_sequence = stage.ledger.reception(publication, node).next
            world.check(
                next_sequence == 201,
                f"{node.name} of {publication.topic.subject} came to {next_sequence} of 201",
            )


@scenario
def counter_limits(stage: Stage) -> None:
    """Start all counters just below 2**32, 2**63 and 2**64: as ever."""
    random = stage.random
    first_frame, first_message = (
        random.choice(
            [limit - random.randint(1, 99) for limit in (1 << 31, 1 << 32, 1 << 63)]
            + [SEQUENCE_MAX - random.randint(5_000, 6_000)]
        )
        for _ in range(2)
    )
    stage.faults(loss=random.uniform(0, 0.2), duplicate=random.choice([0, 0.1]))
    chatter(stage, host=stage.host(first_frame=first_frame, first_message=first_message))
    stage.play()
    stage.finish()
    stage.check_first(first_message)


@scenario
def rate_limit(stage: Stage) -> None:
    """Limit a channel to 1 Mbit/s with and without loss: it sends that, repairs included."""
    random, world = stage.random, stage.world
    limit_bits = random.choice([1_000_000, 4_000_000])
    host = Host(frame_bytes_max=1400, settings=Settings(rate_limit_bits=limit_bits))
    publishing, subscribing = stage.group(1, random.randint(1, 2), host=host)
    topic = publishing[0].publish_on("/t/0")
    stage.meet([topic], len(subscribing))
    world.run_for(60 * MS)
    stage.faults(loss=random.choice([0, 0.1]))
    feed = stage.feed(publishing[0], topic, count=10**6, pause_ns=(0, 1), size_bytes=(1000, 1200))
    world.run_for(100 * MS)
    start_bytes, seconds = publishing[0].sent_bytes, 3
    world.run_for(seconds * SECOND)
    bits = 8 * (publishing[0].sent_bytes - start_bytes) / seconds
    world.check(
        0.9 * limit_bits <= bits <= 1.1 * limit_bits,
        f"{bits:.0f} bit/s at a limit of {limit_bits}",
    )
    feed.stop()


@scenario
def nagging(stage: Stage) -> None:
    """Ask for repairs in every window: one event; with a pause of one window: none."""
    random, world = stage.random, stage.world
    stage.ledger.are_gaps_allowed = True
    is_steady = random.random() < 0.5
    settings = Settings(
        nagging_window_ms=200, nagging_check_ms=1000, nagging_requests=10,
        nagging_policy=random.choice(["report", "suspend", "resync"]),
    )  # fmt: skip
    publishing, subscribing = stage.group(1, 1, host=stage.host(settings=settings))
    topic = publishing[0].publish_on("/t/0")
    stage.meet([topic], 1)
    stage.feed(publishing[0], topic, count=10**6, pause_ns=(0, 10 * MS))
    for _ in range(3):
        stage.faults(loss=0.3)
        world.run_for(1200 * MS if is_steady else 500 * MS)
        if not is_steady:
            stage.faults()
            world.run_for(600 * MS)
    events = [e for _, node, e in stage.ledger.events if isinstance(e, Nagging)]
    expected = 1 if is_steady else 0
    world.check(len(events) == expected, f"{len(events)} events of nagging, not {expected}")
    if is_steady and settings.nagging_policy == "suspend":
        before = subscribing[0].core.endpoint.counters["naks_sent"]
        world.run_for(SECOND)
        after = subscribing[0].core.endpoint.counters["naks_sent"]
        world.check(after == before, f"{after - before} requests after receiving was suspended")
