"""HOT. A plain message on its way, from the frame that came to what goes out, or is handed out.

Most of what comes to a node is a message of a node that is known: published by the node that sends
it, in a service that is served here, in which nothing is out of the ordinary (a few subscribers,
each reached straight), or sent by a manager to a subscriber that asks for no order. For these
nothing is made that is thrown away again: neither a header, nor a request, nor what is put around
it. The head of a frame is the same in all that a node sends, so a node that was looked at once is
known by these bytes. Whatever else comes is left to `Manager` and `Client`, which do the same for
all cases, and say more of why.

The run of a scenario is the same, frame by frame, whichever way is taken.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from zlib import crc32

from hubbub.limits import (
    DIRECT_FAN_OUT,
    GROUP_MIN,
    MEMBERS_MAX,
    SERVICE_EPOCH_MAX,
    SERVICE_NUMBER_MAX,
    SERVICE_PAYLOAD_BYTES_MAX,
    SERVICES_MAX,
)
from hubbub.protocol.rendezvous.client import NO_ORDER, Client
from hubbub.protocol.rendezvous.hops import Done
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.seat import Delivered, allow_everything
from hubbub.protocol.rendezvous.service import SERVED, Service
from hubbub.wire.header import CHECKSUM_OFFSET, HEADER_BYTES, PREFIX_BYTES, SERVICE
from hubbub.wire.payloads import count_of, is_sound, split
from hubbub.wire.services import (
    BATCH,
    ENVELOPE,
    ENVELOPE_BYTES,
    HEARS_GROUP,
    INFO,
    KEY_BYTES,
    NO_LOCAL,
    NOBODY,
    NOTHING,
    PROMPT,
    PUBLISH,
    TAKEN,
    UNKNOWN,
    Answer,
    Message,
    Request,
)

_TYPE_AT: Final = HEADER_BYTES + ENVELOPE_BYTES
_KEY_AT: Final = _TYPE_AT + 1
_REST_AT: Final = _KEY_AT + KEY_BYTES
_PLAIN: Final = ~(BATCH | PROMPT)
_INFO: Final = bytes((INFO,))
# Flags, hops, origin, incarnation, sequence, epoch, lease, order.
_Head = tuple[int, int, bytes, int, int, int, int, int]
_Envelope = tuple[int, int, int, bytes, int, int, int, int, int, int]


# What became of a frame that was taken the short way: the answer, the type of the message, its
# flags, and its size in bytes.
Passage = tuple[Answer, int, int, int]
# To call the classes themselves would cost twice as much.
_new_answer: Final[Callable[[Any], Answer]] = partial(tuple.__new__, Answer)
_new_delivered: Final[Callable[[Any], Delivered]] = partial(tuple.__new__, Delivered)


class Express:
    """The short way through a manager, and to a subscriber."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._manager = manager
        self._client = client
        self._members = manager.view.members
        self._seat = manager.seat
        self._hops = manager.post.hops
        self._group = manager.post.group
        self._done: dict[bytes, Done] = {}
        self._known: dict[bytes, tuple[bytes, int]] = {}  # Heads of frames: who, and the checksum.

    def learn(self, node: bytes, data: bytes) -> None:
        """Know the frames of a node from now on by their heads; this one was looked at."""
        if len(self._known) >= MEMBERS_MAX:
            self._known.clear()
        head = data[:PREFIX_BYTES]
        self._known[head] = (node, crc32(head))

    def take(self, now: int, data: bytes) -> Passage | None:
        """Take a whole frame; None: it must go the long way."""
        node, crc = self._known.get(data[:PREFIX_BYTES], (b"", 0))
        if node not in self._members or len(data) < _REST_AT:
            return None
        crc = crc32(data[HEADER_BYTES:], crc32(data[PREFIX_BYTES:CHECKSUM_OFFSET], crc))
        if crc != int.from_bytes(data[CHECKSUM_OFFSET:HEADER_BYTES], "big"):
            return None
        head = ENVELOPE.unpack_from(data, HEADER_BYTES)
        flags, extra_bytes = head[1], head[9]
        if extra_bytes or flags & _PLAIN or len(data) - _REST_AT > SERVICE_PAYLOAD_BYTES_MAX:
            return None
        key, rest, messages = data[_KEY_AT:_REST_AT], data[_REST_AT:], 1
        if flags & BATCH:
            if not is_sound(rest):
                return None
            messages = count_of(rest)
        if data[_TYPE_AT] == PUBLISH:
            return self._pass(now, node, head, key, rest, messages)
        if data[_TYPE_AT] == INFO:
            return self._deliver(now, head, key, rest, messages)
        return None

    def _pass(
        self, now: int, node: bytes, head: _Envelope, key: bytes, rest: bytes, messages: int
    ) -> Passage | None:
        """Send a message that was published to all subscribers."""
        hop, flags, hops, origin, incarnation, sequence, _, lease_ms, _, _ = head
        service = self._manager.services.get(key)
        if service is None or hops or lease_ms or origin != node or sequence >> 63:
            return None
        listing = service.listing
        count = listing.count - (listing.no_local and listing.leaves_out(origin))
        # All subscribers are reached in the same, simple way, and everybody may publish.
        is_plain = not listing.special and 0 < count <= DIRECT_FAN_OUT
        if not is_plain or service.role not in SERVED or self._seat.is_leaving:
            return None
        if self._seat.policy is not allow_everything:
            return None
        if service.seen.take((origin, incarnation, ""), sequence, messages, now):
            first = service.order + 1
            service.order += messages
            body = (flags & BATCH, 0, origin, incarnation, sequence, service.epoch, 0, first)
            own = listing.lines.get(self._seat.node)
            if own is not None and own.is_in:
                self._manager.own.deliver(now, Request(0, *body, Message(INFO, key, rest), NOTHING))
            self._send(now, service, origin, body, _INFO + key + rest)
        answer = _new_answer((hop, TAKEN, service.epoch, count, self._seat.node))
        return answer, PUBLISH, flags, len(rest)

    def _deliver(
        self, now: int, head: _Envelope, key: bytes, rest: bytes, messages: int
    ) -> Passage | None:
        """Hand out a message that a manager sent."""
        hop, flags, _, origin, incarnation, sequence, epoch, lease_ms, order, _ = head
        one = self._client.subscribed.get(key)
        if one is None or one.order != NO_ORDER or lease_ms or sequence >> 63:
            return None
        if epoch > SERVICE_EPOCH_MAX or order > SERVICE_NUMBER_MAX:
            return None
        new = one.seen.take((origin, incarnation, ""), sequence, messages, now)
        payloads = split(rest) if flags & BATCH else [rest]
        delivered = _new_delivered(
            (key, one.name, payloads, origin, incarnation, sequence, order, False, None, "", epoch)
        )
        if new == (1 << messages) - 1:
            one.delivered += messages
            self._seat.deliveries.append(delivered)
        else:
            self._client.deliver_plain(now, one, delivered, new)
        return _new_answer((hop, TAKEN, 0, 0, NOBODY)), INFO, flags, len(rest)

    def _send(self, now: int, service: Service, origin: bytes, head: _Head, tail: bytes) -> None:
        members, seat, hops = self._members, self._seat, self._hops
        targets = []
        for line in service.listing.wanting(""):
            node = line.node
            place = members[node].place if node in members else line.place
            is_out = node == seat.node or (line.flags & NO_LOCAL and node == origin)
            if place is not None and not is_out:
                targets.append((node, place))
        if not targets:
            return
        done = self._done.get(service.key)
        if done is None:
            if len(self._done) >= SERVICES_MAX:
                self._done.clear()  # They are made again.
            done = self._done[service.key] = self._make_done(service.key)
        hops.hop = hop = hops.hop + 1 & 0xFFFF_FFFF
        frame = seat.make_frame(SERVICE, ENVELOPE.pack(hop, *head, 0) + tail)
        if len(targets) >= GROUP_MIN and self._group.is_worth_it(targets):
            self._group.put_out(now, targets, hop, frame, done)
        else:
            hops.put_out(now, targets, hop, frame, done)

    def _make_done(self, key: bytes) -> Done:
        def done(now: int, node: bytes, answer: Answer | None) -> None:
            if answer is None:
                return
            if answer.status == UNKNOWN:
                self._manager.forgotten(now, key, node, answer.number)
            elif answer.number == HEARS_GROUP:
                self._group.believe(now, node)

        return done
