"""HOT. Run a subscription's callback for each of its messages, never twice at the same time.

No lock is held while a callback runs: it may publish, subscribe, unsubscribe and close. What it
raises is reported, and the next message follows.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hubbub.limits import DELIVERY_SLICE
from hubbub.message import Message
from hubbub.protocol.delivery import Delivery
from hubbub.runtime.inbox import Inbox, message_of_one

_NEVER_NS: Final = 1 << 62

Take = Callable[[], Message | None]
Callback = Callable[[Message], object]
OnFailure = Callable[[Message, BaseException], None]


class CallbackRunner:
    """Take messages and hand each to the callback."""

    def __init__(
        self,
        inbox: Inbox,
        take: Take,
        callback: Callback,
        on_failure: OnFailure,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.failed = 0
        self.at_once = 0
        self._clock_ns = clock_ns
        self._inbox = inbox
        self._take = take
        self._is_plain = take == inbox.take  # Nothing is decoded on the way.
        self._callback = callback
        self._on_failure = on_failure
        self._is_muted = False
        self._inline_turn = threading.Lock()

    def run_turn(self) -> bool:
        """Call back for a few milliseconds; tell whether messages are left."""
        return self._run_until(self._clock_ns() + DELIVERY_SLICE)

    def run_inline(self) -> None:
        """Call back for all there is, in this thread.

        A run that comes while the callback runs, for instance because it publishes to itself, is
        left to the call that is under way: it stays behind the message being delivered.
        """
        while self._inbox.pending > 0 and self._inline_turn.acquire(blocking=False):
            try:
                self._run_until(_NEVER_NS)
            finally:
                self._inline_turn.release()

    def run_at_once(self, delivery: Delivery, context: Any) -> bool:
        """Call back for one message without queueing it; False: it must be queued.

        Only where nothing is queued and no callback runs, so that the order stays: 3 us a message
        less on the way of a round trip.
        """
        return len(delivery.payloads) == 1 and self.run_one(message_of_one(delivery, context))

    def run_one(self, message: Message) -> bool:
        """Do the same with a message that is made already."""
        if self._is_muted or not self._inline_turn.acquire(blocking=False):
            return False
        inbox = self._inbox
        try:
            if inbox.pending:
                return False
            self.at_once += 1
            self._callback(message)
        except KeyboardInterrupt:  # Ctrl-C is meant for the program, wherever it hits.
            raise
        except BaseException as error:
            self._fail(message, error)
        finally:
            self._inline_turn.release()
        if inbox.pending:
            self.run_inline()  # What came while the callback ran.
        return True

    def mute(self) -> None:
        """Call back no more, not even for what is queued; a call under way is the last."""
        self._is_muted = True
        self._inbox.discard()

    def forked(self) -> None:
        """Call back no more in a forked child, where locks may be held for ever."""
        self._is_muted = True

    def _run_until(self, end_ns: int) -> bool:
        while not self._is_muted and (message := self._take()) is not None:
            self._call(message)
            if self._clock_ns() >= end_ns or (self._is_plain and not self._finish_run(end_ns)):
                return True
        if self._is_muted:
            self._inbox.discard()  # Also what slipped in behind the closing.
        return False

    def _finish_run(self, end_ns: int) -> bool:
        """Call back for the rest of a run; False: time is up.

        What `take` and `_call` do, without two calls more for each message: 0.2 us of 0.9 us. Who
        mutes us exhausts the run.
        """
        if self._is_muted:
            return True  # The run slipped in behind the closing, which could not exhaust it.
        callback, clock_ns, is_timed = self._callback, self._clock_ns, end_ns < _NEVER_NS
        for message in self._inbox.current:
            try:
                callback(message)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._fail(message, error)
            if is_timed and clock_ns() >= end_ns:
                return False
        return True

    def _call(self, message: Message) -> None:
        try:
            self._callback(message)
        except KeyboardInterrupt:  # Ctrl-C is meant for the program, wherever it hits.
            raise
        except BaseException as error:
            self._fail(message, error)

    def _fail(self, message: Message, error: BaseException) -> None:
        self.failed += 1
        self._on_failure(message, error)
