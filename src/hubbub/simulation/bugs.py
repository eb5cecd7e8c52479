"""Planted bugs: each breaks one method of the machines, and the simulator must find it.

A harness that finds nothing proves nothing, unless it is known to find what is there. Each bug says
in which scenario it shows; a test runs that scenario until a seed fails.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hubbub.protocol import core as core_module
from hubbub.protocol.audience import Roll
from hubbub.protocol.burst import Address, GroupAndPipes, Pipes
from hubbub.protocol.cache import Cache
from hubbub.protocol.declared import Declared, News
from hubbub.protocol.discovery import Discovery
from hubbub.protocol.flow import Flow
from hubbub.protocol.framing import Framer
from hubbub.protocol.grants import Grants
from hubbub.protocol.incoming import Incoming
from hubbub.protocol.joining import Joining
from hubbub.protocol.matches import Matches
from hubbub.protocol.membership import Membership
from hubbub.protocol.moves import Move
from hubbub.protocol.peers import Peer
from hubbub.protocol.reassembly import Partial
from hubbub.protocol.receipts import Receipt, Receipts
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.register import Register
from hubbub.protocol.repair import Requester
from hubbub.protocol.replays import Replays
from hubbub.protocol.sender import Sender
from hubbub.protocol.state import State
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic
from hubbub.protocol.ways import Ways
from hubbub.wire.control import Change
from hubbub.wire.header import REFERS, Header

Method = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug: what replaces which method, and where it shows."""

    owner: Any
    method: str
    make: Callable[[Method], Method]
    scenario: str
    seed: int  # One that finds it soon: there a test begins.
    by: str  # Which promise is seen to be broken; empty: any.


BUGS: dict[str, Bug] = {}


def bug(
    owner: Any, method: str, scenario: str, seed: int = 0, by: str = ""
) -> Callable[[Callable[[Method], Method]], None]:
    """Enter a bug under the name of the function that makes it."""

    def enter(make: Callable[[Method], Method]) -> None:
        BUGS[make.__name__] = Bug(owner, method, make, scenario, seed, by)

    return enter


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """Plant a bug for as long as the context lasts."""
    bug = BUGS[name]
    sound = bug.owner.__dict__[bug.method]
    is_static = isinstance(sound, staticmethod)
    broken = bug.make(sound.__func__ if is_static else sound)
    setattr(bug.owner, bug.method, staticmethod(broken) if is_static else broken)
    try:
        yield bug
    finally:
        setattr(bug.owner, bug.method, sound)


@bug(Requester, "due", "nak_loss")
def request_never_repeated(sound: Method) -> Method:
    """Ask for what is missing once, and set no timer again."""

    def due(self: Requester, now: int, heard_ns: int) -> list[int]:
        frames: list[int] = sound(self, now, heard_ns)
        if frames:
            self.timer_ns = self._ask_ns = None
        return frames

    return due


@bug(Receiver, "_is_new", "random_loss", seed=3)
def duplicates_not_dropped(sound: Method) -> Method:
    """Take every frame for a new one."""
    return lambda self, sequence: True


@bug(Receiver, "extend", "random_loss")
def gap_one_too_short(sound: Method) -> Method:
    """Miss the last frame of every gap."""

    def extend(self: Receiver, now: int, next_sequence: int) -> None:
        sound(self, now, next_sequence)
        self.requester.found(next_sequence - 1)

    return extend


@bug(Discovery, "look_longer", "open_publish_close_busy")
def leaving_after_a_short_look_around(sound: Method) -> Method:
    """Give those who are busy no more time to answer than usual."""
    return lambda self, now: None


@bug(Discovery, "_is_late", "open_publish_close", seed=20)
def stall_taken_for_looking_around(sound: Method) -> Method:
    """Open when it is time, though nobody was asked, or heard, meanwhile."""
    return lambda self, now, planned_ns: False


@bug(Partial, "add_train", "large_messages")
def train_taken_for_longer_than_it_is(sound: Method) -> Method:
    """Take the piece behind a train for one of it."""
    return lambda self, offset, pieces, frame: sound(self, offset, [*pieces, pieces[-1]], frame)


@bug(Flow, "_bounded", "small_cache")
def window_larger_than_the_cache(sound: Method) -> Method:
    """Send more than is kept for repair."""
    return lambda self, window_bytes: window_bytes


@bug(Sender, "is_tail_due", "tail_loss")
def tail_never_told(sound: Method) -> Method:
    """Send no heartbeat behind the last frame."""

    def is_tail_due(self: Sender, now: int) -> bool:
        self.tail_ns = None
        return False

    return is_tail_due


@bug(Sender, "_queue_repair", "random_loss")
def newest_frame_not_repaired(sound: Method) -> Method:
    """Repair everything but the last frame."""

    def queue(self: Sender, now: int, sequence: int) -> Any:
        return 0 if sequence == self.next_sequence - 1 else sound(self, now, sequence)

    return queue


@bug(Framer, "next_body", "images_beside_samples")
def large_message_cut_to_its_end_first(sound: Method) -> Method:
    """Let what is small wait until the last piece of a large message has been cut."""

    def next_body(self: Framer, now: int, received_ns: int) -> Any:
        self._is_large_next = True
        return sound(self, now, received_ns)

    return next_body


@bug(Receiver, "base", "random_loss")
def acknowledged_before_receipt(sound: Any) -> Any:
    """Say that all is here up to the highest frame heard of."""
    return property(lambda self: self.next)


@bug(Sender, "request", "random_loss")
def owed_frames_skipped(sound: Method) -> Method:
    """Tell a receiver that what it asks for holds nothing for it."""

    def request(
        self: Sender, now: int, key: bytes, address: Address, ranges: Any, budget_bytes: int
    ) -> tuple[list[int], list[int]]:
        frames = [s for first, count in ranges for s in range(first, first + count)]
        return [sequence for sequence in frames if sequence < self.next_sequence], []

    return request


@bug(Cache, "acknowledge", "random_loss")
def cache_forgets_too_early(sound: Method) -> Method:
    """Forget two frames more than everybody has."""
    return lambda self, before: sound(self, before + 2)


@bug(Partial, "add", "large_messages")
def duplicate_segment_counted(sound: Method) -> Method:
    """Count segments without looking at which they are, as LCM does."""

    def add(self: Partial, segment: Any) -> bool:
        self.seen[segment.offset // self.stride] = 0
        self.remaining -= len(self.seen) > 2 and segment.offset == self.stride
        return bool(sound(self, segment))

    return add


@bug(Requester, "heard", "random_loss")
def suppressed_for_ever(sound: Method) -> Method:
    """Leave to others for good what they have asked for once."""

    def heard(self: Requester, now: int, ranges: list[tuple[int, int]]) -> None:
        for first, count in ranges:
            for sequence in range(first, first + count):
                if sequence in self.missing:
                    self.missing[sequence].due_ns = now + 10**15

    return heard


@bug(Grants, "resend", "random_loss")
def grant_never_repeated(sound: Method) -> Method:
    """Send each grant once."""

    def resend(self: Grants, now: int, peer: Any) -> None:
        sound(self, now, peer)
        peer.debt.due_ns = None

    return resend


@bug(core_module, "is_intact", "corruption")
def checksum_not_checked(sound: Method) -> Method:
    """Take damaged frames for sound."""
    return lambda buffer, start, end, checksum: True


@bug(Flow, "_holding_back", "slow_receiver")
def slow_receiver_never_dropped(sound: Method) -> Method:
    """Let one receiver hold back the group for ever."""
    return lambda self: []


@bug(IncomingTopic, "accept", "random_loss")
def order_ignored(sound: Method) -> Method:
    """Hand out what comes as it comes."""

    def accept(self: IncomingTopic, frame: int, first: int, *rest: Any) -> None:
        self.expected = first
        sound(self, frame, first, *rest)

    return accept


@bug(IncomingTopic, "close_hole", "partition_long", seed=6)
def holes_not_reported(sound: Method) -> Method:
    """Go on behind a hole without a word."""

    def close_hole(self: IncomingTopic) -> None:
        self.hole_first = 0

    return close_hole


@bug(Membership, "_replace_older", "restart")
def restart_not_noticed(sound: Method) -> Method:
    """Let the old incarnation of a node live beside the new one."""
    return lambda self, now, peer: None


@bug(Membership, "lose", "crash")
def death_not_noticed(sound: Method) -> Method:
    """Take silence for life."""

    def lose(self: Membership, now: int, peer: Peer) -> None:
        peer.heard_ns = now

    return lose


@bug(Discovery, "announce", "late_join", seed=1)
def interest_announced_by_heartbeat_only(sound: Method) -> Method:
    """Do not say at once what is wanted now."""
    return lambda self, now: None


@bug(Incoming, "_plan_status", "small_buffers")
def status_never_sent(sound: Method) -> Method:
    """Never tell the sender how far we are."""
    return lambda self, now, peer, receiver, is_asked: None


@bug(Sender, "is_blocked", "small_buffers")
def window_ignored(sound: Method) -> Method:
    """Send whatever the receivers can take."""
    return lambda self: False


@bug(Grants, "reroute", "pipe_changes", seed=10)
def pipe_taken_for_all(sound: Method) -> Method:
    """Send by pipes as soon as one receiver has one."""

    def reroute(self: Grants, stream: int) -> None:
        keys = [key for key in self.from_frames if key in self.endpoint.pipes]
        self.senders[stream].framer.take_route(Pipes(keys) if keys else None)

    return reroute


@bug(Ways, "route", "beyond_the_group", seed=3)
def group_taken_to_reach_all(sound: Method) -> Method:
    """Send to the group alone what also those should have who cannot hear it."""

    def route(self: Ways, *rest: Any) -> Pipes | None:
        chosen: Pipes | None = sound(self, *rest)
        return None if isinstance(chosen, GroupAndPipes) else chosen

    return route


@bug(Ways, "close", "tcp_changes", seed=11)
def ended_pipe_still_used(sound: Method) -> Method:
    """Go on sending by a pipe that is no more."""
    return lambda self, key, link: self.best.get(key)


@bug(Incoming, "take_frame", "pipes")
def references_not_followed(sound: Method) -> Method:
    """Take what stands for a payload for the payload."""

    def take_frame(self: Incoming, now: int, peer: Peer, header: Header, *rest: Any) -> None:
        sound(self, now, peer, header._replace(flags=header.flags & ~REFERS), *rest)

    return take_frame


@bug(Declared, "apply", "discovery", seed=4)
def missing_steps_passed_over(sound: Method) -> Method:
    """Take what a peer declares anew without what came before it."""

    def apply(self: Declared, change: Change) -> News | None:
        if change.base > self.version:
            self.version = change.base
        news: News | None = sound(self, change)
        return news

    return apply


@bug(Peer, "hear_of", "discovery", seed=4)
def missed_change_never_asked_for(sound: Method) -> Method:
    """Ask only strangers what they declare."""

    def hear_of(self: Peer, version: int, now: int) -> None:
        if not self.is_known:
            sound(self, version, now)

    return hear_of


@bug(State, "publish_no_more", "discovery", seed=2)
def closed_publisher_not_told(sound: Method) -> Method:
    """Say of publishers only that they come."""

    def publish_no_more(self: State, topic: OutgoingTopic) -> None:
        del self.topics[topic.subject]

    return publish_no_more


@bug(Matches, "go", "discovery", seed=1)
def matches_outlive_their_peer(sound: Method) -> Method:
    """Tell that a peer left, and not what ended with it."""
    return lambda self, peer: None


@bug(Matches, "refresh", "discovery", seed=2)
def only_new_publishers_matched(sound: Method) -> Method:
    """Compare what is wanted with what is published only when something is published."""

    def refresh(self: Matches) -> None:
        self.is_stale = False

    return refresh


@bug(Register, "advance", "register", seed=3)
def old_index_not_honoured(sound: Method) -> Method:
    """Take only those frames for ours that name our newest index."""

    def advance(self: Register, now: int) -> bool:
        has_changed = bool(sound(self, now))
        if has_changed:
            self._indices = {self.index}
            self.bits = 1 << self.index if self.index < 64 else 0
        return has_changed

    return advance


@bug(Register, "hear", "register", seed=2)
def index_never_yielded(sound: Method) -> Method:
    """Keep an index that another has, too."""
    return lambda self, now, peer: None


@bug(Roll, "remove", "register", seed=2)
def bit_not_cleared(sound: Method) -> Method:
    """Count a receiver out, but leave its bit."""

    def remove(self: Roll, index: int) -> None:
        bitmap = self._bitmap
        sound(self, index)
        self._bitmap = bitmap

    return remove


@bug(Roll, "add", "register", seed=9)
def receiver_without_index_not_named(sound: Method) -> Method:
    """Name only those receivers in a header that have a bit."""

    def add(self: Roll, index: int) -> None:
        sound(self, index)
        self._unlisted = 0

    return add


@bug(Receiver, "pass_by", "register", seed=2)
def frame_for_others_not_counted(sound: Method) -> Method:
    """Drop a frame that is for others as if it had never come."""
    return lambda self, now, sequence, size_bytes, received_ns, out: None


@bug(Grants, "_find_straight", "one_receiver")
def straight_to_one_of_several(sound: Method) -> Method:
    """Go on sending straight to the first receiver when others have come."""

    def find(self: Grants, stream: int, keys: list[bytes]) -> Address | None:
        address: Address | None = sound(self, stream, keys[:1])
        return address

    return find


@bug(Joining, "_hold", "history")
def new_messages_before_history(sound: Method) -> Method:
    """Hand out what is new without waiting for what was before."""
    return lambda self, delivery: self.hand_out(delivery)


@bug(Joining, "_hand_out_from", "history")
def history_handed_out_twice(sound: Method) -> Method:
    """Hand out what is new without looking where the history ended."""
    return lambda self, start, delivery: self.hand_out(delivery)


@bug(Replays, "settle", "history", 17)
def history_ended_when_it_was_sent(sound: Method) -> Method:
    """Owe a history no longer than until it is in frames."""
    ever = 1 << 64
    return lambda self, peer, stream, contiguous, serial: sound(self, peer, stream, ever, ever)


@bug(Replays, "feed", "history", seed=23)
def history_not_fed_to_the_end(sound: Method) -> Method:
    """Send of each history only what waits to be sent at once."""

    def feed(self: Replays) -> None:
        sound(self)
        self._feeding.clear()

    return feed


@bug(Receipts, "_look_at", "acknowledged")
def acknowledged_by_any_status(sound: Method) -> Method:
    """Take every answer of a receiver for one to the newest message."""

    def look_at(self: Receipts, receipt: Receipt) -> None:
        sound(self, receipt)
        receipt.targets = dict.fromkeys(receipt.targets, 0)

    return look_at


@bug(Flow, "_patience_ends", "stopped_receiver")
def waited_for_four_times_as_long(sound: Method) -> Method:
    """Hold up a group for more than `slow_ms`."""
    return lambda self, state: sound(self, state) + 3 * self.slow_ns


@bug(Receiver, "may_take_over", "near_and_far", seed=8)
def stream_continued_at_once(sound: Method) -> Method:
    """Do not wait for what still comes by the stream that another one continues."""
    return lambda self: self.continues is not None


@bug(Move, "is_over", "near_and_far", seed=8)
def move_ended_by_any_status(sound: Method) -> Method:
    """Take whatever a receiver says of the old stream for the word that it has all."""
    return lambda self, contiguous, serial: True
