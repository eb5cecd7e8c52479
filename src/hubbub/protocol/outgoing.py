"""The publishing half of a channel: topics, streams, and what receivers answer."""

from itertools import count, islice

from hubbub.errors import ConfigurationError
from hubbub.events import SlowConsumer
from hubbub.limits import BUSY_WINDOW, MS, SECOND, TOPIC_FIRST, TOPICS_MAX, US
from hubbub.protocol.branches import Branch
from hubbub.protocol.burst import NOWHERE, Address, Burst
from hubbub.protocol.cache import Cache
from hubbub.protocol.endpoint import Endpoint
from hubbub.protocol.flow import Flow, ReceiverState, TokenBucket
from hubbub.protocol.framing import Framer
from hubbub.protocol.grants import Grants
from hubbub.protocol.history import History
from hubbub.protocol.peers import Peer
from hubbub.protocol.receipts import Receipts
from hubbub.protocol.replays import Replays
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control
from hubbub.wire.control import Lost, Status, Tail
from hubbub.wire.header import (
    BESIDE,
    BEST_EFFORT,
    CLASSES,
    GRANT,
    HEADER_BYTES,
    LOST,
    RELIABLE,
    RELIABLES,
    SKIP,
    STREAMS,
    TAG_BYTES,
)  # fmt: skip
from hubbub.wire.wishes import ALL_RELIABLES, Links, class_of, combine, framed

_SKIP_RANGES_MAX = 24
_LOST_OVERHEAD_BYTES = 40
_LOST_ANSWERS_MAX = 8
_US_WRAP = 1 << 32


class Outgoing:
    """Everything this node sends as a publisher on one channel."""

    def __init__(
        self, endpoint: Endpoint, frame_bytes_max: int, burst_bytes_max: int,
        peers: dict[bytes, Peer], *, first_frame: int = 1, first_message: int = 1,
    ) -> None:  # fmt: skip
        settings = endpoint.settings
        self.endpoint = endpoint
        self.first_message = first_message
        self.first_frame = first_frame
        self.topics: dict[int, OutgoingTopic] = {}
        self.by_subject: dict[str, OutgoingTopic] = {}
        self._numbers = count(TOPIC_FIRST)
        self._unserved = 0
        self._behind: frozenset[bytes] = frozenset()  # Who was reported to be left behind.
        self.bucket = TokenBucket(settings.rate_limit_bits) if settings.rate_limit_bits else None
        self.allowed_ns = 0  # The rate limit lets nothing go before.
        if self.bucket is not None:
            # A burst is sent whole, and 64 KB of it are half a second of a megabit.
            burst_bytes_max = min(burst_bytes_max, int(self.bucket.burst_bytes))
        self.senders = {
            stream: self._make_sender(stream, frame_bytes_max, burst_bytes_max, first_frame)
            for stream in STREAMS
        }
        self.reliable = self.senders[RELIABLE]
        self.best_effort = self.senders[BEST_EFFORT]
        for cls, beside in BESIDE.items():
            self.senders[cls].framer.beside = self.senders[beside].framer
        self.reliables = [self.senders[stream] for stream in RELIABLES]
        self.flows = {s: sender.flow for s, sender in self.senders.items() if sender.flow}
        # Those that may have something to send: a stream beside another once it had a receiver.
        self.in_use = [self.senders[cls] for cls in CLASSES]
        assert self.reliable.flow is not None and self.reliable.cache is not None
        self.flow = self.reliable.flow
        self.cache = self.reliable.cache
        self.caches = [sender.cache for sender in self.reliables if sender.cache is not None]
        self._was_beside = False
        self._is_leaving = False
        self._turn = 0
        self.receipts = Receipts(endpoint, self.senders, peers)
        self.replays = Replays(self.senders, self._numbers)
        self.grants = Grants(
            self.senders, self.topics, frame_bytes_max - HEADER_BYTES - TAG_BYTES,
            self._send_grant, endpoint, self.replays, self.in_use,
        )  # fmt: skip
        self.grants.open_branch = self.open_branch
        self._sizes = frame_bytes_max, burst_bytes_max

    def _make_sender(
        self, stream: int, frame_bytes_max: int, burst_bytes_max: int, first_frame: int
    ) -> Sender:
        settings = self.endpoint.settings
        framer = Framer(
            stream, frame_bytes_max, int(settings.holdback_ms * MS),
            settings.holdback_rate * BUSY_WINDOW / SECOND, settings.backlog_bytes,
            max(burst_bytes_max // frame_bytes_max, 1), settings.reference_bytes,
        )  # fmt: skip
        flow = cache = None
        if stream in ALL_RELIABLES:
            flow = Flow(int(settings.slow_ms * MS), settings.cache_bytes)
            cache = Cache(settings.cache_bytes, int(settings.repair_window_ms * MS))
        return Sender(
            stream, framer, flow, cache, self.endpoint.make_prefix, self.endpoint.packets,
            burst_bytes_max, first_frame, self.topics, is_beside=stream in BESIDE.values(),
        )  # fmt: skip

    def declare(
        self, now: int, subject: str, peers: list[Peer], *,
        is_reliable: bool, schema_name: str = "", schema_hash: int = 0, history: int = 0,
        replayed_ns: int = 0, links: Links = (),
    ) -> OutgoingTopic:  # fmt: skip
        """Return the topic of a subject; a second publisher must agree on its options."""
        topic = self.by_subject.get(subject)
        if topic is not None:
            if not topic.publishers:
                topic.history = History(history) if history else None
            kept = topic.history.count_max if topic.history is not None else 0
            known = (topic.is_reliable, topic.schema_hash, kept, topic.replayed_ns, topic.links)
            if known != (is_reliable, schema_hash, history, replayed_ns, links):
                raise ConfigurationError(
                    f"{subject} is already published here with reliable={topic.is_reliable},"
                    f" type={topic.schema_name or None}, history={kept},"
                    f" replayed_ns={topic.replayed_ns or None}, links={list(topic.links) or None};"
                    " all publishers of a subject must agree"
                )
            return topic
        if len(self.topics) >= TOPICS_MAX:
            raise ConfigurationError(f"{subject} would be topic {TOPICS_MAX + 1} of this node")
        topic = OutgoingTopic(
            self.next_number(), subject, self.endpoint.source, is_reliable=is_reliable,
            schema_name=schema_name, schema_hash=schema_hash, next_sequence=self.first_message,
            history=history, replayed_ns=replayed_ns, links=links,
        )  # fmt: skip
        self.by_subject[subject] = topic
        self.grants.has_wishes = self.grants.has_wishes or bool(links)
        self._open_stream(topic.stream)
        self.enter(now, topic, peers)
        return topic

    def next_number(self) -> int:
        """Return a number for a new topic."""
        return next(self._numbers)

    def enter(self, now: int, topic: OutgoingTopic, peers: list[Peer]) -> None:
        """Begin to owe a topic, whosever it is, to those who want it."""
        self.topics[topic.number] = topic
        self.grants.add_topic(now, topic, peers)

    def _open_stream(self, stream: int) -> Sender:
        """Return a stream; one that keeps to some links is made when it is first needed."""
        sender = self.senders.get(stream)
        if sender is None:
            sender = self.senders[stream] = self._make_sender(
                stream, *self._sizes, self.first_frame
            )
            sender.is_held, sender.framer.refer = self.reliable.is_held, self.reliable.framer.refer
            if sender.flow is not None and sender.cache is not None:
                self.reliables.append(sender)
                self.flows[stream] = sender.flow
                self.caches.append(sender.cache)
            self.in_use.append(sender)
            self.grants.reroute(stream)
        return sender

    def open_branch(self, topic: OutgoingTopic, wish: Links) -> OutgoingTopic | None:
        """Return the branch of a topic for those who insist on links; None: none can reach them."""
        branch = topic.branches.get(wish)
        cls = RELIABLE if topic.is_reliable else BEST_EFFORT
        ways = framed(combine(topic.links, wish), cls)
        if branch is None and ways and len(self.topics) < TOPICS_MAX:
            branch = topic.branches[wish] = Branch(self.next_number(), topic, wish)
            self.topics[branch.number] = branch
            home, sender = self.sender_of(topic), self._open_stream(branch.stream)
            topic.forks = (*topic.forks, (sender.framer, branch))
            if sender is not home:
                home.framer.followers.add(sender.framer)
        return branch

    def remove(self, topic: OutgoingTopic, peers: list[Peer]) -> None:
        """Owe a topic no more, and forget it; all of it must have been acknowledged."""
        self.grants.end_topic(topic, peers)
        for one in (topic, *topic.branches.values()):
            del self.topics[one.number]

    def ends_of(self, topic: OutgoingTopic) -> dict[int, int] | None:
        """Return before which frame of each stream all of a topic is; None: some of it waits."""
        numbers = {topic.stream: topic.number}
        if topic.stream in BESIDE:
            numbers[BESIDE[topic.stream]] = topic.number
        numbers |= {branch.stream: branch.number for branch in topic.branches.values()}
        senders = {self.senders[stream]: number for stream, number in numbers.items()}
        if not all(sender.framer.is_clear_of(number) for sender, number in senders.items()):
            return None
        return {one.stream: one.next_sequence for one in senders if one.flow is not None}

    def is_acknowledged(self, ends: dict[int, int]) -> bool:
        """Tell whether all receivers, also those who are away, have all before these frames."""
        flows = self.flows
        return all(
            not flows[stream].receivers or flows[stream].acknowledged >= end
            for stream, end in ends.items()
        )

    def is_waiting_for(self, topic: OutgoingTopic, peers: dict[bytes, Peer]) -> bool:
        """Tell whether a receiver of a topic was left behind, and has not caught up yet."""
        for flow in self.flows.values():
            for key in flow.slow:
                peer = peers.get(key)
                if peer is not None and not peer.is_nearby and peer.gets(topic):
                    return True
        return False

    def sender_of(self, topic: OutgoingTopic) -> Sender:
        """Return the stream that a topic is published on; another beside it may carry it, too."""
        return self.senders[topic.stream]

    @property
    def messages_sent(self) -> int:
        """Return how many messages were framed; one for several streams counts once."""
        framers = [sender.framer for sender in self.senders.values()]
        return sum(max(framer.messages - framer.copied, 0) for framer in framers)

    def skip_message(self, topic: OutgoingTopic) -> None:
        """Count a message that nobody wants."""
        assert topic.history is None
        topic.skip()

    def next_burst(self, now: int, *, is_fresh: bool = True) -> Burst | None:
        """Make the next burst of data or repairs that the rate limit allows."""
        if self.bucket is not None and (ready_ns := self.bucket.ready_ns(now)) is not None:
            self.allowed_ns = ready_ns
            return None
        received_ns = self.endpoint.received_ns
        burst = self._next_of(RELIABLE, now, received_ns, is_fresh=is_fresh)
        if self.grants.moving:
            self.grants.look_at_moves(now)
        if self.replays.by_peer:
            self.replays.feed()
        if self.receipts.open:
            self.receipts.look()
        if burst is None and is_fresh:
            burst = self._next_of(BEST_EFFORT, now, received_ns, is_fresh=True)
        for sender in self.in_use:
            if sender.framer.loopback:
                self.endpoint.deliveries += sender.framer.loopback
                sender.framer.loopback.clear()
        if burst is not None and self.bucket is not None:
            self.bucket.take(now, sum(map(len, burst.buffers)))
        return burst

    def _next_of(self, cls: int, now: int, received_ns: int, *, is_fresh: bool) -> Burst | None:
        """Make the next burst of a class; where there are two streams, they take turns."""
        main, beside = self.senders[cls], self.senders[BESIDE[cls]]
        if len(self.in_use) == len(CLASSES):
            return main.next_burst(now, received_ns, is_fresh=is_fresh)
        self._was_beside = not self._was_beside
        if len(self.senders) > len(STREAMS):
            return self._next_of_many(cls, now, received_ns, is_fresh=is_fresh)
        first, second = (beside, main) if self._was_beside else (main, beside)
        burst = first.next_burst(now, received_ns, is_fresh=is_fresh)
        if burst is None:
            burst = second.next_burst(now, received_ns, is_fresh=is_fresh)
        if burst is None and first is beside and beside.framer.cells:
            burst = beside.next_burst(now, received_ns, is_fresh=is_fresh)  # From the main one.
        return burst

    def _next_of_many(
        self, cls: int, now: int, received_ns: int, *, is_fresh: bool
    ) -> Burst | None:
        """Do the same where there are streams that keep to links; some get work from others."""
        self._turn += 1
        streams = [one for one in self.in_use if class_of(one.stream) == cls]
        turn = self._turn % len(streams)
        for sender in (streams[turn:] + streams[:turn]) * 2:
            burst = sender.next_burst(now, received_ns, is_fresh=is_fresh)
            if burst is not None:
                return burst
        return None

    def retry_ns(self, now: int) -> int | None:
        """Return when to look again after nothing could go: the rate, or patience, is over."""
        return self.allowed_ns if now < self.allowed_ns else self._slow_deadline()

    def _slow_deadline(self) -> int | None:
        """Return when receivers will have been waited for long enough."""
        times = [sender.flow.slow_deadline() for sender in self.in_use if sender.flow is not None]
        return min((time for time in times if time is not None), default=None)

    def set_lost(self, peer: Peer, *, is_lost: bool) -> None:
        """Stop or resume waiting for a receiver; the debt stays."""
        for sender in self.reliables:
            assert sender.flow is not None
            sender.flow.set_lost(peer.key, sender.next_sequence, is_lost=is_lost)
        self.grants.follow(peer)
        self.grants.look_around()

    def take_status(
        self, now: int, peer: Peer, stream: int, status: Status, *, is_refusal: bool
    ) -> None:
        """Take in how far a receiver is with a stream."""
        debt = peer.debt
        if status.debt != debt.number:
            self.endpoint.drops["old_status"] += 1
            return
        if is_refusal:
            if debt.has_begun:
                self.grants.renew(now, peer)
            return
        self.grants.acknowledge(peer, status.nonce)
        flow = self.flows.get(stream)
        state = None if flow is None else flow.receivers.get(peer.key)
        if flow is None or state is None:
            self._settle(now, peer, stream, 0, status.nonce)
            return
        sender = self.senders[stream]
        if status.echo_us:
            rtt_us = (now // US - status.echo_us - status.delay_us) % _US_WRAP
            flow.sample_rtt(now, state, rtt_us * US)
        was_slow = state.is_slow
        base = sender.position_of(status.contiguous)
        flow.update(now, state, status, sender.next_sequence, sender.position, base)
        if was_slow and not state.is_slow:
            self.endpoint.counters["slow_recovered"] += 1
        sender.acknowledged()
        if self.receipts.open:
            self.receipts.look()
        self._settle(now, peer, stream, state.contiguous, status.nonce)
        if self._is_leaving:
            self._repair_unasked(now, peer, stream, status.contiguous)

    def _repair_unasked(self, now: int, peer: Peer, stream: int, lacking: int) -> None:
        """Send a frame again that a receiver does not ask for, though it says that it lacks it.

        Its request may be lost, or held off for long because we did not answer the first ones, and
        who leaves has little time.
        """
        sender, way = self.senders[stream], self.grants.way_to(peer, stream)
        if way is not None and sender.is_overdue(lacking):
            sender.request(now, peer.key, way, [(lacking, 1)], sender.repair_budget())

    def leave(self) -> None:
        """Hurry: what receivers lack can be sent again for a short while only."""
        self._is_leaving = True
        for sender in self.senders.values():
            sender.leave()

    def _settle(self, now: int, peer: Peer, stream: int, contiguous: int, serial: int) -> None:
        """End what is under way to a peer, and over now that it has so much."""
        if self.replays.by_peer.get(peer.key):
            if self.replays.settle(peer, stream, contiguous, serial):
                self.grants.repeat(now, peer)
            self.grants.tidy(now, peer)
        if peer.debt.moves:
            self.grants.settle(now, peer, stream, contiguous, serial)

    def take_nak(self, now: int, peer: Peer, stream: int, ranges: list[control.Range]) -> None:
        """Queue the repairs a receiver asks for; say what it will not get."""
        flow = self.flows.get(stream)
        if flow is None:
            return
        sender = self.senders[stream]
        self.endpoint.counters["naks_received"] += 1
        way = self.grants.way_to(peer, stream)
        if way is None:
            return  # No link leads there by which it may go; it will ask again.
        skipped, gone = sender.request(now, peer.key, way, ranges, sender.repair_budget())
        if skipped:
            spans = list(control.to_ranges(skipped))[:_SKIP_RANGES_MAX]
            body = control.encode_skip(peer.key, spans)
            self.endpoint.send(peer.reach, SKIP, stream, body)
        state = flow.receivers.get(peer.key)
        reason = "too_slow" if state is not None and state.is_slow else "not_available"
        room = sender.framer.body_bytes_max - _LOST_OVERHEAD_BYTES
        # A request must not cost many times its size: what is left out will be asked for again.
        for lost_ranges, runs in islice(sender.describe_lost(gone, room), _LOST_ANSWERS_MAX):
            lost = Lost(peer.key, reason, lost_ranges, runs)
            self.endpoint.send(peer.reach, LOST, stream, control.encode_lost(lost))

    def tails(self) -> dict[Address | None, list[Tail]]:
        """Return where the streams end, by the way that each takes; there is always the group."""
        tails: dict[Address | None, list[Tail]] = {None: []}
        for stream, sender in self.senders.items():
            is_fresh = sender.next_sequence == self.first_frame and stream not in CLASSES
            if is_fresh or sender.framer.destination is NOWHERE:
                continue  # It was never used, or leads nowhere.
            receivers = min(len(sender.flow.receivers), 0xFFFF) if sender.flow is not None else 0
            tail = Tail(stream, sender.next_sequence, receivers, sender.tail_ns is not None)
            tails.setdefault(sender.framer.destination, []).append(tail)
        return tails

    def advance(self, now: int, peers: list[Peer]) -> bool:
        """Run timers; True when the ends of the streams must be told."""
        for sender in self.in_use:
            sender.framer.calm(now)
        for sender in self.reliables:
            assert sender.flow is not None and sender.cache is not None
            for key in sender.flow.drop_slow(now, sender.next_sequence):
                if key not in self._behind:
                    self._report_slow(key, peers)
            sender.cache.expire(now)
        self.grants.advance(now)
        for peer in peers:
            if peer.debt.due_ns is not None and now >= peer.debt.due_ns and peer.is_present:
                self.grants.resend(now, peer)
        return any(sender.is_tail_due(now) for sender in self.reliables)

    def note_behind(self, peers: list[Peer]) -> None:
        """Report who takes nothing any more, once each time that it falls behind."""
        behind, before = frozenset(self.endpoint.behind), self._behind
        self._behind = behind
        for key in behind - before:
            if not any(state.is_slow for state in self.states_of(key)):
                self._report_slow(key, peers)

    def states_of(self, key: bytes) -> list[ReceiverState]:
        """Return what is known of a receiver, by stream."""
        return [flow.receivers[key] for flow in self.flows.values() if key in flow.receivers]

    def is_slow(self, key: bytes) -> bool:
        """Tell whether a receiver is left behind, by its window or by what it holds."""
        return key in self.endpoint.behind or any(one.is_slow for one in self.states_of(key))

    def _report_slow(self, key: bytes, peers: list[Peer]) -> None:
        self.endpoint.counters["slow_receivers"] += 1
        for peer in peers:
            if peer.key == key:
                self.endpoint.events.append(
                    SlowConsumer(self.endpoint.channel, "left_behind", 0, peer=peer.source)
                )

    def deadline(self, now: int, peers: list[Peer]) -> int | None:
        """Return when `advance` has something to do; held-back frames apart."""
        times = [self.tail_ns, self._slow_deadline(), self.grants.deadline()]
        times += [peer.debt.due_ns for peer in peers if peer.is_present]
        if self.bucket is not None and self.has_work(now):
            times.append(self.bucket.ready_ns(now))
        return min((time for time in times if time is not None), default=None)

    @property
    def tail_ns(self) -> int | None:
        """Return when the end of a stream must be told."""
        if len(self.reliables) > len(RELIABLES):
            times = [sender.tail_ns for sender in self.reliables]
            return min((time for time in times if time is not None), default=None)
        first, second = self.reliable.tail_ns, self.reliables[1].tail_ns
        if first is None or second is None:
            return second if first is None else first
        return min(first, second)

    def hold_deadline(self) -> int | None:
        """Return when a held-back frame must, and may, go."""
        due: int | None = None
        for sender in self.in_use:
            hold = sender.hold_deadline()
            if hold is not None and (due is None or hold < due):
                due = hold
        if due is not None and self.bucket is not None:
            due = max(due, self.bucket.ready_ns(self.endpoint.now) or due)
        return due

    def has_work(self, now: int) -> bool:
        """Tell whether frames wait to be sent, for whatever reason."""
        return any(
            sender.framer.has_work or sender.repairs or sender.oversized for sender in self.in_use
        )

    def is_settled(self) -> bool:
        """Tell whether everything was sent and everybody who is here has it."""
        return not any(sender.framer.has_work for sender in self.senders.values()) and all(
            flow.is_acknowledged(self.senders[stream].next_sequence)
            for stream, flow in self.flows.items()
        )

    def is_delivered(self) -> bool:
        """Tell whether, since the last question, nobody was lost who still lacked something."""
        unserved, self._unserved = self._unserved, 0
        return not unserved and all(
            state.contiguous >= self.senders[stream].next_sequence
            for stream, flow in self.flows.items()
            for state in flow.receivers.values()
        )

    def note_unserved(self, peer: Peer) -> None:
        """Count a receiver that is gone before it said that it has everything."""
        self._unserved += any(
            peer.key in flow.receivers
            and flow.receivers[peer.key].contiguous < self.senders[stream].next_sequence
            for stream, flow in self.flows.items()
        )

    def _send_grant(self, peer: Peer, body: bytes) -> None:
        self.endpoint.send(peer.reach, GRANT, 0, body)
