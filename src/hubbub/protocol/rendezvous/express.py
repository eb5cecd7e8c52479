"""HOT. A plain message on its way through its manager, from the frame that came to those that go.

Most of what comes to a manager is published by the node that sends it, for a service that is served
here, in which nothing is out of the ordinary: a few subscribers, each reached straight. For these
nothing is made that is thrown away again: neither a request, nor what is put around it. Whatever
else comes is left to `Manager`, which does the same for all cases, and says more of why.

Of a message of 64 bytes to one subscriber this takes the manager 30 us, the long way 50 us; the run
of a scenario is the same, frame by frame, whichever is taken.
"""

from typing import Final

from hubbub.limits import DIRECT_FAN_OUT, SERVICE_PAYLOAD_BYTES_MAX
from hubbub.protocol.rendezvous.hops import Done
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.seat import allow_everything
from hubbub.protocol.rendezvous.service import Service
from hubbub.wire.header import HEADER_BYTES, SERVICE
from hubbub.wire.payloads import count_of, is_sound
from hubbub.wire.services import (
    BATCH,
    ENVELOPE,
    ENVELOPE_BYTES,
    INFO,
    KEY_BYTES,
    NO_LOCAL,
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


class Express:
    """The short way through the manager of a service."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._seat = manager.seat
        self._done: dict[bytes, Done] = {}

    def take(self, now: int, node: bytes, data: bytes) -> tuple[Answer, int, int] | None:
        """Take a whole frame; None: it must go the long way.

        Else return the answer, the flags of the request and the bytes of its payload.
        """
        if len(data) < _REST_AT or data[_TYPE_AT] != PUBLISH:
            return None
        hop, flags, hops, origin, incarnation, sequence, _, lease_ms, _, extra_bytes = (
            ENVELOPE.unpack_from(data, HEADER_BYTES)
        )
        if extra_bytes or hops or flags & _PLAIN or lease_ms or origin != node:
            return None
        key, rest = data[_KEY_AT:_REST_AT], data[_REST_AT:]
        service = self._manager.services.get(key)
        if service is None or not service.is_served or not self._is_plain(service):
            return None
        messages = 1
        if flags & BATCH:
            if not is_sound(rest):
                return None
            messages = count_of(rest)
        if sequence >> 63 or len(rest) > SERVICE_PAYLOAD_BYTES_MAX:
            return None
        if service.seen.take((origin, incarnation, ""), sequence, messages):
            first = service.order + 1
            service.order += messages
            head = (flags & BATCH, 0, origin, incarnation, sequence, service.epoch, 0, first)
            if service.listing.find(self._seat.node) is not None:
                self._manager.own.deliver(now, Request(0, *head, Message(INFO, key, rest), NOTHING))
            self._send(now, service, origin, head, _INFO + key + rest)
        count = service.listing.count
        return Answer(hop, TAKEN, service.epoch, count, self._seat.node), flags, len(rest)

    def _is_plain(self, service: Service) -> bool:
        """Tell whether all subscribers of a service are reached in the same, simple way."""
        count = service.listing.count
        if not 0 < count <= DIRECT_FAN_OUT or self._seat.policy is not allow_everything:
            return False
        return not self._seat.is_leaving and not service.listing.special

    def _send(self, now: int, service: Service, origin: bytes, head: _Head, tail: bytes) -> None:
        place_of, own = self._manager.view.place_of, self._seat.node
        targets = []
        for line in service.listing:
            place = place_of(line.node) or line.place
            is_out = line.node == own or (line.flags & NO_LOCAL and line.node == origin)
            if place is not None and not is_out:
                targets.append((line.node, place))
        done = self._done.get(service.key)
        if done is None:
            done = self._done[service.key] = self._make_done(service.key)
        pack = ENVELOPE.pack
        if targets:
            self._manager.post.hops.post(
                now, targets, SERVICE, lambda hop: pack(hop, *head, 0) + tail, done
            )

    def _make_done(self, key: bytes) -> Done:
        def done(now: int, node: bytes, answer: Answer | None) -> None:
            if answer is not None and answer.status == UNKNOWN:
                self._manager.forgotten(now, key, node, answer.number)

        return done
