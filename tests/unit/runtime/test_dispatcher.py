"""One thread at a time hands out, in order; who must not return before waits for it."""

import threading
from collections.abc import Callable

from hubbub.events import Event, LinkUp
from hubbub.runtime.dispatcher import Dispatcher

DEADLINE_S = 10.0


def make(emit: Callable[[str], None]) -> tuple[Dispatcher, Callable[[str], None]]:
    """Return a dispatcher, and what puts an event of some name into it."""

    def name(event: Event) -> None:
        assert isinstance(event, LinkUp)
        emit(event.interface)

    dispatcher = Dispatcher(lambda topic: None, name)
    return dispatcher, lambda text: dispatcher.put([], [LinkUp("bus", text)])


def test_who_waits_returns_after_what_another_thread_hands_out() -> None:
    handed_out: list[str] = []
    is_at_it, may_go_on = threading.Event(), threading.Event()

    def emit(text: str) -> None:
        is_at_it.set()
        assert may_go_on.wait(DEADLINE_S)
        handed_out.append(text)

    dispatcher, put = make(emit)
    put("slow")
    other = threading.Thread(target=dispatcher.run)
    other.start()
    assert is_at_it.wait(DEADLINE_S)
    dispatcher.run()
    assert handed_out == [], "who does not wait returns at once"
    waiter = threading.Thread(target=dispatcher.run, args=(DEADLINE_S,))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive() and handed_out == [], "who waits does not return before"
    may_go_on.set()
    waiter.join()
    assert handed_out == ["slow"]
    other.join()


def test_who_waits_gives_up_in_time() -> None:
    is_at_it, may_go_on = threading.Event(), threading.Event()

    def emit(text: str) -> None:
        is_at_it.set()
        assert may_go_on.wait(DEADLINE_S)

    dispatcher, put = make(emit)
    put("slow")
    other = threading.Thread(target=dispatcher.run)
    other.start()
    assert is_at_it.wait(DEADLINE_S)
    dispatcher.run(0.01)
    assert other.is_alive()
    may_go_on.set()
    other.join()


def test_callback_neither_waits_for_itself_nor_hands_out_within() -> None:
    handed_out: list[str] = []

    def emit(text: str) -> None:
        if text == "first":
            put("second")
            dispatcher.run()
            dispatcher.run(DEADLINE_S)
        handed_out.append(text)

    dispatcher, put = make(emit)
    put("first")
    dispatcher.run()
    assert handed_out == ["first", "second"]
