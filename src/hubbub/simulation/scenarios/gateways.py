"""Several LANs are one bus: what somebody beyond a gateway wants crosses it, and nothing else."""

from itertools import pairwise

from hubbub.events import SlowConsumer
from hubbub.limits import MS, PORT_SWEEP, SECOND
from hubbub.protocol.settings import Settings
from hubbub.simulation.gateways import Lans, SimulatedGateway
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage

_MEET_NS = 3 * SECOND  # Gateways agree, and interests have crossed all of them by then.


def _populate(lans: Lans) -> list[SimulatedNode]:
    """Open publishers and subscribers on some LANs, at least one of each, far from each other."""
    random, count = lans.stage.random, len(lans.networks)
    far, near = random.sample(range(count), 2)
    subscribing = [far, *(random.randrange(count) for _ in range(random.randint(0, 3)))]
    publishing = [near, *(random.randrange(count) for _ in range(random.randint(0, 2)))]
    for lan in subscribing:
        lans.node(lan).subscribe(random.choice(["/t/...", "/t/*", "/t/0"]))
    return [lans.node(lan) for lan in publishing]


def _talk(lans: Lans, publishers: list[SimulatedNode], *, messages: int = 300) -> None:
    """Let interests cross, then publish."""
    stage, random = lans.stage, lans.stage.random
    topics = [
        (node, node.publish_on(f"/t/{i}"))
        for node in publishers
        for i in range(random.randint(1, 2))
    ]
    stage.world.run_for(_MEET_NS)
    burst = random.choice([1, 1, 5, 20])
    size_bytes = random.choice([(1, 100), (1, 1200), (1, 4000)])
    for node, topic in topics:
        stage.feed(
            node, topic, count=messages // len(topics), pause_ns=(0, burst * MS),
            size_bytes=size_bytes, burst=burst,
        )  # fmt: skip


def _disturb(lans: Lans) -> None:
    random = lans.stage.random
    lans.faults(
        loss=random.choice([0, random.uniform(0, 0.1)]), duplicate=random.choice([0, 0.05]),
        reorder=random.choice([0, 0.05]),
    )  # fmt: skip


def _converse(lans: Lans) -> list[SimulatedNode]:
    """Let nodes talk over wires that lose, and check that all of it came; return who published."""
    publishers = _populate(lans)
    _disturb(lans)
    _talk(lans, publishers)
    lans.stage.play()
    lans.finish(5 * SECOND)
    lans.stage.check_first()
    return publishers


def _converse_as_gateways_die(
    lans: Lans, gateways: list[SimulatedGateway], messages: int, *, away_ms: list[int], rest_ns: int
) -> None:
    """Let nodes talk while gateways are killed and return, and again after a rest."""
    stage, random = lans.stage, lans.stage.random
    publishers = _populate(lans)
    _disturb(lans)
    stage.ledger.are_gaps_allowed = True
    _talk(lans, publishers, messages=messages)
    for _ in range(random.randint(1, 4)):
        stage.world.run_for(random.randint(20, 300) * MS)
        _restart_one(lans, gateways, away_ms)
    stage.play()
    stage.world.run_for(rest_ns)
    _speak(stage, publishers, 20)
    lans.finish(5 * SECOND)


def _restart_one(lans: Lans, gateways: list[SimulatedGateway], away_ms: list[int]) -> None:
    """Kill a gateway, and start it again after one of these times."""
    random = lans.stage.random
    place = random.randrange(len(gateways))
    gateways[place].crash()
    lans.stage.world.run_for(random.choice(away_ms) * MS)
    gateways[place] = gateways[place].restart()


@scenario
def gateway(stage: Stage) -> None:
    """Join two LANs that lose frames: all arrives beyond, once, in order, from its origin."""
    lans = Lans(stage, 2)
    lans.gateway(0, 1)
    _converse(lans)


@scenario
def gateway_chain(stage: Stage) -> None:
    """Cross up to seven gateways in a row: order, origin and every message are kept."""
    lans = Lans(stage, stage.random.randint(3, 8))
    for one, other in pairwise(range(len(lans.networks))):
        lans.gateway(one, other)
    _converse(lans)


@scenario
def gateway_tree(stage: Stage) -> None:
    """Draw a tree of LANs, with gateways of two ports and of many."""
    random = stage.random
    lans = Lans(stage, random.randint(3, 10))
    rest = list(range(1, len(lans.networks)))
    joined = [0]
    while rest:
        count = random.randint(1, min(4, len(rest)))
        ends, rest = rest[:count], rest[count:]
        lans.gateway(random.choice(joined), *ends)
        joined += ends
    _converse(lans)


@scenario
def gateway_interest(stage: Stage) -> None:
    """Let nobody beyond want anything, then somebody, then nobody: only then and that crosses."""
    world = stage.world
    lans = Lans(stage, 3)
    lans.gateway(0, 1)
    lans.gateway(1, 2)
    publisher, near, far = lans.node(0), lans.node(0), lans.node(2)
    wanted, other = publisher.publish_on("/t/0"), publisher.publish_on("/u/0")
    near.subscribe("/...")
    world.run_for(_MEET_NS)
    _speak(stage, [publisher], 50)
    _check_data(lans, 0, 0, "before anybody beyond wanted anything")
    far.subscribe("/t/*")
    world.run_for(_MEET_NS)
    world.check(wanted.receivers == 2, "the interest did not cross two gateways")
    world.check(other.receivers == 1, "an interest crossed that nobody has")
    _speak(stage, [publisher], 50)
    lans.stage.settle()
    counts = [network.counts["data"] for network in lans.networks]
    world.check(min(counts) > 0, f"nothing crossed: {counts}")
    far.unsubscribe("/t/*")
    world.run_for(_MEET_NS)
    world.check(wanted.receivers == 1, "the interest was not withdrawn")
    _speak(stage, [publisher], 50)
    _check_data(lans, counts[1], counts[2], "after nobody beyond wanted anything any more")
    lans.finish()


def _speak(stage: Stage, publishers: list[SimulatedNode], count: int) -> None:
    for node in publishers:
        for topic in node.topics:
            stage.feed(node, topic, count=count)
    stage.play()


def _check_data(lans: Lans, first: int, second: int, when: str) -> None:
    counts = [network.counts["data"] for network in lans.networks[1:]]
    lans.stage.world.check(counts == [first, second], f"{counts} frames of data crossed {when}")


@scenario
def gateway_slow(stage: Stage) -> None:
    """Have a LAN beyond that is far slower: publishers wait, and nothing is lost."""
    lans = Lans(stage, 2)
    small = Settings(backlog_bytes=256 << 10)
    lans.gateway(0, 1, host=stage.host(buffer_bytes=1 << 20, settings=small))
    host = stage.host(read_ns=stage.random.choice([20_000, 50_000]), buffer_bytes=1 << 20)
    lans.node(1, host).subscribe("/t/...")
    publisher = lans.node(0)
    topic = publisher.publish_on("/t/0")
    stage.world.run_for(_MEET_NS)
    stage.feed(publisher, topic, count=1000, pause_ns=(0, 0), size_bytes=(7000, 9000), burst=20)
    stage.play()
    lans.finish(10 * SECOND)
    stage.check_first()
    slow = [event for _, _, event in stage.ledger.events if isinstance(event, SlowConsumer)]
    stage.world.check(not slow, f"the gateway was left behind: {slow}")


@scenario
def gateway_urgent(stage: Stage) -> None:
    """Let bulk wait for a narrow LAN: what is urgent goes before it, and nothing is lost."""
    random, world = stage.random, stage.world
    lans = Lans(stage, 2)
    narrow = Settings(rate_limit_bits=2_000_000)
    lans.gateway(0, 1, host=stage.host(settings=narrow), urgent=("/alarm/*",))
    far = lans.node(1)
    far.subscribe("/...")
    bulk, siren = lans.node(0), lans.node(0)
    load, alarm = bulk.publish_on("/t/0"), siren.publish_on("/alarm/fire")
    world.run_for(_MEET_NS)
    lans.faults(loss=random.choice([0, 0.02]))
    stage.feed(bulk, load, count=150, pause_ns=(0, 0), size_bytes=(3000, 5000), burst=50)
    for _ in range(random.randint(2, 5)):
        stage.feed(siren, alarm, count=random.randint(1, 10), pause_ns=(0, 10 * MS))
        world.run_for(250 * MS)
        by_topic = {one.topic: one for one in stage.ledger.publications.values()}
        came = stage.ledger.reception(by_topic[alarm], far).next
        world.check(came == alarm.next_sequence, f"of {alarm.next_sequence - 1} alarms {came - 1}")
    world.check(not stage.ledger.is_complete, "the narrow LAN was none: nothing had to wait")
    stage.play()
    lans.finish(5 * SECOND)
    stage.check_first()


@scenario
def gateway_restarts(stage: Stage) -> None:
    """Kill and restart gateways of a chain: no duplicate, order kept, every hole is reported."""
    lans = Lans(stage, stage.random.randint(2, 4))
    gateways = [lans.gateway(*pair) for pair in pairwise(range(len(lans.networks)))]
    _converse_as_gateways_die(lans, gateways, 600, away_ms=[10, 100, 1000], rest_ns=_MEET_NS)


@scenario
def gateway_origins(stage: Stage) -> None:
    """Let origins come and go beyond a gateway: each is heard to its end, and then forgotten."""
    random, world = stage.random, stage.world
    lans = Lans(stage, 2)
    joined = lans.gateway(0, 1)
    far = lans.node(1)
    far.subscribe("/t/...")
    lans.faults(loss=random.uniform(0, 0.05))
    for _ in range(random.randint(2, 5)):
        node = lans.node(0)
        topic = node.publish_on("/t/0")
        world.run_for(_MEET_NS)
        stage.feed(node, topic, count=50)
        stage.play()
        stage.settle()
        node.close(SECOND)
        world.run_for(random.choice([10 * MS, 3 * SECOND]))
    lans.finish()
    is_forgotten = world.run_while(
        lambda: bool(joined.ports[1].passed), 4 * PORT_SWEEP, step_ns=100 * MS
    )
    world.check(is_forgotten, "topics of origins that are gone are passed on for ever")
    world.check(not joined.ports[1].core.state.topics, "they are still declared")


@scenario
def gateway_ring(stage: Stage) -> None:
    """Close a ring of LANs: each message comes once to each, and none goes round for ever."""
    lans = Lans(stage, stage.random.randint(3, 6))
    count = len(lans.networks)
    for lan in range(count):
        lans.gateway(lan, (lan + 1) % count)
    publishers = _converse(lans)
    for node in stage.ledger.nodes:
        for pattern in list(node.patterns):
            node.unsubscribe(pattern)
    stage.world.run_for(_MEET_NS)
    left = [topic.subject for node in publishers for topic in node.topics if topic.receivers]
    stage.world.check(not left, f"interests go in a circle: {left}")


@scenario
def gateway_parallel(stage: Stage) -> None:
    """Have two or three gateways between two LANs and kill them, but for one: nothing is lost."""
    random, world = stage.random, stage.world
    lans = Lans(stage, 2)
    gateways = [lans.gateway(0, 1) for _ in range(random.randint(2, 3))]
    publishers = _populate(lans)
    lans.faults(loss=random.choice([0, random.uniform(0, 0.05)]))
    _talk(lans, publishers, messages=1500)
    random.shuffle(gateways)
    for one in gateways[1:]:
        world.run_for(random.randint(20, 400) * MS)
        one.crash()
        world.run_for(3 * SECOND)
    stage.play()
    lans.finish(5 * SECOND)
    stage.check_first()


@scenario
def gateway_returns(stage: Stage) -> None:
    """Kill gateways of a ring and let each return: another takes over and back, nothing is lost."""
    random, world = stage.random, stage.world
    lans = Lans(stage, 3)
    lans.ledger.may_gateways_miss = True
    gateways = [lans.gateway(lan, (lan + 1) % 3) for lan in range(3)]
    publishers = _populate(lans)
    lans.faults(loss=random.choice([0, 0.05]))
    world.run_for(2 * SECOND)
    topics = [(node, node.publish_on("/t/0")) for node in publishers]
    world.run_for(_MEET_NS)
    for node, topic in topics:
        stage.feed(node, topic, count=300, pause_ns=(0, 60 * MS))
    for _ in range(random.randint(1, 2)):
        world.run_for(3 * SECOND)
        _restart_one(lans, gateways, [500, 2500])
    stage.play()
    lans.finish(5 * SECOND)
    stage.check_first()


@scenario
def gateway_maze(stage: Stage) -> None:
    """Draw LANs and gateways as they come, with rings, and let gateways die and return."""
    random = stage.random
    lans = Lans(stage, random.randint(3, 8))
    count = len(lans.networks)
    pairs = [(random.randrange(lan), lan) for lan in range(1, count)]
    pairs += [(random.randrange(lan), lan) for lan in random.choices(range(1, count), k=3)]
    gateways = [lans.gateway(*pair) for pair in pairs]
    _converse_as_gateways_die(lans, gateways, 1000, away_ms=[10, 500, 3000], rest_ns=4 * SECOND)
