"""The subscribing half of a channel: what peers grant, send and repair, and what we answer.

STATUS goes out after a quarter window of news, 20 ms after the first news, or when asked; by
unicast, because only the sender needs it. NAK goes to the group as soon as there is one, so that
others hear it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial

from hubbub.limits import (
    ACTIVE_SENDER,
    DEPARTED_MAX,
    GRTT_CEILING,
    GRTT_FLOOR,
    MS,
    STATUS_INTERVAL,
    STATUS_WINDOW_SHARE,
    US,
)  # fmt: skip
from hubbub.protocol.delivery import DATAGRAM, MULTICAST, make_passage
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.gateway.relayed import Places
from hubbub.protocol.nagging import NaggingMonitor
from hubbub.protocol.peers import Peer
from hubbub.protocol.reassembly import Budget, Share
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.register import Register
from hubbub.protocol.state import Interest
from hubbub.wire import control
from hubbub.wire.control import Grant, GrantedStream, Lost, Range, Status, Tail
from hubbub.wire.header import (
    CLASS_OF,
    CLASSES,
    DATA,
    DECLARES,
    HEADER_BYTES,
    NAK,
    REFUSES,
    RELIABLE,
    STATUS,
    Header,
    read_stream,
)
from hubbub.wire.train import read_time
from hubbub.wire.wishes import ALL_STREAMS, BY_DATAGRAM

_EARLY_BYTES_MAX = 1 << 20
EARLY_HEADER_BYTES = 512
_ASKED_SPREAD = 10  # Above so many receivers, answers to a question are spread over a round trip.


def _nothing_is_wanted(subject: str) -> bool:
    return False


class Incoming:
    """Everything this node receives as a subscriber on one channel."""

    def __init__(
        self, endpoint: Endpoint, interest: Interest, register: Register, window_bytes: int,
        body_bytes_max: int,
    ) -> None:  # fmt: skip
        settings = endpoint.settings
        self.endpoint = endpoint
        self.register = register
        self.interest = interest
        self.window_bytes = window_bytes
        self.body_bytes_max = body_bytes_max
        self.budget = Budget(settings.reassembly_bytes)
        # How far we were with peers that timed out: if one returns, what it sent meanwhile is a
        # hole, and holes are reported. Peer -> subject -> next sequence.
        self.positions: OrderedDict[bytes, dict[str, int]] = OrderedDict()
        self.places = Places(self._is_here)
        self.asked: dict[bytes, int] = {}  # And which request for history was our last then.
        self.wants_grant = False  # Something was lost that may have named topics.
        self.is_wanted: Callable[[str], bool] = interest.includes_by
        self.is_suspended = False
        self.is_crowded = False  # Those we work for are behind: no STATUS makes room for more.
        self.active_senders = 1
        self.nagging = NaggingMonitor(
            endpoint.now, int(settings.nagging_window_ms * MS), int(settings.nagging_check_ms * MS),
            settings.nagging_requests,
        )  # fmt: skip

    def leave(self, peers: Iterable[Peer]) -> None:
        """Want nothing any more: we have said goodbye, so what does not come is no loss.

        What still comes is acknowledged, for those who did not hear us.
        """
        self.is_wanted = _nothing_is_wanted
        for peer in peers:
            for receiver in peer.incoming.values():
                receiver.is_wanted = self.is_wanted
                receiver.reconsider_interest()

    def _is_here(self, key: bytes) -> bool:
        """Tell whether a node is on this channel itself: another one, or we."""
        return key == self.endpoint.key or key in self.register.peers

    def take_frame(
        self, now: int, peer: Peer, header: Header, buffer: bytes, start: int, end: int
    ) -> bool:
        """Take a DATA or SEGMENT frame; False: it can hold nothing for us."""
        register = self.register
        is_for_us = header.bitmap & register.bits != 0 or register.is_for_us(header)
        if not is_for_us:
            self.endpoint.drops["not_for_us"] += 1
        receiver = peer.incoming.get(header.stream)
        if receiver is None:
            if is_for_us or header.stream in CLASSES:
                self._keep_early(peer, header, buffer[start:end] if is_for_us else b"")
            return is_for_us
        if self.is_suspended:
            self.endpoint.drops["suspended"] += 1
            return is_for_us
        receiver.echo_us = header.sent_us
        receiver.echo_ns = now
        if is_for_us:
            passage, link = receiver.way.link, self.endpoint.link
            if receiver.may_come_by_datagram:
                link = self._link_of(header.stream)
            if (
                passage.receivers_bitmap != header.bitmap
                or passage.receiver != header.receiver
                or passage.link is not link
            ):
                receiver.way.link = make_passage(link, header.receiver, header.bitmap)
            self._accept(now, peer, receiver, header, buffer, start, end)
        else:
            self._pass_by(now, peer, receiver, header.sequence, end - start)
        if peer.joining:
            self._look_at_streams(now, peer)
        if receiver.is_reliable:
            self._plan_status(now, peer, receiver, header.flags & 1 != 0)
        return is_for_us

    def take_train(
        self, now: int, peer: Peer, prefix: bytes, buffer: bytes, start: int, step: int
    ) -> int:
        """Take the pieces of a large message from the frame at `start` on; return how many.

        Their headers begin with `prefix`, which is that of frames of this peer for us.
        At 14 us a frame one by one, large messages in frames of an Ethernet came at 90 MB/s.
        """
        receiver = peer.incoming.get(read_stream(prefix, 0))
        if receiver is None or self.is_suspended:
            return 0
        count = receiver.accept_train(prefix, buffer, start, step)
        if count:
            peer.heard_ns = receiver.echo_ns = now
            receiver.echo_us = read_time(buffer, start + (count - 1) * step)
            if receiver.is_reliable:
                self._plan_status(now, peer, receiver, is_asked=False)
        return count

    def _look_at_streams(self, now: int, peer: Peer) -> None:
        """Let streams take over those that they continue, and which are settled far enough."""
        endpoint = self.endpoint
        for receiver in [one for one in peer.joining if one.may_take_over()]:
            peer.joining.remove(receiver)
            old = receiver.continues
            receiver.take_over(endpoint.received_ns, endpoint.deliveries)
            self.report(peer, receiver)
            self._send_status(now, peer, old)  # It is no longer needed.

    def _pass_by(
        self, now: int, peer: Peer, receiver: Receiver, sequence: int, size_bytes: int
    ) -> None:
        endpoint = self.endpoint
        size_bytes -= HEADER_BYTES
        receiver.pass_by(now, sequence, size_bytes, endpoint.received_ns, endpoint.deliveries)
        if receiver.is_mended:
            receiver.close_holes()
        if receiver.holes or receiver.blind_holes:
            self.report(peer, receiver)

    def _accept(
        self,
        now: int,
        peer: Peer,
        receiver: Receiver,
        header: Header,
        buffer: bytes,
        start: int,
        end: int,
    ) -> None:
        endpoint = self.endpoint
        body = start + HEADER_BYTES
        if header.kind == DATA:
            is_new = receiver.accept_data(
                now, header.sequence, header.flags, buffer, body, end, endpoint.received_ns,
                endpoint.deliveries,
            )  # fmt: skip
        else:
            is_new = receiver.accept_segment(
                now, header.sequence, buffer, body, end, endpoint.received_ns, endpoint.deliveries
            )
        if not is_new:
            endpoint.drops[receiver.refusal] += 1
        if receiver.is_mended:
            receiver.close_holes()
        if receiver.is_overrun():
            receiver.abandon(
                sorted(receiver.requester.missing),
                "resync",
                endpoint.received_ns,
                endpoint.deliveries,
            )
        has_lost_names = header.flags & DECLARES and receiver.has_lost_names
        if receiver.holes or receiver.blind_holes or has_lost_names:
            self.report(peer, receiver)

    def _keep_early(self, peer: Peer, header: Header, frame: bytes) -> None:
        # The grant that makes this frame ours may come by another socket a moment later; of one
        # that is for others it is enough to know then that it came.
        size_bytes = len(frame) or EARLY_HEADER_BYTES
        if peer.early_bytes + size_bytes > _EARLY_BYTES_MAX or not self.interest.patterns:
            self.endpoint.drops["not_granted"] += 1
            return
        peer.early_bytes += size_bytes
        peer.early.append((header, frame, self._link_of(header.stream)))

    def _link_of(self, stream: int) -> str:
        """Name the link by which the frame under way came.

        The socket of the group sends datagrams to one alone, too. Only streams that may take that
        link tell them apart: with the others it is how the group reaches its only receiver.
        """
        endpoint = self.endpoint
        is_datagram = stream in BY_DATAGRAM and endpoint.link is MULTICAST and endpoint.is_straight
        return DATAGRAM if is_datagram else endpoint.link

    def report(self, peer: Peer, receiver: Receiver) -> None:
        """Turn the holes of a stream into events."""
        for hole in receiver.holes:
            self.endpoint.counters["messages_lost"] += hole.last - hole.first + 1
            self.endpoint.report_gap(
                hole.topic.source, hole.topic.subject, hole.first, hole.last, hole.reason
            )
        for first, last, reason in receiver.blind_holes:
            self.endpoint.report_gap(peer.source, None, first, last, reason)
        receiver.holes.clear()
        receiver.blind_holes.clear()
        if receiver.has_lost_names:
            # What comes before it is asked for has no name, but may get one: it must be kept.
            self.wants_grant = receiver.is_awaiting_grant = True
            receiver.has_lost_names = False

    def take_tail(self, now: int, peer: Peer, tail: Tail, grtt_us: int, sent_us: int) -> None:
        """Learn from a heartbeat where a stream ends."""
        receiver = peer.incoming.get(tail.stream)
        if receiver is None:
            return
        receiver.requester.receivers = max(tail.receivers, 1)
        self._set_grtt(receiver, grtt_us)
        receiver.extend(now, tail.next_sequence)
        if receiver.blind_holes:
            self.report(peer, receiver)
        if receiver.is_reliable and tail.is_asking:
            receiver.echo_us = sent_us
            receiver.echo_ns = now
            self._plan_status(now, peer, receiver, is_asked=True)

    @staticmethod
    def _set_grtt(receiver: Receiver, grtt_us: int) -> None:
        receiver.requester.grtt_ns = min(max(grtt_us * US, GRTT_FLOOR), GRTT_CEILING)

    def take_grant(self, now: int, peer: Peer, grant: Grant) -> None:
        """Learn what a peer owes us from where on."""
        is_old = grant.nonce < peer.granted_version or grant.serial < peer.grant_serial
        if is_old or grant.debt < peer.their_debt:
            self.endpoint.drops["old_grant"] += 1
            return
        is_new_debt = grant.debt > peer.their_debt or not peer.grant_nonce
        if is_new_debt and grant.has_begun:
            self._refuse(peer, grant)
            return
        under_way = peer.grant_nonce, peer.their_debt, peer.grant_serial
        if (grant.nonce, grant.debt, grant.serial) != under_way:
            peer.grant_nonce, peer.their_debt = grant.nonce, grant.debt
            peer.grant_serial = grant.serial
            peer.grant_parts.clear()
            peer.grant_replays.clear()
        self._take_streams(now, peer, grant)
        is_current, has_included = grant.nonce == self.interest.version, self.interest.has_included
        for topic in grant.topics:
            receiver = peer.incoming.get(topic.stream)
            if receiver is not None:
                # The answer to an older interest only names what has ended, or begun, since.
                is_owed = is_current or has_included(topic.subject, grant.nonce)
                receiver.declare(topic, is_owed=is_owed, is_granted=True)
                receiver.carry(topic.number)
        peer.grant_replays |= {replayed.number: replayed for replayed in grant.replays}
        peer.grant_parts.add(grant.part)
        if len(peer.grant_parts) >= grant.parts:
            peer.granted_version = grant.nonce
            peer.granted_serial = grant.serial
            self._complete(now, peer)
            reliable = [one for one in peer.incoming.values() if one.is_reliable]
            for receiver in reliable:
                self._send_status(now, peer, receiver)
            if not reliable:
                self._send_status(now, peer, None)

    def _take_streams(self, now: int, peer: Peer, grant: Grant) -> None:
        """Begin, go on with and end streams; those that end leave their topics to the others."""
        for granted in sorted(grant.streams, key=lambda one: not one.is_owed):
            self._take_stream(now, peer, granted, grant.grtt_us)
        for granted in grant.streams:
            if granted.continues:
                self._follow(peer, granted)

    def _take_stream(self, now: int, peer: Peer, granted: GrantedStream, grtt_us: int) -> None:
        receiver = peer.incoming.get(granted.stream)
        if granted.stream not in ALL_STREAMS:
            return  # Of a later minor version: what nobody here can read is not taken.
        if not granted.is_owed:
            if receiver is not None:
                self._end_stream(peer, receiver)
            return
        if receiver is None:
            tolerance_ns = int(self.endpoint.settings.reorder_tolerance_ms * MS)
            receiver = peer.incoming[granted.stream] = Receiver(
                granted.stream, peer.source, granted.from_frame, self.endpoint.random,
                tolerance_ns, self._share_of(peer), self._asked_by(peer),
                partial(self.endpoint.resolve, peer.key), self._requests_to(peer), self.places,
                self._twin_of(peer, granted.stream), knows_wishes=bool(peer.links),
            )  # fmt: skip
            if receiver.is_reliable:
                self._remember(peer, receiver)
            receiver.is_awaiting_grant = True
        else:
            receiver.grant(granted.from_frame)
        receiver.requester.receivers = max(granted.receivers, 1)
        self._set_grtt(receiver, grtt_us)

    def _share_of(self, peer: Peer) -> Share:
        """Return what all streams of a peer have of the memory for incomplete messages."""
        if peer.share is None:
            peer.share = Share(self.budget)
        return peer.share

    def _asked_by(self, peer: Peer) -> Callable[[str], bool]:
        """Return what tells whether something of a peer is wanted."""
        is_older = not peer.links and self.is_wanted == self.interest.includes_by
        return self.interest.includes if is_older else self.is_wanted

    def _requests_to(self, peer: Peer) -> Callable[[str], Iterable[int]]:
        """Return what tells which requests for history something of a peer meets."""
        asks = self.interest.asks
        return asks.match if peer.links else asks.match_all

    def _remember(self, peer: Peer, receiver: Receiver) -> None:
        """Let a reliable stream of a peer that we knew before know how far we were."""
        others = [one for one in peer.incoming.values() if one.is_reliable and one is not receiver]
        if others:
            receiver.positions = others[0].positions
            receiver.joins.asked_before = others[0].joins.asked_before
        elif peer.key in self.positions:
            receiver.positions |= self.positions.pop(peer.key)
            receiver.joins.asked_before = self.asked.pop(peer.key, 0)

    @staticmethod
    def _twin_of(peer: Peer, stream: int) -> Receiver | None:
        """Return the other stream of the same class, if there is one."""
        cls = CLASS_OF.get(stream)
        for other, receiver in peer.incoming.items():
            if other != stream and cls is not None and CLASS_OF.get(other) == cls:
                return receiver
        return None

    def _end_stream(self, peer: Peer, receiver: Receiver) -> None:
        """Take in that nothing more is owed by a stream."""
        endpoint = self.endpoint
        received_ns, out = endpoint.received_ns, endpoint.deliveries
        heir = self._twin_of(peer, receiver.stream)
        if heir is not None:
            receiver.hand_over(heir, received_ns, out)
        else:
            receiver.joins.close("not_available", received_ns, out)
            receiver.reassembly.clear()
        peer.joining = [one for one in peer.joining if one.continues is not None]
        self.report(peer, receiver)
        del peer.incoming[receiver.stream]

    def _follow(self, peer: Peer, granted: GrantedStream) -> None:
        """Learn that a stream continues another one, and up to where."""
        receiver, old = peer.incoming.get(granted.stream), peer.incoming.get(granted.continues)
        if receiver is None or old is None or not receiver.is_reliable:
            return
        if old is receiver or not old.is_reliable:
            self.endpoint.drops["continued"] += 1
            return
        if old.successor is not receiver:
            receiver.follow(old, granted.until)
            peer.joining.append(receiver)
        elif granted.until:
            receiver.until = granted.until

    def _complete(self, now: int, peer: Peer) -> None:
        endpoint = self.endpoint
        self._begin_replays(peer)
        if peer.granted_version == self.interest.version:
            coming = {(stated.live, stated.request) for stated in peer.grant_replays.values()}
            for receiver in peer.incoming.values():
                receiver.is_awaiting_grant = False
                receiver.release_held(endpoint.received_ns, endpoint.deliveries)
                receiver.joins.decide(coming, endpoint.received_ns, endpoint.deliveries)
        else:
            for receiver in peer.incoming.values():
                receiver.release_named(endpoint.received_ns, endpoint.deliveries)
        early, peer.early, peer.early_bytes = peer.early, [], 0
        for header, frame, link in early:
            receiver_now = peer.incoming.get(header.stream)
            if receiver_now is None or header.sequence < receiver_now.from_frame:
                continue
            if not frame:
                self._pass_by(now, peer, receiver_now, header.sequence, HEADER_BYTES)
            else:
                receiver_now.way.link = make_passage(link, header.receiver, header.bitmap)
                self._accept(now, peer, receiver_now, header, frame, 0, len(frame))
        for receiver in peer.incoming.values():
            self.report(peer, receiver)
        self._look_at_streams(now, peer)

    def _begin_replays(self, peer: Peer) -> None:
        """Take in which histories come, and what of them came already."""
        endpoint = self.endpoint
        for stated in peer.grant_replays.values():
            carrier = peer.incoming.get(stated.stream)
            if carrier is None:
                continue
            if not carrier.joins.begin(stated, carrier.way):
                endpoint.drops["replay"] += 1
            elif stated.number in carrier.held:
                # It begins now, whichever interest this grant answers, and what overtook the
                # grant by another link is the beginning of it.
                carrier.release_named(endpoint.received_ns, endpoint.deliveries)

    def _refuse(self, peer: Peer, grant: Grant) -> None:
        status = Status(peer.key, grant.debt, grant.nonce, 0, 0, self.window_bytes, 0, 0)
        body = control.encode_status(status)
        self.endpoint.send(peer.reach, STATUS, RELIABLE, body, REFUSES)

    def interest_changed(self, peers: list[Peer]) -> None:
        """Look again what is wanted; grants for the new interest are under way."""
        includes = self.interest.includes_by
        self.places.keep(includes)
        for positions in self.positions.values():
            for name in [name for name in positions if not includes(name)]:
                del positions[name]
        for peer in peers:
            for receiver in peer.incoming.values():
                receiver.is_awaiting_grant = True
                receiver.reconsider_interest()
                self.report(peer, receiver)

    def take_nak(self, now: int, peer: Peer | None, stream: int, ranges: list[Range]) -> None:
        """Hear another receiver ask: what it asks for, we need not."""
        receiver = peer.incoming.get(stream) if peer is not None else None
        if receiver is not None:
            receiver.requester.heard(now, ranges)

    def take_skip(self, now: int, peer: Peer, stream: int, ranges: list[Range]) -> None:
        """Accept that frames held nothing for us."""
        receiver = peer.incoming.get(stream)
        if receiver is not None and receiver.is_reliable:
            receiver.skip(ranges, self.endpoint.received_ns, self.endpoint.deliveries)
            self.report(peer, receiver)
            self._look_at_streams(now, peer)

    def take_lost(self, now: int, peer: Peer, stream: int, lost: Lost) -> None:
        """Accept that frames can no longer be had."""
        receiver = peer.incoming.get(stream)
        if receiver is not None and receiver.is_reliable:
            receiver.lose(lost, self.endpoint.received_ns, self.endpoint.deliveries)
            self.report(peer, receiver)
            self._look_at_streams(now, peer)

    def _plan_status(self, now: int, peer: Peer, receiver: Receiver, is_asked: bool) -> None:
        if is_asked:
            spread = receiver.requester.receivers
            delay = 0
            if spread > _ASKED_SPREAD:
                delay = self.endpoint.random.randrange(receiver.requester.grtt_ns)
            at = now + delay
        elif receiver.fresh_bytes >= receiver.status_bytes:
            at = now
        else:
            at = now + STATUS_INTERVAL
        if at <= now:
            self._send_status(now, peer, receiver)
        elif receiver.status_ns is None or at < receiver.status_ns:
            receiver.status_ns = at

    def offered_bytes(self) -> int:
        """Return the window that one sender may use: they share the socket buffer."""
        return self.window_bytes // self.active_senders

    def crowd(self, now: int, peers: list[Peer], *, is_crowded: bool) -> None:
        """Take in no more than the windows that were offered, or go on; then everybody hears so."""
        self.is_crowded = is_crowded
        for peer in peers if not is_crowded else ():
            for receiver in peer.incoming.values():
                if receiver.is_reliable:
                    self._send_status(now, peer, receiver)

    def _send_status(self, now: int, peer: Peer, receiver: Receiver | None) -> None:
        if self.is_crowded and receiver is not None:
            receiver.status_ns = None
            return
        contiguous = highest = echo_us = delay_us = 0
        if receiver is not None:
            contiguous, highest = receiver.base, receiver.next
            receiver.fresh_bytes = 0
            if receiver.joins.replays:
                receiver.joins.sweep(self.endpoint.received_ns, self.endpoint.deliveries)
                self.report(peer, receiver)
            receiver.status_bytes = self.offered_bytes() // STATUS_WINDOW_SHARE
            receiver.status_ns = None
            if receiver.echo_us:
                echo_us = receiver.echo_us
                # A shell may have begun its turn before it read the frame.
                delay_us = min(max(now - receiver.echo_ns, 0) // US, 0xFFFF_FFFF)
        status = Status(
            peer.key, peer.their_debt, peer.granted_serial, contiguous, highest,
            self.offered_bytes(), echo_us, delay_us,
        )  # fmt: skip
        self.endpoint.counters["status_sent"] += 1
        stream = RELIABLE if receiver is None else receiver.stream
        self.endpoint.send(peer.reach, STATUS, stream, control.encode_status(status))

    def answer_departed(
        self, key: bytes, address: tuple[object, ...], ends: dict[int, int], debt: int
    ) -> None:
        """Tell one who has said goodbye, and did not hear our last STATUS, that we have all."""
        for stream, end in ends.items():
            status = Status(key, debt, 0, end, end, self.window_bytes, 0, 0)
            self.endpoint.send(address, STATUS, stream, control.encode_status(status))

    def advance(self, now: int, peers: list[Peer]) -> None:
        """Run the timers of all incoming streams."""
        active = 0
        for peer in peers:
            active_classes = set()
            for receiver in list(peer.incoming.values()):
                if now - receiver.echo_ns < ACTIVE_SENDER:
                    active_classes.add(CLASS_OF.get(receiver.stream, receiver.stream))
                if receiver.status_ns is not None and now >= receiver.status_ns:
                    self._send_status(now, peer, receiver)
                timer = receiver.requester.timer_ns
                if timer is not None and now >= timer and peer.lost_ns is None:
                    self._request(now, peer, receiver)
            active += len(active_classes)
        self.active_senders = max(active, 1)

    def _request(self, now: int, peer: Peer, receiver: Receiver) -> None:
        endpoint, settings = self.endpoint, self.endpoint.settings
        if self.is_suspended:
            receiver.requester.timer_ns = None
            return
        frames = receiver.requester.due(now, receiver.echo_ns)
        given_up = receiver.requester.given_up(
            now, settings.repair_rounds, int(settings.repair_time_ms * MS)
        )
        if given_up:
            receiver.abandon(given_up, "given_up", endpoint.received_ns, endpoint.deliveries)
            self.report(peer, receiver)
            self._look_at_streams(now, peer)
            frames = [frame for frame in frames if frame in receiver.requester.missing]
        if frames:
            self.nagging.requested()
            endpoint.counters["naks_sent"] += 1
            body = control.encode_nak(peer.key, frames, self.body_bytes_max)
            destination = peer.reach if receiver.requester.receivers <= 1 else None
            endpoint.send(destination, NAK, receiver.stream, body)

    def deadline(self, peers: list[Peer]) -> int | None:
        """Return when `advance` has something to do."""
        times = [self.nagging.due_ns]
        for peer in peers:
            for receiver in peer.incoming.values():
                times.append(receiver.status_ns)
                if peer.lost_ns is None and not self.is_suspended:
                    times.append(receiver.requester.timer_ns)
        return min((time for time in times if time is not None), default=None)

    def forget(self, peer: Peer, reason: str) -> None:
        """End the streams of a peer that is gone."""
        for receiver in peer.incoming.values():
            receiver.close(reason, self.endpoint.received_ns, self.endpoint.deliveries)
            self.report(peer, receiver)
        reliable = [one for one in peer.incoming.values() if one.is_reliable]
        if reliable:
            positions = self.positions[peer.key] = {}
            for receiver in reliable:
                positions |= receiver.read_positions()
            self.asked[peer.key] = self.interest.last_request
            while len(self.positions) > DEPARTED_MAX:
                self.asked.pop(self.positions.popitem(last=False)[0], None)
        peer.incoming.clear()
        peer.joining.clear()

    def resync(self, peers: list[Peer], reason: str) -> None:
        """Give up everything that is missing and go on."""
        for peer in peers:
            for receiver in peer.incoming.values():
                frames = sorted(receiver.requester.missing)
                receiver.abandon(
                    frames, reason, self.endpoint.received_ns, self.endpoint.deliveries
                )
                self.report(peer, receiver)
