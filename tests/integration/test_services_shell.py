"""What the shell of services does around its machine: options, threads, patience."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Barrier, Thread
from typing import Any

import pytest

import hubbub
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.runtime.ownership import owns
from tests.integration.bus import DEADLINE_S, fresh_place, payloads, take, wait_until

NAME = "hype-news"


class Pair:
    """Two nodes that know each other by their services."""

    def __init__(self, stack: ExitStack, **options: Any) -> None:
        place = fresh_place()
        common = {
            "domain": place.domain, "interface": "127.0.0.1", "multicast": False, "listen": 0,
        }  # fmt: skip
        options = {"links": ["tcp"], "services": True, **options}
        self.first = stack.enter_context(hubbub.open("first", **common, **options))
        peers = [self.first.services.address]
        self.second = stack.enter_context(hubbub.open("second", peers=peers, **common, **options))
        for node in (self.first, self.second):
            assert node.services.wait_for_members(1, DEADLINE_S)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def test_total_order_without_what_is_ones_own_is_refused(pair: Pair) -> None:
    with pytest.raises(hubbub.ConfigurationError, match="leave out no_local"):
        pair.first.service(NAME).subscribe(order="total", no_local=True)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_service_is_subscribed_to_though_another_thread_closed_its_last_subscription(
    pair: Pair,
) -> None:
    service, opened = pair.first.service(NAME), list[hubbub.Subscription]()
    subscribed = service._machine.client.subscribed
    for _ in range(1000):
        last, barrier = service.subscribe(), Barrier(2)

        def subscribe(barrier: Barrier = barrier) -> None:
            barrier.wait()
            opened.append(service.subscribe())

        thread = Thread(target=subscribe)
        thread.start()
        barrier.wait()
        last.close()
        thread.join()
        assert service.key in subscribed
        opened.pop().close()
        assert service.key not in subscribed


def test_what_is_waited_for_is_looked_at_under_the_lock(pair: Pair) -> None:
    driver = pair.first.services.driver
    looks = []

    def is_ready() -> bool:
        looks.append(owns(driver.lock))
        return len(looks) == 3

    other = Thread(target=lambda: [pair.second.service(NAME).subscribe() for _ in range(9)])
    other.start()
    pair.first.service(NAME).subscribe()
    assert driver.wait(is_ready, DEADLINE_S)
    assert looks == [True] * 3
    other.join(DEADLINE_S)


def test_message_that_is_refused_comes_to_nobody_not_even_to_its_own_node() -> None:
    with hubbub.open(
        "alone", domain=fresh_place().domain, interface="127.0.0.1", multicast=False, listen=0,
        links=["services"], send_timeout=0.01,
    ) as node:  # fmt: skip
        own, publisher = node.subscribe("/plant/temp"), node.publisher("/plant/temp")
        node.services.driver.machine.client.asking.ready_ns = NEVER  # There is no manager yet.
        sent: list[int] = []

        def publish_many() -> None:
            for number in range(100):
                publisher.publish(b"%d" % number + bytes(50_000))
                sent.append(number)

        with pytest.raises(hubbub.Backpressure, match="was not sent"):
            publish_many()
        heard = [own.receive(DEADLINE_S) for _ in sent]
        assert sent and [int(one.payload.rstrip(b"\0")) for one in heard if one] == sent
        assert own.receive(0.05) is None


def test_own_messages_are_left_out_for_who_does_not_want_them_and_for_no_other(pair: Pair) -> None:
    node, other = pair.first, pair.second
    service = node.service(NAME)
    without, with_own = service.subscribe(no_local=True), service.subscribe()
    assert service.wait_until_subscribed(DEADLINE_S)
    assert service.publish(b"own", wait=DEADLINE_S) == 1
    assert other.service(NAME).publish(b"of another", wait=DEADLINE_S) == 1
    assert sorted(payloads(take(with_own, 2))) == [b"of another", b"own"]
    assert payloads(take(without, 1)) == [b"of another"]
    with_own.close()
    wait_until(lambda: service.publish(b"own again", wait=DEADLINE_S) == 0)


def test_services_say_so_if_the_port_they_are_to_be_at_is_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        where: dict[str, Any] = {"interface": "127.0.0.1", "multicast": False}
        with pytest.raises(hubbub.HubbubError, match=f"no socket for services .* port {port}"):
            hubbub.open("n", **where, listen=port, links=["services"])
        with pytest.raises(hubbub.HubbubError, match="give the port as a number"):
            hubbub.open("n", **where, listen=str(port))
