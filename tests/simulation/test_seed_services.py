"""Every demand of the first version's list of requirements, one test each, on simulated nodes."""

from collections import defaultdict
from itertools import pairwise

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.profile import FAST, SEED
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.network import Station
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.header import HEADER_BYTES, MEMBERS, SERVICE
from hubbub.wire.services import (
    CHANGE_SERVICE_MANAGER,
    INFO,
    KEY_BYTES,
    PING,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    TYPE_NAMES,
    UNAVAILABLE,
    UNSUBSCRIBE_SERVICE,
    Request,
    decode_members,
    decode_request,
    distance,
    node_key,
    service_key,
    split_ids,
)

NAME = "hype-news"
KEY = service_key(NAME)
Sent = list[tuple[ServiceNode, ServiceNode | None, Request]]


# Clients whose keys were published with the first version, in full as SHA-1 has them.
PUBLISHED_KEYS = {
    "85a9d4c4ded287750fc0ed32": "05eb637cbd3f33691d743c2a39afeeda5ec945ad",
    "e779346c669c17f434c8ce0e": "e49aa7792cf4fd096c103f4ba463e27b91609e6b",
    "101112010203040506070809": "442001f964d9fe349a5f308ab141150e055be546",
    "66d8f2206a56dbe991233bc2": "f6cb6d9db098919b2d39551141c5cbe767b506d6",
}


@pytest.fixture(params=[FAST, SEED], ids=lambda profile: profile.name)
def town(request: pytest.FixtureRequest) -> Town:
    """Return six clients that have known each other for a while, by our times and by the seed's."""
    made = Town(Stage(5), Options(profile=request.param))
    made.open_many(6)
    made.world.run_for(made.options.profile.stable_ns)
    return made


def overhear(town: Town) -> Sent:
    """Write down every message of a service from now on: sender, receiver, message."""
    sent: Sent = []
    watch = town.watch.sent

    def note(node: ServiceNode, place: tuple[object, ...], frame: bytes) -> None:
        watch(node, place, frame)
        if frame[3] == SERVICE:
            request = decode_request(frame[HEADER_BYTES:])
            assert request is not None
            target = next((one for one in town.nodes if one.address == place), None)
            sent.append((node, target, request))

    town.watch.sent = note  # type: ignore[method-assign]
    return sent


def others(town: Town, count: int) -> list[ServiceNode]:
    """Return nodes that do not manage the service."""
    return [node for node in town.alive() if node is not town.closest(NAME)][:count]


def let_others_subscribe(town: Town) -> list[ServiceNode]:
    """Let three nodes subscribe that do not manage the service."""
    readers = others(town, 3)
    for node in readers:
        node.subscribe(NAME)
    pass_time(town)
    return readers


def pass_time(town: Town, seconds: float = 1) -> None:
    town.world.run_for(int(seconds * SECOND))


def let_newcomer_count(town: Town) -> None:
    """Let time pass until a newcomer was handed what it is closest to."""
    town.world.run_for(2 * town.options.profile.stable_ns)


def let_death_be_noticed(town: Town) -> None:
    """Let time pass until all know who has died, and have done what follows."""
    town.world.run_for(town.options.profile.detection_ns + 3 * SECOND)


def of_type(sent: Sent, type: int) -> Sent:
    return [one for one in sent if one[2].message.type == type]


def test_client_has_a_key_of_160_bits_the_sha_1_of_its_id(town: Town) -> None:
    for node, key in PUBLISHED_KEYS.items():
        assert node_key(bytes.fromhex(node)).hex() == key
    assert 8 * KEY_BYTES == 160 == 8 * len(node_key(town.nodes[0].id))


def test_service_has_a_key_of_160_bits_the_sha_1_of_its_name(town: Town) -> None:
    # The first two messages of FIPS 180, and what their digests are there.
    assert service_key("abc").hex() == "a9993e364706816aba3e25717850c26c9cd0d89d"
    longer = service_key("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
    assert longer.hex() == "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
    town.nodes[0].subscribe("abc")
    assert [one.hex() for one in town.nodes[0].machine.client.subscribed] == [
        "a9993e364706816aba3e25717850c26c9cd0d89d"
    ]


def test_manager_keeps_subscriptions_and_hands_messages_to_subscribers(town: Town) -> None:
    readers = let_others_subscribe(town)
    assert town.listed(town.closest(NAME), NAME) == {node.id for node in readers}
    payload = town.publish(readers[0], NAME)
    pass_time(town)
    assert [town.count(node, NAME, payload) for node in readers] == [1, 1, 1]


def test_every_client_can_be_the_manager_of_a_service(town: Town) -> None:
    names = [f"service {number}" for number in range(60)]
    for name in names:
        town.nodes[0].subscribe(name)
    pass_time(town)
    managing = {node for name in names for node in town.managers(name)}
    assert managing == set(town.nodes)


def test_any_client_can_create_and_subscribe_a_service(town: Town) -> None:
    for place, node in enumerate(town.nodes):
        node.subscribe(f"service {place}")
    pass_time(town)
    for place, node in enumerate(town.nodes):
        (manager,) = town.managers(f"service {place}")
        assert town.listed(manager, f"service {place}") == {node.id}


def test_list_of_subscribed_services_has_key_name_and_manager(town: Town) -> None:
    node = others(town, 1)[0]
    node.subscribe(NAME)
    pass_time(town)
    (one,) = node.machine.client.subscribed.values()
    assert (one.key, one.name, one.manager) == (KEY, NAME, town.closest(NAME).id)


def test_list_of_managed_services_has_key_and_subscribers(town: Town) -> None:
    readers = others(town, 2)
    for node in readers:
        node.subscribe(NAME)
    pass_time(town)
    service = town.closest(NAME).machine.manager.services[KEY]
    assert service.key == KEY
    assert {line.node for line in service.listing} == {node.id for node in readers}


def test_manager_is_the_client_with_the_closest_key(town: Town) -> None:
    town.nodes[0].subscribe(NAME)
    pass_time(town)
    (manager,) = town.managers(NAME)
    distances = {node: distance(node_key(node.id), KEY) for node in town.nodes}
    assert distances[manager] == min(distances.values())


def test_distance_is_the_xor_read_as_a_number() -> None:
    assert distance(b"\x0f" * 20, b"\xf0" * 20) == 2**160 - 1
    assert distance(KEY, KEY) == 0


def test_any_client_can_publish_without_a_subscription(town: Town) -> None:
    reader, publisher = others(town, 2)
    reader.subscribe(NAME)
    pass_time(town)
    payload = town.publish(publisher, NAME)
    pass_time(town)
    assert town.count(reader, NAME, payload) == 1
    assert not publisher.machine.client.subscribed


def test_published_message_goes_to_the_manager(town: Town) -> None:
    reader, publisher = others(town, 2)
    reader.subscribe(NAME)
    pass_time(town)
    sent = overhear(town)
    town.publish(publisher, NAME)
    pass_time(town)
    assert [(one, to) for one, to, _ in of_type(sent, PUBLISH)] == [(publisher, town.closest(NAME))]


def test_client_finds_the_manager_among_the_clients_it_knows(town: Town) -> None:
    for node in town.nodes:
        assert node.machine.view.closest(KEY) == town.closest(NAME).id


def test_there_are_5_types_of_messages() -> None:
    assert list(TYPE_NAMES.values()) == [
        "SUBSCRIBE_SERVICE", "UNSUBSCRIBE_SERVICE", "PUBLISH", "INFO", "CHANGE_SERVICE_MANAGER",
    ]  # fmt: skip


def test_subscribe_adds_the_originator_and_creates_the_service(town: Town) -> None:
    manager = town.closest(NAME)
    assert KEY not in manager.machine.manager.services
    node = others(town, 1)[0]
    sent = overhear(town)
    node.subscribe(NAME)
    pass_time(town)
    assert [to for _, to, _ in of_type(sent, SUBSCRIBE_SERVICE)] == [manager]
    assert town.listed(manager, NAME) == {node.id}


def test_unsubscribe_removes_the_originator_and_the_last_one_the_service(town: Town) -> None:
    first, second = others(town, 2)
    for node in (first, second):
        node.subscribe(NAME)
    pass_time(town)
    sent = overhear(town)
    first.unsubscribe(NAME)
    pass_time(town)
    manager = town.closest(NAME)
    assert [to for _, to, _ in of_type(sent, UNSUBSCRIBE_SERVICE)] == [manager]
    assert town.listed(manager, NAME) == {second.id}
    second.unsubscribe(NAME)
    pass_time(town)
    assert town.managers(NAME) == []
    pass_time(town, 70)
    assert KEY not in manager.machine.manager.services


def test_publish_is_forwarded_to_all_subscribers(town: Town) -> None:
    readers = others(town, 4)
    for node in readers:
        node.subscribe(NAME)
    pass_time(town)
    sent = overhear(town)
    town.publish(readers[0], NAME)
    pass_time(town)
    infos = of_type(sent, INFO)
    assert {to for _, to, _ in infos} == set(readers)
    assert {one for one, _, _ in infos} == {town.closest(NAME)}


def test_change_of_managers_when_the_manager_leaves(town: Town) -> None:
    readers = let_others_subscribe(town)
    leaver, sent = town.closest(NAME), overhear(town)
    leaver.close()
    pass_time(town, 0.5)
    changes = of_type(sent, CHANGE_SERVICE_MANAGER)
    heirs = {to for one, to, _ in changes if one is leaver}
    assert heirs >= {town.closest(NAME), *readers} - {leaver}
    assert town.managers(NAME) == [town.closest(NAME)]


def open_closer(town: Town) -> ServiceNode:
    """Open a node that is closer to the service than all others."""
    for index in range(9000, 9999):
        node = town.open(index)
        if town.closest(NAME) is node:
            return node
        node.crash()
    raise AssertionError("no closer node")


def test_change_of_managers_when_a_closer_client_enters(town: Town) -> None:
    readers = let_others_subscribe(town)
    manager, sent = town.closest(NAME), overhear(town)
    newcomer = open_closer(town)
    let_newcomer_count(town)
    changes = of_type(sent, CHANGE_SERVICE_MANAGER)
    assert {to for one, to, _ in changes if one is manager} >= {newcomer, *readers}
    assert town.managers(NAME) == [newcomer]


@pytest.mark.parametrize("situation", ["leave", "enter"])
def test_change_of_managers_is_sent_to_the_new_one_and_to_all_subscribers(
    town: Town, situation: str
) -> None:
    heir = town.ranked(NAME)[1]
    readers = [node for node in others(town, 4) if node is not heir]
    for node in readers:
        node.subscribe(NAME)
    pass_time(town)
    manager, sent = town.closest(NAME), overhear(town)
    if situation == "leave":
        manager.close()
        pass_time(town)
    else:
        heir = open_closer(town)
        let_newcomer_count(town)
    changes = [one for one in of_type(sent, CHANGE_SERVICE_MANAGER) if one[0] is manager]
    assert {to for _, to, _ in changes} == {heir, *readers}  # And to nobody else.
    ids = {to: split_ids(request.message.rest) for _, to, request in changes}
    assert {named for named, _ in ids.values()} == {heir.id}
    assert set(ids[heir][1]) == {node.id for node in readers}


def test_new_manager_updates_its_list_of_managed_services(town: Town) -> None:
    readers = let_others_subscribe(town)
    newcomer = open_closer(town)
    let_newcomer_count(town)
    assert town.listed(newcomer, NAME) == {node.id for node in readers}


def test_subscriber_updates_the_manager_in_its_list(town: Town) -> None:
    readers = let_others_subscribe(town)
    newcomer = open_closer(town)
    let_newcomer_count(town)
    assert {node.machine.client.subscribed[KEY].manager for node in readers} == {newcomer.id}


def is_change(_: Station, __: Station, frame: bytes) -> bool:
    """Tell whether a frame has a CHANGE_SERVICE_MANAGER."""
    request = decode_request(frame[HEADER_BYTES:]) if frame[3] == SERVICE else None
    return request is not None and request.message.type == CHANGE_SERVICE_MANAGER


def test_service_is_created_anew_when_its_manager_vanished_without_a_word(town: Town) -> None:
    reader = town.ranked(NAME)[-1]
    reader.subscribe(NAME)
    pass_time(town)
    sent = overhear(town)
    town.stage.network.drop = is_change
    town.closest(NAME).crash()
    let_death_be_noticed(town)
    created = of_type(sent, SUBSCRIBE_SERVICE)  # CREATE_SERVICE is this, and never another.
    assert (reader, town.closest(NAME)) in [(one, to) for one, to, _ in created]
    assert town.listed(town.closest(NAME), NAME) == {reader.id}


def test_each_client_knows_the_other_clients(town: Town) -> None:
    for node in town.nodes:
        known = {member.node for member in node.machine.view.present()}
        assert known == {other.id for other in town.nodes if other is not node}


def test_list_of_clients_is_updated_every_10_seconds(town: Town) -> None:
    asked: dict[tuple[ServiceNode, object], list[int]] = defaultdict(list)
    watch, start_ns = town.watch.sent, town.world.now

    def note(node: ServiceNode, place: tuple[object, ...], frame: bytes) -> None:
        watch(node, place, frame)
        members = decode_members(frame[HEADER_BYTES:]) if frame[3] == MEMBERS else None
        if members is not None and members.form == PING:
            asked[node, place].append(town.world.now)

    town.watch.sent = note  # type: ignore[method-assign]
    pass_time(town, 60)
    pairs = {(one, other.address) for one in town.nodes for other in town.nodes if one is not other}
    assert set(asked) == pairs
    for times in asked.values():
        rounds = [start_ns, *times, town.world.now]
        assert max(later - before for before, later in pairwise(rounds)) <= 10 * SECOND


def test_client_that_is_gone_is_struck_off_the_lists_of_all(town: Town) -> None:
    gone, *left = town.nodes
    gone.crash()
    let_death_be_noticed(town)
    for node in left:
        known = {member.node for member in node.machine.view.present()}
        assert known == {other.id for other in left if other is not node}


def test_subscription_is_sent_again_when_the_manager_is_gone(town: Town) -> None:
    readers = others(town, 4)
    for node in readers:
        node.subscribe(NAME)
    pass_time(town)
    for node in town.ranked(NAME)[:3]:  # The manager and both copies: nothing is left of the list.
        node.crash()
    let_death_be_noticed(town)
    left = {node.id for node in readers if node.is_alive}
    assert left and town.listed(town.closest(NAME), NAME) == left


def test_service_without_subscribers_is_said_to_be_unavailable(town: Town) -> None:
    publisher = others(town, 1)[0]
    town.publish(publisher, NAME)
    pass_time(town)
    assert [one.status for one in publisher.settled] == [UNAVAILABLE]


def test_manager_that_publishes_or_subscribes_itself_sends_nothing(town: Town) -> None:
    manager = town.closest(NAME)
    manager.subscribe(NAME)
    pass_time(town, 0.5)
    sent = overhear(town)
    payload = town.publish(manager, NAME)
    pass_time(town, 20 * MS / SECOND)
    assert town.count(manager, NAME, payload) == 1
    assert not sent


def test_last_node_leaves_at_once_though_somebody_is_on_its_list() -> None:
    town = Town(Stage(1))
    node = town.open()
    node.subscribe(NAME)
    service = node.machine.manager.services[KEY]
    service.listing.subscribe(town.world.now, b"abcdefghijkl", 1, 0, None, 30 * SECOND)
    node.close()
    pass_time(town, 0.1)
    assert not node.is_alive
