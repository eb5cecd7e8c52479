"""Large payloads that cross a gateway where they lie: what is left when one of the three ends."""

import signal
from typing import Any

import hubbub
from hubbub.gateway import Gateway, Side
from hubbub.limits import REFERENCES_PER_FRAME
from tests.integration.bus import Actor, Place, acting, fresh_place, hear, say, take, wait_until

SIZE = 1 << 16
LINKS = ["local", "multicast"]
LAST = 2 * (REFERENCES_PER_FRAME + 1)  # What came last is held on to, here and at the gateway.


def stand(left: list[Any], right: list[Any]) -> None:
    """Be a gateway between two places until told to stop, and tell what was handed on."""
    places = [Place(*left), Place(*right)]
    sides = [
        Side(name, place.domain, "127.0.0.1", place.group, place.port)
        for name, place in zip(("left", "right"), places, strict=True)
    ]
    with Gateway.open(sides, name="gw") as gateway:
        say("ready")
        while hear() != "stop":
            say(shared(gateway.nodes[1]).handed_on)


def listen(place: list[Any], count: int) -> None:
    """Take some messages of a topic, and keep them."""
    with Place(*place).open("keeper", links=LINKS) as node:
        subscription = node.subscribe("/t/x", queue=100_000)
        say("ready")
        kept = take(subscription, count)
        say([len(kept)])
        hear()


def shared(node: hubbub.Node) -> Any:
    (channel,) = node.statistics().channels
    return channel.shared


def make(number: int) -> bytes:
    return number.to_bytes(4, "big") * (SIZE // 4)


def publish(publisher: hubbub.Publisher, numbers: range) -> None:
    for number in numbers:
        publisher.publish(make(number))


def numbers_of(messages: list[hubbub.Message]) -> list[int]:
    """Read all of the payloads, and return the numbers that they are made of."""
    numbers = [int.from_bytes(bytes(message.payload[:4]), "big") for message in messages]
    assert all(
        bytes(message.payload) == make(number)
        for message, number in zip(messages, numbers, strict=True)
    )
    return numbers


def handed_on(actor: Actor) -> int:
    actor.tell("how much?")
    return int(actor.hear())


def test_large_messages_cross_by_reference_whole_and_in_order() -> None:
    left, right = fresh_place(), fresh_place()
    with (
        acting(stand, list(left), list(right)) as gateway,
        left.open("talker", links=LINKS) as talker,
        right.open("listener", links=LINKS) as listener,
    ):
        assert gateway.hear() == "ready"
        subscription = listener.subscribe("/t/x", queue=10_000)
        publisher = talker.publisher("/t/x")
        assert publisher.wait_for_subscribers(1, timeout=30)
        messages = []
        for begin in range(0, 1000, 100):
            publish(publisher, range(begin, begin + 100))
            talker.flush(timeout=30)
            # Some are kept, with what shares their slot, and written by nobody.
            messages += take(subscription, 100)[:1]
        assert numbers_of(messages) == list(range(0, 1000, 100))
        assert handed_on(gateway) > 500
        messages.clear()
        publish(publisher, range(1000, 1100))
        assert numbers_of(take(subscription, 100)) == list(range(1000, 1100))
        wait_until(lambda: shared(talker).slots_in_use <= LAST)


def test_gateway_that_is_killed_leaves_who_reads_beyond_what_it_has() -> None:
    left, right = fresh_place(), fresh_place()
    with (
        left.open("talker", links=LINKS) as talker,
        right.open("listener", links=LINKS) as listener,
    ):
        subscription = listener.subscribe("/t/x", queue=10_000)
        publisher = talker.publisher("/t/x")
        with acting(stand, list(left), list(right)) as gateway:
            assert gateway.hear() == "ready"
            assert publisher.wait_for_subscribers(1, timeout=30)
            publish(publisher, range(200))
            kept = take(subscription, 200)
            assert handed_on(gateway) > 50
            gateway.process.kill()
            wait_until(lambda: publisher.receivers == 0)
        with acting(stand, list(left), list(right)) as gateway:
            assert gateway.hear() == "ready"
            assert publisher.wait_for_subscribers(1, timeout=30)
            # While it looks around, it may pass on or not.
            later: list[int] = []
            fresh = 200
            while len(later) < 300:
                publish(publisher, range(fresh, fresh + 20))
                fresh += 20
                talker.flush(timeout=30)
                while (message := subscription.receive(0.01)) is not None:
                    later += numbers_of([message])
            assert later == sorted(set(later))
        assert numbers_of(kept) == list(range(200))


def test_reader_beyond_that_stops_or_dies_hurts_no_other() -> None:
    left, right = fresh_place(), fresh_place()
    with (
        acting(stand, list(left), list(right)) as gateway,
        acting(listen, list(right), 100) as keeper,
        left.open("talker", links=LINKS) as talker,
        right.open("listener", links=LINKS) as listener,
    ):
        assert gateway.hear() == keeper.hear() == "ready"
        subscription = listener.subscribe("/t/x", queue=10_000)
        publisher = talker.publisher("/t/x")
        assert publisher.wait_for_subscribers(1, timeout=30)
        wait_until(lambda: len(listener.peers()) == 2)
        for begin in range(0, 300, 100):  # It may have come a little later.
            publish(publisher, range(begin, begin + 100))
            assert numbers_of(take(subscription, 100)) == list(range(begin, begin + 100))
        assert keeper.hear() == [100]
        keeper.signal(signal.SIGSTOP)
        for begin in range(300, 1300, 100):
            publish(publisher, range(begin, begin + 100))
            assert numbers_of(take(subscription, 100)) == list(range(begin, begin + 100))
        assert shared(talker).left_behind == 0
        keeper.process.kill()
        wait_until(lambda: shared(talker).slots_in_use <= LAST)
        publish(publisher, range(1300, 1400))
        assert numbers_of(take(subscription, 100)) == list(range(1300, 1400))
