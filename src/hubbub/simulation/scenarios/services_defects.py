"""What went wrong in the systems that services were first built in, each a race to be survived."""

from collections.abc import Callable
from functools import partial
from unicodedata import normalize

import msgspec

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.scenarios.services import feed, gather
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage

_NAME = "news"
_SEEN_AGAIN = FAST.stable_ns + 1 * SECOND  # Who was lost from sight counts as a newcomer does.
# Each can be typed in more than one way: with accents apart, or as signs of their own.
_TYPED = ["Zürich/Größe", "\u212bngström", "\u2126 und Ω", "한국어", "été à Noël"]


def _open_closer(town: Town, than: ServiceNode) -> ServiceNode:
    """Open a node that is closer to the service than another."""
    index = 9000
    while True:
        index += 1
        node = town.open(index, seeds=[than.address])
        if town.closest(_NAME) is node:
            return node
        node.crash()


def _lose(node: ServiceNode, lost: ServiceNode) -> None:
    """Let a node lose sight of another, which has done nothing."""
    view = node.machine.view
    view.forget(lost.id)
    view.version += 1


def _find(node: ServiceNode, found: ServiceNode) -> None:
    """Let a node find another before others do, and count on it at once."""
    host, port = found.address
    own = msgspec.structs.replace(found.machine.swim.own_record(), host=host, port=port)
    node.machine.swim.hear_of(node.world.now, own)
    view = node.machine.view
    member = view.members[found.id]
    if member.is_present:
        member.is_settled = True
        view._settled.add(member.number)
        view.version += 1


def _mourn(node: ServiceNode, dead: ServiceNode) -> None:
    """Let a node hear before others do that another is gone."""
    node.machine.swim.note_leaving(node.world.now, dead.id)


def _happen_in_any_order(town: Town, events: list[Callable[[], None]]) -> None:
    """Let all of this happen, at once or one after the other."""
    random = town.stage.random
    random.shuffle(events)
    for event in events:
        event()
        town.world.run_for(random.choice([0, random.randrange(80 * MS)]))


@scenario
def defect_subscription_lost_for_ever(stage: Stage) -> None:
    """Subscribe with the next manager before that knows of the death of the last."""
    random = stage.random
    town = Town(stage)
    nodes = town.open_many(random.randint(4, 8))
    random.choice(nodes).subscribe(_NAME)
    town.settle([_NAME])
    manager = town.closest(_NAME)
    others = [node for node in nodes if node is not manager]
    manager.crash()
    events: list[Callable[[], None]] = []
    for node in random.sample(others, random.randint(2, len(others))):
        events.append(partial(node.subscribe, _NAME))
        if random.random() < 0.6:  # These know soon, the others do not.
            events.append(partial(_mourn, node, manager))
    _happen_in_any_order(town, events)
    town.calm_down([_NAME])


@scenario
def defect_hole_at_hand_over(stage: Stage) -> None:
    """Publish by everybody, all the time, while a closer node takes over."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(4, 8), _NAME)
    sent = [feed(town, node, _NAME, 300, 15 * MS) for node in nodes[:3]]
    world.run_for(random.randrange(500 * MS))
    newcomer = _open_closer(town, town.closest(_NAME))
    world.run_for(6 * SECOND)
    world.check(town.managers(_NAME) == [newcomer], "the closer node did not take over (H1)")
    for payloads in sent:
        town.check_complete(payloads, nodes)


@scenario
def defect_two_half_lists(stage: Stage) -> None:
    """Let many of the nodes not know who is closest: there is one list all the same."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_many(random.randint(6, 12))
    closest = town.closest(_NAME)
    others = [node for node in nodes if node is not closest]
    events: list[Callable[[], None]] = [partial(node.subscribe, _NAME) for node in others]
    events += [partial(_lose, node, closest) for node in others if random.random() < 0.6]
    events += [partial(_find, node, closest) for node in others if random.random() < 0.2]
    _happen_in_any_order(town, events)
    world.run_for(_SEEN_AGAIN)
    payload = town.publish(random.choice(others), _NAME)
    world.run_for(2 * SECOND)
    town.check_complete([payload], others)
    town.calm_down([_NAME])


@scenario
def defect_requests_out_of_order(stage: Stage) -> None:
    """Shuffle subscriptions and their ends: the last word of each node counts."""
    random, world = stage.random, stage.world
    town, names = gather(stage, random.randint(3, 8), 2)
    stage.faults(reorder=0.8, reorder_ns=300 * MS, duplicate=0.3, loss=0.05)
    for _ in range(20):
        node, name = random.choice(town.alive()), random.choice(names)
        node.toggle(name)
        world.run_for(random.randrange(60 * MS))
    stage.heal()
    town.calm_down(names)


@scenario
def defect_ids_compared_in_part(stage: Stage) -> None:
    """Give nodes ids that differ in the last byte alone, and let all but one go at once."""
    random, world = stage.random, stage.world
    town = Town(stage)
    start = random.randbytes(11)
    town.id_of = lambda index: start + bytes([index & 255])  # type: ignore[method-assign]
    nodes = town.open_subscribed(random.randint(4, 9), _NAME)
    last = random.choice(nodes)
    for node in nodes:
        if node is not last:
            node.unsubscribe(_NAME)
    world.run_for(1 * SECOND)
    fault = town.disagreement([_NAME])
    world.check(not fault, fault)
    town.check_calm([_NAME])


@scenario
def defect_end_sent_to_the_wrong_manager(stage: Stage) -> None:
    """End a subscription while the subscriber takes another for the manager."""
    random, world = stage.random, stage.world
    town = Town(stage)
    nodes = town.open_subscribed(random.randint(4, 8), _NAME)
    manager = town.closest(_NAME)
    newcomer = _open_closer(town, manager)
    world.run_for(random.randrange(2500 * MS))
    leavers = random.sample(nodes, 2)
    events: list[Callable[[], None]] = [partial(node.unsubscribe, _NAME) for node in leavers]
    for node in nodes:  # Some take the newcomer for the manager already, some know nothing of it.
        happen = random.choice([_find, _lose, None])
        if happen is not None:
            events.append(partial(happen, node, newcomer))
    _happen_in_any_order(town, events)
    world.run_for(_SEEN_AGAIN)
    for node in town.managers(_NAME):
        left = town.listed(node, _NAME) & {leaver.id for leaver in leavers}
        world.check(not left, f"{node} still lists {len(left)} who have left (H3)")
    town.calm_down([_NAME])


@scenario
def defect_names_in_other_charsets(stage: Stage) -> None:
    """Type one name in several ways: all meet at one manager, whichever way they typed it."""
    random, world = stage.random, stage.world
    typed = random.choice(_TYPED)
    name, forms = normalize("NFC", typed), [typed, normalize("NFC", typed), normalize("NFD", typed)]
    town = Town(stage)
    nodes = town.open_many(random.randint(4, 9))
    for node in nodes:
        node.subscribe(random.choice(forms))
        node.wanted |= dict.fromkeys(forms, world.now)
    town.settle([name])
    sent = [town.publish(random.choice(nodes), form) for form in forms]
    world.run_for(1 * SECOND)
    town.check_complete(sent, nodes)
    leaver, gone = random.sample(nodes, 2)
    leaver.unsubscribe(random.choice(forms))
    leaver.wanted.clear()
    gone.close()
    town.settle([name])
    last = town.publish(leaver, random.choice(forms))
    world.run_for(1 * SECOND)
    town.check_complete([last], [node for node in nodes if node not in (leaver, gone)])
