"""How nodes end: callbacks that misbehave, closing, signals, forks, interpreter exit; no hang."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import hubbub
from hubbub import CallbackFailed, Closed, ClosedError, ConfigurationError, Node, Subscription
from tests.integration.bus import (
    DEADLINE_S,
    ROOT,
    Events,
    Place,
    acting,
    descriptors,
    fresh_place,
    hear,
    payloads,
    say,
    take,
    wait_until,
)

COUNT = 50


@pytest.mark.parametrize("inline", [False, True], ids=["pool", "inline"])
@pytest.mark.parametrize("deed", ["raise", "unsubscribe", "publish", "close"])
def test_callback_that_misbehaves_leaves_others_unaffected(deed: str, inline: bool) -> None:
    place, events = fresh_place(), Events()
    seen: list[int] = []
    with place.open("p") as sender, place.open("s") as bystander:
        guilty = place.open("guilty", on_event=events)
        box: dict[str, Any] = {}

        def misbehave(message: Any) -> None:
            seen.append(int(message.payload))
            deeds: dict[str, Callable[[], object]] = {
                "raise": lambda: 1 / 0,
                "unsubscribe": lambda: box["subscription"].close(),
                "publish": lambda: guilty.publish("/echo", message.payload),
                "close": guilty.close,
            }
            deeds[deed]()

        echoes = bystander.subscribe("/echo")
        others = bystander.subscribe("/x", queue=10 * COUNT)
        own = guilty.subscribe("/x", queue=10 * COUNT)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(2, 10)
        box["subscription"] = guilty.subscribe("/x", misbehave, inline=inline)
        for number in range(COUNT):
            publisher.publish(b"%d" % number)
        assert payloads(take(others, COUNT)) == [b"%d" % n for n in range(COUNT)]
        if deed == "close":
            wait_until(lambda: guilty.is_closed and events.of(Closed))
            assert len(list(own)) <= COUNT  # What was queued, and then the iteration ends.
        else:
            assert payloads(take(own, COUNT)) == [b"%d" % n for n in range(COUNT)]
        if deed == "raise":
            wait_until(lambda: len(events.of(CallbackFailed)) == COUNT)
            assert isinstance(events.of(CallbackFailed)[0].error, ZeroDivisionError)
        elif deed == "unsubscribe":
            wait_until(lambda: box["subscription"].is_closed)
            assert len(seen) == 1
        elif deed == "publish":
            assert payloads(take(echoes, COUNT)) == [b"%d" % n for n in range(COUNT)]
        guilty.close()


def test_callback_that_blocks_holds_up_nobody_else() -> None:
    place, release = fresh_place(), threading.Event()
    with place.open("p") as sender, place.open("s") as node:
        heard: list[bytes] = []
        stuck = node.subscribe("/x", lambda message: release.wait(DEADLINE_S), queue=4)
        node.subscribe("/x", lambda message: heard.append(message.payload))
        read = node.subscribe("/x")
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for number in range(COUNT):
            publisher.publish(b"%d" % number)
        assert payloads(take(read, COUNT)) == [b"%d" % n for n in range(COUNT)]
        wait_until(lambda: len(heard) == COUNT)
        assert stuck.pending <= 4 and stuck.dropped >= COUNT - 6
        release.set()


def test_pending_is_right_inside_the_callback() -> None:
    place, gate = fresh_place(), threading.Event()
    seen: list[int] = []
    with place.open("n") as node:

        def look(message: Any) -> None:
            gate.wait(DEADLINE_S)
            seen.append(box[0].pending)

        box = [node.subscribe("/x", look)]
        publisher = node.publisher("/x")
        for _ in range(4):
            publisher.publish(b"")
        assert node.flush(10)
        wait_until(lambda: box[0].received == 4)
        gate.set()
        wait_until(lambda: len(seen) == 4)
    assert seen == [3, 2, 1, 0]


def test_callback_sees_its_own_messages_behind_the_one_being_delivered() -> None:
    place = fresh_place()
    seen: list[str] = []
    with place.open("n") as node:

        def relay(message: Any) -> None:
            seen.append("begin " + message.payload.decode())
            if message.payload == b"first":
                node.publish("/x", b"second")
            seen.append("end " + message.payload.decode())

        node.subscribe("/x", relay, inline=True)
        node.publish("/x", b"first")
        wait_until(lambda: len(seen) == 4)
    assert seen == ["begin first", "end first", "begin second", "end second"]


def test_close_twice_and_everything_else_afterwards() -> None:
    events = Events()
    node = fresh_place().open("n", on_event=events)
    publisher = node.publisher("/x")
    bound = publisher.publish
    subscription = node.subscribe("/x")
    publisher.publish(b"kept")
    wait_until(lambda: subscription.pending)
    node.close()
    node.close()
    assert node.is_closed and "closed" in repr(node)
    assert len(events.of(Closed)) == 1
    assert payloads(list(subscription)) == [b"kept"]  # What was queued can still be read.
    uses: list[Callable[[], object]] = [
        lambda: publisher.publish(b""),
        lambda: bound(b""),
        lambda: node.publish("/x", b""),
        lambda: node.publisher("/y"),
        lambda: node.subscribe("/y"),
        lambda: node.connect(hubbub.Channel("239.1.2.3", 4)),
        lambda: node.flush(1),
        lambda: subscription.receive(0),
        lambda: subscription.add("/y"),
    ]
    for use in uses:
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_closing_ends_the_wait_of_other_threads() -> None:
    node = fresh_place().open("n")
    publisher, subscription = node.publisher("/x"), node.subscribe("/y")
    answers: list[Any] = []
    waits: list[Callable[[], object]] = [
        lambda: answers.append(publisher.wait_for_subscribers(1)),
        lambda: answers.extend(subscription),
    ]
    threads = [threading.Thread(target=wait) for wait in waits]
    for thread in threads:
        thread.start()
    lead = node._loop._thread._lead  # type: ignore[union-attr]
    # One of them runs the loop, the other waits for it.
    waiting = publisher._driver.changes, subscription._waiters
    wait_until(lambda: lead.is_wanted and any(one.waiting for one in waiting))
    node.close()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert answers == [False]


def test_closing_ends_a_wait_that_runs_the_loop_though_other_nodes_go_on() -> None:
    place, answers = fresh_place(), []
    with place.open("other"):
        node = place.open("n")
        publisher = node.publisher("/x")
        wait = threading.Thread(target=lambda: answers.append(publisher.wait_for_subscribers(1)))
        wait.start()
        wait_until(lambda: node._loop._thread._lead.is_wanted)  # type: ignore[union-attr]
        node.close()
        wait.join(10)
        assert not wait.is_alive() and answers == [False]


def test_closed_publisher_refuses_and_its_twin_goes_on() -> None:
    with fresh_place().open("n") as node:
        subscription = node.subscribe("/x")
        one, two = node.publisher("/x"), node.publisher("/x")
        one.close()
        one.close()
        with pytest.raises(ClosedError, match="/x"):
            one.publish(b"")
        two.publish(b"still here")
        assert payloads(take(subscription, 1)) == [b"still here"]


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "hubbub" in thread.name]


def test_no_thread_and_no_descriptor_is_left() -> None:
    place = fresh_place()
    wait_until(lambda: not own_threads())  # Of the tests before.
    before = descriptors()
    for _ in range(3):
        with place.open("a") as one, place.open("b") as two:
            two.subscribe("/x", lambda message: None)
            subscription = two.subscribe("/x")
            publisher = one.publisher("/x")
            assert publisher.wait_for_subscribers(1, 10)
            publisher.publish(bytes(200_000))
            take(subscription, 1)
    wait_until(lambda: not own_threads(), 5)
    assert not descriptors() - before


def iterate_for_ever(place: list[Any]) -> None:
    """Block in an iteration until Ctrl-C."""
    with Place(*place).open("iterator") as node:
        subscription = node.subscribe("/never")
        try:
            say("ready")
            for _ in subscription:
                pass
        except KeyboardInterrupt:
            say("interrupted")
    say("closed")


def test_ctrl_c_in_a_blocking_iteration_ends_cleanly() -> None:
    with acting(iterate_for_ever, fresh_place()) as actor:
        assert actor.hear() == "ready"
        actor.signal(signal.SIGINT)
        assert actor.hear(5) == "interrupted"
        assert actor.hear(5) == "closed"
        assert actor.ends(5) == 0, actor.errors
        assert actor.errors == ""


PREAMBLE = """
import asyncio, threading, time, hubbub
node = hubbub.open("n", interface="127.0.0.1", domain="{domain}")
node.publisher("/x").publish(b"x")
"""
EXITS = {
    "sync": "node.subscribe('/x')",
    "callbacks": "node.subscribe('/x', print)\nfor n in range(1000): node.publish('/x', b'%d' % n)",
    "blocked callback": "node.subscribe('/x', lambda m: time.sleep(99))\nnode.publish('/x', b'')",
    "reader in a thread": """
        subscription = node.subscribe('/never')
        threading.Thread(target=lambda: list(subscription), daemon=True).start()
    """,
    "asyncio": """
        async def main():
            task = asyncio.create_task(anext(node.subscribe('/never')))
            await asyncio.sleep(0.05)
            return task
        asyncio.run(main())
    """,
    "publisher in a thread": """
        node.subscribe('/x')
        def publish():
            while True: node.publish('/x', b'')
        threading.Thread(target=publish, daemon=True).start()
    """,
    "two nodes": "other = hubbub.open(interface='127.0.0.1', domain='{domain}')",
    "an error": "raise SystemExit(3)",
}


@pytest.mark.parametrize("name", EXITS)
def test_interpreter_exit_with_open_nodes_never_hangs(name: str) -> None:
    script = PREAMBLE + textwrap.dedent(EXITS[name])
    script = script.replace("{domain}", fresh_place().domain)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=20,
        check=False,
    )  # fmt: skip
    assert done.returncode == (3 if name == "an error" else 0), done.stderr
    quiet = [line for line in done.stderr.splitlines() if "ClosedError" not in line]
    assert name == "publisher in a thread" or quiet == [], done.stderr


def fork_and_look(place: list[Any]) -> None:
    """Fork with an open node; the child tries to use it, then opens one of its own."""
    node = Place(*place).open("parent")
    inbox = node.subscribe("/to/parent")
    node.subscribe("/other", lambda message: None)
    publisher = node.publisher("/from/parent")
    assert publisher.wait_for_subscribers(1, 30)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, "\n".join(child_findings(place, node, inbox, publisher)).encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reader) as pipe:
        say([status, pipe.read().splitlines()])
    publisher.publish(b"still here")
    say([message.payload.decode() for message in take(inbox, 1)])
    node.close()


def child_findings(place: list[Any], node: Node, inbox: Subscription, publisher: Any) -> list[str]:
    bound = publisher.publish
    uses: dict[str, Callable[[], object]] = {
        "publish": lambda: publisher.publish(b""),
        "bound": lambda: bound(b""),
        "large": lambda: publisher.publish(bytes(1 << 20)),
        "shortcut": lambda: node.publish("/y", b""),
        "subscribe": lambda: node.subscribe("/y"),
        "publisher": lambda: node.publisher("/y"),
        "receive": lambda: inbox.receive(5),
        "flush": lambda: node.flush(5),
    }
    found = []
    for name, use in uses.items():
        try:
            found.append(f"{name}: {use()!r}")
        except ClosedError:
            found.append(f"{name}: ClosedError")
    node.close()
    with Place(*place).open("child") as own:
        subscription = own.subscribe("/own")
        own.publish("/own", b"works")
        found.append(f"own: {take(subscription, 1)[0].payload.decode()}")
    return found


def test_forked_child_is_refused_and_the_parent_goes_on() -> None:
    place = fresh_place()
    with place.open("peer") as peer, acting(fork_and_look, place) as actor:
        subscription = peer.subscribe("/from/parent")
        publisher = peer.publisher("/to/parent")
        assert publisher.wait_for_subscribers(1, 10)
        status, found = actor.hear()
        assert status == 0
        assert [line for line in found if not line.endswith("ClosedError")] == ["own: works"]
        assert len(found) == 9
        assert payloads(take(subscription, 1)) == [b"still here"]
        publisher.publish(b"back")
        assert actor.hear() == ["back"]
        assert actor.ends() == 0, actor.errors


def receive_all(place: list[Any], count: int) -> None:
    with Place(*place).open("receiver") as node:
        subscription = node.subscribe("/x", queue=count + 1)
        say("ready")
        messages = take(subscription, count)
        say([int(message.payload) for message in messages] == list(range(count)))
        hear()


def test_killed_subscriber_hurts_nobody() -> None:
    place, count = fresh_place(), 3_000
    with (
        acting(receive_all, place, count) as survivor,
        acting(receive_all, place, count * 10) as victim,
        place.open("p", heartbeat_ms=100, peer_timeout_ms=500, repair_window_ms=500) as node,
    ):
        assert survivor.hear() == victim.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(2, 10)
        for number in range(count):
            if number == count // 3:
                victim.signal(signal.SIGKILL)
            publisher.publish(b"%d" % number)
        assert survivor.hear() is True
        wait_until(lambda: publisher.receivers == 1)  # Once nothing more is owed to the dead.


@pytest.mark.parametrize("linger", [{}, {"linger_ms": 300}], ids=["of the node", "of close"])
def test_close_returns_in_bounded_time_though_nobody_answers(linger: dict[str, float]) -> None:
    place = fresh_place()
    with acting(receive_all, place, 10) as actor:
        node = place.open("p", linger_ms=60_000 if linger else 300)
        assert actor.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        actor.signal(signal.SIGSTOP)
        publisher.publish(b"never acknowledged")
        before_s = time.monotonic()
        node.close(**linger)
        assert time.monotonic() - before_s < 2.0
        actor.signal(signal.SIGCONT)


@pytest.mark.parametrize("linger_ms", ["x", -1, float("nan"), float("inf"), True])
def test_close_that_cannot_be_meant_is_refused_and_nothing_is_closed(linger_ms: Any) -> None:
    """A node had been closed for its application, and open for all others."""
    with fresh_place().open("n") as node:
        subscription = node.subscribe("/x")
        for part in (node, node.channels[0]):
            with pytest.raises(ConfigurationError, match=r"linger_ms=.*: give milliseconds"):
                part.close(linger_ms)
        assert not node.is_closed and node.publish("/x", b"still here") == 1
        assert payloads(take(subscription, 1)) == [b"still here"]
