"""A message to several subscribers at once, where they hear the group of the services.

Who hears it is not assumed, but told: a subscriber that has heard a manager in the group says so in
the acknowledgements of its messages. To be heard a first time, a manager now and then sends a
message both ways. From then on one datagram to the group is for all who hear it, and each of them
acknowledges it as ever. Who does not is sent it by itself, as any repeat, and is not counted on for
a while: a group that falls silent delays what is on its way by one timeout, and nothing after that.

Only plain messages go so: those that all subscribers of a service are sent in the same words.
Whatever comes by the group and is not plain, not of the manager that we know, or not for us, is
left alone: nobody waits for a word about it (decision 0054).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hubbub.limits import (
    GROUP_BELIEF,
    GROUP_DEAF,
    GROUP_DEAF_MAX,
    GROUP_MEMORY,
    GROUP_MIN,
    GROUP_TRIAL,
    GROUP_TRIAL_MAX,
    MEMBERS_MAX,
)
from hubbub.protocol.rendezvous.hops import Done, Hops
from hubbub.protocol.rendezvous.seat import Place, Seat, allow_everything
from hubbub.protocol.rendezvous.view import View
from hubbub.wire.header import HEADER_BYTES, KIND_OFFSET, MAGIC, SERVICE
from hubbub.wire.services import (
    BATCH,
    ENVELOPE,
    ENVELOPE_BYTES,
    HEARS_GROUP,
    INFO,
    KEY_BYTES,
    NO_LOCAL,
    NODE_BYTES,
    NOTHING,
    TAKEN,
    Answer,
    Request,
    encode_request,
)

if TYPE_CHECKING:
    from hubbub.protocol.rendezvous.client import Subscribed

Target = tuple[bytes, Place]
_MAGIC: Final = MAGIC.to_bytes(2, "big")
_NODE_AT: Final = 14
_TYPE_AT: Final = HEADER_BYTES + ENVELOPE_BYTES
_KEY_AT: Final = _TYPE_AT + 1
_REST_AT: Final = _KEY_AT + KEY_BYTES
_new_answer: Final[Callable[[Any], Answer]] = partial(tuple.__new__, Answer)


class Group:
    """Who hears this node in the group, and what is sent there."""

    def __init__(self, seat: Seat, hops: Hops, place: Place | None) -> None:
        self.seat = seat
        self.place = place  # None: there is no group.
        self._hops = hops
        self._hearing: dict[bytes, int] = {}  # Until when it is believed of whom.
        self._deaf: dict[bytes, tuple[int, int]] = {}  # Until when not, and for how long.
        self._trial_ns = 0
        self._pause_ns = GROUP_TRIAL
        hops.missed = self.missed

    def post(self, now: int, targets: list[Target], request: Request, done: Done) -> None:
        """Send a request to some nodes, by the group if it is a plain message for many."""
        is_plain = request.message.type == INFO and request.extra is NOTHING
        if not is_plain or request.flags & ~BATCH or not self.is_worth_it(targets):
            self._hops.post(
                now, targets, SERVICE, lambda hop: encode_request(request._replace(hop=hop)), done
            )
            return
        hops = self._hops
        hops.hop = hop = hops.hop + 1 & 0xFFFF_FFFF
        frame = self.seat.make_frame(SERVICE, encode_request(request._replace(hop=hop)))
        self.put_out(now, targets, hop, frame, done)

    def is_worth_it(self, targets: list[Target]) -> bool:
        """Tell whether a plain message may go by the group: what a policy hides may not."""
        is_open = self.place is not None and self.seat.policy is allow_everything
        return is_open and len(targets) >= GROUP_MIN

    def put_out(self, now: int, targets: list[Target], hop: int, frame: bytes, done: Done) -> None:
        """Send a frame to nodes: once for those who hear the group, and to each other one."""
        assert self.place is not None
        near, far = self._part(now, targets, len(frame))
        counters = self.seat.counters
        if len(near) >= GROUP_MIN:
            self._pause_ns = GROUP_TRIAL
            counters["group_frames"] += 1
            counters["group_receivers"] += len(near)
            self.seat.out.append((self.place, frame))
            self._hops.expect(now, near, hop, frame, done)
            targets = far
        elif now >= self._trial_ns:  # Before it goes to each: who hears it says so at once.
            self._trial_ns = now + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, GROUP_TRIAL_MAX)
            counters["group_trials"] += 1
            self.seat.out.append((self.place, frame))
        self._hops.put_out(now, targets, hop, frame, done)

    def _part(
        self, now: int, targets: list[Target], size_bytes: int
    ) -> tuple[list[Target], list[Target]]:
        """Part nodes into those who hear the group and have room, and all others."""
        near: list[Target] = []
        far: list[Target] = []
        hearing, tracks = self._hearing, self._hops.tracks
        for target in targets:
            node = target[0]
            track = tracks.get(node)
            has_room = track is None or track.has_room(size_bytes)
            (near if has_room and hearing.get(node, 0) > now else far).append(target)
        return near, far

    def believe(self, now: int, node: bytes) -> None:
        """Hear from a subscriber that it hears us in the group."""
        if self.place is None or self._deaf.get(node, (0, 0))[0] > now:
            return
        if len(self._hearing) >= MEMBERS_MAX:
            self._hearing.clear()
        self._hearing[node] = now + GROUP_BELIEF

    def missed(self, now: int, node: bytes) -> None:
        """Note that a node did not acknowledge what went to the group.

        Where the group loses much, this comes soon after each time that it was counted on again.
        """
        self._hearing.pop(node, None)
        until_ns, pause_ns = self._deaf.get(node, (0, 0))
        if now < until_ns:
            return  # It went there before.
        self.seat.counters["group_missed"] += 1
        is_again = pause_ns and now - until_ns < 4 * pause_ns
        pause_ns = min(2 * pause_ns, GROUP_DEAF_MAX) if is_again else GROUP_DEAF
        if len(self._deaf) >= MEMBERS_MAX:
            self._deaf.clear()
        self._deaf[node] = (now + pause_ns, pause_ns)

    def forget(self, node: bytes) -> None:
        """Forget a node that is gone: who comes back may be elsewhere."""
        self._hearing.pop(node, None)
        self._deaf.pop(node, None)


class Ear:
    """What this node hears in the group, and whose."""

    def __init__(self, seat: Seat, view: View, subscribed: "dict[bytes, Subscribed]") -> None:
        self._seat = seat
        self._members = view.members
        self._subscribed = subscribed
        self.heard: dict[Place, int] = {}  # Until when it is said to whom.

    def is_for_us(self, now: int, data: bytes, place: Place) -> bool:
        """Tell whether a frame is to be taken; it is looked at as any other after that.

        Who it says it is must be known, and at the place it came from: nobody else is answered.
        """
        drops = self._seat.drops
        if len(data) < _REST_AT or data[:2] != _MAGIC:
            drops["group_short" if len(data) < _REST_AT else "group_magic"] += 1
            return False
        node = data[_NODE_AT : _NODE_AT + NODE_BYTES]
        member = self._members.get(node)
        if member is None or not member.is_present or member.place != place:
            drops["group_stranger"] += 1
            return False
        if len(self.heard) >= MEMBERS_MAX:
            self.heard.clear()
        self.heard[place] = now + GROUP_MEMORY
        if data[KIND_OFFSET] != SERVICE or data[_TYPE_AT] != INFO:
            drops["group_kind"] += 1
            return False
        is_ours = self._is_ours(node, data)
        self._seat.counters["group_heard" if is_ours else "group_ignored"] += 1
        return is_ours

    def _is_ours(self, manager: bytes, data: bytes) -> bool:
        """Tell whether a message is one that its manager would send us by itself, too."""
        one = self._subscribed.get(data[_KEY_AT:_REST_AT])
        if one is None or one.manager != manager or not one.is_confirmed or one.is_refused:
            return False
        _, flags, _, origin, *_, extra_bytes = ENVELOPE.unpack_from(data, HEADER_BYTES)
        if flags & ~BATCH or extra_bytes or one.patterns:
            return False
        return not (one.flags & NO_LOCAL and origin == self._seat.node)

    def mark(self, now: int, place: Place, answer: Answer) -> Answer:
        """Say in an acknowledgement to a node that it was heard in the group, if so."""
        if answer.status != TAKEN or self.heard.get(place, 0) <= now:
            return answer
        return _new_answer((answer.hop, TAKEN, answer.epoch, HEARS_GROUP, answer.manager))
