"""Services: joins, leaves, crashes, loss, partitions, crowds, and the order of messages."""

from collections.abc import Iterable
from itertools import combinations

from hubbub.limits import COPIES, HOP_TIMEOUT, MS, SECOND
from hubbub.protocol.rendezvous.client import FIFO, TOTAL
from hubbub.protocol.rendezvous.listing import Line
from hubbub.protocol.rendezvous.profile import SEED
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import ANSWERS, NO_LOCAL, RETAIN, TAKEN, UNAVAILABLE, service_key

IN_FLIGHT_NS = 1 * SECOND
# Who was in vain asks again two timeouts after a death is known; from it to the manager to the
# subscriber is far less than the rest, and so are the steps in which it is looked who knows it.
BLACKOUT_MARGIN_NS = 3 * HOP_TIMEOUT


def gather(
    stage: Stage, count: int, services: int = 4, options: Options | None = None
) -> tuple[Town, list[str]]:
    """Open nodes that know each other, some of which subscribe to some services."""
    town = Town(stage, options)
    names = [f"service-{number}" for number in range(services)]
    for node in town.open_many(count):
        for name in names:
            if stage.random.random() < 0.5:
                node.subscribe(name)
    for name in names:
        if not town.subscribers(name):
            stage.random.choice(town.alive()).subscribe(name)
    town.settle(names)
    return town, names


def feed(town: Town, node: ServiceNode, name: str, count: int, pause_ns: int) -> list[bytes]:
    """Let a node publish for a while; return what it will have published."""
    sent: list[bytes] = []

    def publish() -> None:
        if node.is_alive and not node.is_leaving:
            sent.append(town.publish(node, name))
            if len(sent) < count:
                town.world.after(pause_ns, publish)

    publish()
    return sent


@scenario
def services_calm(stage: Stage) -> None:
    """Subscribe, publish and unsubscribe: each list is right, each message comes once."""
    random = stage.random
    town, names = gather(stage, random.randint(2, 30))
    for _ in range(random.randint(3, 12)):
        node, name = random.choice(town.alive()), random.choice(names)
        if name in node.wanted:
            node.unsubscribe(name)
        else:
            node.subscribe(name, flags=random.choice([0, 0, NO_LOCAL]))
        stage.world.run_for(random.randrange(200 * MS))
    town.settle(names, limit_ns=CALM_LIMIT_NS)
    for node in town.alive():
        for name in list(node.wanted):  # Who wants nothing of its own is told apart elsewhere.
            line = _line(town, node, name)
            if line is not None and line.flags & NO_LOCAL:
                node.unsubscribe(name)
    town.calm_down(names, limit_ns=CALM_LIMIT_NS)
    for name in names:
        for node in town.subscribers(name):
            node.unsubscribe(name)
    stage.world.run_for(2 * SECOND)
    fault = town.disagreement(names)
    stage.world.check(not fault, fault)
    publisher = random.choice(town.alive())
    town.publish(publisher, names[0])
    stage.world.run_for(2 * SECOND)
    last = publisher.settled[-1]
    stage.world.check(last.status == UNAVAILABLE, "nobody said that a service is unavailable")
    stage.world.run_for(70 * SECOND)
    left = [node for node in town.alive() if node.machine.manager.services]
    stage.world.check(not left, f"{left} remember services that ended (H4)")
    town.note_counts()


CALM_LIMIT_NS = 3 * SECOND


def _line(town: Town, node: ServiceNode, name: str) -> Line | None:
    manager = town.closest(name)
    service = manager.machine.manager.services.get(service_key(name))
    return None if service is None else service.listing.find(node.id)


@scenario
def services_join(stage: Stage) -> None:
    """Let closer nodes join while messages flow: none is lost, none comes twice (H7)."""
    random = stage.random
    town, names = gather(stage, random.randint(3, 12), 3)
    readers = {name: town.subscribers(name) for name in names}
    publishers = random.sample(town.alive(), 2)
    sent = {name: [feed(town, node, name, 200, 40 * MS) for node in publishers] for name in names}
    for _ in range(random.randint(2, 8)):
        stage.world.run_for(random.randrange(800 * MS))
        town.open()
    stage.world.run_for(8 * SECOND + IN_FLIGHT_NS)
    for name in names:
        for payloads in sent[name]:
            town.check_complete(payloads, readers[name])
    town.calm_down(names)
    town.note_counts()


@scenario
def services_leave(stage: Stage) -> None:
    """Let managers leave politely while messages flow: none is lost, none comes twice (H7)."""
    random = stage.random
    town, names = gather(stage, random.randint(5, 14), 3)
    publishers = random.sample(town.alive(), 2)
    sent = {name: [feed(town, node, name, 150, 40 * MS) for node in publishers] for name in names}
    for _ in range(random.randint(1, 3)):
        stage.world.run_for(random.randrange(300 * MS, 1500 * MS))
        leaver = town.closest(random.choice(names))
        if leaver not in publishers and len(town.alive()) > 3:
            leaver.close()
    stage.world.run_for(7 * SECOND + IN_FLIGHT_NS)
    for name in names:
        for payloads in sent[name]:
            town.check_complete(payloads, town.subscribers(name))
    town.calm_down(names)
    town.note_counts()


@scenario
def services_managers_crash(stage: Stage) -> None:
    """Kill the managers at once, and some that hold copies: subscribers stay served (H12)."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(8, 16), 3)
    victims = {town.closest(name) for name in names}
    victims.add(random.choice(town.alive()))
    for name in list(names):  # With both copies a list is gone, and subscribers must come again.
        copies = town.ranked(name)[: COPIES + 1]
        if victims.issuperset(copies):
            names.remove(name)
    publisher = next(node for node in town.alive() if node not in victims)
    readers = {
        name: [node for node in town.subscribers(name) if node not in victims] for name in names
    }
    sent = {name: feed(town, publisher, name, 240, 50 * MS) for name in names}
    world.run_for(2 * SECOND)
    for victim in victims:
        victim.crash()
    end_ns = world.now + 10 * SECOND + town.options.profile.detection_ns + IN_FLIGHT_NS
    noticed_ns = _notice(town, victims)
    world.run(end_ns)
    for name in names:
        town.check_complete(sent[name], readers[name])
        _check_blackout(town, readers[name], name, noticed_ns)
    town.calm_down(names)
    town.note_counts()


@scenario
def services_lists_lost(stage: Stage) -> None:
    """Kill a manager and all who have copies of its list: what is published waits, and comes."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(8, 16), 2)
    name = names[0]
    victims = town.ranked(name)[: COPIES + 1]
    others = [node for node in town.alive() if node not in victims]
    for node in random.sample(others, 2):
        if name not in node.wanted:
            node.subscribe(name)
    town.settle(names)
    world.run_for(2 * SECOND)
    for victim in victims:
        victim.crash()
    publisher = random.choice(others)
    sent = feed(town, publisher, name, 120, 50 * MS)
    end_ns = world.now + 6 * SECOND + town.options.profile.detection_ns + IN_FLIGHT_NS
    noticed_ns = _notice(town, victims)
    world.run(end_ns)
    readers = [node for node in others if name in node.wanted]
    town.check_complete(sent, readers)
    # Where no copy is left, all subscribe anew: at once, and not with the next renewal.
    gathering_ns = town.options.profile.stable_ns // 3
    _check_blackout(town, readers, name, noticed_ns + gathering_ns)
    town.calm_down(names)
    town.note_counts()


def _notice(town: Town, victims: Iterable[ServiceNode]) -> int:
    """Let time pass until everybody knows who has died; return when that was."""
    limit_ns = town.options.profile.detection_ns
    is_noticed = town.world.run_while(
        lambda: any(
            node.machine.view.is_present(victim.id) for node in town.alive() for victim in victims
        ),
        limit_ns, 10 * MS,
    )  # fmt: skip
    text = f"not everybody knows after {limit_ns / MS:.0f} ms who has died (H12)"
    town.world.check(is_noticed, text)
    return town.world.now


def _check_blackout(town: Town, nodes: list[ServiceNode], name: str, noticed_ns: int) -> None:
    """Check that whatever was published came at once, or once all knew who has died."""
    for node in nodes:
        for heard_ns, delivered in node.heard[name]:
            published_ns, _ = town.published[delivered.payload]
            late_ns = heard_ns - max(published_ns, noticed_ns)
            text = f"{node} had {delivered.payload!r} {late_ns / MS:.0f} ms after it could (H12)"
            town.world.check(late_ns <= BLACKOUT_MARGIN_NS, text)


@scenario
def services_churn(stage: Stage) -> None:
    """Let three in ten nodes come, go and die while messages flow: afterwards all is right."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(10, 24))
    stage.faults(loss=random.choice([0, 0, 0.02]), reorder=random.choice([0, 0.05]))
    _churn(stage, town, names)
    stage.heal()
    town.calm_down(names)
    world.run_for(1 * SECOND)
    town.note_counts()


def _churn(stage: Stage, town: Town, names: list[str]) -> None:
    random, world = stage.random, stage.world
    changes = max(3, len(town.alive()) * 3 // 10)
    for _ in range(changes):
        action = random.choice(["crash", "leave", "join", "restart", "change", "stop"])
        node = random.choice(town.alive())
        if action == "join" or len(town.alive()) < 5:
            town.open().subscribe(random.choice(names))
        elif action == "crash":
            node.crash()
        elif action == "leave":
            node.close()
        elif action == "restart":
            node.crash()
            world.run_for(random.randrange(500 * MS))
            town.open(node.index).subscribe(random.choice(names))
        elif action == "stop":
            node.stop_for(random.randrange(50 * MS, 4000 * MS))
        else:
            node.toggle(random.choice(names))
        for name in names:
            town.publish(random.choice(town.alive()), name)
        world.run_for(random.randrange(1500 * MS))
    world.run_for(4 * SECOND)  # By then everybody who was stopped runs again.


@scenario
def services_crowd(stage: Stage) -> None:
    """Let three in ten of a hundred nodes come, go and die."""
    random = stage.random
    town, names = gather(stage, random.randint(50, 100), 6)
    _churn(stage, town, names)
    town.settle(names)
    town.check_calm(names[:2])
    town.note_counts()


@scenario
def services_loss(stage: Stage) -> None:
    """Lose, repeat and shuffle frames: every request has an end, no message comes twice (H9)."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(3, 10), 3)
    stage.faults(
        loss=random.choice([0.01, 0.05, 0.1]), duplicate=random.choice([0, 0.1]),
        reorder=random.choice([0, 0.2]), reorder_ns=20 * MS,
    )  # fmt: skip
    publishers = random.sample(town.alive(), 2)
    sent = {name: [feed(town, node, name, 60, 50 * MS) for node in publishers] for name in names}
    world.run_for(5 * SECOND)
    stage.heal()
    world.run_for(12 * SECOND)
    for node in publishers:
        asked = sum(len(one) for some in sent.values() for one in some[:1])
        world.check(len(node.settled) >= asked, f"{node}: no end of a request (H9)")
        world.check(node.machine.client.is_settled, f"{node}: requests without end (H9)")
        world.check(all(one.status == TAKEN for one in node.settled), f"{node}: given up (H9)")
    town.calm_down(names)
    town.note_counts()


@scenario
def services_partition(stage: Stage) -> None:
    """Part the network: each side works alone, and together again they agree (H15)."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(6, 16), 3)
    nodes = town.alive()
    random.shuffle(nodes)
    cut = random.randint(2, len(nodes) - 2)
    sides = nodes[:cut], nodes[cut:]
    stage.network.block([one.index for one in sides[0]], [one.index for one in sides[1]])
    for side in sides:
        town.settle(names, side, promise=" (H15)")
    for side in sides:
        town.check_calm(names, side)
    for side in sides:
        name = random.choice(names)
        node = random.choice(side)
        node.toggle(name)
    world.run_for(random.randrange(2 * SECOND))
    stage.network.unblock()
    town.settle(names, promise=" (H15)")
    town.check_calm(names)
    town.note_counts()


@scenario
def services_restart(stage: Stage) -> None:
    """Start managers again under the same id at once: they ask for their lists first."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(4, 12), 3)
    for _ in range(random.randint(1, 3)):
        manager = town.closest(random.choice(names))
        wanted = list(manager.wanted)
        manager.crash()
        world.run_for(random.randrange(300 * MS))
        again = town.open(manager.index)
        for name in wanted:
            again.subscribe(name)
        world.run_for(random.randrange(3 * SECOND))
    town.calm_down(names)
    town.note_counts()


@scenario
def services_flapping(stage: Stage) -> None:
    """Let a node that is closest come and go each second: it is not handed the service."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(4, 8), 1)
    name = names[0]
    steady = town.closest(name)
    index = steady.index + 1000
    while town.closest(name) is steady:
        probe = town.open(index, seeds=[steady.address])
        if town.closest(name) is not probe:
            index += 1
        probe.crash()
        if town.closest(name, [*town.alive(), probe]) is probe:
            break
    for _ in range(6):
        flapper = town.open(index)
        world.run_for(random.randrange(300 * MS, 1200 * MS))
        town.publish(random.choice(town.alive()), name)
        key = service_key(name)
        service = flapper.machine.manager.services.get(key)
        is_manager = service is not None and service.is_served
        flapper.crash()
        world.check(not is_manager, "a node that was there for a second was handed a service")
        world.run_for(random.randrange(300 * MS))
    town.calm_down(names)
    town.note_counts()


@scenario
def services_tree(stage: Stage) -> None:
    """Serve more subscribers than one node does, and let some of those die who pass on."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(40, 120), "news")
    town.check_calm(["news"])
    manager = town.closest("news")
    others = [node for node in nodes if node is not manager]
    for victim in random.sample(others, 3):
        victim.crash()
    publisher = random.choice(town.alive())
    sent = feed(town, publisher, "news", 30, 100 * MS)
    world.run_for(10 * SECOND)
    town.check_complete(sent, town.subscribers("news"))
    town.settle(["news"])
    town.note_counts()


@scenario
def services_order(stage: Stage) -> None:
    """Ask for order while frames are lost and managers change: nobody sees another (H8)."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(4, 9))
    for place, node in enumerate(nodes):
        node.subscribe("news", order=(FIFO, TOTAL)[place % 2])
    town.settle(["news"])
    stage.faults(loss=random.choice([0, 0.05]), reorder=random.choice([0, 0.3]))
    sent = [feed(town, node, "news", 60, 30 * MS) for node in random.sample(nodes, 3)]
    for _ in range(random.randint(0, 3)):
        world.run_for(random.randrange(600 * MS))
        town.open()
    world.run_for(3 * SECOND)
    stage.heal()
    world.run_for(8 * SECOND)
    for payloads in sent:
        town.check_complete(payloads, nodes)
    town.check_fifo("news", nodes[::2])
    check_total(town, nodes[1::2])
    town.note_counts()


def check_total(town: Town, nodes: list[ServiceNode]) -> None:
    """Check that any two had what both of them had in the same order (H8)."""
    orders = {node: [one.payload for _, one in node.heard["news"]] for node in nodes}
    for one, other in combinations(nodes, 2):
        both = set(orders[one]) & set(orders[other])
        first, second = ([had for had in orders[node] if had in both] for node in (one, other))
        town.world.check(first == second, f"{other}: another order than {one}, in total (H8)")


@scenario
def services_kept(stage: Stage) -> None:
    """Keep the last value: who comes later gets it first, also from the next manager."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(4, 10), 1)
    name = names[0]
    publisher = random.choice(town.alive())
    for _ in range(random.randint(1, 3)):
        last = town.publish(publisher, name, flags=RETAIN)
        world.run_for(200 * MS)
    manager = town.closest(name)
    if manager is not publisher and random.random() < 0.7:
        (manager.crash if random.random() < 0.5 else manager.close)()
    town.settle(names)
    late = town.open()
    late.subscribe(name)
    world.run_for(6 * SECOND)
    had = [heard.delivered.payload for heard in late.heard[name]]
    world.check(had == [last], f"who came late had {had}, not {last!r}")
    town.note_counts()


@scenario
def services_anycast(stage: Stage) -> None:
    """Ask any one member: one does it, though frames are late, lost or doubled, or others died."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(4, 10))
    members = random.sample(nodes, 3)
    for node in members:
        node.subscribe("sums", flags=ANSWERS)
        node.answer = lambda payload: payload.upper()
    town.settle(["sums"])
    asker = random.choice([node for node in nodes if node not in members])
    # Later than who sends it waits for an answer; no loss by which a member would be given up.
    fault, much = random.choice([("delay_ns", 60 * MS), ("duplicate", 0.2), ("loss", 0.02)])
    stage.faults(**{fault: much})
    asked = _ask_any(town, asker, 8)
    stage.faults()
    for payload in asked:
        done = sum(town.count(node, "sums", payload) for node in members)
        world.check(done == 1, f"{payload!r} was done by {done} members, not by one (H6)")
    for victim in random.sample(members, 2):
        victim.crash()
    _ask_any(town, asker, 4)
    next(node for node in members if node.is_alive).unsubscribe("sums")
    world.run_for(1 * SECOND)
    asker.request_any("sums", b"anybody?")
    world.run_for(2 * SECOND)
    world.check(asker.settled[-1].status == UNAVAILABLE, "nobody said that nobody answers")


def _ask_any(town: Town, asker: ServiceNode, count: int) -> list[bytes]:
    """Ask any one member some times, and see that each has an answer; return what was asked."""
    asker.settled.clear()
    asked = [b"at %d ask %d" % (town.world.now, number) for number in range(count)]
    for payload in asked:
        asker.request_any("sums", payload)
        town.world.run_for(town.stage.random.randrange(500 * MS))
    town.world.run_for(8 * SECOND)
    replies = [one.payload for one in asker.settled if one.status == TAKEN]
    expected = [payload.upper() for payload in asked]
    text = f"answers {replies}, not {expected}"
    town.world.check(sorted(filter(None, replies)) == expected, text)
    return asked


@scenario
def services_seed_times(stage: Stage) -> None:
    """Keep the times of the first version: a list each 10 s, dead after a minute."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(3, 8), 2, Options(profile=SEED))
    victim = town.closest(names[0])
    witness = next(node for node in town.alive() if node is not victim)
    victim.crash()
    killed_ns = world.now
    world.run_for(1 * SECOND)  # What it sent last has come.
    views = [node.machine.view for node in town.alive()]
    heard_ns = min(view.members[victim.id].heard_ns for view in views)
    world.run_while(
        lambda: witness.machine.view.is_present(victim.id), 2 * SEED.detection_ns, 100 * MS
    )
    took_s, silent_s = (world.now - killed_ns) / SECOND, (world.now - heard_ns) / SECOND
    world.check(50 <= took_s <= 63, f"dead after {took_s:.1f} s, not after about a minute")
    world.check(60 <= silent_s <= 63, f"dead after {silent_s:.1f} s of silence, not after 60")
    town.calm_down(names)
    town.note_counts()
