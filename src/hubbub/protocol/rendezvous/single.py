"""HOT. A message that is published by itself, from the payload to the frame.

A round trip is a chain of such messages, and processes that take turns find cold caches: each call
on the way costs several times what it does in a loop. So what `Publishing`, `Asking`, `Post` and
`Hops` do with a dozen calls is done here in one, where nothing can be different: nothing waits, few
messages are under way, the manager is known, is another node and takes what it is sent, and no
deadline moves, for those of earlier messages come first. Whatever is not so goes the long way.

The run of a scenario is the same, frame by frame, whichever way is taken.
"""

from functools import partial
from typing import Final

from hubbub.limits import (
    BATCH_AT_ONCE,
    BATCH_QUIET,
    BATCH_QUIET_AT_ONCE,
    HOP_WINDOW,
    HOP_WINDOW_BYTES_MIN,
    PUBLISHES_BYTES_MAX,
    PUBLISHES_MAX,
    SEEN_WINDOW,
)
from hubbub.protocol.rendezvous.hops import Hops, new_sent
from hubbub.protocol.rendezvous.publishing import Lane, Published, Publishing
from hubbub.protocol.rendezvous.seat import NEVER
from hubbub.protocol.rendezvous.view import View
from hubbub.wire.header import SERVICE
from hubbub.wire.services import ENVELOPE

_pack: Final = ENVELOPE.pack
_WINDOW_BYTES: Final = HOP_WINDOW_BYTES_MIN // 2  # Far below any window, with what is put around.
# Where so few messages are under way, their number is no reason to wait.
assert min(HOP_WINDOW, PUBLISHES_MAX) > BATCH_QUIET_AT_ONCE


class Single:
    """The short way of a message to the node that manages its service."""

    def __init__(self, publishing: Publishing, hops: Hops, view: View) -> None:
        self._publishing = publishing
        self._asking = publishing.asking
        self._hops = hops
        self._view = view
        self._members = view.members
        self._seat = publishing.seat

    def publish(self, now: int, lane: Lane, payload: bytes) -> bool:
        """Publish a message: one frame goes out, no deadline moves. False: not the short way."""
        publishing, seat, hops = self._publishing, self._seat, self._hops
        seat.now, sequence, under_way = now, lane.last + 1, lane.under_way
        until_ns = now + publishing.patience_ns
        hint = self._asking.hints.get(lane.key)
        if (
            lane.waiting
            or hops.crowded
            or publishing.due_ns > until_ns
            or publishing.messages >= BATCH_QUIET_AT_ONCE
            or publishing.size_bytes >= PUBLISHES_BYTES_MAX
            or (len(under_way) >= BATCH_AT_ONCE and now - lane.cut_ns < BATCH_QUIET)
            or sequence - next(iter(under_way), sequence) >= SEEN_WINDOW // 2
            or (hint is not None and hint[1] > now)
        ):
            return False
        node = lane.target if lane.target_version == self._view.version else self._aim(lane)
        member, track = self._members.get(node), hops.tracks.get(node)
        if member is None or track is None or track.waiting:
            return False
        due_ns = now + track.timeout_ns
        if track.due_ns > due_ns:
            return False
        size_bytes, tail, sent = len(payload), lane.tail, track.sent
        if len(sent) >= BATCH_QUIET_AT_ONCE or track.size_bytes + size_bytes > _WINDOW_BYTES:
            return False
        hops.hop = hop = hops.hop + 1 & 0xFFFF_FFFF
        head = _pack(hop, 0, 0, seat.node, lane.life, sequence, 0, 0, 0, len(tail))
        frame, place = seat.make_frame(SERVICE, head + lane.head + payload + tail), member.place
        published = under_way[sequence] = Published(
            lane, sequence, 0, payload, lane.extra, tail, 1, size_bytes, NEVER, until_ns, False,
            member.life,
        )  # fmt: skip
        lane.last, lane.cut_ns = sequence, now
        publishing.messages += 1
        publishing.size_bytes += size_bytes
        publishing.open[lane.key, lane.subject] = lane
        done = partial(publishing.tried, published)
        sent[hop] = new_sent((hop, place, frame, done, 1, due_ns, now))
        track.size_bytes += len(frame)
        seat.out.append((place, frame))
        return True

    def _aim(self, lane: Lane) -> bytes:
        """Find out who is closest; once in each version of the view, when we are not new."""
        view = self._view
        node = view.closest_to_ask(lane.key) or self._seat.node
        if self._seat.is_leaving or self._seat.is_first_version:
            return b""  # What these send is not plain.
        if view.counts_us:  # From then on it is the same until somebody comes or goes.
            lane.target, lane.target_version = node, view.version
        return node
