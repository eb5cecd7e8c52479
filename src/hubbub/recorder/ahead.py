"""Read ahead in a thread of its own, so that who publishes in time does not wait for the disk."""

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
_END: Final = object()
_PATIENCE_S: Final = 0.1


class Ahead(Generic[Item]):
    """Yields what an iterator yields, a few items of which were fetched before."""

    def __init__(self, source: Iterator[Item], depth: int) -> None:
        self._source = source
        self._queue: Queue[object] = Queue(depth)
        self._is_over = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._fetch, name="hubbub-read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while (item := self._queue.get()) is not _END:
            yield item  # type: ignore[misc]
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Fetch no more; who still iterates gets the end."""
        self._is_over.set()
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=_PATIENCE_S)
            except Empty:
                continue

    def _fetch(self) -> None:
        try:
            for item in self._source:
                if not self._put(item):
                    return
        except BaseException as error:
            self._error = error
        self._put(_END)

    def _put(self, item: object) -> bool:
        while not self._is_over.is_set():
            try:
                self._queue.put(item, timeout=_PATIENCE_S)
            except Full:
                continue
            return True
        return False
