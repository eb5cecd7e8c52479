"""Services of real nodes on real sockets: by named peers without multicast, and found by it."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

import hubbub
from hubbub.newcomers import Newcomers
from hubbub.wire.services import (
    INFO,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    Message,
    encode_members,
    encode_message,
    service_key,
)
from tests.integration.bus import DEADLINE_S, Events, fresh_place, wait_until

NAME = "hype-news"


class Bus:
    """Nodes that share services, without multicast."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._place = fresh_place()
        self.nodes: list[hubbub.Node] = []

    def open(self, **options: Any) -> hubbub.Node:
        peers = [self.nodes[0].services.address] if self.nodes else []
        node = hubbub.open(
            f"n{len(self.nodes)}", domain=self._place.domain, interface="127.0.0.1",
            multicast=False, listen=0, peers=peers, links=["tcp"],
            services=hubbub.ServiceOptions(**options),
        )  # fmt: skip
        self._stack.callback(node.close)
        self.nodes.append(node)
        return node

    def open_many(self, count: int, **options: Any) -> list[hubbub.Node]:
        nodes = [self.open(**options) for _ in range(count)]
        for node in nodes:
            assert node.services.wait_for_members(len(self.nodes) - 1, DEADLINE_S)
        return nodes


@pytest.fixture
def bus() -> Iterator[Bus]:
    with ExitStack() as stack:
        yield Bus(stack)


def test_message_comes_to_all_subscribers_without_multicast(bus: Bus) -> None:
    first, second, third = (node.service(NAME) for node in bus.open_many(3))
    heard: list[bytes] = []
    first.subscribe(lambda message: heard.append(message.payload))
    reader = second.subscribe()
    assert first.wait_until_subscribed(DEADLINE_S) and second.wait_until_subscribed(DEADLINE_S)
    assert third.publish(b"21.5", wait=DEADLINE_S) == 2
    message = reader.receive(DEADLINE_S)
    assert message is not None
    assert (message.subject, message.payload, message.link) == (NAME, b"21.5", "services")
    assert message.source.id == bus.nodes[2].id
    wait_until(lambda: heard == [b"21.5"])


def test_manager_is_the_closest_node_and_keeps_the_list(bus: Bus) -> None:
    nodes = bus.open_many(4)
    services = [node.service(NAME) for node in nodes]
    for service in services[:2]:
        service.subscribe()
        assert service.wait_until_subscribed(DEADLINE_S)
    wait_until(lambda: sum(service.subscribers is not None for service in services) == 1)
    (manager,) = (node for node in nodes if node.service(NAME).subscribers is not None)
    assert {services[0].manager, services[1].manager} == {manager.id.hex()}
    wait_until(
        lambda: manager.service(NAME).subscribers == tuple(sorted(n.id.hex() for n in nodes[:2]))
    )


def test_statistics_show_the_three_lists(bus: Bus) -> None:
    nodes = bus.open_many(3)
    nodes[0].service(NAME).subscribe()
    assert nodes[0].service(NAME).wait_until_subscribed(DEADLINE_S)
    seen = nodes[0].statistics().services
    assert seen is not None
    (subscribed,) = seen.subscribed
    assert (subscribed.name, subscribed.key) == (NAME, service_key(NAME).hex())
    assert {member.id for member in seen.members} == {node.id.hex() for node in nodes[1:]}
    managed = [one for node in nodes for one in node.services.statistics().managed]
    listed = [one.subscribers for one in managed if one.role == "managing"]
    assert listed == [(nodes[0].id.hex(),)]


def test_create_is_subscribe(bus: Bus) -> None:
    node, other = bus.open_many(2)
    created = node.service(NAME).create(order="fifo")
    assert node.service(NAME).wait_until_subscribed(DEADLINE_S)
    assert other.service(NAME).publish(b"21.5", wait=DEADLINE_S) == 1
    message = created.receive(DEADLINE_S)
    assert message is not None and message.payload == b"21.5"


def test_messages_of_a_service_are_counted_from_its_last_change_of_managers(bus: Bus) -> None:
    nodes = bus.open_many(3)
    closest = nodes[0].services.manager_of(NAME)
    (manager,) = (node for node in nodes if node.id.hex() == closest)
    reader, publisher = (node for node in nodes if node is not manager)
    reader.service(NAME).subscribe()
    assert reader.service(NAME).wait_until_subscribed(DEADLINE_S)
    assert publisher.service(NAME).publish(b"1", wait=DEADLINE_S) == 1
    manager.close()
    assert publisher.service(NAME).publish(b"2", wait=DEADLINE_S) == 1

    def counted() -> list[int]:
        lists = [node.services.statistics().managed for node in (reader, publisher)]
        return [one.messages for some in lists for one in some if one.role == "managing"]

    wait_until(lambda: len(counted()) == 1)
    assert counted() == [one.messages for one in reader.services.find()]
    assert counted()[0] <= 2


def test_service_without_subscribers_is_unavailable_and_an_event_says_so(bus: Bus) -> None:
    events: list[hubbub.Event] = []
    node, _ = bus.open_many(2)
    node.on_event(events.append)
    assert node.service(NAME).publish(b"x", wait=DEADLINE_S) == 0
    node.service(NAME).publish(b"x")
    wait_until(lambda: any(isinstance(one, hubbub.ServiceUnavailable) for one in events))


def test_polite_leave_of_the_manager_loses_nothing(bus: Bus) -> None:
    nodes = bus.open_many(4)
    closest = nodes[0].services.manager_of(NAME)
    (manager,) = (node for node in nodes if node.id.hex() == closest)
    reader_node, other, _ = (node for node in nodes if node is not manager)
    reader, publisher = reader_node.service(NAME).subscribe(queue=5000), other.service(NAME)
    assert reader_node.service(NAME).wait_until_subscribed(DEADLINE_S)
    assert reader_node.service(NAME).manager == closest
    for number in range(50):
        publisher.publish(b"%d" % number)
    manager.close()
    for number in range(50, 100):
        publisher.publish(b"%d" % number)
    wait_until(lambda: reader.pending >= 100)
    payloads = [reader.receive(0) for _ in range(100)]
    assert sorted(int(one.payload) for one in payloads if one is not None) == list(range(100))


def test_any_one_member_answers_a_request(bus: Bus) -> None:
    nodes = bus.open_many(3)
    nodes[0].service("sums").answer(lambda message: message.payload.upper())
    assert nodes[0].service("sums").wait_until_subscribed(DEADLINE_S)
    assert nodes[1].service("sums").request_any(b"abc", timeout=DEADLINE_S) == b"ABC"
    with pytest.raises(hubbub.HubbubError, match="nobody answered"):
        nodes[1].service("nothing").request_any(b"abc", timeout=DEADLINE_S)


def test_value_that_is_kept_comes_to_who_subscribes_later(bus: Bus) -> None:
    nodes = bus.open_many(2)
    nodes[0].service("limit").publish(b"42", retain=True, wait=DEADLINE_S)
    message = nodes[1].service("limit").subscribe().receive(DEADLINE_S)
    assert message is not None and message.payload == b"42"


def test_value_on_a_subject_cannot_be_kept_also_if_messages_went_there_before(bus: Bus) -> None:
    service = bus.open().service("limit")
    service.publish(b"41", subject="/limit/upper")
    with pytest.raises(hubbub.ConfigurationError, match="without a subject"):
        service.publish(b"42", subject="/limit/upper", retain=True)
    with pytest.raises(hubbub.SubjectError):
        service.publish(b"42", subject="/limit//upper")


@pytest.mark.parametrize("place", [0, 1])
def test_each_subscription_of_a_node_gets_the_value_that_is_kept_once(bus: Bus, place: int) -> None:
    nodes = bus.open_many(2)
    limit, publisher = nodes[place].service("limit"), nodes[0].service("limit")
    limit.answer(lambda message: b"")  # So the node is on the list before anything is subscribed.
    assert limit.wait_until_subscribed(DEADLINE_S)
    assert publisher.publish(b"41", retain=True, wait=DEADLINE_S) == 1
    first = limit.subscribe()
    readers, inline = [first], list[bytes]()
    assert _payload_of(first) == b"41"
    assert publisher.publish(b"42", retain=True, wait=DEADLINE_S) == 1  # While somebody listens.
    assert publisher.publish(b"later", wait=DEADLINE_S) == 1
    assert (_payload_of(first), _payload_of(first)) == (b"42", b"later")
    for _ in range(2):
        readers.append(limit.subscribe())
        assert _payload_of(readers[-1]) == b"42"
    limit.subscribe(lambda message: inline.append(message.payload), inline=True)
    wait_until(lambda: inline == [b"42"])
    assert publisher.publish(b"43", retain=True, wait=DEADLINE_S) == 1
    assert [_payload_of(reader) for reader in readers] == [b"43"] * 3
    wait_until(lambda: inline == [b"42", b"43"])
    assert [reader.pending for reader in readers] == [0] * 3


def _payload_of(reader: hubbub.Subscription) -> bytes:
    message = reader.receive(DEADLINE_S)
    assert message is not None
    return bytes(message.payload)


def test_value_that_came_as_a_message_is_not_handed_out_again() -> None:
    newcomers = Newcomers()
    early, late = (cast("hubbub.Subscription", name) for name in ("early", "late"))
    newcomers.add(early)
    newcomers.note(0)  # Of the first version, which counts nothing.
    newcomers.note(7)
    newcomers.note(8)
    newcomers.add(late)
    assert newcomers.take(7) == [late] and not newcomers.waiting
    newcomers.add(early)
    newcomers.note(7)
    assert newcomers.take(6) == [early]


def test_policy_of_the_manager_refuses(bus: Bus) -> None:
    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        return action != "publish" or credentials == b"secret"

    first, second = bus.open_many(2, policy=policy)
    reader = first.service(NAME).subscribe()
    assert first.service(NAME).wait_until_subscribed(DEADLINE_S)
    with pytest.raises(hubbub.HubbubError, match="refused"):
        second.service(NAME).publish(b"no", wait=DEADLINE_S)
    assert second.service(NAME).publish(b"yes", wait=DEADLINE_S, credentials=b"secret") == 1
    message = reader.receive(DEADLINE_S)
    assert message is not None and message.payload == b"yes"


def test_policy_that_raises_refuses_and_says_so_not_too_often(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        return action == "subscribe" or bool(json.loads(credentials)["ok"])

    nodes = bus.open_many(2, policy=policy)
    reader = nodes[0].service(NAME).subscribe()
    assert nodes[0].service(NAME).wait_until_subscribed(DEADLINE_S)
    for node in nodes:  # One of them is the manager itself.
        for _ in range(20):
            with pytest.raises(hubbub.HubbubError, match="refused"):
                node.service(NAME).publish(b"no", wait=DEADLINE_S, credentials=b"garbage")
        sent = node.service(NAME).publish(b"yes", wait=DEADLINE_S, credentials=b'{"ok": true}')
        assert sent == 1
        message = reader.receive(DEADLINE_S)
        assert message is not None and message.payload == b"yes"
    told = [one.getMessage() for one in caplog.records if "policy failed" in one.getMessage()]
    assert set(told) == {f"policy failed, so publish is refused: {NAME}"} and len(told) < 20


def test_subscription_is_read_under_asyncio(bus: Bus) -> None:
    first, second = bus.open_many(2)
    reader = first.service(NAME).subscribe()
    assert first.service(NAME).wait_until_subscribed(DEADLINE_S)

    async def read() -> bytes:
        await asyncio.to_thread(second.service(NAME).publish, b"21.5", wait=DEADLINE_S)
        async for message in reader:
            return bytes(message.payload)
        return b""

    assert asyncio.run(read()) == b"21.5"


def test_callback_that_raises_is_reported_and_others_get_their_messages(bus: Bus) -> None:
    first, second = bus.open_many(2)
    events = Events()
    first.on_event(events)
    first.service(NAME).subscribe(lambda message: 1 / 0)
    reader = first.service(NAME).subscribe()
    assert first.service(NAME).wait_until_subscribed(DEADLINE_S)
    assert second.service(NAME).publish(b"21.5", wait=DEADLINE_S) == 1
    message = reader.receive(DEADLINE_S)
    assert message is not None and (message.payload, message.link) == (b"21.5", "services")
    assert isinstance(events.wait(hubbub.CallbackFailed).error, ZeroDivisionError)


def test_subscription_to_a_service_has_no_patterns(bus: Bus) -> None:
    (node,) = bus.open_many(1)
    reader = node.service(NAME).subscribe()
    with pytest.raises(hubbub.ConfigurationError, match="subscribe to each service by itself"):
        reader.add("/plant/...")


def test_full_queue_drops_the_oldest_and_counts_it(bus: Bus) -> None:
    first, second = bus.open_many(2)
    reader = first.service(NAME).subscribe(queue=3)
    assert first.service(NAME).wait_until_subscribed(DEADLINE_S)
    for number in range(10):
        assert second.service(NAME).publish(b"%d" % number, wait=DEADLINE_S) == 1
    wait_until(lambda: reader.received == 10)
    assert (reader.pending, reader.dropped) == (3, 7)
    events = Events()
    first.on_event(events)
    assert events.wait(hubbub.SlowConsumer).dropped == 7
    reader.close()
    assert len(list(reader)) == 3


def test_node_that_speaks_the_first_version_is_served(bus: Bus) -> None:
    nodes = bus.open_many(2)
    reader = nodes[0].service(NAME).subscribe()
    assert nodes[0].service(NAME).wait_until_subscribed(DEADLINE_S)
    host, port = nodes[1].services.address.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as old:
        old.bind(("127.0.0.1", 0))
        old.settimeout(DEADLINE_S)
        key = service_key(NAME)
        old.sendto(encode_message(Message(PUBLISH, key, b"HelloHypeWorld")), (host, int(port)))
        message = reader.receive(DEADLINE_S)
        assert message is not None and message.payload == b"HelloHypeWorld"
        old.sendto(encode_message(Message(SUBSCRIBE_SERVICE, key)), (host, int(port)))
        manager = next(node for node in nodes if node.service(NAME).subscribers)
        wait_until(lambda: len(manager.service(NAME).subscribers or ()) == 2)
        nodes[1].service(NAME).publish(b"back")
        assert old.recv(100) == encode_message(Message(INFO, key, b"back"))


def test_node_asked_to_speak_the_first_version_shares_services_with_others(bus: Bus) -> None:
    nodes = [bus.open(version="v1"), bus.open(), bus.open(version="v1")]
    for node in nodes:
        assert node.services.wait_for_members(2, DEADLINE_S)
    readers = [node.service(NAME).subscribe() for node in nodes]
    manager = next(node for node in nodes if node.id.hex() == nodes[0].services.manager_of(NAME))
    wait_until(lambda: len(manager.service(NAME).subscribers or ()) == 3)
    for payload in (b"HelloHypeWorld", b""):
        nodes[2].service(NAME).publish(payload)
        for reader in readers:
            message = reader.receive(DEADLINE_S)
            assert message is not None and message.payload == payload
    counts = [_statistics(node).counters.get("sent_bare", 0) for node in nodes]
    assert counts[1] == 0 and counts[0] + counts[2] >= 2
    with pytest.raises(hubbub.ConfigurationError, match="counts no messages"):
        nodes[0].service(NAME).subscribe(order="fifo")


def _statistics(node: hubbub.Node) -> hubbub.ServicesStatistics:
    found = node.statistics().services
    assert found is not None
    return found


def test_nodes_on_one_multicast_group_find_each_other(bus: Bus) -> None:
    place = fresh_place()
    with place.open("a") as first, place.open("b") as second:
        assert first.statistics().services is None  # Nobody pays who does not use them.
        reader = first.service(NAME).subscribe()
        second.service(NAME)
        assert first.services.wait_for_members(1, DEADLINE_S)
        wait_until(lambda: second.service(NAME).publish(b"x", wait=DEADLINE_S) == 1)
        message = reader.receive(DEADLINE_S)
        assert message is not None and message.payload == b"x"


class Heaviest:
    """Let the heaviest node manage everything, and among equals the closest."""

    name = "heaviest"

    def measure(self, key: int, node_key: int, weight: int) -> int:
        return (1000 - weight) << 160 | key ^ node_key


class Nameless(Heaviest):
    name = 5  # type: ignore[assignment]


class Impostor(Heaviest):
    name = "xor"


class Speechless(Heaviest):
    def measure(self, key: int, node_key: int, weight: int) -> Any:
        return None


def _is_settled(node: hubbub.Node) -> bool:
    return all(one.is_settled for one in node.services.ring())


def test_placement_of_the_application_says_who_manages_what(bus: Bus) -> None:
    light = bus.open_many(2, placement=Heaviest())
    (heavy,) = bus.open_many(1, placement=Heaviest(), weight=1000)
    for node in light:
        assert node.services.wait_for_members(2, DEADLINE_S)
        wait_until(partial(_is_settled, node))
        assert {node.services.manager_of(f"s{number}") for number in range(8)} == {heavy.id.hex()}
        shares = {one.id: one.share for one in node.services.ring()}
        assert shares[heavy.id.hex()] == 1 == sum(shares.values())
    light[0].service(NAME).subscribe()
    assert light[0].service(NAME).wait_until_subscribed(DEADLINE_S)
    assert light[0].service(NAME).manager == heavy.id.hex()


async def sleep_and_allow(*_arguments: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"membership": "slow"}, "fast, seed"),
        ({"placement": "random"}, "xor, hrw, weighted"),
        ({"placement": Heaviest}, "raised TypeError"),
        ({"placement": Nameless()}, "an object with a name and measure"),
        ({"placement": Impostor()}, "the name xor is taken"),
        ({"placement": Speechless()}, "is None, and no number"),
        ({"weight": 0}, "from 1 to 1000"),
        ({"service_levels": True}, "service_levels=True must be a number from 1"),
        ({"policy": 5}, "give a plain function"),
        ({"policy": sleep_and_allow}, "give a plain function"),
        ({"version": "v3"}, "choose v1 or v2"),
    ],
)
def test_option_that_cannot_work_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(hubbub.ConfigurationError, match=text):
        hubbub.ServiceOptions(**options)


def test_services_are_asked_for_by_true_a_version_or_options() -> None:
    with pytest.raises(hubbub.ConfigurationError, match='True, False, "v1" or ServiceOptions'):
        hubbub.open("a", interface="127.0.0.1", services="v7")


@pytest.mark.parametrize("name", ["", "a\nb", 5, "x" * 256])
def test_name_that_is_none_is_refused(bus: Bus, name: Any) -> None:
    with pytest.raises(hubbub.ConfigurationError):
        bus.open().service(name)


def test_payload_that_is_too_large_is_refused(bus: Bus) -> None:
    with pytest.raises(hubbub.PayloadError, match="60000 at most"):
        bus.open().service(NAME).publish(os.urandom(60_001))


def test_closed_node_refuses_its_services(bus: Bus) -> None:
    node = bus.open()
    service = node.service(NAME)
    node.close()
    with pytest.raises(hubbub.ClosedError):
        service.publish(b"x")
    with pytest.raises(hubbub.ClosedError):
        node.service(NAME)


def test_found_service_tells_what_this_node_is_to_it(bus: Bus) -> None:
    nodes = bus.open_many(2)
    nodes[0].service(NAME).subscribe()
    assert nodes[0].service(NAME).wait_until_subscribed(DEADLINE_S)

    def roles() -> list[set[str]]:
        found = [node.services.find() for node in nodes]
        return [set(one[0].role.split(", ")) if one else set() for one in found]

    wait_until(lambda: "subscribed" in roles()[0])
    wait_until(lambda: sorted(one - {"subscribed"} for one in roles()) != [set(), set()])
    managing = [place for place, one in enumerate(roles()) if "managing" in one]
    assert [nodes[place].id.hex() for place in managing] == [nodes[0].service(NAME).manager]


def test_managers_tell_who_subscribes_to_their_services(bus: Bus) -> None:
    nodes = bus.open_many(3)
    for node in nodes[:2]:
        node.service(NAME).subscribe()
        assert node.service(NAME).wait_until_subscribed(DEADLINE_S)
    nodes[2].service("other").subscribe()
    assert nodes[2].service("other").wait_until_subscribed(DEADLINE_S)
    places = {node.id.hex(): node.services.address for node in nodes}
    for node in nodes:  # One of them, and perhaps two, are managers themselves.
        (one,) = node.services.find_subscribers([NAME], DEADLINE_S)
        assert [other.id for other in one.subscribers] == sorted(n.id.hex() for n in nodes[:2])
        assert {other.id: other.address for other in one.subscribers}.items() <= places.items()
        assert one.manager.id == one.service.manager == nodes[0].service(NAME).manager
        assert [one.service.name for one in node.services.find_subscribers((), DEADLINE_S)] == [
            NAME, "other",
        ]  # fmt: skip


@pytest.mark.parametrize("asker", [0, 1])
def test_asker_hears_at_once_that_the_answer_failed_and_others_are_answered(
    bus: Bus, asker: int
) -> None:
    nodes = bus.open_many(2)

    def answer(message: hubbub.Message) -> bytes:
        if message.payload == b"exit":
            raise SystemExit
        return message.payload.upper()

    nodes[0].service("sums").answer(answer)
    assert nodes[0].service("sums").wait_until_subscribed(DEADLINE_S)
    sums = nodes[asker].service("sums")
    for _ in range(2):
        with pytest.raises(hubbub.HubbubError, match="the member that was asked has no answer"):
            sums.request_any(b"exit", timeout=10 * DEADLINE_S)
    assert sums.request_any(b"abc", timeout=DEADLINE_S) == b"ABC"


def test_requests_that_wait_for_a_slow_answer_are_bounded_and_others_take_the_rest(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.protocol.rendezvous.client.SERVICE_REQUESTS_MAX", 2)
    nodes = bus.open_many(3)
    go_on = threading.Event()

    def answer_late(message: hubbub.Message) -> bytes:
        go_on.wait(DEADLINE_S)
        return b"late"

    slow, asker = nodes[0].service("sums"), nodes[2].service("sums")
    slow.answer(answer_late)
    assert slow.wait_until_subscribed(DEADLINE_S)
    late: list[bytes] = []

    def ask() -> None:
        late.append(asker.request_any(b"?", timeout=DEADLINE_S))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    waiting = nodes[0].services.driver.machine.client._asked_us
    wait_until(lambda: sum(map(len, waiting.values())) == 2)
    with pytest.raises(hubbub.HubbubError, match="unavailable"):
        asker.request_any(b"?", timeout=DEADLINE_S)
    nodes[1].service("sums").answer(lambda message: b"quick")
    assert nodes[1].service("sums").wait_until_subscribed(DEADLINE_S)
    assert {asker.request_any(b"?", timeout=DEADLINE_S) for _ in range(4)} == {b"quick"}
    go_on.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert late == [b"late", b"late"]


def test_memory_of_what_was_reported_is_bounded(bus: Bus) -> None:
    services = bus.open().services
    for number in range(3000):
        services.report(f"s{number}", "nobody subscribes")
    assert len(services._reported) <= 1024


def refuse(*_arguments: Any, **_options: Any) -> None:
    raise hubbub.ClosedError("by another thread, since the last look")


def test_announcement_that_comes_while_services_close_does_not_disturb_the_channel(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = bus.open().services
    body = encode_members(services.driver.machine.swim.announcement(7266))
    peer = SimpleNamespace(address=("127.0.0.1", 7266))
    with monkeypatch.context() as patch:
        patch.setattr(services.driver, "call", refuse)
        services._hear(0, peer, body)  # type: ignore[arg-type]


def test_service_closes_also_when_its_node_does_at_that_very_moment(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = bus.open().service(NAME)
    subscription = service.subscribe()
    with monkeypatch.context() as patch:
        patch.setattr(service._driver, "call", refuse)
        service.close()
    assert subscription.is_closed


def test_inline_callback_runs_on_the_io_thread_and_may_publish(bus: Bus) -> None:
    _, one, other = bus.open_many(3)
    heard: list[tuple[bytes, str]] = []
    there, back = one.service("there"), one.service("back")

    def answer(message: hubbub.Message) -> None:
        heard.append((message.payload, threading.current_thread().name))
        back.publish(message.payload)

    there.subscribe(answer, inline=True, context="mine")
    answers = other.service("back").subscribe()
    for service in (there, other.service("back")):
        assert service.wait_until_subscribed(DEADLINE_S)
    for number in range(50):
        other.service("there").publish(b"%d" % number)
        message = answers.receive(DEADLINE_S)
        assert message is not None and message.payload == b"%d" % number
    assert heard == [(b"%d" % number, "hubbub-io") for number in range(50)]


def test_all_subscriptions_of_a_node_get_what_an_inline_callback_gets(bus: Bus) -> None:
    anchor, one = bus.open_many(2)
    service, heard = one.service(NAME), []
    inline = service.subscribe(lambda message: heard.append(message), inline=True, context=7)
    assert service.wait_until_subscribed(DEADLINE_S)
    anchor.service(NAME).publish(b"alone", wait=DEADLINE_S)
    wait_until(lambda: len(heard) == 1)
    beside = service.subscribe()
    anchor.service(NAME).publish(b"both", wait=DEADLINE_S)
    wait_until(lambda: len(heard) == 2)
    message = beside.receive(DEADLINE_S)
    assert message is not None and message.payload == b"both"
    inline.close()
    anchor.service(NAME).publish(b"one", wait=DEADLINE_S)
    message = beside.receive(DEADLINE_S)
    assert message is not None and message.payload == b"one"
    assert [(one.payload, one.context, one.subject) for one in heard] == [
        (b"alone", 7, NAME), (b"both", 7, NAME),
    ]  # fmt: skip
    assert inline.received == 2


def test_inline_callback_that_raises_is_reported(bus: Bus) -> None:
    anchor, one = bus.open_many(2)
    events = Events()
    one.on_event(events)
    service, heard = one.service(NAME), []

    def fail(message: hubbub.Message) -> None:
        heard.append(message.payload)
        raise ValueError("on purpose")

    subscription = service.subscribe(fail, inline=True)
    assert service.wait_until_subscribed(DEADLINE_S)
    anchor.service(NAME).publish(b"1", wait=DEADLINE_S)
    anchor.service(NAME).publish(b"2", wait=DEADLINE_S)
    wait_until(lambda: heard == [b"1", b"2"])
    wait_until(lambda: len(events.of(hubbub.CallbackFailed)) == 2)
    assert subscription.statistics().callbacks_failed == 2


def test_no_reader_runs_the_loop_while_a_service_calls_back_from_it(bus: Bus) -> None:
    node = bus.open()
    loop = node._loop
    before = set(loop.callbacks)
    inline = node.service(NAME).subscribe(print, inline=True)
    queued = node.service(NAME).subscribe(print)
    assert loop.callbacks - before == {inline}
    queued.close()
    inline.close()
    assert loop.callbacks == before
    again = node.service(NAME).subscribe(print, inline=True)
    assert loop.callbacks - before == {again}
    node.close()
    assert loop.callbacks == before
