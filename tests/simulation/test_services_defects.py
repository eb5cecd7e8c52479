"""Defects of services that need a whole town to be seen, one test each."""

from hubbub.limits import DEAD_KEPT, DIRECT_FAN_OUT, MS, SECOND
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.header import ANSWER, KIND_OFFSET, SERVICE
from hubbub.wire.services import RETAIN

NAME = "news"


def open_between(town: Town, count: int, closer: ServiceNode | None) -> list[ServiceNode]:
    """Open nodes that stand right behind one in the order of the service; None: before all."""
    made: list[ServiceNode] = []
    rank = 0 if closer is None else 1
    first = town.ranked(NAME)[rank]
    index = 9000
    while len(made) < count:
        index += 1
        node = town.open(index)
        among = [first, node] if closer is None else [closer, first, node]
        if town.ranked(NAME, among)[rank] is node:
            made.append(node)
        else:
            node.crash()
    return made


def lose_the_list(town: Town, publisher: ServiceNode) -> list[bytes]:
    """Kill the manager and who has copies at once, and go on publishing; return what was."""
    for node in town.ranked(NAME)[:3]:
        node.crash()
    sent = []
    for _ in range(200):
        sent.append(town.publish(publisher, NAME))
        town.stage.world.run_for(25 * MS)
    town.stage.world.run_for(15 * SECOND)
    return sent


def count_lost(town: Town, node: ServiceNode, sent: list[bytes]) -> int:
    """Return how many messages a node never had."""
    return sum(not town.count(node, NAME, payload) for payload in sent)


def test_list_of_a_forwarder_is_gathered_before_it_is_served_when_all_newer_ones_died() -> None:
    stage = Stage(4)
    town = Town(stage)
    nodes = town.open_many(7)
    first = town.closest(NAME)
    old, new, publisher = [node for node in nodes if node is not first][:3]
    old.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(3 * SECOND)
    open_between(town, 3, None)
    stage.world.run_for(4 * SECOND)
    new.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(8 * SECOND)
    sent = lose_the_list(town, publisher)
    assert town.managers(NAME) == [first]
    assert [count_lost(town, node, sent) for node in (old, new)] == [0, 0]


def test_copy_that_was_displaced_is_gathered_before_it_is_served() -> None:
    stage = Stage(0)
    town = Town(stage)
    town.open_many(7)
    manager, _, _, old, new, publisher, _ = town.ranked(NAME)
    old.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(3 * SECOND)
    open_between(town, 2, manager)
    stage.world.run_for(6 * SECOND)
    new.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(5 * SECOND)
    sent = lose_the_list(town, publisher)
    assert [count_lost(town, node, sent) for node in (old, new)] == [0, 0]


def test_who_unsubscribed_does_not_come_back_by_the_list_of_a_forwarder() -> None:
    stage = Stage(1)
    town = Town(stage)
    nodes = town.open_many(6)
    first = town.closest(NAME)
    gone, other = [node for node in nodes if node is not first][:2]
    for node in (gone, other):
        node.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(3 * SECOND)
    open_between(town, 3, None)
    stage.world.run_for(4 * SECOND)
    gone.unsubscribe(NAME)
    stage.world.run_for(38 * SECOND)
    for node in town.ranked(NAME)[:3]:
        node.crash()
    stage.world.run_for(6 * SECOND)
    assert town.managers(NAME) == [first]
    assert not town.disagreement([NAME])


def test_who_forgot_a_service_is_still_sent_what_it_wants_everywhere() -> None:
    stage = Stage(1)
    town = Town(stage)
    manager, node, publisher = sorted(town.open_many(3), key=town.ranked(NAME).index)
    names = (f"s{number}" for number in range(100))
    other = next(name for name in names if town.closest(name) is manager)
    node.want_everywhere(["/*/temp"])
    node.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(SECOND)
    publisher.publish(NAME, b"on its way")
    stage.world.run_for(30_000)
    node.unsubscribe(NAME)
    for number in range(20):
        publisher.publish(other, b"%d" % number, subject="/a/temp")
        stage.world.run_for(100 * MS)
    heard = [one.delivered.payload for some in node.heard.values() for one in some]
    assert [payload for payload in heard if payload != b"on its way"] == [
        b"%d" % number for number in range(20)
    ]


def test_value_that_came_at_the_second_try_does_not_displace_the_newer_one() -> None:
    stage = Stage(1)
    town = Town(stage)
    manager, publisher, subscriber, late = sorted(town.open_many(4), key=town.ranked(NAME).index)
    subscriber.subscribe(NAME)
    town.settle([NAME])
    lost: list[bytes] = []

    def lose_first(source: object, target: object, frame: bytes) -> bool:
        is_value = source is publisher and target is manager and frame[KIND_OFFSET] == SERVICE
        if is_value and not lost:
            lost.append(frame)
            return True
        return False

    stage.network.drop = lose_first
    for payload in (b"old", b"new"):
        publisher.publish(NAME, payload, flags=RETAIN)
    stage.world.run_for(2 * SECOND)
    late.subscribe(NAME)
    stage.world.run_for(2 * SECOND)
    assert lost and [one.delivered.payload for one in late.heard[NAME]] == [b"new"]


def test_subscriber_whose_clock_was_set_back_stays_on_a_list_that_is_handed_over() -> None:
    stage = Stage(2)
    town = Town(stage)
    town.open_many(5)
    *_, node, publisher = town.ranked(NAME)
    node.machine.seat.wall_offset_ns -= 60 * SECOND
    node.subscribe(NAME)
    town.settle([NAME])
    stage.world.run_for(2 * SECOND)
    (closest,) = open_between(town, 1, None)
    sent = []
    for _ in range(100):
        sent.append(town.publish(publisher, NAME))
        stage.world.run_for(50 * MS)
    stage.world.run_for(5 * SECOND)
    assert town.managers(NAME) == [closest]
    assert not count_lost(town, node, sent)


def test_message_comes_once_though_its_subject_is_wanted_by_another_pattern_meanwhile() -> None:
    stage = Stage(1)
    town = Town(stage)
    manager, node, publisher = sorted(town.open_many(3), key=town.ranked(NAME).index)
    node.want_everywhere(["/*/temp"])
    stage.world.run_for(SECOND)
    for number, pattern in enumerate(["/news/temp", ""]):
        stage.network.drop = lambda source, target, frame: (
            source is node and target is manager and frame[KIND_OFFSET] == ANSWER
        )
        publisher.publish(NAME, b"%d" % number, subject="/news/temp")
        stage.world.run_for(50 * MS)
        stage.network.drop = None
        if pattern:
            node.subscribe(NAME, order="fifo", patterns=[pattern])
        else:
            node.unsubscribe(NAME)
        stage.world.run_for(5 * SECOND)
    heard = [one.delivered.payload for some in node.heard.values() for one in some]
    assert heard == [b"0", b"1"]


def test_what_waits_for_its_turn_is_handed_out_when_another_order_is_asked_for() -> None:
    stage = Stage(1)
    town = Town(stage)
    manager, node, publisher = sorted(town.open_many(3), key=town.ranked(NAME).index)
    node.subscribe(NAME, order="fifo")
    town.settle([NAME])
    publisher.publish(NAME, b"1")
    stage.world.run_for(SECOND)
    lost: list[bytes] = []

    def lose_first(source: object, target: object, frame: bytes) -> bool:
        is_message = source is manager and target is node and frame[KIND_OFFSET] == SERVICE
        if is_message and not lost:
            lost.append(frame)
            return True
        return False

    stage.network.drop = lose_first
    for payload in (b"2", b"3"):
        publisher.publish(NAME, payload)
        stage.world.run_for(MS)
    stage.world.run_for(30 * MS)
    node.subscribe(NAME)
    stage.world.run_for(5 * SECOND)
    assert lost and sorted(one.delivered.payload for one in node.heard[NAME]) == [b"1", b"2", b"3"]


def test_guest_is_sent_what_others_get_by_a_tree() -> None:
    stage = Stage(1)
    town = Town(stage)
    nodes = town.open_subscribed(DIRECT_FAN_OUT + 5, NAME)
    guest = town.open(options=Options(is_guest=True))
    guest.subscribe(NAME)
    stage.world.run_for(5 * SECOND)
    sent = [town.publish(nodes[0], NAME) for _ in range(10)]
    stage.world.run_for(5 * SECOND)
    assert not count_lost(town, guest, sent)


def test_guest_that_stays_is_not_struck_off_when_those_who_left_are_forgotten() -> None:
    stage = Stage(1)
    town = Town(stage)
    manager, publisher, _ = sorted(town.open_many(3), key=town.ranked(NAME).index)
    guest = town.open(options=Options(is_guest=True))
    stage.world.run_for(3 * SECOND)
    guest.subscribe(NAME)
    stage.world.run_for(DEAD_KEPT)
    assert guest.id in town.listed(manager, NAME)
    sent = []
    for _ in range(30):
        sent.append(town.publish(publisher, NAME))
        stage.world.run_for(SECOND)
    assert not count_lost(town, guest, sent)
