"""What peers say beside messages: one handler a kind of control frame."""

from collections.abc import Callable

from hubbub.protocol.delivery import MULTICAST
from hubbub.protocol.discovery import Discovery
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.incoming import Incoming
from hubbub.protocol.membership import Membership
from hubbub.protocol.outgoing import Outgoing
from hubbub.protocol.peers import Peer
from hubbub.protocol.probing import Probing
from hubbub.protocol.state import Interest
from hubbub.wire import control
from hubbub.wire.control import Grant, Want
from hubbub.wire.header import (
    CHANGE,
    GOODBYE,
    GRANT,
    HEARTBEAT,
    HELLO,
    LOST,
    NAK,
    REFUSES,
    SKIP,
    STATUS,
    WANT,
    Header,
)  # fmt: skip

_EARLY_GRANTS_MAX = 64


class Controls:
    """Takes control frames, and lets those know whom they concern."""

    def __init__(
        self,
        endpoint: Endpoint,
        interest: Interest,
        discovery: Discovery,
        membership: Membership,
        incoming: Incoming,
        outgoing: Outgoing,
        take_index: Callable[[int, Peer, int], None],
        probing: Probing,
    ) -> None:
        self.endpoint = endpoint
        self.interest = interest
        self.discovery = discovery
        self.peers = discovery.peers
        self.membership = membership
        self.incoming = incoming
        self.outgoing = outgoing
        self.take_index = take_index
        self.probing = probing

    def take(self, now: int, peer: Peer, header: Header, body: bytes) -> str:
        """Take a frame; return why it was not one that we know, or sound."""
        handler = _HANDLERS.get(header.kind)
        if handler is None:
            return "kind"
        return "" if handler(self, now, peer, header, body) else "malformed"

    # False: the body is malformed.

    def _take_heartbeat(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        heartbeat = control.decode_heartbeat(body)
        if heartbeat is None:
            return False
        if self.endpoint.link is MULTICAST:
            if heartbeat.tails or not self.endpoint.is_straight:
                peer.grouped_ns = now
            else:
                self.probing.hear(now, peer)
        self.outgoing.receipts.welcome(peer)
        peer.hear_of(heartbeat.version, now)
        self.take_index(now, peer, heartbeat.node_index)
        for tail in heartbeat.tails:
            self.incoming.take_tail(now, peer, tail, heartbeat.grtt_us, header.sent_us)
        return True

    def _take_status(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        status = control.decode_status(body)
        if status is None:
            return False
        if status.target == self.endpoint.key:
            is_refusal = header.flags & REFUSES != 0
            self.outgoing.take_status(now, peer, header.stream, status, is_refusal=is_refusal)
        return True

    def _take_nak(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        nak = control.decode_nak(body)
        if nak is None:
            return False
        if nak.target == self.endpoint.key:
            self.outgoing.take_nak(now, peer, header.stream, nak.ranges)
        else:
            self.incoming.take_nak(now, self.peers.get(nak.target), header.stream, nak.ranges)
        return True

    def _take_skip(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        skip = control.decode_skip(body)
        if skip is not None and skip.target == self.endpoint.key:
            self.incoming.take_skip(now, peer, header.stream, skip.ranges)
        return skip is not None

    def _take_lost(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        lost = control.decode_lost(body)
        if lost is not None and lost.target == self.endpoint.key:
            self.incoming.take_lost(now, peer, header.stream, lost)
        return lost is not None

    def _take_want(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        want = control.decode(Want, body)
        if want is not None and want.target == self.endpoint.key:
            self.discovery.reply(now, peer.reach)
        return want is not None

    def _take_grant(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        grant = control.decode(Grant, body)
        if grant is None or grant.parts == 0:
            return False
        if grant.target == self.endpoint.key and grant.nonce <= self.interest.version:
            if peer.is_known:
                self.incoming.take_grant(now, peer, grant)
            elif len(peer.early_grants) < _EARLY_GRANTS_MAX:
                # Its messages bear its name, so they wait for the HELLO that tells it.
                peer.early_grants.append(grant)
        return True

    def _take_hello(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        self.outgoing.receipts.welcome(peer)
        is_sound = self.membership.take_hello(now, peer, body)
        self.probing.greet(peer)
        return is_sound

    def _take_change(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        self.outgoing.receipts.welcome(peer)
        return self.membership.take_change(now, peer, body)

    def _take_goodbye(self, now: int, peer: Peer, header: Header, body: bytes) -> bool:
        return self.membership.take_goodbye(now, peer, body)


_HANDLERS = {
    HELLO: Controls._take_hello,
    CHANGE: Controls._take_change,
    HEARTBEAT: Controls._take_heartbeat,
    STATUS: Controls._take_status,
    NAK: Controls._take_nak,
    SKIP: Controls._take_skip,
    LOST: Controls._take_lost,
    WANT: Controls._take_want,
    GRANT: Controls._take_grant,
    GOODBYE: Controls._take_goodbye,
}
