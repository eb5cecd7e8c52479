"""Ctrl-C ends a wait at once, and work only when a step of it is whole."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

import hubbub
from hubbub.cli.ctrl_c import CtrlC
from hubbub.cli.progress import Progress
from hubbub.cli.pub import Tally, _publish_and_confirm
from hubbub.cli.session import EXIT_INTERRUPTED


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Who was started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_wait_ends_at_once_and_work_goes_on() -> None:
    with CtrlC() as ctrl_c:
        press()
        assert ctrl_c.is_pressed
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.wait(lambda: pytest.fail("it was pressed before"))
    with CtrlC() as ctrl_c, pytest.raises(KeyboardInterrupt):
        ctrl_c.wait(press)


TAKEN_BY_ANOTHER = """
import signal, threading, time
from hubbub.cli.ctrl_c import reach_main_thread
signal.signal(signal.SIGINT, signal.default_int_handler)
reach_main_thread()
def take():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=take).start()
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_that_another_thread_takes_ends_the_wait_of_the_main_thread() -> None:
    """A thread that began just then took it, and the main thread went on sleeping."""
    done = subprocess.run(
        [sys.executable, "-c", TAKEN_BY_ANOTHER], capture_output=True, text=True, timeout=50
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_work_that_hangs_ends_when_it_is_pressed_again() -> None:
    with CtrlC():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_afterwards_it_interrupts_everything_again() -> None:
    with CtrlC():
        pass
    with pytest.raises(KeyboardInterrupt):
        press()


class Interrupted:
    """A publisher, and its node; Ctrl-C is pressed while it publishes its third message."""

    receivers = 1
    counted = None

    def __init__(self) -> None:
        self.published = 0

    def publish(self, payload: bytes) -> int:
        """Publish a message, as far as the count goes."""
        if self.published == 2:
            press()
        self.published += 1
        return self.receivers

    def flush(self, timeout_s: float) -> bool:
        """Be done."""
        return True


def test_message_that_was_published_as_ctrl_c_came_is_counted() -> None:
    publisher, tally = Interrupted(), Tally()
    node, endless = cast(hubbub.Node, publisher), itertools.repeat(b"x")
    code = _publish_and_confirm(
        node, cast(Any, publisher), endless, None, tally, Progress(None)
    )  # fmt: skip
    assert (code, tally.messages, publisher.published) == (EXIT_INTERRUPTED, 3, 3)
