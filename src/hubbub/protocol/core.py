"""The protocol of one node on one channel: all that shells and the simulator see.

Inputs are datagrams, calls of the application and the clock; outputs are bursts, deliveries and
events, fetched by the shell. Nothing here raises because of what a peer sent: it is counted in
`drops`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from random import Random

from msgspec.structs import asdict

from hubbub.events import Closed, Event, Nagging, VersionMismatch
from hubbub.limits import (
    GOODBYE_INTERVAL,
    GOODBYE_REPEATS,
    MS,
    SECOND,
    SEQUENCE_MAX,
    STATUS_INTERVAL,
    US,
    WINDOW_BYTES,
    WINDOW_BYTES_MIN,
)  # fmt: skip
from hubbub.protocol.burst import Address, Burst, Pipes, place_of
from hubbub.protocol.controls import Controls
from hubbub.protocol.delivery import LOCAL, MULTICAST, Delivery, Handover
from hubbub.protocol.discovery import Discovery
from hubbub.protocol.endpoint import Endpoint, Identity
from hubbub.protocol.express import Express
from hubbub.protocol.framing import Payload
from hubbub.protocol.incoming import Incoming
from hubbub.protocol.linkless import Linkless
from hubbub.protocol.matches import Matches
from hubbub.protocol.membership import Membership
from hubbub.protocol.outgoing import Outgoing
from hubbub.protocol.peers import Peer
from hubbub.protocol.probing import Probing
from hubbub.protocol.register import Register
from hubbub.protocol.sender import Sender
from hubbub.protocol.settings import Settings
from hubbub.protocol.state import State
from hubbub.protocol.timetrigger.gateway import Gateway
from hubbub.protocol.timetrigger.lanes import Lanes
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control
from hubbub.wire.control import Goodbye, Heartbeat, Hello, PlacedHello, Tail
from hubbub.wire.header import (
    BEACON,
    CHANGE,
    DATA,
    GOODBYE,
    HEADER_BYTES,
    HEARTBEAT,
    HELLO,
    KIND_OFFSET,
    LOST,
    MAGIC,
    MAJOR,
    MEMBERS,
    NO_INDEX,
    OPEN_BITMAP,
    PREFIX_BYTES,
    REFERS,
    RESPONSE,
    SEALED,
    SEGMENT,
    TAG_BYTES,
    TIMED,
    Header,
    decode,
    is_intact,
)  # fmt: skip
from hubbub.wire.wishes import Links, encode_links

_VERSION_SOURCES_MAX = 256
_PLAIN = (0, OPEN_BITMAP, REFERS, REFERS | OPEN_BITMAP)


class Core:
    """One node on one channel."""

    def __init__(
        self,
        now: int,
        identity: Identity,
        settings: Settings,
        *,
        channel: str,
        random: Random,
        frame_bytes_max: int,
        burst_bytes_max: int,
        window_bytes: int,
        first_frame: int = 1,
        first_message: int = 1,
    ) -> None:
        assert 0 < first_frame < SEQUENCE_MAX and 0 < first_message < SEQUENCE_MAX
        self.settings = settings
        self.endpoint = Endpoint(identity, settings, channel, random, count(1))
        self.endpoint.now = now
        self.state = State()
        self.interest = self.state.interest
        self.express = Express()
        window = settings.window_bytes or min(window_bytes, WINDOW_BYTES)
        window = min(max(window, WINDOW_BYTES_MIN), 0xFFFF_FFFF)
        body_bytes_max = frame_bytes_max - HEADER_BYTES - TAG_BYTES
        self.register = Register(self.endpoint.key)
        self.incoming = Incoming(
            self.endpoint, self.interest, self.register, window, body_bytes_max
        )
        self.discovery = Discovery(
            now, random, self.state, self._introduction,
            lambda address, body: self.endpoint.send(address, HELLO, 0, body),
            lambda body: self.endpoint.send(None, CHANGE, 0, body), body_bytes_max,
            int(settings.heartbeat_ms * MS),
        )  # fmt: skip
        self.peers = self.register.peers = self.discovery.peers
        self.outgoing = Outgoing(
            self.endpoint, frame_bytes_max, burst_bytes_max, self.peers,
            first_frame=first_frame, first_message=first_message,
        )  # fmt: skip
        self._hold(is_held=True)
        self.matches = Matches(self.endpoint, self.state)
        self.linkless = Linkless(self.endpoint, self.peers, self.outgoing, self.matches, self.state)
        self.outgoing.grants.on_unserved = self.linkless.look_later
        self.matches.on_publisher = self.linkless.look_later
        self.membership = Membership(
            self.endpoint, self.discovery, self.matches, self.incoming, self.outgoing,
            self.express, self._changed, self._take_index,
        )  # fmt: skip
        self.probing = Probing(self.endpoint, self._make_heartbeat, self.reroute)
        self.controls = Controls(
            self.endpoint, self.interest, self.discovery, self.membership, self.incoming,
            self.outgoing, self._take_index, self.probing,
        )  # fmt: skip
        self.timed = Gateway(self.endpoint, self.peers, body_bytes_max)
        self.timed.time.use(settings.clock)
        self.timed.office.link_to = self.outgoing.grants.link_to
        self.lanes = Lanes(self.endpoint, self.peers, self.timed.relay, self._receive_frame)
        self.membership.on_forget = self.timed.forget
        self.on_beacon: Callable[[int, Peer, bytes], None] | None = None  # Set by gateways.
        self.on_members: Callable[[int, Peer, bytes], None] | None = None  # Set by services.
        self.due_ns = now  # When `advance` has something to do, at the latest.
        self._opened_ns = now
        self._foreign: set[Address] = set()
        self.is_closing = False
        self.is_closed = False
        self.down: set[str] = set()  # Interfaces that are, as the shell says.
        self._linger_until_ns = 0
        self._goodbye_ns: int | None = None
        self._goodbyes = 0

    # What the shell drains.

    @property
    def deliveries(self) -> list[Delivery]:
        """Return the runs of messages to hand out; the shell empties the list."""
        return self.endpoint.deliveries

    @property
    def events(self) -> list[Event | Handover]:
        """Return the events to report, and what is for components; the shell empties the list."""
        return self.endpoint.events

    def next_burst(self, now: int, *, is_fresh: bool = True) -> Burst | None:
        """Make what goes out in the next system call; control frames go first.

        Without `is_fresh` only control frames and repairs go: somebody else sends what is new.
        """
        self.endpoint.now = now
        if self.endpoint.control:
            return self.endpoint.control.popleft()
        if self.timed.out:
            return self.timed.out.popleft()
        outgoing = self.outgoing
        burst = outgoing.next_burst(now, is_fresh=is_fresh)
        due_ns = outgoing.retry_ns(now) if burst is None else outgoing.tail_ns
        if due_ns is not None and due_ns < self.due_ns:
            self.due_ns = due_ns
        return burst

    def single(
        self, now: int, sender: Sender, topic: OutgoingTopic, payload: Payload, published_ns: int
    ) -> bytes | None:
        """Make the frame of one message if nothing else is to be sent; else None."""
        if self.endpoint.control or self.outgoing.bucket is not None:
            return None
        frame = sender.single(now, topic, payload, published_ns)
        tail_ns = sender.tail_ns
        if tail_ns is not None and tail_ns < self.due_ns:
            self.due_ns = tail_ns
        return frame

    @property
    def is_idle(self) -> bool:
        """Tell whether there is certainly nothing to send."""
        if self.endpoint.control or self.timed.out:
            return False
        for sender in self.outgoing.in_use:
            framer = sender.framer
            if framer.cells or framer.large or sender.repairs or sender.oversized:
                return False
        return True

    def deadline(self) -> int | None:
        """Return when `advance` must be called."""
        if self.is_closed:
            return None
        hold = self.outgoing.hold_deadline()
        due_ns = min(self.due_ns, self.timed.due_ns)
        return due_ns if hold is None else min(hold, due_ns)

    # What the application asks for.

    def publish_on(
        self,
        now: int,
        subject: str,
        *,
        is_reliable: bool = True,
        schema_name: str = "",
        schema_hash: int = 0,
        history: int = 0,
        replayed_ns: int = 0,
        links: Links = (),
    ) -> OutgoingTopic:
        """Return the topic of a subject that is published here from now on, over these links."""
        self.endpoint.now = now
        topic = self.outgoing.declare(
            now, subject, self.membership.known_peers(), is_reliable=is_reliable,
            schema_name=schema_name, schema_hash=schema_hash, history=history,
            replayed_ns=replayed_ns, links=links,
        )  # fmt: skip
        topic.publishers += 1
        if topic.publishers == 1:
            self.state.publish(topic)
            self.announce_topic(now, topic)
        self._changed(now)
        return topic

    def publish_no_more(self, now: int, topic: OutgoingTopic) -> None:
        """Take back one `publish_on`; what was published is still sent, and the sequence stays."""
        self.endpoint.now = now
        topic.publishers -= 1
        if not topic.publishers:
            topic.history = None
            self.state.publish_no_more(topic)
            self.announce_topic(now, topic)

    def announce_topic(self, now: int, topic: OutgoingTopic) -> None:
        """Tell the others that a topic is declared, or no more."""
        self.matches.compare_topic(topic, self.peers.values())
        self.discovery.announce(now)
        self.due_ns = min(self.due_ns, self.discovery.deadline())

    def subscribe(self, now: int, pattern: str, links: Links = ()) -> None:
        """Want what matches this pattern, by these links alone if there are any."""
        self.endpoint.now = now
        if self.state.want(pattern, links):
            self._interest_changed(now)

    def unsubscribe(self, now: int, pattern: str, links: Links = ()) -> None:
        """Want it no longer, unless another subscription does."""
        self.endpoint.now = now
        if self.state.want_no_more(pattern, links):
            self._interest_changed(now)

    def join(self, now: int, pattern: str, request: int, count: int = 0, links: Links = ()) -> None:
        """Want what matches, and the history of it before: so many messages of each topic; 0: all.

        Deliveries with this request are for who asks; `Joining` puts them in order with the others.
        """
        self.endpoint.now = now
        self.state.want(pattern, links)
        self.state.ask(request, pattern, count, links)
        self._interest_changed(now)

    def leave(self, now: int, pattern: str, request: int, links: Links = ()) -> None:
        """Want neither any longer."""
        self.endpoint.now = now
        self.state.withdraw(request)
        self.state.want_no_more(pattern, links)
        self._interest_changed(now)

    def _renew_interest(self, now: int) -> None:
        """Ask all publishers anew what they owe us."""
        self.incoming.wants_grant = False
        self.state.want_anew()
        self._interest_changed(now)

    def _interest_changed(self, now: int) -> None:
        self.express.close()
        self.incoming.interest_changed(list(self.peers.values()))
        self.matches.is_stale = True
        self.discovery.announce(now)
        self.due_ns = now

    def close(self, now: int, linger_ns: int) -> None:
        """Begin to leave: send what is pending, say goodbye, serve repairs for a while."""
        self.endpoint.now = now
        if not self.is_closing:
            self.is_closing = True
            self.timed.close(now)
            self.outgoing.leave()
            self._linger_until_ns = now + linger_ns
            self.due_ns = now
            if self.outgoing.reliable.is_held and self.outgoing.has_work(now):
                self.discovery.look_longer(now)

    # Pipes.

    def open_pipe(self, now: int, key: bytes, *, link: str = LOCAL, place: str = "") -> None:
        """Use a pipe to the node of this key from now on, and introduce ourselves by it."""
        self.endpoint.now = now
        pipe = self.endpoint.ways.open(key, link, place)
        peer = self.peers.get(key)
        if peer is not None:
            peer.pipe = pipe
        self._note_grouped(now)
        self.reroute(now)
        self.discovery.introduce(pipe)

    def close_pipe(self, now: int, key: bytes, *, is_dead: bool, link: str = LOCAL) -> None:
        """Use it no more; `is_dead`: the process at the other end has ended.

        That may be known only a moment later, in a second call.
        """
        self.endpoint.now = now
        pipe = self.endpoint.ways.close(key, link)
        peer = self.peers.get(key)
        if is_dead:
            self.endpoint.ways.bury(key)
        if peer is not None:
            peer.pipe = None if is_dead else pipe
            if is_dead:
                self.membership.bury(now, peer)
        self.reroute(now)

    def _note_grouped(self, now: int) -> bool:
        """Note who of those reached by TCP hears the group, too; True: that has changed."""
        oldest_ns = now - int(self.settings.peer_timeout_ms * MS)
        heard = [(key, self.peers.get(key)) for key in self.endpoint.ways.far]
        grouped = frozenset(
            key
            for key, peer in heard
            if peer is not None and peer.grouped_ns is not None and peer.grouped_ns >= oldest_ns
        )
        before, self.endpoint.ways.grouped = self.endpoint.ways.grouped, grouped
        return grouped != before

    def _note_unheard(self, now: int) -> None:
        """Note who of this host the group does not reach: its cable may be out, or ours."""
        oldest_ns = now - self.discovery.heartbeat_interval_ns * 5 // 4
        self.endpoint.ways.note_unheard(
            frozenset(
                peer.key
                for peer in self.peers.values()
                if peer.pipe is not None
                and peer.pipe.is_near
                and (self.down or max(peer.met_ns, peer.grouped_ns or 0) < oldest_ns)
            )
        )

    def reroute(self, now: int) -> None:
        """Look again which ways frames take."""
        for stream in self.outgoing.senders:
            self.outgoing.grants.reroute(stream)
        self._look_at_links(now)
        self.outgoing.note_behind(list(self.peers.values()))
        self.express.close()
        self._changed(now)

    def _look_at_links(self, now: int) -> None:
        """See which links lead where, for those who insist on some, and who cannot be served."""
        self.outgoing.grants.look_at_links(now, self.peers.values())
        self.linkless.look(now)

    # What arrives.

    def receive(self, now: int, buffer: bytes, segment_bytes: int, source: Address) -> None:
        """Take a datagram, or several of one size that the kernel joined."""
        endpoint = self.endpoint
        endpoint.now = now
        if not segment_bytes and self.express.lanes:
            delivery = self.express.take(now, buffer, source, endpoint.received_ns)
            if delivery is not None:
                endpoint.deliveries.append(delivery)
                due_ns = now + STATUS_INTERVAL
                if due_ns < self.due_ns:
                    self.due_ns = due_ns
                return
        endpoint.link = source.link if isinstance(source, Pipes) else MULTICAST
        endpoint.came_from = source
        size = len(buffer)
        step = segment_bytes or size or 1
        if size > HEADER_BYTES and buffer[KIND_OFFSET] == RESPONSE:
            self.lanes.receive(now, buffer, step, source)
            return
        if not size:
            endpoint.drops["short"] += 1
        end = 0
        if segment_bytes and (peer := self.express.train_of(buffer, source)) is not None:
            end = step * self._take_train(now, peer, buffer, 0, 0, step)
        while (start := end) < size:
            end = min(start + step, size)
            peer = self._receive_frame(now, buffer, start, end, source)
            if peer is not None and end + step <= size:  # Of a large message that is for us.
                end += step * self._take_train(now, peer, buffer, start, end, step)

    def _take_train(
        self, now: int, peer: Peer, buffer: bytes, like: int, start: int, step: int
    ) -> int:
        """Take pieces of a large message whose headers begin as the one at `like`."""
        prefix = buffer[like : like + PREFIX_BYTES]
        count = self.incoming.take_train(now, peer, prefix, buffer, start, step)
        if count:
            self._watch_streams(peer)
        return count

    def _receive_frame(
        self, now: int, buffer: bytes, start: int, end: int, source: Address
    ) -> Peer | None:
        drops = self.endpoint.drops
        if end - start < HEADER_BYTES:
            drops["short"] += 1
            return None
        header = decode(buffer, start)
        if header.magic != MAGIC:
            drops["magic"] += 1
        elif header.version >> 4 != MAJOR:
            drops["version"] += 1
            self._report_version(header.version >> 4, source)
        elif header.domain != self.endpoint.domain:
            drops["domain"] += 1
        elif header.key == self.endpoint.key:
            drops["own"] += 1
        elif header.flags & SEALED:
            drops["sealed"] += 1
        elif self.endpoint.link is not LOCAL and not is_intact(buffer, start, end, header.checksum):
            drops["checksum"] += 1
        elif header.sequence == SEQUENCE_MAX:
            drops["sequence"] += 1
        elif self.endpoint.link is not MULTICAST and header.key != source[0]:
            drops["pipe"] += 1  # Who is at the other end of a pipe speaks for itself alone.
        else:
            return self._dispatch(now, header, buffer, start, end, source)
        return None

    def _dispatch(
        self, now: int, header: Header, buffer: bytes, start: int, end: int, source: Address
    ) -> Peer | None:
        peer = self.peers.get(header.key)
        if peer is None:
            peer = self.membership.meet(now, header, source)
            if peer is None:
                return None
            if peer.want_ns is not None:
                self.due_ns = min(self.due_ns, peer.want_ns)
        peer.heard_ns = now
        if not isinstance(source, Pipes) and peer.address != source:
            self._move(now, peer, source)
        if peer.lost_ns is not None:
            self.membership.welcome_back(now, peer)
        kind = header.kind
        if kind in (DATA, SEGMENT):
            is_for_us = self.incoming.take_frame(now, peer, header, buffer, start, end)
            self._watch_streams(peer)
            is_plain = is_for_us and header.flags in _PLAIN
            if is_plain and end - start == len(buffer):
                self._open_lane(peer, header, buffer, start, source)
            elif is_plain and kind == SEGMENT:
                self.express.open_train(buffer, start, peer, source)
            return peer if is_for_us and kind == SEGMENT else None
        self._take_control(now, peer, header, buffer, start, end)
        return None

    def _take_control(
        self, now: int, peer: Peer, header: Header, buffer: bytes, start: int, end: int
    ) -> None:
        if header.kind in TIMED:
            if not self.timed.take(now, peer, header, buffer, start, end):
                self.endpoint.drops["malformed"] += 1
            elif header.kind == RESPONSE:
                self.lanes.open(peer, buffer, start)
            return
        if header.kind == MEMBERS and self.on_members is not None:
            self.on_members(now, peer, buffer[start + HEADER_BYTES : end])
            return
        if header.kind == BEACON:
            if self.on_beacon is not None:
                self.on_beacon(now, peer, buffer[start + HEADER_BYTES : end])
            return
        self.express.close()
        refusal = self.controls.take(now, peer, header, buffer[start + HEADER_BYTES : end])
        if refusal:
            self.endpoint.drops[refusal] += 1
        # It may have set timers of its sender; all others are looked at in `advance`, and at once
        # when something was lost that may have named topics.
        is_at_once = header.kind == LOST
        self.due_ns = min(self.due_ns, now if is_at_once else self._next_due(now, [peer]))

    def _move(self, now: int, peer: Peer, address: Address) -> None:
        """Note where a peer is heard from now."""
        peer.address = address
        if not self.endpoint.is_probed_by(peer.key):
            peer.grouped_ns = now
        self.outgoing.grants.follow(peer)
        self._look_at_links(now)
        if peer.pipe is not None and self._note_grouped(now):
            self.reroute(now)

    def _open_lane(
        self, peer: Peer, header: Header, buffer: bytes, start: int, source: Address
    ) -> None:
        """Let further frames like this plain one, which came alone, take the express lane."""
        receiver = peer.incoming.get(header.stream)
        is_calm = receiver is not None and receiver.is_reliable and not self.incoming.is_suspended
        is_calm = is_calm and not peer.joining
        if header.kind == DATA and is_calm:
            assert receiver is not None
            refers = bool(header.flags & REFERS)
            self.express.open(buffer, start, peer, receiver, source, refers=refers)

    def _watch_streams(self, peer: Peer) -> None:
        """Lower the deadline to the timers that a data frame may have set."""
        due = self.due_ns
        for receiver in peer.incoming.values():
            if receiver.status_ns is not None and receiver.status_ns < due:
                due = receiver.status_ns
            timer = receiver.requester.timer_ns
            if timer is not None and timer < due:
                due = timer
        self.due_ns = due

    def _report_version(self, version: int, source: Address) -> None:
        if source not in self._foreign and len(self._foreign) < _VERSION_SOURCES_MAX:
            self._foreign.add(source)
            event = VersionMismatch(self.endpoint.channel, place_of(source), version)
            self.events.append(event)

    def _take_index(self, now: int, peer: Peer, index: int) -> None:
        """Learn which index a peer has; one that does not say which keeps the one it had."""
        if index not in (NO_INDEX, peer.index):
            self.outgoing.grants.renumber(peer, index)
        self.register.hear(now, peer)

    # Time.

    def advance(self, now: int) -> None:
        """Do what is due."""
        self.endpoint.now = now
        if now >= self.timed.due_ns:
            self.timed.advance(now)
        if self.is_closed or (now < self.due_ns and not self.endpoint.control):
            for sender in self.outgoing.in_use:
                sender.framer.calm(now)
        else:
            self._advance_all(now)

    def _advance_all(self, now: int) -> None:
        self.discovery.advance(now)
        if self.matches.is_stale:
            self.matches.refresh()
        self._open(now)
        if self.register.advance(now):
            self.discovery.heartbeat_ns = now
        if now >= self.membership.sweep_ns:
            self.membership.sweep(now)
            if self._note_grouped(now):
                self.reroute(now)
            self._look_at_links(now)
        self.linkless.advance(now)
        peers = list(self.peers.values())
        self.membership.ask_strangers(now, peers)
        self.incoming.advance(now, peers)
        self._watch_nagging(now, peers)
        if self.incoming.wants_grant:
            self._renew_interest(now)
        is_tail_due = self.outgoing.advance(now, peers)
        is_beat = now >= self.discovery.heartbeat_ns
        if is_beat:
            self._note_unheard(now)
            self.probing.tell(peers)
        if is_tail_due or is_beat:
            self._tell_ends(now, is_beat=is_beat)
        if self.is_closing:
            self._advance_closing(now)
        self.due_ns = self._next_due(now, list(self.peers.values()))

    def _next_due(self, now: int, peers: list[Peer]) -> int:
        """Return when something is due, as far as it concerns these peers or all."""
        times = [
            self.membership.sweep_ns, self.discovery.deadline(), self.incoming.deadline(peers),
            self.outgoing.deadline(now, peers), self._goodbye_ns, self.register.due_ns,
            self.linkless.deadline(),
        ]  # fmt: skip
        times += [peer.want_ns for peer in peers]
        if self.outgoing.reliable.is_held:
            times.append(self.discovery.opens_ns)
        if self.is_closing:
            times.append(self._linger_until_ns)
        return min(time for time in times if time is not None)

    def _open(self, now: int) -> None:
        """End the opening: everybody here has had the time to say what it wants."""
        if self.outgoing.reliable.is_held and self.discovery.has_looked(now):
            self._hold(is_held=False)
            self.register.open(now)

    def expect(self, keys: Iterable[bytes]) -> None:
        """Do not end the opening before these have said what they want: others told of them."""
        self.discovery.expect(keys)

    def _hold(self, *, is_held: bool) -> None:
        for sender in self.outgoing.senders.values():
            sender.is_held = is_held

    def _watch_nagging(self, now: int, peers: list[Peer]) -> None:
        found = self.incoming.nagging.advance(now)
        if found is None:
            return
        policy = self.settings.nagging_policy
        self.events.append(Nagging(self.endpoint.channel, *found, policy))
        if policy == "suspend":
            self.incoming.is_suspended = True
            self.express.close()
        elif policy == "resync":
            self.incoming.resync(peers, "nagging")

    def _tell_ends(self, now: int, *, is_beat: bool) -> None:
        """Tell where the streams end, by the way that their frames take.

        By a quicker one it would overtake them, and whoever hears of frames that are still to come
        asks for them: half of what went by a pipe was repaired for nothing.
        """
        for destination, tails in self.outgoing.tails().items():
            is_asking = any(tail.is_asking for tail in tails)
            if is_asking or (is_beat and destination is None):
                self._send_heartbeat(destination, tails)
        for sender in self.outgoing.reliables:
            sender.tell_tail(now)
        if is_beat:
            self.discovery.heartbeat_ns = now + self.discovery.heartbeat_interval_ns

    def _send_heartbeat(self, destination: Address | None, tails: list[Tail]) -> None:
        self.endpoint.send(destination, HEARTBEAT, 0, self._make_heartbeat(tails))

    def _make_heartbeat(self, tails: Sequence[Tail] = ()) -> bytes:
        grtt_us = self.outgoing.grants.grtt_ns // US
        version, index = self.discovery.announcer.told, self.register.index
        return control.encode_heartbeat(Heartbeat(version, grtt_us, list(tails), index))

    def _advance_closing(self, now: int) -> None:
        """Say goodbye once all was sent; be closed once all was received or patience ends."""
        has_work = self.outgoing.has_work(now) or self.outgoing.reliable.is_held
        # One that does not know yet what it is owed would take our leave for the end of it.
        has_work = has_work or any(
            peer.is_present and peer.debt.due_ns is not None for peer in self.peers.values()
        )
        is_over = now >= self._linger_until_ns
        if not is_over and has_work:
            self._goodbye_ns = None  # It is said again once that is done, and not due before.
            return
        if self._goodbye_ns is None or now >= self._goodbye_ns or is_over:
            self._goodbye_ns = now + GOODBYE_INTERVAL
            ends = [(s, sender.next_sequence) for s, sender in self.outgoing.senders.items()]
            self.endpoint.send(None, GOODBYE, 0, control.encode(Goodbye(ends)))
            self._goodbyes += 1
            self.incoming.leave(self.peers.values())
        if is_over or (self.outgoing.is_settled() and self._goodbyes >= GOODBYE_REPEATS):
            self.is_closed = True
            self.events.append(Closed(self.endpoint.channel, "closed"))

    def _introduction(self) -> Hello:
        identity = self.endpoint.identity
        hello = Hello(
            identity.name, identity.host, identity.pid, identity.domain, self.interest.version,
            0, 1, [], self.incoming.offered_bytes(), [], False, index=self.register.index,
            release=identity.release, uptime_s=(self.endpoint.now - self._opened_ns) // SECOND,
            links=encode_links(self.endpoint.links),
        )  # fmt: skip
        port = self.endpoint.datagram_port
        return PlacedHello(**asdict(hello), datagram_port=port) if port else hello

    def _changed(self, now: int) -> None:
        """Who is here, or who receives what, has changed: look at every timer."""
        if self.outgoing.receipts.open:
            self.outgoing.receipts.look()
        self.due_ns = min(self.due_ns, now)
