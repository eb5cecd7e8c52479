"""A reader that runs the loop itself: what it sees, who takes over, and how it ends."""

import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from hubbub.limits import SECOND
from hubbub.runtime import lateness, lead
from hubbub.runtime.loop import Loop
from tests.integration.bus import fresh_place
from tests.integration.probe import PATIENCE_S, Probe, Reader


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop with one subscription, so that its reader may lead."""
    loop = Loop()
    loop.subscriptions.add(Reader())
    yield loop
    loop.close_at_exit()
    assert loop.statistics().attachments == 0


def deadline(seconds: float = PATIENCE_S) -> int:
    return time.monotonic_ns() + int(seconds * SECOND)


def send_soon(outside: socket.socket, data: bytes, seconds: float = 0.05) -> threading.Timer:
    timer = threading.Timer(seconds, outside.send, (data,))
    timer.start()
    return timer


def test_a_reader_serves_what_comes_in_its_own_thread(loop: Loop, probe: Probe) -> None:
    served_by: list[tuple[int, bool]] = []
    probe.on_readable = lambda: served_by.append((threading.get_ident(), loop.is_loop_thread()))
    timer = send_soon(probe.outside, b"1")
    assert loop.lead_until(lambda: bool(probe.received), deadline())
    timer.join()
    assert probe.received == [b"1"]
    assert served_by == [(threading.get_ident(), True)]
    assert not loop.is_loop_thread()


def test_a_deadline_moved_between_two_turns_of_a_reader_is_asked_for(
    loop: Loop, probe: Probe
) -> None:
    other = Probe()
    loop.attach(other)
    probe.is_apart = True

    def exchange(count: int) -> None:
        probe.outside.send(b"x")
        assert loop.lead_until(lambda: len(probe.received) >= count, deadline())

    for number in (1, 2, 3):
        exchange(number)
    asked = other.asked
    loop.wake_by(time.monotonic_ns() + SECOND)  # Far away, and nobody waits: nobody is woken.
    exchange(4)
    assert other.asked > asked
    loop.detach(other)
    other.close()


@pytest.mark.parametrize("by", ["advance", "call"])
def test_a_reader_does_not_wait_on_once_what_is_due_has_brought_its_message(
    loop: Loop, probe: Probe, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the ticks that end every wait: these hid it but for 10 to 50 ms.
    monkeypatch.setattr(lateness, "LATENESS_TICK", int(2 * PATIENCE_S * SECOND))
    brought: list[int] = []
    soon_ns = deadline(0.2)
    if by == "call":
        loop.call_at(soon_ns, lambda: brought.append(threading.get_ident()))
    else:
        probe.on_advance = lambda: brought.append(threading.get_ident())
        probe.deadline_ns = soon_ns
        loop.wake()
    before = time.monotonic()
    assert loop.lead_until(lambda: bool(brought), deadline())
    assert brought == [threading.get_ident()], "who was to take it led"
    assert time.monotonic() - before < PATIENCE_S / 2, "it came long before the deadline"


def test_after_a_reader_has_gone_the_io_thread_serves(loop: Loop, probe: Probe) -> None:
    assert loop.lead_until(lambda: True, None)
    served_by: list[int] = []
    probe.on_readable = lambda: served_by.append(threading.get_ident())
    probe.outside.send(b"1")
    probe.wait()
    assert served_by != [threading.get_ident()]


def test_a_reader_that_gets_on_with_what_it_has_may_be_away_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class GettingOn(Reader):
        """Each look at it finds one message less."""

        pending = property(lambda self: next(self._counts), lambda self, _: None)
        _counts = count(1 << 30, -1)

    monkeypatch.setattr(lead, "LEAD_PATIENCE_MAX", int(0.2 * SECOND))
    loop, probe = Loop(), Probe()
    loop.subscriptions.add(GettingOn())
    loop.attach(probe)
    try:
        assert loop.lead_until(lambda: True, None)
        before = time.monotonic()
        probe.outside.send(b"1")
        probe.wait()
        assert time.monotonic() - before >= 0.19, "not before all patience has come to its end"
    finally:
        loop.detach(probe)
        probe.close()


def test_a_reader_that_comes_back_at_once_keeps_the_lead(loop: Loop, probe: Probe) -> None:
    served_by: list[int] = []
    probe.on_readable = lambda: served_by.append(threading.get_ident())
    for number in range(1, 201):
        probe.outside.send(b"x")
        assert loop.lead_until(lambda number=number: len(served_by) >= number, deadline())
    # A busy machine may keep the reader away for a millisecond now and then.
    assert served_by.count(threading.get_ident()) > 100


def test_a_reader_returns_at_its_deadline(loop: Loop, probe: Probe) -> None:
    before = time.monotonic()
    assert loop.lead_until(lambda: False, deadline(0.05))
    assert 0.05 <= time.monotonic() - before < PATIENCE_S


def test_deadlines_are_met_while_a_reader_leads(loop: Loop, probe: Probe) -> None:
    probe.deadline_ns = deadline(0.02)
    assert loop.lead_until(lambda: bool(probe.advanced), deadline())
    assert len(probe.advanced) == 1


def test_what_another_thread_asks_for_is_done_by_the_reader_that_leads(
    loop: Loop, probe: Probe
) -> None:
    called: list[int] = []
    timer = threading.Timer(0.05, loop.call_soon, (lambda: called.append(threading.get_ident()),))
    timer.start()
    assert loop.lead_until(lambda: bool(called), deadline())
    timer.join()
    assert called == [threading.get_ident()]


def test_who_needs_the_loop_does_not_wait_for_a_reader_that_is_away(
    loop: Loop, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.runtime.lead.LEAD_PATIENCE", 3600 * SECOND)
    assert loop.lead_until(lambda: True, None)
    called = threading.Event()
    loop.call_soon(called.set)
    assert called.wait(PATIENCE_S)
    assert loop.lead_until(lambda: True, None)
    loop.need()
    probe.outside.send(b"1")
    probe.wait()


def test_a_second_reader_is_told_to_wait(loop: Loop, probe: Probe) -> None:
    is_over = threading.Event()
    results: list[bool] = []
    first = threading.Thread(
        target=lambda: results.append(loop.lead_until(is_over.is_set, deadline()))
    )
    entered = threading.Event()
    loop.call_soon(entered.set)
    assert entered.wait(PATIENCE_S)
    first.start()
    while loop.lead_until(lambda: True, None):
        time.sleep(0.001)  # Until the first has asked.
    is_over.set()
    loop.wake()
    first.join(PATIENCE_S)
    assert results == [True]


def test_nobody_leads_where_others_read_too(loop: Loop, probe: Probe) -> None:
    loop.subscriptions.add(Reader())
    assert not loop.lead_until(lambda: True, None)


def test_a_callback_of_the_reader_that_leads_cannot_lead_again(loop: Loop, probe: Probe) -> None:
    results: list[bool] = []
    probe.on_readable = lambda: results.append(loop.lead_until(lambda: True, None))
    probe.outside.send(b"1")
    assert loop.lead_until(lambda: bool(results), deadline())
    assert results == [False]


def test_a_reader_that_leads_returns_when_the_last_attachment_leaves() -> None:
    loop, probe = Loop(), Probe()
    loop.subscriptions.add(Reader())
    loop.attach(probe)
    timer = threading.Timer(0.05, loop.detach, (probe,))
    timer.start()
    before = time.monotonic()
    assert loop.lead_until(lambda: False, deadline())
    assert time.monotonic() - before < PATIENCE_S
    timer.join(PATIENCE_S)
    assert not timer.is_alive()
    probe.close()


def test_an_exception_of_what_is_waited_for_gives_the_lead_back(loop: Loop, probe: Probe) -> None:
    def fail() -> bool:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        loop.lead_until(fail, None)
    probe.outside.send(b"1")
    probe.wait()


def test_what_another_thread_publishes_here_wakes_a_reader_that_leads() -> None:
    with fresh_place().open("n") as node:
        subscription, publisher = node.subscribe("/x"), node.publisher("/x")
        waits_s: list[float] = []
        for _ in range(10):
            sent_s: list[float] = []

            def publish(sent_s: list[float] = sent_s) -> None:
                time.sleep(0.02)
                sent_s.append(time.monotonic())
                publisher.publish(b"x")

            thread = threading.Thread(target=publish)
            thread.start()
            assert subscription.receive(timeout=PATIENCE_S) is not None
            waits_s.append(time.monotonic() - sent_s[0])
            thread.join()
        # Without a wake-up it would be the next tick of the loop, 50 ms later on average.
        assert sorted(waits_s)[5] < 0.02


def test_inline_callbacks_stay_on_the_io_thread_though_a_reader_leads() -> None:
    place = fresh_place()
    with place.open("n") as node:
        reading = node.subscribe("/x")
        reader = threading.Thread(target=lambda: list(reading))
        reader.start()
        time.sleep(0.05)
        names: list[str] = []
        node.subscribe("/y", lambda _: names.append(threading.current_thread().name), inline=True)
        with place.open("other") as other:
            publisher = other.publisher("/y")
            assert publisher.wait_for_subscribers(1, PATIENCE_S)
            publisher.publish(b"y")
            deadline_s = time.monotonic() + PATIENCE_S
            while not names and time.monotonic() < deadline_s:
                time.sleep(0.001)
        reading.close()
        reader.join(PATIENCE_S)
        assert names == ["hubbub-io"]


def test_a_reader_does_not_wait_longer_than_its_timeout_for_the_lead(
    loop: Loop, probe: Probe
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        leave.wait(PATIENCE_S)

    loop.call_soon(block)
    assert entered.wait(PATIENCE_S)
    before = time.monotonic()
    assert loop.lead_until(lambda: False, deadline(0.1))
    assert time.monotonic() - before < PATIENCE_S / 2
    leave.set()
    probe.outside.send(b"1")
    probe.wait()


def test_what_a_signal_handler_raises_reaches_the_program() -> None:
    program = textwrap.dedent(
        """
        import signal, sys, hubbub
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(7))
        node = hubbub.open("reader", interface="127.0.0.1", domain="test-sigalrm")
        subscription = node.subscribe("/a")
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        subscription.receive()
        """
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S, check=False)
    assert done.returncode == 7


def test_a_signal_handler_may_close_the_node_its_thread_is_reading_from() -> None:
    program = textwrap.dedent(
        """
        import os, signal, threading, hubbub
        from hubbub.protocol.core import Core
        node = hubbub.open("reader", interface="127.0.0.1", domain="test-handler")
        signal.signal(signal.SIGTERM, lambda *_: node.close(linger_ms=100))
        subscription = node.subscribe("/a")
        advance = Core.advance
        def interrupted(self, now):
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGTERM)
            advance(self, now)
        Core.advance = interrupted
        for message in subscription: pass
        print("closed")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=PATIENCE_S, check=False, capture_output=True
    )
    assert (done.stdout, done.returncode) == (b"closed\n", 0), done.stderr


@pytest.mark.parametrize("delay_s", [0.0, 0.0003, 0.001, 0.003, 0.01, 0.3])
def test_ctrl_c_ends_a_reader_that_leads_and_the_node_still_closes(delay_s: float) -> None:
    program = textwrap.dedent(
        """
        import hubbub, time
        node = hubbub.open("reader", interface="127.0.0.1", domain="test-ctrl-c")
        subscription = node.subscribe("/a")
        try:
            print("ready", flush=True)
            subscription.receive()
        except KeyboardInterrupt:
            before = time.monotonic()
            node.close()
            print("closed", time.monotonic() - before < 2, flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay_s)  # On its way to the lead, or in it.
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, errors, process.returncode) == ("closed True\n", "", 0)
