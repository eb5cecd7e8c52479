"""Looks each second at what the bus does besides messages, and records what has changed.

Events come as they happen, those of other nodes as these tell them. Who publishes and wants what,
and the counters, are looked at: a row is made where something differs from the last look, so a
quiet bus costs nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from time import time_ns

import msgspec

from hubbub.awareness import RemotePeer
from hubbub.errors import HubbubError
from hubbub.events import Event, PeerJoined, PublisherMatched
from hubbub.limits import RECORDER_LOOK_S, RECORDER_LOOK_S_MIN, RECORDER_LOOK_SHARE, SECOND
from hubbub.message import Message, Source
from hubbub.node import Node
from hubbub.recorder import rows
from hubbub.recorder.intake import Intake
from hubbub.recorder.managers import Managers
from hubbub.recorder.rows import Announced, Values
from hubbub.recorder.told import told_rows
from hubbub.statistics import ChannelStatistics
from hubbub.subscription import Subscription
from hubbub.telling import SUBJECTS, Told, decode

_log = logging.getLogger("hubbub.recorder")

_NEWS = (PeerJoined, PublisherMatched)
Counted = tuple[Source | None, str | None, str]  # About whom, by which link, what.


class Watch:
    """The rows of a recording that are no messages."""

    def __init__(
        self,
        node: Node,
        intake: Intake,
        passing: Callable[[], Iterator[tuple[Counted, int]]],
        on_look: Callable[[], None],
    ) -> None:
        self._node = node
        self._intake = intake
        self._passing = passing
        self._on_look = on_look
        self._announced: dict[Announced, Values] = {}
        self._managers = Managers(node)
        self._since_ns = time_ns()
        peers = node.peers()
        self._met_before = {peer.node for peer in peers}
        # What the node had counted before there was a recorder is none of its business.
        self._before = dict(self._count(peers))
        self._counted: dict[Counted, int] = {}
        self._is_ending = threading.Event()
        self._has_news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hubbub-watch", daemon=True)
        self._deafen: Callable[[], None] = _nothing
        self._hearing: Subscription | None = None
        self._own = node.identity.source
        self._end_own: Callable[[], None] = _nothing

    def start(self) -> None:
        """Begin to look."""
        self._deafen = self._node.on_event(self._note)
        self._hearing = self._node.subscribe(SUBJECTS, self._hear, no_local=True)
        self._end_own = self._node._telling.listen(self._hear_own)
        self._thread.start()

    def finish(self) -> None:
        """Look a last time, and end."""
        self._deafen()
        self._end_own()
        if self._hearing is not None:
            self._hearing.close()
        self._is_ending.set()
        self._has_news.set()
        self._thread.join()

    def _note(self, event: Event) -> None:
        now_ns = time_ns()
        self._managers.note(event)
        for row in rows.event_rows(event, now_ns, was_there=self._was_there(event, now_ns)):
            self._intake.put_row(rows.EVENTS, row)
        if isinstance(event, _NEWS):
            self._has_news.set()  # It may be gone again before the next look.

    def _was_there(self, event: Event, now_ns: int) -> bool:
        """Tell whether an event only says that a node is here which was so before the recorder."""
        if not isinstance(event, PeerJoined):
            return False
        opened_ns = now_ns - event.uptime_s * SECOND  # At the latest: seconds are cut off.
        return event.peer in self._met_before or opened_ns <= self._since_ns

    def _hear(self, message: Message) -> None:
        """Take what another node tells of itself; anybody may have sent it."""
        try:
            told = decode(message.payload)
        except msgspec.MsgspecError as error:
            _log.info("%s is nothing that a node tells: %s", message.subject, error)
            return
        self._put(told, message.source)

    def _hear_own(self, told: Told) -> None:
        """Take the slots of our own node; what else it has to tell are its events."""
        self._put(Told(told.time_ns, slots=told.slots), self._own)

    def _put(self, told: Told, source: Source) -> None:
        for row in told_rows(told, source, time_ns()):
            self._intake.put_row(rows.EVENTS, row)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_ending.is_set()
            begin = time.monotonic()
            try:
                self._look(is_last=is_last)
            except HubbubError as error:
                _log.info("nothing to see: %s", error)  # The node was closed before us.
            except Exception:
                _log.exception("a look at the bus failed")
            if not is_last:
                self._pause(time.monotonic() - begin)

    def _pause(self, took_s: float) -> None:
        """Wait for the next look: a second, or less when somebody came."""
        least_s = max(RECORDER_LOOK_S_MIN, took_s * RECORDER_LOOK_SHARE)
        self._is_ending.wait(least_s)
        self._has_news.wait(max(0.0, RECORDER_LOOK_S - took_s - least_s))
        self._has_news.clear()

    def _look(self, *, is_last: bool) -> None:
        """Record what has changed; a ring holds no states, which are told whole once it is."""
        self._on_look()
        if not self._intake.is_triggered:
            return
        now = time_ns()
        peers = self._node.peers()
        announced = rows.announcements_of(peers) | rows.announcements_of_node(self._node)
        for row in rows.announcement_rows(self._announced, announced, now):
            self._intake.put_row(rows.ANNOUNCEMENTS, row)
        self._announced = announced
        for event in self._managers.look(is_last=is_last):
            for row in rows.event_rows(event, time_ns()):
                self._intake.put_row(rows.EVENTS, row)
        for counted, total in self._count(peers):
            value = total - self._before.get(counted, 0)
            if value > self._counted.get(counted, 0):
                self._counted[counted] = value
                row = rows.counter_row(now, self._since_ns, *counted, value)
                self._intake.put_row(rows.COUNTERS, row)

    def _count(self, peers: tuple[RemotePeer, ...]) -> Iterator[tuple[Counted, int]]:
        statistics = self._node.statistics()
        yield from self._passing()
        totals: dict[str, int] = {}
        for channel in statistics.channels:
            for name, value in _totals_of(channel):
                totals[name] = totals.get(name, 0) + value
        for name, value in totals.items():
            yield (None, None, name), value
        by_id = {peer.node.id.hex(): peer for peer in peers}
        by_name = {str(peer.node): peer for peer in peers}
        for channel in statistics.channels:
            yield from _of_peers(channel, by_id, by_name)


def _totals_of(channel: ChannelStatistics) -> Iterator[tuple[str, int]]:
    yield "messages_sent", channel.messages_sent
    yield "messages_handed_out", channel.messages_handed_out
    yield "frames_sent", channel.frames_sent
    yield "repairs_sent", channel.repairs_sent
    yield "naks_sent", channel.naks_sent
    yield "naks_received", channel.naks_received
    yield "gaps", channel.gaps
    yield "messages_lost", channel.messages_lost
    yield "starvations", channel.starvations
    yield from ((f"dropped_{reason}", count) for reason, count in channel.drops.items())


def _of_peers(
    channel: ChannelStatistics, by_id: dict[str, RemotePeer], by_name: dict[str, RemotePeer]
) -> Iterator[tuple[Counted, int]]:
    """Count of each peer what had to be repaired, and what its topics lost."""
    for one in channel.peers:
        peer = by_id.get(one.id)
        if peer is not None:
            yield (peer.node, one.link, "repaired"), one.repaired_frames
    sums: dict[tuple[str, str], int] = {}
    for topic in channel.topics:
        for name in ("lost", "late", "duplicates"):
            key = (topic.source, name)
            sums[key] = sums.get(key, 0) + getattr(topic, name)
    for (source, name), value in sums.items():
        peer = by_name.get(source)
        if peer is not None:
            yield (peer.node, peer.link, name), value


def _nothing() -> None:
    pass
