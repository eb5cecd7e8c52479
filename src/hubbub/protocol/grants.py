"""What receivers are owed: granted, not assumed (decision 0002).

A receiver that sees message 11 before 10 cannot know whether 10 is late, lost, or from before it
was counted in. So a publisher answers each interest with a GRANT that says from which frame and
from which message on it owes what, and repeats it until a STATUS answers. Topics that begin later
are declared in their first frame, which every granted receiver gets; only a new stream needs a new
grant.

Where a class has receivers on this host and others elsewhere for a while, those elsewhere move to
the stream beside the first (protocol/moves.py), and back when one side has been empty for long.
"""

from collections.abc import Callable, Collection, Iterable

from hubbub.limits import (
    GRANT_INTERVAL,
    GRANT_INTERVAL_CEILING,
    MS,
    SORTING_CALM,
    STRAIGHT_CALM,
    US,
)
from hubbub.protocol.burst import Address, Pipes
from hubbub.protocol.delivery import DATAGRAM, INPROC, MULTICAST
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.granting import write_grant
from hubbub.protocol.moves import Move, sides_of
from hubbub.protocol.peers import Peer
from hubbub.protocol.replays import Replays
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic, Sides
from hubbub.wire.control import GrantedStream
from hubbub.wire.header import BESIDE, CLASS_OF, CLASSES, RELIABLES
from hubbub.wire.wishes import BY_DATAGRAM, LINKS_OF, Links, may_hand_over


def _nothing() -> None:
    """Let nobody know."""


def _no_branch(topic: OutgoingTopic, wish: Links) -> OutgoingTopic | None:
    """Make no branches."""
    return None


def _sides(topic: OutgoingTopic, streams: tuple[int, ...]) -> Sides:
    """Say how a topic is framed for streams: of a branch there is only the copy."""
    return sides_of(streams) if topic.live is None else (True,)


def _is_near(peer: Peer) -> bool:
    """Tell whether a peer is on this host."""
    return peer.pipe is not None and peer.pipe.is_near


class Grants:
    """Keeps the debts of one channel and tells the receivers of them."""

    def __init__(
        self,
        senders: dict[int, Sender],
        topics: dict[int, OutgoingTopic],
        body_bytes_max: int,
        send: Callable[[Peer, bytes], None],
        endpoint: Endpoint,
        replays: Replays,
        in_use: list[Sender],
    ) -> None:
        self.senders = senders
        self.topics = topics
        self.body_bytes_max = body_bytes_max
        self.send = send
        self.endpoint = endpoint
        self.replays = replays
        self.in_use = in_use
        # These never start anew, also not for a peer that was forgotten and remembers us.
        self.serial = 0
        self.debts = 0
        self.from_frames: dict[bytes, dict[int, int]] = {}  # Peer -> stream -> first owed frame.
        self._peers: dict[bytes, Peer] = {}  # The same peers.
        self._crowded: set[int] = set()  # Streams with several receivers.
        self.on_interest: Callable[[], None] = _nothing  # What anybody wants has changed.
        self.on_unserved: Callable[[int], None] = lambda now: None  # And what cannot be had.
        self.open_branch: Callable[[OutgoingTopic, Links], OutgoingTopic | None] = _no_branch
        self._calm_ns: dict[int, int] = {}  # When those with one again may go straight to it.
        self.split: set[int] = set()  # Classes whose receivers elsewhere have their own stream.
        self._sort_ns: dict[int, tuple[int, bool]] = {}  # When to sort which, and whether to split.
        self.moving: dict[bytes, Peer] = {}
        self.has_wishes = False  # A topic of ours keeps to some links.

    def reconsider(self, now: int, peer: Peer) -> None:
        """Compare what a peer wants with what we publish, and grant the difference."""
        self.on_interest()
        debt = peer.debt
        self._branch_out(peer, [one for one in self.topics.values() if one.live is None])
        wanted = {number for number, topic in self.topics.items() if self._is_for(topic, peer)}
        self._note_unserved(now, peer, wanted)
        for number in [number for number in debt.owed if number not in wanted]:
            self._end(peer, number)
        for number in wanted - debt.owed.keys():
            self._begin(now, peer, self.topics[number])
        self.replays.reconsider(peer, wanted, self.topics)
        self._leave_streams(peer)
        if debt.owed or peer.key in self.from_frames or debt.version:
            self._schedule(now, peer)

    def add_topic(self, now: int, topic: OutgoingTopic, peers: Iterable[Peer]) -> None:
        """Begin to owe a new topic to those who want it."""
        for peer in peers:
            for one in (topic, *self._branch_out(peer, [topic])):
                if not self._is_for(one, peer):
                    continue
                is_new_stream = self._begin(now, peer, one)
                self.replays.join(peer, one)
                # The frame that declares a best-effort topic may be lost for good.
                if is_new_stream or not topic.is_reliable or peer.debt.moves:
                    self._schedule(now, peer)
            if topic.links or peer.declared.wishes:
                self._note_unserved(now, peer, peer.debt.owed)

    def _is_for(self, topic: OutgoingTopic, peer: Peer) -> bool:
        """Tell whether a peer is to get a topic by frames."""
        matcher = peer.declared.wishes.get(topic.wish) if topic.wish else peer.interest
        if matcher is None or not matcher.match(topic.subject):
            return False
        if not topic.links:
            return not peer.is_nearby
        if topic.number in peer.debt.owed:
            return True  # Also while no link leads there: what is in the cache may still come.
        is_handed_over = peer.is_nearby and INPROC in topic.links
        return bool(not is_handed_over and peer.links and self.link_to(peer, topic.ways))

    def link_to(self, peer: Peer, links: Links) -> str:
        """Return the first of these links that leads to a peer now; empty: none does."""
        is_heard = self._is_recent(peer.grouped_ns)
        if DATAGRAM in links and not self._takes_datagrams(peer, is_heard=is_heard):
            links = tuple(link for link in links if link != DATAGRAM)
        return self.endpoint.ways.link_to(peer.key, links, is_heard=is_heard)

    def _is_recent(self, heard_ns: int | None) -> bool:
        timeout_ns = int(self.endpoint.settings.peer_timeout_ms * MS)
        return heard_ns is not None and heard_ns >= self.endpoint.now - timeout_ns

    def _takes_datagrams(self, peer: Peer, *, is_heard: bool) -> bool:
        """Tell whether datagrams may go to a peer, and get there as far as anybody can know."""
        if DATAGRAM not in self.endpoint.links or DATAGRAM not in peer.links:
            return False
        is_heard = is_heard or self._is_recent(peer.straight_ns)
        return is_heard and not isinstance(peer.address, Pipes)

    def _branch_out(self, peer: Peer, topics: list[OutgoingTopic]) -> list[OutgoingTopic]:
        """Return the branches of topics that a peer wants by links of its choice."""
        branches = [
            self.open_branch(topic, wish)
            for wish, matcher in peer.declared.wishes.items()
            for topic in topics
            if matcher.match(topic.subject)
        ]
        return [branch for branch in branches if branch is not None]

    def _note_unserved(self, now: int, peer: Peer, wanted: Collection[int]) -> None:
        """Note what a peer wants and cannot have for want of a link."""
        unserved = set()
        for topic in self.topics.values() if self._has_wishes(peer) else ():
            for wish in peer.declared.wishes_for(topic.subject) if topic.live is None else ():
                branch = topic.branches.get(wish) if wish else topic
                is_plain = not (wish or topic.links)
                is_handed_over = peer.is_nearby and may_hand_over(topic.links, wish)
                is_served = branch is not None and branch.number in wanted
                if not (is_plain or is_handed_over or is_served):
                    unserved.add((topic.number, wish))
        if unserved != peer.debt.unserved:
            peer.debt.unserved = unserved
            self.on_unserved(now)

    def _has_wishes(self, peer: Peer) -> bool:
        return bool(peer.declared.wishes) or self.has_wishes

    def look_at_links(self, now: int, peers: Iterable[Peer]) -> None:
        """See which links lead where by now, for what keeps to some of them."""
        for stream in [stream for stream in self.senders if stream in LINKS_OF]:
            self.reroute(stream)
        for peer in [one for one in peers if one.debt.unserved]:
            wanted = {number for number, topic in self.topics.items() if self._is_for(topic, peer)}
            if wanted - peer.debt.owed.keys():
                self._serve_by_links(now, peer)

    def _serve_by_links(self, now: int, peer: Peer) -> None:
        """Grant what a link has made possible; the peer asked for nothing just now.

        So it waits for no grant, and would drop what overtakes it: on streams that it gets already
        each topic is named before anything of it is framed.
        """
        debt, streams = peer.debt, set(self.from_frames.get(peer.key, ()))
        before = set(debt.owed)
        self.reconsider(now, peer)
        for number in [number for number in debt.owed if number not in before]:
            stream = debt.placed[number][-1]
            if stream in streams:
                declared = self.topics[number].declare(stream, debt.owed[number])
                self.senders[stream].name(now, declared, peer.index)
        if peer.is_present:
            self.resend(now, peer)

    def end_topic(self, topic: OutgoingTopic, peers: Iterable[Peer]) -> None:
        """Stop owing a topic that is no longer published."""
        for peer in peers:
            for one in (topic, *topic.branches.values()):
                if one.number in peer.debt.owed:
                    self._end(peer, one.number)
            self._leave_streams(peer)
            peer.debt.unserved = {one for one in peer.debt.unserved if one[0] != topic.number}

    def forget(self, peer: Peer) -> None:
        """End the whole debt to a peer."""
        self.on_interest()
        for number in list(peer.debt.owed):
            self._end(peer, number)
        self.replays.forget(peer)
        self._leave_streams(peer)
        self.moving.pop(peer.key, None)
        peer.debt.due_ns = None

    def renew(self, now: int, peer: Peer) -> None:
        """Begin anew with a peer that has forgotten what it was owed."""
        self.forget(peer)
        peer.debt.number = 0
        peer.debt.has_begun = False
        self.reconsider(now, peer)

    def acknowledge(self, peer: Peer, nonce: int) -> None:
        """Take in that a peer knows its grant."""
        debt = peer.debt
        debt.has_begun = True
        if nonce >= debt.serial:
            debt.due_ns = None

    def repeat(self, now: int, peer: Peer) -> None:
        """Tell a peer anew what it is owed."""
        self._schedule(now, peer)

    def resend(self, now: int, peer: Peer) -> None:
        """Send the grant to a peer, and plan the next time."""
        debt = peer.debt
        for body in self._bodies(peer):
            self.send(peer, body)
        debt.due_ns = now + debt.interval_ns
        debt.interval_ns = min(2 * debt.interval_ns, GRANT_INTERVAL_CEILING)

    def _schedule(self, now: int, peer: Peer) -> None:
        debt = peer.debt
        if not debt.number:
            self.debts += 1
            debt.number = self.debts
        self.serial += 1
        debt.serial = self.serial
        debt.version = peer.interest_version
        debt.interval_ns = GRANT_INTERVAL
        debt.due_ns = now
        for move in debt.moves.values():
            if move.until is not None and not move.serial:
                move.serial = debt.serial
        self.replays.granted(peer)

    def _begin(self, now: int, peer: Peer, topic: OutgoingTopic) -> bool:
        streams = self._place(peer, topic)
        is_first = not self._has_relative(peer, topic)
        peer.debt.owed[topic.number] = topic.next_sequence
        peer.debt.placed[topic.number] = streams
        live = topic.live or topic
        if is_first:
            live.count_in(peer.index)
        if topic is not live:
            topic.count_in(peer.index)
        for side in _sides(topic, streams):
            topic.serve(peer.index, side)
        entered = [self._enter(now, peer, stream) for stream in streams]
        return any(entered)

    @staticmethod
    def _has_relative(peer: Peer, topic: OutgoingTopic) -> bool:
        """Tell whether a peer gets the same messages by another branch of their topic."""
        live = topic.live or topic
        family = (live, *live.branches.values())
        return any(one is not topic and one.number in peer.debt.owed for one in family)

    def _place(self, peer: Peer, topic: OutgoingTopic) -> tuple[int, ...]:
        """Choose the streams of a topic that begins for a peer: those that the others go by."""
        cls = topic.stream
        if topic.links:
            return (cls,)
        move = peer.debt.moves.get(cls)
        if move is not None:
            return move.source, move.target
        for streams in peer.debt.placed.values():
            if CLASS_OF.get(streams[-1]) == cls:
                return streams
        return (self._side_of(peer, cls),)

    def _side_of(self, peer: Peer, cls: int) -> int:
        """Return the stream of a class that a peer should have."""
        return BESIDE[cls] if cls in self.split and not _is_near(peer) else cls

    def _enter(self, now: int, peer: Peer, stream: int) -> bool:
        """Count a peer in as a receiver of a stream; False: it was one."""
        sender = self.senders[stream]
        streams = self.from_frames.setdefault(peer.key, {})
        if stream in streams:
            return False
        streams[stream] = sender.next_sequence
        peer.debt.entered.add(stream)
        if sender not in self.in_use:
            self.in_use.append(sender)
        self._peers[peer.key] = peer
        self.reroute(stream)
        if sender.flow is not None:
            sender.flow.add(peer.key, now, sender.next_sequence, sender.position, peer.window_bytes)
        return True

    def _end(self, peer: Peer, number: int) -> None:
        del peer.debt.owed[number]
        streams = peer.debt.placed.pop(number)
        for move in peer.debt.moves.values():
            move.marks.pop(number, None)
        topic = self.topics.get(number)
        if topic is not None:
            live = topic.live or topic
            if not self._has_relative(peer, topic):
                live.count_out(peer.index)
            if topic is not live:
                topic.count_out(peer.index)
            for side in _sides(topic, streams):
                topic.serve_no_more(peer.index, side)
            assert live.receivers >= 0

    def renumber(self, peer: Peer, index: int) -> None:
        """Take in which index a peer has now: it is a receiver under that from now on."""
        old, peer.index = peer.index, index
        counted = set()
        for number, streams in peer.debt.placed.items():
            topic = self.topics[number]
            counted |= {topic, topic.live or topic}
            topic.readdress(old, index, _sides(topic, streams))
        for topic in counted:
            topic.count_out(old)
            topic.count_in(index)
        self.replays.renumber(peer, old, index)

    def _leave_streams(self, peer: Peer) -> bool:
        """Take a peer out of the streams that carry nothing for it any more; False: of none."""
        streams = self.from_frames.get(peer.key, {})
        needed = {stream for placed in peer.debt.placed.values() for stream in placed}
        for cls in [cls for cls in peer.debt.moves if not needed & {cls, BESIDE[cls]}]:
            self.senders[peer.debt.moves.pop(cls).source].leaving -= 1
        needed |= self.replays.streams_of(peer)
        left = [stream for stream in streams if stream not in needed]
        for stream in left:
            del streams[stream]
            self.reroute(stream)
            sender = self.senders[stream]
            if sender.flow is not None:
                sender.flow.remove(peer.key, sender.next_sequence)
                sender.acknowledged()
        if not streams:
            self.from_frames.pop(peer.key, None)
            self._peers.pop(peer.key, None)
        return bool(left)

    def reroute(self, stream: int) -> None:
        """Choose the way of new frames: pipes, straight to the only receiver, or the group."""
        keys = [key for key, streams in self.from_frames.items() if stream in streams]
        if stream in LINKS_OF:
            self._reroute_by_links(stream, keys)
            return
        straight = self._find_straight(stream, keys)
        route = self.endpoint.ways.route(keys, self.endpoint.behind)
        self.senders[stream].framer.take_route(route, straight)
        self._watch_sides(CLASS_OF[stream])

    def _reroute_by_links(self, stream: int, keys: list[bytes]) -> None:
        """Let a stream that keeps to some links take the first of them that leads to each."""
        sender, ways = self.senders[stream], self.endpoint.ways
        links = {key: self.link_to(self._peers[key], LINKS_OF[stream]) for key in keys}
        for key, link in links.items() if sender.flow is not None else ():
            assert sender.flow is not None
            is_lost = not link or self._peers[key].lost_ns is not None
            if sender.flow.set_lost(key, sender.next_sequence, is_lost=is_lost) and not is_lost:
                sender.remind(self.endpoint.now)
        if stream in BY_DATAGRAM:
            sender.framer.take_route(*self._find_addresses(links))
            return
        route = ways.choose(links, self.endpoint.behind)
        straight = self._find_straight(stream, keys) if route is None else None
        sender.framer.take_route(route, straight)

    def _find_addresses(self, links: dict[bytes, str]) -> tuple[Pipes | None, Address | None]:
        """Choose the way of a stream that may take datagrams: pipes, and the address of only one.

        What goes to the group goes there for one receiver, too. So whatever comes to somebody alone
        came by a datagram, and the receiver can tell.
        """
        addresses = [self._peers[key].address for key, link in links.items() if link == DATAGRAM]
        if len(addresses) == 1 == len(links):
            return None, addresses[0]
        return self.endpoint.ways.choose(links, self.endpoint.behind, addresses), None

    def way_to(self, peer: Peer, stream: int) -> Address | None:
        """Return where to send what of a stream is for one peer alone; None: nowhere."""
        if stream not in LINKS_OF:
            return peer.reach
        link = self.link_to(peer, LINKS_OF[stream])
        if link in (MULTICAST, DATAGRAM):
            return None if isinstance(peer.address, Pipes) else peer.address
        return self.endpoint.ways.choose({peer.key: link}, ()) if link else None

    def _find_straight(self, stream: int, keys: list[bytes]) -> Address | None:
        """Return the address of the only receiver; None: there are more, or were just now."""
        now = self.endpoint.now
        if len(keys) > 1:
            self._crowded.add(stream)
        elif stream in self._crowded:
            self._crowded.discard(stream)
            self._calm_ns[stream] = now + STRAIGHT_CALM
        if len(keys) != 1 or now < self._calm_ns.get(stream, 0):
            return None
        address = self._peers[keys[0]].address
        return None if isinstance(address, Pipes) else address

    def follow(self, peer: Peer) -> None:
        """Send what goes straight to a peer to its new address."""
        for stream in self.from_frames.get(peer.key, ()):
            self.reroute(stream)

    def advance(self, now: int) -> None:
        """Go straight to receivers that have been the only one for long enough."""
        for stream in [stream for stream, at_ns in self._calm_ns.items() if now >= at_ns]:
            del self._calm_ns[stream]
            self.reroute(stream)
        for cls in [cls for cls, (at_ns, _) in self._sort_ns.items() if now >= at_ns]:
            _, is_split = self._sort_ns.pop(cls)
            (self.split.add if is_split else self.split.discard)(cls)
            self._sort(now, cls)
        if self.moving:
            self.look_at_moves(now)

    def deadline(self) -> int | None:
        """Return when `advance` has something to do."""
        times = [*self._calm_ns.values(), *(at_ns for at_ns, _ in self._sort_ns.values())]
        return min(times, default=None)

    def look_around(self) -> None:
        """See where receivers are by now."""
        for cls in CLASSES:
            self._watch_sides(cls)

    def _receivers_of(self, cls: int) -> list[Peer]:
        """Return who is here and gets something of a class."""
        return [
            self._peers[key]
            for key, streams in self.from_frames.items()
            if (cls in streams or BESIDE[cls] in streams) and self._peers[key].is_present
        ]

    def _watch_sides(self, cls: int) -> None:
        """Plan to sort the receivers of a class, if they are not where they should be."""
        peers = self._receivers_of(cls)
        is_mixed = len({_is_near(peer) for peer in peers}) > 1
        is_split = cls in self.split
        delay_ns = STRAIGHT_CALM if is_split and not is_mixed else SORTING_CALM
        is_planned = cls in self._sort_ns and self._sort_ns[cls][1] == is_mixed
        if is_mixed == is_split and not any(self._misplaced(peer, cls) for peer in peers):
            self._sort_ns.pop(cls, None)
        elif not is_planned:
            self._sort_ns[cls] = self.endpoint.now + delay_ns, is_mixed

    def _misplaced(self, peer: Peer, cls: int) -> list[int]:
        """Return which topics of a class a peer should get by the other stream."""
        side, placed = self._side_of(peer, cls), peer.debt.placed
        return [
            number
            for number, streams in placed.items()
            if streams[-1] != side and CLASS_OF[side] == CLASS_OF.get(streams[-1])
        ]

    def _sort(self, now: int, cls: int) -> None:
        """Let all receivers move to where they should be; some have to wait."""
        must_wait = False
        for peer in self._receivers_of(cls):
            numbers = self._misplaced(peer, cls)
            if numbers and (cls in peer.debt.moves or peer.debt.due_ns is not None):
                must_wait = True  # It does not know yet where it is.
            elif numbers:
                self._move(now, peer, cls, numbers)
        if must_wait:
            self._sort_ns[cls] = now + GRANT_INTERVAL, cls in self.split

    def _move(self, now: int, peer: Peer, cls: int, numbers: list[int]) -> None:
        """Let a peer get these topics by the other stream, too, and soon by that alone."""
        target = self._side_of(peer, cls)
        source = cls if target != cls else BESIDE[cls]
        move = peer.debt.moves[cls] = Move(source, target)
        (is_from_beside, is_to_beside), index = sides_of((source, target)), peer.index
        for number in numbers:
            topic = self.topics[number]
            framed = topic.copy if is_from_beside else topic
            assert framed is not None
            move.marks[number] = framed, topic.next_sequence
            peer.debt.placed[number] = source, target
            topic.serve(index, is_to_beside)
            named = topic.copy if is_to_beside else topic
            if named is not None and topic.next_sequence > peer.debt.owed[number]:
                named.is_declared = True  # By the grant; a frame would say that it begins there.
        self._enter(now, peer, target)
        self.senders[source].leaving += 1
        self.moving[peer.key] = peer
        self.endpoint.counters["moves"] += 1
        self._schedule(now, peer)
        self.look_at_moves(now)

    def look_at_moves(self, now: int) -> None:
        """See what is framed by now of what receivers that move get by the old stream alone."""
        for peer in list(self.moving.values()):
            for move in peer.debt.moves.values():
                sender = self.senders[move.source]
                if move.until is None and move.is_framed(sender.framer):
                    move.until = sender.next_sequence if sender.flow is not None else 0
                    self._schedule(now, peer)
            if not peer.debt.moves:
                del self.moving[peer.key]

    def settle(self, now: int, peer: Peer, stream: int, contiguous: int, serial: int) -> None:
        """End the moves of a peer that has all, and knows."""
        for cls, move in list(peer.debt.moves.items()):
            is_told = stream == move.source or move.source not in RELIABLES
            if is_told and move.is_over(contiguous, serial):
                self._end_move(cls, peer, move)
                self.tidy(now, peer)

    def tidy(self, now: int, peer: Peer) -> None:
        """Let a peer go from streams that it needs no more, and tell it."""
        if self._leave_streams(peer):
            self._schedule(now, peer)

    def _end_move(self, cls: int, peer: Peer, move: Move) -> None:
        del peer.debt.moves[cls]
        self.senders[move.source].leaving -= 1
        (is_beside,) = sides_of((move.source,))
        for number, streams in peer.debt.placed.items():
            if streams == (move.source, move.target):
                peer.debt.placed[number] = (move.target,)
                self.topics[number].serve_no_more(peer.index, is_beside)

    def _bodies(self, peer: Peer) -> list[bytes]:
        continued = {move.target: move for move in peer.debt.moves.values()}
        streams = [
            self._describe(peer, stream, continued.get(stream))
            for stream in self.senders
            if stream in CLASSES or stream in peer.debt.entered
        ]
        replayed = [replay.stated for replay in self.replays.of(peer)]
        return write_grant(
            peer, self.topics, replayed, streams, self.grtt_ns // US, self.body_bytes_max
        )

    @property
    def grtt_ns(self) -> int:
        """Return the greatest round trip to any receiver."""
        flows = [sender.flow for sender in self.senders.values() if sender.flow is not None]
        used = [flow.grtt_ns for flow in flows if flow.receivers]
        return max(used, default=flows[0].grtt_ns)

    def _describe(self, peer: Peer, stream: int, move: Move | None) -> GrantedStream:
        owed, flow = self.from_frames.get(peer.key, {}), self.senders[stream].flow
        return GrantedStream(
            stream,
            owed.get(stream, 0),
            len(flow.receivers) if flow is not None else 1,
            stream in owed,
            0 if move is None else move.source,
            0 if move is None else move.until or 0,
        )
