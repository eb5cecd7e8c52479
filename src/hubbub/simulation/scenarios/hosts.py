"""What hosts do to a protocol: clocks, stopped processes, stalls, full buffers, slow readers."""

from dataclasses import replace

from hubbub.events import SlowConsumer
from hubbub.limits import MS, SECOND, US
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.scenarios.registry import chatter, scenario
from hubbub.simulation.stage import Stage

_HOUR_NS = 3600 * SECOND
_RETURN_NS = 4 * SECOND


@scenario
def clock_steps(stage: Stage) -> None:
    """Set wall clocks by up to an hour, and let monotonic clocks drift by 200 ppm."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.choice([0, 0.1]))
    subscribing, publishing = ([stage.node(_drifting(stage)) for _ in range(2)] for _ in range(2))
    for node in subscribing:
        node.subscribe("/t/...")
    topics = stage.topics(publishing, 2)
    stage.meet(topics, 2)
    for node in publishing:
        for topic in node.topics:
            stage.feed(node, topic, count=100, pause_ns=(0, 2 * MS), burst=3)
    for _ in range(random.randint(1, 10)):
        world.run_for(random.randint(0, 40) * MS)
        node = random.choice(publishing + subscribing)
        node.step_wall_clock(random.choice([random.randint(-_HOUR_NS, _HOUR_NS), SECOND, -SECOND]))
    stage.play()
    stage.finish()
    stage.check_first()


def _drifting(stage: Stage) -> Host:
    random = stage.random
    return stage.host(
        drift_ppm=random.randint(-200, 200), clock_start_ns=random.randrange(_HOUR_NS)
    )


@scenario
def pause(stage: Stage) -> None:
    """Stop processes for up to five seconds, one by one or several at a time: no gap."""
    random, world = stage.random, stage.world
    stage.faults(loss=random.choice([0, 0.05]))
    publishing, subscribing = chatter(stage, messages=500, pause_ns=10 * MS)
    nodes = publishing + subscribing
    for _ in range(random.randint(1, 4)):
        world.run_for(random.randint(10, 300) * MS)
        for node in random.sample(nodes, random.randint(1, min(3, len(nodes)))):
            node.stop_for(random.choice([random.randint(100, 1000), 5000]) * MS)
    stage.play()
    world.run_for(5 * SECOND)
    stage.finish(_RETURN_NS)
    stage.check_first()


@scenario
def gil_stalls(stage: Stage) -> None:
    """Keep I/O threads from running for 0-100 ms, again and again."""
    random = stage.random
    stage.faults(loss=random.choice([0, 0.05]))
    host = stage.host(stall=random.uniform(0.01, 0.3), stall_ns=random.choice([10, 100]) * MS)
    chatter(stage, messages=300, host=host)
    stage.play()
    stage.finish()
    stage.check_first()


@scenario
def small_buffers(stage: Stage) -> None:
    """Publish at full speed into socket buffers of 64-208 KiB: complete, and repairs are rare."""
    random, world = stage.random, stage.world
    host = stage.host(buffer_bytes=random.choice([64, 128, 208]) << 10, read_ns=5 * US)
    publishing, subscribing = stage.group(1, random.randint(1, 3), host=host)
    topic = publishing[0].publish_on("/t/0")
    stage.meet([topic], len(subscribing))
    world.run_for(60 * MS)
    stage.feed(
        publishing[0], topic, count=4000, pause_ns=(0, 1), size_bytes=(64, 1000), burst=200
    )  # fmt: skip
    stage.play()
    stage.finish()
    sender = publishing[0].core.outgoing.reliable
    share = sender.repairs_sent / sender.frames_sent
    world.check(share <= 0.05, f"{share:.1%} of all frames were repairs")
    stage.check_first()


@scenario
def eagain(stage: Stage) -> None:
    """Let the kernel refuse up to half of all sends."""
    random = stage.random
    stage.faults(loss=random.choice([0, 0.05]))
    chatter(stage, host=stage.host(eagain=random.uniform(0.05, 0.5)))
    stage.play()
    stage.finish()
    stage.check_first()


def _stream(stage: Stage, host: Host, slow: Host | None) -> tuple[int, SimulatedNode]:
    """Publish as fast as two receivers take it; return how long that took."""
    world = stage.world
    publishing, subscribing = stage.group(1, 2, host=host)
    if slow is not None:
        stage.node(slow).subscribe("/t/...")
    topic = publishing[0].publish_on("/t/0")
    stage.meet([topic], 2 if slow is None else 3)
    world.run_for(60 * MS)
    start_ns = world.now
    feed = stage.feed(
        publishing[0], topic, count=1500, pause_ns=(0, 1), size_bytes=(900, 1100), burst=50
    )  # fmt: skip
    stage.play()

    def is_lagging() -> bool:
        publication = next(iter(stage.ledger.publications.values()))
        fast = [stage.ledger.reception(publication, node).count for node in subscribing]
        return min(fast) < feed.published

    stage.world.run_while(is_lagging, 20 * SECOND)
    return world.now - start_ns, publishing[0]


@scenario
def slow_receiver(stage: Stage) -> None:
    """Put a receiver of 1 % speed into a fast group: the others keep 95 % of their throughput."""
    world = stage.world
    host = Host(frame_bytes_max=1400, buffer_bytes=128 << 10, read_ns=4 * MS)
    alone_ns, _ = _stream(Stage(stage.world.seed), host, None)
    stage.ledger.are_gaps_allowed = True
    slow = replace(host, read_ns=400 * MS)
    together_ns, publisher = _stream(stage, host, slow)
    world.check(
        together_ns * 95 <= alone_ns * 100,
        f"{together_ns / MS:.0f} ms instead of {alone_ns / MS:.0f} ms",
    )
    reports = [e for _, node, e in stage.ledger.events if isinstance(e, SlowConsumer)]
    world.check(bool(reports), "nobody said that a receiver was left behind")
    world.check(publisher.is_alive, "the publisher is gone")
    stage.ledger.check_receptions()
