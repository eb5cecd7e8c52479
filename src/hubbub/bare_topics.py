"""Topics of what comes in no stream, but as samples or by services: a subject and who published."""

from collections.abc import Callable
from typing import Any, TypeVar

from hubbub.message import Source

Key = TypeVar("Key", bound=tuple[Any, ...])


class BareTopic:
    """What subscriptions ask of a topic, where there is nothing else to know of it."""

    schema_name = ""
    schema_hash = replayed_ns = generation = request = 0
    sinks: tuple[Any, ...] = ()

    def __init__(self, subject: str, source: Source) -> None:
        self.subject = subject
        self.source = source


class BareTopics(dict[Key, BareTopic]):
    """Topics by what tells them apart, each made when it is first met; when full, all anew."""

    def __init__(self, limit: int, make: Callable[..., BareTopic]) -> None:
        super().__init__()
        self._limit = limit
        self._make = make

    def __missing__(self, key: Key) -> BareTopic:
        if len(self) >= self._limit:
            self.clear()
        topic = self[key] = self._make(*key)
        return topic
