"""The I/O thread with real descriptors, real time, forks and the end of the interpreter."""

import contextlib
import os
import select
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hubbub.errors import ClosedError
from hubbub.limits import MS, SECOND, STARVED_MS
from hubbub.runtime import lateness
from hubbub.runtime.loop import Loop, shared
from hubbub.runtime.poller import READABLE, WRITABLE, EpollPoller, Poller, SelectorPoller
from hubbub.runtime.timer import open_timer
from tests.integration.bus import descriptors, wait_until
from tests.integration.probe import PATIENCE_S, Probe

# Since 3.12 Python warns of forking beside threads; that it is survived is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop of the test's own, which must leave no thread behind."""
    loop = Loop()
    yield loop
    loop.close_at_exit()
    assert loop.statistics().attachments == 0


@pytest.fixture
def no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the regular look at the clock from hiding a wake-up that was lost."""
    monkeypatch.setattr(lateness, "LATENESS_TICK", 3600 * SECOND)


def io_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hubbub-io"]


def new_threads(before: list[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in io_threads() if thread not in before]


# Serving.


def test_what_arrives_is_read_on_the_io_thread(loop: Loop, probe: Probe) -> None:
    threads: list[bool] = []
    probe.on_readable = lambda: threads.append(loop.is_loop_thread())
    probe.outside.send(b"hello")
    wait_until(lambda: probe.received == [b"hello"])  # It may be asked for what is due before.
    loop.detach(probe)
    assert threads == [True]
    assert not loop.is_loop_thread()


def test_a_deadline_is_met_after_it_has_come(loop: Loop, probe: Probe) -> None:
    deadline_ns = time.monotonic_ns() + 3 * MS
    probe.deadline_ns = deadline_ns
    loop.wake()
    probe.wait()
    assert probe.advanced[0] >= deadline_ns


def test_a_deadline_that_moves_closer_is_met_after_a_wake_up(loop: Loop, probe: Probe) -> None:
    probe.deadline_ns = time.monotonic_ns() + 3600 * SECOND
    loop.wake()
    probe.deadline_ns = time.monotonic_ns() + MS
    loop.wake()
    probe.wait()


def test_who_keeps_to_itself_has_nobody_else_asked_for_a_deadline(
    no_tick: None, loop: Loop, probe: Probe
) -> None:
    apart = Probe()
    apart.is_apart = True
    loop.attach(apart)
    for _ in range(2):  # After the second, the wake-up by attaching is dealt with.
        exchange(apart)
    asked, asked_apart = probe.asked, apart.asked
    for _ in range(5):
        exchange(apart)
    assert probe.asked == asked
    assert apart.asked >= asked_apart + 4
    exchange(probe)  # What this one does may move the deadline of any.
    exchange(probe)
    assert probe.asked > asked
    loop.detach(apart)
    apart.close()


def exchange(probe: Probe) -> None:
    probe.outside.send(b"x")
    probe.wait()


def test_a_deadline_that_another_moved_is_met(no_tick: None, loop: Loop, probe: Probe) -> None:
    other = Probe()
    loop.attach(other)

    def move() -> None:
        other.deadline_ns = 1

    probe.on_readable = move
    probe.outside.send(b"x")
    other.wait()
    assert other.advanced
    loop.detach(other)
    other.close()


def test_wake_ups_are_never_lost(no_tick: None, loop: Loop, probe: Probe) -> None:
    for _ in range(300):
        probe.deadline_ns = 1
        loop.wake()
        probe.wait()


def test_a_wake_up_just_before_the_wait_is_not_lost(
    no_tick: None, loop: Loop, probe: Probe
) -> None:
    class Late(Probe):
        def deadline(self) -> int | None:
            if self.received and not probe.advanced:
                probe.deadline_ns = 1  # Asked before; only the wake-up makes it asked again.
                loop.wake()
            return None

    late = Late()
    loop.attach(late)
    late.outside.send(b"x")
    probe.wait()
    loop.detach(late)
    late.close()


def test_who_wants_to_be_served_again_at_once_is(no_tick: None, loop: Loop, probe: Probe) -> None:
    done = threading.Event()

    def again() -> None:
        if len(probe.advanced) < 5:
            probe.deadline_ns = 1
        else:
            done.set()

    probe.on_advance = again
    probe.deadline_ns = 1
    loop.wake()
    assert done.wait(PATIENCE_S)


def test_a_loop_with_nothing_to_do_does_not_spin(no_tick: None, loop: Loop, probe: Probe) -> None:
    probe.deadline_ns = time.monotonic_ns() + MS
    loop.wake()
    probe.wait()
    polls = loop.statistics().polls
    time.sleep(0.05)
    assert loop.statistics().polls <= polls + 2


def test_a_full_socket_is_told_when_it_takes_data_again(loop: Loop, probe: Probe) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            probe.inside.send(bytes(65536))
    fileno = probe.inside.fileno()
    probe.on_writable = lambda: loop.watch_writable(probe, fileno, False)
    loop.watch_writable(probe, fileno, True)
    assert not probe.happened.is_set()
    probe.outside.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            probe.outside.recv(1 << 20)
    probe.wait()


def test_calls_are_made_in_order_on_the_io_thread(loop: Loop, probe: Probe) -> None:
    made: list[tuple[int, bool]] = []
    done = threading.Event()

    def make(number: int) -> None:
        made.append((number, loop.is_loop_thread()))

    for number in range(100):
        loop.call_soon(partial(make, number))
    loop.call_soon(done.set)
    assert done.wait(PATIENCE_S)
    assert made == [(number, True) for number in range(100)]


def test_a_later_call_waits_for_its_time(loop: Loop, probe: Probe) -> None:
    order: list[str] = []
    done = threading.Event()

    def finish() -> None:
        order.append("later")
        done.set()

    def ask() -> None:  # On the thread itself, so that none can come due before all are asked for.
        loop.call_at(now + 20 * MS, finish)
        loop.call_at(now + 2 * MS, lambda: order.append("sooner"))
        loop.call_soon(lambda: order.append("now"))

    now = time.monotonic_ns()
    loop.call_soon(ask)
    assert done.wait(PATIENCE_S)
    assert time.monotonic_ns() >= now + 20 * MS
    assert order == ["now", "sooner", "later"]


def test_an_exception_is_counted_and_the_thread_goes_on(
    loop: Loop, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise SystemExit("a defect")

    other = Probe()
    loop.attach(other)
    probe.on_readable = fail
    for _ in range(3):
        probe.outside.send(b"x")
        probe.wait()
    other.outside.send(b"fine")
    other.wait()
    loop.detach(other)
    other.close()
    assert loop.statistics().failures == 3
    assert [record.name for record in caplog.records] == ["hubbub.runtime"]  # One a second.
    assert "a defect" in caplog.text


# Attaching and detaching.


def test_the_thread_and_its_descriptors_live_from_the_first_to_the_last() -> None:
    before, kept = io_threads(), descriptors()
    loop = Loop()
    first, second = Probe(), Probe()
    loop.attach(first)
    loop.attach(second)
    assert len(new_threads(before)) == 1
    loop.detach(first)
    assert len(new_threads(before)) == 1
    loop.detach(second)
    first.close()
    second.close()
    assert not new_threads(before) and not descriptors() - kept


def test_a_loop_left_by_all_serves_again(loop: Loop) -> None:
    for _ in range(20):
        probe = Probe()
        loop.attach(probe)
        probe.outside.send(b"again")
        probe.wait()
        loop.detach(probe)
        probe.close()


def test_after_detaching_no_method_is_called_any_more(loop: Loop) -> None:
    keeper = Probe()  # Keeps the thread alive and busy.
    loop.attach(keeper)
    for _ in range(200):
        probe = Probe()
        loop.attach(probe)
        probe.deadline_ns = 1
        probe.outside.send(b"x")
        loop.wake()
        loop.detach(probe)
        calls = (len(probe.received), len(probe.advanced))
        probe.deadline_ns = 1
        loop.wake()
        keeper.outside.send(b"x")
        keeper.wait()
        assert (len(probe.received), len(probe.advanced)) == calls
        probe.close()
    loop.detach(keeper)
    keeper.close()


def test_detaching_waits_for_the_method_that_runs(loop: Loop, probe: Probe) -> None:
    entered, may_go, detached = threading.Event(), threading.Event(), threading.Event()

    def linger() -> None:
        entered.set()
        assert may_go.wait(PATIENCE_S)

    def detach() -> None:
        assert loop.detach(probe, PATIENCE_S)
        detached.set()

    probe.on_readable = linger
    probe.outside.send(b"x")
    assert entered.wait(PATIENCE_S)
    leaving = threading.Thread(target=detach)
    leaving.start()
    assert not detached.wait(0.05)
    may_go.set()
    assert detached.wait(PATIENCE_S)
    leaving.join()


def test_a_method_that_never_returns_does_not_hang_detaching(loop: Loop, probe: Probe) -> None:
    entered, may_go = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        assert may_go.wait(PATIENCE_S)

    probe.on_readable = block
    probe.outside.send(b"x")
    assert entered.wait(PATIENCE_S)
    assert not loop.detach(probe, 0.01)
    other = Probe()  # And another thread serves whoever comes next.
    loop.attach(other)
    other.outside.send(b"x")
    other.wait()
    loop.detach(other)
    other.close()
    may_go.set()


def test_an_attachment_may_detach_itself_on_the_io_thread(loop: Loop, probe: Probe) -> None:
    done = threading.Event()

    def leave() -> None:
        assert loop.detach(probe)
        probe.deadline_ns = 1  # Would be due at once.
        done.set()

    probe.on_readable = leave
    probe.outside.send(b"x")
    assert done.wait(PATIENCE_S)
    loop.close_at_exit()
    assert probe.advanced == []


def test_an_attachment_that_leaves_while_writing_is_not_asked_to_read(
    loop: Loop, probe: Probe
) -> None:
    entered, may_go = threading.Event(), threading.Event()

    def block_once() -> None:
        entered.set()
        assert may_go.wait(PATIENCE_S)

    probe.on_readable = block_once
    probe.on_writable = lambda: loop.detach(probe)
    probe.outside.send(b"first")
    assert entered.wait(PATIENCE_S)
    probe.outside.send(b"second")  # From here on it is readable and writable at once.
    probe.happened.clear()
    loop.watch_writable(probe, probe.inside.fileno(), True)
    may_go.set()
    probe.wait()
    loop.close_at_exit()
    assert probe.received == [b"first"]


def test_detaching_twice_does_nothing(loop: Loop, probe: Probe) -> None:
    assert loop.detach(probe)
    assert loop.detach(probe)


def test_a_descriptor_that_cannot_be_waited_for_leaves_nothing_behind(loop: Loop) -> None:
    before, kept = io_threads(), descriptors()
    probe = Probe()
    probe.close()
    with pytest.raises(ValueError, match="descriptor"):
        loop.attach(probe)
    assert not new_threads(before) and not descriptors() - kept
    assert loop.statistics().attachments == 0


def test_a_descriptor_that_cannot_be_waited_for_disturbs_no_other(loop: Loop, probe: Probe) -> None:
    broken = Probe()
    broken.close()
    with pytest.raises(ValueError, match="descriptor"):
        loop.attach(broken)
    assert loop.statistics().attachments == 1
    probe.outside.send(b"x")
    probe.wait()


def test_calling_on_a_loop_without_attachments_is_refused(loop: Loop) -> None:
    with pytest.raises(ClosedError, match="no node is open"):
        loop.call_soon(print)


def test_threads_that_attach_and_detach_at_once_disturb_nobody(loop: Loop) -> None:
    failures: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(30):
                probe = Probe()
                loop.attach(probe)
                probe.outside.send(b"x")
                probe.wait()
                assert loop.detach(probe)
                probe.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# The interpreter's switch interval.


@pytest.fixture
def default_switch_interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield 0.005
    sys.setswitchinterval(before)


def test_the_switch_interval_is_lowered_and_put_back(
    loop: Loop, default_switch_interval: float
) -> None:
    first, second = Probe(), Probe()
    loop.attach(first)
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    loop.attach(second, switch_interval_ms=0.2)
    assert sys.getswitchinterval() == pytest.approx(0.0002)
    loop.detach(second)
    loop.detach(first)
    assert sys.getswitchinterval() == pytest.approx(default_switch_interval)
    first.close()
    second.close()


@pytest.mark.parametrize(("before_ms", "wanted_ms"), [(0.1, 0.5), (5.0, None)])
def test_the_switch_interval_is_never_raised_and_can_be_left_alone(
    loop: Loop, default_switch_interval: float, before_ms: float, wanted_ms: float | None
) -> None:
    sys.setswitchinterval(before_ms / 1000)
    probe = Probe()
    loop.attach(probe, switch_interval_ms=wanted_ms)
    assert sys.getswitchinterval() == pytest.approx(before_ms / 1000)
    loop.detach(probe)
    probe.close()


def test_a_value_the_application_has_set_meanwhile_stays(
    loop: Loop, default_switch_interval: float
) -> None:
    probe = Probe()
    loop.attach(probe)
    sys.setswitchinterval(0.002)
    loop.detach(probe)
    probe.close()
    assert sys.getswitchinterval() == pytest.approx(0.002)


# Starvation.


def test_a_thread_that_holds_the_interpreter_is_noticed_without_traffic(
    loop: Loop, default_switch_interval: float
) -> None:
    probe = Probe()
    loop.attach(probe, switch_interval_ms=None)
    sys.setswitchinterval(0.2)
    end = time.monotonic() + PATIENCE_S
    while not probe.late_ms and time.monotonic() < end:
        sum(range(1000))
    sys.setswitchinterval(default_switch_interval)
    loop.detach(probe)
    probe.close()
    assert probe.late_ms[0] > STARVED_MS
    assert loop.statistics().starved >= 1
    assert loop.statistics().late_ms_max >= probe.late_ms[0]


# Fork and exit.


def in_child(check: Callable[[], bool]) -> bool:
    """Run a check in a forked child, and return what it found."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_is_refused_by_what_the_parent_opened() -> None:
    probe = Probe()
    loop = shared()
    loop.attach(probe)

    def is_refused() -> bool:
        for call in (partial(loop.attach, Probe()), partial(loop.call_soon, print)):
            try:
                call()
            except ClosedError:
                continue
            return False
        loop.wake()
        return probe.has_forked and loop.detach(probe) and sys.getswitchinterval() == before_s

    before_s = 0.005
    assert in_child(is_refused)
    assert not probe.has_forked
    probe.outside.send(b"still here")
    probe.wait()
    loop.detach(probe)
    probe.close()


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    probe = Probe()
    shared().attach(probe)

    def works() -> bool:
        own = Probe()
        shared().attach(own)
        own.outside.send(b"child")
        own.wait()
        return shared().detach(own) and own.received == [b"child"]

    assert in_child(works)
    shared().detach(probe)
    probe.close()


def test_a_child_forked_while_another_thread_holds_the_lock_is_not_stuck() -> None:
    probe = Probe()
    loop = shared()
    loop.attach(probe)
    with loop._lock:
        assert in_child(lambda: loop.detach(probe))
    loop.detach(probe)
    probe.close()


def test_a_child_forked_by_an_attachment_ends() -> None:
    loop = shared()
    probe = Probe()
    results: list[bool] = []
    probe.on_readable = lambda: results.append(in_child(lambda: probe.has_forked))
    loop.attach(probe)
    probe.outside.send(b"x")
    probe.wait()
    loop.detach(probe)
    probe.close()
    assert results == [True]


def run_script(body: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    script = "import tests.integration.test_loop as t\n" + textwrap.dedent(body)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    return time.monotonic() - began, done


def test_the_interpreter_ends_with_attachments_open() -> None:
    _, done = run_script(
        """
        class Node(t.Probe):
            def exiting(self):
                print("closing", t.shared().statistics().attachments)
                t.shared().detach(self)
        nodes = [Node(), Node()]
        for node in nodes:
            t.shared().attach(node)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closing 2\nclosing 1\n", "")


def test_the_interpreter_ends_though_a_method_never_returns() -> None:
    seconds, done = run_script(
        """
        node = t.Probe()
        entered = t.threading.Event()
        node.on_readable = lambda: (entered.set(), t.threading.Event().wait())
        t.shared().attach(node)
        node.outside.send(b"x")
        assert entered.wait(10)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert seconds < 15


# The pieces that talk to the kernel.


def test_the_timer_becomes_readable_at_its_deadline() -> None:
    timer = open_timer()
    assert timer is not None
    deadline_ns = time.monotonic_ns() + 5 * MS
    timer.arm(deadline_ns)
    ready, _, _ = select.select([timer.fileno], [], [], PATIENCE_S)
    assert ready == [timer.fileno]
    assert time.monotonic_ns() >= deadline_ns
    timer.close()


def pollers() -> list[Callable[[], Poller]]:
    def epoll() -> Poller:
        timer = open_timer()
        assert timer is not None
        return EpollPoller(timer)

    return [epoll, SelectorPoller]


@pytest.fixture(params=pollers(), ids=["epoll", "selectors"])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    poller: Poller = request.param()
    yield poller
    poller.close()
    poller.close()
    poller.wake()  # Nobody waits any more, and nobody is hurt.


def test_a_poller_waits_for_data_room_deadline_and_wake_up(poller: Poller) -> None:
    inside, outside = socket.socketpair()
    with inside, outside:
        fileno = inside.fileno()
        poller.add(fileno)
        assert poller.poll(None, is_waiting=False) == []
        outside.send(b"x")
        assert poller.poll(None, is_waiting=True) == [(fileno, READABLE)]
        poller.watch_writable(fileno, True)
        assert poller.poll(None, is_waiting=True) == [(fileno, READABLE | WRITABLE)]
        poller.watch_writable(fileno, False)
        inside.recv(10)
        deadline_ns = time.monotonic_ns() + 3 * MS
        assert poller.poll(deadline_ns, is_waiting=True) == []
        assert time.monotonic_ns() >= deadline_ns
        poller.wake()
        assert poller.poll(None, is_waiting=True) == []
        poller.discard(fileno)
        poller.discard(fileno)
        outside.send(b"x")
        assert poller.poll(None, is_waiting=False) == []


def test_a_hang_up_is_told_like_something_to_read(poller: Poller) -> None:
    inside, outside = socket.socketpair()
    with inside:
        poller.add(inside.fileno())
        outside.close()
        ((fileno, mask),) = poller.poll(None, is_waiting=True)
        assert fileno == inside.fileno()
        assert mask & ~WRITABLE
