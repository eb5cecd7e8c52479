"""Every demand of the first version's list of requirements, one test each, on simulated nodes."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.profile import SEED
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.header import SERVICE
from hubbub.wire.services import (
    CHANGE_SERVICE_MANAGER,
    INFO,
    KEY_BYTES,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    TYPE_NAMES,
    UNAVAILABLE,
    UNSUBSCRIBE_SERVICE,
    Request,
    decode_request,
    distance,
    node_key,
    service_key,
)

NAME = "hype-news"
KEY = service_key(NAME)
Sent = list[tuple[ServiceNode, ServiceNode | None, Request]]


@pytest.fixture
def town() -> Town:
    made = Town(Stage(5))
    made.open_many(6)
    return made


def overhear(town: Town) -> Sent:
    """Write down every message of a service from now on: sender, receiver, message."""
    sent: Sent = []
    watch = town.watch.sent

    def note(node: ServiceNode, place: tuple[object, ...], frame: bytes) -> None:
        watch(node, place, frame)
        if frame[3] == SERVICE:
            request = decode_request(frame[70:])
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


def of_type(sent: Sent, type: int) -> Sent:
    return [one for one in sent if one[2].message.type == type]


def test_client_and_service_have_keys_of_160_bits_by_sha_1(town: Town) -> None:
    assert 8 * KEY_BYTES == 160 == 8 * len(KEY) == 8 * len(node_key(town.nodes[0].id))


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
    pass_time(town, 4)
    changes = of_type(sent, CHANGE_SERVICE_MANAGER)
    assert {to for one, to, _ in changes if one is manager} >= {newcomer, *readers}
    assert town.managers(NAME) == [newcomer]


def test_new_manager_updates_its_list_of_managed_services(town: Town) -> None:
    readers = let_others_subscribe(town)
    newcomer = open_closer(town)
    pass_time(town, 4)
    assert town.listed(newcomer, NAME) == {node.id for node in readers}


def test_subscriber_updates_the_manager_in_its_list(town: Town) -> None:
    readers = let_others_subscribe(town)
    newcomer = open_closer(town)
    pass_time(town, 4)
    assert {node.machine.client.subscribed[KEY].manager for node in readers} == {newcomer.id}


def test_service_is_created_anew_when_its_manager_vanished_without_a_word(town: Town) -> None:
    reader = others(town, 1)[0]
    reader.subscribe(NAME)
    pass_time(town)
    sent = overhear(town)
    town.closest(NAME).crash()
    pass_time(town, 8)
    created = of_type(sent, SUBSCRIBE_SERVICE)  # CREATE_SERVICE is this, and never another.
    assert (reader, town.closest(NAME)) in [(one, to) for one, to, _ in created] or (
        town.closest(NAME) is reader
    )
    assert town.listed(town.closest(NAME), NAME) == {reader.id}


def test_each_client_knows_the_other_clients(town: Town) -> None:
    for node in town.nodes:
        known = {member.node for member in node.machine.view.present()}
        assert known == {other.id for other in town.nodes if other is not node}


def test_list_of_clients_is_updated_every_10_seconds() -> None:
    assert SEED.probe_ns == 10 * SECOND
    assert SEED.probes == 0  # All of them.


def test_subscription_is_sent_again_when_the_manager_is_gone(town: Town) -> None:
    readers = others(town, 4)
    for node in readers:
        node.subscribe(NAME)
    pass_time(town)
    for node in town.ranked(NAME)[:3]:  # The manager and both copies: nothing is left of the list.
        node.crash()
    pass_time(town, 10)
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
