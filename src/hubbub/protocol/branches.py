"""The messages of a topic once more, for subscriptions that insist on links (decision 0041).

A node may want a subject by any link for one subscription, and by TCP alone for another. Each of
these is served as if the other were not there: what is for those who insist has a topic number and
a stream of its own, with the sequences of the topic it is a branch of. That gives them, and hands
numbered runs on, as it does to the stream beside its own (decision 0027). So nothing ever moves
between streams because of links: a stream that keeps to some of them takes the best that is there.
"""

from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire.wishes import Links, combine


class Branch(OutgoingTopic):
    """A topic of ours, for those who want it by these links; its copy is what is framed."""

    __slots__ = ()

    def __init__(self, number: int, live: OutgoingTopic, wish: Links) -> None:
        super().__init__(
            number, live.subject, live.source, is_reliable=live.is_reliable,
            schema_name=live.schema_name, schema_hash=live.schema_hash,
            replayed_ns=live.replayed_ns, hops=live.hops, links=combine(live.links, wish),
        )  # fmt: skip
        self.live = live
        self.wish = wish

    @property
    def next_sequence(self) -> int:
        """Return the sequence of the next message, which only the topic itself gives."""
        assert self.live is not None
        return self.live.next_sequence

    @next_sequence.setter
    def next_sequence(self, sequence: int) -> None:
        pass

    def _make_copy(self) -> OutgoingTopic:
        copy = super()._make_copy()
        copy.wish = self.wish
        return copy
