"""What nodes declare, put together by subject: who publishes it, and who wants it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hubbub.awareness import RemotePeer, RemotePublisher
from hubbub.cli.gateways import FarNode
from hubbub.subjects import Matcher, is_subject, matches

EVERYTHING = "/..."
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A node that wants a subject, and by which of its patterns."""

    node: RemotePeer
    patterns: tuple[str, ...]


@dataclass(slots=True)
class Topic:
    """A subject with everybody at both ends, here and behind gateways."""

    subject: str
    publishers: list[RemotePublisher] = field(default_factory=list)
    subscribers: list[Subscriber] = field(default_factory=list)
    far_publishers: list[FarNode] = field(default_factory=list)
    far_subscribers: list[FarNode] = field(default_factory=list)

    @property
    def types(self) -> list[str]:
        """Return the names of the types it is published as; an empty one is plain bytes."""
        return sorted({one.schema for one in self.publishers})

    @property
    def is_far(self) -> bool:
        """Tell whether somebody behind gateways is concerned."""
        return bool(self.far_publishers or self.far_subscribers)


def list_topics(
    nodes: Iterable[RemotePeer], pattern: str = EVERYTHING, far: Iterable[FarNode] = ()
) -> list[Topic]:
    """Return the topics that match a pattern, by subject; far ones as they are called there.

    A subject that nobody publishes is one, too, if somebody wants just that, or if `pattern` is
    just that and somebody wants it by a wildcard.
    """
    nodes, far = sorted(nodes, key=_order), list(far)
    topics: dict[str, Topic] = {pattern: Topic(pattern)} if is_subject(pattern) else {}
    matcher: Matcher[tuple[RemotePeer, str]] = Matcher()
    for node in nodes:
        for publication in node.publications:
            _topic_of(topics, publication.subject).publishers.append(publication)
        _want(topics, matcher, {wanted: (node, wanted) for wanted in node.patterns})
    far_matcher: Matcher[FarNode] = Matcher()
    for one in far:
        for subject in one.node.publishes:
            _topic_of(topics, subject).far_publishers.append(one)
        _want(topics, far_matcher, dict.fromkeys(one.node.wants, one))
    chosen = [topics[subject] for subject in sorted(topics) if matches(pattern, subject)]
    for topic in chosen:
        topic.subscribers = _subscribers(matcher.match(topic.subject))
        topic.far_subscribers = list(dict.fromkeys(far_matcher.match(topic.subject)))
    return [one for one in chosen if one.publishers or one.subscribers or one.is_far]


def _want(topics: dict[str, Topic], matcher: Matcher[T], wanted: dict[str, T]) -> None:
    """Enter who wants what; a pattern that is a subject is a topic also if nobody publishes it."""
    for pattern, who in wanted.items():
        matcher.add(pattern, who)
        if is_subject(pattern):
            _topic_of(topics, pattern)


def _topic_of(topics: dict[str, Topic], subject: str) -> Topic:
    return topics.setdefault(subject, Topic(subject))


def _subscribers(found: Iterable[tuple[RemotePeer, str]]) -> list[Subscriber]:
    patterns: dict[RemotePeer, list[str]] = {}
    for node, pattern in found:
        patterns.setdefault(node, []).append(pattern)
    return [Subscriber(node, tuple(each)) for node, each in patterns.items()]


def _order(node: RemotePeer) -> tuple[str, bytes, str]:
    return node.node.name, node.node.id, node.channel


def publisher_fields(one: RemotePublisher) -> dict[str, Any]:
    """Describe a publisher for programs."""
    return {
        **_place_fields(one),
        "type": one.schema or None,
        "reliable": one.is_reliable,
        "sequence": one.sequence,
        "links": list(one.links),
    }


def subscriber_fields(one: Subscriber) -> dict[str, Any]:
    """Describe a subscriber for programs."""
    wishes = [
        {"pattern": pattern, "links": list(links)}
        for pattern, links in one.node.wishes
        if pattern in one.patterns
    ]
    return {**_place_fields(one.node), "patterns": list(one.patterns), "wishes": wishes}


def _place_fields(one: RemotePublisher | RemotePeer) -> dict[str, Any]:
    return {
        "name": one.node.name,
        "id": one.node.id.hex(),
        "host": one.host,
        "pid": one.pid,
        "link": one.link,
        "channel": one.channel,
    }
