"""Who is matched with whom: the publishers of what we want, the subscribers of what we publish.

A match begins and ends with an event, whatever the cause: somebody publishes or subscribes, a node
leaves, dies, is lost or returns. Publications of those who are here are kept by subject, so what
we want is compared with each subject once, however many publish it.
"""

from collections.abc import Callable, Iterable

from hubbub.events import (
    PublisherMatched,
    PublisherUnmatched,
    SubscriberMatched,
    SubscriberUnmatched,
)
from hubbub.protocol.declared import News
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.peers import Peer
from hubbub.protocol.state import State
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire.control import Publication
from hubbub.wire.header import RELIABLE


class Matches:
    """The matches of one node on one channel."""

    def __init__(self, endpoint: Endpoint, state: State) -> None:
        self.endpoint = endpoint
        self.state = state
        self.is_stale = False  # What we want has changed since the last look.
        self.publishing: dict[str, dict[bytes, Peer]] = {}  # Those who are here, by subject.
        self.on_publisher: Callable[[int], None] = lambda now: None  # One has come or gone.
        self._wanted: set[str] = set()  # Of these subjects, those that we want.
        self._subscribing: dict[bytes, set[str]] = {}  # Those who are here: what they get from us.

    def come(self, peer: Peer) -> None:
        """Count a peer in that is here (again)."""
        if peer.key in self._subscribing:
            return
        self._subscribing[peer.key] = set()
        for publication in peer.declared.publications.values():
            self._publish(peer, publication)
        self.compare(peer)

    def go(self, peer: Peer) -> None:
        """Count a peer out that is gone, for whatever reason."""
        if peer.key not in self._subscribing:
            return
        for subject in peer.declared.publications:
            self._withdraw(peer, subject)
        for subject in sorted(self._subscribing.pop(peer.key)):
            self._tell_subscriber(peer, subject, is_here=False)

    def change(self, peer: Peer, news: News) -> None:
        """Take in what a peer declares anew."""
        if peer.key not in self._subscribing:
            return
        for subject in news.withdrawn:
            self._withdraw(peer, subject)
        for publication in news.published:
            self._publish(peer, publication)

    def refresh(self) -> None:
        """Compare what we want now with what is published."""
        self.is_stale = False
        includes = self.state.interest.includes
        for subject, peers in self.publishing.items():
            is_wanted = includes(subject)
            if is_wanted == (subject in self._wanted):
                continue
            (self._wanted.add if is_wanted else self._wanted.discard)(subject)
            for peer in peers.values():
                self._tell_publisher(peer, subject, is_here=is_wanted)

    def compare(self, peer: Peer) -> None:
        """Compare what a peer is owed with what it was counted for."""
        before = self._subscribing.get(peer.key)
        if before is None:
            return
        subjects = {topic.subject for topic in self.state.topics.values() if peer.gets(topic)}
        for subject in sorted(before - subjects):
            self._tell_subscriber(peer, subject, is_here=False)
        for subject in sorted(subjects - before):
            self._tell_subscriber(peer, subject, is_here=True)
        self._subscribing[peer.key] = subjects

    def compare_topic(self, topic: OutgoingTopic, peers: Iterable[Peer]) -> None:
        """Do the same for all peers and one topic that is published now, or no more."""
        is_published = topic.subject in self.state.topics
        for peer in peers:
            subjects = self._subscribing.get(peer.key)
            if subjects is None:
                continue
            is_here = is_published and peer.gets(topic)
            if is_here != (topic.subject in subjects):
                (subjects.add if is_here else subjects.discard)(topic.subject)
                self._tell_subscriber(peer, topic.subject, is_here=is_here)

    def _publish(self, peer: Peer, publication: Publication) -> None:
        subject = publication.subject
        peers = self.publishing.get(subject)
        if peers is None:
            peers = self.publishing[subject] = {}
            if self.state.interest.includes(subject):
                self._wanted.add(subject)
        is_news = peer.key not in peers
        peers[peer.key] = peer
        if is_news and subject in self._wanted:
            self._tell_publisher(peer, subject, is_here=True)

    def _withdraw(self, peer: Peer, subject: str) -> None:
        peers = self.publishing.get(subject, {})
        if peers.pop(peer.key, None) is None:
            return
        if subject in self._wanted:
            self._tell_publisher(peer, subject, is_here=False)
        if not peers:
            del self.publishing[subject]
            self._wanted.discard(subject)

    def _tell_publisher(self, peer: Peer, subject: str, *, is_here: bool) -> None:
        channel = self.endpoint.channel
        self.on_publisher(self.endpoint.now)
        if not is_here:
            self.endpoint.events.append(PublisherUnmatched(channel, peer.source, subject))
            return
        publication = peer.declared.publications[subject]
        is_reliable = publication.stream == RELIABLE
        self.endpoint.events.append(
            PublisherMatched(channel, peer.source, subject, publication.schema_name, is_reliable)
        )

    def _tell_subscriber(self, peer: Peer, subject: str, *, is_here: bool) -> None:
        kind = SubscriberMatched if is_here else SubscriberUnmatched
        self.endpoint.events.append(kind(self.endpoint.channel, peer.source, subject))
