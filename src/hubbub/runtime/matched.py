"""Which matches a listener has been told of: each once when it begins and once when it ends.

What matters to a listener depends on its owner: a publisher cares for its own subject, a
subscription for what matches its patterns, and those may change while the match goes on.
"""

from collections.abc import Callable, Iterator

from hubbub.events import (
    Closed,
    Event,
    PublisherMatched,
    PublisherUnmatched,
    SubscriberMatched,
    SubscriberUnmatched,
)

Beginning = PublisherMatched | SubscriberMatched
Ending = PublisherUnmatched | SubscriberUnmatched
Match = Beginning | Ending
Key = tuple[bool, str, object, str]


def _key_of(event: Match) -> Key:
    if isinstance(event, PublisherMatched | PublisherUnmatched):
        return True, event.channel, event.publisher, event.subject
    return False, event.channel, event.subscriber, event.subject


def _end_of(event: Beginning) -> Ending:
    if isinstance(event, PublisherMatched):
        return PublisherUnmatched(event.channel, event.publisher, event.subject)
    return SubscriberUnmatched(event.channel, event.subscriber, event.subject)


class Matched:
    """The matches of a node that go on, kept from the events themselves."""

    def __init__(self) -> None:
        self._present: dict[Key, Beginning] = {}

    def __iter__(self) -> Iterator[tuple[Key, Beginning]]:
        """Yield what goes on, the oldest first."""
        return iter(self._present.items())

    def note(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, Beginning):
            self._present[_key_of(event)] = event
        elif isinstance(event, Ending):
            self._present.pop(_key_of(event), None)
        elif isinstance(event, Closed):
            gone = [key for key in self._present if key[1] == event.channel]
            for key in gone:
                del self._present[key]


class Told:
    """What one listener knows of matches."""

    def __init__(self, channel: str | None, concerns: Callable[[Match], bool] | None) -> None:
        self._channel = channel
        self._concerns = concerns  # None: every match does.
        self._keys: set[Key] = set()

    def takes(self, event: Match) -> bool:
        """Tell whether this is news to the listener, and count it as told."""
        key = _key_of(event)
        if isinstance(event, Ending):
            is_news = key in self._keys
            self._keys.discard(key)
            return is_news
        if key in self._keys or not self._is_meant(event):
            return False
        self._keys.add(key)
        return True

    def catch_up(self, matched: Matched) -> list[Match]:
        """Return what the listener must be told because of what concerns it now."""
        news: list[Match] = []
        for key, event in matched:
            if self._is_meant(event):
                if key not in self._keys:
                    self._keys.add(key)
                    news.append(event)
            elif key in self._keys:
                self._keys.discard(key)
                news.append(_end_of(event))
        return news

    def _is_meant(self, event: Match) -> bool:
        if self._channel not in (None, event.channel):
            return False
        return self._concerns is None or self._concerns(event)
