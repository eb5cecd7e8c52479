"""The threads that run callbacks: one, and more only while a callback blocks.

A subscription has a `Lane`: a serial queue, whose work is done in turns of a few milliseconds,
never by two threads at once. Lanes that have work stand in line. One thread serves the line as long
as callbacks return quickly, because more would only queue for the interpreter lock. A turn that
takes longer than 10 ms means that a callback waits for something; if another lane stands in line
then, one more thread is started, up to a bound. Threads that found nothing to do for 5 s end.

The look at the clock is made by `call_at`, which is the I/O thread's: a thread of the pool cannot
do it, since all of them may be blocked in callbacks.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue

from hubbub.errors import ClosedError
from hubbub.limits import DELIVERY_IDLE_S, DELIVERY_OVERDUE, DELIVERY_THREADS_MAX, SECOND
from hubbub.runtime.failures import Failures

Step = Callable[[], bool]
CallAt = Callable[[int, Callable[[], object]], None]


class LaneState(Enum):
    """Where a lane is."""

    IDLE = "idle"
    IN_LINE = "in line"
    RUNNING = "running"
    RUNNING_AGAIN = "running, and there is more"


class Lane:
    """A serial queue of work: `step` does one turn of it and tells whether more is left."""

    def __init__(self, pool: "Pool", step: Step) -> None:
        self.step = step
        self.state = LaneState.IDLE
        self._pool = pool

    def notify(self) -> None:
        """Say that there is work; cheap when that is known already."""
        state = self.state
        if state is LaneState.IDLE or state is LaneState.RUNNING:
            self._pool.schedule(self)


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """How busy the delivery threads are."""

    threads: int
    threads_peak: int
    lanes_waiting: int
    failures: int


class Pool:
    """Run lanes on as few threads as will do."""

    def __init__(
        self,
        call_at: CallAt,
        threads_max: int = DELIVERY_THREADS_MAX,
        *,
        idle_s: float = DELIVERY_IDLE_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._call_at = call_at
        self._threads_max = threads_max
        self._idle_s = idle_s
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._line: SimpleQueue[Lane | None] = SimpleQueue()  # None asks a thread to end.
        self._lanes_waiting = 0
        self._threads: dict[threading.Thread, int | None] = {}  # In a turn since, or None.
        self._threads_peak = 0
        self._is_watched = False
        self._end_ns: int | None = None  # When closed: until when turns may begin.
        self._failures = Failures()

    def lane(self, step: Step) -> Lane:
        """Return a new serial queue."""
        return Lane(self, step)

    def schedule(self, lane: Lane) -> None:
        """Put a lane in line, or have it put there when its turn ends."""
        with self._lock:
            if self._end_ns is not None:
                return
            if lane.state is LaneState.RUNNING:
                lane.state = LaneState.RUNNING_AGAIN
            elif lane.state is LaneState.IDLE:
                self._enter_line(lane)

    def close(self, timeout_s: float = 0.0) -> bool:
        """Finish what stands in line, at most for so long; False if a callback still runs.

        Safe inside a callback, whose own thread is not waited for.
        """
        deadline_ns = self._clock_ns() + int(timeout_s * SECOND)
        with self._lock:
            self._end_ns = deadline_ns
            threads = list(self._threads)
            for _ in threads:
                self._line.put(None)
        others = [thread for thread in threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0, deadline_ns - self._clock_ns()) / SECOND)
        return not any(thread.is_alive() for thread in others)

    def forked(self) -> None:
        """Refuse everything in a forked child, where the threads are not."""
        self._lock = threading.Lock()
        self._threads = {}
        self._end_ns = 0

    def statistics(self) -> PoolStatistics:
        """Return how many threads there are, and what stands in line."""
        return PoolStatistics(
            threads=len(self._threads),
            threads_peak=self._threads_peak,
            lanes_waiting=self._lanes_waiting,
            failures=self._failures.count,
        )

    def _enter_line(self, lane: Lane) -> None:
        """Put a lane in line, and see to it that somebody serves the line; under the lock."""
        if not self._threads and not self._start_thread():
            return  # The lane stays idle, and the next run for it tries again.
        lane.state = LaneState.IN_LINE
        self._lanes_waiting += 1
        self._line.put(lane)
        self._watch()

    def _start_thread(self) -> bool:
        """Start one more thread; False if the system refuses; under the lock."""
        thread = threading.Thread(target=self._serve, name="hubbub-delivery", daemon=True)
        self._threads[thread] = None
        try:
            thread.start()
        except RuntimeError as error:
            del self._threads[thread]
            # Python 3.12.0 and .1 start no thread any more once the program has ended.
            if "interpreter shutdown" not in str(error):
                self._failures.report("starting a delivery thread", error)
            return False
        self._threads_peak = max(self._threads_peak, len(self._threads))
        return True

    def _overdue_ns(self) -> int | None:
        """Say when the line has waited too long for every thread; None: no reason to look.

        It is the youngest turn that counts: while one thread still takes turns, others may block.
        """
        if self._lanes_waiting == 0 or len(self._threads) >= self._threads_max:
            return None
        youngest_ns = 0
        for since_ns in self._threads.values():
            if since_ns is None:
                return None
            youngest_ns = max(youngest_ns, since_ns)
        return youngest_ns + DELIVERY_OVERDUE

    def _watch(self) -> None:
        """Have the line looked at when it will have waited too long; under the lock."""
        overdue_ns = self._overdue_ns()
        if overdue_ns is None or self._is_watched:
            return
        try:
            self._call_at(overdue_ns, self._look)
        except ClosedError:
            return
        self._is_watched = True

    def _look(self) -> None:
        """Start another thread if all have been in their turns for too long; on the I/O thread."""
        with self._lock:
            self._is_watched = False
            overdue_ns = self._overdue_ns()
            if overdue_ns is not None and overdue_ns <= self._clock_ns():
                self._start_thread()
            else:
                self._watch()

    def _serve(self) -> None:
        """Take turns until there was nothing to do for a while, or the pool is closed."""
        own = threading.current_thread()
        while True:
            try:
                lane = self._line.get(timeout=self._idle_s)
            except Empty:
                lane = None
            with self._lock:
                if lane is None or self._is_over():
                    if self._may_end(own):
                        return
                    continue
                self._begin_turn(own, lane)
            has_more = self._run_turn(lane)
            with self._lock:
                self._end_turn(own, lane, has_more)

    def _may_end(self, own: threading.Thread) -> bool:
        """Say whether this thread may end: nobody stands in line, or time is up; under the lock."""
        if self._lanes_waiting and not self._is_over():
            if self._end_ns is not None:
                self._line.put(None)  # Ask again, behind those who stand in line.
            return False
        self._threads.pop(own, None)
        return True

    def _is_over(self) -> bool:
        return self._end_ns is not None and self._clock_ns() >= self._end_ns

    def _begin_turn(self, own: threading.Thread, lane: Lane) -> None:
        self._lanes_waiting -= 1
        lane.state = LaneState.RUNNING
        self._threads[own] = self._clock_ns()
        self._watch()

    def _end_turn(self, own: threading.Thread, lane: Lane, has_more: bool) -> None:
        self._threads[own] = None
        has_more = has_more or lane.state is LaneState.RUNNING_AGAIN
        lane.state = LaneState.IDLE
        if has_more:
            self._enter_line(lane)

    def _run_turn(self, lane: Lane) -> bool:
        try:
            return lane.step()
        except BaseException as error:
            self._failures.report("a delivery turn", error)
            return False
