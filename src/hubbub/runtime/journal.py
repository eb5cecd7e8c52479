"""Writes what a channel does to the loggers of `runtime.logs`: frames, events, counters."""

import logging

from hubbub.events import (
    Closed,
    Event,
    GapAbandoned,
    LinkDown,
    LinkUp,
    Nagging,
    NoCommonLink,
    PeerJoined,
    PeerLeft,
    PeerRefused,
    PublisherMatched,
    PublisherUnmatched,
    SlowConsumer,
    SubscriberMatched,
    SubscriberUnmatched,
    VersionMismatch,
)
from hubbub.limits import SECOND
from hubbub.links.host import HostLink
from hubbub.links.inlet import Received
from hubbub.links.multicast import MulticastLink
from hubbub.links.unicast import UnicastLink
from hubbub.protocol.burst import Burst
from hubbub.protocol.core import Core
from hubbub.protocol.timetrigger.passing import Discarded
from hubbub.runtime.logs import logger_of
from hubbub.wire.header import HEADER_BYTES, KIND_NAMES, REPAIR, decode
from hubbub.wire.timed import split_origin

_CONCERN_OF: dict[type[Event], logging.Logger] = {
    PeerJoined: logger_of("peers"),
    PeerLeft: logger_of("peers"),
    PeerRefused: logger_of("peers"),
    PublisherMatched: logger_of("peers"),
    PublisherUnmatched: logger_of("peers"),
    SubscriberMatched: logger_of("peers"),
    SubscriberUnmatched: logger_of("peers"),
    VersionMismatch: logger_of("peers"),
    GapAbandoned: logger_of("repair"),
    Nagging: logger_of("repair"),
    NoCommonLink: logger_of("connection"),
    SlowConsumer: logger_of("repair"),
    LinkDown: logger_of("connection"),
    LinkUp: logger_of("connection"),
    Closed: logger_of("connection"),
}
_WARNINGS = (
    GapAbandoned, Nagging, SlowConsumer, LinkDown, PeerRefused, VersionMismatch, NoCommonLink,
)  # fmt: skip

_wire_in = logger_of("wire.in")
_wire_out = logger_of("wire.out")
_cache = logger_of("cache")
_segments = logger_of("segments")
_statistics = logger_of("statistics")
_samples = logger_of("samples")
_repair = logger_of("repair")


class Journal:
    """The log of one channel."""

    def __init__(self, core: Core, link: MulticastLink | UnicastLink | HostLink) -> None:
        self._core = core
        self._link = link
        self.is_tracing_in = False
        self.is_tracing_out = False
        self._statistics_ns = 0
        self._repairs = (0, 0, 0)
        self._look()

    def note(self, event: Event) -> None:
        """Log an event, a bad one as a warning."""
        logger = _CONCERN_OF.get(type(event))
        if logger is not None:
            level = logging.WARNING if isinstance(event, _WARNINGS) else logging.INFO
            logger.log(level, "%s", event)

    def trace_in(self, received: list[Received]) -> None:
        """Log the frames that came."""
        for buffer, segment_bytes, source in received:
            for start in range(0, len(buffer), segment_bytes or len(buffer) or 1):
                _wire_in.debug("%s from %s", _describe(buffer[start:]), source[:2])

    def trace_out(self, burst: Burst) -> None:
        """Log the frames that left."""
        data = b"".join(burst.buffers)
        for start in range(0, len(data), burst.segment_bytes or len(data) or 1):
            where = burst.destination[:2] if burst.destination else self._link.channel
            _wire_out.debug("%s to %s", _describe(data[start:]), where)

    def trace_sample(self, sample: Discarded) -> None:
        """Log a sample that a consumer did not take."""
        node, port = split_origin(sample.origin)
        who = f"{node.hex()[-6:]} port {port}"
        _samples.debug("%s: %d of %s from %s", sample.reason, sample.sequence, sample.subject, who)

    def tick(self, now: int) -> None:
        """Once a second: write what is written periodically."""
        self._look()
        outgoing = self._core.outgoing
        if _cache.isEnabledFor(logging.DEBUG):
            for cache in outgoing.caches:
                _cache.debug(
                    "%s: %d frames, %d bytes from frame %s, %d evicted", self._link.channel,
                    len(cache), cache.size_bytes, cache.first, cache.evicted,
                )  # fmt: skip
        if _segments.isEnabledFor(logging.DEBUG):
            budget = self._core.incoming.budget
            _segments.debug(
                "%s: %d bytes of large messages to send, %d bytes incomplete",
                self._link.channel, sum(one.framer.large_bytes for one in outgoing.reliables),
                budget.claimed_bytes,
            )  # fmt: skip
        self._note_repairs()
        interval_ns = int(self._core.settings.statistics_interval * SECOND)
        if interval_ns and now >= self._statistics_ns:
            self._statistics_ns = now + interval_ns
            self._note_statistics()

    def _note_repairs(self) -> None:
        """Log what was asked for and sent again since the last look, if anything was."""
        counters = self._core.endpoint.counters
        sent = sum(sender.repairs_sent for sender in self._core.outgoing.reliables)
        repairs = counters["naks_sent"], counters["naks_received"], sent
        asked, was_asked, again = (
            new - old for new, old in zip(repairs, self._repairs, strict=True)
        )
        self._repairs = repairs
        if asked or was_asked or again:
            _repair.debug(
                "%s: asked %d times for frames, was asked %d times, sent %d frames again",
                self._link.channel, asked, was_asked, again,
            )  # fmt: skip

    def _note_statistics(self) -> None:
        """Log what the channel did so far."""
        core, (asked, was_asked, again) = self._core, self._repairs
        messages = core.outgoing.messages_sent
        _statistics.info(
            "%s: peers=%d messages_sent=%d repairs_sent=%d naks_sent=%d naks_received=%d"
            " messages_lost=%d cache_bytes=%d %s", self._link.channel,
            sum(peer.is_present for peer in core.peers.values()), messages, again, asked,
            was_asked, core.endpoint.counters["messages_lost"],
            sum(cache.size_bytes for cache in core.outgoing.caches), self._link.statistics(),
        )  # fmt: skip

    def _look(self) -> None:
        self.is_tracing_in = _wire_in.isEnabledFor(logging.DEBUG)
        self.is_tracing_out = _wire_out.isEnabledFor(logging.DEBUG)
        is_tracing = _samples.isEnabledFor(logging.DEBUG)
        self._core.timed.office.trace = self.trace_sample if is_tracing else None


def _describe(frame: bytes) -> str:
    if len(frame) < HEADER_BYTES:
        return f"{len(frame)} bytes"
    header = decode(frame)
    kind = KIND_NAMES.get(header.kind, str(header.kind))
    again = " again" if header.flags & REPAIR else ""
    sender = header.key[:3].hex()
    return f"{kind}{again} {header.sequence} of {sender}/{header.stream}, packet {header.packet}"
