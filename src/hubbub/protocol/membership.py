"""Who is here: strangers become peers, peers come back, time out, leave and are replaced.

A peer that times out has left, but what is between us stays for the repair window, so a partition
shorter than that costs nothing. Only a goodbye, a restart and the end of the window end it. Crash
and clean leave end in the same place, `_forget`.
"""

from collections.abc import Callable

from hubbub.events import PeerJoined, PeerLeft
from hubbub.limits import MS, SECOND, WANT_INTERVAL_CEILING
from hubbub.protocol.burst import Address
from hubbub.protocol.declared import News
from hubbub.protocol.delivery import MULTICAST
from hubbub.protocol.discovery import Discovery
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.express import Express
from hubbub.protocol.incoming import Incoming
from hubbub.protocol.matches import Matches
from hubbub.protocol.outgoing import Outgoing
from hubbub.protocol.peers import Peer
from hubbub.wire import control
from hubbub.wire.control import Change, Goodbye, PlacedHello, Want
from hubbub.wire.header import CLASSES, GOODBYE, NAK, WANT, Header

_SWEEPS_PER_TIMEOUT = 8


class Membership:
    """The peers of one channel, from the first frame to the last."""

    def __init__(
        self,
        endpoint: Endpoint,
        discovery: Discovery,
        matches: Matches,
        incoming: Incoming,
        outgoing: Outgoing,
        express: Express,
        on_change: Callable[[int], None],
        on_index: Callable[[int, Peer, int], None],
    ) -> None:
        self.endpoint = endpoint
        self.discovery = discovery
        self.matches = matches
        self.incoming = incoming
        self.outgoing = outgoing
        self.express = express
        self.on_change = on_change
        self.on_index = on_index
        self.on_forget: Callable[[int, bytes], None] = lambda now, key: None
        self.peers = discovery.peers
        self._timeout_ns = int(endpoint.settings.peer_timeout_ms * MS)
        self._retention_ns = int(endpoint.settings.repair_window_ms * MS)
        self.sweep_ns = endpoint.now + self._timeout_ns // _SWEEPS_PER_TIMEOUT

    def meet(self, now: int, header: Header, source: Address) -> Peer | None:
        """Make a peer of a stranger, unless it has left before."""
        if header.kind == GOODBYE:
            departed = self.discovery.departed.get(header.key)
            if departed is not None:
                self.incoming.answer_departed(header.key, source, *departed)
        # Nothing follows from a stranger's request.
        is_news = header.kind not in (GOODBYE, NAK)
        peer = self.discovery.find(header.key, source, now) if is_news else None
        if peer is None:
            has_left = header.key in self.discovery.departed
            self.endpoint.drops["departed" if has_left else "stranger"] += 1
        else:
            peer.pipe = self.endpoint.pipes.get(header.key)
            peer.is_nearby = header.key in self.endpoint.nearby
            is_piped = self.endpoint.link is not MULTICAST
            is_apart = is_piped or self.endpoint.is_probed_by(peer.key)
            peer.grouped_ns = None if is_apart else now
        return peer

    def welcome_back(self, now: int, peer: Peer) -> None:
        """Welcome back a peer that had timed out: what was owed still is."""
        peer.lost_ns = None
        self.outgoing.set_lost(peer, is_lost=False)
        if peer.is_known:
            self._join(peer)
        self.on_change(now)

    def take_hello(self, now: int, peer: Peer, body: bytes) -> bool:
        """Get to know a peer and what it wants; False: the body is malformed."""
        hello = control.decode(PlacedHello, body)
        if hello is None or hello.parts == 0:
            return False
        if hello.domain != self.endpoint.identity.domain:
            self.endpoint.drops["domain"] += 1
            return True
        if not peer.is_known:
            if not hello.is_reply and self._has_living_rival(peer):
                return True  # It will be asked; only who is alive can answer.
            self._replace_older(now, peer)
        self.on_index(now, peer, hello.index)
        news = self.discovery.take_hello(now, peer, hello, self.endpoint.key)
        if news is not None:
            if not peer.is_known:
                peer.is_known = True
                self._join(peer)
                for grant in peer.early_grants:
                    self.incoming.take_grant(now, peer, grant)
                peer.early_grants.clear()
            self._take_news(now, peer, news)
            self.on_change(now)
        return True

    def take_change(self, now: int, peer: Peer, body: bytes) -> bool:
        """Learn what a peer declares anew; False: the body is malformed."""
        change = control.decode(Change, body)
        if change is None:
            return False
        news = peer.declared.apply(change) if peer.is_known else None
        peer.hear_of(change.version, now)
        if news is not None:
            self._take_news(now, peer, news)
        return True

    def _take_news(self, now: int, peer: Peer, news: News) -> None:
        """Draw the conclusions from what a peer declares."""
        if news.refused:
            self.endpoint.drops["declared"] += news.refused
        self.matches.change(peer, news)
        if news.is_new_interest:
            self.outgoing.grants.reconsider(now, peer)
            self.matches.compare(peer)
            self.on_change(now)

    def _has_living_rival(self, peer: Peer) -> bool:
        """Tell whether another incarnation of this node is here.

        A frame of the one that ended may be late, so which is the newer is not told by the order in
        which they are heard.
        """
        return any(
            other is not peer and other.source.id == peer.source.id and other.is_present
            for other in self.peers.values()
        )

    def _replace_older(self, now: int, peer: Peer) -> None:
        """A new incarnation of a node ends the old one."""
        for other in list(self.peers.values()):
            if other is not peer and other.source.id == peer.source.id:
                self._forget(now, other, "restarted", is_final=True)

    def take_goodbye(self, now: int, peer: Peer, body: bytes) -> bool:
        """Let a peer go when it has nothing more for us; False: the body is malformed."""
        goodbye = control.decode(Goodbye, body)
        if goodbye is None:
            return False
        if peer.ends is None:
            streams = {*CLASSES, *peer.incoming}
            peer.ends = {stream: end for stream, end in goodbye.ends if stream in streams}
            peer.left_ns = now
            self.matches.go(peer)
            self.outgoing.grants.forget(peer)
        for stream, end in peer.ends.items():
            receiver = peer.incoming.get(stream)
            if receiver is not None:
                receiver.extend(now, end)
        self._leave_if_settled(now, peer)
        return True

    def _leave_if_settled(self, now: int, peer: Peer) -> None:
        """Let a peer go that said goodbye, once we have all or it will no longer answer."""
        if peer.ends is None:
            return
        is_settled = not any(one.requester.missing for one in peer.incoming.values())
        if is_settled or now - peer.heard_ns > self._timeout_ns:
            ends, debt = peer.reliable_ends(), peer.their_debt
            self._forget(now, peer, "closed", is_final=True)
            self.incoming.answer_departed(peer.key, peer.reach, ends, debt)

    def ask_strangers(self, now: int, peers: list[Peer]) -> None:
        """Ask those who are here and have not said who they are or what they want."""
        for peer in peers:
            if peer.want_ns is not None and now >= peer.want_ns:
                if peer.is_known and not peer.declared.is_behind:
                    peer.want_ns = None
                else:
                    # Ever more seldom: a forged frame must not make us flood who never sent it.
                    peer.want_ns = now + peer.want_interval_ns
                    peer.want_interval_ns = min(2 * peer.want_interval_ns, WANT_INTERVAL_CEILING)
                    self.endpoint.send(peer.reach, WANT, 0, control.encode(Want(peer.key)))

    def sweep(self, now: int) -> None:
        """Find out who was not heard for too long."""
        for peer in list(self.peers.values()):
            silent_ns = now - peer.heard_ns
            peer.forget_early()
            if peer.ends is not None:
                self._leave_if_settled(now, peer)
            elif peer.lost_ns is None and silent_ns > self._timeout_ns:
                self.lose(now, peer)
            elif silent_ns > self._timeout_ns + self._retention_ns:
                self._forget(now, peer, "timeout", is_final=False)
        # The next one comes in time for whoever will then be silent for just too long.
        self.sweep_ns = min(
            (p.heard_ns + self._timeout_ns + 1 for p in self.peers.values() if p.lost_ns is None),
            default=now + self._timeout_ns,
        )
        self.sweep_ns = min(self.sweep_ns, now + self._timeout_ns // _SWEEPS_PER_TIMEOUT)

    def lose(self, now: int, peer: Peer) -> None:
        """A peer timed out; what is between us stays for the repair window."""
        self.express.close()
        if not peer.is_known:
            del self.peers[peer.key]
            return
        peer.lost_ns = now
        peer.want_ns = None  # It will be asked when it is heard again.
        self.discovery.forgive(peer.source.id)
        self.outgoing.set_lost(peer, is_lost=True)
        self.matches.go(peer)
        self._report_left(peer, "timeout")
        self.on_change(now)

    def bury(self, now: int, peer: Peer) -> None:
        """Let go of a peer whose process has ended, and which will never be heard again."""
        self._forget(now, peer, "died" if peer.ends is None else "closed", is_final=True)

    def _forget(self, now: int, peer: Peer, reason: str, *, is_final: bool) -> None:
        """End everything between a peer and us."""
        self.express.close()
        was_reported = peer.lost_ns is not None
        self.matches.go(peer)
        self.incoming.forget(peer, "publisher_gone")
        if reason != "closed":
            self.outgoing.note_unserved(peer)
        self.outgoing.grants.forget(peer)
        self.on_forget(now, peer.key)
        if is_final:
            self.discovery.depart(peer)
        else:
            del self.peers[peer.key]
            self.discovery.state.want_anew()  # So that it grants anew if it comes back.
            self.discovery.announce(now)
        if peer.is_known and not was_reported:
            self._report_left(peer, reason)
        self.on_change(now)

    def _report_left(self, peer: Peer, reason: str) -> None:
        place = (peer.host, peer.pid, peer.place)
        self.endpoint.events.append(PeerLeft(self.endpoint.channel, peer.source, reason, *place))

    def _join(self, peer: Peer) -> None:
        place = (peer.host, peer.pid, peer.place)
        uptime_s = (self.endpoint.now - peer.opened_ns) // SECOND
        self.endpoint.events.append(
            PeerJoined(self.endpoint.channel, peer.source, *place, uptime_s)
        )
        self.matches.come(peer)

    def known_peers(self) -> list[Peer]:
        """Return the peers that have introduced themselves and not taken leave."""
        return [peer for peer in self.peers.values() if peer.is_known and peer.ends is None]
