"""Loans: messages written where their readers find them, and what becomes of the memory."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import hubbub
from hubbub.links.arena import is_supported
from hubbub.links.loans import LOANS_BYTES_MAX
from tests.integration.bus import Place, acting, fresh_place, payloads, say, take, wait_until

pytestmark = pytest.mark.skipif(not is_supported(), reason="the system has no sealed memfd")

NEAR = ["local", "multicast"]
MIB = 1 << 20


def describe(place: list[Any], links: list[str], kept: int) -> None:
    """Tell of each message how it came, and what is in it; hold so many."""
    with Place(*place).open("reader", links=links) as node:
        subscription = node.subscribe("/x")
        say("ready")
        held = []
        for message in subscription:
            held = [*held, message][-kept:] if kept else []
            data = numpy.frombuffer(message.payload, numpy.uint8)
            low, high = int(data.min()), int(data.max())
            say([type(message.payload).__name__, len(data), low, high])
            del message, data


def shared(node: hubbub.Node) -> Any:
    [channel] = node.statistics().channels
    return channel.shared


class Pair:
    """A publisher here, and what a reader in another process says of its messages."""

    def __init__(self, node: hubbub.Node, publisher: hubbub.Publisher, actor: Any) -> None:
        self.node, self.publisher, self.actor = node, publisher, actor

    def warm_up(self) -> None:
        """Publish until loans are shared: memory must be offered and mapped first."""

        def is_shared() -> bool:
            with self.publisher.loan(MIB) as loan:
                if loan.is_shared:
                    return True
            self.publisher.publish(bytes(MIB))
            self.actor.hear()
            return False

        wait_until(is_shared)

    def publish(self, loan: hubbub.Loan, value: int) -> list[Any]:
        """Fill a loan and publish it; return what the reader says."""
        numpy.frombuffer(loan.view, numpy.uint8)[:] = value
        assert self.publisher.publish(loan) > 0
        said: list[Any] = self.actor.hear()
        return said


@contextmanager
def pair(links: list[str] = NEAR, kept: int = 0, **options: Any) -> Iterator[Pair]:
    place = fresh_place()
    with acting(describe, place, links, kept) as actor, place.open("p", links=NEAR) as node:
        publisher = node.publisher("/x", **options)
        assert actor.hear() == "ready"
        assert publisher.wait_for_subscribers(1, 10)
        yield Pair(node, publisher, actor)


@pytest.mark.parametrize("options", [{}, {"acknowledge_ms": 5000}, {"history": 3}])
def test_loan_is_read_where_it_was_written(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pair(**options) as two:
        two.warm_up()
        assert two.node.channels[0].driver.pipes is not None
        depot = two.node.channels[0].driver.pipes.depot
        copies: list[Any] = []
        monkeypatch.setattr(depot._store, "put", lambda *put: copies.append(put))
        for value in range(1, 50):
            said = two.publish(two.publisher.loan(MIB), value)
            assert said == ["memoryview", MIB, value, value]
        assert copies == [], "nothing was copied"


def test_memory_of_published_loans_is_used_again() -> None:
    with pair() as two:
        two.warm_up()
        for value in range(1, 200):
            loan = two.publisher.loan(2 * MIB)
            assert loan.is_shared
            assert two.publish(loan, value) == ["memoryview", 2 * MIB, value, value]
            del loan
        assert shared(two.node).bytes_total <= 64 * MIB
        wait_until(lambda: shared(two.node).slots_in_use <= 2)


def test_what_a_reader_holds_stays_as_it_was_published() -> None:
    with pair(kept=5) as two:
        two.warm_up()
        for value in range(1, 40):
            assert two.publish(two.publisher.loan(MIB), value)[2:] == [value, value]


def test_receivers_elsewhere_get_the_same_from_ordinary_memory() -> None:
    with pair(links=["multicast"]) as two:
        for value in range(1, 5):
            loan = two.publisher.loan(MIB)
            assert not loan.is_shared
            assert two.publish(loan, value) == ["bytes", MIB, value, value]


def test_receiver_elsewhere_that_comes_before_the_loan_is_published_gets_it_too() -> None:
    with pair() as two:
        two.warm_up()
        loan = two.publisher.loan(MIB)
        assert loan.is_shared
        [channel] = two.node.channels
        place = [channel.channel.group, channel.channel.port, two.node.domain]
        with acting(describe, place, ["multicast"], 0) as other:
            assert other.hear() == "ready"
            assert two.publisher.wait_for_subscribers(2, 10)
            numpy.frombuffer(loan.view, numpy.uint8)[:] = 7
            assert two.publisher.publish(loan) == 2
            assert other.hear()[1:] == [MIB, 7, 7]
            assert two.actor.hear()[1:] == [MIB, 7, 7]


def test_receiver_that_leaves_before_the_loan_is_published_costs_nothing() -> None:
    with pair() as two:
        two.warm_up()
        loan = two.publisher.loan(MIB)
        two.actor.close()
        wait_until(lambda: two.publisher.receivers == 0)
        loan.view[:3] = b"abc"
        assert two.publisher.publish(loan) == 0
        del loan
        wait_until(lambda: shared(two.node).slots_in_use == 0)


def test_subscription_of_the_same_process_gets_it_beside_others() -> None:
    with pair() as two:
        two.warm_up()
        subscription = two.node.subscribe("/x")
        for value in range(1, 10):
            loan = two.publisher.loan(MIB)
            numpy.frombuffer(loan.view, numpy.uint8)[:] = value
            two.publisher.publish(loan)
            assert two.actor.hear()[1:] == [MIB, value, value]
            [payload] = payloads(take(subscription, 1))
            assert payload == bytes([value]) * MIB
            with pytest.raises(TypeError):
                payload[0] = 1
        held = payload
        for value in range(20, 40):
            two.publish(two.publisher.loan(MIB), value)
        assert held == bytes([9]) * MIB


def test_late_subscriber_gets_loans_that_the_history_keeps() -> None:
    with pair(history=2) as two:
        two.warm_up()
        for value in range(1, 30):
            two.publish(two.publisher.loan(MIB), value)
        [channel] = two.node.channels
        place = Place(channel.channel.group, channel.channel.port, two.node.domain)
        with place.open("late", links=NEAR) as late:
            kept = payloads(take(late.subscribe("/x", history=True), 2))
        assert [(len(one), one[0], one[-1]) for one in kept] == [(MIB, 28, 28), (MIB, 29, 29)]


def test_published_loan_is_over() -> None:
    with pair() as two:
        two.warm_up()
        for size_bytes in (MIB, 100):
            loan = two.publisher.loan(size_bytes)
            view = loan.view
            two.publisher.publish(loan)
            two.actor.hear()
            with pytest.raises(ValueError, match="released"):
                view[0] = 1
            with pytest.raises(hubbub.ClosedError, match="published already"):
                two.publisher.publish(loan)
            with pytest.raises(hubbub.ClosedError, match="published already"):
                _ = loan.view
            loan.cancel()


@pytest.mark.parametrize("size_bytes", [MIB, 1000])
@pytest.mark.parametrize("lead", [lambda view: numpy.frombuffer(view, "u1"), lambda view: view[:9]])
def test_loan_that_an_array_or_slice_still_leads_to_is_refused(size_bytes: int, lead: Any) -> None:
    with pair() as two:
        two.warm_up()
        loan = two.publisher.loan(size_bytes)
        held = lead(loan.view)
        with pytest.raises(hubbub.PayloadError, match="still held"):
            two.publisher.publish(loan)
        held[0] = 5  # It is as good as before.
        del held
        assert two.publish(loan, 6)[1:] == [size_bytes, 6, 6]


def test_cancelled_and_forgotten_loans_are_given_back() -> None:
    with pair() as two:
        two.warm_up()
        wait_until(lambda: shared(two.node).slots_in_use <= 1)
        before = shared(two.node).slots_in_use
        loans = [two.publisher.loan(MIB) for _ in range(4)]
        assert shared(two.node).slots_in_use == before + 4
        loans.pop().cancel()
        with loans.pop() as loan:
            array = numpy.frombuffer(loan.view, numpy.uint8)
        with pytest.raises(hubbub.ClosedError, match="cancelled"):
            _ = loan.view
        assert shared(two.node).slots_in_use == before + 3, "the array keeps its memory"
        del array, loan
        cycle: list[Any] = [loans.pop()]
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert shared(two.node).slots_in_use == before + 1
        loans.clear()
        assert shared(two.node).slots_in_use == before


def test_more_than_may_be_lent_is_ordinary_memory() -> None:
    with pair() as two:
        two.warm_up()
        loans = [two.publisher.loan(16 * MIB) for _ in range(LOANS_BYTES_MAX // (16 * MIB) + 2)]
        assert [loan.is_shared for loan in loans][-2:] == [False, False]
        assert sum(loan.is_shared for loan in loans) >= 2
        for value, loan in enumerate(loans, 1):
            assert two.publish(loan, value)[1:] == [16 * MIB, value, value]


def test_node_closes_with_open_loans_whose_memory_stays() -> None:
    with pair() as two:
        two.warm_up()
        loan = two.publisher.loan(MIB)
        array = numpy.frombuffer(loan.view, numpy.uint8)
        two.node.close()
        array[:] = 3
        loan.view[0] = 4
        del array
        with pytest.raises(hubbub.ClosedError):
            two.publisher.publish(loan)
        with pytest.raises(hubbub.ClosedError):
            two.publisher.loan(MIB)
        loan.cancel()


@pytest.mark.parametrize("size_bytes", [0, -1, (1 << 30) + 1, 1.5, "1", True, None])
def test_loan_of_no_size_is_refused_with_the_bound(size_bytes: Any) -> None:
    with fresh_place().open("p") as node:
        publisher = node.publisher("/x")
        bound = node.settings.message_bytes
        wanted = bound + 1 if size_bytes == (1 << 30) + 1 else size_bytes
        with pytest.raises(hubbub.HubbubError, match=f"{wanted!r} bytes.*from 1 to.*{bound}"):
            publisher.loan(wanted)


def test_typed_publisher_lends_nothing_and_takes_no_loan() -> None:
    with fresh_place().open("p") as node:
        typed = node.publisher("/typed", type=int)
        with pytest.raises(hubbub.PayloadError, match="without a type"):
            typed.loan(100)
        loan = node.publisher("/x").loan(100)
        with pytest.raises(hubbub.PayloadError, match="without a type"):
            typed.publish(loan)
        loan.view[:] = bytes(100)


def test_loan_of_a_node_without_receivers_is_published_to_nobody() -> None:
    with fresh_place().open("p") as node:
        publisher = node.publisher("/x")
        loan = publisher.loan(MIB)
        assert not loan.is_shared and len(loan) == MIB and "ordinary" in repr(loan)
        assert publisher.publish(loan) == 0
        assert "published" in repr(loan)


def test_another_publisher_may_publish_a_loan() -> None:
    with pair() as two:
        two.warm_up()
        loan = two.publisher.loan(MIB)
        other = two.node.publisher("/y")
        heard = two.node.subscribe("/y")
        loan.view[:3] = b"abc"
        other.publish(loan)
        [payload] = payloads(take(heard, 1))
        assert bytes(payload[:3]) == b"abc"


def test_loan_means_nothing_in_a_forked_child_and_stays_good_in_the_parent() -> None:
    with pair() as two:
        two.warm_up()
        loan = two.publisher.loan(MIB)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            refusals = 0
            for attempt in (
                lambda: loan.view, lambda: two.publisher.publish(loan),
                lambda: two.publisher.loan(MIB),
            ):  # fmt: skip
                try:
                    attempt()
                except hubbub.ClosedError:
                    refusals += 1
            loan.cancel()
            del loan
            gc.collect()
            os.write(writing, b"%d" % refusals)
            os._exit(0)
        os.close(writing)
        assert os.read(reading, 10) == b"3"
        os.close(reading)
        os.waitpid(pid, 0)
        assert two.publish(loan, 9) == ["memoryview", MIB, 9, 9]


def test_loans_are_written_and_published_by_many_threads() -> None:
    with pair() as two:
        two.warm_up()

        def publish(value: int) -> None:
            for _ in range(20):
                with two.publisher.loan(MIB) as loan:
                    numpy.frombuffer(loan.view, numpy.uint8)[:] = value
                    two.publisher.publish(loan)

        threads = [threading.Thread(target=publish, args=(value,)) for value in (1, 2, 3)]
        for thread in threads:
            thread.start()
        said = [two.actor.hear() for _ in range(60)]
        for thread in threads:
            thread.join()
        assert all(low == high for _, _, low, high in said)
        assert sorted(low for _, _, low, _ in said) == sorted([1, 2, 3] * 20)
