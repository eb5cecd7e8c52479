"""What waits at a port: what is urgent goes first, all else in the order in which it came.

Messages of one subject stay in order, because all of them are urgent or none is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hubbub.limits import PORT_KEPT, PORT_KEPT_BYTES
from hubbub.protocol.delivery import Delivery
from hubbub.subjects import Matcher


class Run(NamedTuple):
    """Messages for a port, how large they are, and their subject: to the gateway, and here."""

    delivery: Delivery
    size_bytes: int
    subject: str
    here: str


class Waiting:
    """The runs that wait at a port to go out."""

    def __init__(self, urgent: Iterable[str]) -> None:
        self.size_bytes = 0
        self._runs: deque[Run] = deque()
        self._urgent_runs: deque[Run] = deque()
        self._urgent: Matcher[None] = Matcher()
        for pattern in urgent:
            self._urgent.add(pattern, None)

    def __len__(self) -> int:
        return len(self._runs) + len(self._urgent_runs)

    def __iter__(self) -> Iterator[Run]:
        yield from self._urgent_runs
        yield from self._runs

    def put(self, run: Run) -> None:
        """Let a run wait."""
        is_urgent = bool(self._urgent.match(run.here))
        (self._urgent_runs if is_urgent else self._runs).append(run)
        self.size_bytes += run.size_bytes

    def first(self) -> Run:
        """Return what goes next."""
        return self._urgent_runs[0] if self._urgent_runs else self._runs[0]

    def pop(self) -> None:
        """Forget what was next: it went."""
        runs = self._urgent_runs or self._runs
        self.size_bytes -= runs.popleft().size_bytes

    def clear(self) -> None:
        """Forget all."""
        self._runs.clear()
        self._urgent_runs.clear()
        self.size_bytes = 0


class Kept:
    """What another gateway passes on, remembered for a while in case that it fails."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._size_bytes = 0

    def put(self, run: Run) -> None:
        """Remember a run."""
        self._runs.append(run)
        self._size_bytes += run.size_bytes
        self.forget(run.delivery.received_ns - PORT_KEPT)

    def forget(self, before_ns: int) -> None:
        """Forget what is old, or too much."""
        runs = self._runs
        while runs and (
            self._size_bytes > PORT_KEPT_BYTES or runs[0].delivery.received_ns < before_ns
        ):
            self._size_bytes -= runs.popleft().size_bytes

    def take(self, is_chosen: Callable[[str], bool]) -> list[Run]:
        """Return what is remembered of some subjects, and remember it no more."""
        taken = [run for run in self._runs if is_chosen(run.subject)]
        self._runs = deque(run for run in self._runs if not is_chosen(run.subject))
        self._size_bytes -= sum(run.size_bytes for run in taken)
        return taken
