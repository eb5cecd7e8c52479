"""Topics that are known by subject and source alone."""

from hubbub.bare_topics import BareTopic, BareTopics
from hubbub.message import Source

LIDAR = Source("lidar", b"l" * 12, 7)


def test_topic_is_made_once_and_anew_when_there_are_too_many() -> None:
    topics: BareTopics[tuple[str]] = BareTopics(2, lambda subject: BareTopic(subject, LIDAR))
    first = topics["/a",]
    assert (first.subject, first.source, first.sinks) == ("/a", LIDAR, ())
    assert topics["/a",] is first and topics["/b",] is not first
    assert topics["/c",].subject == "/c" and list(topics) == [("/c",)]
    assert topics["/a",] is not first
